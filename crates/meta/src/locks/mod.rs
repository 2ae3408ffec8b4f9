//! Locks: those that operations of this server hold on inodes while they change them
//! ([`inodes`]), and those that applications hold on byte ranges ([`ranges`]).

pub(crate) mod inodes;
pub(crate) mod ranges;
