//! The manager itself: one operation at a time, each stored before it shows.

mod lead;
mod lives;
mod older;
mod planning;
mod reach;
mod silent;

use crate::fences;
use crate::groups::{self, Life};
use crate::jobs;
use crate::join::{self, Others};
use crate::liveness::{Liveness, Word};
use crate::missed::Misses;
use crate::options::ManagerOptions;
use crate::owners;
use crate::plan::Facts;
use crate::recopies;
use crate::records::Cluster;
use crate::show::{self, Orders, Sight};
use crate::shown::Shown;
use crate::state::{State, stored};
use crate::volumes;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::random::SystemRandom;
use strake_engine::kv::{Kv, Outcome, Transaction};
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::manager::{
    AddTarget, ClusterMap, Fence, GetMap, Heartbeat, Join, Joined, Leader, ManagerAnswer,
    ManagerOp, ManagerReply, ManagerRequest, MapAnswer, Resynced, TargetSpec,
};
use strake_wire::service::ManagerService;
use tokio::sync::watch;

pub(crate) use lead::Lead;

/// How often a change is tried again when the store says that somebody else changed it too.
const COMMIT_TRIES_MAX: usize = 10;

/// How a manager begins.
#[derive(Default)]
pub(crate) struct Beginning {
    /// An empty store becomes a new cluster.
    pub founds: bool,
    /// Who is told of the epoch of the map.
    pub epochs: watch::Sender<u64>,
}

/// What changes together.
struct Inner {
    /// Copied by whoever goes through all of it, while others are heard.
    state: Arc<State>,
    live: Liveness,
    /// Members that do not take what their primaries send them.
    misses: Misses,
    /// When it was last looked what follows from state and life; `None`: not since one of them has changed.
    ticked: Option<Duration>,
    /// How often what the map shows has changed.
    sights: u64,
    /// What servers are told by this state; `None`: none was heard yet.
    orders: Option<Orders>,
    /// What was found of the metadata servers of its volumes.
    owners: owners::Look,
}

impl Inner {
    /// Another state is in force: what follows from it has to be looked for.
    fn go_on_with(&mut self, state: State) {
        (self.state, self.ticked, self.orders) = (Arc::new(state), None, None);
        self.owners = owners::Look::default();
        self.show_anew();
    }

    /// The map shows something else from now on.
    fn show_anew(&mut self) {
        self.sights += 1;
    }

    /// What the map shows now.
    fn sight(&self, now: Duration) -> Sight {
        Sight::of(&self.state, &self.live, now)
    }
}

/// A running manager.
pub struct Manager {
    kv: Arc<dyn Kv>,
    options: ManagerOptions,
    /// Held over a whole change, the store's part included: changes come one after the other.
    changing: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    /// What was shown to those who follow the map. Held by who makes the next one of them, while the others wait for that.
    shown: tokio::sync::Mutex<Shown>,
    /// The epoch of a map that has been decided on and is being stored, or may or may not have been, because the store
    /// was lost in the middle of it; 0: none.
    coming: AtomicU64,
    /// How long sessions have been fenced.
    fences: Mutex<fences::Known>,
    /// Epoch of the map, for whoever in this process wants to know at once.
    epochs: watch::Sender<u64>,
    /// While there may be others; `None`: there never are.
    lead: Option<Lead>,
    /// The life in which each server had joined last as this manager began.
    lives: BTreeMap<u32, u64>,
}

impl Manager {
    /// Starts the only manager on what the store holds; an empty store becomes a new cluster.
    pub async fn start(kv: Arc<dyn Kv>, options: ManagerOptions) -> Result<Arc<Manager>> {
        Self::begin(kv, options, None, Beginning { founds: true, ..Beginning::default() }).await
    }

    /// Starts on what the store holds.
    pub(crate) async fn begin(
        kv: Arc<dyn Kv>,
        options: ManagerOptions,
        lead: Option<Lead>,
        beginning: Beginning,
    ) -> Result<Arc<Manager>> {
        let snapshot = kv.snapshot().await.map_err(|e| stored(&e))?;
        let state = match State::load(&*snapshot).await? {
            Some(state) => state,
            None if beginning.founds => create_cluster(&*kv, &options).await?,
            None => return Err(no_cluster()),
        };
        let lease = Duration::from_millis(options.lease_ms);
        let servers = state.servers.keys().copied();
        let now = options.clock.monotonic();
        let since = lead.as_ref().map_or(now, |lead| lead.from.max(now));
        let mut live = Liveness::new(lease, since, servers);
        lead.iter().for_each(|lead| live.inherit(&lead.left));
        let epochs = beginning.epochs;
        epochs.send_replace(state.cluster.epoch);
        let fences = Mutex::new(fences::Known::new(&state.fences, now));
        let lives = state.servers.iter().map(|(&id, server)| (id, server.life)).collect();
        let state = Arc::new(state);
        let owners = owners::Look::default();
        let misses = Misses::default();
        let inner = Inner { state, live, misses, ticked: None, sights: 0, orders: None, owners };
        let inner = Mutex::new(inner);
        let (changing, coming) = (tokio::sync::Mutex::default(), AtomicU64::new(0));
        let shown = Shown::new(SystemRandom.number().map_err(no_random)?);
        let shown = tokio::sync::Mutex::new(shown);
        Ok(Arc::new(Self {
            kv,
            options,
            changing,
            inner,
            shown,
            coming,
            fences,
            epochs,
            lead,
            lives,
        }))
    }

    /// The epoch of the map, which changes with every change of the map.
    pub fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// The cluster's id (32 hex digits).
    pub fn cluster(&self) -> String {
        self.inner.lock().state.cluster.uuid.clone()
    }

    fn now(&self) -> Duration {
        let now = self.options.clock.monotonic();
        self.inner.lock().live.notice(now);
        now
    }

    /// Decides on a copy of the state; if it differs, stores it under a new epoch and only then
    /// puts it in place.
    async fn change<T>(
        &self,
        decide: impl Fn(&mut State, &Liveness) -> Result<T> + Send,
    ) -> Result<(T, u64)> {
        let _one = self.changing.lock().await;
        if self.coming.load(Ordering::Acquire) > 0 {
            self.reload().await?;
            self.coming.store(0, Ordering::Release);
        }
        for _ in 0..COMMIT_TRIES_MAX {
            let (old, new, answer) = {
                let inner = self.inner.lock();
                let mut new = State::clone(&inner.state);
                let answer = decide(&mut new, &inner.live)?;
                let facts = self.facts(&new, &inner.live);
                jobs::keep(&mut new, &facts);
                if new == *inner.state {
                    return Ok((answer, inner.state.cluster.epoch));
                }
                new.cluster.epoch = new.cluster.epoch.max(inner.state.cluster.epoch + 1);
                // Before anybody is told an epoch again. Dropped in the middle, too, it is not known what is stored.
                self.coming.store(new.cluster.epoch, Ordering::Release);
                (inner.state.clone(), new, answer)
            };
            let epoch = new.cluster.epoch;
            let is_stored = self.store(&old, &new).await?;
            if is_stored {
                self.inner.lock().go_on_with(new);
                self.coming.store(0, Ordering::Release);
                self.epochs.send_replace(epoch);
                return Ok((answer, epoch));
            }
            // Something was: what is not known of it would be written over.
            self.reload().await?;
            self.coming.store(0, Ordering::Release);
        }
        Err(Error::with(ErrorKind::Conflict, "another manager changes the same cluster"))
    }

    /// Goes on with what is stored, when nothing else is still coming, and it is on disk: who has stored it may have ended before
    /// that.
    async fn reload(&self) -> Result<()> {
        self.kv.drain().await.map_err(|e| stored(&e))?;
        self.kv.sync().await.map_err(|e| stored(&e))?;
        let snapshot = self.kv.snapshot().await.map_err(|e| stored(&e))?;
        let found = State::load(&*snapshot).await?.ok_or_else(no_cluster)?;
        let epoch = found.cluster.epoch;
        self.inner.lock().go_on_with(found);
        self.epochs.send_replace(epoch);
        Ok(())
    }

    /// What is known now, beside what is stored.
    fn facts(&self, state: &State, live: &Liveness) -> Facts {
        // The caller holds what [`Manager::now`] would wait for.
        let now = self.options.clock.monotonic();
        let spec = |id: &u32| live.target(*id).filter(|spec| spec.total_bytes > 0);
        let free = |id: &u32| spec(id).map(|spec| (*id, spec.free_bytes));
        let total = |id: &u32| spec(id).map(|spec| (*id, spec.total_bytes));
        let facts = Facts {
            lives: jobs::lives(state, |id| life(state, live, id, now)),
            // One whose disk does not answer would be waited for in vain.
            uncounted: live.targets_where(|spec| spec.uncounted && spec.silent_ms.is_none()),
            unwalked: live.targets_where(|spec| spec.unwalked),
            held: live.held().map(|held| ((held.target, held.group), held.bytes)).collect(),
            free: state.targets.keys().filter_map(free).collect(),
            total: state.targets.keys().filter_map(total).collect(),
            scrubs: live.scrubs(),
            recopies: live.recopies(),
            waited: live.waited(now),
            up: state.servers.keys().copied().filter(|id| live.is_up(*id, now)).collect(),
            now_ms: self.wall_ms(),
        };
        facts.carried_over(state)
    }

    fn wall_ms(&self) -> u64 {
        u64::try_from(self.options.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    async fn store(&self, old: &State, new: &State) -> Result<bool> {
        let mut transaction = Transaction::begin(&*self.kv).await.map_err(|e| stored(&e))?;
        new.write(old, &mut transaction);
        let outcome = transaction.commit(&*self.kv).await.map_err(|e| stored(&e))?;
        self.kv.sync().await.map_err(|e| stored(&e))?;
        match outcome {
            Outcome::Committed => Ok(true),
            Outcome::Conflict => Ok(false),
            Outcome::Unknown => {
                // Reading settles it: the epoch there is ours, or the old one.
                let snapshot = self.kv.snapshot().await.map_err(|e| stored(&e))?;
                let found = State::load(&*snapshot).await?;
                Ok(found.is_some_and(|state| state == *new))
            }
        }
    }

    async fn join(&self, request: Join) -> Result<ManagerAnswer> {
        let now = self.now();
        let asks_since = self.inner.lock().live.knock(request.server, &request.address, now);
        let decide = |state: &mut State, live: &Liveness| {
            let own = self.own_that_starts(state, &request);
            let others = Others { live, now, asks_since, own };
            join::join(state, &request, &others, self.wall_ms())
        };
        let (accepted, _) = self.change(decide).await?;
        let mut inner = self.inner.lock();
        let with_ids = request.targets.iter().zip(&accepted.targets);
        let specs = with_ids.map(|(spec, &target)| TargetSpec { target, ..spec.clone() });
        inner.live.hear(accepted.server, now, Word::Join, specs.collect());
        inner.live.let_in(request.server, &request.address);
        inner.show_anew();
        tracing::info!(server = accepted.server, address = %request.address, "joined");
        if let Some(other) = join::namesake(&inner.state, accepted.server) {
            let (server, name) = (accepted.server, &request.name);
            tracing::warn!(server, other, %name, "another server has the same name: was its --data taken?");
        }
        let cluster = &inner.state.cluster;
        Ok(ManagerAnswer::Joined(Joined {
            cluster: cluster.uuid.clone(),
            server: accepted.server,
            targets: accepted.targets,
            capability_key: cluster.capability_key.clone(),
            lease_ms: self.options.lease_ms,
            generations: accepted.generations,
        }))
    }

    async fn add_target(&self, request: AddTarget) -> Result<ManagerAnswer> {
        let (id, _) = self.change(|state, _| join::add_target(state, &request)).await?;
        if request.spec.target == id {
            let mut inner = self.inner.lock();
            inner.live.hear_of(request.server, request.spec);
            inner.show_anew();
            tracing::info!(server = request.server, target = id, "a target was added");
        }
        Ok(ManagerAnswer::Target(id))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<ManagerReply> {
        let (server, lease_ms) = (beat.server, beat.lease_ms);
        // However long it takes to store what it says: it lives.
        let now = self.now();
        self.refuse_overtaken(&beat)?;
        self.refuse_unreached(server, now)?;
        {
            let mut inner = self.inner.lock();
            if inner.live.hear_tenure(server, beat.tenure_ms, now) {
                inner.ticked = None;
            }
        }
        self.note_beat(&beat).await?;
        if self.hear(beat)? {
            self.tick().await?;
        }
        let lead = self.grant(server, lease_ms).await?;
        let ((orders, scrubs), recopies, resigns, doubts) = {
            let Inner { state, live, orders, .. } = &mut *self.inner.lock();
            let recopies = recopies::orders(state, server, |job, share| {
                live.recopy(job, share).is_some_and(|seen| seen.progress.ended)
            });
            let resigns = live.asked_to_resign(server, now);
            let doubts = live.doubts(server);
            let orders = orders.get_or_insert_with(|| Orders::of(state)).to(server);
            (orders, recopies, resigns, doubts)
        };
        // Nobody goes on by a map that is about to be replaced: what he has may have been given to another.
        let coming = self.coming.load(Ordering::Acquire);
        let epoch = self.inner.lock().state.cluster.epoch.max(coming);
        let answer: ManagerReply = ManagerAnswer::Epoch(epoch).into();
        Ok(ManagerReply { orders, scrubs, recopies, lead, resigns, doubts, ..answer })
    }

    /// True if the server says something new.
    fn hear(&self, beat: Heartbeat) -> Result<bool> {
        let now = self.now();
        let mut inner = self.inner.lock();
        let Inner { state, live, misses, ticked, .. } = &mut *inner;
        if !state.servers.contains_key(&beat.server) {
            let detail = format!(
                "server {} does not belong to the cluster: was it removed? Then stop it",
                beat.server
            );
            return Err(Error::with(ErrorKind::NoSession, detail));
        }
        let own = |spec: &TargetSpec| {
            state.targets.get(&spec.target).is_some_and(|t| t.server == beat.server)
        };
        let specs: Vec<TargetSpec> = beat.targets.into_iter().filter(own).collect();
        live.hear_held(&specs.iter().map(|spec| spec.target).collect(), &beat.held);
        live.hear_progress(&beat.progress, now);
        let mut scrubs = beat.scrubs;
        scrubs.retain(|said| specs.iter().any(|spec| spec.target == said.target));
        live.hear_scrubs(scrubs, now);
        live.hear_recopies(recopies::own_words(state, beat.server, beat.recopies), now);
        let was_up = live.is_up(beat.server, now);
        let news = live.hear(beat.server, now, Word::Beat, specs);
        live.hear_lease(beat.server, beat.lease_ms, now);
        misses.hear(beat.server, beat.missed);
        let moved = live.hear_volumes(beat.server, beat.epoch, beat.serves);
        let cut_off = live.hear_cut_off(beat.server, beat.cut_off, now);
        let mut is_other = live.hear_release(beat.server, &beat.release);
        is_other |= live.hear_full(beat.server, &beat.full, now);
        if cut_off || moved {
            // Whoever asks for the map next waits for what follows from it.
            *ticked = None;
        }
        if news || cut_off || is_other || !was_up {
            inner.show_anew();
        }
        Ok(news)
    }

    fn epoch(&self) -> ManagerAnswer {
        ManagerAnswer::Epoch(self.inner.lock().state.cluster.epoch)
    }

    async fn resynced(&self, report: Resynced) -> Result<ManagerAnswer> {
        if report.hands_over {
            self.note_yield(&report);
            return Ok(self.epoch());
        }
        {
            let now = self.now();
            let Inner { state, live, .. } = &mut *self.inner.lock();
            if groups::is_current(state, &report) {
                live.hear_resynced(state, &report, now);
            }
        }
        let take = |state: &mut State, live: &Liveness| {
            let now = self.options.clock.monotonic();
            let lives = jobs::lives(state, |id| life(state, live, id, now));
            let life = |target| lives.get(&target).copied().unwrap_or(Life::Gone);
            if groups::keep_needed(state, &report, life) {
                return Ok(());
            }
            if groups::is_current(state, &report) {
                let bytes = live.bytes_of(state, report.group);
                jobs::reported(state, &report, bytes);
            }
            groups::resynced(state, &report)
        };
        self.change(take).await?;
        Ok(self.epoch())
    }

    async fn fence(&self, fence: Fence) -> Result<ManagerAnswer> {
        let (old, wall) = (self.note_fences(), self.options.clock.wall());
        self.change(|state, _| fences::enter(state, &fence, wall, &old)).await?;
        self.note_fences();
        Ok(self.epoch())
    }

    /// Fences that this manager has known for so long that they may go.
    fn note_fences(&self) -> BTreeSet<u32> {
        let (now, state) = (self.now(), self.inner.lock().state.clone());
        self.fences.lock().note(&state.fences, now)
    }

    async fn get_map(&self, request: GetMap) -> Result<ManagerAnswer> {
        if self.note_missed(&request.missed, request.known_epoch) || self.is_tick_due() {
            self.tick().await?;
        }
        let now = self.now();
        if request.known_epoch == self.inner.lock().state.cluster.epoch {
            return Ok(ManagerAnswer::Map(MapAnswer::default()));
        }
        // Who has none and does not follow, as commands, is to learn how full targets are now, who is silent, and who is missed.
        if request.known_epoch == 0 && request.known.is_none() {
            let (sight, missed) = {
                let inner = self.inner.lock();
                (inner.sight(now), inner.misses.shown(&inner.state, &inner.live, now))
            };
            let map = ClusterMap { missed, ..sight.map() };
            return Ok(ManagerAnswer::Map(MapAnswer::of(&map)));
        }
        let mut shown = self.shown.lock().await;
        let changed = {
            let inner = self.inner.lock();
            let count = inner.sights;
            (!shown.is_of(count)).then(|| (inner.sight(self.options.clock.monotonic()), count))
        };
        if let Some((sight, count)) = changed {
            shown.take(&sight, count);
        }
        Ok(ManagerAnswer::Map(shown.answer(request.known)))
    }

    fn volume(&self, id: u32) -> Result<ManagerAnswer> {
        let inner = self.inner.lock();
        let found = inner.state.volumes.get(&id).map(|v| show::volume(id, v));
        found.map(ManagerAnswer::Volume).ok_or_else(|| ErrorKind::NotFound.into())
    }

    async fn answer(&self, op: ManagerOp) -> Result<ManagerReply> {
        Ok(match op {
            ManagerOp::Heartbeat(beat) => self.heartbeat(beat).await?,
            op => self.answer_plainly(op).await?.into(),
        })
    }

    async fn answer_plainly(&self, op: ManagerOp) -> Result<ManagerAnswer> {
        match op {
            ManagerOp::Heartbeat(_) => Ok(self.epoch()),
            ManagerOp::Join(request) => self.join(request).await,
            ManagerOp::GetMap(request) => self.get_map(request).await,
            ManagerOp::CreateVolume(spec) => {
                let now = self.now();
                let decide = |state: &mut State, live: &Liveness| {
                    volumes::create(state, &spec, |id| live.is_up(id, now))
                };
                self.volume(self.change(decide).await?.0)
            }
            ManagerOp::SetVolume(spec) => {
                self.volume(self.change(|state, _| volumes::set(state, &spec)).await?.0)
            }
            ManagerOp::DeleteVolume(name) => {
                self.volume(self.change(|state, _| volumes::delete(state, &name.name)).await?.0)
            }
            ManagerOp::Leave(leave) => self.leave(leave).await,
            ManagerOp::Resynced(report) => self.resynced(report).await,
            ManagerOp::Stalled(said) => self.stalled(said).await,
            ManagerOp::PrepareCopies(wanted) => {
                self.change(|state, _| groups::prepare_named(state, &wanted)).await?;
                Ok(self.epoch())
            }
            ManagerOp::Plan(request) => self.plan(request).await,
            ManagerOp::ListJobs(wanted) => self.jobs(wanted.id),
            ManagerOp::SteerJob(request) => self.steer(request).await,
            ManagerOp::AddTarget(request) => self.add_target(request).await,
            ManagerOp::Used(said) => {
                let (_, epoch) = self.change(|state, _| groups::used(state, &said)).await?;
                Ok(ManagerAnswer::Epoch(epoch))
            }
            ManagerOp::Fence(fence) => self.fence(fence).await,
        }
    }
}

#[async_trait]
impl ManagerService for Manager {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        if !self.may_answer() {
            return Ok(ManagerAnswer::Leader(Leader::default()).into());
        }
        let Some(op) = request.op else {
            let detail = "an operation this manager does not know (from a newer release?)";
            return Err(Error::with(ErrorKind::NotSupported, detail));
        };
        let reply = self.answer(op).await?;
        Ok(ManagerReply { hears_hangs: true, ..reply })
    }
}

fn no_cluster() -> Error {
    Error::with(ErrorKind::Corrupt, "the metadata store has lost the cluster")
}

fn no_random(error: io::Error) -> Error {
    Error::with(ErrorKind::Io, format!("the system's random numbers: {error}"))
}

async fn create_cluster(kv: &dyn Kv, options: &ManagerOptions) -> Result<State> {
    let mut uuid = [0; 16];
    let mut key = [0; 32];
    SystemRandom.fill(&mut uuid).map_err(no_random)?;
    SystemRandom.fill(&mut key).map_err(no_random)?;
    let cluster = Cluster {
        uuid: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        capability_key: Bytes::copy_from_slice(&key),
        epoch: 1,
        next_server: 1,
        next_target: 1,
        next_volume: 1,
        ..Cluster::default()
    };
    let mut state = State { cluster, ..State::default() };
    volumes::create(&mut state, &options.first_volume, |_| true)?;
    let mut transaction = Transaction::begin(kv).await.map_err(|e| stored(&e))?;
    state.write(&State::default(), &mut transaction);
    let outcome = transaction.commit(kv).await.map_err(|e| stored(&e))?;
    if outcome != Outcome::Committed {
        return Err(Error::with(ErrorKind::Conflict, "another manager makes the same cluster"));
    }
    kv.sync().await.map_err(|e| stored(&e))?;
    tracing::info!(cluster = %state.cluster.uuid, "made a new cluster");
    Ok(state)
}

/// What is known of a target.
fn life(state: &State, live: &Liveness, target: u32, now: Duration) -> Life {
    state.server_of(target).map_or(Life::Gone, |server| live.life(target, server, now))
}

#[cfg(test)]
mod tests;
