//! The door: each request of the kernel becomes one call of the client, and its result an answer.
//!
//! Nothing is decided here but what only a kernel's door knows: inode 1 is the root of the mount
//! (which may be a sub directory of the volume), who owns files on a mount with `uid=`, whether an
//! open goes through the page cache, and for how long the kernel may believe an answer.

mod alone;
mod contents;
mod contested;
mod counted;
mod held_up;
mod locks;
mod names;
mod pages;
mod prefetch;
mod recalls;
mod stat;
mod unlocking;

use crate::abi;
use crate::device::Device;
use crate::dispatch::Door;
use crate::errno::Errno;
use crate::handles::Handles;
use crate::interrupt::Interrupt;
use crate::reply::{Opened, Reply, Shown};
use crate::request::{Op, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_client::Volume;
use strake_client::file::OpenFile;
use strake_types::{Attr, Credentials, ErrorKind, Ino};
use tokio::runtime::Handle;

/// Inode number of the root of every mount.
const MOUNT_ROOT: u64 = 1;
/// How long the kernel may believe what it knows where nobody else changes the volume.
const ALONE_VALID: Duration = Duration::from_secs(60);

/// How a volume is shown by one mount.
#[derive(Clone, Debug)]
pub struct View {
    /// The directory that is the root of the mount.
    pub root: Ino,
    /// Owner shown for every file, and in whose name requests are made.
    pub uid: Option<u32>,
    /// The same for the group.
    pub gid: Option<u32>,
    /// The kernel keeps written data back.
    pub writeback: bool,
    /// Extended attributes are shown. Where they are not, the kernel asks for none.
    pub xattr: bool,
}

/// A volume behind a mount point.
pub struct FuseDoor {
    volume: Arc<Volume>,
    view: View,
    handles: Handles<OpenHandle>,
    locks: locks::HeldLocks,
    /// How long names, and attributes fresh from the server, are good for; nothing, if the mount keeps leases.
    valid: Duration,
    recalls: Arc<recalls::Recalls>,
    prefetch: prefetch::Prefetch,
    /// The kernel can map files that go around its page cache.
    maps_direct: AtomicBool,
    runtime: Handle,
}

/// What a handle number stands for.
#[derive(Clone)]
struct OpenHandle {
    file: Arc<OpenFile>,
    /// It goes around the page cache.
    direct: bool,
    /// It is a program that runs, or a part of one.
    runs: bool,
    /// Opened to fetch a part of a file for the kernel: it stands for the handle of a program.
    part: Option<Arc<prefetch::Part>>,
}

impl FuseDoor {
    /// A door to a volume.
    pub fn new(volume: Arc<Volume>, view: View, runtime: Handle) -> Self {
        let valid = match volume.options().exclusive {
            true => ALONE_VALID,
            false if volume.keeps_leases() => Duration::ZERO,
            false => Duration::from_millis(volume.options().attribute_age_ms),
        };
        let (handles, locks) = (Handles::default(), locks::HeldLocks::default());
        let (recalls, prefetch, maps_direct) = Default::default();
        Self { volume, view, handles, locks, valid, recalls, prefetch, maps_direct, runtime }
    }

    /// The kernel has checked permissions already: the mount has `default_permissions`.
    fn credentials(&self, request: &Request) -> Credentials {
        Credentials {
            uid: self.view.uid.unwrap_or(request.uid),
            gid: self.view.gid.unwrap_or(request.gid),
            groups: Vec::new(),
            checked: true,
        }
    }

    fn ino(&self, node: u64) -> Ino {
        match node {
            MOUNT_ROOT => self.view.root,
            other => Ino(other),
        }
    }

    fn node(&self, ino: Ino) -> u64 {
        if ino == self.view.root { MOUNT_ROOT } else { ino.0 }
    }

    /// An inode as the mount shows it, with attributes that are fresh from the server.
    fn shown(&self, attr: Attr) -> Shown {
        self.shown_for(attr, self.valid)
    }

    fn shown_for(&self, attr: Attr, valid: Duration) -> Shown {
        let real = attr.ino;
        let attr = Attr {
            ino: Ino(self.node(real)),
            uid: self.view.uid.unwrap_or(attr.uid),
            gid: self.view.gid.unwrap_or(attr.gid),
            ..attr
        };
        Shown { attr, valid, name_valid: self.valid, name: None, real }
    }

    fn handle(&self, fh: u64) -> Result<OpenHandle, Errno> {
        self.handles.get(fh).ok_or(Errno::EBADF)
    }

    fn file(&self, fh: u64) -> Result<Arc<OpenFile>, Errno> {
        Ok(self.handle(fh)?.file)
    }

    async fn carry_out(&self, request: Request, interrupt: Interrupt) -> Result<Reply, Errno> {
        let cred = self.credentials(&request);
        let ino = self.ino(request.node);
        match request.op {
            Op::Lookup { name } => self.lookup(&cred, ino, name).await,
            Op::Getattr { fh } => self.getattr(ino, fh).await.map(Reply::Attr),
            Op::Statx { fh } => self.getattr(ino, fh).await.map(Reply::Statx),
            Op::Read { fh, offset, size, fills_pages } => {
                self.read(fh, (offset, size), fills_pages).await
            }
            Op::Write { fh, offset, data, append, sync, kill_suidgid, from_pages } => {
                let handle = self.handle(fh)?;
                if !from_pages {
                    self.begin_change(&handle.file, kill_suidgid).await?;
                }
                match from_pages {
                    true => Box::pin(self.write_back(&handle, offset, data)).await,
                    false => Box::pin(self.write(&handle, offset, data, (append, sync))).await,
                }
            }
            Op::Open { flags, kill_suidgid } => match self.prefetch.opened_by(request.pid, ino) {
                Some(handle) => Ok(self.open_part(handle)),
                None => Box::pin(self.open(&cred, ino, flags, kill_suidgid)).await,
            },
            Op::Flush { fh, lock_owner } => Box::pin(self.flush(ino, fh, lock_owner)).await,
            Op::Release { fh, flocked } => Box::pin(self.release(ino, fh, flocked)).await,
            Op::Fsync { fh, datasync } => Box::pin(self.fsync(fh, datasync)).await,
            Op::Fallocate { fh, offset, length, mode } => {
                Box::pin(self.fallocate(&cred, fh, (offset, length), mode, request.unique)).await
            }
            Op::Lseek { fh, offset, whence } => Box::pin(self.lseek(fh, offset, whence)).await,
            Op::CopyFileRange(range) => {
                Box::pin(self.copy_file_range(&cred, range, request.unique)).await
            }
            Op::Getlk(lock) => Box::pin(self.getlk(ino, lock)).await,
            Op::Setlk { lock, wait } => Box::pin(self.setlk(ino, lock, wait, interrupt)).await,
            Op::Readdir { offset, size, plus } => {
                self.readdir(&cred, ino, offset, size, plus).await
            }
            Op::Fsyncdir => Ok(self.volume.fsync_dir(ino).await.map(|()| Reply::Empty)?),
            Op::Opendir => Ok(Reply::Open(Opened { fh: 0, flags: 0 })),
            Op::Releasedir => Ok(Reply::Empty),
            op => self.carry_out_rarer(cred, ino, op).await,
        }
    }

    async fn carry_out_rarer(&self, cred: Credentials, ino: Ino, op: Op) -> Result<Reply, Errno> {
        match op {
            Op::Create { name, flags, mode, umask } => {
                Box::pin(self.create(&cred, (ino, name), flags, (mode, umask))).await
            }
            Op::Tmpfile { flags, mode, umask } => {
                Box::pin(self.tmpfile(&cred, ino, flags, (mode, umask))).await
            }
            Op::Setattr(change) => Box::pin(self.setattr(&cred, ino, change)).await,
            Op::Readlink => self.readlink(&cred, ino).await,
            Op::Symlink { name, target } => Box::pin(self.symlink(&cred, ino, name, target)).await,
            Op::Mknod { name, mode, umask, rdev } => {
                Box::pin(self.mknod(&cred, ino, name, (mode, umask), rdev)).await
            }
            Op::Mkdir { name, mode, umask } => {
                Box::pin(self.mkdir(&cred, ino, name, (mode, umask))).await
            }
            Op::Unlink { name } => Box::pin(self.unlink(&cred, ino, name)).await,
            Op::Rmdir { name } => Box::pin(self.rmdir(&cred, ino, name)).await,
            Op::Rename { name, new_parent, new_name, flags } => {
                let to = (self.ino(new_parent), new_name);
                Box::pin(self.rename(&cred, (ino, name), to, flags)).await
            }
            Op::Link { node, name } => Box::pin(self.link(&cred, self.ino(node), ino, name)).await,
            Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Removexattr { .. }
                if !self.view.xattr =>
            {
                Err(Errno::ENOSYS)
            }
            Op::Statfs => self.statfs().await,
            Op::Syncfs => Ok(Box::pin(self.volume.sync_all()).await.map(|()| Reply::Empty)?),
            Op::Setxattr { name, value, flags, kill_sgid } => {
                Box::pin(self.setxattr(&cred, ino, (name, value), flags, kill_sgid)).await
            }
            Op::Getxattr { name, size } => self.getxattr(&cred, ino, name, size).await,
            Op::Listxattr { size } => self.listxattr(&cred, ino, size).await,
            Op::Removexattr { name } => {
                Ok(self.volume.removexattr(&cred, ino, name).await.map(|()| Reply::Empty)?)
            }
            Op::Ioctl => Err(Errno::ENOTTY),
            // ACCESS: the kernel checks by itself and does not ask again.
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// True for what is asked of the names in a directory, but for CREATE: that may have the kernel try once more.
fn is_in_directory(op: &Op) -> bool {
    use Op::{Link, Lookup, Mkdir, Mknod, Readdir, Rename, Rmdir, Symlink, Tmpfile, Unlink};
    matches!(
        op,
        Lookup { .. }
            | Readdir { .. }
            | Tmpfile { .. }
            | Symlink { .. }
            | Mknod { .. }
            | Mkdir { .. }
            | Link { .. }
            | Rename { .. }
            | Unlink { .. }
            | Rmdir { .. }
    )
}

/// In a directory that another mount has removed there is nothing, and nothing can be made (S-033). With
/// ESTALE the kernel would try the whole path once more, and pass ESTALE on if others were as quick again.
fn gone(error: Errno) -> Errno {
    if error == Errno::from(ErrorKind::Stale) { Errno::from(ErrorKind::NotFound) } else { error }
}

impl Door for FuseDoor {
    async fn handle(
        self: Arc<Self>,
        request: Request,
        interrupt: Interrupt,
    ) -> Result<Reply, Errno> {
        // The root of a volume is removed with all of it, and what lists it is to fail.
        let in_directory = is_in_directory(&request.op) && self.ino(request.node) != Ino::ROOT;
        let outcome = self.carry_out(request, interrupt).await;
        outcome.map_err(|error| if in_directory { gone(error) } else { error })
    }

    fn mounted(&self, device: Device, maps_direct: bool) {
        self.recalls.mounted(device);
        self.maps_direct.store(maps_direct, Ordering::Relaxed);
    }

    fn mark(&self) -> u64 {
        self.recalls.count()
    }

    fn send(
        &self,
        mark: u64,
        answer: Result<Reply, Errno>,
        send: impl FnOnce(&Result<Reply, Errno>),
    ) {
        match self.volume.keeps_leases() {
            true => self.send_leased(mark, answer, send),
            false => send(&answer),
        }
    }

    fn changes(&self, request: &Request) -> Option<u64> {
        let changes = match &request.op {
            Op::Setattr(change) => change.size.is_some(),
            Op::Fallocate { .. } => true,
            Op::CopyFileRange(range) => return Some(self.node(self.file(range.to).ok()?.ino())),
            Op::Open { flags, .. } => flags & libc::O_TRUNC as u32 != 0,
            _ => false,
        };
        changes.then_some(request.node)
    }

    fn outlives(&self, unique: u64, goes_on: bool) {
        self.locks.outlives(unique, goes_on);
    }

    fn changed_after_all(&self, node: u64) {
        self.forget_changed(self.ino(node));
    }

    fn forget(&self, nodes: &[u64]) {
        nodes.iter().for_each(|&node| self.volume.let_go(self.ino(node)));
    }

    fn abandon(&self, reply: Reply) {
        let (Reply::Open(opened) | Reply::Created(_, opened)) = reply else { return };
        let Some(handle) = self.handles.remove(opened.fh).filter(|handle| handle.part.is_none())
        else {
            return;
        };
        let volume = self.volume.clone();
        self.runtime.spawn(async move {
            if let Err(error) = volume.release(&handle.file).await {
                tracing::warn!(%error, "closing a file whose process was killed failed");
            }
        });
    }
}

/// Flags of OPEN for the kernel: whether the file goes through its page cache.
///
/// Going around it more than doubles what one stream of writes carries, so files open for writing
/// only do, and those that append: where the end is only we may know; and those of files that are `shared` with other
/// mounts: a kernel that is told of their changes loses answers about length and time. Other readers, and programs that
/// read and write (and may map the file shared), use it: it is kept from one open to the next if nothing changed in
/// between. Writes around the cache make the kernel drop the pages they touch, and their new mtime makes it drop those
/// that a reader brought in meanwhile.
fn page_cache_flags(flags: u32, writeback: bool, shared: bool, keep: bool) -> u32 {
    let only_writes = flags & libc::O_ACCMODE as u32 == libc::O_WRONLY as u32;
    let appends = flags & libc::O_APPEND as u32 != 0;
    let direct =
        flags & libc::O_DIRECT as u32 != 0 || (!writeback && (only_writes || appends || shared));
    match (direct, keep) {
        (true, _) => abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES,
        (false, true) => abi::FOPEN_KEEP_CACHE,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of what an asynchronous function gives back.
    fn size_of_future<A, B, C, F>(_function: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_is_large_and_rare_has_a_box_of_its_own() {
        let size = size_of_future(<FuseDoor as Door>::handle);
        assert!(size < 4_096, "{size} (docs/design/0025)");
    }

    #[test]
    fn only_writers_and_o_direct_go_around_the_page_cache() {
        let around = |flags: i32, writeback| {
            page_cache_flags(flags as u32, writeback, false, true) & abi::FOPEN_DIRECT_IO != 0
        };
        assert!(around(libc::O_WRONLY | libc::O_APPEND, false));
        assert!(around(libc::O_RDWR | libc::O_APPEND, false));
        assert!(!around(libc::O_WRONLY, true));
        assert!(!around(libc::O_RDWR, false) && !around(libc::O_RDONLY, false));
        assert!(around(libc::O_RDONLY | libc::O_DIRECT, false));
        assert_eq!(page_cache_flags(0, false, false, true), abi::FOPEN_KEEP_CACHE);
        assert_eq!(page_cache_flags(0, false, false, false), 0);
        assert_eq!(page_cache_flags(0, true, true, false), 0);
        assert!(page_cache_flags(0, false, true, true) & abi::FOPEN_DIRECT_IO != 0);
    }
}
