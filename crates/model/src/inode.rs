//! One inode.

use crate::bytes::SparseBytes;
use std::collections::BTreeMap;
use strake_types::{FileKind, Timestamp};

/// The root's number.
pub const ROOT: u64 = 1;

/// What an inode is, with what only that kind has.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A regular file.
    File(SparseBytes),
    /// A directory: names to inodes, and its parent.
    Directory {
        /// Its entries.
        entries: BTreeMap<String, u64>,
        /// Where it lies.
        parent: u64,
    },
    /// A symbolic link and its target.
    Symlink(String),
    /// A named pipe.
    Fifo,
}

impl Kind {
    /// An empty directory; its parent is set where it is put.
    pub fn directory() -> Self {
        Kind::Directory { entries: BTreeMap::new(), parent: ROOT }
    }

    pub(crate) fn public(&self) -> FileKind {
        match self {
            Kind::File(_) => FileKind::File,
            Kind::Directory { .. } => FileKind::Directory,
            Kind::Symlink(_) => FileKind::Symlink,
            Kind::Fifo => FileKind::Fifo,
        }
    }
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Inode {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it (files); directories count theirs when asked.
    pub(crate) links: u32,
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
}
