//! The server itself: start, dispatch, stop.

use crate::MetaOptions;
use crate::check;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::leases::Keeper;
use crate::lend;
use crate::losses;
use crate::metrics::Metrics;
use crate::occupied;
use crate::ops::move_out::MoveOut;
use crate::ops::removexattr::RemoveXattr;
use crate::ops::setxattr::SetXattr;
use crate::ops::{
    behind, claim, clients, describe, getattr, getxattr, listxattr, lock, lookup, read_inline,
    readdir, readlink, recalls, sessions, settle, sync, template, volume_stat,
};
use crate::past_end;
use crate::reach::Reach;
use crate::reaper;
use crate::recopy::Jobs;
use crate::stop::Stop;
use crate::txn::{Mutation, mutate};
use crate::upkeep;
use crate::visit;
use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_base::task;
use strake_engine::kv::Store;
use strake_types::{Error, ErrorKind, Ino, Result, SessionId, VolumeId};
use strake_wire::capability::CapabilityKey;
use strake_wire::map::MapView;
use strake_wire::member::MetaRole;
use strake_wire::message::manager::Volume;
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaReply, MetaRequest};
use strake_wire::message::recopies::{RecopyOrder, RecopyProgress};
use strake_wire::service::MetaService;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a stop waits for the background task, and for the operations under way.
const STOP_WAIT_MS: u64 = 10_000;

/// A metadata server.
pub struct MetaServer {
    core: Arc<Core>,
    /// Operations under way.
    busy: AtomicUsize,
    /// No more operations are accepted.
    stopping: AtomicBool,
    /// Tells the background task to end.
    stop: Arc<Stop>,
    background: Mutex<Option<JoinHandle<()>>>,
    /// Where another server could serve what this one cannot.
    reach: Option<Reach>,
    /// Jobs that give files another number of copies.
    jobs: Jobs,
}

/// An operation under way.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl MetaServer {
    /// Records of which a commit is under way, as the caches have it.
    #[cfg(test)]
    pub(crate) fn changing(&self) -> usize {
        self.core.inodes.changing() + self.core.entries.changing() + self.core.shards.changing()
    }

    /// Commits under way.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.core.under_way.load(Ordering::SeqCst)
    }

    /// Starts a server on a store of which it writes the parts of its volumes. Volumes that the map says are its
    /// own are taken into use, which brings back their sessions and locks; with a tenure to wait for, as soon as that
    /// holds. One that is damaged is not. Must be called within a Tokio runtime.
    pub async fn start(
        store: Arc<dyn Store>,
        map: Arc<MapView>,
        key: CapabilityKey,
        clock: Arc<dyn Clock>,
        options: MetaOptions,
    ) -> Result<Arc<Self>> {
        let core = Arc::new(Core::new(store, map, key, clock, options)?);
        let known = core.map.current();
        let ours = |v: &&Volume| !v.deleting && core.serves(v) && core.check_tenure().is_ok();
        for volume in known.volumes.iter().filter(ours) {
            match core.volume(VolumeId(volume.id)).await {
                // Whoever asks for it learns which key it is. The others are served.
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    tracing::error!("volume {} is not served: {error}", volume.spec.name);
                }
                opened => drop(opened?),
            }
        }
        let reach = core.store.is_shared().then(|| Reach::watch(&core));
        let stop = Arc::new(Stop::default());
        let (upkeep, reaper) =
            (upkeep::run(core.clone(), stop.clone()), reaper::run(core.clone(), stop.clone()));
        let look = upkeep::look(core.clone(), stop.clone());
        let counting = occupied::run(core.clone(), stop.clone());
        let cutting = past_end::run(core.clone(), stop.clone());
        let background = task::spawn(async move {
            tokio::join!(upkeep, reaper, look, counting, cutting);
        });
        Ok(Arc::new(MetaServer {
            core,
            busy: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stop,
            background: Mutex::new(Some(background)),
            reach,
            jobs: Jobs::default(),
        }))
    }

    /// Stops in good order: no more operations, those under way end, the background task ends, the
    /// counts are stored, everything is on disk. A second call does nothing.
    pub async fn stop(&self) -> Result<()> {
        self.leave();
        self.stopping.store(true, Ordering::Release);
        self.stop.tell();
        let holders = self.core.volumes().into_iter().flat_map(|v| v.sessions.holders());
        holders.for_each(|holder| holder.release());
        let background = self.background.lock().take();
        let Some(background) = background else { return Ok(()) };
        let has_ended = end(background).await;
        let until = self.core.monotonic_ms() + STOP_WAIT_MS;
        self.jobs.stop();
        let all_done = || self.busy.load(Ordering::Acquire) == 0 && self.jobs.have_ended();
        // What is lent to changes that are under way here ends with them.
        while !(all_done() && self.lends_nothing()) && self.core.monotonic_ms() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let all_done = has_ended && all_done();
        for volume in self.core.volumes() {
            volume.recopies.stop();
            // A commit may go on without its caller: what it changes is not counted yet.
            let left_ms = until.saturating_sub(self.core.monotonic_ms());
            let gate = timeout(Duration::from_millis(left_ms), volume.counts.gate.write()).await;
            let is_counted = gate.is_ok() && volume.counts.is_exact();
            let clean = all_done && is_counted && volume.loans.are_over();
            let stored = async {
                upkeep::store_counts(&volume, clean).await?;
                volume.sync().await
            };
            let stored = stored.await;
            // Who serves it now counts for himself.
            if !volume.kv.is_taken_over() {
                stored?;
            }
        }
        match self.core.volumes().first() {
            Some(volume) if all_done => losses::end(volume, self.core.losses()).await,
            _ => Ok(()),
        }
    }

    /// Ends what is lent. True if that is done, or whoever serves it now has done it.
    fn lends_nothing(&self) -> bool {
        let volumes = self.core.volumes();
        volumes.iter().for_each(|volume| volume.loans.call_in());
        volumes.iter().all(|volume| volume.loans.are_over() || volume.kv.is_taken_over())
    }

    /// Serves nothing from now on that another server may serve; after that the manager may be told.
    pub fn leave(&self) {
        self.core.options.tenure.iter().for_each(|tenure| tenure.give_up());
    }

    /// Stops working as if killed: the background task ends, nothing is stored. What that task had in hand goes on.
    #[cfg(test)]
    pub(crate) async fn halt(&self) {
        self.stopping.store(true, Ordering::Release);
        self.jobs.stop();
        self.core.volumes().iter().for_each(|volume| volume.recopies.stop());
        let background = self.background.lock().take();
        if let Some(background) = background {
            background.abort();
            let _ = background.await;
        }
    }

    /// What all operations share.
    #[cfg(test)]
    pub(crate) fn core(&self) -> Arc<Core> {
        self.core.clone()
    }

    fn enter(&self) -> Result<Busy<'_>> {
        self.busy.fetch_add(1, Ordering::Acquire);
        let busy = Busy(&self.busy);
        match self.stopping.load(Ordering::Acquire) {
            true => Err(Error::with(ErrorKind::Unavailable, "the metadata server is stopping")),
            false => Ok(busy),
        }
    }

    async fn serve(&self, request: MetaRequest) -> Result<MetaAnswer> {
        let none = || Error::with(ErrorKind::Malformed, "no operation, or one of a newer release");
        let op = request.op.ok_or_else(none)?;
        let volume = self.core.volume(VolumeId(request.volume)).await?;
        let session = match request.session {
            0 => None,
            id => {
                let gone = || Error::with(ErrorKind::NoSession, format!("session {id} is over"));
                let session = volume.sessions.get(id).ok_or_else(gone)?;
                // Also by whoever has served the volume before.
                if self.core.map.is_fenced(volume.id, SessionId(id)) && session.lose() {
                    self.core.attention.notify_one();
                }
                session.check()?;
                if session.is_outdated(request.incarnation) {
                    // It is to say first what it has open: until then nothing may be deleted.
                    let what = format!("session {id} is to be opened again");
                    return Err(Error::with(ErrorKind::NoSession, what));
                }
                session.minds.has_heard();
                session.note_use();
                session.renew(self.core.deadline_ms());
                session.ledger.heard(request.answered, &request.given_up);
                Some(session)
            }
        };
        let number = request.leases;
        let keeps = session.as_ref().filter(|_| number > 0);
        let ctx = Ctx {
            core: self.core.clone(),
            settings: volume.settings(),
            volume,
            leases: number,
            keeper: keeps.map(|session| Keeper { holder: session.holder.clone(), number }),
            session,
            cred: request.cred.into(),
            seq: request.seq,
            answered: request.answered,
            incarnation: request.incarnation,
            behind: None,
        };
        if let Some(ino) = op.place().filter(|ino| !ctx.is_here(*ino)) {
            let detail = format!(
                "inode {ino} is in another share of volume {}; a client of a release before shares cannot use it",
                ctx.settings.shares.first
            );
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
        if let Some(closed) = &request.closed {
            sessions::renew(&ctx, closed).await?;
        }
        let _visitors = visit::visit(&ctx, visit::named(&op)).await?;
        perform(&ctx, &op).await
    }
}

/// Waits until the background task, which has been told to, ends by itself. False: it waits for storage servers still,
/// and was aborted.
async fn end(mut background: JoinHandle<()>) -> bool {
    let limit = Duration::from_millis(STOP_WAIT_MS);
    // That it panicked is in the log already.
    if timeout(limit, &mut background).await.is_ok() {
        return true;
    }
    tracing::warn!(
        "what is done later still waits for storage servers after {STOP_WAIT_MS} ms; it is done after the next start"
    );
    background.abort();
    false
}

/// Hands an operation to its file. Each has a box of its own: what the largest needs is not carried about for all.
fn perform<'a>(ctx: &'a Ctx, op: &'a MetaOp) -> BoxFuture<'a, Result<MetaAnswer>> {
    match op {
        MetaOp::OpenSession(op) => Box::pin(sessions::open(ctx, op)),
        MetaOp::RenewSession(op) => Box::pin(sessions::renew(ctx, op)),
        MetaOp::CloseSession(_) => Box::pin(sessions::close(ctx)),
        MetaOp::Lookup(op) => Box::pin(lookup::lookup(ctx, op)),
        MetaOp::GetAttr(op) => Box::pin(getattr::getattr(ctx, op)),
        MetaOp::SetAttr(op) => Box::pin(mutate(ctx, op)),
        MetaOp::Create(op) => Box::pin(open_beside_others(ctx, op)),
        MetaOp::Link(op) => Box::pin(mutate(ctx, op)),
        MetaOp::Unlink(op) => Box::pin(mutate(ctx, op)),
        MetaOp::Rename(op) => Box::pin(mutate(ctx, op)),
        MetaOp::ReadLink(op) => Box::pin(readlink::readlink(ctx, op)),
        MetaOp::Open(op) => Box::pin(open_beside_others(ctx, op)),
        MetaOp::ReadDir(op) => Box::pin(readdir::readdir(ctx, op)),
        MetaOp::Publish(op) => Box::pin(past_end::publish(ctx, op)),
        MetaOp::WriteInline(op) => Box::pin(mutate(ctx, op)),
        MetaOp::MoveOut(op) => {
            let op = MoveOut { ino: Ino(op.ino) };
            Box::pin(async move { mutate(ctx, &op).await })
        }
        MetaOp::GetXattr(op) => Box::pin(getxattr::getxattr(ctx, op)),
        MetaOp::ListXattr(op) => Box::pin(listxattr::listxattr(ctx, op)),
        MetaOp::SetXattr(op) => Box::pin(async move { mutate(ctx, &SetXattr(op)).await }),
        MetaOp::RemoveXattr(op) => Box::pin(async move { mutate(ctx, &RemoveXattr(op)).await }),
        MetaOp::SetLock(op) => Box::pin(lock::set_lock(ctx, op)),
        MetaOp::GetLock(op) => Box::pin(lock::get_lock(ctx, op)),
        MetaOp::Sync(op) => Box::pin(sync::sync(ctx, op)),
        MetaOp::VolumeStat(_) => Box::pin(volume_stat::volume_stat(ctx)),
        MetaOp::GetTemplate(op) => Box::pin(template::get_template(ctx, op)),
        MetaOp::SetTemplate(op) => Box::pin(mutate(ctx, op)),
        MetaOp::ReadInline(op) => Box::pin(read_inline::read_inline(ctx, op)),
        MetaOp::Describe(op) => Box::pin(describe::describe(ctx, op)),
        MetaOp::Check(op) => Box::pin(check::check(ctx, op)),
        MetaOp::Recalls(op) => Box::pin(recalls::recalls(ctx, op)),
        MetaOp::ListClients(_) => Box::pin(async { clients::list(ctx) }),
        MetaOp::EvictClient(op) => Box::pin(async { clients::evict(ctx, op) }),
        MetaOp::Settle(op) => Box::pin(settle::settled(ctx, op)),
        MetaOp::Told(op) => Box::pin(async { settle::told(ctx, op) }),
        MetaOp::Claim(op) => Box::pin(claim::claim(ctx, op)),
        MetaOp::Behind(op) => Box::pin(behind::make(ctx, op)),
        MetaOp::Borrow(op) => Box::pin(lend::lend(ctx, op)),
        MetaOp::GiveBack(op) => Box::pin(async { Ok(lend::take_back(ctx, op)) }),
    }
}

/// Carries out what may open a file, and notes who else has it open.
async fn open_beside_others(ctx: &Ctx, op: &impl Mutation) -> Result<MetaAnswer> {
    let mut answer = mutate(ctx, op).await?;
    settle::note_others(ctx, &mut answer);
    Ok(answer)
}

impl MetaRole for MetaServer {
    fn serves(&self) -> Vec<u32> {
        self.core.served()
    }

    fn is_cut_off(&self) -> bool {
        self.reach.as_ref().is_some_and(Reach::is_cut_off)
    }

    fn full(&self) -> String {
        let full = self.core.volumes().iter().find_map(|volume| volume.kv.full());
        // Also where no volume could be taken into use.
        let full = full.or_else(|| self.core.store.full());
        full.map_or_else(|| self.core.full_at_open.lock().clone(), |full| full.to_string())
    }

    fn now(&self) -> Duration {
        self.core.options.tenure.as_ref().map_or(Duration::ZERO, |tenure| tenure.now())
    }

    fn renew(&self, sent: Duration, tenure_ms: u64, lead: u64) {
        let Some(tenure) = &self.core.options.tenure else { return };
        let held = tenure.holds();
        tenure.renew_led(sent, tenure_ms, lead);
        let (now_ms, lease_ms) = (self.core.monotonic_ms(), self.core.options.lease_ms);
        self.core.hearing.renewed(!held, now_ms, lease_ms);
        if !held {
            self.core.attention.notify_one();
            self.core.work.notify_one();
        }
    }

    fn recopies(&self) -> Vec<RecopyProgress> {
        self.jobs.progress()
    }

    fn obey_recopies(&self, orders: &[RecopyOrder]) {
        self.jobs.obey(&self.core, orders);
    }
}

#[async_trait]
impl MetaService for MetaServer {
    async fn call(&self, request: MetaRequest) -> Result<MetaReply> {
        let slot = request.op.as_ref().map(Metrics::slot);
        let _busy = self.enter()?;
        let began = self.core.clock.monotonic();
        let answer = self.serve(request).await;
        if let Some(slot) = slot {
            let took = self.core.clock.monotonic().saturating_sub(began);
            self.core.metrics.record(slot, took, answer.is_err());
        }
        let fenced = self.core.map.fenced_epoch().0;
        answer.map(|answer| MetaReply { answer: Some(answer), fenced })
    }
}
