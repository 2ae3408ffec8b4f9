//! Scrubs that are jobs: what a storage server is to verify, how far it is, and what it has found.

use super::storage::Chunk;
use prost::Message;

/// A target that its server is to verify. As long as it comes with the answers to heartbeats the server
/// goes on, and tells of it; then it forgets it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScrubOrder {
    /// The job.
    #[prost(uint64, tag = "1")]
    pub job: u64,
    /// The target.
    #[prost(uint32, tag = "2")]
    pub target: u32,
    /// What has another copy is repaired; else it is only told.
    #[prost(bool, tag = "3")]
    pub repair: bool,
    /// Groups of which the copies are compared afterwards.
    #[prost(uint32, repeated, tag = "4")]
    pub compare: Vec<u32>,
    /// It waits.
    #[prost(bool, tag = "5")]
    pub paused: bool,
    /// Bytes read per second at most; 0: no limit.
    #[prost(uint64, tag = "6")]
    pub rate: u64,
}

/// What a scrub of a target has gone through, and found.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ScrubTally {
    /// Chunks verified.
    #[prost(uint64, tag = "1")]
    pub chunks: u64,
    /// Bytes verified.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Chunks that were damaged, or not what the primary has, and are repaired.
    #[prost(uint64, tag = "3")]
    pub repaired: u64,
    /// Chunks that are so still.
    #[prost(uint64, tag = "4")]
    pub left: u64,
    /// Chunks that were compared with their other copies.
    #[prost(uint64, tag = "5")]
    pub compared: u64,
}

/// What became of a chunk that was damaged, or not the same at all members. Stored: never give a number another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ScrubFate {
    /// It cannot be said now.
    Unknown = 0,
    /// It is sound again.
    Repaired = 1,
    /// It could be repaired; nobody has asked for it.
    Left = 2,
    /// No copy of some of it is sound.
    Lost = 3,
}

impl ScrubFate {
    const ALL: [Self; 4] = [Self::Unknown, Self::Repaired, Self::Left, Self::Lost];

    /// The fate of this number.
    pub fn of(number: u32) -> Self {
        Self::ALL.into_iter().find(|fate| *fate as u32 == number).unwrap_or(Self::Unknown)
    }

    /// The fate of this word; `None`: there is none.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fate| fate.word() == word)
    }

    /// As metrics and JSON have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::Left => "left",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// A chunk that is damaged, or was, or of which copies differ.
#[derive(Clone, PartialEq, Message)]
pub struct ScrubFinding {
    /// Where it was found.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// The group it belongs to.
    #[prost(uint32, tag = "2")]
    pub group: u32,
    /// Which chunk.
    #[prost(message, optional, tag = "3")]
    pub chunk: Option<Chunk>,
    /// A [`ScrubFate`].
    #[prost(uint32, tag = "4")]
    pub fate: u32,
    /// True: its checksums are right, and it is not what the primary has.
    #[prost(bool, tag = "5")]
    pub different: bool,
    /// What there is to say beside.
    #[prost(string, tag = "6")]
    pub detail: String,
}

/// How far a server is with a target that it verifies.
#[derive(Clone, PartialEq, Message)]
pub struct ScrubProgress {
    /// The job.
    #[prost(uint64, tag = "1")]
    pub job: u64,
    /// The target.
    #[prost(uint32, tag = "2")]
    pub target: u32,
    /// What it has gone through.
    #[prost(message, required, tag = "3")]
    pub tally: ScrubTally,
    /// The last chunk verified.
    #[prost(message, optional, tag = "4")]
    pub at: Option<Chunk>,
    /// What it has found: all, or as many as a server remembers, what is damaged still first.
    #[prost(message, repeated, tag = "5")]
    pub findings: Vec<ScrubFinding>,
    /// What could not be looked at, and why.
    #[prost(string, repeated, tag = "6")]
    pub skipped: Vec<String>,
    /// Nothing is left to do.
    #[prost(bool, tag = "7")]
    pub ended: bool,
    /// Why it does not get on now; empty: it does.
    #[prost(string, tag = "8")]
    pub trouble: String,
}

/// One target's part in a job that scrubs.
#[derive(Clone, PartialEq, Message)]
pub struct JobScrub {
    /// The target.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// A [`super::jobs::JobState`].
    #[prost(uint32, tag = "2")]
    pub state: u32,
    /// Why it failed, or waits.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Bytes it goes through, as far as known.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// What it has gone through.
    #[prost(message, required, tag = "5")]
    pub tally: ScrubTally,
    /// The last chunk verified.
    #[prost(message, optional, tag = "6")]
    pub at: Option<Chunk>,
    /// What it has found; only where one job was asked for.
    #[prost(message, repeated, tag = "7")]
    pub findings: Vec<ScrubFinding>,
    /// What could not be looked at, and why.
    #[prost(string, repeated, tag = "8")]
    pub skipped: Vec<String>,
}
