//! A process that outlives ours by a moment: if we are killed, it takes the mount away.
//!
//! Without it, `kill -9` would leave a mount point that answers nothing but "Transport endpoint is
//! not connected". The kernel tells nobody of a dead process but who holds the other end of a pipe.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use strake_base::descriptor::lock_within;

/// Longest that a new mount waits for the process that watched over one of before.
const CLAIM_WAIT: Duration = Duration::from_secs(3);

/// Reads one line. With it, all is well; without it, the writer has died. Only a mount that answers
/// nobody is taken away: whoever was quicker may have mounted something else.
const SCRIPT: &str = r#"trap '' INT TERM HUP
read -r word && exit 0
case $(LC_ALL=C stat -f -- "$1" 2>&1) in
*'not connected'* | *'connection abort'*)
  umount -l -- "$1" 2>/dev/null || fusermount3 -uz -- "$1" 2>/dev/null ;;
esac"#;

/// The right to mount at a directory: a lock of it, which whoever watches over the mount holds as long as it may
/// take a mount away. What is mounted anew meanwhile would be taken away in place of the lost one, and programs
/// would write into the bare directory from then on.
pub struct Claim(Option<File>);

impl Claim {
    /// Waits until nobody watches over `mountpoint`, on which nothing of ours is mounted. Where directories
    /// cannot be locked, or somebody holds a lock for long, one goes on without.
    pub fn wait(mountpoint: &Path) -> Self {
        let Ok(directory) = File::open(mountpoint) else { return Self(None) };
        match lock_within(&directory, CLAIM_WAIT) {
            Ok(()) => Self(Some(directory)),
            Err(error) => {
                let point = mountpoint.display();
                tracing::warn!("{point}: mounting without a lock of the directory: {error}");
                Self(None)
            }
        }
    }
}

/// Unmounts a mount point when it is lost without a word.
pub struct Watch {
    child: Child,
}

impl Watch {
    /// Starts to watch over `mountpoint` (absolute), which was claimed before it was mounted.
    pub fn start(mountpoint: &Path, claim: Claim) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "strake-mount-watch"]).arg(mountpoint);
        // Of its own group and away from where we were started: signals for us are not for it, and it keeps
        // no more busy than the mount does.
        command.process_group(0).current_dir("/");
        // Nothing is written to it: the lock lasts until the last process that has it open ends.
        let claimed = claim.0.map_or_else(Stdio::null, Stdio::from);
        let child = command.stdin(Stdio::piped()).stdout(claimed).stderr(Stdio::null()).spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Watch {
    /// Never runs if the process is killed; that is the point of it.
    fn drop(&mut self) {
        let told = match self.child.stdin.take() {
            Some(mut stdin) => stdin.write_all(b"done\n"),
            None => Ok(()),
        };
        if let Err(error) = told.and_then(|()| self.child.wait().map(drop)) {
            tracing::debug!(%error, "the process that watches over the mount ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use rustix::mount::{MountFlags, UnmountFlags};

    #[test]
    fn what_was_mounted_anew_in_the_place_of_a_lost_mount_stays() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root mounts");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        rustix::mount::mount("none", directory.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        std::fs::write(directory.path().join("file"), "here").unwrap();
        let mut watch = Watch::start(directory.path(), Claim(None)).unwrap();
        drop(watch.child.stdin.take());
        assert!(watch.child.wait().unwrap().success());
        let found = std::fs::read(directory.path().join("file"));
        rustix::mount::unmount(directory.path(), UnmountFlags::DETACH).unwrap();
        assert_eq!(found.unwrap(), b"here");
    }

    /// Who looks whether a mount is dead and then takes it away may meet one that was mounted in between.
    #[test]
    fn nobody_mounts_where_a_lost_mount_may_still_be_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::wait(directory.path());
        assert!(claim.0.is_some(), "a fresh directory is locked by nobody");
        let mut watch = Watch::start(directory.path(), claim).unwrap();
        let other = File::open(directory.path()).unwrap();
        let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK), "it watches");
        drop(other);
        drop(watch.child.stdin.take());
        // Not as a mount claims it, which goes on without where a busy machine takes its time.
        let next = File::open(directory.path()).unwrap();
        assert!(lock_within(&next, Duration::from_secs(60)).is_ok(), "it ends");
        assert!(watch.child.wait().unwrap().success());
    }
}
