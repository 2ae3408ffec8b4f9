//! Messages of a check of a volume: the namespace against itself and against the chunks.

use prost::Message;

/// See [`super::MetaOp::Check`].
#[derive(Clone, PartialEq, Message)]
pub struct Check {
    /// What is looked through: [`CheckPart`] as its number.
    #[prost(uint32, tag = "1")]
    pub part: u32,
    /// Go on after this: `next` of the answer before; empty: at the beginning.
    #[prost(bytes = "bytes", tag = "2")]
    pub after: bytes::Bytes,
    /// Most things looked at; 0: as the server likes.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    /// Mends what is broken, where that is possible.
    #[prost(bool, tag = "4")]
    pub repair: bool,
    /// The target whose chunks are looked through.
    #[prost(uint32, tag = "5")]
    pub target: u32,
    /// The directory in which an inode that has no name gets one; 0: it stays without.
    #[prost(uint64, tag = "6")]
    pub lost_found: u64,
}

/// The parts of a check, in the order in which they are to be looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CheckPart {
    /// Directory entries.
    Entries = 1,
    /// Inodes: names, counts, extended attributes, contents.
    Inodes = 2,
    /// Records that belong to something that is not there.
    Leftovers = 3,
    /// The chunks of one target.
    Chunks = 4,
    /// Inodes and bytes that the volume says it holds. Comes last: by then the others have mended inodes.
    Totals = 5,
}

impl CheckPart {
    const ALL: [Self; 5] =
        [Self::Entries, Self::Inodes, Self::Leftovers, Self::Chunks, Self::Totals];

    /// From its number; `None`: of a newer release.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|part| *part as u32 == number)
    }
}

/// See [`super::MetaAnswer::Checked`].
#[derive(Clone, PartialEq, Message)]
pub struct Checked {
    /// Where to go on; empty: the end was reached.
    #[prost(bytes = "bytes", tag = "1")]
    pub next: bytes::Bytes,
    /// Things looked at.
    #[prost(uint64, tag = "2")]
    pub looked_at: u64,
    /// What does not fit.
    #[prost(message, repeated, tag = "3")]
    pub problems: Vec<Problem>,
}

/// Something that does not fit.
#[derive(Clone, PartialEq, Message)]
pub struct Problem {
    /// A word for its kind, as `entry-without-inode`; docs/guide/recover.md lists them.
    #[prost(string, tag = "1")]
    pub what: String,
    /// The inode that it is about.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// Its path without the first `/`; empty where there is none.
    #[prost(bytes = "bytes", tag = "3")]
    pub path: bytes::Bytes,
    /// What was found, for people.
    #[prost(string, tag = "4")]
    pub detail: String,
    /// It is mended.
    #[prost(bool, tag = "5")]
    pub mended: bool,
}
