//! An engine in memory, in two moods.
//!
//! [`MemoryKv::new`] is well behaved: tests of other crates run on it. [`MemoryKv::adversarial`]
//! does everything that the contract permits and a friendly engine never does: it permits write
//! skew (as every engine here), invents conflicts, loses the answers of commits - and lets such a
//! commit take effect later, after others that began after it, until somebody reads - and suspends
//! in the middle of every call, so that tasks interleave. What survives it survives the real ones.
//!
//! [`SyncedKv`] is the first with a host that can lose power.

mod random;
mod synced;
mod versions;

use super::{Kv, KvError, Outcome, Pair, Part, Result, Snapshot, Writes};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
pub(in crate::kv) use random::Random;
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
pub use synced::SyncedKv;
use versions::Versions;

/// How often the adversary strikes: probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// A commit is refused although nothing stood against it.
    pub conflict: f64,
    /// The answer of a commit is lost.
    pub unknown: f64,
    /// A commit whose answer was lost has taken effect, if nothing stood against it.
    pub applied: f64,
    /// A call suspends once, so that other tasks run.
    pub suspend: f64,
}

impl Rates {
    /// Nothing out of the ordinary.
    pub const CALM: Self = Self { conflict: 0.0, unknown: 0.0, applied: 0.0, suspend: 0.0 };
    /// Enough of everything to be met in a run of some hundred transactions.
    pub const ROUGH: Self = Self { conflict: 0.1, unknown: 0.1, applied: 0.5, suspend: 0.3 };
}

/// An engine in memory. Cheap to clone: clones are the same store.
#[derive(Clone)]
pub struct MemoryKv {
    state: Arc<Mutex<State>>,
    /// As if its host could lose power: how often it has been booted. 0: it cannot.
    boots: u64,
    /// It says that it commits at once, as an engine on this machine does.
    at_once: bool,
}

struct State {
    versions: Versions,
    rates: Rates,
    random: Random,
    /// Commits whose answers were lost and that have not been decided. Any read decides them.
    undecided: Vec<(u64, Writes)>,
    reach: Reach,
}

/// Whether the store can be reached, as if it were a database elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Within,
    /// The next commit is carried out, and the store lost before its answer comes.
    LostAtCommit,
    Lost,
}

impl State {
    /// Decides what became of the commits whose answers were lost, in any order.
    fn settle(&mut self) {
        while !self.undecided.is_empty() {
            let next = self.random.below(self.undecided.len());
            let (version, writes) = self.undecided.swap_remove(next);
            if self.random.chance(self.rates.applied) && !self.versions.conflicts(version, &writes)
            {
                self.versions.apply(writes);
            }
            self.versions.release(version);
        }
    }
}

impl MemoryKv {
    /// The well-behaved engine.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "an empty store is made, not defaulted")]
    pub fn new() -> Self {
        Self::adversarial(0, Rates::CALM)
    }

    /// The adversary; the same seed and the same calls in the same order give the same answers.
    #[must_use]
    pub fn adversarial(seed: u64, rates: Rates) -> Self {
        let state = State {
            versions: Versions::default(),
            rates,
            random: Random::new(seed),
            undecided: Vec::new(),
            reach: Reach::Within,
        };
        Self { state: Arc::new(Mutex::new(state)), boots: 0, at_once: false }
    }

    /// The same store, which says that it commits at once, as an engine on this machine does.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    /// The same store, on a host that has been booted so often.
    fn booted(self, boots: u64) -> Self {
        Self { boots, ..self }
    }

    /// The next commit is carried out, its answer is lost, and the store cannot be reached from then on.
    pub fn get_lost_at_commit(&self) {
        self.state.lock().reach = Reach::LostAtCommit;
    }

    /// The store can be reached again.
    pub fn come_back(&self) {
        self.state.lock().reach = Reach::Within;
    }

    /// Commits as the writer of a part on an engine that spans parts and knows no more of other writers than it must: whether they
    /// have written `contended` keys.
    pub fn commit_as(
        &self,
        part: Part,
        snapshot: &dyn Snapshot,
        writes: Writes,
        contended: &[Vec<u8>],
    ) -> Outcome {
        let version = version_of(snapshot);
        let mut state = self.decided();
        match state.versions.conflicts_for(part, version, &writes, contended) {
            true => Outcome::Conflict,
            false => {
                state.versions.apply_by(part, writes);
                Outcome::Committed
            }
        }
    }

    /// Suspends now and then, and never when calm.
    async fn interleave(&self) {
        let suspend = {
            let mut state = self.state.lock();
            let rate = state.rates.suspend;
            state.random.chance(rate)
        };
        if suspend {
            Suspend(false).await;
        }
    }

    /// The state, with every lost answer decided: to be used by whatever reads.
    fn decided(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.settle();
        state
    }
}

#[async_trait]
impl Kv for MemoryKv {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn commits_at_once(&self) -> bool {
        self.at_once
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.interleave().await;
        let mut state = self.decided();
        if state.reach == Reach::Lost {
            let cause = "it is lost".into();
            return Err(KvError::Unreachable { store: "memory".into(), cause });
        }
        let version = state.versions.hold();
        drop(state);
        Ok(Arc::new(MemorySnapshot { kv: self.clone(), version }))
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.interleave().await;
        let version = version_of(&*snapshot);
        let outcome = {
            let mut state = self.state.lock();
            let rates = state.rates;
            if writes.is_empty() {
                Outcome::Committed
            } else if state.reach == Reach::LostAtCommit {
                state.reach = Reach::Lost;
                if !state.versions.conflicts(version, &writes) {
                    state.versions.apply(writes);
                }
                Outcome::Unknown
            } else if state.random.chance(rates.unknown) {
                state.versions.hold_at(version);
                state.undecided.push((version, writes));
                Outcome::Unknown
            } else if state.random.chance(rates.conflict)
                || state.versions.conflicts(version, &writes)
            {
                Outcome::Conflict
            } else {
                state.versions.apply(writes);
                Outcome::Committed
            }
        };
        self.interleave().await;
        Ok(outcome)
    }

    fn boot(&self) -> Option<String> {
        (self.boots > 0).then(|| format!("boot-{}", self.boots))
    }

    async fn sync(&self) -> Result<()> {
        self.interleave().await;
        Ok(())
    }
}

struct MemorySnapshot {
    kv: MemoryKv,
    version: u64,
}

fn version_of(snapshot: &dyn Snapshot) -> u64 {
    snapshot
        .as_any()
        .downcast_ref::<MemorySnapshot>()
        .expect("a snapshot is committed to the engine that gave it: a caller's bug otherwise")
        .version
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        self.kv.state.lock().versions.release(self.version);
    }
}

#[async_trait]
impl Snapshot for MemorySnapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.kv.interleave().await;
        Ok(self.kv.decided().versions.get(self.version, key))
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.kv.interleave().await;
        let state = self.kv.decided();
        Ok(keys.iter().map(|key| state.versions.get(self.version, key)).collect())
    }

    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
        self.kv.interleave().await;
        Ok(self.kv.decided().versions.scan(self.version, from, to, limit))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Pending once, then ready.
struct Suspend(bool);

impl Future for Suspend {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
