//! The client of Strake: every operation of a file system, carried out on servers.
//!
//! A door (FUSE, the native library) holds a [`Volume`] and calls one method per operation. Names
//! and attributes go to the metadata server; contents go straight to the targets that hold them,
//! because where a byte lies is arithmetic on the file's layout.
//!
//! What is shared by all handles of a file in this mount is one [`file::FileState`]: the length as
//! this mount knows it, the contents of a small file, data that is written but not yet sent
//! (write-behind), data that is being sent, and data fetched ahead. So a read always sees what was
//! written before through the same mount, and the servers see large requests, on all targets at once.
//!
//! * [`api`] — what the doors pass in and get back.
//! * [`volume`] — opening and closing a volume, its background task.
//! * [`ops`] — one file per family of operations.
//! * [`mod@file`] — the contents of open files: write-behind, read-ahead, flush, publish.
//! * [`route`] — from a piece of a file to the server that holds it, with retries within a time limit (`patience`), of
//!   which people are told ([`strake_wire::waits`]).
//! * `changes` — what the metadata server changes, once; `behind`, changes of names that are answered before they are sent.
//! * `copies`, `members` — groups of several members: fail-over, and which member answers a read.
//! * [`session`] — what makes the metadata server remember our open files, locks and mutations.
//! * `leases` — what the metadata server has leased to this mount, with `names`, `notes` of what was taken
//!   back, `told`, what answers say, and `moments`, for which a kernel believes names.
//! * `kept` — what targets have acknowledged, for whoever reads it next through this mount; `contents`, whether that is true still.
//! * `unsynced` — what targets have acknowledged and not made durable, and how a loss is noticed.
//! * `listings` — of directories, for whoever lists one again.
//! * `memory` — the bound on what all of this may hold; `room`, who holds what is written.
//! * `pace` — how quick each group is; `works`, which servers are at work on what takes long; `inodes`, what is known of files that are not open.
//!
//! What this crate never does: know an engine or a server's inside, name a numeric errno, or block
//! a thread. Every method is a future that is ready at its first poll unless a server far away, a
//! full buffer or a lock makes it wait; no lock is held across a wait.

// What is answered from memory pays for each byte of its future: docs/design/0025.
#![cfg_attr(not(test), warn(clippy::large_futures))]

pub mod api;
mod behind;
mod changes;
mod contents;
mod copies;
pub mod file;
mod inodes;
mod kept;
mod leases;
mod listings;
mod members;
mod memory;
mod metrics;
mod moments;
mod names;
mod notes;
pub mod ops;
mod pace;
mod patience;
mod remote;
mod room;
mod route;
mod session;
mod share;
mod told;
mod unsynced;
pub mod volume;
mod works;

pub use api::{
    ChunkView, Chunks, Entry, FallocateMode, LayoutView, LockKind, LockRequest, NewFile, OpenFlags,
    Page, ReadData, RenameFlags, SeekTo, VolumeOptions, VolumeSpace, Written, XattrFlags,
};
pub use file::OpenFile;
pub use leases::Believer;
pub use volume::Volume;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
