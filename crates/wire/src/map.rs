//! A shared view of the cluster map that keeps itself fresh.
//!
//! Everybody reads the map from memory. It is fetched again every second, and at once when somebody
//! was told that theirs is old; callers that want it at the same time share one fetch. While no
//! manager answers, the last map stays: placement and addresses rarely change, and the data path
//! needs the manager for nothing but groups into which nothing was ever put.
//!
//! Who suspects that the map is about to change (a target does not answer) watches it and asks for an
//! early fetch ([`MapView::hurry`]); however many do, it is fetched a few times a second at most.

mod managers;

use crate::caller::Callers;
use crate::capability::reign_of;
use crate::message::manager::{
    ClusterMap, Fence, Fenced, GetMap, Group, ManagerAnswer, ManagerOp, MapVersion, Server, Volume,
};
use crate::service::{ManagerService, MetaService, StorageService};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use strake_base::task::{Owned, spawn_owned};
use strake_types::same_targets::{GroupsByTarget, SameTargets};
use strake_types::{
    Epoch, Error, ErrorKind, GroupId, Result, ServerId, SessionId, TargetId, VolumeId,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Time between two fetches.
const POLL_MS: u64 = 1_000;
/// Shortest time between two fetches of which the second was hurried.
const HURRY_MS: u64 = 100;
/// Time between two fetches that one hurries who waits for a group to change.
const MOVED_FETCH_MS: u64 = 500;
/// Time between two attempts to get the first map.
const FIRST_RETRY_MS: u64 = 200;

/// Where the map comes from.
#[derive(Clone)]
pub enum ManagerSource {
    /// One that is called directly: in this process, or for tests.
    Local(Arc<dyn ManagerService>),
    /// Managers at these addresses (`host:port` or `unix:/path`), tried in turn.
    Addresses(Vec<String>),
    /// None: the map never changes. For tests and tools.
    Fixed(ClusterMap),
}

/// A map and what is looked up in it, resolved once per epoch.
struct Resolved {
    map: Arc<ClusterMap>,
    /// Which one that is, by the manager's word.
    version: MapVersion,
    storage: HashMap<TargetId, Arc<dyn StorageService>>,
    /// With the epoch since which it is the one.
    meta: HashMap<VolumeId, (Arc<dyn MetaService>, Epoch)>,
    /// Sessions whose capabilities are refused,
    fenced: HashSet<(VolumeId, SessionId)>,
    /// and the epoch in which the last of them was, or a volume got another metadata server.
    fenced_epoch: Epoch,
    /// Made when somebody asks for it.
    by_target: OnceLock<GroupsByTarget>,
    /// Of the address book, when the services were looked up.
    generation: u64,
}

/// What a call to a group needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The target that orders the group's writes.
    pub primary: TargetId,
    /// Version of the group.
    pub epoch: Epoch,
    /// Number of its members.
    pub members: usize,
    /// Number of those in sync.
    pub in_sync: usize,
}

/// What a target is to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Version of the group; 0: it is not in the map.
    pub epoch: Epoch,
    /// The target is a member,
    pub member: bool,
    /// and the only one.
    pub alone: bool,
    /// As far as the map says, nothing was ever put into the group.
    pub never_used: bool,
}

/// The cluster map, always at hand.
pub struct MapView {
    callers: Arc<Callers>,
    source: ManagerSource,
    resolved: RwLock<Arc<Resolved>>,
    /// Held while a fetch is under way; counts fetches so that those who waited share the result.
    fetch: tokio::sync::Mutex<()>,
    /// Number of fetches finished, with the outcome of the last.
    outcome: Mutex<(u64, Result<()>)>,
    /// Somebody wants the map sooner than the poller would fetch it.
    hurried: Arc<Notify>,
    /// See [`MapView::miss`].
    missed: Mutex<BTreeMap<u32, Option<Epoch>>>,
    /// Epoch of the newest map.
    epochs: watch::Sender<u64>,
    _poller: Mutex<Option<Owned<()>>>,
}

impl MapView {
    /// A view that is empty until the first fetch, which the background poll does at once. Must be
    /// called inside a tokio runtime (unless the source is fixed).
    pub fn new(callers: Arc<Callers>, source: ManagerSource) -> Arc<Self> {
        let fixed = match &source {
            ManagerSource::Fixed(map) => Some(map.clone()),
            _ => None,
        };
        let first = fixed.clone().unwrap_or_default();
        let (epochs, hurried) = (watch::Sender::new(first.epoch), Arc::default());
        let resolved = RwLock::new(Arc::new(Resolved::new(&callers, first, MapVersion::default())));
        let view = Arc::new(Self {
            callers,
            source,
            resolved,
            fetch: tokio::sync::Mutex::default(),
            outcome: Mutex::new((0, Ok(()))),
            hurried: Arc::clone(&hurried),
            missed: Mutex::default(),
            epochs,
            _poller: Mutex::default(),
        });
        if fixed.is_none() {
            *view._poller.lock() = Some(spawn_owned(poll(Arc::downgrade(&view), hurried)));
        }
        view
    }

    /// A view with its first map, which is waited for at most `wait_ms`.
    pub async fn connect(
        callers: Arc<Callers>,
        source: ManagerSource,
        wait_ms: u64,
    ) -> Result<Arc<Self>> {
        let view = Self::new(callers, source);
        let began = Instant::now();
        loop {
            let Err(e) = view.refresh().await else {
                return Ok(view);
            };
            let waiting_helps = matches!(e.kind, ErrorKind::Unavailable | ErrorKind::TimedOut);
            let waited = began.elapsed();
            match waiting_helps {
                false => return Err(e),
                true if waited >= Duration::from_millis(wait_ms) => {
                    // That of the last attempt alone would be less.
                    let detail = format!("{} (tried for {:.1} s)", e.detail, waited.as_secs_f64());
                    return Err(Error::with(e.kind, detail));
                }
                true => {}
            }
            tokio::time::sleep(Duration::from_millis(FIRST_RETRY_MS)).await;
        }
    }

    /// A view of a map that never changes.
    pub fn fixed(callers: Arc<Callers>, map: ClusterMap) -> Arc<Self> {
        Self::new(callers, ManagerSource::Fixed(map))
    }

    /// The newest map known. Epoch 0: none yet.
    pub fn current(&self) -> Arc<ClusterMap> {
        self.resolved.read().map.clone()
    }

    /// The address book that calls go through.
    pub fn callers(&self) -> &Arc<Callers> {
        &self.callers
    }

    /// Fetches the map now. Returns the epoch known afterwards, or why no manager answered.
    ///
    /// Whoever comes while a fetch is under way waits for the next one and shares it.
    pub async fn refresh(&self) -> Result<Epoch> {
        let seen = self.outcome.lock().0;
        let _fetching = self.fetch.lock().await;
        let (count, last) = self.outcome.lock().clone();
        // The fetch under way when we came may have asked before we did; the one after did not.
        if count >= seen + 2 {
            return last.map(|()| Epoch(self.current().epoch));
        }
        let result = self.fetch().await;
        let mut outcome = self.outcome.lock();
        *outcome = (outcome.0 + 1, result.clone());
        result.map(|()| Epoch(self.current().epoch))
    }

    /// Lets the map be fetched soon. Many calls cost one fetch, and there are few fetches a second.
    pub fn hurry(&self) {
        self.hurried.notify_one();
    }

    /// As [`MapView::hurry`], and the manager is told that somebody may wait in vain for the metadata server that a volume
    /// or share has had since that epoch.
    pub fn miss(&self, share: VolumeId, since: Option<Epoch>) {
        self.missed.lock().insert(share.0, since);
        self.hurry();
    }

    /// Tells of every newer map from now on, by its epoch.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// The storage service that has a target.
    pub fn storage_of(&self, target: TargetId) -> Result<Arc<dyn StorageService>> {
        let known = self.resolved().storage.get(&target).cloned();
        known.ok_or_else(|| not_in_map("target", target.0))
    }

    /// A group of the map.
    pub fn group(&self, group: GroupId) -> Result<Group> {
        group_of(&self.resolved.read().map, group).cloned()
    }

    /// What a target is to a group.
    pub fn standing(&self, group: GroupId, target: TargetId) -> Standing {
        let resolved = self.resolved.read();
        let Some(found) = resolved.map.group(group) else {
            return Standing { never_used: true, ..Standing::default() };
        };
        let member = found.members.contains(&target.0);
        let (epoch, alone) = (Epoch(found.epoch), member && found.members.len() == 1);
        Standing { epoch, member, alone, never_used: found.never_used }
    }

    /// The target that orders a group's writes, and the epoch of its membership.
    pub fn primary_of(&self, group: GroupId) -> Result<(TargetId, Epoch)> {
        self.route(group).map(|route| (route.primary, route.epoch))
    }

    /// Where calls to a group go.
    pub fn route(&self, group: GroupId) -> Result<Route> {
        let resolved = self.resolved.read();
        let found = group_of(&resolved.map, group)?;
        let in_sync = found.in_sync();
        let first = in_sync.first().ok_or_else(|| {
            Error::with(ErrorKind::Unavailable, format!("group {group} has no member"))
        })?;
        Ok(Route {
            primary: TargetId(*first),
            epoch: Epoch(found.epoch),
            members: found.members.len(),
            in_sync: in_sync.len(),
        })
    }

    /// Waits until the map shows a group in another state than this, and has it fetched meanwhile.
    pub async fn moved(&self, group: GroupId, route: &Route) {
        let mut maps = self.watch();
        while self.route(group).ok().as_ref() == Some(route) {
            self.hurry();
            let pause = Duration::from_millis(MOVED_FETCH_MS);
            let again = tokio::time::timeout(pause, maps.changed()).await;
            debug_assert!(!matches!(again, Ok(Err(_))), "the view tells of maps as long as it is");
        }
    }

    /// Which groups of so many copies lie where these do.
    pub fn on_same_targets(&self, list: &[GroupId], copies: u32) -> SameTargets {
        let resolved = self.resolved.read().clone();
        let by_target = resolved.by_target.get_or_init(|| resolved.map.groups_by_target());
        by_target.on_same_targets(list, copies)
    }

    /// All groups.
    pub fn groups(&self) -> Vec<GroupId> {
        self.resolved.read().map.groups.iter().map(|group| GroupId(group.id)).collect()
    }

    /// A volume by its name.
    pub fn volume_named(&self, name: &str) -> Result<Volume> {
        let map = self.current();
        let found = map.living().find(|v| v.spec.name == name);
        found.cloned().ok_or_else(|| {
            let detail = format!("volume {name} (strake volume list shows those there are)");
            Error::with(ErrorKind::NotFound, detail)
        })
    }

    /// A volume by its id.
    pub fn volume(&self, volume: VolumeId) -> Result<Volume> {
        let map = self.current();
        map.volume(volume).cloned().ok_or_else(|| not_in_map("volume", volume.0))
    }

    /// True of a volume, or a share, that was deleted: each target drops what it has of it, in its own time.
    pub fn is_deleted(&self, volume: VolumeId) -> bool {
        self.resolved.read().map.volume(volume).is_some_and(|volume| volume.deleting)
    }

    /// The metadata service of a volume.
    pub fn meta_for(&self, volume: VolumeId) -> Result<Arc<dyn MetaService>> {
        let known = self.resolved().meta.get(&volume).map(|(service, _)| service.clone());
        known.ok_or_else(|| not_in_map("the metadata server of volume", volume.0))
    }

    /// The epoch of the map in which a volume got the metadata server that it has; `None`: it has none.
    pub fn owned_since(&self, volume: VolumeId) -> Option<Epoch> {
        self.resolved.read().meta.get(&volume).map(|(_, since)| *since)
    }

    /// A server by its id.
    pub fn server(&self, id: ServerId) -> Result<Server> {
        let map = self.current();
        let found = map.servers.iter().find(|s| s.id == id.0);
        found.cloned().ok_or_else(|| not_in_map("server", id.0))
    }

    /// True if what was allowed to a session is refused, or to a metadata server that serves the volume no more.
    pub fn is_fenced(&self, volume: VolumeId, session: SessionId) -> bool {
        let resolved = self.resolved.read();
        if let Some(since) = reign_of(session) {
            return resolved.meta.get(&volume).is_some_and(|(_, now)| since < *now);
        }
        !resolved.fenced.is_empty() && resolved.fenced.contains(&(volume, session))
    }

    /// The epoch in which the last of the fenced sessions was fenced, or a volume got another metadata server; 0: there are
    /// none.
    pub fn fenced_epoch(&self) -> Epoch {
        self.resolved.read().fenced_epoch
    }

    /// Lets the manager fence sessions of a volume. When it returns, this map says so.
    pub async fn fence(&self, volume: VolumeId, sessions: &[SessionId]) -> Result<()> {
        if matches!(self.source, ManagerSource::Fixed(_)) {
            self.fence_here(volume, sessions);
            return Ok(());
        }
        let sessions = sessions.iter().map(|session| session.0).collect();
        let op = ManagerOp::Fence(Fence { volume: volume.0, sessions });
        let epoch = self.ask("Fence", op, |answer| match answer {
            ManagerAnswer::Epoch(epoch) => Some(Epoch(epoch)),
            _ => None,
        });
        self.reach(epoch.await?).await
    }

    /// Without a manager there is nobody else to tell.
    fn fence_here(&self, volume: VolumeId, sessions: &[SessionId]) {
        let mut map = (*self.current()).clone();
        map.epoch += 1;
        let (volume, epoch) = (volume.0, map.epoch);
        map.fenced.extend(sessions.iter().map(|s| Fenced { volume, session: s.0, epoch }));
        self.install(map, MapVersion::default());
    }

    /// Fetches the map, if the one known is of an earlier epoch.
    pub async fn reach(&self, epoch: Epoch) -> Result<()> {
        if self.current().epoch < epoch.0 {
            self.refresh().await?;
        }
        let known = self.current().epoch;
        if known < epoch.0 {
            let detail = format!("the cluster map is of epoch {known}, and {epoch} is needed");
            return Err(Error::with(ErrorKind::Unavailable, detail));
        }
        Ok(())
    }

    fn resolved(&self) -> Arc<Resolved> {
        let known = self.resolved.read().clone();
        if known.generation == self.callers.generation() {
            return known;
        }
        // A service of this process was registered since: from now on it is called directly.
        let mut slot = self.resolved.write();
        let map = (*slot.map).clone();
        *slot = Arc::new(Resolved::new(&self.callers, map, slot.version));
        slot.clone()
    }

    async fn fetch(&self) -> Result<()> {
        if matches!(self.source, ManagerSource::Fixed(_)) {
            return Ok(());
        }
        let mut missed = std::mem::take(&mut *self.missed.lock());
        // That of another one meanwhile is no news.
        missed.retain(|share, since| self.owned_since(VolumeId(*share)) == *since);
        let missed = missed.into_keys().collect();
        // What comes may be what differs from exactly this one.
        let known = self.resolved.read().clone();
        let op = ManagerOp::GetMap(GetMap { missed, ..known.question() });
        let answer = self.ask("GetMap", op, |answer| match answer {
            ManagerAnswer::Map(answer) => Some(answer),
            _ => None,
        });
        let answer = answer.await?;
        let version = answer.version.unwrap_or_default();
        if let Some(map) = answer.after(&known.map, known.version.number)? {
            self.install(map, version);
        }
        Ok(())
    }

    /// Asks for what is newer than the map that is known.
    pub fn question(&self) -> GetMap {
        self.resolved.read().question()
    }

    /// Takes a newer map. One of another cluster, or an older one, is ignored.
    fn install(&self, map: ClusterMap, version: MapVersion) {
        if !self.is_wanted(&map) {
            return;
        }
        self.callers.set_cluster(&map.cluster);
        let epoch = map.epoch;
        // What takes long is done where nobody waits for it: this, and to free the map of before.
        let mut other = Arc::new(Resolved::new(&self.callers, map, version));
        {
            let mut resolved = self.resolved.write();
            if epoch < resolved.map.epoch {
                return;
            }
            std::mem::swap(&mut *resolved, &mut other);
        }
        drop(other);
        // Nobody is woken by the map that is known already.
        self.epochs.send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
    }

    /// True of a map of the same cluster that is not older than the one that is known.
    fn is_wanted(&self, map: &ClusterMap) -> bool {
        let known = self.current();
        if known.epoch != 0 && known.cluster != map.cluster {
            tracing::warn!(known = %known.cluster, got = %map.cluster, "map of another cluster");
            return false;
        }
        map.epoch >= known.epoch
    }
}

impl Resolved {
    fn question(&self) -> GetMap {
        GetMap { known_epoch: self.map.epoch, missed: Vec::new(), known: Some(self.version) }
    }

    fn new(callers: &Callers, map: ClusterMap, version: MapVersion) -> Self {
        let generation = callers.generation();
        let servers: HashMap<u32, &Server> = map.servers.iter().map(|s| (s.id, s)).collect();
        let with_server = |target: &crate::message::manager::Target| {
            let server = servers.get(&target.server)?;
            Some((TargetId(target.id), callers.storage(server)))
        };
        let storage = map.targets.iter().filter_map(with_server).collect();
        let with_meta = |volume: &Volume| {
            let server = servers.get(&volume.meta_server)?;
            Some((VolumeId(volume.id), (callers.meta(server), Epoch(volume.owned_since))))
        };
        let meta = map.volumes.iter().filter_map(with_meta).collect();
        let fenced = map.fenced.iter().map(|f| (VolumeId(f.volume), SessionId(f.session)));
        let fenced = fenced.collect();
        let moved = map.volumes.iter().map(|volume| volume.owned_since);
        let refused = map.fenced.iter().map(|fenced| fenced.epoch).chain(moved);
        let fenced_epoch = Epoch(refused.max().unwrap_or(0));
        let (by_target, map) = (OnceLock::new(), Arc::new(map));
        Self { storage, meta, fenced, fenced_epoch, by_target, generation, version, map }
    }
}

fn group_of(map: &ClusterMap, group: GroupId) -> Result<&Group> {
    map.group(group).ok_or_else(|| not_in_map("group", group.0))
}

fn not_in_map(what: &str, id: u32) -> Error {
    Error::with(ErrorKind::StaleMap, format!("{what} {id} is not in the cluster map"))
}

async fn poll(view: Weak<MapView>, hurried: Arc<Notify>) {
    let mut reachable = true;
    loop {
        let soon = Instant::now() + Duration::from_millis(HURRY_MS);
        let Some(strong) = view.upgrade() else { return };
        let result = strong.refresh().await;
        let first = strong.current().epoch == 0;
        drop(strong);
        match (&result, reachable) {
            (Err(e), true) if first => tracing::info!("no manager answers yet: {e}"),
            (Err(e), true) => tracing::warn!("no manager answers, going on with the last map: {e}"),
            (Ok(_), false) => tracing::info!("a manager answers again"),
            _ => {}
        }
        reachable = result.is_ok();
        let early = tokio::time::timeout(Duration::from_millis(POLL_MS), hurried.notified()).await;
        if early.is_ok() {
            tokio::time::sleep_until(soon).await;
        }
    }
}

#[cfg(test)]
mod tests;
