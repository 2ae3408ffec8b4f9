//! The metadata store of several simulated servers: a database that is always there, of which each part is written
//! by whoever has opened it last.
//!
//! What was committed stays. Each question takes its time on the way; now and then a commit is refused for nothing, and
//! now and then nobody learns whether it was carried out until somebody reads. In one mood it finds out by itself what any
//! writer has written, as PostgreSQL does; in the other each knows what he has, and asks about the keys that are contended, as
//! with etcd, and a commit that its caller has given up, or of which he was not told what became, may come later.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_base::task;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Kv, KvError, Outcome, Pair, Part, Result, Snapshot, Store, Writes};
use tokio::sync::RwLock;

/// A commit whose answer is lost, in percent.
const LOST: u64 = 1;

/// How much later one comes of which nobody was told, in milliseconds at most.
const LATE_MS: u64 = 500;

/// How long a database that cannot be reached is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The database, as a machine has it. Clones are on the same machine.
#[derive(Clone)]
pub struct Database {
    state: Arc<Mutex<State>>,
    kv: MemoryKv,
    cut: Arc<AtomicBool>,
    knows_all: bool,
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
    /// An empty one, which invents conflicts in so many of a hundred commits, and may know what every writer has written.
    pub fn new(random: SplitMix64, conflicts: u64, knows_all: bool) -> Self {
        let state = State { random, writers: HashMap::new(), openings: 0, conflicts };
        let state = Arc::new(Mutex::new(state));
        Self { state, kv: MemoryKv::new(), cut: Arc::default(), knows_all }
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

    fn spans_parts(&self) -> bool {
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
        let (lost, under_way, in_doubt) = Default::default();
        let writer = Writer { database: self.clone(), part, number, lost };
        Ok(Arc::new(Opened { writer: Arc::new(writer), under_way, in_doubt }))
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
    writer: Arc<Writer>,
    /// Held by each commit that comes whoever waits for it.
    under_way: Arc<RwLock<()>>,
    /// Held by each of which nobody was told what became: who reads waits for it.
    in_doubt: Arc<RwLock<()>>,
}

struct Writer {
    database: Database,
    part: Part,
    number: u64,
    lost: AtomicBool,
}

impl Writer {
    fn check(&self) -> Result<()> {
        if self.database.state.lock().writers.get(&self.part) == Some(&self.number) {
            return Ok(());
        }
        self.lost.store(true, Ordering::Relaxed);
        Err(KvError::TakenOver { store: "simulated".into(), by: "another server".into() })
    }

    /// How much later a commit comes of which its caller is not told what has become; `None`: it is like others. Those of the
    /// managers are: who leads says so several times a second, and is taken for lost else.
    fn late(&self) -> Option<Duration> {
        let mut state = self.database.state.lock();
        let is_late = self.part != Part::Control && state.random.percent(LOST);
        is_late.then(|| Duration::from_millis(state.random.below(LATE_MS)))
    }

    async fn commit(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
        contended: &[Vec<u8>],
    ) -> Result<Outcome> {
        let database = &self.database;
        database.travel().await?;
        self.check()?;
        let (refused, lost) = {
            let mut state = database.state.lock();
            let refused = state.conflicts;
            (state.random.percent(refused), state.random.percent(LOST))
        };
        if refused {
            return Ok(if lost { Outcome::Unknown } else { Outcome::Conflict });
        }
        // It answers at once: nobody comes between.
        let outcome = match database.knows_all {
            true => database.kv.commit(snapshot, writes).await?,
            false => database.kv.commit_as(self.part, &*snapshot, writes, contended),
        };
        let lost = database.travel().await.is_err() || lost;
        Ok(if lost { Outcome::Unknown } else { outcome })
    }
}

#[async_trait]
impl Kv for Opened {
    fn name(&self) -> &'static str {
        "simulated database"
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let database = &self.writer.database;
        drop(self.in_doubt.write().await);
        database.travel().await?;
        self.writer.check()?;
        let snapshot = database.kv.snapshot().await;
        database.travel().await?;
        snapshot
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> Result<Outcome> {
        self.commit_contended(snapshot, writes, &[]).await
    }

    async fn commit_contended(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
        contended: &[Vec<u8>],
    ) -> Result<Outcome> {
        if self.writer.database.knows_all {
            return self.writer.commit(snapshot, writes, contended).await;
        }
        let (writer, contended) = (self.writer.clone(), contended.to_vec());
        let under_way = self.under_way.clone().read_owned().await;
        let late = self.writer.late();
        let in_doubt = match late {
            Some(_) => Some(self.in_doubt.clone().read_owned().await),
            None => None,
        };
        let carried_out = task::spawn(async move {
            let _until_over = (under_way, in_doubt);
            tokio::time::sleep(late.unwrap_or_default()).await;
            writer.commit(snapshot, writes, &contended).await
        });
        match late {
            Some(_) => Ok(Outcome::Unknown),
            None => carried_out.await.unwrap_or(Ok(Outcome::Unknown)),
        }
    }

    async fn drain(&self) -> Result<()> {
        drop(self.under_way.write().await);
        Ok(())
    }

    fn is_taken_over(&self) -> bool {
        self.writer.lost.load(Ordering::Relaxed)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}
