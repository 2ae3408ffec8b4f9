//! Operations on names and directories.

use super::{FuseDoor, MOUNT_ROOT};
use crate::errno::Errno;
use crate::reply::{Listed, Listing, Reply, Shown};
use bytes::Bytes;
use strake_client::api::{Entry, NewFile, RenameFlags};
use strake_types::{Attr, Credentials, ErrorKind, FileKind, Ino, Result as StrakeResult};

/// Positions 1 and 2 are after `.` and `..`; entries follow, each at its cookie and this.
const DOTS: u64 = 2;
/// What an entry of a listing takes at least, without and with attributes.
const ENTRY_BYTES: [u32; 2] = [32, 160];
/// Most entries of a listing with attributes. Who lists with a large buffer looks at each then, and the names are
/// believed for a moment only.
const PLUS_ENTRIES_MAX: u32 = 512;

impl FuseDoor {
    /// The answer that a name in a directory leads to an inode.
    fn entry(&self, at: (Ino, Bytes), attr: StrakeResult<Attr>) -> Result<Reply, Errno> {
        Ok(Reply::Entry(Shown { name: Some(at), ..self.shown(attr?) }))
    }

    pub(super) async fn lookup(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
    ) -> Result<Reply, Errno> {
        if parent == self.view.root && &name[..] == b".." {
            return Ok(Reply::Entry(self.shown(self.volume.getattr(parent).await?)));
        }
        let ask = || self.volume.lookup(cred, parent, name.clone());
        let of = |found: &StrakeResult<Attr>| found.as_ref().ok().map(|attr| attr.ino);
        match self.asked_anew(ask, of).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(Reply::NoEntry(self.valid)),
            attr => self.entry((parent, name), attr),
        }
    }

    pub(super) async fn readlink(&self, cred: &Credentials, ino: Ino) -> Result<Reply, Errno> {
        Ok(Reply::Data(vec![self.volume.readlink(cred, ino).await?]))
    }

    pub(super) async fn symlink(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        target: Bytes,
    ) -> Result<Reply, Errno> {
        let made = self.volume.make(cred, parent, name.clone(), NewFile::symlink(target)).await;
        self.entry((parent, name), made)
    }

    pub(super) async fn mknod(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        (mode, umask): (u32, u32),
        rdev: u32,
    ) -> Result<Reply, Errno> {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::File,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => return Err(Errno::EINVAL),
        };
        let new = NewFile::node(kind, mode & 0o7777, umask, rdev);
        let made = self.volume.make(cred, parent, name.clone(), new).await;
        self.entry((parent, name), made)
    }

    pub(super) async fn mkdir(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        (mode, umask): (u32, u32),
    ) -> Result<Reply, Errno> {
        let new = NewFile::directory(mode & 0o7777, umask);
        let made = self.volume.make(cred, parent, name.clone(), new).await;
        self.entry((parent, name), made)
    }

    pub(super) async fn unlink(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
    ) -> Result<Reply, Errno> {
        self.volume.unlink(cred, parent, name).await?;
        Ok(Reply::Empty)
    }

    pub(super) async fn rmdir(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
    ) -> Result<Reply, Errno> {
        self.volume.rmdir(cred, parent, name).await?;
        Ok(Reply::Empty)
    }

    pub(super) async fn rename(
        &self,
        cred: &Credentials,
        (parent, name): (Ino, Bytes),
        (new_parent, new_name): (Ino, Bytes),
        flags: u32,
    ) -> Result<Reply, Errno> {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags & libc::RENAME_NOREPLACE != 0,
            exchange: flags & libc::RENAME_EXCHANGE != 0,
        };
        self.volume.rename(cred, parent, name, new_parent, new_name, flags).await?;
        Ok(Reply::Empty)
    }

    pub(super) async fn link(
        &self,
        cred: &Credentials,
        ino: Ino,
        parent: Ino,
        name: Bytes,
    ) -> Result<Reply, Errno> {
        let linked = self.volume.link(cred, ino, parent, name.clone()).await;
        self.recalls.note_unguarded(ino);
        self.entry((parent, name), linked)
    }

    pub(super) async fn readdir(
        &self,
        cred: &Credentials,
        ino: Ino,
        offset: u64,
        size: u32,
        plus: bool,
    ) -> Result<Reply, Errno> {
        let most = if plus { PLUS_ENTRIES_MAX } else { u32::MAX };
        let limit = (size / ENTRY_BYTES[usize::from(plus)]).clamp(1, most);
        let after = offset.saturating_sub(DOTS);
        let page = self.volume.readdir(cred, ino, after, limit, plus).await?;
        let mut listing = Listing::new(size, plus);
        let parent = if ino == self.view.root { MOUNT_ROOT } else { self.node(page.parent) };
        for (cookie, name, node) in [(1, &b"."[..], self.node(ino)), (2, b"..", parent)] {
            let name = Bytes::from_static(name);
            let dots = Listed { name, node, kind: FileKind::Directory, cookie, shown: None };
            if offset < cookie && !listing.push(dots) {
                return Ok(Reply::Listing(listing));
            }
        }
        for Entry { name, ino: child, kind, cookie, attr } in page.entries {
            let shown = attr
                .filter(|_| plus)
                .map(|attr| Shown { name: Some((ino, name.clone())), ..self.shown(attr) });
            let (node, cookie) = (self.node(child), cookie + DOTS);
            if !listing.push(Listed { name, node, kind, cookie, shown }) {
                break;
            }
        }
        Ok(Reply::Listing(listing))
    }
}
