//! What `stat` shows of an inode.

use crate::{Ino, Layout};

/// Seconds and nanoseconds since 1970-01-01 UTC. Negative seconds are before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, 0..1,000,000,000.
    pub nanos: u32,
}

/// The seven kinds of file POSIX knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A Unix socket's name.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => FileKind::File,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: `0o7777` at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links; for a directory 2 + its subdirectories.
    pub nlink: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Length in bytes. A directory's is the number of its entries times a nominal size.
    pub length: u64,
    /// Bytes occupied, as far as known to the metadata server.
    pub occupied: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Grows with every change of the inode; tells caches whether what they hold is still true.
    pub version: u64,
    /// True where the contents lie inside the inode and not in chunks.
    pub inline: bool,
    /// Where the contents lie (a regular file), or what children inherit (a directory).
    pub layout: Option<Layout>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// What `setattr` changes; `None` leaves a field alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length.
    pub length: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time (only the kernel's write-back cache sends one).
    pub ctime: Option<Timestamp>,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Effective (file system) user id.
    pub uid: u32,
    /// Effective (file system) group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The mount's kernel has checked permissions already (`default_permissions`).
    pub checked: bool,
}

impl Credentials {
    /// Root, unrestricted.
    pub fn root() -> Self {
        Self::default()
    }

    /// True if the caller belongs to the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
