//! Several transactions at once on one thread, in any order, against a model of the contract.

use super::{Subject, run};
use crate::kv::{Outcome, Transaction, Writes};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Transactions open at once.
const OPEN: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Begin,
    Get(Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>, usize),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Commit,
    Sync,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, b'a', b'b', 255]), 0..3)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let value = prop::collection::vec(any::<u8>(), 0..20);
    let step = prop_oneof![
        3 => Just(Step::Begin),
        4 => key().prop_map(Step::Get),
        4 => (bound(), bound(), 0..8_usize).prop_map(|(from, to, n)| Step::Scan(from, to, n)),
        6 => (key(), value).prop_map(|(key, value)| Step::Put(key, value)),
        3 => key().prop_map(Step::Delete),
        5 => Just(Step::Commit),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ];
    (0..OPEN, step)
}

type Map = BTreeMap<Vec<u8>, Bytes>;

/// A transaction and what the model knows of it.
struct Pair {
    real: Transaction,
    base: Map,
    began: u64,
    writes: Writes,
}

impl Pair {
    fn seen(&self) -> Map {
        let mut seen = self.base.clone();
        apply(&mut seen, &self.writes);
        seen
    }
}

fn apply(map: &mut Map, writes: &Writes) {
    for (key, value) in writes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

#[derive(Default)]
struct Model {
    map: Map,
    clock: u64,
    written: BTreeMap<Vec<u8>, u64>,
}

pub fn transactions_behave_as_the_model_says(subject: Subject) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    // A case that failed has lost its subject, so no smaller one can be looked for.
    let config =
        Config { cases, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let subject = std::cell::RefCell::new(Some(subject));
    let result = TestRunner::new(config).run(&prop::collection::vec(step(), 1..120), |steps| {
        let current = subject.take().expect("put back by every case that did not fail");
        let after = run(play(current, steps))?;
        subject.replace(Some(after));
        Ok(())
    });
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

async fn play(mut subject: Subject, steps: Vec<(usize, Step)>) -> Result<Subject, TestCaseError> {
    let mut model = Model { map: contents(&subject).await, ..Model::default() };
    let mut open: [Option<Pair>; OPEN] = [const { None }; OPEN];
    for (slot, step) in steps {
        match (step, &mut open[slot]) {
            (Step::Begin, slot) => {
                let real = subject.begin().await;
                let base = model.map.clone();
                *slot = Some(Pair { real, base, began: model.clock, writes: Writes::new() });
            }
            (Step::Sync, _) => subject.kv.sync().await.unwrap(),
            (Step::Reopen, _) => {
                open = [const { None }; OPEN];
                subject = subject.reopen();
            }
            (Step::Commit, slot) => {
                if let Some(pair) = slot.take() {
                    commit(&subject, &mut model, pair).await?;
                }
            }
            (step, Some(pair)) => act(pair, step).await?,
            (_, None) => {}
        }
    }
    prop_assert_eq!(contents(&subject).await, model.map);
    Ok(subject)
}

async fn act(pair: &mut Pair, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Get(key) => {
            prop_assert_eq!(pair.real.get(&key).await.unwrap(), pair.seen().get(&key).cloned());
        }
        Step::Scan(from, to, limit) => {
            let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let real = pair.real.scan(bounds.0, bounds.1, limit).await.unwrap();
            let inside = |key: &[u8]| std::ops::RangeBounds::<[u8]>::contains(&bounds, key);
            let seen = pair.seen();
            let model = seen.iter().filter(|(key, _)| inside(key)).take(limit);
            let model: Vec<_> =
                model.map(|(k, v)| (Bytes::copy_from_slice(k), v.clone())).collect();
            prop_assert_eq!(real, model);
        }
        Step::Put(key, value) => {
            pair.writes.insert(key.clone(), Some(value.clone().into()));
            pair.real.put(key, value);
        }
        Step::Delete(key) => {
            pair.writes.insert(key.clone(), None);
            pair.real.delete(key);
        }
        Step::Begin | Step::Commit | Step::Sync | Step::Reopen => {}
    }
    Ok(())
}

async fn commit(subject: &Subject, model: &mut Model, pair: Pair) -> Result<(), TestCaseError> {
    let Pair { real, began, writes, .. } = pair;
    let must_conflict =
        writes.keys().any(|key| model.written.get(key).is_some_and(|at| *at > began));
    let outcome = real.commit(&*subject.kv).await.unwrap();
    let mut after = model.map.clone();
    apply(&mut after, &writes);
    let committed = match outcome {
        Outcome::Committed => true,
        Outcome::Conflict => {
            prop_assert!(must_conflict || !subject.exact, "a conflict without a cause");
            false
        }
        Outcome::Unknown => {
            prop_assert!(!subject.exact, "an embedded engine knows");
            let now = contents(subject).await;
            prop_assert!(now == after || now == model.map, "half of a transaction");
            // Of one that changes nothing nobody knows: it need not be in the way of others.
            now == after && after != model.map
        }
    };
    prop_assert!(!(committed && must_conflict && after != model.map), "an update was lost");
    if committed {
        model.map = after;
        model.clock += 1;
        for key in writes.keys() {
            model.written.insert(key.clone(), model.clock);
        }
    }
    Ok(())
}

async fn contents(subject: &Subject) -> Map {
    let snapshot = subject.kv.snapshot().await.unwrap();
    let all = snapshot.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await.unwrap();
    all.into_iter().map(|(key, value)| (key.to_vec(), value)).collect()
}
