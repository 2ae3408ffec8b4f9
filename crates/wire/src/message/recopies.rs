//! Jobs that give files there are another number of copies: what a metadata server is to do, how far it
//! is, and which files have to wait.

use prost::Message;

/// What such a job is about; see [`super::jobs::Plan`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RecopyWish {
    /// The volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// The file, or the directory below which all files are meant.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// Copies that are wanted.
    #[prost(uint32, tag = "3")]
    pub copies: u32,
    /// What it is called, for people.
    #[prost(string, tag = "4")]
    pub path: String,
}

/// What a metadata server is to do of a job, for one share of the volume. As long as it comes with the answers to heartbeats the
/// server goes on, and tells of it; then it forgets it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RecopyOrder {
    /// The job.
    #[prost(uint64, tag = "1")]
    pub job: u64,
    /// The share whose files are meant: the volume, unless that has several.
    #[prost(uint32, tag = "2")]
    pub volume: u32,
    /// The file, or the directory below which all files are meant. In any share.
    #[prost(uint64, tag = "3")]
    pub ino: u64,
    /// Copies that are wanted.
    #[prost(uint32, tag = "4")]
    pub copies: u32,
    /// It waits.
    #[prost(bool, tag = "5")]
    pub paused: bool,
    /// Bytes copied per second at most; 0: no limit.
    #[prost(uint64, tag = "6")]
    pub rate: u64,
}

/// What such a job has gone through. Stored: never give a number another meaning.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RecopyTally {
    /// Files looked at, as often as they were.
    #[prost(uint64, tag = "1")]
    pub looked: u64,
    /// Files that have got as many copies as wanted.
    #[prost(uint64, tag = "2")]
    pub files: u64,
    /// Bytes copied for that.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

/// What is ahead of such a job: files that have another number of copies still, those that are under way or wait among
/// them, as far as they were counted.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RecopyAhead {
    /// Files.
    #[prost(uint64, tag = "1")]
    pub files: u64,
    /// Bytes of them that are not copied yet.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// All were counted; else there are at least so many.
    #[prost(bool, tag = "3")]
    pub whole: bool,
}

/// A file that is being copied.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RecopyFile {
    /// Volume and path, for people.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Bytes copied so far.
    #[prost(uint64, tag = "2")]
    pub copied: u64,
    /// Bytes to copy in all, as far as is known.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}

/// A file that is as it was. Stored: never give a number another meaning.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RecopyLeft {
    /// Volume and path, for people.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Who has it open, or what went wrong.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// How far a metadata server is with such a job, in one share.
#[derive(Clone, PartialEq, Message)]
pub struct RecopyProgress {
    /// The job.
    #[prost(uint64, tag = "1")]
    pub job: u64,
    /// What it has gone through.
    #[prost(message, required, tag = "2")]
    pub tally: RecopyTally,
    /// What it is at.
    #[prost(message, repeated, tag = "3")]
    pub under_way: Vec<RecopyFile>,
    /// Files that are as they were, and are tried again, and directories that hand down what they did.
    #[prost(uint64, tag = "4")]
    pub left: u64,
    /// Some of them: as many as a server remembers.
    #[prost(message, repeated, tag = "5")]
    pub waiting: Vec<RecopyLeft>,
    /// It does no more: all is done, or what is left was tried for long enough.
    #[prost(bool, tag = "6")]
    pub ended: bool,
    /// Why it does not get on now; empty: it does.
    #[prost(string, tag = "7")]
    pub trouble: String,
    /// The share of [`RecopyOrder::volume`]. 0: its server is of a release that knew of one share only.
    #[prost(uint32, tag = "8")]
    pub volume: u32,
    /// What is ahead of it. None: its server is of a release that counts nothing.
    #[prost(message, optional, tag = "9")]
    pub ahead: Option<RecopyAhead>,
    /// How many of those that are left are directories: they wait in all shares. 0 also of a server whose release does not tell.
    #[prost(uint64, tag = "10")]
    pub directories: u64,
}

/// What there is to say about a job that gives files another number of copies.
#[derive(Clone, PartialEq, Message)]
pub struct JobRecopy {
    /// What it is about.
    #[prost(message, required, tag = "1")]
    pub wish: RecopyWish,
    /// Why it does not get on; empty: it does.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// What it has gone through.
    #[prost(message, required, tag = "3")]
    pub tally: RecopyTally,
    /// What it is at.
    #[prost(message, repeated, tag = "4")]
    pub under_way: Vec<RecopyFile>,
    /// Files that are as they were.
    #[prost(uint64, tag = "5")]
    pub left: u64,
    /// Some of them; only where one job was asked for.
    #[prost(message, repeated, tag = "6")]
    pub waiting: Vec<RecopyLeft>,
    /// What is ahead of it; none: that is not known, or it has ended.
    #[prost(message, optional, tag = "7")]
    pub ahead: Option<RecopyAhead>,
}
