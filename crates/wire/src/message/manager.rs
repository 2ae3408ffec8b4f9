//! Requests to the manager: who belongs to the cluster, and which volumes there are.

mod changes;
mod map;
mod missed;

use super::common::Template;
use super::jobs::{Held, JobList, ListJobs, Order, Plan, Progress, SteerJob};
use super::recopies::{RecopyOrder, RecopyProgress};
use super::scrubs::{ScrubOrder, ScrubProgress};
pub use changes::{MapAnswer, MapChanges, MapVersion};
pub use map::{ClusterMap, Fenced, Group, Server, Target, Volume, Voucher};
pub use missed::{Doubt, MISSED_MAX, Missed, MissedBy, RESIGNS_MAX, Resign, by_turns};
use prost::{Message, Oneof};
use strake_base::disk::Place;

/// One operation on the cluster.
#[derive(Clone, PartialEq, Message)]
pub struct ManagerRequest {
    /// What to do.
    #[prost(
        oneof = "ManagerOp",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25"
    )]
    pub op: Option<ManagerOp>,
}

/// The operations of the manager.
#[derive(Clone, PartialEq, Oneof)]
pub enum ManagerOp {
    /// A server enters (or returns to) the cluster with its targets.
    #[prost(message, tag = "10")]
    Join(Join),
    /// A server is alive; every 0.2 s.
    #[prost(message, tag = "11")]
    Heartbeat(Heartbeat),
    /// The cluster map, if newer than the one known.
    #[prost(message, tag = "12")]
    GetMap(GetMap),
    /// A new volume.
    #[prost(message, tag = "13")]
    CreateVolume(VolumeSpec),
    /// Changes a volume's defaults; what exists keeps its layout.
    #[prost(message, tag = "14")]
    SetVolume(VolumeSpec),
    /// Deletes a volume and everything in it.
    #[prost(message, tag = "15")]
    DeleteVolume(VolumeName),
    /// A server leaves in good order.
    #[prost(message, tag = "16")]
    Leave(Leave),
    /// A primary has made a joining member equal to itself, or could not.
    #[prost(message, tag = "17")]
    Resynced(Resynced),
    /// Sees to it that there are groups that keep so many copies, and that targets lead one.
    #[prost(message, tag = "18")]
    PrepareCopies(PrepareCopies),
    /// Moves members of groups, as a job; or says what that would be.
    #[prost(message, tag = "19")]
    Plan(Plan),
    /// The jobs there are.
    #[prost(message, tag = "20")]
    ListJobs(ListJobs),
    /// Pauses, resumes, slows or cancels a job.
    #[prost(message, tag = "21")]
    SteerJob(SteerJob),
    /// A server that is in the cluster gets a new target: first its number, then, when it is there, its place.
    #[prost(message, tag = "22")]
    AddTarget(AddTarget),
    /// Something is about to be put into a group for the first time.
    #[prost(message, tag = "23")]
    Used(Used),
    /// Sessions of a volume are over: storage servers are to refuse what was allowed to them.
    #[prost(message, tag = "24")]
    Fence(Fence),
    /// A reader waits at a member of a group for what another member does not answer.
    #[prost(message, tag = "25")]
    Stalled(Stalled),
}

impl ManagerOp {
    /// True for what only servers say: a client that could would learn the key of the capabilities,
    /// or speak for a server.
    pub fn is_between_servers(&self) -> bool {
        use ManagerOp::{AddTarget, Fence, Heartbeat, Join, Leave, Resynced, Stalled, Used};
        matches!(
            self,
            Join(_)
                | Heartbeat(_)
                | Leave(_)
                | Resynced(_)
                | AddTarget(_)
                | Used(_)
                | Fence(_)
                | Stalled(_)
        )
    }

    /// True for what members live by. It is small, and must not wait behind work.
    pub fn is_vital(&self) -> bool {
        use ManagerOp::{GetMap, Heartbeat, Leave, Resynced, Stalled, Used};
        matches!(self, Heartbeat(_) | GetMap(_) | Leave(_) | Resynced(_) | Used(_) | Stalled(_))
    }
}

/// See [`ManagerOp::Join`].
#[derive(Clone, PartialEq, Message)]
pub struct Join {
    /// 0 at the first time, else the id given then.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Cluster the server's data directories belong to; empty if new.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// `host:port` at which clients and servers reach it.
    #[prost(string, tag = "3")]
    pub address: String,
    /// It is a manager.
    #[prost(bool, tag = "4")]
    pub manager: bool,
    /// It serves names and attributes.
    #[prost(bool, tag = "5")]
    pub meta: bool,
    /// Its targets.
    #[prost(message, repeated, tag = "6")]
    pub targets: Vec<TargetSpec>,
    /// Name shown to people (the host's name).
    #[prost(string, tag = "7")]
    pub name: String,
    /// The kernel's boot id: another one means that its host has stopped since.
    #[prost(string, tag = "8")]
    pub boot: String,
    /// Id of the store in a database that it keeps metadata in; empty where that is its own, or none.
    #[prost(string, tag = "9")]
    pub store: String,
    /// Volumes of several shares may lie in that store.
    #[prost(bool, tag = "10")]
    pub shares: bool,
    /// Targets that are older than they were when they last joined are meant: they have not what others have.
    #[prost(bool, tag = "11")]
    pub old_disks: bool,
    /// A number of its own for this life of the server, from its start to its end; 0: a release that has none.
    #[prost(fixed64, tag = "12")]
    pub life: u64,
}

/// A target that a server brings.
#[derive(Clone, PartialEq, Message)]
pub struct TargetSpec {
    /// 0 at the first time, else the id given then.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// Unique id made when the target was formatted (32 hex digits): finds clones and swapped disks.
    #[prost(string, tag = "2")]
    pub uuid: String,
    /// Where it lies, for people.
    #[prost(string, tag = "3")]
    pub path: String,
    /// Bytes it may hold; 0: the manager has not heard of its server since it started, and how full it is is not known.
    #[prost(uint64, tag = "4")]
    pub total_bytes: u64,
    /// Bytes free.
    #[prost(uint64, tag = "5")]
    pub free_bytes: u64,
    /// Not empty: the target takes no writes, and why.
    #[prost(string, tag = "6")]
    pub poisoned: String,
    /// When all of it was verified; absent: never yet.
    #[prost(message, optional, tag = "12")]
    pub scrub: Option<ScrubWord>,
    /// The generation ([`Joined::generations`]) that is written on it, 0: none yet. Absent: a release that writes none.
    #[prost(uint64, optional, tag = "13")]
    pub generation: Option<u64>,
    /// For how many ms its disk has answered nothing, although something waits for it; absent: it answers.
    #[prost(uint64, optional, tag = "14")]
    pub silent_ms: Option<u64>,
    /// The boot that it speaks from: another one means that something which it acknowledged and had not synced may be lost. 0: it
    /// is not made yet, or a release that says none; then the boot of its server's kernel counts.
    #[prost(fixed64, tag = "15")]
    pub boot: u64,
    /// Where it leads a group it says itself when another member may ([`Resynced::hands_over`]); false: a release that does not.
    #[prost(bool, tag = "16")]
    pub hands_over: bool,
    /// Its server has just started, and has not gone through it yet: what it holds is not known, and may be more than is said.
    #[prost(bool, tag = "17")]
    pub uncounted: bool,
    /// Its server has not come to the end of it yet since it started: it has just done so, or cannot read all of it. False: it has, or
    /// is of a release that does not say.
    #[prost(bool, tag = "18")]
    pub unwalked: bool,
    /// A [`Place`]: where its directory is, with which its server goes on as long as it has it open. 0: where it was, or a release
    /// that does not say.
    #[prost(uint32, tag = "19")]
    pub displaced: u32,
}

/// A target with less than so many percent free is nearly full: new files leave it out where others are left.
const LOW_PERCENT: u64 = 5;
/// A target of fewer bytes than these is small.
const SMALL_BYTES: u64 = 2 << 30;
/// The same of a small one: groups of several copies keep a 16th of it back, so it never has less than 6 % free.
const LOW_PERCENT_SMALL: u64 = 7;
/// One that was nearly full is not any more with so many percent above that.
const ROOM_PERCENT_ABOVE: u64 = 2;

impl TargetSpec {
    /// Where its directory is; of a later release, it may be anywhere.
    pub fn place(&self) -> Place {
        let all = [Place::Same, Place::Removed];
        all.into_iter().find(|place| *place as u32 == self.displaced).unwrap_or(Place::Elsewhere)
    }

    /// A target of so many bytes is nearly full with less than so many percent free.
    pub fn low_percent(total_bytes: u64) -> u64 {
        if total_bytes < SMALL_BYTES { LOW_PERCENT_SMALL } else { LOW_PERCENT }
    }

    /// True if it is nearly full, if it was so before or not. One of which nothing is known is not.
    pub fn is_nearly_full(&self, was: bool) -> bool {
        let low = TargetSpec::low_percent(self.total_bytes);
        let percent = if was { low + ROOM_PERCENT_ABOVE } else { low };
        self.free_bytes.saturating_mul(100) < self.total_bytes.saturating_mul(percent)
    }
}

/// A round over a target in which everything was verified.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ScrubWord {
    /// When it ended, in seconds since 1970-01-01 UTC.
    #[prost(uint64, tag = "1")]
    pub ended_unix_s: u64,
    /// Chunks that were damaged and are repaired.
    #[prost(uint64, tag = "2")]
    pub repaired: u64,
    /// Chunks that are damaged still.
    #[prost(uint64, tag = "3")]
    pub left: u64,
}

/// See [`ManagerOp::Heartbeat`].
#[derive(Clone, PartialEq, Message)]
pub struct Heartbeat {
    /// The server.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Its targets as they are now.
    #[prost(message, repeated, tag = "2")]
    pub targets: Vec<TargetSpec>,
    /// What its targets hold of each group, as of the last look.
    #[prost(message, repeated, tag = "3")]
    pub held: Vec<Held>,
    /// How far it is with members that it makes equal.
    #[prost(message, repeated, tag = "4")]
    pub progress: Vec<Progress>,
    /// How far it is with targets that it verifies for a job.
    #[prost(message, repeated, tag = "5")]
    pub scrubs: Vec<ScrubProgress>,
    /// How far it is with files that get another number of copies for a job.
    #[prost(message, repeated, tag = "6")]
    pub recopies: Vec<RecopyProgress>,
    /// Ids of the volumes whose names and attributes it serves,
    #[prost(uint32, repeated, tag = "7")]
    pub serves: Vec<u32>,
    /// going by the map of this epoch or a later one.
    #[prost(uint64, tag = "8")]
    pub epoch: u64,
    /// It has not reached the database with its metadata for a while.
    #[prost(bool, tag = "9")]
    pub cut_off: bool,
    /// For how long, in ms from when it sent this, it will answer for groups in which it is not alone; 0: for as long as
    /// `Joined` said.
    #[prost(uint64, tag = "10")]
    pub lease_ms: u64,
    /// For how long it will serve volumes, in ms from when it sent this; 0: half as long as `Joined` said.
    #[prost(uint64, tag = "11")]
    pub tenure_ms: u64,
    /// Of which release it is, for people; empty: one that does not say.
    #[prost(string, tag = "12")]
    pub release: String,
    /// Members of groups that it leads for which changes wait, [`MISSED_MAX`] at most.
    #[prost(message, repeated, tag = "13")]
    pub missed: Vec<Missed>,
    /// What the store of its metadata says while it has no room for changes, or takes none any more, for people; empty: it takes them.
    #[prost(string, tag = "14")]
    pub full: String,
    /// The address by which it has joined ([`Join::address`]); empty: a release that does not say.
    #[prost(string, tag = "15")]
    pub address: String,
    /// It has met that the database with its metadata had gone back to an earlier state, and no manager has answered that yet.
    #[prost(bool, tag = "16")]
    pub gone_back: bool,
}

/// See [`ManagerOp::Resynced`].
#[derive(Clone, PartialEq, Message)]
pub struct Resynced {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The epoch in which that was done.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The joining member.
    #[prost(uint32, tag = "3")]
    pub member: u32,
    /// It could not be done: the member begins anew. Or: a member that is to leave answers nobody any
    /// more in this epoch.
    #[prost(bool, tag = "4")]
    pub failed: bool,
    /// Why not.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// Bytes sent to it.
    #[prost(uint64, tag = "6")]
    pub sent: u64,
    /// Of a group of one copy: who vouches for it (see [`Group::word`]); 0: not said.
    #[prost(fixed64, tag = "7")]
    pub word: u64,
    /// The boot by which the primary does.
    #[prost(fixed64, tag = "8")]
    pub primary_boot: u64,
    /// The boot by which the member does.
    #[prost(fixed64, tag = "9")]
    pub member_boot: u64,
    /// `failed`, and said by the member itself: its disk does not answer, or fails for good, or it was asked to resign, so it answers
    /// nobody any more in this epoch. It may be the primary.
    #[prost(bool, tag = "10")]
    pub hangs: bool,
    /// Said by the primary, of itself, as it was asked to ([`Group::hand_over`]): all members in sync have what it has acknowledged,
    /// and will have what it acknowledges in this epoch, so another one may lead.
    #[prost(bool, tag = "11")]
    pub hands_over: bool,
    /// With that: the reign for which it vouches ([`Group::stands_for`]).
    #[prost(uint64, tag = "12")]
    pub vouches: u64,
    /// `failed`, and said by the primary of a joining member: it does not say that it is there.
    #[prost(bool, tag = "13")]
    pub silent: bool,
}

/// See [`ManagerOp::PrepareCopies`].
#[derive(Clone, PartialEq, Message)]
pub struct PrepareCopies {
    /// Copies.
    #[prost(uint32, tag = "1")]
    pub copies: u32,
    /// The targets that are to lead one; none: all that stay. An earlier release says none, and takes any for all.
    #[prost(uint32, repeated, tag = "2")]
    pub targets: Vec<u32>,
}

/// See [`ManagerOp::AddTarget`].
#[derive(Clone, PartialEq, Message)]
pub struct AddTarget {
    /// The server.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// The target. Without a number: it is to get one, and nobody uses it yet. With the number that it got:
    /// it is open, and enters.
    #[prost(message, required, tag = "2")]
    pub spec: TargetSpec,
    /// As in [`Join`].
    #[prost(string, tag = "3")]
    pub boot: String,
}

/// See [`ManagerOp::Used`]. The answer is the map's epoch, once the manager will not forget it. Fails with
/// `StaleMap` if the target is not one that has everything of the group.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Used {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The target that is to make the change.
    #[prost(uint32, tag = "2")]
    pub target: u32,
}

/// See [`ManagerOp::Stalled`]. In sync members of the group whose lease is over are taken out, if the target is one in sync, too,
/// and the epoch is the present one. The answer is the map's epoch then, whether anything was done or not.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Stalled {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The group's epoch.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The target at which somebody waits.
    #[prost(uint32, tag = "3")]
    pub target: u32,
}

/// See [`ManagerOp::Fence`]. The answer is an epoch of the map in which all of them are fenced.
#[derive(Clone, PartialEq, Message)]
pub struct Fence {
    /// The volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// The sessions.
    #[prost(uint64, repeated, tag = "2")]
    pub sessions: Vec<u64>,
}

/// See [`ManagerOp::GetMap`].
#[derive(Clone, PartialEq, Message)]
pub struct GetMap {
    /// Epoch of the map the caller has; 0 for none: how full targets are and who is silent is told as of now, and else as of
    /// when somebody first asked in that epoch.
    #[prost(uint64, tag = "1")]
    pub known_epoch: u64,
    /// Volumes and shares for whose metadata server somebody waits who may wait in vain: once its tenure is over they
    /// are not left to it any longer.
    #[prost(uint32, repeated, tag = "2")]
    pub missed: Vec<u32>,
    /// Which map the caller has, if it takes changes; zeros: none that the manager may know. Then how full targets are and who is silent is
    /// told as of about when something else of them has changed, whatever the epoch.
    #[prost(message, optional, tag = "3")]
    pub known: Option<MapVersion>,
}

/// See [`ManagerOp::CreateVolume`].
#[derive(Clone, PartialEq, Message)]
pub struct VolumeSpec {
    /// Its name: letters, digits, `-`, `_`, `.`; at most 64.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Layout that its files inherit.
    #[prost(message, optional, tag = "2")]
    pub template: Option<Template>,
    /// Files up to this many bytes lie inside their inode.
    #[prost(uint32, optional, tag = "3")]
    pub inline_bytes_max: Option<u32>,
    /// Every change is on disk before it is acknowledged.
    #[prost(bool, optional, tag = "4")]
    pub sync_always: Option<bool>,
    /// Shares that its directories are dealt out to; absent: one. It stays what it was when the volume was made.
    #[prost(uint32, optional, tag = "5")]
    pub shares: Option<u32>,
}

/// Names a volume.
#[derive(Clone, PartialEq, Message)]
pub struct VolumeName {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// See [`ManagerOp::Leave`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Leave {
    /// The server.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// The life that ends ([`Join::life`]): one that has begun since goes on. 0: whichever it is.
    #[prost(fixed64, tag = "2")]
    pub life: u64,
}

/// The answer of the manager.
#[derive(Clone, PartialEq, Message)]
pub struct ManagerReply {
    /// Which answer.
    #[prost(oneof = "ManagerAnswer", tags = "10, 11, 12, 13, 14, 15, 16")]
    pub answer: Option<ManagerAnswer>,
    /// To a heartbeat: what holds for members that the server makes equal, or is about to.
    #[prost(message, repeated, tag = "1")]
    pub orders: Vec<Order>,
    /// To a heartbeat: all targets of the server that it is to verify for a job.
    #[prost(message, repeated, tag = "2")]
    pub scrubs: Vec<ScrubOrder>,
    /// To a heartbeat: all jobs by which files of its volumes get another number of copies.
    #[prost(message, repeated, tag = "3")]
    pub recopies: Vec<RecopyOrder>,
    /// To a heartbeat of the manager's own server, if another manager may follow: the number of its lead. With that ends
    /// what the answer renews, too, so that who follows need not wait for it. 0: it does not end so.
    #[prost(uint64, tag = "4")]
    pub lead: u64,
    /// It takes note of a primary that says itself that it answers nobody any more ([`Resynced::hangs`]).
    #[prost(bool, tag = "5")]
    pub hears_hangs: bool,
    /// To a heartbeat: members on the server that are to resign, [`RESIGNS_MAX`] at most.
    #[prost(message, repeated, tag = "6")]
    pub resigns: Vec<Resign>,
    /// To a heartbeat: members that primaries on the server are to ask whether they are there, one for each server that may be silent.
    #[prost(message, repeated, tag = "7")]
    pub doubts: Vec<Doubt>,
}

impl From<ManagerAnswer> for ManagerReply {
    fn from(answer: ManagerAnswer) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }
}

/// The answers of the manager.
#[derive(Clone, PartialEq, Oneof)]
pub enum ManagerAnswer {
    /// Done; the map's epoch now.
    #[prost(uint64, tag = "10")]
    Epoch(u64),
    /// Who the server is now.
    #[prost(message, tag = "11")]
    Joined(Joined),
    /// The map; absent inside if the caller's is the newest.
    #[prost(message, tag = "12")]
    Map(MapAnswer),
    /// The volume as it is now.
    #[prost(message, tag = "13")]
    Volume(Volume),
    /// Jobs, or the plan of one.
    #[prost(message, tag = "14")]
    Jobs(JobList),
    /// The number of a new target.
    #[prost(uint32, tag = "15")]
    Target(u32),
    /// Nothing was done: this manager does not lead the cluster.
    #[prost(message, tag = "16")]
    Leader(Leader),
}

/// See [`ManagerAnswer::Leader`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Leader {
    /// The server whose manager leads, as far as is known; 0: nobody, or that is not known.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Its address.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Why the metadata store is of no use to the manager that says so, for people; empty: it is, or that one is of an earlier release.
    #[prost(string, tag = "3")]
    pub cut_off: String,
}

/// See [`ManagerAnswer::Joined`].
#[derive(Clone, PartialEq, Message)]
pub struct Joined {
    /// The cluster's id (32 hex digits).
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// The server's id.
    #[prost(uint32, tag = "2")]
    pub server: u32,
    /// Ids of its targets, in the order of the request.
    #[prost(uint32, repeated, tag = "3")]
    pub targets: Vec<u32>,
    /// Key of the capability MAC, 32 bytes. Servers only.
    #[prost(bytes = "bytes", tag = "4")]
    pub capability_key: bytes::Bytes,
    /// Time within which the next heartbeat must arrive.
    #[prost(uint64, tag = "5")]
    pub lease_ms: u64,
    /// Generations of its targets, in the order of the request: to be written on each before it serves. Every join gives
    /// greater ones, so a target that comes with a smaller one than it had is an old copy of a disk.
    #[prost(uint64, repeated, tag = "6")]
    pub generations: Vec<u64>,
}
