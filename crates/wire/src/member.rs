//! A server's place in the cluster: how it enters, tells the manager that it lives, and does what the
//! map says of its targets.

use crate::lease::Term;
use crate::map::MapView;
use crate::message::jobs::{Held, Order, Progress};
use crate::message::manager::{
    Doubt, Heartbeat, Join, Joined, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, Missed,
    Resign, TargetSpec,
};
use crate::message::recopies::{RecopyOrder, RecopyProgress};
use crate::message::scrubs::{ScrubOrder, ScrubProgress};
use crate::service::ManagerService;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::task::{self, Owned};
use strake_types::{Error, ErrorKind, Result, ServerId, TargetId, VolumeId};
use tokio::sync::{SetOnce, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time between two attempts to join.
const JOIN_RETRY_MS: u64 = 300;
/// So long a server that knows no cluster yet asks again where its address or a disk of it seems to be in use: a manager that has
/// just started takes everybody for alive whom it has not heard, for a lease.
const NEWCOMER_WAIT: Duration = Duration::from_secs(4);
/// Time between two heartbeats.
pub const BEAT_MS: u64 = 200;
/// Time between two looks for volumes that were deleted.
const SWEEP_MS: u64 = 2_000;
/// After so long all of them are dropped once more.
const SWEEP_AGAIN: Duration = Duration::from_secs(3_600);

/// The manager that leads, whichever that is.
pub struct ManagerOfMap(pub Arc<MapView>);

#[async_trait]
impl ManagerService for ManagerOfMap {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let unknown = || Error::with(ErrorKind::NotSupported, "a request without an operation");
        self.0.ask_manager(request.op.ok_or_else(unknown)?).await
    }
}

/// How long a metadata server may serve volumes after a heartbeat at most, where a target may answer reads for `lease_ms`:
/// names have no second copy that goes on meanwhile.
#[must_use]
pub const fn tenure_ms(lease_ms: u64) -> u64 {
    lease_ms / 2
}

/// What a server does of which only it knows how.
pub trait Member: Send + Sync + 'static {
    /// Its targets as they are now.
    fn targets(&self) -> Vec<TargetSpec>;
    /// What they hold of each group, as of the last look.
    fn held(&self) -> Vec<Held>;
    /// How far it is with members that it makes equal.
    fn progress(&self) -> Vec<Progress>;
    /// How it is to do that from now on.
    fn obey(&self, orders: &[Order]);
    /// Members for which changes wait that it makes as the primary.
    fn missed(&self) -> Vec<Missed>;
    /// Which members are to answer nobody any more in the present epochs of their groups.
    fn resign(&self, asked: &[Resign]);
    /// Which members are to be asked whether they are there.
    fn doubt(&self, doubts: &[Doubt]);
    /// How far it is with targets that it verifies for a job.
    fn scrubs(&self) -> Vec<ScrubProgress>;
    /// Which targets it is to verify from now on: these, and no others.
    fn obey_scrubs(&self, orders: &[ScrubOrder]);
    /// Wakes what has to look at the map now and then.
    fn wake(&self);
    /// The time by the clock of its lease.
    fn now(&self) -> Duration;
    /// A heartbeat that was sent at this time was answered by a manager whose map is known here; `lead` as in
    /// [`ManagerReply`].
    fn renew(&self, sent: Duration, lease_ms: u64, lead: u64);
    /// Drops what a target holds of a volume; may wait for its disk. False: not yet.
    fn drop_volume(&self, target: TargetId, volume: VolumeId) -> bool;
}

/// What a metadata server does of which only it knows how.
pub trait MetaRole: Send + Sync + 'static {
    /// Ids of the volumes that it serves.
    fn serves(&self) -> Vec<u32>;
    /// True if it has not reached its database for a while.
    fn is_cut_off(&self) -> bool;
    /// What its store says while it has no room for changes, or takes none any more; empty: it takes them.
    fn full(&self) -> String;
    /// The time by the clock of its tenure.
    fn now(&self) -> Duration;
    /// A heartbeat that was sent at this time was answered by a manager whose map is known here: for so long
    /// nobody else serves what that map says is ours. `lead` as in [`ManagerReply`].
    fn renew(&self, sent: Duration, tenure_ms: u64, lead: u64);
    /// How far it is with files that get another number of copies for a job.
    fn recopies(&self) -> Vec<RecopyProgress>;
    /// Which files get another number of copies from now on: these, and no others.
    fn obey_recopies(&self, orders: &[RecopyOrder]);
}

/// Enters the cluster. Waits for the manager, and for an earlier life of its own to be forgotten; one that knows no cluster yet
/// waits less long for that.
pub async fn join(manager: &dyn ManagerService, request: &Join, wait_ms: u64) -> Result<Joined> {
    let end = Instant::now() + Duration::from_millis(wait_ms);
    let (mut said, mut busy_since) = (String::new(), None);
    loop {
        let op = Some(ManagerOp::Join(request.clone()));
        let error = match manager.call(ManagerRequest { op }).await {
            Ok(reply) => match reply.answer {
                Some(ManagerAnswer::Joined(joined)) => return Ok(joined),
                _ => {
                    let detail = "the manager answered Join with something else";
                    return Err(Error::with(ErrorKind::Malformed, detail));
                }
            },
            Err(error) => error,
        };
        // Busy: after a crash and a quick start the manager still counts our earlier life, or does not
        // know yet whether others go on with what our targets hold, or whether they live.
        let now = Instant::now();
        let until = match error.kind {
            ErrorKind::Unavailable | ErrorKind::TimedOut => {
                // Whoever answers next may have just started, too.
                busy_since = None;
                end
            }
            ErrorKind::Busy if request.cluster.is_empty() => {
                *busy_since.get_or_insert(now) + NEWCOMER_WAIT
            }
            ErrorKind::Busy => end,
            _ => return Err(error),
        };
        if now >= until {
            return Err(error);
        }
        // Again and again for seconds, until the earlier life is forgotten.
        if std::mem::replace(&mut said, error.to_string()) != said {
            tracing::info!("cannot join yet, trying again: {error}");
        }
        tokio::time::sleep(Duration::from_millis(JOIN_RETRY_MS)).await;
    }
}

/// What a heartbeat needs.
pub struct Pulse {
    /// This server.
    pub server: ServerId,
    /// Whom it tells.
    pub manager: Arc<dyn ManagerService>,
    /// What the cluster looks like.
    pub map: Arc<MapView>,
    /// What it does.
    pub member: Arc<dyn Member>,
    /// The metadata server, if it is one.
    pub meta: Option<Arc<dyn MetaRole>>,
    /// What there is to be told of the database that its manager and its metadata server use.
    pub gone_back: GoneBack,
    /// How long an answer counts at most.
    pub lease_ms: u64,
    /// Of which release this server is, for people.
    pub release: &'static str,
    /// The address by which it has joined ([`Join::address`]).
    pub address: String,
}

/// How often the database of a server has gone back to an earlier state, and how much of that the manager has noted.
pub struct GoneBack {
    times: Box<dyn Fn() -> u64 + Send + Sync>,
    told: AtomicU64,
}

impl GoneBack {
    /// `times` says how often it has until now.
    pub fn new(times: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { times: Box::new(times), told: AtomicU64::new(0) }
    }

    /// How often, while the manager has not noted all of them; else 0.
    fn untold(&self) -> u64 {
        let times = (self.times)();
        if times > self.told.load(Ordering::Relaxed) { times } else { 0 }
    }

    /// The manager has noted so many of them.
    fn note_told(&self, times: u64) {
        self.told.fetch_max(times, Ordering::Relaxed);
    }
}

/// What beats.
pub struct Heart {
    tasks: Vec<JoinHandle<()>>,
    /// Why it has ended by itself.
    overtaken: Arc<SetOnce<Error>>,
}

impl Heart {
    /// Starts beating. Where the manager is in this process, `epochs` says at once that the map has
    /// changed; else the answer to each heartbeat does. So new targets are used from the first file
    /// on that is made after they came.
    pub fn start(pulse: Pulse, epochs: Option<watch::Receiver<u64>>) -> Heart {
        let (member, map) = (pulse.member.clone(), pulse.map.clone());
        let overtaken = Arc::new(SetOnce::new());
        let ended = overtaken.clone();
        let beats = async move {
            let _first = ended.set(beat(pulse).await);
        };
        let mut tasks = vec![task::spawn(sweep(member, map.clone())), task::spawn(beats)];
        tasks.extend(epochs.map(|epochs| task::spawn(follow(epochs, map))));
        Heart { tasks, overtaken }
    }

    /// Waits until the manager has said that another process has the number of this server; what it said. From then on nothing beats.
    pub async fn overtaken(&self) -> &Error {
        self.overtaken.wait().await
    }

    /// Stops beating.
    pub fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Fetches the map whenever there is a newer one.
async fn follow(mut epochs: watch::Receiver<u64>, map: Arc<MapView>) {
    while epochs.changed().await.is_ok() {
        if let Err(error) = map.refresh().await {
            tracing::debug!("the map stays as it is: {error}");
        }
    }
}

/// One heartbeat. How long it takes until its answer counts, or does not come, says how long the next lease has to be.
async fn beat_once(pulse: &Pulse, term: &Mutex<Term>) -> Result<()> {
    let (sent, lease_ms) = (pulse.member.now(), term.lock().ms(pulse.lease_ms));
    let answered = ask_for_lease(pulse, sent, lease_ms).await;
    term.lock().note(pulse.member.now().saturating_sub(sent));
    answered
}

async fn ask_for_lease(pulse: &Pulse, sent: Duration, lease_ms: u64) -> Result<()> {
    // The lease counts from before the question was sent.
    let meta = pulse.meta.as_ref();
    let sent_by_meta = meta.map(|meta| meta.now());
    // First the epoch: what is served is served by that map or a later one.
    let epoch = pulse.map.current().epoch;
    let serves = meta.map(|meta| meta.serves()).unwrap_or_default();
    let (server, targets) = (pulse.server.0, pulse.member.targets());
    let (held, progress) = (pulse.member.held(), pulse.member.progress());
    let (scrubs, missed) = (pulse.member.scrubs(), pulse.member.missed());
    let recopies = meta.map(|meta| meta.recopies()).unwrap_or_default();
    let cut_off = meta.is_some_and(|meta| meta.is_cut_off());
    let gone_back = pulse.gone_back.untold();
    let tenure_ms = tenure_ms(pulse.lease_ms).min(lease_ms);
    let beat = Heartbeat {
        server,
        targets,
        held,
        progress,
        scrubs,
        recopies,
        serves,
        epoch,
        cut_off,
        lease_ms,
        tenure_ms,
        release: pulse.release.to_owned(),
        missed,
        full: meta.map(|meta| meta.full()).unwrap_or_default(),
        address: pulse.address.clone(),
        gone_back: gone_back > 0,
    };
    let op = Some(ManagerOp::Heartbeat(beat));
    let limit = Duration::from_millis(pulse.lease_ms / 2);
    let answer = tokio::time::timeout(limit, pulse.manager.call(ManagerRequest { op })).await;
    let late = |_| Error::with(ErrorKind::TimedOut, "it does not answer");
    let reply = answer.map_err(late)??;
    let Some(ManagerAnswer::Epoch(epoch)) = reply.answer else {
        let detail = "it answers a heartbeat with something else";
        return Err(Error::with(ErrorKind::Malformed, detail));
    };
    pulse.gone_back.note_told(gone_back);
    pulse.member.obey(&reply.orders);
    pulse.member.obey_scrubs(&reply.scrubs);
    pulse.member.resign(&reply.resigns);
    pulse.member.doubt(&reply.doubts);
    // Whoever was taken out of a group must know it before it has a lease again.
    if !strake_base::is_broken("lease-needs-map") {
        know_map(&pulse.map, epoch, limit).await?;
    }
    // By that map: who has lost a share leaves what is noted there to the next one.
    meta.inspect(|meta| meta.obey_recopies(&reply.recopies));
    pulse.member.renew(sent, lease_ms, reply.lead);
    if let (Some(meta), Some(sent)) = (meta, sent_by_meta) {
        meta.renew(sent, tenure_ms, reply.lead);
    }
    Ok(())
}

/// Fetches the map, unless the one of that epoch or a later one is known. Fails if it does not come in time.
async fn know_map(map: &MapView, epoch: u64, limit: Duration) -> Result<()> {
    if map.current().epoch >= epoch {
        return Ok(());
    }
    let late = |_| Error::with(ErrorKind::TimedOut, "it does not answer with its map");
    tokio::time::timeout(limit, map.refresh()).await.map_err(late)??;
    match map.current().epoch >= epoch {
        true => Ok(()),
        false => Err(Error::with(ErrorKind::NotCurrent, "its map is older than it says")),
    }
}

/// Beats in time, whether the last beat has been answered or not: each is bounded, so few are under
/// way at once. Ends when the manager says that another process has the number of this server, with that.
async fn beat(pulse: Pulse) -> Error {
    let (mut heard, term, mut last) = (true, Mutex::<Term>::default(), pulse.member.now());
    let mut under_way = FuturesUnordered::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(BEAT_MS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let answered = tokio::select! {
            biased;
            _ = ticks.tick() => {
                pulse.member.wake();
                // One that is late, because this process had to wait for its turn, is as bad as a slow answer.
                let before = std::mem::replace(&mut last, pulse.member.now());
                let due = before + Duration::from_millis(BEAT_MS);
                term.lock().note(last.saturating_sub(due));
                under_way.push(beat_once(&pulse, &term));
                continue;
            }
            Some(answered) = under_way.next() => answered,
        };
        match &answered {
            Err(error) if error.kind == ErrorKind::Overtaken => {
                tracing::error!("this server ends: {}", error.detail);
                return error.clone();
            }
            Err(error) if heard => tracing::warn!("the manager does not hear us: {error}"),
            Ok(_) if !heard => tracing::info!("the manager hears us again"),
            _ => {}
        }
        heard = answered.is_ok();
    }
}

/// Drops what the targets hold of deleted volumes. Each has a task of its own: one whose disk hangs holds up no other.
async fn sweep(member: Arc<dyn Member>, map: Arc<MapView>) {
    let mut sweeping: BTreeMap<u32, Owned<()>> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
        let targets: BTreeSet<u32> = member.targets().iter().map(|spec| spec.target).collect();
        sweeping.retain(|target, _| targets.contains(target));
        for target in targets {
            let begin = || {
                let swept = sweep_target(TargetId(target), member.clone(), map.clone());
                task::spawn_owned(swept)
            };
            sweeping.entry(target).or_insert_with(begin);
        }
    }
}

/// Drops what a target holds of deleted volumes. Dropping twice is harmless, so nothing is remembered over a restart, nor for
/// long: what another target still had, or a client, may have come since.
async fn sweep_target(target: TargetId, member: Arc<dyn Member>, map: Arc<MapView>) {
    let mut done: BTreeMap<u32, Instant> = BTreeMap::new();
    loop {
        let current = map.current();
        let deleted: BTreeSet<u32> =
            current.volumes.iter().filter(|v| v.deleting).map(|v| v.id).collect();
        done.retain(|id, _| deleted.contains(id));
        let is_due = |id: &u32| done.get(id).is_none_or(|at| at.elapsed() >= SWEEP_AGAIN);
        for volume in deleted.into_iter().filter(is_due).collect::<Vec<_>>() {
            let member = member.clone();
            let work = move || member.drop_volume(target, VolumeId(volume));
            let is_dropped = task::blocking(work).await.unwrap_or(false);
            // What was dropped before may be all there was: where that fails now, as on a target that takes no writes, it is
            // not tried, and told, again and again.
            if is_dropped || done.contains_key(&volume) {
                done.insert(volume, Instant::now());
            }
        }
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
    }
}

#[cfg(test)]
mod tests;
