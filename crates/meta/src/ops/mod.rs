//! The operations, one file each. A mutation reads: check, read, decide, write, reply.

pub(crate) mod behind;
pub(crate) mod claim;
pub(crate) mod clients;
pub(crate) mod create;
pub(crate) mod describe;
pub(crate) mod getattr;
pub(crate) mod getxattr;
pub(crate) mod link;
pub(crate) mod listxattr;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod move_out;
pub(crate) mod open;
pub(crate) mod publish;
pub(crate) mod read_inline;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod recalls;
pub(crate) mod removexattr;
pub(crate) mod rename;
pub(crate) mod sessions;
pub(crate) mod setattr;
pub(crate) mod settle;
pub(crate) mod setxattr;
pub(crate) mod sync;
pub(crate) mod template;
pub(crate) mod unlink;
pub(crate) mod volume_stat;
pub(crate) mod write_inline;

mod names;
mod open_file;
pub(crate) mod orphan;
mod privileges;
mod xattr_space;
