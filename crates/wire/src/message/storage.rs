//! Requests to a storage server: the contents of chunks on one target.

use prost::{Message, Oneof};
use strake_types as t;

/// A chunk's name. See [`t::ChunkId`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Chunk {
    /// Volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// Inode.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// Index of the chunk in its file.
    #[prost(uint64, tag = "3")]
    pub index: u64,
}

/// One operation on one target.
#[derive(Clone, PartialEq, Message)]
pub struct StorageRequest {
    /// The target meant.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// Epoch of the group the sender believes in.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The sender's right to do this: an encoded [`crate::capability::Capability`].
    #[prost(bytes = "bytes", tag = "3")]
    pub capability: bytes::Bytes,
    /// What to do.
    #[prost(oneof = "StorageOp", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22")]
    pub op: Option<StorageOp>,
}

/// The operations of a target.
#[derive(Clone, PartialEq, Oneof)]
pub enum StorageOp {
    /// Bytes of a chunk; what was never written reads as zeros.
    #[prost(message, tag = "10")]
    Read(Read),
    /// Writes the request's payload.
    #[prost(message, tag = "11")]
    Write(Write),
    /// Cuts a file: deletes chunks from an index on and shortens the one before.
    #[prost(message, tag = "12")]
    Truncate(Truncate),
    /// Frees or zeroes a range of a chunk.
    #[prost(message, tag = "13")]
    Punch(Range),
    /// Reserves room for a range of a chunk.
    #[prost(message, tag = "14")]
    Allocate(Range),
    /// Makes everything acknowledged for a file durable (or for all files, where ino is 0).
    #[prost(message, tag = "15")]
    Sync(FileRef),
    /// Which ranges of a chunk hold data.
    #[prost(message, tag = "16")]
    Extents(Chunk),
    /// Copies a range into a chunk of this target from a chunk on this or another target.
    #[prost(message, tag = "17")]
    Copy(Copy),
    /// The chunks of a file on this target and their stored lengths.
    #[prost(message, tag = "18")]
    Chunks(FileRef),
    /// Room, counters and state of the target.
    #[prost(message, tag = "19")]
    Stat(TargetStatRequest),
    /// Verifies the checksums of a number of chunks after a cursor.
    #[prost(message, tag = "20")]
    Scrub(Scrub),
    /// Deletes everything of a volume on this target.
    #[prost(message, tag = "21")]
    DropVolume(FileRef),
    /// Writes several parts, one after the other in the payload, to chunks of one file: each as
    /// [`StorageOp::Write`] would, in order. After an error some of them may have been written.
    #[prost(message, tag = "22")]
    WriteMany(WriteMany),
}

impl StorageOp {
    /// True for what only servers say, in the name of no client: shortening files and dropping
    /// volumes.
    pub fn is_between_servers(&self) -> bool {
        matches!(self, StorageOp::Truncate(_) | StorageOp::DropVolume(_))
    }
}

/// See [`StorageOp::Read`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Read {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Chunk,
    /// First byte within the chunk.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Number of bytes.
    #[prost(uint64, tag = "3")]
    pub len: u64,
}

/// See [`StorageOp::Write`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Write {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Chunk,
    /// First byte within the chunk.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// CRC32C of the payload, computed by the client.
    #[prost(uint32, tag = "3")]
    pub crc: u32,
}

/// See [`StorageOp::WriteMany`]. One index, offset, length and checksum per part.
#[derive(Clone, PartialEq, Message)]
pub struct WriteMany {
    /// Volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// Inode.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// Chunks.
    #[prost(uint64, repeated, tag = "3")]
    pub indices: Vec<u64>,
    /// First byte of each part within its chunk.
    #[prost(uint64, repeated, tag = "4")]
    pub offsets: Vec<u64>,
    /// Bytes of each part.
    #[prost(uint64, repeated, tag = "5")]
    pub lens: Vec<u64>,
    /// CRC32C of each part, computed by the client.
    #[prost(fixed32, repeated, tag = "6")]
    pub crcs: Vec<u32>,
}

/// See [`StorageOp::Truncate`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Truncate {
    /// Volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// Inode.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// First chunk deleted whole. 0 deletes the file's contents.
    #[prost(uint64, tag = "3")]
    pub from_index: u64,
    /// Where chunk `from_index - 1` ends from now on, if it is on this target.
    #[prost(uint64, optional, tag = "4")]
    pub last_chunk_len: Option<u64>,
}

/// A range of a chunk.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Range {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Chunk,
    /// First byte within the chunk.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Number of bytes.
    #[prost(uint64, tag = "3")]
    pub len: u64,
}

/// A file of a volume.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct FileRef {
    /// Volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// Inode; 0 means every file.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
}

/// See [`StorageOp::Copy`].
#[derive(Clone, PartialEq, Message)]
pub struct Copy {
    /// Destination, on the target addressed.
    #[prost(message, required, tag = "1")]
    pub to: Range,
    /// Source.
    #[prost(message, required, tag = "2")]
    pub from: Range,
    /// The target that holds the source.
    #[prost(uint32, tag = "3")]
    pub from_target: u32,
    /// Right to read the source.
    #[prost(bytes = "bytes", tag = "4")]
    pub from_capability: bytes::Bytes,
}

/// See [`StorageOp::Stat`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TargetStatRequest {}

/// See [`StorageOp::Scrub`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Scrub {
    /// Begin after this chunk; absent: at the first.
    #[prost(message, optional, tag = "1")]
    pub after: Option<Chunk>,
    /// Stop after about this many bytes.
    #[prost(uint64, tag = "2")]
    pub budget_bytes: u64,
}

/// The answer of a target.
#[derive(Clone, PartialEq, Message)]
pub struct StorageReply {
    /// Which answer.
    #[prost(oneof = "StorageAnswer", tags = "10, 11, 12, 13, 14, 15")]
    pub answer: Option<StorageAnswer>,
}

/// The answers of a target.
#[derive(Clone, PartialEq, Oneof)]
pub enum StorageAnswer {
    /// Done: what changes contents, on disk when a [`StorageOp::Sync`] with the same boot is done.
    #[prost(message, tag = "10")]
    Done(Done),
    /// The bytes are the payload. Shorter than asked: zeros up to the length asked.
    #[prost(message, tag = "11")]
    Data(Data),
    /// Ranges that hold data.
    #[prost(message, tag = "12")]
    Extents(ExtentList),
    /// Chunks of a file.
    #[prost(message, tag = "13")]
    Chunks(ChunkList),
    /// State of the target.
    #[prost(message, tag = "14")]
    Stat(TargetStat),
    /// What a scrub found.
    #[prost(message, tag = "15")]
    Scrub(ScrubReport),
}

/// See [`StorageAnswer::Done`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Done {
    /// Which boot the target speaks from: another number than before says that something that was
    /// acknowledged and not synced may be lost. 0, or absent: unknown.
    #[prost(fixed64, tag = "1")]
    pub boot: u64,
}

/// See [`StorageAnswer::Data`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Data {
    /// CRC32C of the payload, from the stored checksums.
    #[prost(uint32, tag = "1")]
    pub crc: u32,
}

/// See [`StorageAnswer::Extents`].
#[derive(Clone, PartialEq, Message)]
pub struct ExtentList {
    /// Starts within the chunk, ascending.
    #[prost(uint64, repeated, tag = "1")]
    pub starts: Vec<u64>,
    /// Lengths, one per start.
    #[prost(uint64, repeated, tag = "2")]
    pub lens: Vec<u64>,
}

/// See [`StorageAnswer::Chunks`].
#[derive(Clone, PartialEq, Message)]
pub struct ChunkList {
    /// Indices, ascending.
    #[prost(uint64, repeated, tag = "1")]
    pub indices: Vec<u64>,
    /// End of the last stored byte in each.
    #[prost(uint64, repeated, tag = "2")]
    pub lens: Vec<u64>,
    /// Bytes that each occupies.
    #[prost(uint64, repeated, tag = "3")]
    pub occupied: Vec<u64>,
}

/// See [`StorageAnswer::Stat`].
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

/// See [`StorageAnswer::Scrub`].
#[derive(Clone, PartialEq, Message)]
pub struct ScrubReport {
    /// Where to go on; absent: the end was reached.
    #[prost(message, optional, tag = "1")]
    pub next: Option<Chunk>,
    /// Bytes verified.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Chunks verified.
    #[prost(uint64, tag = "3")]
    pub chunks: u64,
    /// Chunks with a mismatch.
    #[prost(message, repeated, tag = "4")]
    pub corrupt: Vec<Chunk>,
}

impl From<t::ChunkId> for Chunk {
    fn from(v: t::ChunkId) -> Self {
        Chunk { volume: v.volume.0, ino: v.ino.0, index: v.index.0 }
    }
}

impl From<Chunk> for t::ChunkId {
    fn from(v: Chunk) -> Self {
        t::ChunkId {
            volume: t::VolumeId(v.volume),
            ino: t::Ino(v.ino),
            index: t::ChunkIndex(v.index),
        }
    }
}
