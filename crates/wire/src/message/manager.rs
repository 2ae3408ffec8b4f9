//! Requests to the manager: who belongs to the cluster, and which volumes there are.

use super::common::Template;
use super::jobs::{Held, JobList, ListJobs, Order, Plan, Progress, SteerJob};
use super::recopies::{RecopyOrder, RecopyProgress};
use super::scrubs::{ScrubOrder, ScrubProgress};
use prost::{Message, Oneof};

/// One operation on the cluster.
#[derive(Clone, PartialEq, Message)]
pub struct ManagerRequest {
    /// What to do.
    #[prost(
        oneof = "ManagerOp",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24"
    )]
    pub op: Option<ManagerOp>,
}

/// The operations of the manager.
#[derive(Clone, PartialEq, Oneof)]
pub enum ManagerOp {
    /// A server enters (or returns to) the cluster with its targets.
    #[prost(message, tag = "10")]
    Join(Join),
    /// A server is alive; every 0.5 s.
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
    /// Sees to it that there are groups that keep so many copies.
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
}

impl ManagerOp {
    /// True for what only servers say: a client that could would learn the key of the capabilities,
    /// or speak for a server.
    pub fn is_between_servers(&self) -> bool {
        use ManagerOp::{AddTarget, Fence, Heartbeat, Join, Leave, Resynced, Used};
        matches!(
            self,
            Join(_) | Heartbeat(_) | Leave(_) | Resynced(_) | AddTarget(_) | Used(_) | Fence(_)
        )
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
    /// Bytes it may hold.
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
}

/// See [`ManagerOp::PrepareCopies`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PrepareCopies {
    /// Copies.
    #[prost(uint32, tag = "1")]
    pub copies: u32,
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
#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetMap {
    /// Epoch of the map the caller has; 0 for none.
    #[prost(uint64, tag = "1")]
    pub known_epoch: u64,
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
}

/// See [`ManagerAnswer::Map`].
#[derive(Clone, PartialEq, Message)]
pub struct MapAnswer {
    /// The map.
    #[prost(message, optional, tag = "1")]
    pub map: Option<ClusterMap>,
}

/// Everything a client or server needs to find the others.
#[derive(Clone, PartialEq, Message)]
pub struct ClusterMap {
    /// The cluster's id.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Version of this map.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Servers.
    #[prost(message, repeated, tag = "3")]
    pub servers: Vec<Server>,
    /// Targets.
    #[prost(message, repeated, tag = "4")]
    pub targets: Vec<Target>,
    /// Groups, by id.
    #[prost(message, repeated, tag = "5")]
    pub groups: Vec<Group>,
    /// Volumes, by id.
    #[prost(message, repeated, tag = "6")]
    pub volumes: Vec<Volume>,
    /// Sessions that are over, and whose capabilities may not be.
    #[prost(message, repeated, tag = "7")]
    pub fenced: Vec<Fenced>,
    /// The server whose manager leads; 0: there is one manager only, of an earlier release.
    #[prost(uint32, tag = "8")]
    pub leader: u32,
}

/// A session whose capabilities storage servers refuse.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Fenced {
    /// The volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// The session.
    #[prost(uint64, tag = "2")]
    pub session: u64,
    /// Epoch of the first map that says so.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}

impl ClusterMap {
    /// A group by its id.
    pub fn group(&self, id: strake_types::GroupId) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&id.0, |group| group.id).ok()?;
        self.groups.get(at)
    }
}

/// A server of the map.
#[derive(Clone, PartialEq, Message)]
pub struct Server {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// `host:port`; empty where it is in the same process.
    #[prost(string, tag = "2")]
    pub address: String,
    /// It is a manager.
    #[prost(bool, tag = "3")]
    pub manager: bool,
    /// It serves names and attributes.
    #[prost(bool, tag = "4")]
    pub meta: bool,
    /// It is heard from.
    #[prost(bool, tag = "5")]
    pub up: bool,
    /// Name for people.
    #[prost(string, tag = "6")]
    pub name: String,
    /// Milliseconds since it was last heard from, when the map was sent.
    #[prost(uint64, tag = "7")]
    pub silent_ms: u64,
    /// Id of the store in a database that it keeps metadata in; empty where that is its own, or none.
    #[prost(string, tag = "8")]
    pub store: String,
    /// It says that it does not reach that database.
    #[prost(bool, tag = "9")]
    pub cut_off: bool,
}

/// A target of the map.
#[derive(Clone, PartialEq, Message)]
pub struct Target {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Its server.
    #[prost(uint32, tag = "2")]
    pub server: u32,
    /// What it said last.
    #[prost(message, required, tag = "3")]
    pub spec: TargetSpec,
    /// Its server is up and has it.
    #[prost(bool, tag = "4")]
    pub up: bool,
    /// It is to lose its groups, and gets no new ones.
    #[prost(bool, tag = "5")]
    pub drains: bool,
}

/// A group of the map.
#[derive(Clone, PartialEq, Message)]
pub struct Group {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Version of its membership.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Its targets, in order.
    #[prost(uint32, repeated, tag = "3")]
    pub members: Vec<u32>,
    /// Those that hold every acknowledged write, in the same order: the first is the primary. Empty
    /// (from an earlier release): all.
    #[prost(uint32, repeated, tag = "4")]
    pub in_sync: Vec<u32>,
    /// Those that receive every write and are being made equal.
    #[prost(uint32, repeated, tag = "5")]
    pub joining: Vec<u32>,
    /// How often acknowledged writes that were not synced may have been lost with all members.
    #[prost(uint64, tag = "6")]
    pub losses: u64,
    /// Members that are to leave, as soon as as many others as there are to be copies are in sync.
    #[prost(uint32, repeated, tag = "7")]
    pub leaving: Vec<u32>,
    /// Of a group of one copy that has moved: what its answers name as their boot, from whichever of
    /// the `vouchers` they come. 0: each target's own.
    #[prost(fixed64, tag = "8")]
    pub word: u64,
    /// Targets that have everything that was acknowledged under `word`.
    #[prost(message, repeated, tag = "9")]
    pub vouchers: Vec<Voucher>,
    /// Of a group of one copy: nothing was ever put into it, and whoever is to be the first tells the manager
    /// before ([`ManagerOp::Used`]).
    #[prost(bool, tag = "10")]
    pub never_used: bool,
}

/// A target, and the boot from which it vouches for a group.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Voucher {
    /// The target.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// Its boot.
    #[prost(fixed64, tag = "2")]
    pub boot: u64,
}

impl Group {
    /// True if a member is to leave, and has to answer nobody any more for that: the others suffice.
    pub fn lets_go(&self, member: u32) -> bool {
        let stays = self.in_sync().iter().filter(|m| !self.leaving.contains(m)).count();
        let copies = strake_types::GroupId(self.id).copies() as usize;
        self.leaving.contains(&member) && stays >= copies
    }

    /// Those that hold every acknowledged write, the primary first.
    pub fn in_sync(&self) -> &[u32] {
        if self.in_sync.is_empty() { &self.members } else { &self.in_sync }
    }
}

/// A volume of the map.
#[derive(Clone, PartialEq, Message)]
pub struct Volume {
    /// Its id, never reused.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Its name and settings, complete.
    #[prost(message, required, tag = "2")]
    pub spec: VolumeSpec,
    /// It is being deleted.
    #[prost(bool, tag = "3")]
    pub deleting: bool,
    /// Id of the metadata server that serves it.
    #[prost(uint32, tag = "4")]
    pub meta_server: u32,
    /// Epoch of the map in which that became so.
    #[prost(uint64, tag = "5")]
    pub owned_since: u64,
    /// Id of the server that has served it before, and may still: until then the other waits. 0: none.
    #[prost(uint32, tag = "6")]
    pub leaving: u32,
    /// Which share it is of the volume whose id is less by so much; 0: the first, which stands for the whole volume.
    #[prost(uint32, tag = "7")]
    pub share: u32,
}
