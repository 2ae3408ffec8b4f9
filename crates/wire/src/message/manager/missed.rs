//! Members that do not take what their primaries send them, and what follows from it.

use prost::Message;
use std::collections::BTreeMap;

/// No more of them are told at once.
pub const MISSED_MAX: usize = 64;
/// Nor are more members of one server asked to resign at once.
pub const RESIGNS_MAX: usize = 256;

/// The first of each kind, then the second of each, and so on: where there is no place for all, one kind of which there are very many
/// hides no other.
pub fn by_turns<T, K: Ord>(all: Vec<T>, kind: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen: BTreeMap<K, usize> = BTreeMap::new();
    let numbered = all.into_iter().map(|one| {
        let turn = seen.entry(kind(&one)).or_default();
        *turn += 1;
        (*turn, one)
    });
    let mut numbered: Vec<(usize, T)> = numbered.collect();
    numbered.sort_by_key(|(turn, _)| *turn);
    numbered.into_iter().map(|(_, one)| one).collect()
}

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

/// A member of a group whose primary is to ask it in this epoch whether it is there, and to tell of it if not ([`Missed`]): its server
/// does not reach that of the primary, and whether it is so the other way round nobody has had to find out.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Doubt {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// Its epoch.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The member.
    #[prost(uint32, tag = "3")]
    pub member: u32,
    /// The primary.
    #[prost(uint32, tag = "4")]
    pub primary: u32,
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
