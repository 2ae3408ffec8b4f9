//! Changes of names that a client has answered already, by its exclusive leases on the directories.

use super::{Rename, Unlink};
use crate::message::common::Time;
use prost::{Message, Oneof};

/// See [`MetaOp::Behind`](super::MetaOp::Behind).
#[derive(Clone, PartialEq, Message)]
pub struct Behind {
    /// In the order in which they were answered.
    #[prost(message, repeated, tag = "1")]
    pub changes: Vec<ChangeBehind>,
}

/// One of them.
#[derive(Clone, PartialEq, Message)]
pub struct ChangeBehind {
    /// Its number in the session, as [`MetaRequest::seq`](super::MetaRequest::seq).
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// The time that it was answered with.
    #[prost(message, required, tag = "2")]
    pub at: Time,
    /// The inode that the name leads to: refused if it leads to another one.
    #[prost(uint64, tag = "3")]
    pub ino: u64,
    /// The one that the new name leads to; 0: there is no such name.
    #[prost(uint64, tag = "4")]
    pub other: u64,
    /// What is changed.
    #[prost(oneof = "NameChange", tags = "5, 6")]
    pub change: Option<NameChange>,
}

/// What may be changed behind.
#[derive(Clone, PartialEq, Oneof)]
pub enum NameChange {
    /// A name is removed.
    #[prost(message, tag = "5")]
    Unlink(Unlink),
    /// A name is moved.
    #[prost(message, tag = "6")]
    Rename(Rename),
}
