//! A machine of the cluster: its disks, its clocks, and the server that runs on it, as often as that
//! is started, stopped and killed.
//!
//! The server is put together as the program does it (`node` of the crate `strake`): stores, manager,
//! join, map, services, heart.

mod drives;
mod specs;

use super::database::Database;
use super::link::{Link, WaysFrom};
use super::plan::Plan;
use super::store::SimStore;
use super::world::{MachineClock, Power, World};
use parking_lot::Mutex;
use specs::{OpenTargets, Specs, fill};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_base::disk::Disk;
use strake_base::disk::sim::SimDisk;
use strake_base::random::SplitMix64;
use strake_base::simulation::Process;
use strake_base::task;
use strake_engine::chunk::{ChunkOptions, ChunkStore, Identity};
use strake_engine::kv::{Alone, Kv, Pair, Store};
use strake_manager::{Candidate, Candidature, ManagerOptions};
use strake_meta::{MetaOptions, MetaServer};
use strake_storage::{Here, Scrubs, StorageServer};
use strake_types::{Error, ErrorKind, Result, ServerId, TargetId};
use strake_wire::caller::{CallerKind, CallerOptions, Callers};
use strake_wire::capability::CapabilityKey;
use strake_wire::lease::Lease;
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::member::{GoneBack, Heart, ManagerOfMap, Pulse, join};
use strake_wire::message::manager::{Join, Joined, Leave, ManagerAnswer, ManagerOp, TargetSpec};
use strake_wire::service::{ManagerService, Services};

pub use drives::Drive;

/// The machine with the manager and the metadata server.
pub const HEAD: u32 = 1;
/// Numbers of machines that are servers: they join in this order, so these are their numbers in the
/// cluster, too.
pub const SERVERS_MAX: u32 = 9;
/// How long a server waits for the manager.
const JOIN_WAIT_MS: u64 = 15_000;
/// How long a stop may take to say good-bye.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Between two syncs of the metadata store that nobody asks for.
const STORE_SYNC: Duration = Duration::from_secs(1);
/// Bytes of the disk with the server's own directory.
const HOME_BYTES: u64 = 1 << 20;
/// Between two checkpoints of a target that nobody asks for.
const CHECKPOINT: Duration = Duration::from_secs(2);

/// A machine.
pub struct Host {
    /// Its number, in the cluster too.
    pub number: u32,
    /// Its disks.
    drives: Mutex<Vec<Arc<Drive>>>,
    /// How many it has ever had.
    drives_ever: AtomicU64,
    /// Its own directory.
    home: SimDisk,
    /// Its own metadata store, if it is the head of a cluster without a database.
    pub store: Option<SimStore>,
    /// The database of the cluster, if it keeps metadata there.
    database: Option<Database>,
    /// Its clocks.
    pub clock: Arc<MachineClock>,
    /// Longest time of an operation of its disks.
    pub disk_ms: Arc<AtomicU64>,
    /// It was started, if only once.
    pub expected: AtomicBool,
    /// It has left the cluster for good.
    pub dismissed: AtomicBool,
    /// Who sits at it knows that its disks are old.
    with_old_disks: AtomicBool,
    world: Arc<World>,
    plan: Arc<Plan>,
    /// The id of the cluster that has let it in; empty: none has yet.
    pub cluster: Mutex<String>,
    boots: Mutex<u64>,
    /// How often its server has started: the number of the life of the one that runs.
    lives: AtomicU64,
    running: Mutex<Option<Running>>,
    /// Held while it starts or stops.
    changing: tokio::sync::Mutex<()>,
}

/// A server that runs.
struct Running {
    process: Arc<Process>,
    callers: Arc<Callers>,
    map: Arc<MapView>,
    heart: Heart,
    lease: Arc<Lease>,
    own_manager: Option<Arc<Candidate>>,
    meta: Option<Arc<MetaServer>>,
    storage: Arc<StorageServer>,
    open: OpenTargets,
}

/// A failure of an engine, for the trace.
fn engine(error: impl std::fmt::Display) -> Error {
    Error::with(ErrorKind::Io, error.to_string())
}

impl Host {
    /// A machine that is off.
    pub fn new(
        world: &Arc<World>,
        plan: &Arc<Plan>,
        number: u32,
        drives: u32,
        database: Option<&Database>,
    ) -> Arc<Self> {
        let mut random = world.stream(0x1000 + u64::from(number));
        let drift = plan.drift_of(&mut random);
        let store = SimStore::new(world.stream(0x2000 + u64::from(number)), plan.conflicts);
        let host = Arc::new(Self {
            number,
            drives: Mutex::default(),
            drives_ever: AtomicU64::new(0),
            home: SimDisk::new(world.stream(0x7000 + u64::from(number)).next_number(), HOME_BYTES),
            store: (number == HEAD && database.is_none()).then_some(store),
            database: database.filter(|_| number <= plan.metas).map(Database::elsewhere),
            clock: Arc::new(MachineClock::new(drift)),
            disk_ms: Arc::new(AtomicU64::new(plan.disk_ms)),
            expected: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            with_old_disks: AtomicBool::new(false),
            world: world.clone(),
            plan: plan.clone(),
            cluster: Mutex::default(),
            boots: Mutex::new(1),
            lives: AtomicU64::new(0),
            running: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        });
        let new = (0..drives).map(|_| host.new_drive()).collect();
        *host.drives.lock() = new;
        host
    }

    /// True if it belongs to the cluster: it was started, and has not left.
    pub fn is_member(&self) -> bool {
        self.expected.load(Ordering::Relaxed) && !self.dismissed.load(Ordering::Relaxed)
    }

    /// True while a server runs here.
    pub fn is_up(&self) -> bool {
        self.running.lock().is_some()
    }

    /// Its process, to be paused.
    pub fn process(&self) -> Option<Arc<Process>> {
        self.running.lock().as_ref().map(|running| running.process.clone())
    }

    /// All metadata that is stored here or in the database.
    pub async fn metadata(&self) -> strake_engine::kv::Result<Vec<Pair>> {
        match (&self.database, &self.store) {
            (Some(database), _) => database.all().await,
            (None, Some(store)) => store.all().await,
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The stores of its targets, by number.
    pub fn stores(&self) -> Vec<(u32, Arc<ChunkStore>)> {
        let running = self.running.lock();
        let open = running.iter().flat_map(|running| running.open.lock().clone());
        open.map(|(spec, store)| (spec.target, store)).collect()
    }

    /// The cluster as the server here sees it.
    pub fn map(&self) -> Option<Arc<MapView>> {
        self.running.lock().as_ref().map(|running| running.map.clone())
    }

    /// Starts the server, unless it runs or has left the cluster; an error if it gave up.
    pub async fn start(self: &Arc<Self>) -> Result<()> {
        let _one = self.changing.lock().await;
        if self.is_up() || self.dismissed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut random = SplitMix64::new(self.world.stream(0x3000).next_number());
        let slow = self.disk_ms.clone();
        self.expected.store(true, Ordering::Relaxed);
        let random = Mutex::new(SplitMix64::new(random.next_number() ^ u64::from(self.number)));
        let process = Process::new(move || {
            let most = slow.load(Ordering::Relaxed);
            Duration::from_millis(random.lock().below(most + 1))
        });
        let (host, own) = (self.clone(), process.clone());
        self.lives.fetch_add(1, Ordering::Relaxed);
        self.world.silence(self.number, Power::On);
        let started = process.spawn(async move { host.start_in(&own).await }).await;
        let gone = |_| Error::with(ErrorKind::Unavailable, "killed while it started");
        match started.map_err(gone).and_then(|started| started) {
            Ok(running) => {
                *self.running.lock() = Some(running);
                self.world.note(format_args!("server {} runs", self.number));
                Ok(())
            }
            Err(error) => {
                self.world.note(format_args!("server {} does not start: {error}", self.number));
                self.end(&process, Power::On);
                Err(error)
            }
        }
    }

    async fn start_in(self: &Arc<Self>, process: &Arc<Process>) -> Result<Running> {
        let (name, kind) = (format!("server {}", self.number), CallerKind::Server);
        let callers = Callers::new(CallerOptions { name, kind, ..CallerOptions::default() });
        for other in (1..=SERVERS_MAX).filter(|&other| other != self.number) {
            let link = Link::services(&self.world, self.number, other);
            callers.register_local(ServerId(other), link);
        }
        let kv = self.store.as_ref().map(SimStore::process);
        let store: Option<Arc<dyn Store>> = match (&self.database, &kv) {
            (Some(database), _) => Some(Arc::new(database.clone())),
            (None, kv) => kv.clone().map(|kv| Arc::new(Alone(kv)) as _),
        };
        let is_known = self.number == HEAD || !self.cluster.lock().is_empty();
        let mut own_manager = match is_known {
            true => self.start_manager(process, &callers, &store).await?,
            false => None,
        };
        let source = ManagerSource::Local(match &own_manager {
            Some(manager) => manager.clone() as Arc<dyn ManagerService>,
            None => Link::managers(&self.world, self.number, self.plan.managers),
        });
        let map = MapView::connect(callers.clone(), source, JOIN_WAIT_MS).await?;
        let manager: Arc<dyn ManagerService> = Arc::new(ManagerOfMap(map.clone()));
        self.look_at_drives(&*manager).await?;
        let opened = self.open_drives().await?;
        let joined = self.join(&*manager, &opened).await?;
        *self.cluster.lock() = joined.cluster.clone();
        let stores = self.format_drives(opened, &joined).await?;
        match &own_manager {
            Some(manager) => manager.has_joined(joined.server).await?,
            None => own_manager = self.start_manager(process, &callers, &store).await?,
        }
        map.refresh().await?;
        let key = CapabilityKey::from_slice(&joined.capability_key)?;
        let (server, process) = (ServerId(joined.server), process.clone());
        let meta = match &store {
            Some(store) => Some(self.start_meta(store, &own_manager, &map, &key, server).await?),
            None => None,
        };
        let storage = self.start_storage(&stores, &own_manager, key, &map);
        let services = Services {
            manager: own_manager.clone().map(|m| m as _),
            meta: meta.clone().map(|m| m as _),
            storage: Some(storage.clone()),
        };
        callers.register_local(server, services.clone());
        self.world.serve(self.number, &process, services);
        let specs = self.specs().into_iter().zip(stores.iter().cloned()).collect();
        let open = Arc::new(Mutex::new(specs));
        let (disks, verified) = (Specs(Arc::clone(&open)), Arc::new(Specs(Arc::clone(&open))));
        let scrubs = Arc::new(Scrubs::new(self.home.process(), verified, &map));
        let (lease, own) = (storage.lease(), Some(storage.clone()));
        let member = Here { disks, scrubs, storage: own, lease: lease.clone() };
        let pulse = Pulse {
            server,
            manager: manager.clone(),
            map: map.clone(),
            member: Arc::new(member),
            meta: meta.clone().map(|m| m as _),
            gone_back: GoneBack::new(|| 0),
            lease_ms: joined.lease_ms,
            release: "",
            address: self.address(),
        };
        let heart = Heart::start(pulse, own_manager.as_ref().map(|own| own.epochs()));
        self.sync_now_and_then(&stores, kv);
        Ok(Running { process, callers, map, heart, lease, own_manager, meta, storage, open })
    }

    /// Joins the cluster. Old disks are refused; who sits here then says that they are meant.
    async fn join(
        &self,
        manager: &dyn ManagerService,
        opened: &[Option<Arc<ChunkStore>>],
    ) -> Result<Joined> {
        let joined = join(manager, &self.request(opened), JOIN_WAIT_MS).await;
        let is_old = self.drives().iter().any(|drive| drive.is_old());
        match &joined {
            Ok(_) => {
                let meant = self.with_old_disks.swap(false, Ordering::Relaxed);
                if is_old && !meant {
                    let what = format!("server {} comes with an old disk unnoticed", self.number);
                    self.world.fail(what);
                }
            }
            Err(error) if error.detail.contains("is older than") => {
                self.with_old_disks.store(true, Ordering::Relaxed);
                if !is_old {
                    self.world.fail(format!("server {} has no old disk: {error}", self.number));
                }
            }
            _ => {}
        }
        joined
    }

    /// The manager, if one runs here.
    async fn start_manager(
        &self,
        process: &Arc<Process>,
        callers: &Callers,
        store: &Option<Arc<dyn Store>>,
    ) -> Result<Option<Arc<Candidate>>> {
        let Some(store) = store.as_ref().filter(|_| self.is_manager()) else { return Ok(None) };
        let who = Candidature {
            server: if self.cluster.lock().is_empty() { 0 } else { self.number },
            address: self.address(),
            founds: self.number == HEAD,
            store: self.store_id(),
        };
        let options = ManagerOptions {
            clock: self.clock.clone(),
            first_volume: self.plan.first_volume(),
            ways: Some(Arc::new(WaysFrom::new(&self.world, self.number))),
            ..ManagerOptions::default()
        };
        let lease = Arc::new(Lease::new(self.clock.clone()));
        let manager = Candidate::start(store.clone(), who, lease, options).await?;
        let alone = Services { manager: Some(manager.clone()), ..Services::default() };
        callers.register_local(ServerId(self.number), alone.clone());
        self.world.serve(self.number, process, alone);
        Ok(Some(manager))
    }

    /// What it calls the store that it shares with others, if it does.
    fn store_id(&self) -> String {
        self.database.as_ref().map_or("", |_| "database").into()
    }

    fn is_manager(&self) -> bool {
        self.number <= self.plan.managers
    }

    fn address(&self) -> String {
        format!("server-{}:1", self.number)
    }

    async fn start_meta(
        &self,
        store: &Arc<dyn Store>,
        own_manager: &Option<Arc<Candidate>>,
        map: &Arc<MapView>,
        key: &CapabilityKey,
        server: ServerId,
    ) -> Result<Arc<MetaServer>> {
        let clock = self.clock.clone();
        let tenure = store.is_shared().then(|| Arc::new(Lease::new(clock.clone())));
        if let (Some(own), Some(tenure)) = (own_manager, &tenure) {
            own.bind_to_lead(tenure);
        }
        let options = MetaOptions { server, tenure, ..MetaOptions::default() };
        MetaServer::start(store.clone(), map.clone(), key.clone(), clock, options).await
    }

    fn start_storage(
        &self,
        stores: &[Arc<ChunkStore>],
        own_manager: &Option<Arc<Candidate>>,
        key: CapabilityKey,
        map: &Arc<MapView>,
    ) -> Arc<StorageServer> {
        let ids = self.drives().into_iter().map(|drive| TargetId(drive.target()));
        let targets = ids.zip(stores.iter().cloned()).collect();
        let clock: Arc<dyn Clock> = self.clock.clone();
        let storage = Arc::new(StorageServer::with_clock(targets, key, map.clone(), clock));
        own_manager.iter().for_each(|own| own.bind_to_lead(&storage.lease()));
        storage
    }

    fn options(&self) -> ChunkOptions {
        ChunkOptions {
            capacity_bytes: None,
            reserve_bytes: 4 << 20,
            background: false,
            log_bytes_max: self.plan.log_bytes,
            ..ChunkOptions::default()
        }
    }

    /// Opens the targets that were formatted before.
    async fn open_drives(self: &Arc<Self>) -> Result<Vec<Option<Arc<ChunkStore>>>> {
        let host = self.clone();
        let open = move || {
            let open = |drive: &Arc<Drive>| match drive.target() {
                0 => Ok(None),
                _ => ChunkStore::open(drive.disk.process(), host.options()).map(Arc::new).map(Some),
            };
            host.drives().iter().map(open).collect::<strake_engine::chunk::Result<Vec<_>>>()
        };
        task::blocking(open).await.map_err(engine)?.map_err(engine)
    }

    /// Makes targets on disks that are empty; all are in their next generation.
    async fn format_drives(
        self: &Arc<Self>,
        opened: Vec<Option<Arc<ChunkStore>>>,
        joined: &Joined,
    ) -> Result<Vec<Arc<ChunkStore>>> {
        let mut stores = Vec::new();
        for ((drive, store), &target) in self.drives().iter().zip(opened).zip(&joined.targets) {
            stores.push(match store {
                Some(store) => store,
                None => self.format(drive, &joined.cluster, target)?,
            });
            drive.entered.store(true, Ordering::Relaxed);
        }
        for (drive, &generation) in self.drives().iter().zip(&joined.generations) {
            drive.begin_generation(generation);
        }
        Ok(stores)
    }

    /// Makes a target on an empty disk, and opens it.
    fn format(&self, drive: &Drive, cluster: &str, target: u32) -> Result<Arc<ChunkStore>> {
        let (cluster, uuid) = (cluster.to_owned(), drive.uuid.clone());
        let identity = Identity { cluster, uuid, target };
        let disk: Arc<dyn Disk> = drive.disk.process();
        ChunkStore::format(&disk, &identity, &self.options()).map_err(engine)?;
        let store = Arc::new(ChunkStore::open(disk, self.options()).map_err(engine)?);
        *drive.target.lock() = target;
        Ok(store)
    }

    fn specs(&self) -> Vec<TargetSpec> {
        self.drives().iter().map(|drive| drive.spec()).collect()
    }

    /// Of its machine, as long as that does not lose power.
    fn boot(&self) -> String {
        format!("boot-{}-{}", self.number, self.boots.lock())
    }

    fn request(&self, opened: &[Option<Arc<ChunkStore>>]) -> Join {
        let cluster = self.cluster.lock().clone();
        let filled = |(spec, store): (TargetSpec, &Option<Arc<ChunkStore>>)| match store {
            Some(store) => fill(&spec, store),
            None => spec,
        };
        Join {
            server: if cluster.is_empty() { 0 } else { self.number },
            cluster,
            address: self.address(),
            manager: self.is_manager(),
            meta: self.number == HEAD || self.database.is_some(),
            targets: self.specs().into_iter().zip(opened).map(filled).collect(),
            name: format!("server-{}", self.number),
            boot: self.boot(),
            store: self.store_id(),
            shares: self.database.is_some(),
            old_disks: self.with_old_disks.load(Ordering::Relaxed),
            life: self.lives.load(Ordering::Relaxed),
        }
    }

    /// What threads of the engines do in a real server.
    fn sync_now_and_then(&self, stores: &[Arc<ChunkStore>], kv: Option<Arc<dyn Kv>>) {
        for store in stores.iter().map(Arc::downgrade) {
            task::spawn(async move {
                loop {
                    tokio::time::sleep(CHECKPOINT).await;
                    let Some(store) = store.upgrade() else { return };
                    let kept = move || store.sync().map(|()| store.balance_room());
                    let _poisoned = task::blocking(kept).await;
                }
            });
        }
        task::spawn(async move {
            while let Some(kv) = &kv {
                tokio::time::sleep(STORE_SYNC).await;
                let _dead = kv.sync().await;
            }
        });
    }

    /// Stops the server in good order.
    pub async fn stop(self: &Arc<Self>) {
        let _one = self.changing.lock().await;
        let Some(running) = self.running.lock().take() else { return };
        let (number, life) = (self.number, self.lives.load(Ordering::Relaxed));
        let process = running.process.clone();
        let world = self.world.clone();
        let stopped = process.spawn(async move {
            running.heart.stop();
            running.lease.give_up();
            running.meta.iter().for_each(|meta| meta.leave());
            if let Some(manager) = &running.own_manager {
                let _told = tokio::time::timeout(LEAVE_LIMIT, manager.resign()).await;
            }
            let leave = ManagerOp::Leave(Leave { server: number, life });
            let leaving = running.map.ask_manager(leave);
            let _told = tokio::time::timeout(LEAVE_LIMIT, leaving).await;
            world.silence(number, Power::On);
            if let Some(meta) = &running.meta {
                meta.stop().await?;
            }
            let open = running.open.lock().clone();
            for (_, store) in open {
                task::blocking(move || store.sync()).await.map_err(engine)?.map_err(engine)?;
            }
            if let Some(manager) = &running.own_manager {
                let _told = tokio::time::timeout(LEAVE_LIMIT, manager.end()).await;
            }
            running.callers.register_local(ServerId(number), Services::default());
            Result::Ok(())
        });
        let outcome = stopped.await.map_err(engine).and_then(|stopped| stopped);
        if let (Ok(()), Some(store)) = (&outcome, &self.store) {
            let _synced = store.process().sync().await;
        }
        self.world.note(format_args!("server {number} stops: {outcome:?}"));
        process.kill();
        // What the values that die now write is written in good order.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.end(&process, Power::On);
    }

    /// Ends the server as `kill -9` does, or the loss of the machine's power.
    pub async fn crash(self: &Arc<Self>, power: Power) {
        let running = self.running.lock().take();
        let Some(running) = running else { return };
        self.world.note(format_args!("server {} dies, power {power:?}", self.number));
        self.end(&running.process, power);
        running.callers.register_local(ServerId(self.number), Services::default());
        if power == Power::Off {
            *self.boots.lock() += 1;
            if let Some(store) = &self.store {
                let lost = store.power_loss().await;
                self.world.note(format_args!("store of server {}: {lost:?}", self.number));
            }
        }
        drop(running);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Whatever is written after this is not.
    fn end(&self, process: &Arc<Process>, power: Power) {
        let drives = self.drives();
        for disk in drives.iter().map(|drive| &drive.disk).chain([&self.home]) {
            match power {
                Power::On => disk.kill(),
                Power::Off => disk.power_loss(),
            }
        }
        self.store.iter().for_each(SimStore::kill);
        self.world.silence(self.number, power);
        process.kill();
    }

    /// Asks the manager, as who sits at this machine. A manager that runs there itself works on it within its own process: outside
    /// of any it would wait for real threads.
    pub async fn ask(&self, op: ManagerOp) -> Result<Option<ManagerAnswer>> {
        let (map, process) = self.map().zip(self.process()).ok_or_else(no_manager)?;
        let asked = process.spawn(async move { map.ask_manager(op).await }).await;
        Ok(asked.map_err(|_| no_manager())??.answer)
    }

    /// From now on the database is not reached from here, or is again. False: there is none.
    pub fn cut_database(&self, is: bool) -> bool {
        self.database.iter().inspect(|database| database.set_cut(is)).count() > 0
    }
}

fn no_manager() -> Error {
    Error::with(ErrorKind::Unavailable, "no manager runs")
}
