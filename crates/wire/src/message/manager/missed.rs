//! Members that do not take what their primaries send them, and what follows from it.

use prost::Message;

/// No more of them are told at once.
pub const MISSED_MAX: usize = 64;
/// Nor are more members of one server asked to resign at once.
pub const RESIGNS_MAX: usize = 256;

/// A member for which the changes of a group have waited for some seconds, as the primary's server says it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Missed {
    /// The group,
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// and its epoch.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The member.
    #[prost(uint32, tag = "3")]
    pub member: u32,
    /// For how many ms it has taken nothing.
    #[prost(uint64, tag = "4")]
    pub for_ms: u64,
    /// It does not say that it is there, either: it is not just slow.
    #[prost(bool, tag = "5")]
    pub silent: bool,
    /// The primary has acknowledged what others may not have, or does not know yet whether it has: it cannot go in the member's place.
    #[prost(bool, tag = "6")]
    pub early: bool,
}

/// A member that is to answer nobody any more in this epoch of a group, and to say so
/// ([`Resynced::hangs`](super::Resynced::hangs)): its server and that of another member do not reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Resign {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// Its epoch.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The member.
    #[prost(uint32, tag = "3")]
    pub member: u32,
}

/// A member that is missed by a primary in some group, for people.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MissedBy {
    /// The member.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// The primary.
    #[prost(uint32, tag = "2")]
    pub primary: u32,
    /// For how many ms it has taken nothing at most.
    #[prost(uint64, tag = "3")]
    pub for_ms: u64,
    /// See [`Missed::silent`].
    #[prost(bool, tag = "4")]
    pub silent: bool,
    /// Nobody waits for it: it was taken out of the groups for that, and is back when the primary reaches it.
    #[prost(bool, tag = "5")]
    pub left: bool,
}
