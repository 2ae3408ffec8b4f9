//! Messages about damaged chunks.

use super::Chunk;
use prost::Message;

/// What a change has made zeros at a member, or taken away. See [`super::UnsettledList`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Hole {
    /// Reign of the change,
    #[prost(uint64, tag = "1")]
    pub reign: u64,
    /// and its number.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The chunk where it begins,
    #[prost(message, required, tag = "3")]
    pub from: Chunk,
    /// and at which byte of it.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// Number of bytes; absent: everything of the file from there on.
    #[prost(uint64, optional, tag = "5")]
    pub bytes: Option<u64>,
}

/// See [`super::StorageOp::Lose`].
#[derive(Clone, PartialEq, Message)]
pub struct LostBlocks {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Chunk,
    /// Blocks within its length, ascending.
    #[prost(uint32, repeated, tag = "2")]
    pub blocks: Vec<u32>,
    /// CRC32C of what each held.
    #[prost(fixed32, repeated, tag = "3")]
    pub crcs: Vec<u32>,
}

/// See [`super::StorageOp::Repair`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Repair {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Chunk,
    /// What has met the damage: 0 a read, 1 a change, 2 a resync, 3 a scrub. Only counted.
    #[prost(uint32, tag = "2")]
    pub met_by: u32,
}

/// Some blocks of a chunk. See [`super::StorageAnswer::Damage`] and [`super::BlockSums`].
#[derive(Clone, PartialEq, Message)]
pub struct BlockList {
    /// Numbers of blocks within the chunk, ascending.
    #[prost(uint32, repeated, tag = "1")]
    pub blocks: Vec<u32>,
}

/// See [`super::StorageAnswer::Repaired`].
#[derive(Clone, PartialEq, Message)]
pub struct Repaired {
    /// Blocks that were repaired, at all members together.
    #[prost(uint64, tag = "1")]
    pub blocks: u64,
    /// Blocks that are damaged at every member in sync, ascending.
    #[prost(uint32, repeated, tag = "2")]
    pub lost: Vec<u32>,
}

/// See [`super::StorageOp::Compare`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Compare {
    /// Begin after this chunk; absent: at the first.
    #[prost(message, optional, tag = "1")]
    pub after: Option<Chunk>,
    /// Members whose copy differs get the primary's.
    #[prost(bool, tag = "2")]
    pub repair: bool,
}

/// See [`super::StorageAnswer::Compared`].
#[derive(Clone, PartialEq, Message)]
pub struct Compared {
    /// Where to go on; absent: the end was reached.
    #[prost(message, optional, tag = "1")]
    pub next: Option<Chunk>,
    /// Chunks compared.
    #[prost(uint64, tag = "2")]
    pub chunks: u64,
    /// Chunks of which copies differ, or did before they were repaired.
    #[prost(message, repeated, tag = "3")]
    pub different: Vec<Chunk>,
    /// The member of each whose copy differs from the primary's.
    #[prost(uint32, repeated, tag = "4")]
    pub members: Vec<u32>,
    /// Whether each could not be repaired, although that was asked for.
    #[prost(bool, repeated, tag = "5")]
    pub left: Vec<bool>,
}

/// See [`super::StorageAnswer::Census`]. One chunk, group and length per place.
#[derive(Clone, PartialEq, Message)]
pub struct CensusPage {
    /// Chunks, in the order of the target.
    #[prost(message, repeated, tag = "1")]
    pub chunks: Vec<Chunk>,
    /// Their groups.
    #[prost(uint32, repeated, tag = "2")]
    pub groups: Vec<u32>,
    /// Their lengths in bytes.
    #[prost(uint64, repeated, tag = "3")]
    pub lens: Vec<u64>,
    /// Where to go on; absent: the end was reached.
    #[prost(message, optional, tag = "4")]
    pub next: Option<Chunk>,
}
