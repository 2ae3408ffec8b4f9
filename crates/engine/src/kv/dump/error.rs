//! Why a store could not be moved.

use crate::kv::KvError;
use std::path::{Path, PathBuf};

/// The result of moving a store.
pub type Result<T, E = DumpError> = std::result::Result<T, E>;

/// Why a store could not be moved: the cause, with what, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DumpError {
    /// The file cannot be read or written.
    #[error("{}: {cause}; see that its directory is there and its disk sound", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The disk of the file is full.
    #[error(
        "{}: no space left on its disk; make room there and give the same command again, which goes on where this one ends",
        path.display()
    )]
    Full {
        /// Which file.
        path: PathBuf,
    },
    /// There is a file of that name.
    #[error("{} is there already; name a file that is not, or remove that one", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// It is another kind of file.
    #[error(
        "{} is no export of a metadata store; name a file that strake meta export has written",
        path.display()
    )]
    NoExport {
        /// Which.
        path: PathBuf,
    },
    /// It was written by a newer release.
    #[error(
        "{} has format {found}, this release reads up to {known}; install the newer release, or export with this one",
        path.display()
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version known.
        known: u32,
    },
    /// The file is not what an export has written.
    #[error("{} is damaged at byte {at}: {cause}; take another copy of it, or export again", path.display())]
    Corrupt {
        /// Which.
        path: PathBuf,
        /// Where the part begins in which it was found.
        at: u64,
        /// What was found.
        cause: String,
    },
    /// Another file has its name since it was verified.
    #[error("{} has changed meanwhile; give the same command again", path.display())]
    Exchanged {
        /// Which.
        path: PathBuf,
    },
    /// An import into the store was begun and did not end.
    #[error(
        "the {store} store holds a part of an import; give that strake meta import again, or name the store that this server had before"
    )]
    Unfinished {
        /// Its engine.
        store: &'static str,
    },
    /// There is no number for the file.
    #[error("random numbers: {cause}")]
    Random {
        /// Why.
        cause: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] KvError),
    /// There is something in the store already.
    #[error("the {store} store is not empty; import into a new one")]
    NotEmpty {
        /// Its engine.
        store: &'static str,
    },
    /// Another import into the store was begun.
    #[error(
        "the import of another file into the {store} store was begun; go on with that file, or import into a new store"
    )]
    OtherImport {
        /// Its engine.
        store: &'static str,
    },
    /// Somebody else writes to the store.
    #[error(
        "somebody else writes to the {store} store; stop that server, then give the same command again"
    )]
    InUse {
        /// Its engine.
        store: &'static str,
    },
    /// What was written is not what is there.
    #[error(
        "the {store} store does not hold what the file does, from the key {key} on; check its disk, then import into a new store"
    )]
    Differs {
        /// Its engine.
        store: &'static str,
        /// In hex.
        key: String,
    },
}

/// Says with which file an error happened.
pub fn with(path: &Path) -> impl Fn(std::io::Error) -> DumpError {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    move |error| match error.kind() {
        StorageFull | QuotaExceeded => DumpError::Full { path: path.to_owned() },
        _ => DumpError::Io { path: path.to_owned(), cause: error.to_string() },
    }
}
