//! The reference model: a POSIX file system in memory, in a few hundred lines that anyone can check
//! by reading.
//!
//! A test makes a random sequence of operations ([`Op`]), applies each to a [`Model`] and to what is
//! tested, and compares the two [`Outcome`]s. The model is the oracle: where they differ, one of them
//! breaks a clause of docs/SEMANTICS.md. The order in which errors are found is that of Linux.
//!
//! * [`op`] — the operations and outcomes; [`apply`] — how the model carries them out.
//! * [`tree`] — directories, links, renames, open handles; [`inode`] — one inode.
//! * [`access`] — who may do what: mode bits, sticky, set-id rules.
//! * [`bytes`] — sparse contents.
//! * [`history`] — whether what several clients were told can have happened one after the other.
//!
//! What the model never does: keep time (a time is known only after it was set), fail for want of
//! space or servers, or share a line of code with what it judges, `types` aside.

pub mod access;
pub mod apply;
pub mod bytes;
pub mod history;
pub mod inode;
pub mod op;
pub mod tree;

pub use op::{Filler, Op, OpenFlags, Outcome, Stat};
pub use tree::Model;

#[cfg(test)]
mod tests;
