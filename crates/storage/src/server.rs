//! The storage service: what each operation needs, and what it does.

use crate::copy::{Source, copy};
use crate::target::{OpKind, Target, describe_metrics, in_chunk};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use strake_base::clock::{Clock, SystemClock};
use strake_engine::chunk::{self, ChunkStore, StoreStat};
use strake_types::limits::PAYLOAD_BYTES_MAX;
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, Ino, Result, TargetId, VolumeId};
use strake_wire::capability::{CapabilityKey, Rights};
use strake_wire::map::MapView;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageReply, StorageRequest};
use strake_wire::service::StorageService;
use tokio::sync::Semaphore;

/// Most bytes that one call verifies.
const SCRUB_BYTES_MAX: u64 = 256 << 20;
/// Copies under way at once; each holds a piece in memory.
const COPIES_MAX: usize = 16;

/// The storage role of a server.
pub struct StorageServer {
    targets: HashMap<TargetId, Arc<Target>>,
    key: CapabilityKey,
    map: Arc<MapView>,
    clock: Arc<dyn Clock>,
    copies: Semaphore,
    /// How many targets share the disk of one, where it is not alone on it.
    sharing: HashMap<TargetId, u64>,
}

/// What an operation answers: the body's answer and the payload.
type Answer = (StorageAnswer, Bytes);

impl StorageServer {
    /// Serves these targets. Metrics go to the recorder that is installed at this moment.
    pub fn new(
        targets: Vec<(TargetId, Arc<ChunkStore>)>,
        key: CapabilityKey,
        map: Arc<MapView>,
    ) -> Self {
        Self::with_clock(targets, key, map, Arc::new(SystemClock::default()))
    }

    /// As [`StorageServer::new`], with a clock that says when capabilities end.
    pub fn with_clock(
        targets: Vec<(TargetId, Arc<ChunkStore>)>,
        key: CapabilityKey,
        map: Arc<MapView>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        describe_metrics();
        let target = |(id, store)| (id, Arc::new(Target::new(id, store)));
        let targets = targets.into_iter().map(target).collect();
        let copies = Semaphore::new(COPIES_MAX);
        Self { targets, key, map, clock, copies, sharing: HashMap::new() }
    }

    /// Says which targets share their disk with others, and how many do, itself included: each then
    /// answers for its part of the room only, so that the sum is true.
    #[must_use]
    pub fn with_sharing(mut self, sharing: HashMap<TargetId, u64>) -> Self {
        self.sharing = sharing;
        self
    }

    /// A target of this server.
    fn local(&self, id: TargetId) -> Option<&Arc<Target>> {
        self.targets.get(&id)
    }

    /// Checks that a capability allows `rights` on a file.
    fn authorise(&self, capability: &[u8], volume: u32, ino: u64, rights: Rights) -> Result<()> {
        let now_ms = u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX);
        let held = self.key.verify(capability, now_ms)?;
        if held.covers(VolumeId(volume), Ino(ino), rights) {
            return Ok(());
        }
        let detail = format!("volume {volume} inode {ino}: the capability is for something else");
        Err(Error::with(ErrorKind::BadCapability, detail))
    }

    /// Every operation that shows or changes contents needs a right to the file. Sync, Stat and
    /// Scrub do neither.
    fn check_right(&self, capability: &[u8], op: &StorageOp) -> Result<()> {
        let (volume, ino, rights) = match op {
            StorageOp::Read(r) => (r.chunk.volume, r.chunk.ino, Rights::READ),
            StorageOp::Write(w) => (w.chunk.volume, w.chunk.ino, Rights::WRITE),
            StorageOp::WriteMany(w) => (w.volume, w.ino, Rights::WRITE),
            StorageOp::Truncate(t) => (t.volume, t.ino, Rights::WRITE),
            StorageOp::Punch(r) | StorageOp::Allocate(r) => {
                (r.chunk.volume, r.chunk.ino, Rights::WRITE)
            }
            StorageOp::Copy(c) => (c.to.chunk.volume, c.to.chunk.ino, Rights::WRITE),
            StorageOp::Extents(c) => (c.volume, c.ino, Rights::NONE),
            StorageOp::Chunks(f) => (f.volume, f.ino, Rights::NONE),
            StorageOp::DropVolume(f) => (f.volume, 0, Rights::WRITE),
            StorageOp::Sync(_) | StorageOp::Stat(_) | StorageOp::Scrub(_) => return Ok(()),
        };
        self.authorise(capability, volume, ino, rights)
    }

    /// Where a copy to `to` comes from; `None`: from the same target. Checks the right to read it,
    /// unless another server will.
    fn source_of(&self, to: &Arc<Target>, request: &msg::Copy) -> Result<Option<Source>> {
        let id = TargetId(request.from_target);
        let Some(target) = self.local(id) else {
            return Ok(Some(Source::Remote(self.map.storage_of(id)?)));
        };
        let (capability, chunk) = (&request.from_capability, request.from.chunk);
        self.authorise(capability, chunk.volume, chunk.ino, Rights::READ)?;
        Ok((id != to.id).then(|| Source::Local(target.clone())))
    }

    async fn carry_out(
        &self,
        target: &Arc<Target>,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<Answer> {
        match op {
            StorageOp::Read(read) => self::read(target, read).await,
            StorageOp::Write(write) => self::write(target, write, payload).await,
            StorageOp::WriteMany(writes) => write_many(target, writes, payload).await,
            StorageOp::Truncate(cut) => {
                target.run(move |s| truncate(s, &cut)).await.map(|()| done(target))
            }
            StorageOp::Punch(range) => {
                let (chunk, offset, len) = in_chunk(range)?;
                target.run(move |s| s.punch(chunk, offset, len)).await.map(|()| done(target))
            }
            StorageOp::Allocate(range) => {
                let (chunk, offset, len) = in_chunk(range)?;
                target.run(move |s| s.allocate(chunk, offset, len)).await.map(|()| done(target))
            }
            StorageOp::Sync(_) => target.run(|s| s.sync()).await.map(|()| done(target)),
            StorageOp::Extents(chunk) => {
                let list = target.run(move |s| s.extents(chunk.into())).await?;
                let (starts, lens) = list.into_iter().unzip();
                plain(StorageAnswer::Extents(msg::ExtentList { starts, lens }))
            }
            StorageOp::Copy(request) => {
                let _turn = self.copies.acquire().await;
                let source = self.source_of(target, &request)?;
                copy(target, request, source).await.map(|()| done(target))
            }
            StorageOp::Chunks(file) => chunks(target, file).await,
            StorageOp::Stat(_) => {
                let stat = target.run(|s| Ok(s.stat())).await?;
                let parts = self.sharing.get(&target.id).copied().unwrap_or(1).max(1);
                plain(StorageAnswer::Stat(stat_answer(stat, parts)))
            }
            StorageOp::Scrub(request) => scrub(target, request).await,
            StorageOp::DropVolume(file) => {
                let volume = VolumeId(file.volume);
                target.run(move |s| s.drop_volume(volume)).await.map(|()| done(target))
            }
        }
    }
}

#[async_trait]
impl StorageService for StorageServer {
    async fn call(&self, request: StorageRequest, payload: Bytes) -> Result<(StorageReply, Bytes)> {
        let begun = Instant::now();
        let target = self.local(TargetId(request.target)).ok_or_else(|| {
            let detail = format!("target {} is not on this server", request.target);
            Error::with(ErrorKind::StaleMap, detail)
        })?;
        let unknown = || Error::with(ErrorKind::NotSupported, "an operation of a newer release");
        let op = request.op.ok_or_else(unknown)?;
        let kind = kind_of(&op);
        let result = match self.check_right(&request.capability, &op) {
            Ok(()) => self.carry_out(target, op, payload).await,
            Err(e) => Err(e),
        };
        target.count(kind, begun, result.is_ok());
        let (answer, payload) = result?;
        Ok((StorageReply { answer: Some(answer) }, payload))
    }
}

fn kind_of(op: &StorageOp) -> OpKind {
    match op {
        StorageOp::Read(_) => OpKind::Read,
        StorageOp::Write(_) | StorageOp::WriteMany(_) => OpKind::Write,
        StorageOp::Truncate(_) => OpKind::Truncate,
        StorageOp::Punch(_) => OpKind::Punch,
        StorageOp::Allocate(_) => OpKind::Allocate,
        StorageOp::Sync(_) => OpKind::Sync,
        StorageOp::Extents(_) => OpKind::Extents,
        StorageOp::Copy(_) => OpKind::Copy,
        StorageOp::Chunks(_) => OpKind::Chunks,
        StorageOp::Stat(_) => OpKind::Stat,
        StorageOp::Scrub(_) => OpKind::Scrub,
        StorageOp::DropVolume(_) => OpKind::DropVolume,
    }
}

/// With the boot that vouches for what was done until it is synced.
fn done(target: &Target) -> Answer {
    (StorageAnswer::Done(msg::Done { boot: target.store.boot() }), Bytes::new())
}

fn plain(answer: StorageAnswer) -> Result<Answer> {
    Ok((answer, Bytes::new()))
}

/// From memory at once where the kernel has the bytes; else on a thread that may wait.
async fn read(target: &Arc<Target>, read: msg::Read) -> Result<Answer> {
    if read.len > PAYLOAD_BYTES_MAX as u64 {
        let detail = format!("a read of {} bytes; at most {PAYLOAD_BYTES_MAX}", read.len);
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    let range = msg::Range { chunk: read.chunk, offset: read.offset, len: read.len };
    let (chunk, offset, len) = in_chunk(range)?;
    let (data, crc) = match target.store.read_cached(chunk, offset, len)? {
        Some(cached) => cached,
        None => target.run(move |s| s.read(chunk, offset, len)).await?,
    };
    target.bytes_read.increment(data.len() as u64);
    Ok((StorageAnswer::Data(msg::Data { crc }), data))
}

async fn write(target: &Arc<Target>, write: msg::Write, payload: Bytes) -> Result<Answer> {
    let bytes = payload.len() as u64;
    let range = msg::Range { chunk: write.chunk, offset: write.offset, len: bytes };
    let (chunk, offset, _) = in_chunk(range)?;
    target.run(move |s| s.write(chunk, offset, &payload, write.crc)).await?;
    target.bytes_written.increment(bytes);
    Ok(done(target))
}

/// Several writes by one thread: small ones cost more to hand over than to do.
async fn write_many(
    target: &Arc<Target>,
    writes: msg::WriteMany,
    payload: Bytes,
) -> Result<Answer> {
    let bytes = payload.len() as u64;
    let parts = parts(&writes, &payload)?;
    target
        .run(move |s| parts.iter().try_for_each(|p| s.write(p.chunk, p.offset, &p.data, p.crc)))
        .await?;
    target.bytes_written.increment(bytes);
    Ok(done(target))
}

struct Part {
    chunk: ChunkId,
    offset: u64,
    data: Bytes,
    crc: u32,
}

/// The parts of a payload; the lists must fit each other and the payload.
fn parts(writes: &msg::WriteMany, payload: &Bytes) -> Result<Vec<Part>> {
    let (count, malformed) = (writes.lens.len(), |what: &str| {
        Error::with(ErrorKind::Malformed, format!("writes to inode {}: {what}", writes.ino))
    });
    if [writes.indices.len(), writes.offsets.len(), writes.crcs.len()] != [count; 3] {
        return Err(malformed("lists of different lengths"));
    }
    let mut parts = Vec::with_capacity(count);
    let mut rest = payload.clone();
    for nth in 0..count {
        let len = writes.lens[nth];
        if len > rest.len() as u64 {
            return Err(malformed("the payload is shorter than its parts"));
        }
        let chunk =
            msg::Chunk { volume: writes.volume, ino: writes.ino, index: writes.indices[nth] };
        let range = msg::Range { chunk, offset: writes.offsets[nth], len };
        let (chunk, offset, _) = in_chunk(range)?;
        let data = rest.split_to(len as usize);
        parts.push(Part { chunk, offset, data, crc: writes.crcs[nth] });
    }
    match rest.is_empty() {
        true => Ok(parts),
        false => Err(malformed("the payload is longer than its parts")),
    }
}

fn truncate(store: &ChunkStore, cut: &msg::Truncate) -> chunk::Result<()> {
    let (volume, ino) = (VolumeId(cut.volume), Ino(cut.ino));
    store.delete_from(volume, ino, ChunkIndex(cut.from_index))?;
    match (cut.last_chunk_len, cut.from_index.checked_sub(1)) {
        (Some(len), Some(last)) => {
            store.truncate(ChunkId { volume, ino, index: ChunkIndex(last) }, len)
        }
        _ => Ok(()),
    }
}

async fn chunks(target: &Arc<Target>, file: msg::FileRef) -> Result<Answer> {
    let (volume, ino) = (VolumeId(file.volume), Ino(file.ino));
    let found = target.run(move |s| s.chunks_of(volume, ino)).await?;
    plain(StorageAnswer::Chunks(msg::ChunkList {
        indices: found.iter().map(|c| c.index.0).collect(),
        lens: found.iter().map(|c| c.len).collect(),
        occupied: found.iter().map(|c| c.occupied).collect(),
    }))
}

async fn scrub(target: &Arc<Target>, request: msg::Scrub) -> Result<Answer> {
    let after = request.after.map(ChunkId::from);
    let budget = request.budget_bytes.min(SCRUB_BYTES_MAX);
    let report = target.run(move |s| s.scrub(after, budget)).await?;
    plain(StorageAnswer::Scrub(msg::ScrubReport {
        next: report.next.map(Into::into),
        bytes: report.bytes,
        chunks: report.chunks,
        corrupt: report.corrupt.into_iter().map(Into::into).collect(),
    }))
}

fn stat_answer(stat: StoreStat, parts: u64) -> msg::TargetStat {
    msg::TargetStat {
        total_bytes: stat.total_bytes / parts,
        free_bytes: stat.free_bytes / parts,
        chunks: stat.chunks,
        corrupt: stat.corrupt,
        poisoned: stat.poisoned.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
