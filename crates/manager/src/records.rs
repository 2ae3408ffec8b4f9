//! What is stored: one key per server, target, group and volume, and one for the cluster itself.
//!
//! Keys are `C`, the volume number 0 as four bytes (no volume has it), a kind byte and a big-endian
//! id. A value is a version byte, a body with numbered fields, and the CRC32C of both, little-endian.

use bytes::Bytes;
use prost::Message;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::frame::crc32c;
use strake_wire::message::manager::{VolumeSpec, Voucher};
use strake_wire::message::recopies::{RecopyLeft, RecopyTally, RecopyWish};
use strake_wire::message::scrubs::{ScrubFinding, ScrubTally};

/// Version of the values written by this release.
const VERSION: u8 = 1;
/// Version byte and checksum.
const FRAME_BYTES: usize = 5;
/// What every key of the control plane begins with.
pub(crate) const PREFIX: &[u8] = b"C\0\0\0\0";

/// What a key is about; the byte after [`PREFIX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// That the manager leads.
    Beat = b'b',
    /// The cluster itself.
    Cluster = b'c',
    /// A session that is fenced.
    Fence = b'f',
    /// A group.
    Group = b'g',
    /// A job.
    Job = b'j',
    /// A server.
    Server = b's',
    /// A target.
    Target = b't',
    /// A volume.
    Volume = b'v',
}

/// `c`: the cluster itself.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cluster {
    /// Its id (32 hex digits).
    #[prost(string, tag = "1")]
    pub uuid: String,
    /// Key of the capability MAC, 32 bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub capability_key: Bytes,
    /// Version of the map. Every change writes it, so two changes at once conflict.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    /// Id of the next server.
    #[prost(uint32, tag = "4")]
    pub next_server: u32,
    /// Id of the next target.
    #[prost(uint32, tag = "5")]
    pub next_target: u32,
    /// Id of the next volume.
    #[prost(uint32, tag = "6")]
    pub next_volume: u32,
    /// Id of the next job.
    #[prost(uint32, tag = "7")]
    pub next_job: u32,
    /// Bytes per second at most of a job that has no limit of its own; 0: none.
    #[prost(uint64, tag = "8")]
    pub job_rate: u64,
    /// Id of the next fence.
    #[prost(uint32, tag = "9")]
    pub next_fence: u32,
    /// The server whose manager leads; 0: there is one manager only.
    #[prost(uint32, tag = "10")]
    pub leader: u32,
}

/// `b`: the manager that leads says so. It is no part of the map.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Beat {
    /// Its server; 0: that has no number yet.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Its address.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Grows with every beat, whoever gives it.
    #[prost(uint64, tag = "3")]
    pub number: u64,
    /// It leads no more.
    #[prost(bool, tag = "4")]
    pub ended: bool,
    /// No lease that lasts is longer than this, in ms, whether it gave it or a manager before it, but for those of its own
    /// server; 0: an earlier release, which gives whole ones.
    #[prost(uint64, tag = "5")]
    pub lent_ms: u64,
    /// For so long, in ms, its own server may still do what managers before it have allowed. What it allows that server itself
    /// ends with its lead.
    #[prost(uint64, tag = "6")]
    pub own_ms: u64,
    /// For so long, in ms, the manager before it may lead still, and it waits.
    #[prost(uint64, tag = "7")]
    pub waits_ms: u64,
    /// It leads for so long after it gave this, in ms; 0: for 800.
    #[prost(uint64, tag = "8")]
    pub lead_ms: u64,
    /// Of servers whose managers have led before it, and to which it has answered nothing yet: how long what they may do lasts.
    #[prost(message, repeated, tag = "9")]
    pub past: Vec<PastLead>,
    /// It answers nothing yet, by this beat or an earlier one of the same lead.
    #[prost(bool, tag = "10")]
    pub loads: bool,
    /// The store had gone back to an earlier state when this lead or one before it began, and nobody who leads has noted that yet.
    #[prost(bool, tag = "11")]
    pub lost: bool,
}

/// A server whose manager has led, and whose own leases have ended with that.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct PastLead {
    /// The server.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// For so long, in ms, it may still do what any manager has allowed.
    #[prost(uint64, tag = "2")]
    pub lasts_ms: u64,
}

/// `f`: a session that is over, and whose capabilities may not be.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Fence {
    /// The volume.
    #[prost(uint32, tag = "1")]
    pub volume: u32,
    /// The session.
    #[prost(uint64, tag = "2")]
    pub session: u64,
    /// Epoch of the first map that says so.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    /// When it was entered, in milliseconds since 1970-01-01 UTC.
    #[prost(uint64, tag = "4")]
    pub since_ms: u64,
}

/// `s`: a server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Server {
    /// `host:port` at which others reach it; empty: another server has taken its place there.
    #[prost(string, tag = "1")]
    pub address: String,
    /// It is a manager.
    #[prost(bool, tag = "2")]
    pub manager: bool,
    /// It serves names and attributes.
    #[prost(bool, tag = "3")]
    pub meta: bool,
    /// Name for people.
    #[prost(string, tag = "4")]
    pub name: String,
    /// Id of the store in a database that it keeps metadata in; empty where that is its own, or none.
    #[prost(string, tag = "5")]
    pub store: String,
    /// Volumes of several shares may lie in that store.
    #[prost(bool, tag = "6")]
    pub shares: bool,
    /// The life in which it joined last; 0: its release has none.
    #[prost(fixed64, tag = "7")]
    pub life: u64,
    /// It has not joined since these records turned out to be older than what servers know, and may know later epochs of groups.
    #[prost(bool, tag = "8")]
    pub ahead: bool,
}

/// `t`: a target.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Target {
    /// The server that has it.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// Made when it was formatted.
    #[prost(string, tag = "2")]
    pub uuid: String,
    /// Where it lies, for people.
    #[prost(string, tag = "3")]
    pub path: String,
    /// Bytes it may hold, as said at its last join. Maps show what its server says.
    #[prost(uint64, tag = "4")]
    pub total_bytes: u64,
    /// Boot id of its server's kernel at its last join; empty: not known.
    #[prost(string, tag = "5")]
    pub boot: String,
    /// It is to lose its groups, and gets no new ones.
    #[prost(bool, tag = "6")]
    pub drains: bool,
    /// The greatest generation that it was heard to have on its disk; 0: none.
    #[prost(uint64, tag = "7")]
    pub generation: u64,
    /// The last generation that a join was given.
    #[prost(uint64, tag = "8")]
    pub given: u64,
    /// The boot that it spoke from itself at its last join, or since if it was made after that; 0: not known.
    #[prost(fixed64, tag = "9")]
    pub own_boot: u64,
}

/// `g`: a group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Group {
    /// Version of its membership.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// Its targets, in order.
    #[prost(uint32, repeated, tag = "2")]
    pub members: Vec<u32>,
    /// Those that hold every acknowledged write, in the same order: the first is the primary. Never
    /// empty in memory; empty where an earlier release wrote it, and then all of them.
    #[prost(uint32, repeated, tag = "3")]
    pub in_sync: Vec<u32>,
    /// Those that receive every write and are being made equal.
    #[prost(uint32, repeated, tag = "4")]
    pub joining: Vec<u32>,
    /// How often acknowledged writes that were not synced may have been lost with all members.
    #[prost(uint64, tag = "5")]
    pub losses: u64,
    /// Members that are to leave, when enough others are in sync.
    #[prost(uint32, repeated, tag = "6")]
    pub leaving: Vec<u32>,
    /// Of a group of one copy that has moved: what its targets' answers name as their boot.
    #[prost(fixed64, tag = "7")]
    pub word: u64,
    /// From which boots they do.
    #[prost(message, repeated, tag = "8")]
    pub vouchers: Vec<Voucher>,
    /// Of a group of one copy: nobody has put anything into it, because whoever is the first to tells
    /// this manager before. Not known (false) of groups of earlier releases.
    #[prost(bool, tag = "9")]
    pub never_used: bool,
    /// When something that it had was last lost for good, in milliseconds since 1970; 0: never.
    #[prost(uint64, tag = "10")]
    pub lost_ms: u64,
    /// The epoch in which its primary is asked to say when the member that leads by the list may lead; of any other epoch: nobody
    /// is asked.
    #[prost(uint64, tag = "11")]
    pub hand_over: u64,
    /// The epoch that began as a primary had said so; 0: none.
    #[prost(uint64, tag = "12")]
    pub handed_in: u64,
    /// The reign for which that one vouched, as the next one does.
    #[prost(uint64, tag = "13")]
    pub stands_for: u64,
}

impl Group {
    /// The other members.
    pub fn without(&self, member: u32) -> Vec<u32> {
        self.members.iter().copied().filter(|other| *other != member).collect()
    }
}

/// `j`: a job, under way or ended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Job {
    /// A `JobKind`.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// A `JobState`.
    #[prost(uint32, tag = "2")]
    pub state: u32,
    /// What it is about, for people.
    #[prost(string, tag = "3")]
    pub about: String,
    /// When it began, in milliseconds since 1970.
    #[prost(uint64, tag = "4")]
    pub begun_ms: u64,
    /// When it ended; 0: not yet.
    #[prost(uint64, tag = "5")]
    pub ended_ms: u64,
    /// Bytes per second at most; 0: no limit; absent: the cluster's default.
    #[prost(uint64, optional, tag = "6")]
    pub rate: Option<u64>,
    /// Its parts.
    #[prost(message, repeated, tag = "7")]
    pub items: Vec<Item>,
    /// Targets that it drains, or the one that it heals.
    #[prost(uint32, repeated, tag = "8")]
    pub targets: Vec<u32>,
    /// Servers that are taken out of the cluster at its end.
    #[prost(uint32, repeated, tag = "9")]
    pub servers: Vec<u32>,
    /// Its targets are taken out of the cluster at its end.
    #[prost(bool, tag = "10")]
    pub remove: bool,
    /// Copies may come to lie on one server.
    #[prost(bool, tag = "11")]
    pub force: bool,
    /// Why it failed, if as a whole.
    #[prost(string, tag = "12")]
    pub reason: String,
    /// What nobody has any more but its targets, of which none answers, is given up.
    #[prost(bool, tag = "13")]
    pub lose_data: bool,
    /// Of a scrub: its parts.
    #[prost(message, repeated, tag = "14")]
    pub scrubs: Vec<Scrub>,
    /// Of a scrub: it repairs nothing.
    #[prost(bool, tag = "15")]
    pub no_repair: bool,
    /// Of a job that gives files another number of copies: which, and how it is.
    #[prost(message, optional, tag = "16")]
    pub recopy: Option<Recopy>,
    /// Those of its targets that were drained already when it began: they stay so if it is cancelled.
    #[prost(uint32, repeated, tag = "17")]
    pub drained_before: Vec<u32>,
}

/// Files that get another number of copies.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Recopy {
    /// Which, and how many.
    #[prost(message, required, tag = "1")]
    pub wish: RecopyWish,
    /// Why it does not get on; empty: it does, or has ended.
    #[prost(string, tag = "2")]
    pub reason: String,
    /// Since when it is so, in milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub since_ms: u64,
    /// Of one that has ended: what it has gone through.
    #[prost(message, required, tag = "4")]
    pub tally: RecopyTally,
    /// Of one that has ended: files that are as they were.
    #[prost(uint64, tag = "5")]
    pub left: u64,
    /// Some of them.
    #[prost(message, repeated, tag = "6")]
    pub waiting: Vec<RecopyLeft>,
}

/// One target's part in a scrub.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scrub {
    /// The target.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// A `JobState`.
    #[prost(uint32, tag = "2")]
    pub state: u32,
    /// Why it failed, or waits.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Bytes that the target held when the job was made.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// Groups of which its server has the copies compared.
    #[prost(uint32, repeated, tag = "5")]
    pub compare: Vec<u32>,
    /// Since when it is so, in milliseconds since 1970.
    #[prost(uint64, tag = "6")]
    pub since_ms: u64,
    /// Of one that has ended: what it has gone through.
    #[prost(message, required, tag = "7")]
    pub tally: ScrubTally,
    /// Of one that has ended: what was found.
    #[prost(message, repeated, tag = "8")]
    pub findings: Vec<ScrubFinding>,
    /// Of one that has ended: what could not be looked at, and why.
    #[prost(string, repeated, tag = "9")]
    pub skipped: Vec<String>,
}

/// One group's part in a job.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Item {
    /// The group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// The target that leaves it; 0: none.
    #[prost(uint32, tag = "2")]
    pub from: u32,
    /// The target that enters it, or is made equal.
    #[prost(uint32, tag = "3")]
    pub to: u32,
    /// A `JobState`.
    #[prost(uint32, tag = "4")]
    pub state: u32,
    /// Why it failed, or waits.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// Bytes that the group had when the job was made, or more that were counted when its primary reported last.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// Bytes sent in attempts that have ended.
    #[prost(uint64, tag = "7")]
    pub sent: u64,
    /// Nobody but `to` will do.
    #[prost(bool, tag = "8")]
    pub fixed: bool,
    /// How often it has failed.
    #[prost(uint32, tag = "9")]
    pub tries: u32,
    /// What the group has is given up.
    #[prost(bool, tag = "10")]
    pub lost: bool,
    /// It may have had something that was not counted yet when the job was made.
    #[prost(bool, tag = "11")]
    pub uncounted: bool,
}

/// `v`: a volume. A deleted one stays without its name and its settings, so that its number is not used again and
/// servers that were away drop what they hold of it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Volume {
    /// Its settings, complete; of a deleted one how many shares it had, and no more.
    #[prost(message, required, tag = "1")]
    pub spec: VolumeSpec,
    /// It is deleted.
    #[prost(bool, tag = "2")]
    pub deleting: bool,
    /// The metadata server that serves it; 0: none yet.
    #[prost(uint32, tag = "3")]
    pub meta_server: u32,
    /// Epoch of the map in which that became so.
    #[prost(uint64, tag = "4")]
    pub owned_since: u64,
    /// The server that has served it before, and may still: until then the other waits. 0: none.
    #[prost(uint32, tag = "5")]
    pub leaving: u32,
    /// Which share it is of the volume whose id is less by so much.
    #[prost(uint32, tag = "6")]
    pub share: u32,
}

impl Volume {
    /// It is deleted: its number stays, and what tells which shares were of one volume.
    pub fn delete(&mut self) {
        self.deleting = true;
        self.spec = VolumeSpec { shares: self.spec.shares, ..VolumeSpec::default() };
    }
}

/// The key of a record.
pub(crate) fn key(kind: Kind, id: u32) -> Vec<u8> {
    let mut key = PREFIX.to_vec();
    key.push(kind as u8);
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// Kind byte and id of a key that begins with [`PREFIX`].
pub(crate) fn parse_key(key: &[u8]) -> Option<(u8, u32)> {
    let (&kind, id) = key.strip_prefix(PREFIX)?.split_first()?;
    Some((kind, u32::from_be_bytes(id.try_into().ok()?)))
}

/// A record as it is stored.
pub(crate) fn encode(record: &impl Message) -> Bytes {
    let mut value = Vec::with_capacity(record.encoded_len() + FRAME_BYTES);
    value.push(VERSION);
    value.extend_from_slice(&record.encode_to_vec());
    value.extend_from_slice(&crc32c(&value).to_le_bytes());
    value.into()
}

/// A stored record; the error names the key.
pub(crate) fn decode<M: Message + Default>(key: &[u8], value: &[u8]) -> Result<M> {
    let damaged = |cause: &str| {
        let key = key.escape_ascii();
        let detail = format!("the manager's record {key} {cause}; restore its data directory");
        Error::with(ErrorKind::Corrupt, detail)
    };
    let (framed, crc) = value.split_last_chunk().ok_or_else(|| damaged("is too short"))?;
    if crc32c(framed) != u32::from_le_bytes(*crc) {
        return Err(damaged("does not match its checksum"));
    }
    match framed.split_first() {
        Some((&VERSION, body)) => M::decode(body).map_err(|e| damaged(&e.to_string())),
        Some((&version, _)) => {
            let detail = format!(
                "the manager's record {} has version {version}, this release reads up to {VERSION}; install the newer release",
                key.escape_ascii()
            );
            Err(Error::with(ErrorKind::WrongPeer, detail))
        }
        None => Err(damaged("is empty")),
    }
}

#[cfg(test)]
mod tests;
