//! The manager itself: one operation at a time, each stored before it shows.

use crate::groups::{self, Life};
use crate::join;
use crate::liveness::{Liveness, Word};
use crate::records::Cluster;
use crate::state::{State, stored};
use crate::volumes;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_base::clock::{Clock, SystemClock};
use strake_base::random::Random;
use strake_engine::kv::{Kv, Outcome, Transaction};
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::manager::{
    self as message, ClusterMap, GetMap, Heartbeat, Join, Joined, ManagerAnswer, ManagerOp,
    ManagerReply, ManagerRequest, MapAnswer, Resynced, TargetSpec, VolumeSpec,
};
use strake_wire::service::ManagerService;
use tokio::sync::watch;

/// Silence after which a server counts as down.
const LEASE_MS: u64 = 3_000;
/// How often the manager looks by itself whose lease is over.
const WATCH_MS: u64 = 200;
/// How often a change is tried again when the store says that somebody else changed it too.
const COMMIT_TRIES_MAX: usize = 10;

/// How a manager works.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Time within which a server's next heartbeat must arrive.
    pub lease_ms: u64,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where the cluster's id and key come from.
    pub random: Arc<dyn Random>,
    /// The volume that a new cluster begins with.
    pub first_volume: VolumeSpec,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            lease_ms: LEASE_MS,
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(strake_base::random::SystemRandom),
            first_volume: VolumeSpec { name: "main".into(), ..VolumeSpec::default() },
        }
    }
}

/// What changes together.
struct Inner {
    state: State,
    live: Liveness,
}

/// A running manager.
pub struct Manager {
    kv: Arc<dyn Kv>,
    options: ManagerOptions,
    /// Held over a whole change, the store's part included: changes come one after the other.
    changing: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    /// Epoch of the map, for whoever in this process wants to know at once.
    epochs: watch::Sender<u64>,
}

impl Manager {
    /// Starts on what the store holds; an empty store becomes a new cluster.
    pub async fn start(kv: Arc<dyn Kv>, options: ManagerOptions) -> Result<Arc<Manager>> {
        let snapshot = kv.snapshot().await.map_err(|e| stored(&e))?;
        let state = match State::load(&*snapshot).await? {
            Some(state) => state,
            None => create_cluster(&*kv, &options).await?,
        };
        let lease = Duration::from_millis(options.lease_ms);
        let servers = state.servers.keys().copied();
        let live = Liveness::new(lease, options.clock.monotonic(), servers);
        let (epochs, _) = watch::channel(state.cluster.epoch);
        let inner = Mutex::new(Inner { state, live });
        let changing = tokio::sync::Mutex::default();
        Ok(Arc::new(Self { kv, options, changing, inner, epochs }))
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
        self.options.clock.monotonic()
    }

    /// Decides on a copy of the state; if it differs, stores it under a new epoch and only then
    /// puts it in place.
    async fn change<T>(
        &self,
        decide: impl Fn(&mut State, &Liveness) -> Result<T> + Send,
    ) -> Result<(T, u64)> {
        let _one = self.changing.lock().await;
        for _ in 0..COMMIT_TRIES_MAX {
            let (old, mut new, answer) = {
                let inner = self.inner.lock();
                let mut new = inner.state.clone();
                let answer = decide(&mut new, &inner.live)?;
                (inner.state.clone(), new, answer)
            };
            if new == old {
                return Ok((answer, old.cluster.epoch));
            }
            new.cluster.epoch = old.cluster.epoch + 1;
            if self.store(&old, &new).await? {
                let epoch = new.cluster.epoch;
                self.inner.lock().state = new;
                self.epochs.send_replace(epoch);
                return Ok((answer, epoch));
            }
        }
        Err(Error::with(ErrorKind::Conflict, "another manager changes the same cluster"))
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
            let since = |target, server| live.since(target, server, asks_since, now);
            join::join(state, &request, |id| live.has_spoken(id, now), since)
        };
        let (accepted, _) = self.change(decide).await?;
        let mut inner = self.inner.lock();
        let with_ids = request.targets.iter().zip(&accepted.targets);
        let specs = with_ids.map(|(spec, &target)| TargetSpec { target, ..spec.clone() });
        inner.live.hear(accepted.server, now, Word::Join, specs.collect());
        inner.live.let_in(request.server, &request.address);
        tracing::info!(server = accepted.server, address = %request.address, "joined");
        let cluster = &inner.state.cluster;
        Ok(ManagerAnswer::Joined(Joined {
            cluster: cluster.uuid.clone(),
            server: accepted.server,
            targets: accepted.targets,
            capability_key: cluster.capability_key.clone(),
            lease_ms: self.options.lease_ms,
        }))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<ManagerAnswer> {
        if self.hear(beat)? {
            self.tick().await?;
        }
        Ok(self.epoch())
    }

    /// True if the server says something new.
    fn hear(&self, beat: Heartbeat) -> Result<bool> {
        let now = self.now();
        let mut inner = self.inner.lock();
        let Inner { state, live } = &mut *inner;
        if !state.servers.contains_key(&beat.server) {
            let detail = format!("server {} has not joined", beat.server);
            return Err(Error::with(ErrorKind::NoSession, detail));
        }
        let own = |spec: &TargetSpec| {
            state.targets.get(&spec.target).is_some_and(|t| t.server == beat.server)
        };
        let specs = beat.targets.into_iter().filter(own).collect();
        Ok(live.hear(beat.server, now, Word::Beat, specs))
    }

    fn epoch(&self) -> ManagerAnswer {
        ManagerAnswer::Epoch(self.inner.lock().state.cluster.epoch)
    }

    /// Looks whose lease is over and who is back, until it is dropped: a server that died is taken out of
    /// its groups although nobody asks.
    pub async fn keep_watch(self: Arc<Self>) {
        loop {
            if let Err(error) = self.tick().await {
                tracing::warn!("the manager cannot note who lives: {error}");
            }
            tokio::time::sleep(Duration::from_millis(WATCH_MS)).await;
        }
    }

    /// Notes who lives now. Who is up is part of the map: a change of it has an epoch of its own.
    pub async fn tick(&self) -> Result<()> {
        let now = self.now();
        let due = {
            let mut inner = self.inner.lock();
            let changed = inner.live.changed(now);
            let Inner { state, live } = &*inner;
            let life = |target| life(state, live, target, now);
            changed || !groups::is_settled(state, life, |g, m| live.is_paused(g, m, now))
        };
        if due {
            self.change(|state, live| {
                let lives: HashMap<u32, Life> =
                    state.targets.keys().map(|&id| (id, life(state, live, id, now))).collect();
                let life = |target| lives.get(&target).copied().unwrap_or(Life::Gone);
                groups::settle(state, life, |g, m| live.is_paused(g, m, now));
                // Where no group differs, the epoch is the change.
                state.cluster.epoch += 1;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn resynced(&self, report: Resynced) -> Result<ManagerAnswer> {
        {
            let now = self.now();
            let mut inner = self.inner.lock();
            if groups::is_current(&inner.state, &report) {
                match report.failed {
                    true => inner.live.pause(report.group, report.member, now),
                    false => inner.live.forget_pause(report.group, report.member),
                }
            }
        }
        self.change(|state, _| groups::resynced(state, &report)).await?;
        Ok(self.epoch())
    }

    async fn get_map(&self, request: GetMap) -> Result<ManagerAnswer> {
        self.tick().await?;
        let now = self.now();
        let inner = self.inner.lock();
        let newest = request.known_epoch == inner.state.cluster.epoch;
        let map = (!newest).then(|| draw(&inner.state, &inner.live, now));
        Ok(ManagerAnswer::Map(MapAnswer { map }))
    }

    fn volume(&self, id: u32) -> Result<ManagerAnswer> {
        let inner = self.inner.lock();
        let found = inner.state.volumes.get(&id).map(|v| show_volume(id, v));
        found.map(ManagerAnswer::Volume).ok_or_else(|| ErrorKind::NotFound.into())
    }

    async fn answer(&self, op: ManagerOp) -> Result<ManagerAnswer> {
        match op {
            ManagerOp::Join(request) => self.join(request).await,
            ManagerOp::Heartbeat(beat) => self.heartbeat(beat).await,
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
            ManagerOp::Leave(leave) => {
                self.inner.lock().live.leave(leave.server);
                self.tick().await?;
                Ok(self.epoch())
            }
            ManagerOp::Resynced(report) => self.resynced(report).await,
            ManagerOp::PrepareCopies(wanted) => {
                self.change(|state, _| groups::prepare(state, wanted.copies)).await?;
                Ok(self.epoch())
            }
        }
    }
}

#[async_trait]
impl ManagerService for Manager {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let Some(op) = request.op else {
            let detail = "an operation this manager does not know (from a newer release?)";
            return Err(Error::with(ErrorKind::NotSupported, detail));
        };
        let answer = Some(self.answer(op).await?);
        Ok(ManagerReply { answer })
    }
}

async fn create_cluster(kv: &dyn Kv, options: &ManagerOptions) -> Result<State> {
    let mut uuid = [0; 16];
    let mut key = [0; 32];
    let no_random = |e| Error::with(ErrorKind::Io, format!("the system's random numbers: {e}"));
    options.random.fill(&mut uuid).map_err(no_random)?;
    options.random.fill(&mut key).map_err(no_random)?;
    let cluster = Cluster {
        uuid: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        capability_key: Bytes::copy_from_slice(&key),
        epoch: 1,
        next_server: 1,
        next_target: 1,
        next_volume: 1,
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
    let server = state.targets.get(&target).map(|target| target.server);
    server.map_or(Life::Gone, |server| live.life(target, server, now))
}

fn show_volume(id: u32, volume: &crate::records::Volume) -> message::Volume {
    message::Volume {
        id,
        spec: volume.spec.clone(),
        deleting: volume.deleting,
        meta_server: volume.meta_server,
    }
}

/// The map that everybody sees.
fn draw(state: &State, live: &Liveness, now: Duration) -> ClusterMap {
    let servers = state.servers.iter().map(|(&id, server)| message::Server {
        id,
        address: server.address.clone(),
        manager: server.manager,
        meta: server.meta,
        up: live.is_up(id, now),
        name: server.name.clone(),
        silent_ms: live.silent_ms(id, now),
    });
    let targets = state.targets.iter().map(|(&id, target)| {
        let stored = TargetSpec {
            target: id,
            uuid: target.uuid.clone(),
            path: target.path.clone(),
            total_bytes: target.total_bytes,
            ..TargetSpec::default()
        };
        let said = live.target(id).cloned();
        let up = live.is_up(target.server, now);
        message::Target { id, server: target.server, spec: said.unwrap_or(stored), up }
    });
    let groups = state.groups.iter().map(|(&id, group)| message::Group {
        id,
        epoch: group.epoch,
        members: group.members.clone(),
        in_sync: group.in_sync.clone(),
        joining: group.joining.clone(),
        losses: group.losses,
    });
    ClusterMap {
        cluster: state.cluster.uuid.clone(),
        epoch: state.cluster.epoch,
        servers: servers.collect(),
        targets: targets.collect(),
        groups: groups.collect(),
        volumes: state.volumes.iter().map(|(&id, v)| show_volume(id, v)).collect(),
    }
}

#[cfg(test)]
mod tests;
