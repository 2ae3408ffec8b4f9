//! From a volume to a directory that programs use, and back.

mod point;
mod watch;

pub use point::{Unmount, abort_file, check, is_ours, remount, unmount};

use crate::device::Device;
use crate::dispatch::{self, Door};
use crate::door::{FuseDoor, View};
use crate::init::{Handshake, REQUEST_BYTES_MAX};
use crate::options::MountOptions;
use fuser::{Config, MountOption, Session, SessionACL};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use strake_base::threads;
use strake_client::Volume;
use strake_types::{Credentials, Error, ErrorKind, FileKind, Result};
use tokio::runtime::Handle;
use tokio::sync::watch as channel;

/// What the kernel reads ahead of a program, in KiB: four requests.
const READ_AHEAD_KIB: u32 = 4096;

/// What the kernel asks by.
const DEVICE: &str = "/dev/fuse";

/// There where the kernel uses SELinux.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// A mounted file system. Dropping it does not unmount; the process ending does.
pub struct MountHandle {
    mountpoint: PathBuf,
    volume: Option<Arc<Volume>>,
    ended: channel::Receiver<bool>,
}

impl MountHandle {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Waits until it is unmounted, by whomever, then until all that was written has reached the
    /// servers.
    pub async fn wait(&self) -> Result<()> {
        let mut ended = self.ended.clone();
        // A closed channel means that the threads are gone as well. What it gives has the channel locked.
        drop(ended.wait_for(|ended| *ended).await);
        self.sync().await
    }

    /// Unmounts and waits until all that was written has reached the servers. A lazy one is out of the tree whatever
    /// becomes of that.
    pub async fn unmount(&self, how: Unmount) -> Result<()> {
        match how {
            Unmount::WhenIdle => {
                self.sync().await?;
                self.take_away(how).await?;
                self.wait().await
            }
            Unmount::Lazy => {
                self.detach().await?;
                self.sync().await
            }
        }
    }

    /// Takes it out of the tree at once. What was written is still to be sent.
    pub async fn detach(&self) -> Result<()> {
        self.take_away(Unmount::Lazy).await
    }

    async fn take_away(&self, how: Unmount) -> Result<()> {
        if *self.ended.borrow() {
            return Ok(());
        }
        let mountpoint = self.mountpoint.clone();
        blocking(move || unmount(&mountpoint, how)).await
    }

    async fn sync(&self) -> Result<()> {
        match &self.volume {
            Some(volume) => volume.sync_all().await,
            None => Ok(()),
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::with(ErrorKind::Io, "a mount operation panicked")))
}

/// Mounts a volume. Requests run on `runtime` where they have to wait.
pub async fn mount(
    volume: Arc<Volume>,
    mountpoint: &Path,
    options: &MountOptions,
    runtime: Handle,
) -> Result<MountHandle> {
    let cred = Credentials { checked: true, ..Credentials::root() };
    let root = volume.resolve(&cred, options.subdirectory.as_bytes()).await.map_err(|error| {
        error.about(format!("directory {} of volume {}", options.subdirectory, volume.name()))
    })?;
    if root.kind != FileKind::Directory {
        let detail = format!("{} of volume {}", options.subdirectory, volume.name());
        return Err(Error::with(ErrorKind::NotDirectory, detail));
    }
    let view = View {
        root: root.ino,
        uid: options.uid,
        gid: options.gid,
        writeback: options.writeback,
        xattr: options.xattr,
    };
    let door = Arc::new(FuseDoor::new(volume.clone(), view, runtime.clone()));
    if volume.keeps_leases() {
        volume.set_believer(&door);
    }
    let mut handle = mount_door(door.clone(), mountpoint, options, runtime).await?;
    if options.prefetch {
        door.prefetch(handle.mountpoint.clone());
    }
    handle.volume = Some(volume);
    Ok(handle)
}

/// Mounts any door.
pub async fn mount_door<D: Door>(
    door: Arc<D>,
    mountpoint: &Path,
    options: &MountOptions,
    runtime: Handle,
) -> Result<MountHandle> {
    let (path, options) = (mountpoint.to_path_buf(), options.clone());
    let (full, (session, maps_direct), options, (claim, abort)) = blocking(move || {
        let full = check(&path, options.nonempty)?;
        let claim = watch::Claim::wait(&full);
        let maps_direct = Arc::new(AtomicBool::new(false));
        let handshake =
            Handshake { writeback: options.writeback, maps_direct: maps_direct.clone() };
        let session = Session::new(handshake, &full, &config(&options))
            .map_err(|error| cannot_mount(&full, &error))?;
        // Now, before another one can lie on top of it.
        let abort = abort_file(&full);
        if !options.symfollow {
            // This one cannot be told when mounting. Where it fails the session ends, and the mount with it.
            point::forbid_symlinks(&full, &options)?;
        }
        Ok((full, (session, maps_direct.load(Ordering::Relaxed)), options, (claim, abort)))
    })
    .await?;
    let (tell, ended) = channel::channel(false);
    let threads = start(door, (&session, maps_direct), options.threads(), runtime)
        .map_err(|error| cannot_mount(&full, &error))?;
    let watch = watch::Watch::start(&full, claim, abort).inspect_err(|error| {
        let point = full.display();
        tracing::warn!(
            "{point}: nothing watches over it, and it stays behind dead if this process is killed: /bin/sh cannot be started: {error}"
        );
    });
    let watch = watch.ok();
    let keeper = move || keep(session, threads, watch, &tell);
    let kept = threads::spawn("fuse-mount", keeper);
    kept.map_err(|error| cannot_mount(&full, &error))?;
    let (tuned, writeback) = (full.clone(), options.writeback);
    blocking(move || {
        tune(&tuned, writeback);
        Ok(())
    })
    .await?;
    Ok(MountHandle { mountpoint: full, volume: None, ended })
}

fn start<D: Door>(
    door: Arc<D>,
    (session, maps_direct): (&Session<Handshake>, bool),
    threads: usize,
    runtime: Handle,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let first = Device::from_session(session.as_fd())?;
    door.mounted(Device::from_session(session.as_fd())?, maps_direct);
    let devices = (0..threads).map(|_| first.clone_connection()).collect::<Result<_, _>>()?;
    dispatch::start(door, devices, REQUEST_BYTES_MAX as usize, runtime)
}

/// Holds what a mount consists of until its threads end.
fn keep(
    session: Session<Handshake>,
    threads: Vec<JoinHandle<()>>,
    watch: Option<watch::Watch>,
    tell: &channel::Sender<bool>,
) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread that answers the kernel panicked; the mount ends");
            break;
        }
    }
    // Unmounts if that is still to be done.
    drop(session);
    drop(watch);
    tell.send_replace(true);
}

fn config(options: &MountOptions) -> Config {
    let choice = |on: bool, yes: MountOption, no: MountOption| if on { yes } else { no };
    let is_root = rustix::process::geteuid().is_root();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        // By this the type is fuse.strake, which `strake umount` looks for.
        MountOption::CUSTOM("subtype=strake".into()),
        // The kernel checks modes and ACLs with the caller's real credentials and groups, from
        // attributes that it has cached: no message, and nothing to look up about the caller.
        MountOption::DefaultPermissions,
        choice(options.read_only, MountOption::RO, MountOption::RW),
        choice(options.suid && is_root, MountOption::Suid, MountOption::NoSuid),
        choice(options.dev && is_root, MountOption::Dev, MountOption::NoDev),
        choice(options.exec, MountOption::Exec, MountOption::NoExec),
    ];
    // With it the kernel marks each write as one of a file opened with O_DSYNC.
    config.mount_options.extend(options.sync.then_some(MountOption::Sync));
    // As `mount` does for any file system: where SELinux is off they mean nothing.
    if Path::new(SELINUX).exists() {
        config.mount_options.extend(options.labels.iter().cloned().map(MountOption::CUSTOM));
    }
    config.acl = match options.allow_other.unwrap_or(is_root) {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    config
}

fn cannot_mount(path: &Path, error: &std::io::Error) -> Error {
    let hint = match error.raw_os_error() {
        Some(libc::ENOENT) => "; `modprobe fuse` may help".to_owned(),
        Some(libc::EPERM | libc::EACCES) => match barred_device() {
            Some(mode) => barred(mode),
            None => "; run as root, or install fuse3".to_owned(),
        },
        _ => String::new(),
    };
    let (point, cause) = (path.display(), error.to_string());
    // A helper ends its words with a line feed, which would tear our sentence.
    let cause = cause.trim_end();
    Error::with(ErrorKind::Io, format!("mounting at {point}: {cause}{hint}"))
}

/// The mode of the device that mounts are served by, if we may not use it.
fn barred_device() -> Option<u32> {
    use rustix::fs::{Access, access, stat};
    let refused = access(DEVICE, Access::READ_OK | Access::WRITE_OK);
    refused.err().filter(|error| *error == rustix::io::Errno::ACCESS)?;
    stat(DEVICE).ok().map(|found| found.st_mode & 0o7777)
}

fn barred(mode: u32) -> String {
    format!(
        "; {DEVICE} has mode {mode:04o}: run as root, or let others use it (chmod 0666 {DEVICE})"
    )
}

/// Larger read-ahead than the 128 KiB a FUSE mount begins with, and with write-back no limit on
/// dirty pages below that of the whole machine. Without root it stays as it is.
fn tune(mountpoint: &Path, writeback: bool) {
    let Ok(stat) = rustix::fs::stat(mountpoint) else { return };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let set = |name: &str, value: String| {
        let file = format!("/sys/class/bdi/{major}:{minor}/{name}");
        if let Err(error) = std::fs::write(&file, value) {
            tracing::debug!(%file, %error, "cannot be tuned");
        }
    };
    set("read_ahead_kb", READ_AHEAD_KIB.to_string());
    if writeback {
        set("strict_limit", "0".into());
        set("max_ratio", "100".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each ended in "input/output error", as if a disk was dying, and the helper's in a line of its own.
    #[test]
    fn a_mount_that_fails_is_told_with_its_cause_alone() {
        let told = |error: std::io::Error| cannot_mount(Path::new("/m"), &error).to_string();
        let helper = std::io::Error::other("fusermount3: option allow_other only allowed\n");
        assert_eq!(told(helper), "mounting at /m: fusermount3: option allow_other only allowed");
        let many = told(std::io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(many, "mounting at /m: Too many open files (os error 24)");
    }
}
