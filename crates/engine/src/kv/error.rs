//! What can go wrong in an engine.

use super::moved::Moved;

/// The result of every call of an engine.
pub type Result<T, E = KvError> = std::result::Result<T, E>;

/// What to do about [`KvError::Full`] where it is a disk that is full.
pub const FREE_DISK: &str = "free some on its disk and try again";

/// A failure of the store itself; a conflict is not one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KvError {
    /// The store on disk is damaged.
    #[error(
        "metadata store {store} is corrupt: {cause}; start its server again, and if that finds the same, keep the directory, \
         and restore it from a backup (recover.md)"
    )]
    Corrupt {
        /// Where it lies.
        store: String,
        /// What was found.
        cause: String,
    },
    /// The disk under the store is full, or what the database may take of it.
    #[error("metadata store {store}: no space left; {next}")]
    Full {
        /// Where it lies.
        store: String,
        /// What to do.
        next: &'static str,
    },
    /// Another process has it open.
    #[error(
        "metadata store {store} is in use by another process (fuser -v {store} names it); stop it or choose another --data"
    )]
    InUse {
        /// Where it lies.
        store: String,
    },
    /// It was written by a newer release.
    #[error(
        "metadata store {store} has format {found}, this release reads up to {known}; install the newer release"
    )]
    Newer {
        /// Where it lies.
        store: String,
        /// Version found.
        found: u32,
        /// Newest version known.
        known: u32,
    },
    /// It was written by an older release, in a format that is no longer read.
    #[error(
        "metadata store {store} has format {found}, this release reads only {known}; copy its files out with the older release"
    )]
    Older {
        /// Where it lies.
        store: String,
        /// Version found.
        found: u32,
        /// Oldest version known.
        known: u32,
    },
    /// It was made by another engine.
    #[error(
        "metadata store {store} was made by engine {found}, not {wanted}; use --engine {found}"
    )]
    OtherEngine {
        /// Where it lies.
        store: String,
        /// Engine that made it.
        found: String,
        /// Engine asked for.
        wanted: &'static str,
    },
    /// An earlier write failed; nothing more is accepted until a restart.
    #[error(
        "metadata store {store} stopped after an I/O error ({cause}); restart its server (what was synced is on its disk), \
         and look at that disk (dmesg, smartctl) if it stops again"
    )]
    Poisoned {
        /// Where it lies.
        store: String,
        /// The first error.
        cause: String,
    },
    /// Another I/O error.
    #[error("metadata store {store}: {cause}")]
    Io {
        /// Where it lies.
        store: String,
        /// The error.
        cause: String,
    },
    /// The database server does not answer, or has no connection to spare. Nothing was written.
    #[error(
        "metadata store {store} cannot be reached: {cause}; see that the database is up and whole, and that --meta is right"
    )]
    Unreachable {
        /// Where it is.
        store: String,
        /// What was tried and how it failed.
        cause: String,
    },
    /// The database server answers, and does not let us do what has to be done. Nothing was written.
    #[error("metadata store {store}: {cause}; {next}")]
    Refused {
        /// Where it is.
        store: String,
        /// What it said.
        cause: String,
        /// What to do.
        next: String,
    },
    /// What a snapshot shows is not kept any longer. A new snapshot shows what is there now.
    #[error(
        "metadata store {store}: what was being read is older than the database keeps ({cause}); try again"
    )]
    Expired {
        /// Where it is.
        store: String,
        /// What it said.
        cause: String,
    },
    /// The database holds what another server keeps.
    #[error(
        "metadata store {store} holds the metadata of another server ({owner}); give this one a database of its own, \
         or restore the data directory that belongs to it"
    )]
    OtherOwner {
        /// Where it is.
        store: String,
        /// The store's id, and the host that made it.
        owner: String,
    },
    /// What we wrote is written by another server now, or by a later start of this one.
    #[error("metadata store {store} was taken over by a server on {by}")]
    TakenOver {
        /// Where it is.
        store: String,
        /// The host of the other.
        by: String,
    },
    /// An import has closed it: another store has taken its place.
    #[error("this {store} store is closed: {moved}; {}", moved.next())]
    Moved {
        /// Its engine.
        store: String,
        /// Where to.
        moved: Box<Moved>,
    },
}
