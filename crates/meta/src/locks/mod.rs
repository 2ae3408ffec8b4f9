//! Locks: those that operations of this server hold on inodes while they change them
//! ([`inodes`]), and those that applications hold on byte ranges ([`ranges`]) or wait for ([`waits`]).

pub(crate) mod inodes;
pub(crate) mod pages;
pub(crate) mod ranges;
mod waits;
