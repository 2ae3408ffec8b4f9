//! The storage service: what each operation needs, and what it does.

use crate::apply::{Answer, Shelf, done_in, plain_answer};
use crate::lease::Lease;
use crate::replica::{Common, Replica};
use crate::tag::plain;
use crate::target::{OpKind, Target, describe_metrics};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use strake_base::clock::{Clock, WakingClock};
use strake_engine::chunk::{ChunkStore, StoreStat};
use strake_types::{ChunkId, Error, ErrorKind, GroupId, Ino, Result, TargetId, VolumeId};
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
    common: Arc<Common>,
    replicas: Mutex<HashMap<(TargetId, GroupId), Arc<Replica>>>,
    copies: Semaphore,
    /// How many targets share the disk of one, where it is not alone on it.
    sharing: HashMap<TargetId, u64>,
}

impl StorageServer {
    /// Serves these targets. Metrics go to the recorder that is installed at this moment.
    pub fn new(
        targets: Vec<(TargetId, Arc<ChunkStore>)>,
        key: CapabilityKey,
        map: Arc<MapView>,
    ) -> Self {
        Self::with_clock(targets, key, map, Arc::new(WakingClock))
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
        let lease = Arc::new(Lease::new(clock.clone()));
        let started = clock.monotonic();
        Self {
            targets,
            common: Arc::new(Common { map, key, clock, lease, started }),
            replicas: Mutex::default(),
            copies: Semaphore::new(COPIES_MAX),
            sharing: HashMap::new(),
        }
    }

    /// What the server's heartbeats must renew.
    pub fn lease(&self) -> Arc<Lease> {
        self.common.lease.clone()
    }

    pub(crate) fn map(&self) -> &Arc<MapView> {
        &self.common.map
    }

    /// Says which targets share their disk with others, and how many do, itself included: each then
    /// answers for its part of the room only, so that the sum is true.
    #[must_use]
    pub fn with_sharing(mut self, sharing: HashMap<TargetId, u64>) -> Self {
        self.sharing = sharing;
        self
    }

    /// A target of this server.
    pub(crate) fn local(&self, id: TargetId) -> Option<&Arc<Target>> {
        self.targets.get(&id)
    }

    /// Checks that a capability allows `rights` on a file.
    fn authorise(&self, capability: &[u8], volume: u32, ino: u64, rights: Rights) -> Result<()> {
        let now_ms = u64::try_from(self.common.clock.wall().as_millis()).unwrap_or(u64::MAX);
        let held = self.common.key.verify(capability, now_ms)?;
        if held.covers(VolumeId(volume), Ino(ino), rights) {
            return Ok(());
        }
        let detail = format!("volume {volume} inode {ino}: the capability is for something else");
        Err(Error::with(ErrorKind::BadCapability, detail))
    }

    /// Checks that a capability allows to read a chunk's file.
    pub(crate) fn check_read(&self, capability: &[u8], chunk: msg::Chunk) -> Result<()> {
        self.authorise(capability, chunk.volume, chunk.ino, Rights::READ)
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
            StorageOp::Cut(c) => (c.chunk.volume, c.chunk.ino, Rights::WRITE),
            StorageOp::Adopt(_)
            | StorageOp::Settle(_)
            | StorageOp::Digests(_)
            | StorageOp::Sums(_)
            | StorageOp::Promise(_)
            | StorageOp::Remember(_) => (0, 0, Rights::READ_WRITE),
            StorageOp::Sync(_) | StorageOp::Stat(_) | StorageOp::Scrub(_) => return Ok(()),
        };
        self.authorise(capability, volume, ino, rights)
    }

    /// A target's part of a group of several copies.
    pub(crate) fn replica(&self, target: &Arc<Target>, group: GroupId) -> Result<Arc<Replica>> {
        if let Some(known) = self.replicas.lock().get(&(target.id, group)) {
            return Ok(known.clone());
        }
        let found = self.common.map.group(group)?;
        if group.copies() == 1 || !found.members.contains(&target.id.0) {
            let detail = format!("target {} is no member of group {group}", target.id);
            return Err(Error::with(ErrorKind::StaleMap, detail));
        }
        let make = || {
            let replica = Replica::new(target, group, self.common.clone());
            tokio::spawn(Replica::live(Arc::downgrade(&replica)));
            replica
        };
        Ok(self.replicas.lock().entry((target.id, group)).or_insert_with(make).clone())
    }

    /// Wakes the replicas of every group that has one here, so that they do their part even while no
    /// client asks. Call it whenever the map may have changed.
    pub fn wake_replicas(&self) {
        for group in &self.common.map.current().groups {
            let id = GroupId(group.id);
            let own = group.members.iter().filter_map(|&member| self.local(TargetId(member)));
            if id.copies() > 1 {
                own.for_each(|target| drop(self.replica(target, id)));
            }
        }
    }

    /// Makes a change in a group.
    pub(crate) async fn change(
        &self,
        target: &Arc<Target>,
        group: GroupId,
        epoch: u64,
        attempt: Option<msg::Attempt>,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<()> {
        if group.copies() > 1 {
            return self.replica(target, group)?.change(epoch, attempt, op, payload).await;
        }
        let Some(attempt) = attempt else {
            return Shelf::new(target, group).change(op, payload).await;
        };
        let Some(running) = target.attempts.begin(attempt)? else { return Ok(()) };
        Shelf::new(target, group).change(op, payload).await?;
        running.succeed();
        Ok(())
    }

    /// Done, and who vouches for it until it is synced: the boot of a lone target's host; of several
    /// members, how often they have lost what was not synced, all together.
    fn done_for(&self, target: &Arc<Target>, group: GroupId) -> Result<Answer> {
        Ok(done_in(match group.copies() {
            1 => target.store.boot(),
            _ => self.common.map.group(group)?.losses + 1,
        }))
    }

    async fn carry_out(
        &self,
        target: &Arc<Target>,
        request: StorageRequest,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<Answer> {
        let (group, epoch) = (GroupId(request.group), request.epoch);
        let replicated = group.copies() > 1;
        match op {
            op if request.forward.is_some() => {
                let forward = request.forward.unwrap_or_default();
                let replica = self.replica(target, group)?;
                // In a task of its own: a caller in this process may stop waiting half-way.
                let taken =
                    tokio::spawn(
                        async move { replica.forwarded(request, forward, op, payload).await },
                    );
                let gone = |e| Error::with(ErrorKind::Io, format!("a forward was abandoned: {e}"));
                taken.await.map_err(gone)?
            }
            StorageOp::Copy(copy) => {
                let _turn = self.copies.acquire().await;
                let running = match request.attempt.map(|a| target.attempts.begin(a)).transpose()? {
                    Some(None) => return self.done_for(target, group),
                    running => running.flatten(),
                };
                self.copy(target, group, epoch, copy).await?;
                running.into_iter().for_each(|running| running.succeed());
                self.done_for(target, group)
            }
            op if op.is_change() => {
                let attempt = request.attempt;
                self.change(target, group, epoch, attempt, op, payload).await?;
                self.done_for(target, group)
            }
            StorageOp::Sync(_) if replicated => {
                self.replica(target, group)?.sync(epoch, op).await?;
                self.done_for(target, group)
            }
            StorageOp::Sync(_) => {
                target.run(|s| s.sync()).await?;
                self.done_for(target, group)
            }
            StorageOp::Stat(_) => {
                let stat = target.run(|s| Ok(s.stat())).await?;
                let parts = self.sharing.get(&target.id).copied().unwrap_or(1).max(1);
                plain_answer(StorageAnswer::Stat(stat_answer(stat, parts)))
            }
            StorageOp::Scrub(request) => scrub(target, request).await,
            StorageOp::DropVolume(file) => {
                let volume = VolumeId(file.volume);
                target.run(move |s| s.drop_volume(volume)).await?;
                self.done_for(target, group)
            }
            op if replicated => self.replica(target, group)?.look(epoch, op).await,
            op => Shelf::new(target, group).look(op).await,
        }
    }
}

#[async_trait]
impl StorageService for StorageServer {
    async fn call(&self, request: StorageRequest, payload: Bytes) -> Result<(StorageReply, Bytes)> {
        let begun = Instant::now();
        let mut request = request;
        let target = self.local(TargetId(request.target)).ok_or_else(|| {
            let detail = format!("target {} is not on this server", request.target);
            Error::with(ErrorKind::StaleMap, detail)
        })?;
        let unknown = || Error::with(ErrorKind::NotSupported, "an operation of a newer release");
        let op = request.op.take().ok_or_else(unknown)?;
        let kind = if request.forward.is_some() { OpKind::Replicate } else { kind_of(&op) };
        let result = match self.check_right(&request.capability, &op) {
            Ok(()) => self.carry_out(target, request, op, payload).await,
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
        StorageOp::Adopt(_)
        | StorageOp::Settle(_)
        | StorageOp::Digests(_)
        | StorageOp::Sums(_)
        | StorageOp::Cut(_)
        | StorageOp::Promise(_)
        | StorageOp::Remember(_) => OpKind::Replicate,
    }
}

/// The cursor is one of the store.
async fn scrub(target: &Arc<Target>, request: msg::Scrub) -> Result<Answer> {
    let after = request.after.map(ChunkId::from);
    let budget = request.budget_bytes.min(SCRUB_BYTES_MAX);
    let report = target.run(move |s| s.scrub(after, budget)).await?;
    plain_answer(StorageAnswer::Scrub(msg::ScrubReport {
        next: report.next.map(Into::into),
        bytes: report.bytes,
        chunks: report.chunks,
        corrupt: report.corrupt.into_iter().map(|chunk| plain(chunk).into()).collect(),
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
