//! What a walk and a copy need to know of a file, here or in a volume.

use strake_types::{Attr, FileKind, Timestamp};

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Length in bytes.
    pub length: u64,
    /// Bytes occupied.
    pub occupied: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
    /// Number of the inode.
    pub ino: u64,
    /// What it lies on, as this machine numbers it; 0 in a volume.
    pub device: u64,
    /// True if it surely has neither extended attributes nor ACLs.
    pub no_xattrs: bool,
}

impl From<&Attr> for Info {
    fn from(attr: &Attr) -> Self {
        Info {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            rdev: attr.rdev,
            length: attr.length,
            occupied: attr.occupied,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            ino: attr.ino.0,
            device: 0,
            no_xattrs: attr.no_xattrs,
        }
    }
}
