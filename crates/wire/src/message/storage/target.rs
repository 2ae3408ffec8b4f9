//! What is asked of targets as such: how they are, and that there be a new one.

use prost::Message;

/// See [`super::StorageOp::Stat`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TargetStatRequest {}

/// See [`super::StorageAnswer::Stat`].
#[derive(Clone, PartialEq, Message)]
pub struct TargetStat {
    /// Bytes the target may hold.
    #[prost(uint64, tag = "1")]
    pub total_bytes: u64,
    /// Bytes still free for new data.
    #[prost(uint64, tag = "2")]
    pub free_bytes: u64,
    /// Chunks stored.
    #[prost(uint64, tag = "3")]
    pub chunks: u64,
    /// Checksum mismatches found since the start.
    #[prost(uint64, tag = "4")]
    pub corrupt: u64,
    /// Not empty: the target takes no writes, and why.
    #[prost(string, tag = "5")]
    pub poisoned: String,
}

/// See [`super::StorageOp::AddTarget`].
#[derive(Clone, PartialEq, Message)]
pub struct AddTarget {
    /// The directory, absolute, on the server.
    #[prost(string, tag = "1")]
    pub dir: String,
    /// Only look whether it could be added.
    #[prost(bool, tag = "2")]
    pub dry_run: bool,
}

/// See [`super::StorageAnswer::Added`].
#[derive(Clone, PartialEq, Message)]
pub struct Added {
    /// Its number; 0: it was only looked at.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// Where it lies.
    #[prost(string, tag = "2")]
    pub path: String,
    /// Bytes that its disk may hold.
    #[prost(uint64, tag = "3")]
    pub total_bytes: u64,
    /// Bytes free there.
    #[prost(uint64, tag = "4")]
    pub free_bytes: u64,
    /// Other targets of the server on the same disk.
    #[prost(uint32, repeated, tag = "5")]
    pub beside: Vec<u32>,
}
