//! One target: its store, how many threads may work on it at once, and what is counted.

use crate::attempts::{Attempts, Running};
use crate::order::Whose;
use crate::room::Room;
use crate::syncs::{Asked, Syncs, begin};
use crate::tag::plain_error;
use crate::watch::Watch;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_base::task;
use strake_engine::chunk::{self, ChunkStore};
use strake_types::limits::CHUNK_BYTES_MAX;
use strake_types::{ChunkId, Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage::{Attempt, Chunk, Range, WriteMany};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Operations at work on one target at once. Deep enough to keep a fast disk busy; the rest wait in
/// order.
pub(crate) const DEPTH_MAX: usize = 32;

/// Payloads of writes that were answered before their disks have ended them, at all targets of a server.
pub(crate) const LATE_BYTES_MAX: usize = 256 << 20;

/// Who waits for his turn looks so often whether the disk answers at all.
const DISK_LOOK: Duration = Duration::from_secs(1);

/// Parts of one request: as many as clients send at most.
const PARTS_MAX: usize = 16_384;

/// Names of operations, as metrics label them, in the order of [`OpKind`].
const OP_NAMES: [&str; 14] = [
    "read",
    "write",
    "truncate",
    "punch",
    "allocate",
    "sync",
    "extents",
    "copy",
    "chunks",
    "stat",
    "scrub",
    "drop_volume",
    "replicate",
    "repair",
];

/// What is counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Read,
    Write,
    Truncate,
    Punch,
    Allocate,
    Sync,
    Extents,
    Copy,
    Chunks,
    Stat,
    Scrub,
    DropVolume,
    /// What members of a group tell each other.
    Replicate,
    Repair,
}

struct OpMetrics {
    ops: Counter,
    errors: Counter,
    seconds: Histogram,
}

/// One target of a server.
pub(crate) struct Target {
    pub id: TargetId,
    pub store: Arc<ChunkStore>,
    /// Which changes were made already.
    pub attempts: Attempts,
    pub syncs: Syncs,
    gate: Arc<Semaphore>,
    /// Held while a chunk is sent to a member that is made equal: one at a time.
    pub healing: Semaphore,
    /// Held while room is looked for and reserved: several who look at once would all find the same.
    pub reserving: Mutex<()>,
    /// Targets of the server on the same disk, itself included.
    pub sharing: AtomicU64,
    /// What clients have under way.
    foreground: AtomicU32,
    ops: Vec<OpMetrics>,
    pub bytes_read: Counter,
    bytes_written: Counter,
    room: Room,
    queue_depth: Gauge,
    /// Whether its disk answers.
    pub watch: Watch,
}

/// The next sync of a target, until it begins, or will not.
struct Begins(Arc<Target>);

impl Drop for Begins {
    fn drop(&mut self) {
        self.0.syncs.next_begins();
    }
}

impl Target {
    /// Metrics go to the recorder that is installed at this moment.
    pub fn new(id: TargetId, store: Arc<ChunkStore>) -> Self {
        let target = id.to_string();
        let of_op = |op: &&'static str| OpMetrics {
            ops: counter!("strake_storage_ops_total", "op" => *op, "target" => target.clone()),
            errors: counter!("strake_storage_errors_total", "op" => *op, "target" => target.clone()),
            seconds: histogram!(
                "strake_storage_op_seconds", "op" => *op, "target" => target.clone()
            ),
        };
        let bytes = |dir: &'static str| counter!("strake_storage_bytes_total", "dir" => dir, "target" => target.clone());
        Self {
            id,
            watch: Watch::of(&store),
            store,
            attempts: Attempts::default(),
            syncs: Syncs::default(),
            gate: Arc::new(Semaphore::new(DEPTH_MAX)),
            healing: Semaphore::new(1),
            reserving: Mutex::default(),
            sharing: AtomicU64::new(1),
            foreground: AtomicU32::new(0),
            ops: OP_NAMES.iter().map(of_op).collect(),
            bytes_read: bytes("read"),
            bytes_written: bytes("write"),
            room: Room::default(),
            queue_depth: gauge!("strake_storage_queue_depth", "target" => target.clone()),
        }
    }

    /// Counts an operation that somebody waits for, until the answer is dropped.
    pub fn foreground(&self, op: OpKind) -> Option<Foreground<'_>> {
        (op != OpKind::Replicate).then(|| {
            self.foreground.fetch_add(1, Ordering::Relaxed);
            Foreground(&self.foreground)
        })
    }

    /// How many operations somebody waits for.
    pub fn waited_for(&self) -> u32 {
        self.foreground.load(Ordering::Relaxed)
    }

    /// Counts a finished operation.
    pub fn count(&self, op: OpKind, begun: Instant, ok: bool) {
        let metrics = &self.ops[op as usize];
        metrics.ops.increment(1);
        metrics.seconds.record(begun.elapsed());
        if !ok {
            metrics.errors.increment(1);
        }
    }

    /// So many bytes were written.
    pub fn note_written(&self, bytes: u64) {
        self.bytes_written.increment(bytes);
        self.room.note(bytes);
    }

    /// So many bytes were reserved: they are as little there for others.
    pub fn note_reserved(&self, bytes: u64) {
        self.room.note(bytes);
    }

    /// True while what is left of its room is kept for what is under way to it.
    pub fn is_short(&self) -> bool {
        self.room.is_short(&self.store)
    }

    /// True if it should not reserve so many bytes that nobody waits for: it would come close to being short.
    pub fn is_tight(&self, bytes: u64) -> bool {
        self.room.is_tight(&self.store, bytes)
    }

    /// True if so many bytes may be reserved, which somebody waits for: it is not short after that.
    pub fn may_reserve(&self, bytes: u64) -> bool {
        self.room.has_beside_margin(&self.store, bytes)
    }

    /// Looks whether its disk answers, several times a second.
    pub fn watch_disk(&self) {
        let before = self.watch.silent();
        self.watch.look(tokio::time::Instant::now());
        match (before, self.watch.silent()) {
            (None, Some(_)) => tracing::error!("{}", self.silence("nothing new is asked of it")),
            (Some(_), None) => {
                let path = self.store.path();
                tracing::warn!("target {} ({path}): its disk answers again", self.id);
            }
            _ => {}
        }
    }

    /// Fails while the disk does not answer: what would be asked of it now would only wait, and hold what others need.
    pub fn check_disk(&self) -> Result<()> {
        let Some(silent) = self.watch.silent() else { return Ok(()) };
        let since = format!("for {} s", silent.as_secs());
        Err(Error::with(ErrorKind::Unavailable, self.silence(&since)))
    }

    /// As [`Attempts::begin`]; where the disk does not answer, what is refused as still under way says so: its client goes on
    /// asking, and should know what it waits for. So does what is refused as over for its client, of which nobody asks any more.
    pub fn begin(
        &self,
        attempt: Option<Attempt>,
        whose: Option<Whose>,
    ) -> Result<Option<Running<'_>>> {
        self.attempts.begin(attempt, whose).map_err(|refused| match self.check_disk() {
            Err(silent) if refused.kind == ErrorKind::NotCurrent => {
                Error::with(refused.kind, format!("{}: {}", refused.detail, silent.detail))
            }
            _ => refused,
        })
    }

    fn silence(&self, more: &str) -> String {
        let (id, path) = (self.id, self.store.path());
        format!("target {id} ({path}): its disk does not answer, {more}; see dmesg on its host")
    }

    /// Runs `work` on a thread that may wait for the disk, when it is its turn. It runs to its end
    /// even if the caller stops waiting. Fails with `Unavailable` before it has begun where the disk does not answer.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&ChunkStore) -> chunk::Result<T> + Send + 'static,
    ) -> Result<T> {
        let _queued = Queued::new(&self.queue_depth);
        let turn = self.turn().await?;
        let store = self.store.clone();
        let done = task::blocking(move || {
            let result = work(&store);
            drop(turn);
            result
        });
        let done = done.await.map_err(|e| {
            let detail = format!("target {}: the operation was abandoned: {e}", self.id);
            Error::with(ErrorKind::Io, detail)
        })?;
        done.map_err(plain_error)
    }

    /// Waits for a turn, in order.
    async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        self.check_disk()?;
        let stopped = |_| Error::with(ErrorKind::Unavailable, "the storage server is stopping");
        let turn = self.gate.clone().acquire_owned();
        self.while_disk_answers(turn).await?.map_err(stopped)
    }

    /// Waits for something as long as the disk answers.
    pub async fn while_disk_answers<F: Future>(&self, awaited: F) -> Result<F::Output> {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            match timeout(DISK_LOOK, &mut awaited).await {
                Ok(done) => return Ok(done),
                Err(_waits) => self.check_disk()?,
            }
        }
    }

    /// The same, of a write with a payload of so many bytes, which has to come to its end: it goes on when nobody waits for it any
    /// more. Where such ones hold too much already (`late`), it is waited for.
    pub async fn end_while_disk_answers<T: Send + 'static>(
        &self,
        mut awaited: impl Future<Output = Result<T>> + Send + Unpin + 'static,
        late: &Arc<Semaphore>,
        bytes: usize,
    ) -> Result<T> {
        let (id, bytes) = (self.id, u32::try_from(bytes).unwrap_or(u32::MAX));
        loop {
            let silent = match self.while_disk_answers(&mut awaited).await {
                Ok(done) => return done,
                Err(silent) => silent,
            };
            let Ok(held) = late.clone().try_acquire_many_owned(bytes) else { continue };
            task::spawn(async move {
                if let Err(error) = awaited.await {
                    tracing::warn!(
                        "target {id}: a write that was answered while its disk hung has failed: {error}"
                    );
                }
                drop(held);
            });
            return Err(silent);
        }
    }

    /// Makes everything durable that was acknowledged before the call, or before the first one of those that have `asked` for
    /// the same. It goes on to its end even if the caller stops waiting.
    pub async fn sync(self: &Arc<Self>, asked: Option<Asked>) -> Result<()> {
        self.check_disk()?;
        let synced = self.syncs.join(asked, || begin(self.clone().sync_next())).await;
        asked.iter().for_each(|asked| self.syncs.heard(*asked, &synced));
        synced
    }

    /// The next sync, when it is its turn.
    async fn sync_next(self: Arc<Self>) -> Result<()> {
        let begins = Begins(self.clone());
        let turn = self.while_disk_answers(self.syncs.turn()).await?;
        self.run(move |store| {
            drop(begins);
            let synced = store.sync();
            drop(turn);
            synced
        })
        .await
    }

    /// As [`Target::run`], unless its client has given this up when it is its turn.
    pub async fn run_attempt<T: Send + 'static>(
        self: &Arc<Self>,
        attempt: Option<Attempt>,
        work: impl FnOnce(&ChunkStore) -> chunk::Result<T> + Send + 'static,
    ) -> Result<T> {
        let target = self.clone();
        let work = move |store: &ChunkStore| match attempt
            .map_or(Ok(()), |attempt| target.attempts.check(attempt))
        {
            Ok(()) => work(store).map(Ok),
            Err(given_up) => Ok(Err(given_up)),
        };
        self.run(work).await?
    }
}

/// Counts as waited for while it lives.
pub(crate) struct Foreground<'a>(&'a AtomicU32);

impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts as queued or at work while it lives.
struct Queued<'a>(&'a Gauge);

impl<'a> Queued<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// A range that lies where a chunk may have bytes.
pub(crate) fn in_chunk(range: Range) -> Result<(ChunkId, u64, u64)> {
    let end = range.offset.checked_add(range.len);
    if end.is_none_or(|end| end > CHUNK_BYTES_MAX) {
        let chunk = ChunkId::from(range.chunk);
        let detail = format!("{chunk} cannot have bytes {}+{}", range.offset, range.len);
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    Ok((range.chunk.into(), range.offset, range.len))
}

/// Fails unless each part lies where a chunk may have bytes. What they are of a payload is not looked at.
pub(crate) fn check_parts(many: &WriteMany) -> Result<()> {
    let (count, malformed) = (many.lens.len(), |what: &str| {
        Err(Error::with(ErrorKind::Malformed, format!("writes to inode {}: {what}", many.ino)))
    });
    if [many.indices.len(), many.offsets.len(), many.crcs.len()] != [count; 3] {
        return malformed("lists of different lengths");
    }
    if count > PARTS_MAX {
        return malformed("too many parts");
    }
    let parts = many.indices.iter().zip(&many.offsets).zip(&many.lens);
    for ((&index, &offset), &len) in parts {
        let chunk = Chunk { volume: many.volume, ino: many.ino, index };
        in_chunk(Range { chunk, offset, len })?;
    }
    Ok(())
}

/// Texts for the metrics page.
pub(crate) fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!("strake_storage_ops_total", "Operations on a target.");
    describe_counter!("strake_storage_errors_total", "Operations on a target that failed.");
    describe_histogram!(
        "strake_storage_op_seconds",
        Unit::Seconds,
        "Time of an operation on a target, with its wait."
    );
    describe_counter!("strake_storage_bytes_total", Unit::Bytes, "Bytes of chunks moved.");
    describe_counter!(
        "strake_storage_repaired_blocks_total",
        "Damaged blocks of 4 KiB that were repaired from another copy, by what had met them."
    );
    describe_counter!(
        "strake_storage_taken_back_blocks_total",
        "Blocks of 4 KiB that the primary lacked and a comparison took back from another copy."
    );
    describe_counter!(
        "strake_storage_different_chunks_total",
        "Chunks of which a member's copy was not what the primary has."
    );
    describe_counter!(
        "strake_storage_lost_blocks_total",
        "Damaged blocks met of which no copy is sound."
    );
    describe_counter!(
        "strake_storage_resync_bytes_total",
        Unit::Bytes,
        "Bytes sent to members of groups to make them equal."
    );
    describe_counter!(
        "strake_storage_cleared_bytes_total",
        Unit::Bytes,
        "Bytes deleted of groups that have moved to other targets."
    );
    describe_counter!("strake_storage_scrubbed_bytes_total", Unit::Bytes, "Bytes verified.");
    describe_counter!(
        "strake_storage_scrub_findings_total",
        "Chunks in which a scrub has found damage or a difference, by what became of them."
    );
    describe_gauge!("strake_storage_queue_depth", "Operations that wait for a target's disk.");
}
