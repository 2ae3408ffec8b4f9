//! The metadata store of several simulated servers: a database that is always there, of which each part is written
//! by whoever has opened it last.
//!
//! What was committed stays. Each question takes its time on the way; now and then a commit is refused for nothing, and
//! now and then nobody learns whether it was carried out until somebody reads.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Pair, Part, Result, Snapshot, Store, Writes};

/// A commit whose answer is lost, in percent.
const LOST: u64 = 1;

/// How long a database that cannot be reached is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The database, as a machine has it. Clones are on the same machine.
#[derive(Clone)]
pub struct Database {
    state: Arc<Mutex<State>>,
    kv: MemoryKv,
    cut: Arc<AtomicBool>,
}

struct State {
    random: SplitMix64,
    /// Who has opened each part last, by number.
    writers: HashMap<Part, u64>,
    openings: u64,
    /// Commits that are refused although nothing stands against them, in percent.
    conflicts: u64,
}

impl Database {
    /// An empty one, which invents conflicts in so many of a hundred commits.
    pub fn new(random: SplitMix64, conflicts: u64) -> Self {
        let state = State { random, writers: HashMap::new(), openings: 0, conflicts };
        Self { state: Arc::new(Mutex::new(state)), kv: MemoryKv::new(), cut: Arc::default() }
    }

    /// The same on another machine.
    pub fn elsewhere(&self) -> Self {
        Self { cut: Arc::default(), ..self.clone() }
    }

    /// From now on this machine does not reach it, or does again.
    pub fn set_cut(&self, is: bool) {
        self.cut.store(is, Ordering::Relaxed);
    }

    /// Everything that is stored.
    pub async fn all(&self) -> Result<Vec<Pair>> {
        self.kv.snapshot().await?.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await
    }

    /// The time of a message. An error if it does not arrive.
    async fn travel(&self) -> Result<()> {
        if self.cut.load(Ordering::Relaxed) {
            tokio::time::sleep(PATIENCE).await;
            let cause = "nothing gets there".into();
            return Err(KvError::Unreachable { store: "simulated".into(), cause });
        }
        let time = self.state.lock().random.below(3);
        match time {
            0 => tokio::task::yield_now().await,
            time => tokio::time::sleep(Duration::from_millis(time)).await,
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Database {
    fn name(&self) -> &'static str {
        "simulated database"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn judges_all_writers(&self) -> bool {
        true
    }

    async fn open(&self, part: Part) -> Result<Arc<dyn Kv>> {
        self.travel().await?;
        let number = {
            let mut state = self.state.lock();
            state.openings += 1;
            let number = state.openings;
            state.writers.insert(part, number);
            number
        };
        self.travel().await?;
        Ok(Arc::new(Opened { database: self.clone(), part, number, lost: AtomicBool::new(false) }))
    }

    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        self.travel().await?;
        let found = self.kv.snapshot().await?.multi_get(keys).await;
        self.travel().await?;
        found
    }
}

/// A part that a server has opened.
struct Opened {
    database: Database,
    part: Part,
    number: u64,
    lost: AtomicBool,
}

impl Opened {
    fn check(&self) -> Result<()> {
        if self.database.state.lock().writers.get(&self.part) == Some(&self.number) {
            return Ok(());
        }
        self.lost.store(true, Ordering::Relaxed);
        Err(KvError::TakenOver { store: "simulated".into(), by: "another server".into() })
    }
}

#[async_trait]
impl Kv for Opened {
    fn name(&self) -> &'static str {
        "simulated database"
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.database.travel().await?;
        self.check()?;
        let snapshot = self.database.kv.snapshot().await;
        self.database.travel().await?;
        snapshot
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.database.travel().await?;
        self.check()?;
        let (refused, lost) = {
            let mut state = self.database.state.lock();
            let refused = state.conflicts;
            (state.random.percent(refused), state.random.percent(LOST))
        };
        if refused {
            return Ok(if lost { Outcome::Unknown } else { Outcome::Conflict });
        }
        // It answers at once: nobody comes between.
        let outcome = self.database.kv.commit(snapshot, writes).await?;
        let lost = self.database.travel().await.is_err() || lost;
        Ok(if lost { Outcome::Unknown } else { outcome })
    }

    fn is_taken_over(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}
