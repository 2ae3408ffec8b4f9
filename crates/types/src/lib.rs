//! The vocabulary of Strake: ids, attributes, errors, layouts and their arithmetic.
//!
//! Everything above speaks in these words. Nothing here does I/O, reads a clock or keeps state: a
//! value goes in, a value comes out, so every rule in this crate can be tested by itself.
//!
//! * [`form`] — what all decoders have in common, for those who test them.
//! * [`ids`] — a newtype for every number that names something.
//! * [`access`] — who may do what: the permission rules of POSIX as pure functions.
//! * [`acl`] — access control lists and their binary form.
//! * [`attr`] — what `stat` shows of an inode, and what `setattr` may change.
//! * [`error`] — errors in POSIX vocabulary, with what the caller should do about them.
//! * [`layout`] — which chunk of a file lies in which group: pure arithmetic, no table per file.
//! * [`layout_text`] — layouts as people write them.
//! * [`name`] — what a directory entry may be called.
//! * [`same_targets`] — which groups with other copies lie where given ones do.
//! * [`shares`] — the shares of a volume, and which inode is in which.
//! * [`size`] — sizes and counts as people write and read them.
//! * [`limits`] — the bounds that every layer keeps.
//!
//! What this crate never does: name a numeric errno (doors do that) or know how a value is stored
//! or sent (`engine` and `wire` do that).

pub mod access;
pub mod acl;
pub mod attr;
pub mod consistency;
pub mod error;
pub mod form;
pub mod ids;
pub mod layout;
pub mod layout_text;
pub mod limits;
pub mod name;
pub mod safety;
pub mod same_targets;
pub mod shares;
pub mod size;

pub use attr::{Attr, Credentials, FileKind, SetAttr, SetTime, Timestamp};
pub use consistency::Consistency;
pub use error::{Error, ErrorKind, Result};
pub use ids::{
    Boot, ChunkId, ChunkIndex, Epoch, GroupId, Ino, Seq, ServerId, SessionId, TargetId, VolumeId,
};
pub use layout::{Distribution, Layout, Piece};
pub use safety::{Ack, Safety};
pub use shares::Shares;

/// The type of our mounts in the kernel's table.
pub const FILE_SYSTEM_TYPE: &str = "fuse.strake";
