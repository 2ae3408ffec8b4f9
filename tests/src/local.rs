//! A whole cluster in this process: manager, metadata server, storage server and client, joined by
//! function calls, on stores in a temporary directory or on simulated disks.

use async_trait::async_trait;
use bytes::Bytes;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_base::clock::SystemClock;
use strake_base::disk::sim::SimDisk;
use strake_base::disk::{Disk, RealDisk};
use strake_client::{Volume, VolumeOptions};
use strake_engine::chunk::{ChunkError, ChunkOptions, ChunkStore, Identity};
use strake_engine::kv::memory::{MemoryKv, SyncedKv};
use strake_engine::kv::{Alone, Kv};
use strake_manager::{Manager, ManagerOptions};
use strake_meta::{MetaOptions, MetaServer};
use strake_storage::StorageServer;
use strake_types::{Result, ServerId, TargetId};
use strake_wire::caller::{CallerOptions, Callers, LocalServices};
use strake_wire::capability::CapabilityKey;
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::common::Template;
use strake_wire::message::manager::{
    Join, Joined, ManagerAnswer, ManagerOp, ManagerRequest, TargetSpec, VolumeSpec,
};
use strake_wire::message::meta::{MetaOp, MetaReply, MetaRequest};
use strake_wire::service::{ManagerService, MetaService, StorageService};
use tempfile::TempDir;

/// Targets of the cluster.
const TARGETS: u32 = 4;
/// How often, and how long apart, it is looked whether targets are let go of. Only a hang reaches the end.
const LOOKS_MAX: u32 = 12_000;
const LOOK: Duration = Duration::from_millis(5);

/// Where names and attributes are kept.
#[derive(Clone)]
pub enum Names {
    /// In this map, which lives as long as the test.
    Memory(MemoryKv),
    /// The same, in a volume of so many shares.
    Shares(MemoryKv, u32),
    /// In this one, whose host can lose power.
    Synced(SyncedKv),
}

impl Names {
    fn open(&self) -> Arc<dyn Kv> {
        match self {
            Names::Memory(kv) | Names::Shares(kv, _) => Arc::new(kv.clone()),
            Names::Synced(kv) => Arc::new(kv.clone()),
        }
    }

    /// Shares of the volume.
    fn shares(&self) -> u32 {
        match self {
            Names::Memory(_) | Names::Synced(_) => 1,
            Names::Shares(_, shares) => *shares,
        }
    }
}

/// A metadata server, and how often it was asked for attributes.
struct Counted {
    meta: Arc<MetaServer>,
    looks: Arc<AtomicU64>,
}

#[async_trait]
impl MetaService for Counted {
    async fn call(&self, request: MetaRequest) -> Result<MetaReply> {
        let looks = matches!(request.op, Some(MetaOp::GetAttr(_)));
        self.looks.fetch_add(u64::from(looks), Ordering::Relaxed);
        self.meta.call(request).await
    }
}

/// The running cluster. Everything stops when it is dropped.
pub struct LocalCluster {
    directory: TempDir,
    /// The disks of the targets, where they are simulated.
    disks: Vec<SimDisk>,
    names: Names,
    callers: Arc<Callers>,
    /// Lives through restarts, as it would on another host.
    manager: Arc<dyn ManagerService>,
    map: Option<Arc<MapView>>,
    joined: Joined,
    /// What a restart replaces.
    meta: Option<Arc<MetaServer>>,
    /// See [`LocalCluster::looks`].
    looks: Arc<AtomicU64>,
    /// The open targets, to know when operations under way have let go of them.
    stores: Vec<Weak<ChunkStore>>,
}

impl LocalCluster {
    /// A new cluster whose volume `main` has chunks of this size. Must be called in a runtime.
    pub async fn start(names: Names, chunk_bytes: u64) -> Self {
        Self::start_on(names, chunk_bytes, Vec::new()).await
    }

    /// As [`LocalCluster::start`], with targets on disks of a host that can lose power. Nothing is
    /// synced there unless somebody asks.
    pub async fn start_simulated(names: Names, chunk_bytes: u64, seed: u64) -> Self {
        let disk = |nth| SimDisk::new(seed * u64::from(TARGETS) + u64::from(nth), 1 << 30);
        Self::start_on(names, chunk_bytes, (0..TARGETS).map(disk).collect()).await
    }

    async fn start_on(names: Names, chunk_bytes: u64, disks: Vec<SimDisk>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let callers = Callers::new(CallerOptions::default());
        let manager = manager(chunk_bytes, &names).await;
        let (map, meta, joined) = (None, None, Joined::default());
        let (stores, looks) = Default::default();
        let mut cluster =
            Self { directory, disks, names, callers, manager, map, joined, meta, looks, stores };
        cluster.run().await;
        if cluster.names.shares() > 1 {
            cluster.make_shares(chunk_bytes).await;
        }
        cluster
    }

    /// Makes the volume of several shares, which the metadata server takes into use when it hears of them.
    async fn make_shares(&self, chunk_bytes: u64) {
        let create = ManagerOp::CreateVolume(volume(chunk_bytes, &self.names));
        let made = self.manager.call(ManagerRequest { op: Some(create) }).await;
        made.expect("a metadata server has joined that bears shares");
    }

    /// Stops the metadata server and the storage server and starts them again on what they have
    /// stored. Clients go on.
    pub async fn restart(&mut self) {
        if let Some(meta) = self.meta.take() {
            meta.stop().await.expect("a healthy server stops in good order");
        }
        self.register(None, None);
        self.stores_closed().await;
        self.run().await;
    }

    /// The host of the simulated disks loses power: the storage server starts again on what is left.
    /// Clients and the metadata server go on.
    pub async fn lose_power(&mut self) {
        self.end_storage(SimDisk::power_loss).await;
    }

    /// The storage server's process is killed and started again on the same host.
    pub async fn kill_storage(&mut self) {
        self.end_storage(SimDisk::kill).await;
    }

    /// The storage server is stopped in good order, then its host is.
    pub async fn restart_host(&mut self) {
        self.register(None, self.meta.clone());
        self.stores_closed().await;
        self.end_storage(SimDisk::power_loss).await;
    }

    /// The storage server is away from now on.
    pub fn stop_storage(&self) {
        self.register(None, self.meta.clone());
    }

    /// No server of it is there from now on.
    pub fn stop(&self) {
        self.register(None, None);
    }

    async fn end_storage(&mut self, end: fn(&SimDisk)) {
        self.disks.iter().for_each(end);
        self.register(None, self.meta.clone());
        self.stores_closed().await;
        let (stores, _) = self.targets();
        let storage = self.storage(stores);
        self.register(Some(storage), self.meta.clone());
    }

    /// Waits for the last references to the stores: the map's, and those of operations under way.
    async fn stores_closed(&self) {
        for _ in 0..LOOKS_MAX {
            // Looking anything up makes the map forget services that are not registered any more.
            let _ = self.map.as_ref().map(|map| map.storage_of(TargetId(0)));
            if self.stores.iter().all(|store| store.strong_count() == 0) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("operations on the targets do not end");
    }

    /// A client of the volume `main`.
    pub async fn volume(&self, options: VolumeOptions) -> Arc<Volume> {
        let map = Arc::clone(self.map.as_ref().expect("it was started"));
        Volume::connect(map, "main", options).await.expect("the cluster serves main")
    }

    /// How often clients have asked for attributes.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The cluster map, by which its services are found.
    pub fn view(&self) -> Arc<MapView> {
        Arc::clone(self.map.as_ref().expect("it was started"))
    }

    /// The key with which its servers make capabilities.
    pub fn capability_key(&self) -> CapabilityKey {
        CapabilityKey::from_slice(&self.joined.capability_key).expect("32 bytes")
    }

    fn register(&self, storage: Option<Arc<StorageServer>>, meta: Option<Arc<MetaServer>>) {
        let counted = |meta| Counted { meta, looks: Arc::clone(&self.looks) };
        let services = LocalServices {
            manager: Some(Arc::clone(&self.manager)),
            storage: storage.map(|s| s as Arc<dyn StorageService>),
            meta: meta.map(|meta| Arc::new(counted(meta)) as Arc<dyn MetaService>),
        };
        self.callers.register_local(ServerId(self.joined.server), services);
    }

    async fn run(&mut self) {
        let kv = self.names.open();
        let (stores, specs) = self.targets();
        self.joined = join(&*self.manager, &self.joined, specs).await;
        let key = self.capability_key();
        self.register(None, None);
        let map = self.map().await;
        let storage = self.storage(stores);
        self.register(Some(Arc::clone(&storage)), None);
        let clock = Arc::new(SystemClock::default());
        let meta = MetaServer::start(Arc::new(Alone(kv)), map, key, clock, MetaOptions::default());
        let meta = meta.await.expect("the metadata server starts");
        self.register(Some(storage), Some(Arc::clone(&meta)));
        self.meta = Some(meta);
    }

    fn storage(&mut self, stores: Vec<Arc<ChunkStore>>) -> Arc<StorageServer> {
        self.stores = stores.iter().map(Arc::downgrade).collect();
        let ids = self.joined.targets.iter().map(|&id| TargetId(id));
        let stores = ids.zip(stores).collect();
        let server = StorageServer::new(stores, self.capability_key(), self.view());
        // There is no heart here, and nobody else to whom the manager could give anything.
        let lease = server.lease();
        lease.renew(lease.now(), 1_000_000_000);
        Arc::new(server)
    }

    async fn map(&mut self) -> Arc<MapView> {
        if self.map.is_none() {
            let source = ManagerSource::Local(Arc::clone(&self.manager));
            let map = MapView::connect(Arc::clone(&self.callers), source, 5_000).await;
            self.map = Some(map.expect("the manager answers"));
        }
        Arc::clone(self.map.as_ref().expect("it was just set"))
    }

    /// Opens the targets, formatting them at the first time.
    fn targets(&self) -> (Vec<Arc<ChunkStore>>, Vec<TargetSpec>) {
        let mut specs = Vec::new();
        let mut stores = Vec::new();
        for nth in 0..TARGETS {
            let path = self.directory.path().join(format!("target{nth}"));
            let store = Arc::new(match self.disks.get(nth as usize) {
                Some(disk) => open_simulated(disk, nth),
                None => open_target(&path, nth),
            });
            specs.push(TargetSpec {
                scrub: None,
                target: self.joined.targets.get(nth as usize).copied().unwrap_or(0),
                uuid: store.identity().uuid.clone(),
                path: path.display().to_string(),
                total_bytes: store.stat().total_bytes,
                free_bytes: store.stat().free_bytes,
                poisoned: String::new(),
                generation: None,
                silent_ms: None,
                boot: store.boot(),
                hands_over: false,
                uncounted: false,
                unwalked: false,
                displaced: 0,
            });
            stores.push(store);
        }
        (stores, specs)
    }
}

impl Drop for LocalCluster {
    /// Servers know the address book and the address book knows the servers: somebody has to let go,
    /// or the targets stay open and their files keep their room on the disk.
    fn drop(&mut self) {
        self.register(None, None);
        let _ = self.map.as_ref().map(|map| map.storage_of(TargetId(0)));
    }
}

fn open_target(path: &Path, nth: u32) -> ChunkStore {
    let fresh = !path.exists();
    std::fs::create_dir_all(path).expect("a temporary directory takes directories");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(path).expect("the directory was just made"));
    let options = ChunkOptions { capacity_bytes: Some(1 << 30), ..ChunkOptions::default() };
    if fresh {
        ChunkStore::format(&disk, &identity(nth), &options)
            .expect("an empty directory is formatted");
    }
    for _ in 0..LOOKS_MAX {
        match ChunkStore::open(Arc::clone(&disk), options.clone()) {
            // The last one to let go of it is not yet done with that.
            Err(ChunkError::InUse { .. }) => std::thread::sleep(LOOK),
            opened => return opened.expect("the target opens"),
        }
    }
    panic!("target {nth} stays in use");
}

fn open_simulated(disk: &SimDisk, nth: u32) -> ChunkStore {
    let disk = disk.process();
    let options = ChunkOptions {
        background: false,
        reserve_bytes: 1 << 20,
        log_bytes_max: 1 << 20,
        ..ChunkOptions::default()
    };
    let found = Identity::read(&*disk).expect("a simulated disk is read");
    if found.is_none() {
        ChunkStore::format(&disk, &identity(nth), &options).expect("an empty disk is formatted");
    }
    ChunkStore::open(disk, options).expect("the target opens")
}

fn identity(nth: u32) -> Identity {
    Identity { cluster: String::new(), uuid: format!("{:032x}", nth + 1), target: 0 }
}

/// A manager whose first volume is `main`, unless that needs a metadata server to be made.
async fn manager(chunk_bytes: u64, names: &Names) -> Arc<dyn ManagerService> {
    let mut first_volume = volume(chunk_bytes, names);
    if names.shares() > 1 {
        first_volume = VolumeSpec { name: "first".into(), shares: None, ..first_volume };
    }
    let options = ManagerOptions { first_volume, ..ManagerOptions::default() };
    Manager::start(Arc::new(MemoryKv::new()), options).await.expect("the manager starts")
}

fn volume(chunk_bytes: u64, names: &Names) -> VolumeSpec {
    let template = Template { chunk_size: Some(chunk_bytes), ..Template::default() };
    let (template, shares) = (Some(template), Some(names.shares()));
    VolumeSpec { name: "main".into(), template, shares, ..VolumeSpec::default() }
}

async fn join(manager: &dyn ManagerService, last: &Joined, targets: Vec<TargetSpec>) -> Joined {
    // Nobody listens there: all calls stay in this process, and fail between stop and start.
    let (name, address) = ("local".to_owned(), "127.0.0.1:9".to_owned());
    let (server, cluster) = (last.server, last.cluster.clone());
    let boot = "this one".to_owned();
    let store = String::new();
    let join = Join {
        server,
        cluster,
        address,
        manager: true,
        meta: true,
        shares: true,
        targets,
        name,
        boot,
        store,
        old_disks: false,
        life: 0,
    };
    let request = ManagerRequest { op: Some(ManagerOp::Join(join)) };
    match manager.call(request).await.expect("the manager lets its own server in").answer {
        Some(ManagerAnswer::Joined(joined)) => joined,
        other => panic!("a join is answered by {other:?}"),
    }
}

/// Bytes from a vector, for calls of the client.
pub fn bytes(data: impl Into<Vec<u8>>) -> Bytes {
    Bytes::from(data.into())
}
