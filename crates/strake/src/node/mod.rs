//! A server process: its stores, the roles on them, and its place in the cluster.
//!
//! The order of [`Node::start`] is what makes a refused start change nothing: first everything is
//! looked at (ports, locks, stores, who they belong to), then the manager is asked, and only
//! then are new targets formatted.

mod add;
mod added;
mod databases;
mod fresh;
mod front;
mod generation;
pub mod identity;
mod leaving;
mod left;
mod list;
mod managers;
mod member;
mod meta_store;
pub mod moving;
mod newcomer;
mod patrol;
mod stop;
mod stores;

use crate::failure::{Context, Failure, Outcome};
use crate::release::RELEASE;
use crate::{mountpoint, private, tls_flags};
use add::Adder;
pub use add::TARGET;
use fresh::Fresh;
use front::Front;
use list::TargetList;
use member::Verified;
pub use meta_store::{MetaPlace, Wanted};
use newcomer::Newcomer;
use patrol::Patrol;
use rustix::process::{getegid, geteuid};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stores::Target;
use strake_base::clock::{SystemClock, WakingClock};
use strake_base::disk::{Disk, RealDisk};
use strake_base::process::boot_id;
use strake_base::random::SystemRandom;
use strake_base::task::Owned;
use strake_engine::kv::Store;
use strake_manager::Candidate;
use strake_meta::{MetaOptions, MetaServer};
use strake_storage::{Here, Scrubs, StorageServer};
use strake_types::{Error, ErrorKind, ServerId, TargetId};
use strake_wire::capability::CapabilityKey;
use strake_wire::lease::Lease;
use strake_wire::map::MapView;
use strake_wire::member::{GoneBack, Heart, ManagerOfMap, Pulse};
use strake_wire::message::manager::{ClusterMap, Join, Joined};
use strake_wire::server::{Identity, Listener};
use strake_wire::service::{ManagerService, Services};
use strake_wire::tls::Tls;
use tokio::task::JoinHandle;

/// How long a server that is to join waits for the manager, and for an earlier life of its own to be
/// forgotten.
const JOIN_WAIT_MS: u64 = 15_000;

/// Which roles a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Membership.
    pub manager: bool,
    /// Names and attributes.
    pub meta: bool,
    /// Contents.
    pub storage: bool,
}

/// What a server is to be.
pub struct NodeOptions {
    /// Holds `node.json`, and the metadata store of a manager or metadata server.
    pub home: PathBuf,
    /// Directories of its targets.
    pub targets: Vec<PathBuf>,
    /// Its roles.
    pub roles: Roles,
    /// Where it listens. All are served; the manager is told `advertise`.
    pub listeners: Vec<Listener>,
    /// Address at which others reach it.
    pub advertise: String,
    /// Who it is to others; `None`: nothing is encrypted. The listeners have theirs already.
    pub tls: Option<Arc<Tls>>,
    /// Managers of the cluster to join; empty: it has joined one, or begins one.
    pub join: Vec<String>,
    /// Name shown to people.
    pub name: String,
    /// Where its metadata is to be.
    pub meta_store: Wanted,
    /// Directories of targets that were added while it ran, and are not opened this time.
    pub without: Vec<PathBuf>,
    /// Directories that should hold a target and do not are new disks.
    pub new_disks: bool,
    /// It is a new server, although its name or its address is that of one that the cluster knows.
    pub new_server: bool,
    /// Targets that are older than they were are meant.
    pub old_disks: bool,
    /// Makes the disk of each target as slow as so many bytes per second, to measure.
    pub disk_rate: Option<u64>,
    /// How long a round takes in which its targets are verified; `None`: nobody does.
    pub scrub_every: Option<Duration>,
}

/// The lock on the home directory; it is held until what a failed start has made is taken away.
type Lock = Arc<dyn Send + Sync>;

/// A running server.
pub struct Node {
    map: Arc<MapView>,
    server: ServerId,
    /// See [`Join::life`].
    life: u64,
    own_manager: Option<Arc<Candidate>>,
    meta: Option<Arc<MetaServer>>,
    targets: TargetList,
    heart: Heart,
    patrol: Arc<Patrol>,
    scrubs: Arc<Scrubs>,
    generations: JoinHandle<()>,
    lease: Arc<Lease>,
    front: Front,
    _expiry: Option<Owned<()>>,
    _lock: Lock,
}

impl Node {
    /// Starts a server; returns when it serves. What a failed start has made is taken away again.
    pub async fn start(options: NodeOptions) -> Outcome<Node> {
        let founds = options.roles.manager && options.join.is_empty();
        let (home, targets) = (&options.home, &options.targets);
        let is_new = !home.join(identity::NAME).exists();
        stores::check_no_mount_of_ours(home, is_new, &mountpoint::ours())?;
        let around = Fresh::around(home, targets);
        let lock = match lock_home(home) {
            Ok(lock) => Lock::from(lock),
            Err(failure) => {
                // What is there by now may be that of the start that has the lock.
                around.keep();
                return Err(failure);
            }
        };
        let fresh = Fresh::look(around, home, targets, founds);
        let mut stays = false;
        let started = Self::start_on(options, lock.clone(), &mut stays).await;
        match started.is_err() && !stays {
            true => fresh.take_away(),
            // What is in a database cannot be taken away, and only this home knows whose it is. And by what is in node.json the
            // manager knows a server again that it may have entered.
            false => fresh.keep(),
        }
        started
    }

    async fn start_on(mut options: NodeOptions, lock: Lock, stays: &mut bool) -> Outcome<Node> {
        let home = options.home.clone();
        let is_blank = !home.join(identity::NAME).exists();
        let mut identity = identity::Node::read(&home)?;
        added::leave_to_flags(&mut identity, &options.targets);
        let looked = left::look(&options, &identity)?;
        check_orphans(&options, &identity, &looked.targets)?;
        let with_meta = options.roles.manager || options.roles.meta;
        if with_meta {
            meta_store::finish_move(&home, &mut identity)?;
            // Of another database others say whether it is the right one.
            if !managers::follows(&options, &identity) {
                meta_store::look(&home, &identity, &options.meta_store)?;
            }
        }
        let callers = managers::callers(&options);
        let cluster = cluster_of(&identity, &looked.targets);
        let others = managers::others(&callers, &options, &cluster, &mut identity).await;
        let others = others.map_err(|failure| looked.rather(failure))?;
        let looked = looked.open(options.disk_rate).await?;
        let store = match with_meta {
            true => Some(open_store(&options, &mut identity).await?),
            false => None,
        };
        *stays = with_meta && !identity.store.is_empty();
        let mut own_manager = None;
        // Another's cluster has to give it its number first.
        if others.is_none() || identity.has_joined() {
            own_manager = managers::start(&callers, &options, store.as_ref(), &identity).await?;
        }
        managers::register(&callers, &identity, &own_manager);
        let map = managers::map(&callers, others, &own_manager).await?;
        let manager: Arc<dyn ManagerService> = Arc::new(ManagerOfMap(map.clone()));
        let mut targets = looked.staying(&options, &mut identity, &map.current()).await?;
        let added = added::look(&options, &mut identity, &*manager).await?;
        targets.extend(open_targets(added, options.disk_rate).await?);
        if is_blank {
            check_newcomer(&options, &targets, &map.current())?;
        }
        // A cluster that is new begins with this server: nobody else may come before it.
        let front = own_manager.as_ref().filter(|_| identity.has_joined()).map(|manager| {
            let who = Identity { cluster: manager.cluster(), name: options.name.clone() };
            Front::open(std::mem::take(&mut options.listeners), who, manager.clone())
        });
        let lost = lost_targets(&identity, &targets);
        // From here on the server may be known to the manager: remember the uuids first.
        identity.targets = merge_records(&identity, &targets);
        identity.write(&home)?;
        let joined = join(&*manager, &options, &identity, &targets, stays).await;
        let (joined, life) = joined.map_err(|failure| managers::rather(failure, &own_manager))?;
        // Whatever happens next, the cluster knows this server from now on.
        identity.cluster = joined.cluster.clone();
        identity.server = joined.server;
        identity.write(&home)?;
        if own_manager.is_none() {
            own_manager = managers::start(&callers, &options, store.as_ref(), &identity).await?;
        }
        managers::has_joined(&callers, &identity, &own_manager).await?;
        make_targets(&mut targets, &joined, options.disk_rate)?;
        warn_of_lost(&lost, &targets);
        stores::count_sharing(&targets);
        identity.targets = merge_records(&identity, &targets);
        identity.write(&home)?;
        // One in which this server is.
        map.refresh().await?;
        let parts =
            Parts { options, joined, life, map, manager, own_manager, store, targets, front, lock };
        parts.serve().await
    }

    /// The cluster as this server sees it.
    pub fn map(&self) -> &Arc<MapView> {
        &self.map
    }

    /// The server's number.
    pub fn id(&self) -> ServerId {
        self.server
    }

    /// Number of targets.
    pub fn target_count(&self) -> usize {
        self.targets.all().len()
    }
}

/// What a server consists of before it serves.
struct Parts {
    options: NodeOptions,
    joined: Joined,
    life: u64,
    map: Arc<MapView>,
    manager: Arc<dyn ManagerService>,
    own_manager: Option<Arc<Candidate>>,
    store: Option<Arc<dyn Store>>,
    targets: Vec<Target>,
    /// Absent: nothing is served yet.
    front: Option<Front>,
    lock: Lock,
}

impl Parts {
    async fn serve(mut self) -> Outcome<Node> {
        let server = ServerId(self.joined.server);
        let key = CapabilityKey::from_slice(&self.joined.capability_key)?;
        let meta = self.start_meta(server, &key).await?;
        let targets = TargetList::new(std::mem::take(&mut self.targets));
        let (home, every) = (&self.options.home, self.options.scrub_every);
        let patrol = Arc::new(Patrol::start(home, &targets.all(), &self.map, every));
        let disk = RealDisk::new(home).context(|| format!("data directory {}", home.display()))?;
        let verified = Verified { targets: targets.clone(), patrol: patrol.clone() };
        let scrubs = Arc::new(Scrubs::new(Arc::new(disk), Arc::new(verified), &self.map));
        let storage =
            self.options.roles.storage.then(|| self.storage(server, key, &targets, &patrol));
        let no_reads = || Arc::new(Lease::new(Arc::new(WakingClock)));
        let lease = storage.as_ref().map_or_else(no_reads, |storage| storage.lease());
        if let Some(own) = &self.own_manager {
            own.bind_to_lead(&lease);
        }
        let follow = self.own_manager.as_ref().map(|own| own.epochs());
        let services = Services {
            manager: self.own_manager.clone().map(|m| m as _),
            meta: meta.clone().map(|m| m as _),
            storage: storage.clone().map(|s| s as _),
        };
        self.map.callers().register_local(server, services.clone());
        let front = match self.front {
            Some(front) => {
                front.complete(&services);
                front
            }
            None => {
                let cluster = self.joined.cluster;
                let who = Identity { cluster, name: self.options.name.clone() };
                Front::open_whole(self.options.listeners, who, services, server, &self.map)
            }
        };
        let pulse = Pulse {
            server,
            manager: self.manager.clone(),
            map: self.map.clone(),
            member: Arc::new(Here {
                disks: targets.clone(),
                scrubs: scrubs.clone(),
                storage,
                lease: lease.clone(),
            }),
            meta: meta.clone().map(|m| m as _),
            gone_back: gone_back(self.store, self.own_manager.clone()),
            lease_ms: self.joined.lease_ms,
            release: RELEASE,
            address: self.options.advertise,
        };
        let generations = targets.keep_growing();
        let heart = Heart::start(pulse, follow);
        Ok(Node {
            map: self.map,
            server,
            life: self.life,
            own_manager: self.own_manager,
            meta,
            targets,
            heart,
            patrol,
            scrubs,
            generations,
            lease,
            front,
            _expiry: self.options.tls.map(tls_flags::watch),
            _lock: self.lock,
        })
    }

    /// The metadata role, if it has it.
    async fn start_meta(
        &self,
        server: ServerId,
        key: &CapabilityKey,
    ) -> Outcome<Option<Arc<MetaServer>>> {
        let Some(store) = self.store.as_ref().filter(|_| self.options.roles.meta) else {
            return Ok(None);
        };
        let (clock, map) = (Arc::new(SystemClock::default()), self.map.clone());
        let tenure = store.is_shared().then(|| Arc::new(Lease::new(Arc::new(WakingClock))));
        if let (Some(own), Some(tenure)) = (&self.own_manager, &tenure) {
            own.bind_to_lead(tenure);
        }
        // Who may start `strake up` alone is to be able to write to what that makes.
        let root_owner = (geteuid().as_raw(), getegid().as_raw());
        let options = MetaOptions { server, tenure, root_owner, ..MetaOptions::default() };
        Ok(Some(MetaServer::start(store.clone(), map, key.clone(), clock, options).await?))
    }

    /// The storage role: the targets there are, what makes further ones, and what closes those that leave.
    fn storage(
        &self,
        server: ServerId,
        key: CapabilityKey,
        targets: &TargetList,
        patrol: &Arc<Patrol>,
    ) -> Arc<StorageServer> {
        let all = targets.all();
        let stores = all.iter().filter_map(|t| Some((t.id, t.store.clone()?))).collect();
        let storage = Arc::new(StorageServer::new(stores, key, self.map.clone()));
        storage.share(all.iter().map(|target| (target.id, target.sharing())));
        let adder = Arc::new(Adder {
            home: self.options.home.clone(),
            server,
            targets: targets.clone(),
            storage: Arc::downgrade(&storage),
            manager: self.manager.clone(),
            map: self.map.clone(),
            patrol: patrol.clone(),
            disk_rate: self.options.disk_rate,
            turn: tokio::sync::Mutex::default(),
        });
        tokio::spawn(leaving::watch(Arc::downgrade(&adder)));
        storage.set_opener(adder);
        storage
    }
}

/// How often the metadata store of a server was found to have gone back to an earlier state, by those who use it.
fn gone_back(store: Option<Arc<dyn Store>>, manager: Option<Arc<Candidate>>) -> GoneBack {
    GoneBack::new(move || {
        let of_parts = store.as_ref().map_or(0, |store| store.times_gone_back());
        of_parts + manager.as_ref().map_or(0, |manager| manager.times_gone_back())
    })
}

fn lock_home(home: &Path) -> Outcome<Box<dyn Send + Sync>> {
    private::make_data_directory(home)?;
    let shown = || format!("data directory {}", home.display());
    let disk = RealDisk::new(home).context(shown)?;
    disk.lock().map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Failure::new(format!(
            "{} is in use by another server",
            shown()
        ))
        .next(format!(
            "fuser -v {} names its process; stop that one (strake down), or choose another --data",
            home.display()
        )),
        _ => Failure::new(format!("{}: {e}", shown())),
    })
}

async fn open_targets(targets: Vec<Target>, disk_rate: Option<u64>) -> Outcome<Vec<Target>> {
    let opened = stores::open_all(targets, disk_rate).await?;
    let (targets, outcomes): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    let Err(failure) = outcomes.into_iter().collect::<Outcome>() else { return Ok(targets) };
    // Those that are open end with a checkpoint each.
    let closed = tokio::task::spawn_blocking(move || drop(targets));
    closed.await.context(|| "closing the targets".into())?;
    Err(failure)
}

fn check_newcomer(options: &NodeOptions, targets: &[Target], map: &ClusterMap) -> Outcome {
    let NodeOptions { home, name, advertise, .. } = options;
    let newcomer = Newcomer { home, name, address: advertise, targets };
    newcomer.check(map, options.new_server, options.new_disks)
}

/// Makes those that are new, and writes on each the generation that it was given.
fn make_targets(targets: &mut [Target], joined: &Joined, disk_rate: Option<u64>) -> Outcome {
    for (target, &id) in targets.iter_mut().zip(&joined.targets) {
        target.format(&joined.cluster, TargetId(id), disk_rate)?;
    }
    let mut given = targets.iter().zip(&joined.generations);
    given.try_for_each(|(target, &generation)| target.begin_generation(generation))
}

/// The cluster that a server belongs to: by its own word, else by that of its targets. Empty: none.
fn cluster_of(identity: &identity::Node, targets: &[Target]) -> String {
    let of_target = targets.iter().map(|target| &target.cluster).find(|c| !c.is_empty());
    let cluster = if identity.has_joined() { Some(&identity.cluster) } else { of_target };
    cluster.cloned().unwrap_or_default()
}

/// Targets that belong to a cluster, beside a manager that would begin a new one: its metadata is
/// lost, and a new cluster would hide what the targets hold.
fn check_orphans(options: &NodeOptions, identity: &identity::Node, targets: &[Target]) -> Outcome {
    let own =
        options.roles.manager && managers::asks_nobody(options, identity) && !identity.has_joined();
    let orphan = targets.iter().find(|target| target.id.0 != 0);
    match orphan.filter(|_| own) {
        Some(target) => Err(Failure::new(format!(
            "target {} belongs to a cluster, but {} does not know one",
            target.path.display(),
            options.home.display()
        ))
        .next("leave all --data as they are, and restore node.json and meta/ from a backup (recover.md)")),
        None => Ok(()),
    }
}

async fn open_store(
    options: &NodeOptions,
    identity: &mut identity::Node,
) -> Outcome<Arc<dyn Store>> {
    let makes = options.roles.manager && managers::asks_nobody(options, identity);
    let (home, wanted) = (&options.home, &options.meta_store);
    meta_store::open(home, identity, wanted, &options.name, makes).await
}

/// Enters the cluster, in a life that has a number from now on. `stays`: it may be known there, although this or what follows
/// fails.
async fn join(
    manager: &dyn ManagerService,
    options: &NodeOptions,
    identity: &identity::Node,
    targets: &[Target],
    stays: &mut bool,
) -> Outcome<(Joined, u64)> {
    let life = SystemRandom.number().context(|| "random numbers".into())?.max(1);
    let request = Join {
        server: identity.server,
        cluster: cluster_of(identity, targets),
        address: options.advertise.clone(),
        manager: options.roles.manager,
        meta: options.roles.meta,
        targets: targets.iter().map(Target::spec).collect(),
        name: options.name.clone(),
        // One that cannot be read is one that may have changed.
        boot: boot_id().unwrap_or_default(),
        store: managers::shared_store(identity),
        shares: databases::spans_parts(&identity.engine),
        old_disks: options.old_disks,
        life,
    };
    let joined = strake_wire::member::join(manager, &request, JOIN_WAIT_MS).await;
    // What a new cluster knows goes with its metadata.
    let founds = options.roles.manager && options.join.is_empty();
    *stays |= !founds && may_be_known(&joined, &request);
    Ok((joined?, life))
}

/// Whether the manager may have entered a server, by what came of that. By its targets it knows one again, and refuses none
/// that it has entered itself; to one that has none it may say that its address is in use.
fn may_be_known(joined: &Result<Joined, Error>, request: &Join) -> bool {
    let refused = [ErrorKind::Busy, ErrorKind::Invalid, ErrorKind::WrongPeer, ErrorKind::NoManager];
    let is_refused = joined.as_ref().is_err_and(|error| refused.contains(&error.kind));
    !is_refused || request.targets.is_empty()
}

/// Targets of which another one has taken the place, and where.
fn lost_targets(identity: &identity::Node, targets: &[Target]) -> Vec<(u32, PathBuf)> {
    let replaced = |record: &&identity::TargetRecord| {
        let here = targets.iter().find(|target| target.path == record.path);
        record.target != 0 && here.is_some_and(|target| target.uuid != record.uuid)
    };
    let lost = identity.targets.iter().filter(replaced);
    lost.map(|record| (record.target, record.path.clone())).collect()
}

fn warn_of_lost(lost: &[(u32, PathBuf)], targets: &[Target]) {
    for (old, path) in lost {
        let new = targets.iter().find(|target| target.path == *path).map_or(0, |t| t.id.0);
        tracing::warn!(
            "{} is a new disk, target {new}, where target {old} was; to give it what that had: \
             strake target replace {old} {new}",
            path.display()
        );
    }
}

/// The records of `node.json`: those of the targets here, and of any that were left out today.
fn merge_records(identity: &identity::Node, targets: &[Target]) -> Vec<identity::TargetRecord> {
    let here = targets.iter().map(Target::record);
    // What a new disk has taken the place of is not missed any more.
    let absent = |record: &&identity::TargetRecord| {
        !targets.iter().any(|t| t.uuid == record.uuid || t.path == record.path)
    };
    here.chain(identity.targets.iter().filter(absent).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::TargetSpec;

    /// The manager had stored its first Join, but the answer was lost: its node.json was removed, and the next start was refused
    /// as a newcomer that takes the address of another server, for ever.
    #[test]
    fn a_server_that_the_manager_may_have_entered_remembers_by_what_it_is_known() {
        let with_targets = Join { targets: vec![TargetSpec::default()], ..Join::default() };
        let failed = |kind: ErrorKind| Err(Error::from(kind));
        assert!(may_be_known(&Ok(Joined::default()), &with_targets), "what follows may fail");
        for kind in [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Io] {
            assert!(may_be_known(&failed(kind), &with_targets), "{kind:?}");
        }
        for kind in [ErrorKind::Busy, ErrorKind::Invalid, ErrorKind::WrongPeer] {
            assert!(!may_be_known(&failed(kind), &with_targets), "{kind:?}");
            assert!(may_be_known(&failed(kind), &Join::default()), "{kind:?}");
        }
    }
}
