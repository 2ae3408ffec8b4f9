//! What can go wrong with a target.

use crate::reserve::is_full;
use std::io;
use strake_base::descriptor::told;
use strake_types::{ChunkId, Error, ErrorKind};

/// The result of every call of a chunk store.
pub type Result<T, E = ChunkError> = std::result::Result<T, E>;

/// A refused or failed operation on a target. `target` is the directory it lies in.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChunkError {
    /// Stored bytes do not match their checksum.
    #[error("target {target}: {chunk} is damaged at byte {offset}; restore the file from a backup")]
    Corrupt {
        /// Where the target lies.
        target: String,
        /// The chunk that is damaged.
        chunk: ChunkId,
        /// First byte of the damaged block, within the chunk.
        offset: u64,
    },
    /// The payload of a write does not match the checksum that came with it.
    #[error("{chunk}: what is to be written at byte {offset}")]
    BadPayload {
        /// The chunk addressed.
        chunk: ChunkId,
        /// Where the write begins.
        offset: u64,
    },
    /// No room.
    #[error("target {target} is full; delete files or add targets")]
    Full {
        /// Where the target lies.
        target: String,
    },
    /// An earlier write or flush failed; nothing more is accepted until a restart.
    #[error(
        "target {target} takes no writes any more ({cause}); check the disk, then restart the server"
    )]
    Poisoned {
        /// Where the target lies.
        target: String,
        /// The first error.
        cause: String,
    },
    /// Another process has it open.
    #[error(
        "target {target} is in use by another process (fuser -v {target} names it); stop it or choose another directory"
    )]
    InUse {
        /// Where the target lies.
        target: String,
    },
    /// There is no target in the directory.
    #[error("{target} holds no target; give the directory of a formatted one")]
    Missing {
        /// The directory.
        target: String,
    },
    /// There is something in the directory already.
    #[error("{target} holds a target or other files already; give an empty directory")]
    Occupied {
        /// The directory.
        target: String,
    },
    /// It was written by a newer release.
    #[error(
        "target {target} has format {found}, this release reads up to {known}; install the newer release"
    )]
    Newer {
        /// Where the target lies.
        target: String,
        /// Version found.
        found: u32,
        /// Newest version known.
        known: u32,
    },
    /// It belongs to another cluster.
    #[error(
        "target {target} belongs to cluster {found}, not {expected}; give a target of this cluster or an empty directory"
    )]
    Foreign {
        /// Where the target lies.
        target: String,
        /// Its cluster.
        found: String,
        /// The cluster asked for.
        expected: String,
    },
    /// The store's own records are damaged.
    #[error(
        "target {target} is corrupt: {cause}; start its server again, and if it finds the same, start it without this target, \
         and put another in its place: strake target replace (disks.md, A lost disk)"
    )]
    Damaged {
        /// Where the target lies.
        target: String,
        /// What was found.
        cause: String,
    },
    /// A range that no chunk can have.
    #[error("{chunk}: bytes {offset}+{len} lie outside what a chunk may hold")]
    OutOfRange {
        /// The chunk addressed.
        chunk: ChunkId,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Another I/O error.
    #[error("target {target}: {cause}")]
    Io {
        /// Where the target lies.
        target: String,
        /// The error.
        cause: String,
    },
}

impl ChunkError {
    /// Wraps an error of the disk.
    pub(super) fn io(target: &str, error: &io::Error) -> Self {
        let target = target.to_owned();
        if is_full(error) {
            return Self::Full { target };
        }
        Self::Io { target, cause: told(error) }
    }

    /// The same error in POSIX vocabulary.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ChunkError::Corrupt { .. } => ErrorKind::Corrupt,
            ChunkError::BadPayload { .. } => ErrorKind::Garbled,
            ChunkError::Full { .. } => ErrorKind::NoSpace,
            ChunkError::Poisoned { .. } => ErrorKind::Poisoned,
            ChunkError::InUse { .. } => ErrorKind::Busy,
            ChunkError::Missing { .. } => ErrorKind::NotFound,
            ChunkError::Occupied { .. } => ErrorKind::NotEmpty,
            ChunkError::Newer { .. } | ChunkError::Foreign { .. } => ErrorKind::WrongPeer,
            ChunkError::OutOfRange { .. } => ErrorKind::Invalid,
            ChunkError::Damaged { .. } | ChunkError::Io { .. } => ErrorKind::Io,
        }
    }
}

impl From<ChunkError> for Error {
    fn from(error: ChunkError) -> Self {
        Error::with(error.kind(), error.to_string())
    }
}
