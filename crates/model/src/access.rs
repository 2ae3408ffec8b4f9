//! Who may do what. The rules of POSIX where it leaves a choice as Linux takes it.

use crate::inode::{Inode, Kind};
use strake_types::{Credentials, ErrorKind};

/// Permission to read.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to search a directory.
pub const SEARCH: u32 = 1;

/// The set-user-ID bit.
pub const SETUID: u32 = 0o4000;
/// The set-group-ID bit.
pub const SETGID: u32 = 0o2000;
/// The sticky bit.
pub const STICKY: u32 = 0o1000;
/// Group may execute.
const GROUP_EXECUTE: u32 = 0o010;

/// Checks mode bits. Root may do everything asked for here.
pub fn check(cred: &Credentials, inode: &Inode, wanted: u32) -> Result<(), ErrorKind> {
    if cred.uid == 0 {
        return Ok(());
    }
    let shift = match () {
        () if cred.uid == inode.uid => 6,
        () if cred.in_group(inode.gid) => 3,
        () => 0,
    };
    let granted = inode.mode >> shift & 7;
    if granted & wanted == wanted { Ok(()) } else { Err(ErrorKind::AccessDenied) }
}

/// Only the owner and root.
pub fn check_owner(cred: &Credentials, inode: &Inode) -> Result<(), ErrorKind> {
    if cred.uid == 0 || cred.uid == inode.uid { Ok(()) } else { Err(ErrorKind::NotPermitted) }
}

/// May an entry leading to `child` be taken out of `parent`? Directories and other files are not
/// taken for each other.
pub fn check_removal(
    cred: &Credentials,
    parent: &Inode,
    child: &Inode,
    as_directory: bool,
) -> Result<(), ErrorKind> {
    check(cred, parent, WRITE | SEARCH)?;
    let owns = cred.uid == 0 || cred.uid == child.uid || cred.uid == parent.uid;
    if parent.mode & STICKY != 0 && !owns {
        return Err(ErrorKind::NotPermitted);
    }
    match (as_directory, matches!(child.kind, Kind::Directory { .. })) {
        (true, false) => Err(ErrorKind::NotDirectory),
        (false, true) => Err(ErrorKind::IsDirectory),
        _ => Ok(()),
    }
}

/// The mode and group of something new in `parent`.
pub fn inherited(cred: &Credentials, parent: &Inode, mode: u32, is_directory: bool) -> (u32, u32) {
    if parent.mode & SETGID == 0 {
        return (mode, cred.gid);
    }
    let mode = if is_directory { mode | SETGID } else { mode };
    (mode, parent.gid)
}

/// The mode after `chmod`: who is not in the file's group cannot set its set-group-ID bit.
pub fn changed_mode(cred: &Credentials, inode: &Inode, mode: u32) -> u32 {
    if cred.uid == 0 || cred.in_group(inode.gid) { mode } else { mode & !SETGID }
}

/// The mode after the owner or group changed.
pub fn mode_after_chown(inode: &Inode) -> u32 {
    if matches!(inode.kind, Kind::Directory { .. }) {
        return inode.mode;
    }
    without_set_ids(inode.mode)
}

/// The mode after somebody wrote into or truncated a regular file.
pub fn mode_after_write(cred: &Credentials, inode: &Inode) -> u32 {
    if cred.uid == 0 { inode.mode } else { without_set_ids(inode.mode) }
}

fn without_set_ids(mode: u32) -> u32 {
    let group = if mode & GROUP_EXECUTE != 0 { SETGID } else { 0 };
    mode & !(SETUID | group)
}

/// May owner and group become these?
pub fn check_chown(cred: &Credentials, inode: &Inode, uid: u32, gid: u32) -> Result<(), ErrorKind> {
    let keeps_owner = cred.uid == inode.uid && uid == inode.uid;
    let may_give = cred.in_group(gid) || gid == inode.gid;
    if cred.uid == 0 || keeps_owner && may_give { Ok(()) } else { Err(ErrorKind::NotPermitted) }
}
