//! The FUSE door: a volume as a directory that any program uses.
//!
//! A request of the kernel is read from `/dev/fuse` ([`device`], into a buffer of [`buffer`]),
//! understood ([`request`]), carried out by the [`door`] as one call of the client, and answered
//! ([`reply`]). [`dispatch`] owns the threads: an operation that need not wait is answered where it
//! was read, any other from the runtime, so nothing blocks a reading thread. [`interrupt`] ends waits
//! of processes that got a signal. [`errno`] is the only place where errors have numbers.
//!
//! The `fuser` crate mounts, negotiates ([`init`]) and unmounts. Requests themselves are read here,
//! because three things that Strake needs do not pass through its `Filesystem` trait: data of a write
//! in a buffer that can be kept (instead of a copy), the interrupt of a waiting request, and
//! whether a lock is an flock. With them come O_TMPFILE, statx and copies of more than 4 GiB.
//!
//! * [`mod@mount`] — mount points: checks, mounting, unmounting, and what happens if we are killed.
//! * [`options`] — the words after `-o`.
//! * [`prefetch`] — a process beside the mount that has the kernel read parts of files as a whole.
//! * [`handles`], [`metrics`], [`abi`] — open files by number; counters; the kernel's structures.
//!
//! What this crate never does: keep a cache, decide what an operation means, or talk to a server.

// What is answered from memory pays for each byte of its future: docs/design/0025.
#![cfg_attr(not(test), warn(clippy::large_futures))]

pub mod abi;
pub mod buffer;
pub mod device;
pub mod dispatch;
pub mod door;
pub mod errno;
pub mod handles;
pub mod init;
pub mod interrupt;
pub mod metrics;
pub mod mount;
pub mod options;
pub mod prefetch;
pub mod reply;
pub mod request;

pub use door::FuseDoor;
pub use mount::{MountHandle, Unmount, mount, remount, unmount};
pub use options::MountOptions;
