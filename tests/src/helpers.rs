//! `mount -t strake` as on a machine where it is installed, without changing this machine.

use crate::cluster::program;
use std::path::Path;
use std::process::{Command, Stdio};

/// Hides `/sbin` behind a directory, and copies of other tests' mounts, which would keep those
/// alive; then becomes the command.
const ENTER: &str = "set -eu
mount --bind \"$1\" \"$(realpath /sbin)\"
keep=$2
shift 2
while read -r _ path type _; do
  if [ \"$type\" = fuse.strake ] && [ \"$path\" != \"$keep\" ]; then umount -l \"$path\"; fi
done < /proc/self/mounts
exec \"$@\"";

/// A command that runs in a mount namespace of its own, where `mount` finds the program under test
/// by its helpers' names, as after `make install`. Of the mounts of Strake only `keep` is there.
/// `sbin` is a directory for the helpers, made here.
pub fn with_mount_helpers(sbin: &Path, keep: &Path, command: &Path) -> Command {
    std::fs::create_dir(sbin).expect("a fresh name in a temporary directory");
    for name in ["mount.strake", "mount.fuse.strake"] {
        std::os::unix::fs::symlink(program(), sbin.join(name)).expect("a fresh directory");
    }
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]);
    inside.args([sbin, keep, command]).stdin(Stdio::null());
    inside
}
