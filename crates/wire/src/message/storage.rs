//! Requests to a storage server: the contents of chunks on one target.

mod chunks;
mod kinds;
mod repair;
mod target;

pub use chunks::{ChunkList, ChunkPages, ChunksOf};
pub use repair::{BlockList, CensusPage, Compare, Compared, Hole, LostBlocks, Repair, Repaired};
pub use target::{AddTarget, Added, TargetStat, TargetStatRequest};

use prost::{Message, Oneof};
use strake_types as t;

/// What a target says of a sync that goes on: nothing is wrong, however long that takes.
pub const SYNC_GOES_ON: &str = "disks are still at work on a sync";

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
    /// Epoch of the group the sender believes in. 0: whatever it is.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The sender's right to do this: an encoded [`crate::capability::Capability`].
    #[prost(bytes = "bytes", tag = "3")]
    pub capability: bytes::Bytes,
    /// The group whose chunks are meant.
    #[prost(uint32, tag = "4")]
    pub group: u32,
    /// Which attempt of which client this is; absent: it may be repeated without harm.
    #[prost(message, optional, tag = "5")]
    pub attempt: Option<Attempt>,
    /// The primary forwards this to a member.
    #[prost(message, optional, tag = "6")]
    pub forward: Option<Forward>,
    /// A change counts as done when the primary has it.
    #[prost(bool, tag = "7")]
    pub ack_primary: bool,
    /// Copies that must be in sync for a change or sync to be answered; 0 is 1.
    #[prost(uint32, tag = "8")]
    pub min_copies: u32,
    /// The sender knows that sessions are fenced up to this epoch of the map: it is done only when nothing of
    /// them can come after it.
    #[prost(uint64, tag = "9")]
    pub fenced: u64,
    /// What to do.
    #[prost(
        oneof = "StorageOp",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35"
    )]
    pub op: Option<StorageOp>,
}

/// Names a change, so that it is made once however often it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Attempt {
    /// The client: a random number it chose when it started.
    #[prost(fixed64, tag = "1")]
    pub client: u64,
    /// Number of the change, ascending from 1.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// All changes with smaller numbers are over, well or not.
    #[prost(uint64, tag = "3")]
    pub settled: u64,
}

/// What a primary adds to what it forwards.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Forward {
    /// Number of the change, ascending from 1 within the reign. 0: it is no change.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// All changes with smaller numbers are applied by all in-sync members, and all of earlier
    /// reigns. 0: nothing is known yet.
    #[prost(uint64, tag = "2")]
    pub settled: u64,
    /// The epoch in which the sender became the primary.
    #[prost(uint64, tag = "3")]
    pub reign: u64,
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
    /// The chunks of a file on this target and their stored lengths, in pages.
    #[prost(message, tag = "18")]
    Chunks(ChunksOf),
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
    /// A new primary tells a member the epoch (in the request) and asks what is unsettled there.
    #[prost(message, tag = "23")]
    Adopt(Adopt),
    /// A primary tells a member up to where changes are settled.
    #[prost(message, tag = "24")]
    Settle(Settle),
    /// A page of the chunks of a group, with digests.
    #[prost(message, tag = "25")]
    Digests(DigestsAfter),
    /// The checksum of every block of a chunk.
    #[prost(message, tag = "26")]
    Sums(Chunk),
    /// Sets the length of a chunk, or deletes it. A damaged block that is cut in part is lost by that.
    #[prost(message, tag = "27")]
    Cut(Cut),
    /// A member whose lease is over asks another to act in no later epoch without it, for so long.
    #[prost(message, tag = "28")]
    Promise(Promise),
    /// A primary tells a member which clients' changes are made: those that are sent again are not
    /// made again.
    #[prost(message, tag = "29")]
    Remember(AttemptTable),
    /// Which blocks of a range of a chunk do not match their checksums.
    #[prost(message, tag = "30")]
    Damage(Range),
    /// Says that the contents of some blocks are lost: reading them is an error until they are written.
    #[prost(message, tag = "31")]
    Lose(LostBlocks),
    /// Makes a chunk sound again at all members of its group that are in sync; for the primary.
    #[prost(message, tag = "32")]
    Repair(Repair),
    /// Compares the members' copies of the chunks of a group, some at a time; for the primary.
    #[prost(message, tag = "33")]
    Compare(Compare),
    /// A page of all chunks of a target, whatever their group.
    #[prost(message, tag = "34")]
    Census(DigestsAfter),
    /// Opens a new target in a directory of this server; the request names no target.
    #[prost(message, tag = "35")]
    AddTarget(AddTarget),
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
    /// To be answered when it is durable, as after a [`StorageOp::Sync`]; the answer says whether it is.
    #[prost(bool, tag = "4")]
    pub durable: bool,
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
    /// Last chunk deleted, where those behind it are gone already: of a cut of many chunks, which goes in parts from
    /// the end. Whoever does not know of it deletes all behind as well, and finds nothing.
    #[prost(uint64, optional, tag = "5")]
    pub to_index: Option<u64>,
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
    /// The group whose chunk the source is.
    #[prost(uint32, tag = "5")]
    pub from_group: u32,
}

/// See [`StorageOp::Adopt`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Adopt {}

/// See [`StorageOp::Settle`]. What is settled stands in the request's [`Forward`].
#[derive(Clone, PartialEq, Message)]
pub struct Settle {
    /// What a change is about to write: the answer says whether the member has room reserved for all of it.
    #[prost(message, repeated, tag = "1")]
    pub parts: Vec<Range>,
    /// Not written, but reserved.
    #[prost(bool, tag = "2")]
    pub allocate: bool,
}

/// See [`StorageOp::Digests`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct DigestsAfter {
    /// Begin after this chunk; absent: at the first.
    #[prost(message, optional, tag = "1")]
    pub after: Option<Chunk>,
}

/// See [`StorageOp::Cut`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Cut {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Chunk,
    /// Its length from now on; absent: it is deleted.
    #[prost(uint64, optional, tag = "2")]
    pub length: Option<u64>,
    /// What is left of a damaged block that is cut in part is lost; else that is an error.
    #[prost(bool, tag = "3")]
    pub lose: bool,
}

/// See [`StorageOp::Remember`]. One client per place of the first three.
#[derive(Clone, PartialEq, Message)]
pub struct AttemptTable {
    /// Clients, as in [`Attempt`].
    #[prost(fixed64, repeated, tag = "1")]
    pub clients: Vec<u64>,
    /// All changes with smaller numbers are over.
    #[prost(uint64, repeated, tag = "2")]
    pub settled: Vec<u64>,
    /// How many changes above that are made.
    #[prost(uint32, repeated, tag = "3")]
    pub counts: Vec<u32>,
    /// Their numbers, client by client.
    #[prost(uint64, repeated, tag = "4")]
    pub seqs: Vec<u64>,
}

/// See [`StorageOp::Promise`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Promise {
    /// The member that asks.
    #[prost(uint32, tag = "1")]
    pub member: u32,
    /// For how long, in ms; 0: 3,000.
    #[prost(uint64, tag = "2")]
    pub lease_ms: u64,
}

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
    #[prost(
        oneof = "StorageAnswer",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23"
    )]
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
    /// What is unsettled at a member.
    #[prost(message, tag = "16")]
    Unsettled(UnsettledList),
    /// Chunks with digests.
    #[prost(message, tag = "17")]
    Digests(DigestPage),
    /// Checksums of blocks.
    #[prost(message, tag = "18")]
    Sums(BlockSums),
    /// Blocks that do not match their checksums.
    #[prost(message, tag = "19")]
    Damage(BlockList),
    /// What became of a repair.
    #[prost(message, tag = "20")]
    Repaired(Repaired),
    /// What a comparison found.
    #[prost(message, tag = "21")]
    Compared(Compared),
    /// Chunks of a target.
    #[prost(message, tag = "22")]
    Census(CensusPage),
    /// A target that was added, or would be.
    #[prost(message, tag = "23")]
    Added(Added),
}

/// See [`StorageAnswer::Unsettled`].
#[derive(Clone, PartialEq, Message)]
pub struct UnsettledList {
    /// Chunks of which something is unsettled.
    #[prost(message, repeated, tag = "1")]
    pub chunks: Vec<Chunk>,
    /// Files of which anything may be.
    #[prost(message, repeated, tag = "2")]
    pub files: Vec<FileRef>,
    /// Holes that are made here, and perhaps not at others.
    #[prost(message, repeated, tag = "3")]
    pub holes: Vec<Hole>,
}

/// See [`StorageAnswer::Digests`]. One chunk and digest per place.
#[derive(Clone, PartialEq, Message)]
pub struct DigestPage {
    /// Chunks, ascending.
    #[prost(message, repeated, tag = "1")]
    pub chunks: Vec<Chunk>,
    /// Their digests.
    #[prost(fixed64, repeated, tag = "2")]
    pub digests: Vec<u64>,
    /// Where to go on; absent: the end was reached.
    #[prost(message, optional, tag = "3")]
    pub next: Option<Chunk>,
    /// Their lengths in bytes; none from earlier releases.
    #[prost(uint64, repeated, tag = "4")]
    pub lens: Vec<u64>,
    /// Digests of which blocks of each are reserved, 0: none; no digests from earlier releases.
    #[prost(fixed64, repeated, tag = "5")]
    pub reserved: Vec<u64>,
}

/// See [`StorageAnswer::Sums`].
#[derive(Clone, PartialEq, Message)]
pub struct BlockSums {
    /// Length of the chunk in bytes.
    #[prost(uint64, tag = "1")]
    pub len: u64,
    /// Blocks that hold data, ascending.
    #[prost(uint32, repeated, tag = "2")]
    pub blocks: Vec<u32>,
    /// CRC32C of each.
    #[prost(fixed32, repeated, tag = "3")]
    pub crcs: Vec<u32>,
    /// There is no such chunk.
    #[prost(bool, tag = "4")]
    pub missing: bool,
    /// Blocks that are reserved, also behind the length; absent: it is not known, as in earlier releases.
    #[prost(message, optional, tag = "5")]
    pub reserved: Option<BlockList>,
}

/// See [`StorageAnswer::Done`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Done {
    /// Which boot the target speaks from: another number than before says that something that was
    /// acknowledged and not synced may be lost. 0, or absent: unknown.
    #[prost(fixed64, tag = "1")]
    pub boot: u64,
    /// To a primary: the target is short of room, and should be sent nothing new that takes some.
    #[prost(bool, tag = "2")]
    pub short: bool,
    /// To a write that asked for it: it is durable, and so is all that was acknowledged before it came.
    #[prost(bool, tag = "3")]
    pub durable: bool,
    /// To a sync: what `boot` is in answers to changes that the primary acknowledges alone. One sync covers these, too,
    /// whoever asks for it. 0, or absent: unknown.
    #[prost(fixed64, tag = "4")]
    pub early: u64,
    /// To a [`Settle`] with parts: they take no room.
    #[prost(bool, tag = "5")]
    pub reserved: bool,
    /// To a [`Settle`] with parts that are to be reserved: the target would come close to being short.
    #[prost(bool, tag = "6")]
    pub tight: bool,
    /// To the same: it would be short, and does not reserve them.
    #[prost(bool, tag = "7")]
    pub full: bool,
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
    /// Starts of ranges that are reserved and hold nothing, ascending; none from earlier releases.
    #[prost(uint64, repeated, tag = "3")]
    pub reserved_starts: Vec<u64>,
    /// Lengths, one per start.
    #[prost(uint64, repeated, tag = "4")]
    pub reserved_lens: Vec<u64>,
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
    /// The group of each.
    #[prost(uint32, repeated, tag = "5")]
    pub groups: Vec<u32>,
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
