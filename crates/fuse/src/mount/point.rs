//! Mount points: what is there before a mount, and taking a mount away.

use crate::options::MountOptions;
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno as OsError;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create, fsmount,
    fsopen,
};
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use strake_base::mount_table::{self, Mount};
use strake_types::{Error, ErrorKind, FILE_SYSTEM_TYPE, Result};

/// How often, and with which pauses, taking away a mount that is in use is tried again.
const BUSY_TRIES: u32 = 4;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Where the kernel's files about FUSE connections are on most machines.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Fails while a program uses it.
    WhenIdle,
    /// Out of the tree at once; it ends when the last program has let go.
    Lazy,
}

fn refused(kind: ErrorKind, path: &Path, cause: &str) -> Error {
    Error::with(kind, format!("mount point {}: {cause}", path.display()))
}

/// Makes sure that a volume can be mounted at `path`; the path without links and dots.
pub fn check(path: &Path, nonempty: bool) -> Result<PathBuf> {
    let metadata = std::fs::metadata(path).map_err(|error| unusable(path, &error))?;
    if !metadata.is_dir() {
        let cause = "it is not a directory; give an empty directory";
        return Err(refused(ErrorKind::NotDirectory, path, cause));
    }
    let full = path.canonicalize().map_err(|error| unusable(path, &error))?;
    if is_ours(&full) {
        let cause = format!(
            "a Strake volume is mounted there already; `strake umount {}` ends it",
            path.display()
        );
        return Err(refused(ErrorKind::Busy, path, &cause));
    }
    let mut entries = std::fs::read_dir(&full).map_err(|error| unusable(path, &error))?;
    if !nonempty && entries.next().is_some() {
        let cause = "it is not empty, and what is in it would be hidden; \
                     give an empty directory, or `-o nonempty`";
        return Err(refused(ErrorKind::NotEmpty, path, cause));
    }
    Ok(full)
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    let shown = path.display();
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            let cause = format!("it does not exist; `mkdir -p {shown}` makes it");
            refused(ErrorKind::NotFound, path, &cause)
        }
        Some(libc::ENOTCONN) => {
            let cause = format!(
                "a mount whose process has died is left there; `strake umount {shown}` removes it"
            );
            refused(ErrorKind::Stale, path, &cause)
        }
        _ => refused(ErrorKind::Io, path, &error.to_string()),
    }
}

/// True if the topmost mount at `path` (absolute) is one of ours, alive or not.
pub fn is_ours(path: &Path) -> bool {
    let mounts = mount_table::read().unwrap_or_default();
    topmost(&mounts, path).is_some_and(is_volume)
}

fn is_volume(mount: &Mount) -> bool {
    mount.kind == FILE_SYSTEM_TYPE
}

/// What is mounted last at `path`.
fn topmost<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rfind(|mount| mount.path == path)
}

/// The mount of ours at `full`, or what there is instead: something over it, or nothing of ours, with what is `next` then.
fn own<'a>(mounts: &'a [Mount], path: &Path, full: &Path, next: &str) -> Result<&'a Mount> {
    let is_below = mounts.iter().any(|mount| mount.path == full && is_volume(mount));
    let cause = match topmost(mounts, full) {
        Some(mount) if is_volume(mount) => return Ok(mount),
        Some(Mount { kind, source, .. }) if is_below => format!(
            "{kind} ({source}) is mounted over the Strake volume there; `umount {}` takes that away first",
            path.display()
        ),
        _ => format!("no Strake volume is mounted there; {next}"),
    };
    Err(refused(ErrorKind::Invalid, path, &cause))
}

/// Opens what aborts the connection of the mount at `path` (absolute) when something is written to it, and never another one: the
/// number of a connection that is gone is given to the next one, this file is not. Root has it, and so has who mounted where the
/// kernel's files about connections are mounted.
pub fn abort_file(path: &Path) -> io::Result<File> {
    let mounts = mount_table::read()?;
    let ours = topmost(&mounts, path).filter(|mount| is_volume(mount));
    let device = ours.ok_or(io::ErrorKind::NotFound)?.device;
    let name = format!("{}/abort", rustix::fs::minor(device));
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(Path::new(CONNECTIONS).join(&name), flags, Mode::empty())
        .or_else(|_| openat(connections()?, &name, flags, Mode::empty()))?;
    Ok(file.into())
}

/// The directory of the kernel's files about connections, where it is not mounted, nor will be.
fn connections() -> rustix::io::Result<OwnedFd> {
    let file_system = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&file_system)?;
    fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// Takes the mount at `path` away, also one whose process has died.
pub fn unmount(path: &Path, how: Unmount) -> Result<()> {
    // A dead mount cannot be asked for its path; then the path must be as the table has it.
    let full = path.canonicalize().or_else(|_| std::path::absolute(path));
    let full = full.map_err(|error| refused(ErrorKind::Io, path, &error.to_string()))?;
    let mounts = mount_table::read().unwrap_or_default();
    let mount = own(&mounts, path, &full, "`grep strake /proc/mounts` lists them")?;
    let flags = match how {
        Unmount::WhenIdle => UnmountFlags::empty(),
        Unmount::Lazy => UnmountFlags::DETACH,
    };
    match unmount_soon(&full, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(OsError::PERM) => match mount.user.filter(|&user| user != geteuid().as_raw()) {
            // The helper would say so in other words, or that it does not know the mount.
            Some(user) => Err(refused(ErrorKind::NotPermitted, path, &who_unmounts(user))),
            None => by_helper(&full, how),
        },
        Err(OsError::BUSY) => Err(refused(ErrorKind::Busy, path, &busy(path))),
        Err(error) => Err(refused(ErrorKind::Io, path, &error.to_string())),
    }
}

/// Tries again for a moment where it is in use: what a program has just closed may be so.
fn unmount_soon(full: &Path, flags: UnmountFlags) -> rustix::io::Result<()> {
    for _ in 0..BUSY_TRIES {
        match rustix::mount::unmount(full, flags) {
            Err(OsError::BUSY) => std::thread::sleep(BUSY_PAUSE),
            ended => return ended,
        }
    }
    rustix::mount::unmount(full, flags)
}

/// Makes a mount read-only or writable again, and changes what it allows of programs, devices and links, and
/// whether writes are synchronous.
/// Everything else stays as it was mounted.
pub fn remount(path: &Path, options: &MountOptions) -> Result<()> {
    let full = path.canonicalize().map_err(|error| unusable(path, &error))?;
    let mounts = mount_table::read().unwrap_or_default();
    own(&mounts, path, &full, "`strake mount` mounts one")?;
    match rustix::mount::mount_remount(&full, flags(options), "") {
        Ok(()) => Ok(()),
        Err(OsError::BUSY) => Err(refused(ErrorKind::Busy, path, "a file is open for writing")),
        Err(OsError::PERM) => Err(refused(ErrorKind::NotPermitted, path, "only root may do that")),
        Err(error) => Err(refused(ErrorKind::Io, path, &error.to_string())),
    }
}

/// The flags that the kernel has for options.
fn flags(options: &MountOptions) -> MountFlags {
    let set = |on: bool, flag: MountFlags| if on { flag } else { MountFlags::empty() };
    set(options.read_only, MountFlags::RDONLY)
        | set(!options.suid, MountFlags::NOSUID)
        | set(!options.dev, MountFlags::NODEV)
        | set(!options.exec, MountFlags::NOEXEC)
        | set(!options.symfollow, MountFlags::NOSYMFOLLOW)
        | set(options.sync, MountFlags::SYNCHRONOUS)
}

/// Has the kernel follow no symbolic links through a mount that was just made.
pub(super) fn forbid_symlinks(path: &Path, options: &MountOptions) -> Result<()> {
    rustix::mount::mount_remount(path, flags(options) | MountFlags::BIND, "").map_err(|error| {
        let cause = match error {
            OsError::PERM => "only root may mount with nosymfollow".to_owned(),
            error => format!("nosymfollow: {error}"),
        };
        refused(ErrorKind::NotPermitted, path, &cause)
    })
}

fn busy(path: &Path) -> String {
    let shown = path.display();
    format!(
        "a program uses it; `fuser -vm {shown}` names it, `strake umount --lazy {shown}` does not wait for it"
    )
}

/// Who may take away what this user has mounted.
fn who_unmounts(user: u32) -> String {
    match user {
        0 => "root has mounted it; unmount it as root".to_owned(),
        _ => format!("user {user} has mounted it; unmount it as that user, or as root"),
    }
}

/// Only root may unmount; others have a setuid helper.
fn by_helper(full: &Path, how: Unmount) -> Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((how == Unmount::Lazy).then_some("-z")).arg("--").arg(full);
    let output = command.stdin(Stdio::null()).output();
    let cause = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => format!("fusermount3 cannot be run: {error}; ask root to unmount"),
    };
    Err(refused(ErrorKind::NotPermitted, full, &cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
        90 22 0:50 / /mnt/a\\040b rw,relatime shared:7 - fuse.strake strake rw\n\
        91 22 0:51 / /mnt/c rw - fuse.strake strake rw\n\
        92 91 0:52 / /mnt/c rw - tmpfs tmpfs rw\n";

    #[test]
    fn the_mount_on_top_counts() {
        let mounts = mount_table::parse(TABLE);
        let kind = |path: &str| Some(topmost(&mounts, Path::new(path))?.kind.as_str());
        assert_eq!(kind("/mnt/a b"), Some("fuse.strake"));
        assert_eq!(kind("/mnt/c"), Some("tmpfs"));
        assert_eq!(kind("/"), Some("ext4"));
        assert_eq!(kind("/mnt"), None);
    }

    /// It was said that no volume is mounted there.
    #[test]
    fn what_is_mounted_over_a_volume_is_named_with_how_it_goes() {
        let mounts = mount_table::parse(TABLE);
        let own = |path: &str| own(&mounts, Path::new(path), Path::new(path), "mount one");
        assert_eq!(own("/mnt/a b").unwrap().path, Path::new("/mnt/a b"));
        let over = own("/mnt/c").unwrap_err();
        let said = "tmpfs (tmpfs) is mounted over the Strake volume there; `umount /mnt/c`";
        assert!(over.detail.contains(said), "{over}");
        for other in ["/", "/mnt"] {
            let none = own(other).unwrap_err();
            assert!(
                none.detail.ends_with("no Strake volume is mounted there; mount one"),
                "{none}"
            );
        }
    }

    #[test]
    fn a_bad_mount_point_is_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let missing = check(&dir.path().join("missing"), false).unwrap_err();
        assert!(missing.kind == ErrorKind::NotFound && missing.detail.contains("mkdir -p"));
        check(dir.path(), false).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert_eq!(check(&file, false).unwrap_err().kind, ErrorKind::NotDirectory);
        let full = check(dir.path(), false).unwrap_err();
        assert!(full.kind == ErrorKind::NotEmpty && full.detail.contains("-o nonempty"));
        check(dir.path(), true).unwrap();
        assert_eq!(unmount(dir.path(), Unmount::Lazy).unwrap_err().kind, ErrorKind::Invalid);
    }
}
