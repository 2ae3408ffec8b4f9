//! Who may do what: the permission rules of POSIX as pure functions.
//!
//! Nothing here knows where an inode comes from. [`Subject`] holds what the rules look at; each
//! function answers one question, with the error that POSIX names for a refusal.

use crate::acl::Acl;
use crate::{Credentials, Error, ErrorKind, Result};

/// Permission to read a file or list a directory.
pub const READ: u8 = 4;
/// Permission to write a file or change a directory's entries.
pub const WRITE: u8 = 2;
/// Permission to execute a file or search a directory.
pub const EXECUTE: u8 = 1;

/// The setuid bit of a mode.
pub const SETUID: u32 = 0o4000;
/// The setgid bit of a mode.
pub const SETGID: u32 = 0o2000;
/// The sticky bit of a mode.
pub const STICKY: u32 = 0o1000;
/// The group's execute bit of a mode.
const GROUP_EXECUTE: u32 = 0o010;

/// The extended attribute that says what a program may do beyond who runs it.
pub const CAPABILITY: &[u8] = b"security.capability";

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// It is a directory.
    pub directory: bool,
    /// Access control list, if it says more than the mode.
    pub acl: Option<&'a Acl>,
}

impl Subject<'_> {
    /// Fails with AccessDenied unless all of `want` is granted. Root reads and writes everything,
    /// searches every directory, and executes what anybody may execute.
    pub fn check(&self, cred: &Credentials, want: u8) -> Result<()> {
        match self.permits(cred, want) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::AccessDenied)),
        }
    }

    /// True if all of `want` is granted.
    pub fn permits(&self, cred: &Credentials, want: u8) -> bool {
        if cred.uid == 0 {
            return want & EXECUTE == 0 || self.directory || self.mode & 0o111 != 0;
        }
        if let Some(acl) = self.acl {
            return acl.permits(cred, self.uid, self.gid, want);
        }
        let shift = match () {
            () if cred.uid == self.uid => 6,
            () if cred.in_group(self.gid) => 3,
            () => 0,
        };
        (self.mode >> shift) as u8 & want == want
    }

    /// Fails with NotPermitted unless the caller is the owner or root.
    pub fn check_owner(&self, cred: &Credentials) -> Result<()> {
        match cred.uid == 0 || cred.uid == self.uid {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotPermitted)),
        }
    }

    /// For a directory: fails with NotPermitted if its sticky bit keeps the caller from removing
    /// or renaming an entry whose inode belongs to `child_uid`.
    pub fn check_sticky(&self, cred: &Credentials, child_uid: u32) -> Result<()> {
        let free = self.mode & STICKY == 0
            || cred.uid == 0
            || cred.uid == self.uid
            || cred.uid == child_uid;
        match free {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotPermitted)),
        }
    }

    /// Fails with NotPermitted unless the caller may give the inode this owner and group: root
    /// anything, the owner a group of his own, and what is so already.
    pub fn check_chown(
        &self,
        cred: &Credentials,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        if cred.uid == 0 {
            return Ok(());
        }
        let owner = cred.uid == self.uid;
        let uid_fits = uid.is_none_or(|uid| owner && uid == self.uid);
        let gid_fits = gid.is_none_or(|gid| owner && (gid == self.gid || cred.in_group(gid)));
        match uid_fits && gid_fits {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotPermitted)),
        }
    }
}

/// Mode after a change of owner or of contents by an ordinary user: setuid goes, and so does setgid
/// unless it is the mark of mandatory locking (no group execute) in a group of the caller's.
pub fn without_setid(mode: u32, cred: &Credentials, gid: u32) -> u32 {
    let privileged = cred.checked || cred.uid == 0 || cred.in_group(gid);
    let keeps_setgid = mode & GROUP_EXECUTE == 0 && privileged;
    match keeps_setgid {
        true => mode & !SETUID,
        false => mode & !(SETUID | SETGID),
    }
}

/// Mode after an ordinary user has written, whose groups nobody looks at: setuid goes, and so does setgid unless it is the
/// mark of mandatory locking.
pub fn written_by_user(mode: u32) -> u32 {
    match mode & GROUP_EXECUTE {
        0 => mode & !SETUID,
        _ => mode & !(SETUID | SETGID),
    }
}

/// Mode after a chmod to `mode`: an ordinary user cannot give setgid to a group that is not his.
pub fn chmod_mode(mode: u32, cred: &Credentials, gid: u32) -> u32 {
    let mode = mode & 0o7777;
    match cred.checked || cred.uid == 0 || cred.in_group(gid) {
        true => mode,
        false => mode & !SETGID,
    }
}

/// Group and mode of a new inode: a directory with setgid hands down its group, and to directories
/// the bit as well; an executable file gets setgid there only from a member or root.
pub fn inherit_group(
    parent: &Subject<'_>,
    cred: &Credentials,
    directory: bool,
    mode: u32,
) -> (u32, u32) {
    if parent.mode & SETGID == 0 {
        return (cred.gid, mode);
    }
    if directory {
        return (parent.gid, mode | SETGID);
    }
    let executable = mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
    let member = cred.checked || cred.uid == 0 || cred.in_group(parent.gid);
    match executable && !member {
        true => (parent.gid, mode & !SETGID),
        false => (parent.gid, mode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cred(uid: u32, gid: u32) -> Credentials {
        Credentials { uid, gid, groups: vec![77], checked: false }
    }

    fn subject(mode: u32) -> Subject<'static> {
        Subject { uid: 1, gid: 2, mode, directory: false, acl: None }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        assert!(!subject(0o077).permits(&cred(1, 2), READ));
        assert!(!subject(0o707).permits(&cred(9, 2), READ));
        assert!(subject(0o704).permits(&cred(9, 9), READ));
        assert!(Subject { gid: 77, ..subject(0o040) }.permits(&cred(9, 9), READ));
    }

    #[test]
    fn root_executes_only_what_somebody_may() {
        assert!(!subject(0o666).permits(&cred(0, 0), EXECUTE));
        assert!(subject(0o001).permits(&cred(0, 0), EXECUTE | WRITE));
        assert!(Subject { directory: true, ..subject(0) }.permits(&cred(0, 0), EXECUTE | WRITE));
    }

    #[test]
    fn sticky_protects_the_entries_of_others() {
        let dir = subject(0o1777);
        assert!(dir.check_sticky(&cred(5, 5), 5).is_ok());
        assert!(dir.check_sticky(&cred(1, 1), 5).is_ok());
        assert!(dir.check_sticky(&cred(6, 6), 5).is_err());
        assert!(subject(0o777).check_sticky(&cred(6, 6), 5).is_ok());
    }

    #[test]
    fn an_owner_may_give_a_file_to_his_own_groups_only() {
        let file = subject(0o644);
        assert!(file.check_chown(&cred(1, 2), None, Some(77)).is_ok());
        assert!(file.check_chown(&cred(1, 2), Some(1), None).is_ok());
        assert!(file.check_chown(&cred(1, 2), None, Some(78)).is_err());
        assert!(file.check_chown(&cred(1, 2), Some(3), None).is_err());
        assert!(file.check_chown(&cred(4, 77), None, Some(77)).is_err());
    }

    #[test]
    fn setid_bits_go_where_the_kernel_drops_them() {
        assert_eq!(without_setid(0o6755, &cred(1, 2), 2), 0o755);
        assert_eq!(without_setid(0o6745, &cred(1, 2), 2), 0o2745, "mandatory locking mark");
        assert_eq!([0o6755, 0o6745, 0o644].map(written_by_user), [0o755, 0o2745, 0o644]);
        assert_eq!(chmod_mode(0o2755, &cred(1, 2), 3), 0o755);
        assert_eq!(chmod_mode(0o2755, &cred(1, 2), 77), 0o2755);
    }

    #[test]
    fn setgid_directories_hand_down_their_group() {
        let dir = Subject { directory: true, ..subject(0o2775) };
        assert_eq!(inherit_group(&dir, &cred(5, 6), true, 0o755), (2, 0o2755));
        assert_eq!(inherit_group(&dir, &cred(5, 6), false, 0o2755), (2, 0o755));
        assert_eq!(inherit_group(&subject(0o775), &cred(5, 6), true, 0o755), (6, 0o755));
    }
}
