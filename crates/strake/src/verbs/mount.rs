//! `strake mount`: a volume of a cluster as a directory of this machine.

use crate::address::{self, Source};
use crate::cluster::{ClusterFlags, host_name};
use crate::failure::{Failure, Outcome};
use crate::log::LogFlags;
use crate::tls_flags::TlsFlags;
use crate::verbs::up::take_mount_away;
use crate::{detach, mountpoint, output, signals, size, telemetry};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strake_client::{Volume, VolumeOptions};
use strake_fuse::{MountHandle, MountOptions, Unmount};

/// How long the flush at the end may take.
const FLUSH_SECONDS_MAX: u64 = 60;
/// Where the log of a mount in the background goes, if not told otherwise.
const LOG_DIRECTORIES: &[&str] = &["/var/log/strake", "/tmp"];

/// Flags of `strake mount`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake mount host1:/main /mnt/main                   in the background
  strake mount host1,host2:/main/projects /mnt/p -o ro  a directory of the volume, read-only
  mount -t strake host1:/main /mnt/main                the same by mount (after make install)
  host1:/main  /mnt/main  strake  _netdev  0  0        the same in /etc/fstab")]
pub struct MountFlags {
    /// Managers, volume, and a directory in it: ADDR[,ADDR]:/VOLUME[/SUBDIR]
    #[arg(value_name = "SOURCE")]
    pub source: String,

    /// Where to mount it
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,

    /// Options, with commas: ro, rw, uid=N, gid=N, allow_other, noallow_other, nonempty, nosuid, nodev, noexec,
    /// noxattr, remount, writeback, threads=N, memory=SIZE, wait=SECONDS, metrics=ADDR, log=FILE, tls_ca=FILE, tls_cert=FILE,
    /// tls_key=FILE, no_tls
    #[arg(short = 'o', long = "options", value_name = "OPTION,...")]
    pub options: Vec<String>,

    /// Stay in the foreground and log to stderr
    #[arg(long, short = 'f')]
    pub foreground: bool,
}

/// Options of `-o`, sorted by who wants them.
struct Wanted {
    mount: MountOptions,
    volume: VolumeOptions,
    metrics: Option<String>,
    log: Option<PathBuf>,
    tls: TlsFlags,
}

/// Runs the verb.
pub async fn run(flags: &MountFlags, cluster: &ClusterFlags, log: &LogFlags) -> Outcome {
    let wanted = sort_options(flags)?;
    if wanted.mount.remount {
        return Ok(strake_fuse::remount(&flags.mountpoint, &wanted.mount)?);
    }
    if !flags.foreground && !detach::is_child() {
        let file = match &wanted.log {
            Some(file) => file.clone(),
            None => default_log(&flags.mountpoint),
        };
        detach::start(&file, Some(log.log_level.as_deref().unwrap_or("info")))?;
        return Ok(());
    }
    let background = !flags.foreground;
    let started = Mounted::start(flags, wanted, cluster).await;
    match (&started, background) {
        (Ok(_), true) => detach::ready(),
        (Err(failure), true) => detach::failed(failure),
        (Ok(_), false) => {
            output::line(&format!("mounted at {}; Ctrl-C unmounts", flags.mountpoint.display()));
        }
        (Err(_), false) => {}
    }
    started?.until_stopped().await
}

/// A mounted volume.
struct Mounted {
    volume: Arc<Volume>,
    mount: MountHandle,
    stop: tokio::sync::watch::Receiver<bool>,
}

impl Mounted {
    async fn start(flags: &MountFlags, wanted: Wanted, cluster: &ClusterFlags) -> Outcome<Mounted> {
        let Source { managers, volume: name, path } = address::parse_source(&flags.source)
            .ok_or_else(|| {
                Failure::usage(format!("{:?} names no volume", flags.source))
                    .next("write it as ADDR[,ADDR]:/VOLUME[/SUBDIR], for example host1:/main")
            })?;
        let tls = wanted.tls.or(cluster.tls.clone());
        let managers = ClusterFlags { tls, ..cluster.clone() }.managers(&managers)?;
        managers
            .addresses
            .iter()
            .filter(|a| !a.starts_with("unix:"))
            .try_for_each(|a| address::resolve(a).map(drop))?;
        let (point, _) = mountpoint::prepare(&flags.mountpoint, false, wanted.mount.nonempty)?;
        if let Some(address) = &wanted.metrics {
            telemetry::serve(address).await?;
        }
        let map = managers.connect(wanted.volume.operation_wait_ms.min(10_000)).await?;
        let volume = Volume::connect(map, &name, wanted.volume).await?;
        let mut options = wanted.mount;
        options.subdirectory = path;
        let lazy = point.clone();
        let stop = signals::stop_requested(move || {
            let _gone = strake_fuse::unmount(&lazy, Unmount::Lazy);
        })?;
        let runtime = tokio::runtime::Handle::current();
        let mount = strake_fuse::mount(volume.clone(), &point, &options, runtime).await?;
        Ok(Mounted { volume, mount, stop })
    }

    async fn until_stopped(mut self) -> Outcome {
        let unmounted = tokio::select! {
            _ = self.stop.wait_for(|stop| *stop) => false,
            _ = self.mount.wait() => true,
        };
        if !unmounted {
            take_mount_away(&self.mount).await;
        }
        let flush =
            tokio::time::timeout(Duration::from_secs(FLUSH_SECONDS_MAX), self.volume.close());
        match flush.await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Failure::new("what was written could not be flushed in time")
                .next("strake status shows which servers are away")),
        }
    }
}

fn sort_options(flags: &MountFlags) -> Outcome<Wanted> {
    let mut mount =
        MountOptions { source: flags.source.clone(), prefetch: true, ..MountOptions::default() };
    let client_name = format!("{}:{}", host_name(), flags.mountpoint.display());
    let mut volume = VolumeOptions { client_name, leases: true, ..VolumeOptions::default() };
    let (mut metrics, mut log, mut tls) = (None, None, TlsFlags::default());
    let mut others = Vec::new();
    let wrong = |cause: String| Failure::usage(cause).next("strake mount --help lists the options");
    for option in flags.options.iter().flat_map(|list| list.split(',')) {
        match option.split_once('=') {
            Some(("memory", value)) => {
                volume.memory_bytes =
                    size::parse(value).map_err(|e| wrong(format!("{option}: {e}")))?;
            }
            Some(("wait", value)) => {
                let seconds: u64 = value.parse().map_err(|_| {
                    wrong(format!("mount option {option:?} needs a number of seconds"))
                })?;
                volume.operation_wait_ms = seconds.saturating_mul(1000);
            }
            Some(("metrics", value)) => metrics = Some(value.to_owned()),
            Some(("log", value)) => log = Some(PathBuf::from(value)),
            Some(("tls_ca", file)) => tls.tls_ca = Some(file.into()),
            Some(("tls_cert", file)) => tls.tls_cert = Some(file.into()),
            Some(("tls_key", file)) => tls.tls_key = Some(file.into()),
            None if option == "no_tls" => tls.no_tls = true,
            _ => others.push(option),
        }
    }
    mount.apply(&others.join(",")).map_err(|e| wrong(e.to_string()))?;
    volume.exclusive = mount.writeback;
    Ok(Wanted { mount, volume, metrics, log, tls })
}

/// A file named after the mount point, in the first directory that can be written.
fn default_log(mountpoint: &Path) -> PathBuf {
    let full = std::path::absolute(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    let name = full.display().to_string().trim_matches('/').replace('/', "-");
    let usable = |dir: &&&str| {
        std::fs::create_dir_all(dir).is_ok()
            && rustix::fs::access(**dir, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let directory = LOG_DIRECTORIES.iter().find(usable).unwrap_or(&"/tmp");
    Path::new(directory).join(format!("strake-mount-{name}.log"))
}

/// The command line of `mount -t strake`: `mount.strake SOURCE MOUNTPOINT [-sfnvN] [-o OPTIONS] [-t TYPE]`,
/// turned into ours.
pub fn from_mount(arguments: &[OsString]) -> Outcome<Vec<OsString>> {
    let mut ours: Vec<OsString> = vec!["strake".into(), "mount".into()];
    let mut rest = arguments.iter().skip(1);
    let mut fake = false;
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        match text.as_ref() {
            "-o" => {
                let list =
                    rest.next().ok_or_else(|| Failure::usage("-o needs options after it"))?;
                ours.extend(["-o".into(), list.clone()]);
            }
            "-t" | "-N" => drop(rest.next()),
            flags if flags.starts_with('-') && flags.len() > 1 => fake |= flags.contains('f'),
            _ => ours.push(argument.clone()),
        }
    }
    if fake {
        // `mount -f` wants everything but the mount itself: there is nothing else.
        return Ok(vec!["strake".into(), "--version".into()]);
    }
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mount_says_is_understood() {
        let given = ["/sbin/mount.strake", "h:/main", "/mnt", "-n", "-o", "rw,_netdev"];
        let given: Vec<OsString> = given.iter().map(OsString::from).collect();
        let ours = from_mount(&given).unwrap();
        assert_eq!(ours, ["strake", "mount", "h:/main", "/mnt", "-o", "rw,_netdev"]);
    }

    #[test]
    fn options_reach_who_wants_them() {
        let flags = MountFlags {
            source: "h:/main".into(),
            mountpoint: "/mnt".into(),
            options: vec!["ro,memory=1G,tls_ca=/ca".into(), "wait=5,tls_key=k,no_tls".into()],
            foreground: false,
        };
        let wanted = sort_options(&flags).unwrap();
        assert!(wanted.mount.read_only);
        assert_eq!((wanted.volume.memory_bytes, wanted.volume.operation_wait_ms), (1 << 30, 5000));
        assert_eq!((wanted.tls.tls_ca, wanted.tls.tls_key), (Some("/ca".into()), Some("k".into())));
        assert!(wanted.tls.no_tls);
        let flags = MountFlags { options: vec!["nonsense".into()], ..flags };
        assert!(sort_options(&flags).err().unwrap().cause.contains("nonsense"));
    }
}
