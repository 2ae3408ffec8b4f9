//! The storage service: what each operation needs, and what it does.

mod census;
mod cut;
mod first;
mod hung;
mod missed;
mod rights;
mod way;

use crate::apply::{Answer, DURABLE_WAIT, Shelf, done_in, durable, plain_answer};
use crate::gate::{Gates, no_member, word_of};
use crate::opener::Opener;
use crate::order::{Order, Whose};
use crate::replica::ranges::Ranges;
use crate::replica::{Common, Healing, MetBy, Outcome, Replica, SYNC_WAIT};
use crate::syncs::Asked;
use crate::tag::{Tag, plain};
use crate::target::{LATE_BYTES_MAX, OpKind, Target, describe_metrics};
use async_trait::async_trait;
use bytes::Bytes;
use census::Census;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use strake_base::clock::{Clock, WakingClock};
use strake_base::random::mixed;
use strake_base::{is_broken, task};
use strake_engine::chunk::{ChunkStore, StoreStat};
use strake_types::{Ack, ChunkId, Epoch, Error, ErrorKind, GroupId, Result, TargetId, VolumeId};
use strake_wire::capability::CapabilityKey;
use strake_wire::lease::Lease;
use strake_wire::map::MapView;
use strake_wire::message::jobs;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{
    SYNC_GOES_ON, StorageAnswer, StorageOp, StorageReply, StorageRequest,
};
use strake_wire::service::StorageService;
use tokio::sync::Semaphore;
use tokio::time::{timeout, timeout_at};
pub(crate) use way::Way;

/// Most bytes that one call verifies.
const SCRUB_BYTES_MAX: u64 = 256 << 20;
/// Chunks of one page of a census.
const CENSUS_CHUNKS_MAX: usize = 4096;
/// Copies under way at once, but for those that wait for a disk that hangs or a server that is away; each holds a piece in memory. That a
/// client has given some up its next change at that target says, and nothing else: until then they are made in full, and keep their places.
const COPIES_MAX: usize = 16;

/// The storage role of a server.
pub struct StorageServer {
    /// Changes while others serve. Each request looks here once: that costs a read lock, which nobody
    /// holds for longer than a look, and a count of the target's users.
    targets: RwLock<HashMap<TargetId, Arc<Target>>>,
    common: Arc<Common>,
    replicas: Mutex<HashMap<(TargetId, GroupId), Arc<Replica>>>,
    /// Those that go without a replica.
    pub(crate) gates: Gates,
    pub(crate) census: Census,
    pub(crate) copies: Semaphore,
    /// Bytes of payloads that may be held by writes which were answered while their disk hung.
    late: Arc<Semaphore>,
    /// Cuts in groups of one copy.
    cuts: Mutex<HashMap<TargetId, Ranges>>,
    opener: OnceLock<Arc<dyn Opener>>,
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
        let targets = RwLock::new(targets.into_iter().map(target).collect());
        let lease = Arc::new(Lease::new(clock.clone()));
        let started = clock.monotonic();
        let healing = Healing::default();
        Self {
            targets,
            common: Arc::new(Common { map, key, clock, lease, started, healing }),
            replicas: Mutex::default(),
            gates: Gates::default(),
            census: Census::default(),
            copies: Semaphore::new(COPIES_MAX),
            late: Arc::new(Semaphore::new(LATE_BYTES_MAX)),
            cuts: Mutex::default(),
            opener: OnceLock::new(),
        }
    }

    /// What the server's heartbeats must renew.
    pub fn lease(&self) -> Arc<Lease> {
        self.common.lease.clone()
    }

    /// How far the primaries here are with members that they make equal.
    pub fn progress(&self) -> Vec<jobs::Progress> {
        self.common.healing.progress()
    }

    /// How they are to do it from now on.
    pub fn obey(&self, orders: &[jobs::Order]) {
        self.common.healing.obey(orders);
    }

    pub(crate) fn map(&self) -> &Arc<MapView> {
        &self.common.map
    }

    /// Says how many targets share the disk of one, itself included: each then answers for its part of the
    /// room only, so that the sum is true.
    pub fn share(&self, sharing: impl IntoIterator<Item = (TargetId, u64)>) {
        for (id, parts) in sharing {
            self.local(id).iter().for_each(|t| t.sharing.store(parts.max(1), Ordering::Relaxed));
        }
    }

    /// Serves one more target from now on.
    pub fn add_target(&self, id: TargetId, store: Arc<ChunkStore>) {
        self.targets.write().insert(id, Arc::new(Target::new(id, store)));
    }

    /// Serves a target no more: nobody has heard of it yet, or it has left the cluster. Who has begun something there ends it.
    pub fn forget_target(&self, id: TargetId) {
        let target = self.targets.write().remove(&id);
        target.iter().for_each(hung::go_on_watching);
    }

    /// Says who makes new targets. Without one, none are made.
    pub fn set_opener(&self, opener: Arc<dyn Opener>) {
        self.opener.get_or_init(|| opener);
    }

    /// The targets of this server.
    pub(crate) fn targets(&self) -> Vec<Arc<Target>> {
        let mut targets: Vec<_> = self.targets.read().values().cloned().collect();
        targets.sort_by_key(|target| target.id);
        targets
    }

    /// A target of this server.
    pub(crate) fn local(&self, id: TargetId) -> Option<Arc<Target>> {
        self.targets.read().get(&id).cloned()
    }

    /// Fails if the session is fenced.
    pub(crate) fn check_fence(&self, whose: Option<Whose>) -> Result<()> {
        self.common.check_fence(whose)
    }

    /// As [`StorageServer::check_right`]. Refuses what was allowed to a session that is fenced, and waits
    /// until nothing of those is under way that the sender knows to be fenced. What a primary forwards it has
    /// begun: it ends everywhere.
    async fn admit(
        &self,
        target: &Target,
        request: &StorageRequest,
        op: &StorageOp,
    ) -> Result<Option<Whose>> {
        let whose = self.check_right(&request.capability, op)?;
        if request.forward.is_some() {
            return Ok(None);
        }
        if request.fenced > 0 {
            let fenced = Epoch(request.fenced);
            self.map().reach(fenced).await?;
            let gate = self.gates.of(target.id, GroupId(request.group));
            // What its disk has not ended may be inside.
            target.while_disk_answers(gate.fence(fenced)).await?;
        }
        self.common.check_fence(whose)?;
        Ok(whose)
    }

    /// A target's part of a group of several members, when it may begin. A request of a newer epoch than
    /// that of our map makes us fetch the map first.
    pub(crate) async fn replica(
        &self,
        target: &Arc<Target>,
        group: GroupId,
        epoch: u64,
    ) -> Result<Arc<Replica>> {
        let known = self.replicas.lock().get(&(target.id, group)).cloned();
        let replica = match known {
            Some(replica) => replica,
            None => {
                let standing = self.standing(target, group, epoch).await;
                if !standing.member || standing.alone && group.copies() == 1 {
                    return Err(no_member(target.id, group));
                }
                self.open_replica(target, group)
            }
        };
        target.while_disk_answers(replica.open()).await?;
        Ok(replica)
    }

    fn known_replica(&self, target: &Arc<Target>, group: GroupId) -> Result<Arc<Replica>> {
        let known = self.replicas.lock().get(&(target.id, group)).cloned();
        known.ok_or_else(|| no_member(target.id, group))
    }

    /// True while a group on a target has a replica.
    pub(crate) fn has_replica(&self, target: TargetId, group: GroupId) -> bool {
        self.replicas.lock().contains_key(&(target, group))
    }

    fn open_replica(&self, target: &Arc<Target>, group: GroupId) -> Arc<Replica> {
        let make = || {
            let gate = self.gates.of(target.id, group);
            gate.fill();
            let replica = Replica::new(target, group, self.common.clone(), gate);
            task::spawn(Replica::live(Arc::downgrade(&replica)));
            replica
        };
        self.replicas.lock().entry((target.id, group)).or_insert_with(make).clone()
    }

    /// Wakes the replicas of every group that has one here, so that they do their part even while no
    /// client asks, and ends those that have none any more. Call it whenever the map may have changed.
    pub(crate) fn wake_replicas(&self) {
        for group in &self.common.map.current().groups {
            let id = GroupId(group.id);
            let own = group.members.iter().filter_map(|&member| self.local(TargetId(member)));
            if id.copies() > 1 || group.members.len() > 1 {
                own.for_each(|target| drop(self.open_replica(&target, id)));
            }
        }
        // Whom somebody else holds has something under way, and would number on beside a new one.
        let ends = |place: &(TargetId, GroupId), replica: &Arc<Replica>| {
            let standing = self.common.map.standing(place.1, place.0);
            let needed = standing.member && (place.1.copies() > 1 || !standing.alone);
            !needed && Arc::strong_count(replica) == 1 && replica.is_over(standing)
        };
        self.replicas.lock().retain(|place, replica| !ends(place, replica));
    }

    /// Makes a change in a group. True if it is durable already, and with it all that all copies had before: only where the
    /// operation asks for that.
    pub(crate) async fn change(
        &self,
        target: &Arc<Target>,
        order: &Order,
        mut op: StorageOp,
        payload: Bytes,
    ) -> Result<bool> {
        let _turn = match &mut op {
            StorageOp::Truncate(cut) if order.group.copies() == 1 => {
                let (rest, turn) = Box::pin(self.cut_ahead(target, order, *cut)).await?;
                *cut = rest;
                turn
            }
            _ => None,
        };
        let way = self.way(target, order.group, order.epoch).await?;
        if order.group.copies() == 1
            && first::puts_something(&op)
            && let Some(gate) = way.gate()
        {
            self.begin_use(gate, target.id, order.group).await?;
        }
        let durable = match &way {
            // That such a group has several members for a while is nothing its clients know of.
            Way::Several(replica) if order.group.copies() == 1 => {
                replica.change(&order.safely(), op, payload).await?
            }
            Way::Several(replica) => replica.change(order, op, payload).await?,
            Way::Alone(shelf) => self.change_alone(shelf, order, op, payload).await?,
        };
        self.check_unused(way.gate(), target, order.group)?;
        Ok(durable)
    }

    async fn change_alone(
        &self,
        shelf: &Shelf,
        order: &Order,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<bool> {
        // Once more: inside the gate it counts.
        self.common.check_fence(order.whose)?;
        let bytes = payload.len();
        let made = Box::pin(make_alone(shelf.clone(), order.attempt, order.whose, op, payload));
        match bytes {
            0 => made.await,
            // Until it is answered it has room that calls to other disks need.
            _ => shelf.target.end_while_disk_answers(made, &self.late, bytes).await,
        }
    }

    /// Answers who asks for contents.
    pub(crate) async fn look(
        &self,
        target: &Arc<Target>,
        group: GroupId,
        epoch: u64,
        op: StorageOp,
    ) -> Result<Answer> {
        let way = self.way(target, group, epoch).await?;
        let answer = match &way {
            Way::Several(replica) => replica.look(epoch, op).await?,
            Way::Alone(shelf) => shelf.look(op).await?,
        };
        self.check_unused(way.gate(), target, group)?;
        Ok(answer)
    }

    /// Who vouches for what is done until it is synced: of a group of one copy the boot of its target's
    /// host; the primary that acknowledges alone; of several members, how often they have lost what was
    /// not synced, all together. Nobody does where the lead is lost since: the next primary is to be asked.
    pub(crate) fn word_for(&self, target: &Arc<Target>, group: GroupId, ack: Ack) -> Result<u64> {
        if group.copies() == 1 {
            return Ok(word_of(self.common.map.group(group).ok().as_ref(), target));
        }
        let known = self.common.map.group(group)?;
        let losses = known.losses + 1;
        Ok(match ack {
            Ack::All => losses,
            Ack::Primary => {
                let vouching = self.known_replica(target, group)?.vouching()?;
                mixed(mixed(losses) ^ vouching).max(1)
            }
        })
    }

    /// Done, and who vouches for it.
    fn done_for(&self, target: &Arc<Target>, order: &Order) -> Result<Answer> {
        Ok(done_in(self.word_for(target, order.group, order.safety.ack)?))
    }

    /// Synced, whoever had vouched for it.
    fn synced_for(&self, target: &Arc<Target>, order: &Order) -> Result<Answer> {
        let boot = self.word_for(target, order.group, order.safety.ack)?;
        let early = self.word_for(target, order.group, Ack::Primary)?;
        plain_answer(StorageAnswer::Done(msg::Done { boot, early, ..msg::Done::default() }))
    }

    /// Makes a change in a group, and all that the group has acknowledged durable. If it was lost in between, which
    /// another word says, the sender is told the first one, and no more; so he is if disks take long, and syncs by himself.
    async fn change_durably(
        &self,
        target: &Arc<Target>,
        order: &Order,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<Answer> {
        let until = tokio::time::Instant::now() + DURABLE_WAIT;
        let is_durable = self.change(target, order, op, payload).await?;
        let changed = self.done_for(target, order)?;
        if is_durable {
            return Ok(durable(changed));
        }
        // Of no file: a sync is one of the whole target.
        let sync = StorageOp::Sync(msg::FileRef { volume: 0, ino: 0 });
        // It has no number: what was begun for that of the change may have come before this.
        let unnumbered = order.unnumbered();
        let synced = timeout_at(until, self.sync_whole(target, &unnumbered, sync)).await;
        let Ok(synced) = synced else { return Ok(changed) };
        synced?;
        let same = self.done_for(target, order).is_ok_and(|again| again == changed);
        Ok(if same { durable(changed) } else { changed })
    }

    /// Makes durable what a group has acknowledged, or says in time that this takes long: that it is being worked on, unless
    /// a member does not answer.
    async fn sync(&self, target: &Arc<Target>, order: &Order, op: StorageOp) -> Result<()> {
        if let Ok(synced) = timeout(SYNC_WAIT, self.sync_whole(target, order, op)).await {
            return synced;
        }
        if let Ok(replica) = self.known_replica(target, order.group)
            && let Some(silent) = replica.silent_for_long(None).await
        {
            return Err(silent);
        }
        let detail = format!("target {}: {SYNC_GOES_ON}", target.id);
        Err(Error::with(ErrorKind::NotCurrent, detail))
    }

    /// Makes durable what a group has acknowledged, however long that takes.
    async fn sync_whole(&self, target: &Arc<Target>, order: &Order, op: StorageOp) -> Result<()> {
        let way = self.way(target, order.group, order.epoch).await?;
        match &way {
            Way::Several(replica) => replica.sync(order, op).await?,
            Way::Alone(_) if is_broken("syncs-reach-disks") => {}
            Way::Alone(shelf) => shelf.sync_asked(Asked::of(0, order.attempt)).await?,
        }
        self.check_unused(way.gate(), target, order.group)
    }

    /// Has a new target made. In a task of its own: a caller in this process may stop waiting half-way.
    async fn open_target(&self, wanted: msg::AddTarget) -> Result<(StorageReply, Bytes)> {
        let nobody = "this server opens its targets when it starts";
        let opener =
            self.opener.get().ok_or_else(|| Error::with(ErrorKind::NotSupported, nobody))?;
        let opener = opener.clone();
        let opened = task::spawn(async move { opener.open(wanted).await }).await;
        let gone = |e| Error::with(ErrorKind::Io, format!("adding a target was abandoned: {e}"));
        let answer = StorageAnswer::Added(opened.map_err(gone)??);
        Ok((StorageReply { answer: Some(answer) }, Bytes::new()))
    }

    async fn carry_out(
        &self,
        target: &Arc<Target>,
        request: StorageRequest,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<Answer> {
        let order = Order::of(&request, self.admit(target, &request, &op).await?);
        let (group, epoch) = (order.group, order.epoch);
        match op {
            op if let Some(forward) = request.forward => {
                let replica = self.replica(target, group, epoch).await?;
                // In a task of its own: a caller in this process may stop waiting half-way.
                let taken = async move { replica.forwarded(request, forward, op, payload).await };
                let gone = |e| Error::with(ErrorKind::Io, format!("a forward was abandoned: {e}"));
                task::spawn(taken).await.map_err(gone)?
            }
            StorageOp::Copy(copy) => {
                // What members before us have made is known from then on.
                if let Way::Several(replica) = self.way(target, group, epoch).await? {
                    replica.ready(epoch).await?;
                }
                Box::pin(self.copy_in_turn(target, &order, copy)).await?;
                self.done_for(target, &order)
            }
            op if op.is_durable() => {
                Box::pin(self.change_durably(target, &order, op, payload)).await
            }
            op if op.is_change() => {
                let _is_durable = self.change(target, &order, op, payload).await?;
                self.done_for(target, &order)
            }
            StorageOp::Sync(_) => {
                Box::pin(self.sync(target, &order, op)).await?;
                self.synced_for(target, &order)
            }
            StorageOp::Stat(_) => {
                let stat = target.run(|s| Ok(s.stat())).await?;
                let parts = target.sharing.load(Ordering::Relaxed);
                plain_answer(StorageAnswer::Stat(stat_answer(stat.of_one_in(parts))))
            }
            StorageOp::Scrub(request) => scrub(target, request).await,
            StorageOp::Repair(request) => {
                let (chunk, met_by) = (request.chunk.into(), MetBy::of(request.met_by));
                let outcome = match self.way(target, group, epoch).await? {
                    Way::Several(replica) => Box::pin(replica.repair(epoch, chunk, met_by)).await?,
                    Way::Alone(shelf) => lone_damage(&shelf, chunk).await?,
                };
                plain_answer(StorageAnswer::Repaired(outcome.into()))
            }
            StorageOp::Census(from) => census(target, from).await,
            StorageOp::Compare(compare) => {
                let compared = match self.way(target, group, epoch).await? {
                    Way::Several(replica) => Box::pin(replica.compare(epoch, compare)).await?,
                    Way::Alone(_) => msg::Compared::default(),
                };
                plain_answer(StorageAnswer::Compared(compared))
            }
            StorageOp::DropVolume(file) => {
                let volume = VolumeId(file.volume);
                target.run(move |s| s.drop_volume(volume)).await?;
                self.done_for(target, &order)
            }
            op => self.look(target, group, epoch, op).await,
        }
    }
}

#[async_trait]
impl StorageService for StorageServer {
    async fn call(&self, request: StorageRequest, payload: Bytes) -> Result<(StorageReply, Bytes)> {
        let begun = Instant::now();
        let mut request = request;
        if let Some(StorageOp::AddTarget(wanted)) = &request.op {
            return self.open_target(wanted.clone()).await;
        }
        let target = self.local(TargetId(request.target)).ok_or_else(|| {
            let detail = format!("target {} is not on this server", request.target);
            Error::with(ErrorKind::StaleMap, detail)
        })?;
        let unknown = || Error::with(ErrorKind::NotSupported, "an operation of a newer release");
        let op = request.op.take().ok_or_else(unknown)?;
        let kind = if request.forward.is_some() { OpKind::Replicate } else { kind_of(&op) };
        let _foreground = target.foreground(kind);
        let result = self.carry_out(&target, request, op, payload).await;
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
        StorageOp::Stat(_) | StorageOp::AddTarget(_) => OpKind::Stat,
        StorageOp::Scrub(_) => OpKind::Scrub,
        StorageOp::DropVolume(_) => OpKind::DropVolume,
        StorageOp::Adopt(_)
        | StorageOp::Settle(_)
        | StorageOp::Digests(_)
        | StorageOp::Sums(_)
        | StorageOp::Cut(_)
        | StorageOp::Promise(_)
        | StorageOp::Damage(_)
        | StorageOp::Lose(_)
        | StorageOp::Census(_)
        | StorageOp::Remember(_) => OpKind::Replicate,
        StorageOp::Repair(_) | StorageOp::Compare(_) => OpKind::Repair,
    }
}

/// Makes a change of a group that has no replica, once.
async fn make_alone(
    shelf: Shelf,
    attempt: Option<msg::Attempt>,
    whose: Option<Whose>,
    op: StorageOp,
    payload: Bytes,
) -> Result<bool> {
    let target = shelf.target.clone();
    let Some(running) = target.begin(attempt, whose)? else { return Ok(false) };
    let shelf = shelf.unless_given_up(running.attempt());
    let synced = match op.is_durable() && !is_broken("syncs-reach-disks") {
        true => shelf.change_and_sync(op, payload).await?,
        false => shelf.change(op, payload).await.map(|()| false)?,
    };
    running.succeed();
    Ok(synced)
}

/// Chunks of all groups; the cursor is one of the store.
async fn census(target: &Arc<Target>, from: msg::DigestsAfter) -> Result<Answer> {
    let after = from.after.map(ChunkId::from);
    let page = target.run(move |s| s.chunks_after(after, |_| true, CENSUS_CHUNKS_MAX)).await?;
    plain_answer(StorageAnswer::Census(msg::CensusPage {
        chunks: page.chunks.iter().map(|c| plain(c.id).into()).collect(),
        groups: page.chunks.iter().map(|c| Tag::group_at(target.id, c.id.index).0).collect(),
        lens: page.chunks.iter().map(|c| c.len).collect(),
        next: page.next.map(Into::into),
    }))
}

/// Of one copy nothing can be repaired.
async fn lone_damage(shelf: &Shelf, chunk: ChunkId) -> Result<Outcome> {
    let lost = shelf.damaged(chunk, 0..u64::MAX).await?;
    Ok(Outcome { lost, ..Outcome::default() })
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
        groups: report.corrupt.iter().map(|c| Tag::group_at(target.id, c.index).0).collect(),
        corrupt: report.corrupt.into_iter().map(|chunk| plain(chunk).into()).collect(),
    }))
}

fn stat_answer(stat: StoreStat) -> msg::TargetStat {
    msg::TargetStat {
        total_bytes: stat.total_bytes,
        free_bytes: stat.free_bytes,
        chunks: stat.chunks,
        corrupt: stat.corrupt,
        poisoned: stat.poisoned.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
