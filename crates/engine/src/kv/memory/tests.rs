//! What only this engine does.

use super::{MemoryKv, Rates};
use crate::kv::tests::suite::run;
use crate::kv::{Kv, Outcome, Transaction};
use std::collections::HashSet;

async fn outcomes(seed: u64) -> (Vec<Outcome>, usize) {
    let kv = MemoryKv::adversarial(seed, Rates::ROUGH);
    let mut outcomes = Vec::new();
    for n in 0..200_u32 {
        let mut transaction = Transaction::begin(&kv).await.unwrap();
        transaction.put(n.to_be_bytes().to_vec(), "value");
        outcomes.push(transaction.commit(&kv).await.unwrap());
    }
    let snapshot = kv.snapshot().await.unwrap();
    let all = snapshot
        .scan(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, usize::MAX)
        .await
        .unwrap();
    (outcomes, all.len())
}

#[test]
fn the_same_seed_gives_the_same_answers() {
    assert_eq!(run(outcomes(3)), run(outcomes(3)));
    let different: HashSet<usize> = (0..8).map(|seed| run(outcomes(seed)).1).collect();
    assert!(different.len() > 1);
}

#[test]
fn lost_answers_hide_commits_and_failures() {
    let (outcomes, there) = run(outcomes(5));
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let [committed, unknown] = [count(Outcome::Committed), count(Outcome::Unknown)];
    assert!(count(Outcome::Conflict) > 0 && unknown > 2);
    assert!(there > committed && there < committed + unknown);
}

#[test]
fn a_commit_without_an_answer_can_come_after_a_later_one() {
    // Whoever is settled first wins: both orders occur over some seeds.
    let rates = Rates { unknown: 1.0, applied: 1.0, ..Rates::CALM };
    let winners: HashSet<_> = (0..16)
        .map(|seed| {
            run(async {
                let kv = MemoryKv::adversarial(seed, rates);
                let mut one = Transaction::begin(&kv).await.unwrap();
                let mut two = Transaction::begin(&kv).await.unwrap();
                one.put(b"key".to_vec(), "one");
                two.put(b"key".to_vec(), "two");
                assert_eq!(one.commit(&kv).await.unwrap(), Outcome::Unknown);
                assert_eq!(two.commit(&kv).await.unwrap(), Outcome::Unknown);
                let snapshot = kv.snapshot().await.unwrap();
                let first = snapshot.get(b"key").await.unwrap();
                let later = kv.snapshot().await.unwrap();
                assert_eq!(later.get(b"key").await.unwrap(), first, "read once, decided");
                first
            })
        })
        .collect();
    assert_eq!(winners.len(), 2);
}

#[test]
fn old_versions_are_forgotten() {
    let kv = MemoryKv::new();
    run(async {
        for n in 0..100_u32 {
            let mut transaction = Transaction::begin(&kv).await.unwrap();
            transaction.put(b"key".to_vec(), n.to_string());
            transaction.delete(b"gone".to_vec());
            assert_eq!(transaction.commit(&kv).await.unwrap(), Outcome::Committed);
        }
    });
    assert_eq!(kv.state.lock().versions.len(), (1, 1));
}
