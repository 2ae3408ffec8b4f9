//! The operations, one file each. A mutation reads: check, read, decide, write, reply.

pub(crate) mod create;
pub(crate) mod getattr;
pub(crate) mod lookup;
pub(crate) mod open;
pub(crate) mod readdir;
pub(crate) mod sessions;
pub(crate) mod unlink;

mod names;
mod open_file;
mod orphan;
