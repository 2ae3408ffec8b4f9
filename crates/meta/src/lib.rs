//! The metadata server: names and attributes of volumes, on any store that meets `engine::kv`.
//!
//! A request comes in through [`MetaService::call`](strake_wire::service::MetaService). The server
//! finds the volume and the session, and hands the operation to its file under `ops`. A read looks
//! into the caches and then into one snapshot of the store. A mutation takes the locks of the inodes
//! it touches, reads, decides, writes one transaction and replies when that is committed: what
//! has been acknowledged survives the death of the process.
//!
//! * `server`, `options` — start, dispatch, stop; limits and times.
//! * `keys`, `records` — how everything is laid down; docs/FORMATS.md has the tables.
//! * `forms` — the same, for those who test decoders.
//! * `ctx`, `view`, `txn` — what a request brings along; its view of the volume; how a mutation is
//!   carried out once: locks, retries, lost answers, the ledger.
//! * `merge`, `merge_queue` — changes of names that wait for the same directory are carried out together.
//! * `loans`, `lend`, `borrow`, `kept_loans` — changes of several shares of a volume: what their servers lend to each other
//!   meanwhile.
//! * `ops` — the operations of POSIX, one file each.
//! * `contents` — small files inside the inode; cutting and deleting chunks on storage servers.
//! * `groups` — calls to groups of targets, which go on with another member where the primary hangs.
//! * `check` — whether all of it fits together, while it is in use.
//! * `locks` — locks of operations on inodes; locks of applications on files.
//! * `leases` — what clients may believe without asking, and how it is taken back before a change.
//! * `visit` — who comes to a directory of which another client changes names before it says so waits for that.
//! * `sharing`, `claims` — files that several have open: who may hold back what he has written to them.
//! * `session`, `ledger` — who is connected, what he holds open, which replies he may ask for again.
//! * `upkeep`, `lost_sessions` — what is looked after all the time: volumes, expired sessions, counts.
//! * `lengths` — how long a file may be, and how long those of lost clients are.
//! * `past_end`, `refused` — what targets have behind the ends of files because the store was full.
//! * `occupied`, `uncounted` — how much files occupy where no client can tell; `in_turn` — how the files of these lists come to their turn.
//! * `patience` — how long targets are waited for by who asks them about many files.
//! * `hearing` — since when clients are heard: who could not be heard is not silent; `reach` — whether the database is reached.
//! * `losses` — how often a loss of power may have taken what clients had been told.
//! * `reaper` — what is done later and may wait for storage servers: deleting files without a name, deleted volumes.
//! * `chores` — which volumes have such work, and how far their queues were gone through.
//! * `stop` — how background tasks are told to end.
//! * `count` — what a volume holds, counted anew where nobody knows it.
//! * `recopy`, `recopies` — files there are get another number of copies.
//! * `full` — which groups new files leave out.
//! * `cache`, `places`, `core`, `stored`, `volume`, `own`, `cluster`, `metrics`, `layout`, `attributes` — what those share.
//!
//! What this crate never does: touch the contents of a large file (clients and storage servers do),
//! wait while it holds nothing but the store (embedded stores answer at once), or trust a client's
//! word on permissions unless its kernel has checked them (`Credentials::checked`). It does not
//! update atime on reads: clients that want it set it.

mod attributes;
mod borrow;
mod cache;
mod check;
mod chores;
mod claims;
mod cluster;
mod contents;
mod core;
mod count;
mod ctx;
mod forms;
mod full;
mod groups;
mod hearing;
mod in_turn;
mod kept_loans;
mod keys;
mod layout;
mod leases;
mod ledger;
mod lend;
mod lengths;
mod loans;
mod locks;
mod losses;
mod lost_sessions;
mod merge;
mod merge_queue;
mod metrics;
mod occupied;
mod ops;
mod options;
mod own;
mod past_end;
mod patience;
mod places;
mod reach;
mod reaper;
mod recopies;
mod recopy;
mod records;
mod refused;
mod server;
mod session;
mod sharing;
mod stop;
mod stored;
#[cfg(test)]
mod tests;
mod txn;
mod uncounted;
mod upkeep;
mod view;
mod visit;
mod volume;

pub use forms::FORMS;
pub use options::MetaOptions;
pub use server::MetaServer;
