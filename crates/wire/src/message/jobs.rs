//! Jobs: what moves or mends the contents of groups in the background, and how far it is. What
//! verifies targets has messages of its own, in [`scrubs`](super::scrubs), and so has what gives files
//! another number of copies, in [`recopies`](super::recopies).

use prost::Message;

/// What a target holds of a group.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Held {
    /// The target.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// The group.
    #[prost(uint32, tag = "2")]
    pub group: u32,
    /// Chunks.
    #[prost(uint64, tag = "3")]
    pub chunks: u64,
    /// Bytes of chunks.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

/// How far a primary is with a joining member.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Progress {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The joining member.
    #[prost(uint32, tag = "2")]
    pub member: u32,
    /// Bytes of chunks that are equal by now.
    #[prost(uint64, tag = "3")]
    pub compared: u64,
    /// Bytes that were sent for that.
    #[prost(uint64, tag = "4")]
    pub sent: u64,
    /// The chunk it is at.
    #[prost(message, optional, tag = "5")]
    pub at: Option<super::storage::Chunk>,
    /// Bytes of all chunks, as they were when it began; 0: not known.
    #[prost(uint64, tag = "6")]
    pub total: u64,
}

/// How a primary is to make a joining member equal. Without one: as fast as it can.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Order {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The joining member.
    #[prost(uint32, tag = "2")]
    pub member: u32,
    /// It waits.
    #[prost(bool, tag = "3")]
    pub paused: bool,
    /// Bytes sent per second at most; 0: no limit.
    #[prost(uint64, tag = "4")]
    pub rate: u64,
}

/// See [`super::manager::ManagerOp::Plan`].
#[derive(Clone, PartialEq, Message)]
pub struct Plan {
    /// What for: a [`JobKind`] that is asked for.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Targets that lose their groups.
    #[prost(uint32, repeated, tag = "2")]
    pub targets: Vec<u32>,
    /// The target that gets them; 0: those with most room.
    #[prost(uint32, tag = "3")]
    pub to: u32,
    /// Servers that lose all their targets' groups.
    #[prost(uint32, repeated, tag = "4")]
    pub servers: Vec<u32>,
    /// Only say what would be done.
    #[prost(bool, tag = "5")]
    pub dry_run: bool,
    /// Do it although copies come to lie on one server.
    #[prost(bool, tag = "6")]
    pub force: bool,
    /// Give up what only a target has that is gone.
    #[prost(bool, tag = "7")]
    pub lose_data: bool,
    /// Take targets and servers out of the cluster at the end.
    #[prost(bool, tag = "8")]
    pub remove: bool,
    /// Bytes per second at most; 0: no limit, none: as the cluster's default has it. An earlier release takes 0 for none.
    #[prost(uint64, optional, tag = "9")]
    pub rate: Option<u64>,
    /// Undo a drain: the targets are used again.
    #[prost(bool, tag = "10")]
    pub undo: bool,
    /// Of a scrub, of which `targets` are those that are verified (none: all): it repairs nothing.
    #[prost(bool, tag = "11")]
    pub no_repair: bool,
    /// Of a job that gives files another number of copies: which.
    #[prost(message, optional, tag = "12")]
    pub recopy: Option<super::recopies::RecopyWish>,
}

/// What a job does. Stored: never give a number another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum JobKind {
    /// A target that was away is made equal.
    Heal = 1,
    /// Targets lose their groups.
    Drain = 2,
    /// A target's groups go to another one.
    Replace = 3,
    /// What targets hold is evened out.
    Rebalance = 4,
    /// What targets hold is verified, and repaired.
    Scrub = 5,
    /// Files there are get another number of copies.
    Recopy = 6,
}

impl JobKind {
    const ALL: [Self; 6] =
        [Self::Heal, Self::Drain, Self::Replace, Self::Rebalance, Self::Scrub, Self::Recopy];

    /// The kind of this number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// How a job, or one of its items, is. Stored: never give a number another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum JobState {
    /// Under way; of an item: its turn has not come.
    Waiting = 0,
    /// Under way.
    Running = 1,
    /// It waits until it is resumed.
    Paused = 2,
    /// Done.
    Done = 3,
    /// Ended without being done.
    Failed = 4,
    /// Ended because somebody wanted so.
    Cancelled = 5,
}

impl JobState {
    const ALL: [Self; 6] =
        [Self::Waiting, Self::Running, Self::Paused, Self::Done, Self::Failed, Self::Cancelled];

    /// The state of this number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u32 == number)
    }
}

/// See [`super::manager::ManagerOp::ListJobs`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ListJobs {
    /// Only this one; 0: all.
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// See [`super::manager::ManagerOp::SteerJob`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SteerJob {
    /// Which; 0: the default rate of all.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Pause it.
    #[prost(bool, tag = "2")]
    pub pause: bool,
    /// Let it go on.
    #[prost(bool, tag = "3")]
    pub resume: bool,
    /// End it.
    #[prost(bool, tag = "4")]
    pub cancel: bool,
    /// Bytes per second at most from now on; 0: no limit.
    #[prost(uint64, optional, tag = "5")]
    pub rate: Option<u64>,
}

/// A job, as it is now.
#[derive(Clone, PartialEq, Message)]
pub struct Job {
    /// Its number; 0: it is only a plan.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A [`JobKind`].
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// A [`JobState`].
    #[prost(uint32, tag = "3")]
    pub state: u32,
    /// What it is about, for people.
    #[prost(string, tag = "4")]
    pub about: String,
    /// When it began, in milliseconds since 1970.
    #[prost(uint64, tag = "5")]
    pub begun_ms: u64,
    /// When it ended; 0: not yet.
    #[prost(uint64, tag = "6")]
    pub ended_ms: u64,
    /// Bytes per second at most; 0: no limit.
    #[prost(uint64, tag = "7")]
    pub rate_max: u64,
    /// Bytes of chunks that it goes through, as far as known.
    #[prost(uint64, tag = "8")]
    pub bytes: u64,
    /// How many of them it has gone through.
    #[prost(uint64, tag = "9")]
    pub bytes_done: u64,
    /// Bytes that it has sent from target to target.
    #[prost(uint64, tag = "10")]
    pub bytes_sent: u64,
    /// Bytes gone through per second lately.
    #[prost(uint64, tag = "11")]
    pub rate: u64,
    /// Its parts.
    #[prost(message, repeated, tag = "12")]
    pub items: Vec<JobItem>,
    /// Why it failed, if as a whole.
    #[prost(string, tag = "13")]
    pub reason: String,
    /// Of a scrub: its parts.
    #[prost(message, repeated, tag = "14")]
    pub scrubs: Vec<super::scrubs::JobScrub>,
    /// Of a scrub: it repairs nothing.
    #[prost(bool, tag = "15")]
    pub no_repair: bool,
    /// Of a job that gives files another number of copies: which, and how far it is.
    #[prost(message, optional, tag = "16")]
    pub recopy: Option<super::recopies::JobRecopy>,
}

/// One group's part in a job.
#[derive(Clone, PartialEq, Message)]
pub struct JobItem {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The target that leaves it; 0: none does.
    #[prost(uint32, tag = "2")]
    pub from: u32,
    /// The target that enters it, or is made equal; 0: not chosen yet.
    #[prost(uint32, tag = "3")]
    pub to: u32,
    /// A [`JobState`].
    #[prost(uint32, tag = "4")]
    pub state: u32,
    /// Why it failed, or waits.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// Bytes of chunks it goes through, as far as known.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// How many of them it has gone through.
    #[prost(uint64, tag = "7")]
    pub bytes_done: u64,
    /// Bytes sent.
    #[prost(uint64, tag = "8")]
    pub bytes_sent: u64,
    /// The chunk it is at.
    #[prost(message, optional, tag = "9")]
    pub at: Option<super::storage::Chunk>,
    /// What the group had is given up: nobody has it any more.
    #[prost(bool, tag = "10")]
    pub lost: bool,
    /// `bytes` are not known: there may be some that were not counted yet.
    #[prost(bool, tag = "11")]
    pub uncounted: bool,
}

/// See [`super::manager::ManagerAnswer::Jobs`].
#[derive(Clone, PartialEq, Message)]
pub struct JobList {
    /// By number.
    #[prost(message, repeated, tag = "1")]
    pub jobs: Vec<Job>,
    /// Bytes per second at most of a job that has no limit of its own; 0: none.
    #[prost(uint64, tag = "2")]
    pub default_rate: u64,
    /// Jobs that have ended and would not fit into this message.
    #[prost(uint32, tag = "3")]
    pub left_out: u32,
}
