//! The native library: volumes for programs that need no mount.
//!
//! [`Clients`] holds the volumes a program uses, opened at first use from the addresses in a
//! [`Location`]. [`copy`](copy()) moves files and trees between this machine and volumes (or between
//! two volumes) with many streams and goes on where an interrupted copy ended. [`tree`] lists, counts,
//! prints and removes. What both walk over is a [`place`]: a directory here or in a volume, with the
//! same operations.
//!
//! * [`location`] — what a path on the command line means.
//! * [`clients`] — volumes by address and name; following a path to its directory.
//! * [`place`], [`info`], `attributes` — names and attributes, here or there; `local` and the client do the work.
//! * `mounts` — which file something is, also where a volume is mounted here.
//! * [`copy`](mod@copy) — planning, workers, blocks under way, partial files, progress.
//! * [`tree`] — ls, walk, du, df, rm, mkdir, cat.
//! * `failures` — entries of a tree that fail, where the others go on.
//!
//! What this crate never does: talk to a server by itself, or print.

mod attributes;
pub mod clients;
mod contents;
pub mod copy;
mod failures;
pub mod info;
mod local;
pub mod location;
mod mounts;
pub mod place;
pub mod tree;

pub use clients::Clients;
pub use copy::{CopyOptions, Incomplete, NotKept, Progress, Summary, copy};
pub use failures::{Failures, FirstOf};
pub use location::{Location, RemotePath};
