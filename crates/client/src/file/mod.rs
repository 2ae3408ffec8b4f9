//! Open files and their contents.
//!
//! All handles of a file in this mount share one [`FileState`]. A write goes into the inline
//! contents or into [`dirty`] extents; senders move extents to the list of what is being sent and
//! from there to the targets; a read looks into both before it asks a target. Overlapping writes are
//! never under way together, so the later one wins.

pub(crate) mod ahead;
mod allocate;
mod claims;
mod copy;
pub(crate) mod deferred;
pub(crate) mod dense;
pub(crate) mod dirty;
mod failure;
mod flush;
mod handles;
mod holes;
mod in_vain;
pub(crate) mod inline;
mod life;
mod open;
mod parts;
mod privileges;
mod read;
mod resize;
mod rest;
mod runs;
mod send;
pub(crate) mod shared;
mod state;
mod sync;
mod unpublished;
mod write;

#[cfg(test)]
pub(crate) use flush::Tell;
pub(crate) use in_vain::OrderInVain;
pub(crate) use life::{Life, Rights};
pub use open::OpenFile;
pub(crate) use open::Opening;
pub(crate) use state::{Core, FileState};
