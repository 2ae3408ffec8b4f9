//! The whole cluster in one thread, from one seed.
//!
//! Servers and clients are those of the program: manager, metadata server, storage servers and
//! [`strake_client::Volume`] run as they are. Below them everything is simulated: a [`host`] has disks
//! that lose what was not synced and clocks that drift, a [`link`] carries messages late, twice, or
//! not at all, and time jumps from one timer to the next, so that a minute of a cluster takes a
//! fraction of a second. Whatever is random follows from the seed: the [`plan`] of the run, its
//! [`trouble`], and the order of the entries of every hash map. So the same seed gives the same
//! [`trace`], to the last line.
//!
//! ```text
//! run(seed) -> Plan -> hosts start -> files are made -> workload | trouble -> trouble ends
//!           -> what was acknowledged is there -> copies are equal -> everything is deleted and gone
//! ```
//!
//! [`files`] is the workload on contents, [`places`] where they are, and [`register`] knows what its readers may see; [`names`] is
//! that on names, and [`strake_model::history`] says whether it can have happened so; [`logs`] is that on files which all
//! append to under a lock, and [`log`](mod@log) knows what has to be in them; [`appends`] is that without a lock; [`locks`] is that on locks,
//! with [`owners`], who ask for them; [`synced`] is that on what a loss of power may not take; [`own`] is that on directories which clients have for themselves; and `contest` looks at how long they are waited for; `scrubs` changes bits on disks, and knows what may be found damaged; `rolling` restarts all
//! servers one after the other; `silence` has a client stand still. [`end`] looks at what is left when all is over, `fsck` asks whether it fits together, `quiet` at how long one lost server is waited for, and `parts` at a file to which several write at once.

pub mod appends;
mod contest;
pub mod database;
mod disks;
mod end;
pub mod files;
mod fsck;
pub mod host;
mod jobs;
pub mod link;
pub mod locks;
pub mod log;
pub mod logs;
pub mod mount;
pub mod names;
pub mod own;
pub mod owners;
mod parts;
pub mod places;
pub mod plan;
mod quiet;
pub mod register;
mod rolling;
mod scrubs;
mod silence;
pub mod store;
pub mod synced;
pub mod trace;
pub mod trouble;
pub mod world;

use appends::Appends;
use database::Database;
use files::Files;
use host::Host;
use locks::Locks;
use logs::Logs;
use mount::{CLIENTS_FROM, Mount};
use names::Names;
use own::Own;
use parking_lot::Mutex;
use places::Directories;
use plan::{FIRST_VOLUME, Plan, Trouble};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::simulation::{cases, entropy, sabotage};
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::common::Template;
use strake_wire::message::manager::{
    ClusterMap, GetMap, ManagerAnswer, ManagerOp, PrepareCopies, VolumeSpec,
};
use synced::Synced;
use tokio::task::JoinHandle;
use world::World;

/// Simulated time after which a run is given up: all of its waits together are shorter.
const RUN_BOUND: Duration = Duration::from_secs(7_200);
/// The machine of the client without leases.
const NATIVE: u32 = CLIENTS_FROM + 30;
/// Memory of the thread of a run.
const STACK_BYTES: usize = 16 << 20;

/// How a seed is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep the lines of the trace.
    pub trace: bool,
    /// A rule that is broken on purpose.
    pub broken: Option<&'static str>,
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct Report {
    /// Differs between two runs that differ.
    pub digest: u64,
    /// What went wrong.
    pub failure: Option<String>,
    /// The plan, in words.
    pub plan: String,
    /// The trace, if it was wanted.
    pub lines: Vec<String>,
    /// Simulated time.
    pub took: Duration,
    /// How often each case was met.
    pub cases: BTreeMap<&'static str, u64>,
}

/// A simulated cluster.
pub(crate) struct Cluster {
    world: Arc<World>,
    plan: Arc<Plan>,
    hosts: Vec<Arc<Host>>,
    directories: Arc<Directories>,
    files: Arc<Files>,
    names: Arc<Names>,
    logs: Arc<Logs>,
    appends: Arc<Appends>,
    locks: Arc<Locks>,
    synced: Arc<Synced>,
    own: Arc<Own>,
    /// Clients, by their order.
    clients: Mutex<Vec<Option<Arc<Mount>>>>,
    /// A machine has lost power, and not all groups are whole yet.
    weak: AtomicBool,
    /// Targets that are gone for good and have not been replaced.
    lost: Mutex<Vec<u32>>,
    /// Bits that have changed.
    rot: Mutex<scrubs::Rot>,
    /// Machines that are being taken out.
    going: Mutex<BTreeSet<u32>>,
    /// A client is being evicted.
    evicting: AtomicBool,
    /// Servers are restarted one after the other.
    rolling: AtomicBool,
    /// A client stands still for long, or has, until this ends. Not among what ends later: servers may lose power meanwhile.
    silence: Mutex<Option<JoinHandle<()>>>,
    /// What ends trouble later.
    later: Mutex<VecDeque<JoinHandle<()>>>,
}

/// Runs a seed, in a thread of its own.
pub fn run(seed: u64, options: Options) -> Report {
    let run = move || {
        entropy::seed(seed);
        sabotage::begin(options.broken);
        catch_unwind(AssertUnwindSafe(|| run_here(seed, options)))
    };
    let thread = std::thread::Builder::new().name(format!("seed {seed}")).stack_size(STACK_BYTES);
    let joined = thread.spawn(run).map(std::thread::JoinHandle::join);
    let (failure, digest) = match joined {
        Ok(Ok(Ok(report))) => return report,
        Ok(_) => ("the simulation itself has panicked".to_owned(), 0),
        Err(error) => (format!("no thread: {error}"), 0),
    };
    let (plan, lines, took, cases) = Default::default();
    Report { digest, failure: Some(failure), plan, lines, took, cases }
}

fn run_here(seed: u64, options: Options) -> Report {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_time().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let (plan, lines, took, cases) = Default::default();
            let failure = Some(error.to_string());
            return Report { digest: 0, failure, plan, lines, took, cases };
        }
    };
    let report = runtime.block_on(async {
        let cluster = Cluster::new(seed, options.trace);
        cluster.live().await;
        cluster.report()
    });
    runtime.shutdown_background();
    report
}

impl Cluster {
    fn new(seed: u64, show: bool) -> Arc<Self> {
        let world = World::new(seed, show);
        let plan = Arc::new(Plan::of(&world));
        world.set_weather(plan.fair_weather());
        world.disks_fill.store(plan.troubles.contains(&Trouble::Full), Ordering::Relaxed);
        let database = || {
            let knows_all = world.stream(0x9003).below(2) == 0;
            Database::new(world.stream(0x9001), plan.conflicts, knows_all)
        };
        let database = (plan.metas > 1).then(database);
        let host = |number| Host::new(&world, &plan, number, plan.drives, database.as_ref());
        let hosts = (1..=plan.servers + plan.spares).map(host).collect();
        let clients = Mutex::new(vec![None; plan.clients as usize]);
        let directories = Directories::new(&world, &plan);
        let files = Files::new(&world, &plan, &directories);
        let names = Names::new(&world, plan.directories, plan.pause_ms);
        let logs = Logs::new(&world, &plan, &directories);
        let appends = Appends::new(&world, &plan, &directories);
        let locks = Locks::new(&world, &plan, &directories);
        let synced = Synced::new(&world, &plan);
        let own = Own::new(&world, &plan);
        let (weak, lost, rot, going, evicting, rolling) = Default::default();
        let (silence, later) = Default::default();
        Arc::new(Self {
            world,
            plan,
            hosts,
            directories,
            files,
            names,
            logs,
            appends,
            locks,
            synced,
            own,
            clients,
            weak,
            lost,
            rot,
            going,
            evicting,
            rolling,
            silence,
            later,
        })
    }

    fn report(&self) -> Report {
        let mut trace = self.world.trace.lock();
        Report {
            digest: trace.digest(),
            failure: self.world.failure(),
            plan: format!("{:?}", self.plan),
            lines: trace.take_lines(),
            took: self.world.now(),
            cases: cases::take(),
        }
    }

    /// The whole run, up to the first thing that goes wrong.
    async fn live(self: &Arc<Self>) {
        let cluster = self.clone();
        let whole = async move {
            if let Err(error) = cluster.phases().await {
                cluster.world.fail(format!("the cluster cannot be used: {error}"));
            }
        };
        tokio::select! {
            biased;
            () = self.world.failed.notified() => {}
            () = self.follow_owners() => {}
            ended = tokio::time::timeout(RUN_BOUND, whole) => {
                if ended.is_err() {
                    self.world.fail("the run has no end".to_owned());
                }
            }
        }
        if let Some(panic) = crate::panics::take() {
            self.world.fail(panic);
        }
    }

    async fn phases(self: &Arc<Self>) -> Result<()> {
        for host in &self.hosts[..self.plan.servers as usize] {
            self.start(host).await;
        }
        self.set_up().await?;
        let first = Mount::start(&self.world, &self.plan, CLIENTS_FROM).await?;
        self.directories.make(&first).await?;
        for file in self.files.numbers() {
            self.files.make(&first, file).await?;
        }
        self.names.make(&first).await?;
        self.logs.make(&first).await?;
        self.appends.make(&first).await?;
        self.locks.make(&first).await?;
        self.synced.make(&first).await?;
        first.close().await?;
        let mut work: Vec<_> = (0..self.plan.clients).map(|nth| self.work(nth)).collect();
        work.extend((self.plan.native && self.plan.directories > 0).then(|| self.work_natively()));
        self.make_trouble().await;
        self.end_trouble().await;
        self.files.ending.store(true, Ordering::Relaxed);
        for client in work {
            let _ended = client.await;
        }
        self.check_end().await
    }

    /// Groups of so many copies, and a volume that uses them.
    async fn set_up(&self) -> Result<()> {
        let copies = self.plan.copies;
        let wanted = PrepareCopies { copies, ..PrepareCopies::default() };
        self.insist(ManagerOp::PrepareCopies(wanted)).await?;
        let template = self.plan.volume.template.clone().unwrap_or_default();
        let min_copies = self.plan.min_copies;
        let template = Some(Template { copies: Some(copies), min_copies, ..template });
        let spec = VolumeSpec { template, ..self.plan.volume.clone() };
        self.insist(match spec.name == FIRST_VOLUME {
            true => ManagerOp::SetVolume(spec),
            false => ManagerOp::CreateVolume(spec),
        })
        .await?;
        // Until the servers' maps have them.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }

    /// As [`Cluster::ask`], until there is a manager that can answer: of several the one that is asked may just be losing the lead.
    async fn insist(&self, op: ManagerOp) -> Result<ManagerAnswer> {
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            match self.ask(op.clone()).await {
                Err(error)
                    if error.kind == ErrorKind::Unavailable
                        && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn ask(&self, op: ManagerOp) -> Result<ManagerAnswer> {
        let silent = || Error::with(ErrorKind::Malformed, "the manager said nothing");
        let host = self.hosts.iter().find(|host| host.is_up()).unwrap_or(&self.hosts[0]);
        host.ask(op).await?.ok_or_else(silent)
    }

    /// The map as the manager has it.
    async fn map(&self) -> Result<ClusterMap> {
        match self.ask(ManagerOp::GetMap(GetMap::default())).await? {
            ManagerAnswer::Map(answer) => Ok(answer.decoded()?.unwrap_or_default()),
            _ => Err(Error::with(ErrorKind::Malformed, "no map")),
        }
    }

    /// A client works until the workload ends, with a new process whenever its own is killed.
    fn work(self: &Arc<Self>, nth: u32) -> JoinHandle<()> {
        let cluster = self.clone();
        tokio::spawn(async move {
            let mut life = 0;
            while !cluster.files.ending.load(Ordering::Relaxed) {
                let number = CLIENTS_FROM + nth;
                let Ok(mount) = Mount::start(&cluster.world, &cluster.plan, number).await else {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                };
                cluster.clients.lock()[nth as usize] = Some(mount.clone());
                life += 1;
                cluster.work_in(&mount, life).await;
            }
        })
    }

    /// A client without leases works on names until the workload ends. It asks for each of them, and nobody waits for it: so
    /// it is told at once by a server that answers from memory and should not any more.
    fn work_natively(self: &Arc<Self>) -> JoinHandle<()> {
        let cluster = self.clone();
        tokio::spawn(async move {
            let files = cluster.files.clone();
            let is_over = move || files.ending.load(Ordering::Relaxed);
            while !is_over() {
                let Ok(mount) = Mount::native(&cluster.world, &cluster.plan, NATIVE).await else {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                };
                let (names, own, is_over) = (cluster.names.clone(), mount.clone(), is_over.clone());
                let naming = cluster.world.stream(0x2000_0000);
                let namer = async move { names.work_on(&own, naming, is_over).await };
                let _ended = mount.process.spawn(namer).await;
                let _closed = mount.close().await;
            }
        })
    }

    async fn work_in(&self, mount: &Arc<Mount>, life: u64) {
        let part = 0x5000 + u64::from(mount.number) * 1_000 + life * 4;
        let (writing, reading) = (self.world.stream(part), self.world.stream(part + 1));
        let (naming, appending) = (self.world.stream(part + 2), self.world.stream(part + 3));
        let (files, own) = (self.files.clone(), mount.clone());
        let writer = mount.process.spawn(async move { files.write_on(&own, writing).await });
        let (files, own) = (self.files.clone(), mount.clone());
        let reader = mount.process.spawn(async move { files.read_on(&own, reading).await });
        let (files, names, own) = (self.files.clone(), self.names.clone(), mount.clone());
        let is_over = move || files.ending.load(Ordering::Relaxed);
        let namer = async move { names.work_on(&own, naming, is_over).await };
        let namer = mount.process.spawn(namer);
        let (files, logs, own) = (self.files.clone(), self.logs.clone(), mount.clone());
        let is_over = move || files.ending.load(Ordering::Relaxed);
        let logger = async move { logs.work_on(&own, appending, is_over).await };
        let logger = mount.process.spawn(logger);
        let adding = self.world.stream(0x3000_0000 + u64::from(mount.number) * 1_000 + life);
        let (files, appends, own) = (self.files.clone(), self.appends.clone(), mount.clone());
        let is_over = move || files.ending.load(Ordering::Relaxed);
        let adder = async move { appends.work_on(&own, adding, is_over).await };
        let adder = mount.process.spawn(adder);
        let locking = self.world.stream(0x1000_0000 + u64::from(mount.number) * 1_000 + life);
        let (files, locks, own) = (self.files.clone(), self.locks.clone(), mount.clone());
        let is_over = move || files.ending.load(Ordering::Relaxed);
        let locker = async move { locks.work_on(&own, locking, is_over).await };
        let locker = mount.process.spawn(locker);
        let syncing = self.world.stream(0x4000_0000 + u64::from(mount.number) * 1_000 + life);
        let (files, synced, own) = (self.files.clone(), self.synced.clone(), mount.clone());
        let is_over = move || files.ending.load(Ordering::Relaxed);
        let syncer = async move { synced.work_on(&own, syncing, is_over).await };
        let syncer = mount.process.spawn(syncer);
        let changing = self.world.stream(0x6000_0000 + u64::from(mount.number) * 1_000 + life);
        let (files, owner, own) = (self.files.clone(), self.own.clone(), mount.clone());
        let is_over = move || files.ending.load(Ordering::Relaxed);
        let owner = async move { owner.work_on(&own, changing, is_over).await };
        let owner = mount.process.spawn(owner);
        let ended = [
            writer.await,
            reader.await,
            namer.await,
            logger.await,
            locker.await,
            adder.await,
            syncer.await,
            owner.await,
        ];
        let died = mount.process.is_dead() || ended.iter().any(std::result::Result::is_err);
        if died || mount.close().await.is_err() {
            self.world.remains.lock().died(mount.number);
            self.files.forget(mount);
            self.appends.forget(mount);
            self.logs.forget(mount);
        }
        self.locks.forget(mount);
    }

    fn kill_client(&self, nth: u32) {
        if let Some(mount) = self.clients.lock()[nth as usize].take() {
            self.world.note(format_args!("client {} dies", CLIENTS_FROM + nth));
            strake_base::count_case("fault-client-kill");
            mount.process.kill();
        }
    }

    fn later(&self, end: impl Future<Output = ()> + Send + 'static) {
        self.later.lock().push_back(tokio::spawn(end));
    }

    fn pop_later(&self) -> Option<JoinHandle<()>> {
        self.later.lock().pop_front()
    }
}
