//! Attributes, extended attributes, and the figures of the whole volume.

use super::FuseDoor;
use super::contested::What;
use crate::abi;
use crate::errno::Errno;
use crate::reply::{Reply, Shown};
use crate::request::{NewTime, Setattr};
use bytes::Bytes;
use strake_client::{OpenFile, XattrFlags};
use strake_types::limits::NAME_BYTES_MAX;
use strake_types::{Credentials, ErrorKind, Ino, SetAttr, SetTime};

/// Unit in which `statfs` counts.
const STATFS_BLOCK_BYTES: u64 = 4096;
const SELINUX_LABEL: &[u8] = b"security.selinux";
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

impl FuseDoor {
    pub(super) async fn getattr(&self, ino: Ino, fh: Option<u64>) -> Result<Shown, Errno> {
        let handle = fh.and_then(|fh| self.handles.get(fh));
        let ask = || async {
            let recent = handle.as_ref().and_then(|handle| self.volume.recent_attr(&handle.file));
            let found = match recent {
                Some(attr) => Ok(attr),
                None => self.volume.getattr(ino).await,
            };
            self.recalls.dropping.wait(ino).await;
            found
        };
        let found = self.asked_anew(ask, |_| Some(ino)).await;
        let attr = match found {
            // The last name is gone, but somebody holds the file open.
            Err(error) if error.kind.is_gone() => match handle {
                Some(handle) => handle.file.attr(),
                None => return Err(error.into()),
            },
            attr => attr?,
        };
        let valid = match self.volume.options().exclusive {
            true => self.valid,
            false => self.volume.attribute_ttl(ino),
        };
        Ok(self.shown_for(attr, valid))
    }

    pub(super) async fn setattr(
        &self,
        cred: &Credentials,
        ino: Ino,
        change: Setattr,
    ) -> Result<Reply, Errno> {
        let time = |new: NewTime| match new {
            NewTime::Now => SetTime::Now,
            NewTime::At(time) => SetTime::At(time),
        };
        let handle = change.fh.and_then(|fh| self.handles.get(fh));
        let set = SetAttr {
            mode: change.mode.map(|mode| mode & 0o7777),
            uid: change.uid,
            gid: change.gid,
            length: change.size,
            atime: change.atime.map(time),
            mtime: change.mtime.map(time),
            ctime: change.ctime,
            drop_setid: change.kill_suidgid,
        };
        let file = handle.as_ref().map(|h| &h.file);
        let attr = self.volume.setattr(cred, ino, set, file).await?;
        Ok(Reply::Attr(self.shown(attr)))
    }

    /// Before contents are changed, perhaps by an ordinary user (`by_user`), and first: a write may be given up when it is taken
    /// already.
    pub(super) async fn begin_change(&self, file: &OpenFile, by_user: bool) -> Result<(), Errno> {
        if self.volume.note_writer(file, by_user)
            && Box::pin(self.volume.drop_privileges(file, by_user)).await?
        {
            self.mode_changed(file.ino());
        }
        Ok(())
    }

    /// An ordinary user has cut the file by opening it.
    pub(super) async fn drop_setid(&self, file: &OpenFile) -> Result<(), Errno> {
        if self.volume.drop_setid(file).await? {
            self.mode_changed(file.ino());
        }
        Ok(())
    }

    /// No change by this mount is recalled from its kernel, which takes length and times for old after a change of contents,
    /// and not the mode: it would run as setuid what an ordinary user has just written. It is told before it is answered.
    fn mode_changed(&self, ino: Ino) {
        let _soon = self.take_back(&[ino], false);
    }

    pub(super) async fn statfs(&self) -> Result<Reply, Errno> {
        let space = self.volume.statfs().await?;
        let free = space.free_bytes / STATFS_BLOCK_BYTES;
        Ok(Reply::Statfs(abi::StatfsOut {
            blocks: space.total_bytes / STATFS_BLOCK_BYTES,
            bfree: free,
            bavail: free,
            files: space.inodes.saturating_add(space.inodes_free),
            ffree: space.inodes_free,
            bsize: STATFS_BLOCK_BYTES as u32,
            namelen: NAME_BYTES_MAX as u32,
            frsize: STATFS_BLOCK_BYTES as u32,
            ..abi::StatfsOut::default()
        }))
    }

    pub(super) async fn setxattr(
        &self,
        cred: &Credentials,
        ino: Ino,
        (name, value): (Bytes, Bytes),
        flags: u32,
        kill_sgid: bool,
    ) -> Result<Reply, Errno> {
        let flags = XattrFlags {
            create: flags & libc::XATTR_CREATE as u32 != 0,
            replace: flags & libc::XATTR_REPLACE as u32 != 0,
            drop_setgid: kill_sgid,
        };
        self.volume.setxattr(cred, ino, name, value, flags).await?;
        Ok(Reply::Empty)
    }

    pub(super) async fn getxattr(
        &self,
        cred: &Credentials,
        ino: Ino,
        name: Bytes,
        size: u32,
    ) -> Result<Reply, Errno> {
        let is_label = &name[..] == SELINUX_LABEL;
        // The kernel keeps it.
        if name.starts_with(ACL_PREFIX) {
            self.recalls.contested.note_given(ino, What::Attributes);
        }
        match self.volume.getxattr(cred, ino, name).await {
            // As NFS says it: who asks every file for its label (`ls -l`) then asks no more.
            Err(error) if is_label && error.kind == ErrorKind::NoAttribute => {
                Err(Errno::EOPNOTSUPP)
            }
            value => sized(value?, size),
        }
    }

    pub(super) async fn listxattr(
        &self,
        cred: &Credentials,
        ino: Ino,
        size: u32,
    ) -> Result<Reply, Errno> {
        sized(self.volume.listxattr(cred, ino).await?, size)
    }
}

/// A value for a buffer of `size` bytes; 0 asks for the length only.
fn sized(value: Bytes, size: u32) -> Result<Reply, Errno> {
    match size as usize {
        0 => Ok(Reply::Size(value.len() as u32)),
        room if room < value.len() => Err(Errno::ERANGE),
        _ => Ok(Reply::Data(vec![value])),
    }
}
