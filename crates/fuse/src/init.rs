//! What is agreed with the kernel when a mount begins.

use fuser::{Filesystem, InitFlags, KernelConfig, Request};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest write and read in one request.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Reads of pages, write-back and RELEASEs that may be under way at once: as many as there are. So many that wait for a server
/// which is away would keep all others of the mount in the kernel, and the locks that a RELEASE gives back.
const BACKGROUND_MAX: u16 = u16::MAX;
/// The same where the kernel holds data back: each request of write-back is a copy of pages, up to [`REQUEST_BYTES_MAX`], that no
/// other limit counts.
const WRITE_BACK_MAX: u16 = 128;
/// From here on the kernel reads nothing ahead that nobody has asked for. Also where these wait for a server that is away: what
/// is read ahead of others then is only what the mount reads itself.
const CONGESTED: u16 = 96;

/// Everything wanted, with the reason for it. What an older kernel lacks is left out.
const WANTED: &[InitFlags] = &[
    // Reads of one file go on side by side.
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    // Locks are the servers' business: they hold between mounts.
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
    // O_TRUNC comes with OPEN: one message instead of two, and nothing is cut if the open fails.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // Lookups of "." and ".." by inode number work, so the mount can be exported.
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    // A default ACL takes the umask's place; only the server knows whether there is one.
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_SETXATTR_EXT,
    // Cached pages go when a file's mtime or length has changed: by another mount, or by this one
    // through a handle that goes around the page cache.
    InitFlags::FUSE_AUTO_INVAL_DATA,
    // A listing always brings the attributes along: a program asks for them mostly after it has read the whole
    // directory, and a removal needs them, too. READDIRPLUS_AUTO would leave them out after the first page.
    InitFlags::FUSE_DO_READDIRPLUS,
    // Lookups and listings of one directory go on side by side.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Setuid bits and capabilities go with the write itself. Without it the kernel asks for
    // security.capability before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // A symbolic link never changes its target.
    InitFlags::FUSE_CACHE_SYMLINKS,
    // A file opened around the page cache may still be mapped.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];
// Not wanted: WRITEBACK_CACHE except for a mount alone (the kernel then ignores lengths that other
// mounts make); SPLICE (a pipe in between is slower than one copy into an aligned buffer);
// NO_OPEN and NO_OPENDIR (an open asks what changed); EXPLICIT_INVAL_DATA (nobody would
// tell the kernel of another mount's writes); HANDLE_KILLPRIV (the second version replaces it);
// SECURITY_CTX, SUBMOUNTS, DAX, PASSTHROUGH (nothing here uses them).

/// Answers INIT; everything after it is read by [`crate::dispatch`].
#[derive(Debug)]
pub struct Handshake {
    /// Let the kernel keep written data back.
    pub writeback: bool,
    /// Set if the kernel can map files that go around its page cache.
    pub maps_direct: Arc<AtomicBool>,
}

impl Handshake {
    fn background_max(&self) -> u16 {
        if self.writeback { WRITE_BACK_MAX } else { BACKGROUND_MAX }
    }
}

impl Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for &flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "this kernel lacks a capability");
            } else if flag == InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP {
                self.maps_direct.store(true, Ordering::Relaxed);
            }
        }
        if self.writeback && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
            let text = "this kernel has no write-back cache for FUSE; mount without writeback";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let refused = |nearest: u32| io::Error::other(format!("request size refused: {nearest}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(refused)?;
        let limit = |what: u16| io::Error::other(format!("limit of requests refused: {what}"));
        config.set_max_background(self.background_max()).map_err(limit)?;
        config.set_congestion_threshold(CONGESTED).map_err(limit)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There could be as many as there are, and where a server was slow, copies of pages took all of the machine's memory.
    #[test]
    fn of_what_a_kernel_holds_back_little_is_under_way() {
        let most =
            |writeback| Handshake { writeback, maps_direct: Arc::default() }.background_max();
        assert_eq!((most(true), most(false)), (WRITE_BACK_MAX, BACKGROUND_MAX));
    }
}
