//! `strake up`: a whole file system in one process, mounted.

use crate::cluster::{DATA_DEFAULT, host_name};
use crate::failure::{self, Context, Failure, Outcome};
use crate::log::LogFlags;
use crate::made::Made;
use crate::mount_words::{self, Wanted};
use crate::mounted::Mounted;
use crate::node::{self, MetaPlace, Node, NodeOptions, Roles};
use crate::release::RELEASE;
use crate::runfile::{RunFile, Running};
use crate::tls_flags::TlsFlags;
use crate::verbs::server;
use crate::{detach, mountpoint, output, private, telemetry};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_base::process::began_ticks;
use strake_client::{Volume, VolumeOptions};
use strake_engine::kv::EngineKind;
use strake_fuse::{MountOptions, Unmount};
use strake_wire::server::Listener;
use strake_wire::tls::Tls;
use strake_wire::transport::UNIX_PREFIX;

/// Where the volume is mounted unless told otherwise.
pub const MOUNT_DEFAULT: &str = "./mnt";
/// The volume that is mounted.
const VOLUME: &str = "main";
/// Targets of a new data directory.
const TARGETS_DEFAULT: usize = 4;
/// Most targets of a server.
pub const TARGETS_MAX: usize = 1024;

/// Flags of `strake up`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake up --detach                    start on ./strake-data, mount at ./mnt, return
  strake up --data /srv/s --mount /mnt  stay in the foreground; Ctrl-C stops
  strake down                           stop what runs on ./strake-data")]
pub struct UpFlags {
    /// Directory that holds everything: metadata, targets, log
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,

    /// Where to mount it; made if it is missing
    #[arg(long, value_name = "DIR", default_value = MOUNT_DEFAULT)]
    pub mount: PathBuf,

    /// Storage targets to stripe over [default: those there are, or 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=TARGETS_MAX as i64))]
    pub targets: Option<u32>,

    /// A directory whose target is missing is on a new disk: begin a new target there (then: strake target replace)
    #[arg(long)]
    pub new_disks: bool,

    /// Go on with targets that are older than they were, as copies or snapshots of lost disks are: what they lack comes
    /// from other copies, and files that have none are as old as the disk
    #[arg(long)]
    pub old_disks: bool,

    /// Go on without a directory that `strake target add` has added, because its disk is away
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub without: Vec<PathBuf>,

    /// Let other machines use it too, by TCP at this address; without, nobody but the owner of DIR
    /// reaches it, by a socket in DIR
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// Return as soon as the mount is usable; the log goes to DIR/strake.log
    #[arg(long)]
    pub detach: bool,

    /// Let the kernel hold back writes: fastest, for a volume that only this mount uses
    #[arg(long)]
    pub writeback: bool,

    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,

    /// Where the metadata is: embedded (in --data), postgres://USER@HOST/DATABASE, or etcd://HOST,HOST,HOST/NAME;
    /// PGPASSWORD or ETCDCTL_PASSWORD may give the password [default: embedded; a database has to be named at each start]
    #[arg(long, value_name = "WHERE", env = "STRAKE_META", hide_env_values = true)]
    pub meta: Option<MetaPlace>,

    /// Engine of a new embedded metadata store: fjall or redb
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineKind>,

    /// Most memory for contents of files, at least 32M [default: 256M, or an eighth of the memory there is if that is less]
    #[arg(long, value_name = "SIZE", value_parser = mount_words::parse_memory)]
    pub memory: Option<u64>,

    /// Options of the mount, with commas, as for `strake mount`: ro, uid=N, wait=SECONDS, ...
    #[arg(short = 'o', long = "options", value_name = "OPTION,...")]
    pub options: Vec<String>,
}

/// Runs the verb.
pub async fn run(flags: &UpFlags, tls: &TlsFlags, log: &LogFlags) -> Outcome {
    if flags.detach && !detach::is_child() {
        return start_detached(flags, log);
    }
    let started = Up::start(flags, tls).await;
    let mut is_wanted = true;
    match (&started, flags.detach) {
        (Ok(_), true) => is_wanted = detach::ready(),
        (Err(failure), true) => detach::failed(failure),
        (Ok(up), false) => output::notice(&up.greeting()),
        (Err(_), false) => {}
    }
    let up = match started {
        Ok(up) => up,
        // The parent has told it.
        Err(failure) if flags.detach => return log_and_end(failure),
        Err(failure) => return Err(failure),
    };
    up.until_stopped(is_wanted).await
}

fn log_and_end(failure: Failure) -> Outcome {
    tracing::error!("{failure}");
    Err(failure)
}

fn start_detached(flags: &UpFlags, log: &LogFlags) -> Outcome {
    // What is to be said of them is said here, too: what runs in the background says it in its log.
    wanted(flags)?;
    let mut made = Made::default();
    let data = private::data_directory(&flags.data)?;
    made.expect(&data);
    private::make_data_directory(&data)?;
    let path = data.join("strake.log");
    let level = log.log_level.as_deref().unwrap_or("info");
    detach::start(&path, true, level, &flags.mount)?;
    made.keep();
    let Some(run) = RunFile::read(&data)? else {
        output::line("running");
        return Ok(());
    };
    output::line(&format!(
        "volume {} is mounted at {} (process {}); stop it with: strake down --data {}",
        run.volume,
        run.mount.display(),
        run.pid,
        output::word(&flags.data.display().to_string())
    ));
    way_to(&run, &flags.data).iter().for_each(|way| output::line(way));
    Ok(())
}

/// How commands find it that do not by themselves.
fn way_to(run: &RunFile, data: &Path) -> Option<String> {
    if std::path::absolute(data).ok()? == std::path::absolute(DATA_DEFAULT).ok()? {
        return None;
    }
    let address = output::word(run.addresses.first()?);
    Some(format!(
        "look at it with: strake status --cluster {address}\n\
         for all commands: export STRAKE_CLUSTER={address}"
    ))
}

/// What `-o` and the flags beside it ask of the mount.
fn wanted(flags: &UpFlags) -> Outcome<Wanted> {
    let mut wanted = Wanted {
        mount: MountOptions { prefetch: true, ..MountOptions::default() },
        volume: VolumeOptions {
            release: RELEASE,
            remember: false,
            leases: true,
            ..VolumeOptions::default()
        },
        ..Wanted::default()
    };
    wanted.apply(&flags.options)?;
    let tls = &wanted.tls;
    let has_tls =
        tls.no_tls || [&tls.tls_ca, &tls.tls_cert, &tls.tls_key].iter().any(|file| file.is_some());
    let not_here = [
        (wanted.mount.remount, "remount", "mount -o remount,... MOUNTPOINT changes a mount"),
        (wanted.log.is_some(), "log=FILE", "leave it out: with --detach the log is DIR/strake.log"),
        (has_tls, "tls_...", "give it as a flag: --tls-ca, --tls-cert, --tls-key, --no-tls"),
    ];
    if let Some((_, option, next)) = not_here.into_iter().find(|(given, ..)| *given) {
        let cause = format!("mount option {option} is for strake mount, not for strake up");
        return Err(Failure::usage(cause).next(next));
    }
    wanted.mount.writeback |= flags.writeback;
    wanted.volume.exclusive = wanted.mount.writeback;
    wanted.volume.memory_bytes = flags.memory.unwrap_or(wanted.volume.memory_bytes);
    wanted.metrics = flags.metrics.clone().or(wanted.metrics);
    Ok(wanted)
}

/// A running file system.
struct Up {
    data: PathBuf,
    running: Running,
    node: Node,
    mounted: Mounted,
}

impl Up {
    async fn start(flags: &UpFlags, tls: &TlsFlags) -> Outcome<Up> {
        let data = private::data_directory(&flags.data)?;
        refuse_second(&data)?;
        let Wanted { mut mount, mut volume, metrics, .. } = wanted(flags)?;
        let targets = targets(flags, &data)?;
        // Dropped after all that lies in it.
        let mut made = Made::default();
        clean_last_mount(&data)?;
        let point = mountpoint::prepare(&flags.mount, Some(&mut made), mount.nonempty)?;
        let metrics = match &metrics {
            Some(address) => Some(telemetry::serve(address).await?),
            None => None,
        };
        made.expect(&socket_path(&data));
        let doors = Doors::open(&data, flags.listen.as_deref(), tls).await?;
        let addresses = doors.addresses();
        // By this others find the cluster from /proc/mounts.
        mount.source = format!("{}:/{VOLUME}", addresses[0]);
        let pid = std::process::id();
        let run = RunFile {
            pid,
            began_ticks: began_ticks(pid).unwrap_or(0),
            addresses,
            mount: point.clone(),
            volume: VOLUME.into(),
            metrics,
            encrypted: doors.are_encrypted(),
        };
        // `strake down` finds it from now on: to start may take long, as where a database is away.
        let running = Running::say(run, &data)?;
        let node = Node::start(node_options(flags, &data, doors, targets)).await?;
        volume.client_name = format!("{}:{}", host_name(), point.display());
        let volume = Volume::connect(node.map().clone(), VOLUME, volume).await?;
        let mounted = Mounted::at(&point, volume, &mount).await?;
        made.keep();
        Ok(Up { data, running, node, mounted })
    }

    fn greeting(&self) -> String {
        let run = &self.running.run;
        let way = way_to(run, &self.data).map_or_else(String::new, |way| format!("\n{way}"));
        format!(
            "volume {} is mounted at {}, striped over {}; Ctrl-C stops{way}",
            run.volume,
            run.mount.display(),
            output::count(self.node.target_count() as u64, "target", "targets")
        )
    }

    /// Serves until it is told to stop, or unmounted.
    async fn until_stopped(mut self, is_wanted: bool) -> Outcome {
        let mut ended = Ok(());
        let unmounted = tokio::select! {
            unmounted = self.mounted.until_stopped(is_wanted) => unmounted,
            why = self.node.overtaken() => {
                ended = Err(Failure::telling(why));
                // The last flush may take long.
                self.node.give_up().await;
                false
            }
        };
        let flushed = match self.mounted.close(unmounted).await {
            Some(result) => result.context(|| "flushing what was written".into()),
            None => Err(Failure::new("what was written could not be flushed in time")),
        };
        let stopped = self.node.stop().await;
        drop(self.running);
        tracing::info!("stopped");
        let failures = [flushed, stopped].into_iter().filter_map(Result::err);
        failures.for_each(|failure| failure::note(&mut ended, failure));
        ended
    }
}

fn refuse_second(data: &Path) -> Outcome {
    match RunFile::alive(data)? {
        Some(run) => Err(Failure::new(format!(
            "data directory {} is in use by process {}, mounted at {}",
            data.display(),
            run.pid,
            run.mount.display()
        ))
        .next(format!("use it there, or strake down --data {}", data.display()))),
        None => Ok(()),
    }
}

/// Takes away the mount of an earlier `up` on the same data that was killed.
fn clean_last_mount(data: &Path) -> Outcome {
    if let Some(run) = RunFile::read(data)?.filter(|run| !run.is_alive()) {
        if mountpoint::is_dead(&run.mount) {
            tracing::info!("taking away the dead mount at {}", run.mount.display());
            strake_fuse::unmount(&run.mount, Unmount::Lazy)?;
        }
        run.remove_own(data);
    }
    Ok(())
}

fn socket_path(data: &Path) -> PathBuf {
    data.join("strake.sock")
}

/// Where others reach this file system.
struct Doors {
    /// A Unix socket in the data directory.
    socket: Listener,
    /// A TCP port, if one was asked for, and the address by which other machines call it.
    port: Option<(Listener, String)>,
    tls: Option<Arc<Tls>>,
}

impl Doors {
    async fn open(data: &Path, listen: Option<&str>, tls: &TlsFlags) -> Outcome<Self> {
        private::make_data_directory(data)?;
        let path = socket_path(data);
        let socket = Listener::bind(&format!("{UNIX_PREFIX}{}", path.display())).await?;
        let Some(listen) = listen else { return Ok(Self { socket, port: None, tls: None }) };
        let (listener, address, tls) = server::open_port(listen, None, &[], tls).await?;
        Ok(Self { socket, port: Some((listener, address)), tls })
    }

    /// The addresses for callers on this machine, the one without a network first.
    fn addresses(&self) -> Vec<String> {
        let port = self.port.iter().map(|(_, address)| address.clone());
        [self.socket.address()].into_iter().chain(port).collect()
    }

    /// Whether what is said by TCP is encrypted, if anything is.
    fn are_encrypted(&self) -> Option<bool> {
        self.port.as_ref().map(|_| self.tls.is_some())
    }

    /// The address in the cluster map: one that all callers reach.
    fn advertised(&self) -> String {
        self.port.as_ref().map_or_else(|| self.socket.address(), |(_, address)| address.clone())
    }
}

/// The directories of its targets.
fn targets(flags: &UpFlags, data: &Path) -> Outcome<Vec<PathBuf>> {
    let existing = existing_targets(data);
    let wanted = flags.targets.map_or(TARGETS_DEFAULT, |n| n as usize);
    if flags.targets.is_some() && wanted < existing {
        return Err(Failure::usage(format!(
            "--targets {wanted}: {} has {existing} targets, and files may lie on all of them",
            data.display()
        ))
        .next("leave --targets out"));
    }
    let count = match (flags.targets, existing) {
        (None, 1..) => existing,
        _ => wanted,
    };
    Ok((0..count).map(|i| data.join(format!("target-{i}"))).collect())
}

fn node_options(flags: &UpFlags, data: &Path, doors: Doors, targets: Vec<PathBuf>) -> NodeOptions {
    NodeOptions {
        home: data.to_owned(),
        targets,
        roles: Roles { manager: true, meta: true, storage: true },
        advertise: doors.advertised(),
        listeners: [doors.socket].into_iter().chain(doors.port.map(|(port, _)| port)).collect(),
        tls: doors.tls,
        join: Vec::new(),
        name: server::default_name(),
        meta_store: node::Wanted { place: flags.meta.clone(), engine: flags.engine },
        without: flags.without.clone(),
        new_disks: flags.new_disks,
        // Nobody else is in its cluster before it has begun.
        new_server: false,
        old_disks: flags.old_disks,
        disk_rate: None,
        scrub_every: server::scrub_every(server::SCRUB_DAYS_DEFAULT),
    }
}

/// Targets that the data directory has, by `node.json` and by its directories.
fn existing_targets(data: &Path) -> usize {
    let node = crate::node::identity::Node::read(data).unwrap_or_default();
    let known = node.targets.iter().filter(|record| !record.added).count();
    let found = (0..TARGETS_MAX).take_while(|i| data.join(format!("target-{i}")).exists()).count();
    known.max(found)
}
