//! Files on one disk, real, simulated, slower than it is, or one that stops answering; and whether it answers.
//!
//! A [`Disk`] is a directory. What is written is visible at once, survives the death of the process,
//! and is lost or torn by a power loss until [`DiskFile::sync`] (for contents) or
//! [`Disk::sync_directory`] (for names) has returned.

mod counted;
mod held;
mod mounting;
mod probe;
mod real;
pub mod sim;
mod slow;

pub use counted::{Calls, CountedDisk};
pub use held::HeldDisk;
pub use probe::{Probe, Prober};
pub use real::RealDisk;
pub use slow::{SlowDisk, TokenBucket};

use std::io;
use std::sync::Arc;

/// Where the directory of an open [`Disk`] is. Sent: never give a number another meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Place {
    /// Where it was opened.
    #[default]
    Same = 0,
    /// Its path leads nowhere, or to another directory: it was moved, or its file system was unmounted (which lets go on who has it
    /// open) or covered by another one. What is in it is found again when that is undone.
    Elsewhere = 1,
    /// It was removed: what is in it is gone when it is closed.
    Removed = 2,
}

/// A directory of files on one disk.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file for reading and writing; `create` makes it if it is missing.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file over another.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes creations, removals and renames durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// Takes an exclusive lock on the directory, held until the value is dropped.
    /// [`io::ErrorKind::WouldBlock`] if another process (or instance) holds it.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;
    /// Bytes of the whole disk and bytes free.
    fn space(&self) -> io::Result<(u64, u64)>;
    /// Differs after what the kernel held and had not written may be gone: after each power loss, and, as far as that can be known, after
    /// the file system was unmounted. Else it stays. Of at most 36 bytes.
    fn boot_id(&self) -> io::Result<String>;
    /// Whether it differs after the file system was unmounted, too. Else what was not synced may be gone with an unmount that nobody notices.
    fn knows_unmounts(&self) -> io::Result<bool>;
    /// Differs between a file and any copy of it, and stays while the file lives.
    fn birth(&self, name: &str) -> io::Result<u64>;
    /// Whether the directory is still where it was opened. May wait for any disk on the way there.
    fn place(&self) -> io::Result<Place>;
    /// The directory, for messages.
    fn path(&self) -> String;
    /// What can be asked whether the disk answers, by reading a file of this name that is for nothing else, and made if it is missing.
    /// `None`, as by default: nothing can be read there past all memory.
    fn probe(&self, _name: &str) -> io::Result<Option<Box<dyn Probe>>> {
        Ok(None)
    }
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills `buf` from `offset`; an error if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// As [`DiskFile::read_exact_at`], but only if no disk has to be waited for; false (and `buf`
    /// undefined) if one has.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<bool>;
    /// Writes all of `data` at `offset`.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
    /// As [`DiskFile::sync`], and what is read next comes from the disk. After a sync has failed the kernel shows as written what
    /// the disk does not have.
    fn reread(&self) -> io::Result<()>;
    /// Asks the kernel to begin writing a range to disk; does not wait. A hint.
    fn start_writeback(&self, offset: u64, len: u64);
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True if it holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Sets the length; new bytes are zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves disk space for a range, so that writing there cannot fail for lack of room.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Gives the space of a range back; it reads as zeros.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
}
