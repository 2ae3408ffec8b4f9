//! The metadata store of a simulated server: in memory, with the durability of the embedded engines.
//!
//! A commit that was answered survives the death of the process; a sync makes everything before it
//! survive the loss of power, after which of the rest a prefix is left.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Pair, Result, Snapshot, Writes};

/// The store of one server, which outlives its processes. Clones are the same store.
#[derive(Clone)]
pub struct SimStore {
    state: Arc<Mutex<State>>,
}

struct State {
    random: SplitMix64,
    now: MemoryKv,
    /// Which process is alive: others' calls fail.
    process: u64,
    /// How often its machine has lost power.
    losses: u64,
    durable: BTreeMap<Vec<u8>, Bytes>,
    /// Commits since the last sync, in order.
    pending: Vec<Writes>,
    /// A commit is refused although nothing stood against it, in percent.
    conflicts: u64,
}

/// What the disk of the store does.
enum Step {
    Write,
    Sync,
}

impl SimStore {
    /// An empty store, which invents conflicts in so many of a hundred commits.
    pub fn new(random: SplitMix64, conflicts: u64) -> Self {
        let state = State {
            random,
            now: MemoryKv::new(),
            process: 1,
            losses: 0,
            durable: BTreeMap::new(),
            pending: Vec::new(),
            conflicts,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The store as the present process sees it.
    pub fn process(&self) -> Arc<dyn Kv> {
        let process = self.state.lock().process;
        Arc::new(Opened { state: self.state.clone(), process })
    }

    /// Ends the process: what was committed stays.
    pub fn kill(&self) {
        self.state.lock().process += 1;
    }

    /// Cuts the power: what was not synced is lost from some commit on.
    pub async fn power_loss(&self) -> Result<()> {
        let (kv, all) = {
            let mut state = self.state.lock();
            state.process += 1;
            state.losses += 1;
            let count = state.pending.len() as u64;
            let kept = state.random.below(count + 1) as usize;
            let mut pending = std::mem::take(&mut state.pending);
            pending.truncate(kept);
            state.make_durable(pending);
            state.now = MemoryKv::new();
            (state.now.clone(), state.durable.clone())
        };
        if all.is_empty() {
            return Ok(());
        }
        let writes = all.into_iter().map(|(key, value)| (key, Some(value))).collect();
        match kv.commit(kv.snapshot().await?, writes).await? {
            Outcome::Committed => Ok(()),
            other => Err(KvError::Io { store: "simulated".into(), cause: format!("{other:?}") }),
        }
    }

    /// Everything that is stored.
    pub async fn all(&self) -> Result<Vec<Pair>> {
        let kv = self.state.lock().now.clone();
        kv.snapshot().await?.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await
    }
}

impl State {
    fn make_durable(&mut self, commits: Vec<Writes>) {
        for (key, value) in commits.into_iter().flatten() {
            match value {
                Some(value) => self.durable.insert(key, value),
                None => self.durable.remove(&key),
            };
        }
    }
}

struct Opened {
    state: Arc<Mutex<State>>,
    process: u64,
}

impl Opened {
    /// The engine, if the process lives.
    fn engine(&self) -> Result<MemoryKv> {
        let state = self.state.lock();
        match state.process == self.process {
            true => Ok(state.now.clone()),
            false => Err(dead()),
        }
    }

    async fn wait(&self, step: Step) {
        let most = match step {
            Step::Write => 2,
            Step::Sync => 8,
        };
        let time = self.state.lock().random.below(most);
        match time {
            0 => tokio::task::yield_now().await,
            time => tokio::time::sleep(Duration::from_millis(time)).await,
        }
    }
}

fn dead() -> KvError {
    KvError::Io { store: "simulated".into(), cause: "the process is dead".into() }
}

#[async_trait]
impl Kv for Opened {
    fn name(&self) -> &'static str {
        "simulated"
    }

    /// As the embedded one, for which it stands.
    fn commits_at_once(&self) -> bool {
        true
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.engine()?.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.wait(Step::Write).await;
        let kv = self.engine()?;
        {
            let mut state = self.state.lock();
            let refused = state.conflicts;
            if state.random.percent(refused) {
                return Ok(Outcome::Conflict);
            }
        }
        // The engine answers at once: the order here is the order there.
        let outcome = kv.commit(snapshot, writes.clone()).await?;
        if outcome == Outcome::Committed {
            self.state.lock().pending.push(writes);
        }
        self.wait(Step::Write).await;
        Ok(outcome)
    }

    fn boot(&self) -> Option<String> {
        Some(format!("boot-{}", self.state.lock().losses))
    }

    async fn sync(&self) -> Result<()> {
        let upto = {
            self.engine()?;
            self.state.lock().pending.len()
        };
        self.wait(Step::Sync).await;
        self.engine()?;
        let mut state = self.state.lock();
        let upto = upto.min(state.pending.len());
        let commits = state.pending.drain(..upto).collect();
        state.make_durable(commits);
        Ok(())
    }
}
