//! A process that outlives ours by a moment: if we are killed, it takes the mount away.
//!
//! Without it, `kill -9` would leave a mount point that answers nothing but "Transport endpoint is
//! not connected". The kernel tells nobody of a dead process but who holds the other end of a pipe.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads one line. With it, all is well; without it, the writer has died. Only a mount that answers
/// nobody is taken away: whoever was quicker may have mounted anew, and would write into the bare
/// directory from then on.
const SCRIPT: &str = r#"trap '' INT TERM HUP
read -r word && exit 0
case $(LC_ALL=C stat -f -- "$1" 2>&1) in
*'not connected'* | *'connection abort'*)
  umount -l -- "$1" 2>/dev/null || fusermount3 -uz -- "$1" 2>/dev/null ;;
esac"#;

/// Unmounts a mount point when it is lost without a word.
pub struct Watch {
    child: Child,
}

impl Watch {
    /// Starts to watch over `mountpoint` (absolute).
    pub fn start(mountpoint: &Path) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "strake-mount-watch"]).arg(mountpoint);
        // Of its own group and away from every directory: signals for us are not for it, and it keeps
        // nothing busy.
        command.process_group(0).current_dir("/");
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
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
        let mut watch = Watch::start(directory.path()).unwrap();
        drop(watch.child.stdin.take());
        assert!(watch.child.wait().unwrap().success());
        let found = std::fs::read(directory.path().join("file"));
        rustix::mount::unmount(directory.path(), UnmountFlags::DETACH).unwrap();
        assert_eq!(found.unwrap(), b"here");
    }
}
