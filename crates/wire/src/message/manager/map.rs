//! The map of the cluster.

use super::{MissedBy, TargetSpec, VolumeSpec};
use prost::Message;
use strake_types::GroupId;
use strake_types::same_targets::{GroupsByTarget, SameTargets};

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
    /// The number of the next new target: those below were given out. 0: a release that does not say.
    #[prost(uint32, tag = "9")]
    pub next_target: u32,
    /// Members that do not take what their primaries send them. Who follows the map is not told.
    #[prost(message, repeated, tag = "10")]
    pub missed: Vec<MissedBy>,
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
    /// True if a target was given this number and is in the cluster no more. Of a number that a manager has not given out (its
    /// data may be older than the target), that another target has, or of a manager that does not say, nobody knows that.
    pub fn has_left(&self, number: u32, uuid: &str) -> bool {
        let is_listed = |target: &Target| target.id == number || target.spec.uuid == uuid;
        (1..self.next_target).contains(&number) && !self.targets.iter().any(is_listed)
    }

    /// A group by its id.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&id.0, |group| group.id).ok()?;
        self.groups.get(at)
    }

    /// Which groups lie on which targets.
    pub fn groups_by_target(&self) -> GroupsByTarget {
        GroupsByTarget::of(self.groups.iter().map(|group| (GroupId(group.id), &group.members[..])))
    }

    /// Which groups of so many copies lie where these do. Who asks often asks the
    /// [`MapView`](crate::map::MapView::on_same_targets).
    pub fn on_same_targets(&self, list: &[GroupId], copies: u32) -> SameTargets {
        self.groups_by_target().on_same_targets(list, copies)
    }

    /// A volume, or a share of one, by its id.
    pub fn volume(&self, id: strake_types::VolumeId) -> Option<&Volume> {
        let at = self.volumes.binary_search_by_key(&id.0, |volume| volume.id).ok()?;
        self.volumes.get(at)
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
    /// Of which release it says that it is, for people; empty: one that does not say. Absent: it was not heard yet, or the manager
    /// passes nothing on.
    #[prost(string, optional, tag = "10")]
    pub release: Option<String>,
    /// Why the manager cannot reach it although it hears it; empty: it can, or does not know yet.
    #[prost(string, tag = "11")]
    pub unreached: String,
    /// What it says that the store of its metadata says while that has no room for changes, or takes none any more; empty: it takes
    /// them.
    #[prost(string, tag = "13")]
    pub full: String,
    /// From which address another process asks to join under its number while it is heard; empty: none does.
    #[prost(string, tag = "14")]
    pub rival: String,
    /// The manager's data turned out to be older than what servers know, as from a backup, and this one has not started since: it may
    /// know later epochs of groups, and refuse what is asked by the map.
    #[prost(bool, tag = "15")]
    pub ahead: bool,
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
    /// before ([`Used`](super::ManagerOp::Used)).
    #[prost(bool, tag = "10")]
    pub never_used: bool,
    /// When what was in it was last given up, or taken for what an older copy of a disk has, in milliseconds since 1970; 0: never.
    #[prost(uint64, tag = "11")]
    pub lost_ms: u64,
    /// The epoch in which its primary is to say when another member may lead ([`Resynced::hands_over`](super::Resynced::hands_over));
    /// of any other epoch: nobody waits for that.
    #[prost(uint64, tag = "12")]
    pub hand_over: u64,
    /// The epoch that began as a primary had said so; 0: none.
    #[prost(uint64, tag = "13")]
    pub handed_in: u64,
    /// The reign for which the primary before vouched then: who leads from that epoch on vouches for it in its place.
    #[prost(uint64, tag = "14")]
    pub stands_for: u64,
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
        let copies = GroupId(self.id).copies() as usize;
        self.leaving.contains(&member) && stays >= copies
    }

    /// The reign for which the primary of this one vouches: its own, or the one whose lead was handed over to it.
    pub fn vouches_in(&self, reign: u64) -> u64 {
        let was_handed = reign != 0 && reign == self.handed_in;
        if was_handed { self.stands_for } else { reign }
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
