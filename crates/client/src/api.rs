//! What doors pass to a [`crate::Volume`] and get back from it.

use bytes::Bytes;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_base::clock::{Clock, WakingClock};
use strake_types::layout::Placement;
use strake_types::limits::{
    ATTRIBUTE_AGE_MS_MAX, HELD_BACK_WAIT_MS_DEFAULT, OPEN_FILES_MAX, OPERATION_WAIT_MS_DEFAULT,
};
use strake_types::{Attr, ChunkIndex, FileKind, GroupId, Ino};
use strake_wire::message::manager::ClusterMap;

/// What a volume holds in memory at most, where nothing else is said.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// At most one part in so many of the memory that there is.
const MEMORY_PART: u64 = 8;

/// The least memory that doors give a volume: one large chunk in either direction.
pub const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// What a volume holds in memory at most where nothing else is said: 256 MiB, or an eighth of the memory that
/// there is if that is less, but [`MEMORY_BYTES_MIN`] at least.
pub fn default_memory_bytes() -> u64 {
    share_of(strake_base::process::usable_memory_bytes())
}

fn share_of(memory_bytes: u64) -> u64 {
    (memory_bytes / MEMORY_PART).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_DEFAULT)
}

/// How a volume is opened.
#[derive(Clone)]
pub struct VolumeOptions {
    /// Most bytes of contents and listings held in memory; unsent writes take at most half of it, listings an
    /// eighth, and what was sent is kept in what is left. 256 KiB at least: less counts as that. Below [`MEMORY_BYTES_MIN`] a
    /// request counts as a quarter of it at most also where it is larger (a write is taken in parts of 8 MiB): so more may be held.
    pub memory_bytes: u64,
    /// Longest time an operation waits for servers to come back.
    pub operation_wait_ms: u64,
    /// Longest time it waits for another client to tell what it has written to a file.
    pub held_back_wait_ms: u64,
    /// Oldest attribute answered without asking the server.
    pub attribute_age_ms: u64,
    /// Who we are, for people: host, process, mount point.
    pub client_name: String,
    /// Of which release we are, for people; empty: nobody says.
    pub release: &'static str,
    /// This mount has the volume to itself: attributes that this mount knows never age.
    pub exclusive: bool,
    /// Number mutations, so that a repeated one is answered and not repeated. Needed over a network.
    pub remember: bool,
    /// Keep what the metadata server has leased: names and attributes are asked for again only when they may
    /// have changed.
    pub leases: bool,
    /// With leases: answer removals and renames before the metadata server has heard of them, where nobody else is. Worth it where
    /// that is reached over a network.
    pub behind: bool,
    /// Most files that are open at once; the next open fails.
    pub open_files_max: usize,
    /// Where time comes from; a clock that goes on while the machine sleeps, if leases are kept.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for VolumeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeOptions")
            .field("client_name", &self.client_name)
            .finish_non_exhaustive()
    }
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            memory_bytes: default_memory_bytes(),
            operation_wait_ms: OPERATION_WAIT_MS_DEFAULT,
            held_back_wait_ms: HELD_BACK_WAIT_MS_DEFAULT,
            attribute_age_ms: ATTRIBUTE_AGE_MS_MAX,
            client_name: String::new(),
            release: "",
            exclusive: false,
            remember: true,
            leases: false,
            behind: false,
            open_files_max: OPEN_FILES_MAX,
            clock: Arc::new(WakingClock),
        }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end of the file, whatever its offset, unless it says otherwise ([`crate::Volume::write_as`]).
    pub append: bool,
    /// Cut to length 0.
    pub truncate: bool,
    /// `create` only: fail if the name exists.
    pub exclusive: bool,
    /// Reads come from the servers: while the file is open so, nothing of it is kept (O_DIRECT).
    pub direct: bool,
}

impl OpenFlags {
    /// For reading only.
    pub const READ: OpenFlags = OpenFlags {
        read: true,
        write: false,
        append: false,
        truncate: false,
        exclusive: false,
        direct: false,
    };
    /// For writing only.
    pub const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..OpenFlags::READ };
    /// For both.
    pub const READ_WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };

    /// True if the file may be mapped so to be stored into.
    pub(crate) fn maps(self) -> bool {
        self.read && self.write
    }
}

/// A new file of any kind; see [`crate::Volume::make`].
#[derive(Clone, Debug)]
pub struct NewFile {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Bytes,
}

impl NewFile {
    /// A directory.
    pub fn directory(mode: u32, umask: u32) -> Self {
        Self { kind: FileKind::Directory, mode, umask, rdev: 0, target: Bytes::new() }
    }

    /// A symbolic link.
    pub fn symlink(target: Bytes) -> Self {
        Self { kind: FileKind::Symlink, mode: 0o777, umask: 0, rdev: 0, target }
    }

    /// A pipe, socket, device node or empty regular file.
    pub fn node(kind: FileKind, mode: u32, umask: u32, rdev: u32) -> Self {
        Self { kind, mode, umask, rdev, target: Bytes::new() }
    }
}

/// How a name is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Both names exist and change places.
    pub exchange: bool,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrFlags {
    /// Fail if it exists.
    pub create: bool,
    /// Fail if it does not exist.
    pub replace: bool,
    /// With an ACL setgid is taken back: the caller may not keep it, says the kernel that has checked his rights.
    pub drop_setgid: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: Bytes,
    /// Its inode.
    pub ino: Ino,
    /// What the inode is.
    pub kind: FileKind,
    /// Where to go on after it: greater than 0, less than 2^63.
    pub cookie: u64,
    /// Attributes, if asked for.
    pub attr: Option<Attr>,
}

/// A part of a directory, without `.` and `..`.
#[derive(Clone, Debug)]
pub struct Page {
    /// In the order of cookies.
    pub entries: Vec<Entry>,
    /// No entry follows.
    pub end: bool,
    /// The directory's parent, for `..`.
    pub parent: Ino,
}

/// Bytes of a file as they lie in memory: the parts one after the other are the answer.
#[derive(Clone, Debug, Default)]
pub struct ReadData {
    /// The parts, none of them empty.
    pub parts: Vec<Bytes>,
}

impl ReadData {
    /// Number of bytes in all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// True at the end of the file.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// All parts as one; copies unless there is only one.
    pub fn into_bytes(mut self) -> Bytes {
        match self.parts.len() {
            0 => Bytes::new(),
            1 => self.parts.swap_remove(0),
            _ => self.parts.concat().into(),
        }
    }

    pub(crate) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.parts.push(part);
        }
    }
}

/// What [`crate::Volume::write`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where the bytes went (the end of the file, for a file opened to append).
    pub offset: u64,
    /// How many: all.
    pub len: u64,
}

/// Whether somebody waits for a change: its process may have been killed meanwhile.
pub type Wanted<'a> = &'a (dyn Fn() -> bool + Sync);

/// See [`crate::Volume::fallocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Reserve room; a longer range makes the file longer.
    Allocate,
    /// Reserve room; the length stays.
    KeepSize,
    /// Free the range; it reads as zeros. The length stays.
    Punch,
    /// The range reads as zeros; a longer range makes the file longer.
    Zero,
    /// The range reads as zeros; the length stays.
    ZeroKeepSize,
}

/// What [`crate::Volume::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte that holds data.
    Data,
    /// The next hole (at latest the end of the file).
    Hole,
}

/// What a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// None: give it back.
    Unlock,
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
}

/// A byte-range (POSIX) or whole-file (flock) lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Owner within this mount.
    pub owner: u64,
    /// Process shown to others.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` is the end of the file however long.
    pub end: u64,
    /// What is wanted, or (in an answer) held.
    pub kind: LockKind,
    /// A flock, which conflicts with flocks only.
    pub flock: bool,
    /// Wait until it is free.
    pub wait: bool,
}

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Bytes that all targets may hold.
    pub total_bytes: u64,
    /// Bytes free on them.
    pub free_bytes: u64,
    /// Bytes that the contents of this volume occupy, of one copy.
    pub contents_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that may still be made.
    pub inodes_free: u64,
}

/// Where a file lies, as `strake layout get --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutView {
    /// Length of a chunk in bytes.
    pub chunk_size: u64,
    /// Name of the distribution.
    pub distribution: String,
    /// What stands behind the name, if it has parameters: `0:32K,1:64K` of a varstrip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// Stripe width.
    pub stripe_width: u32,
    /// The contents lie inside the inode: there are no chunks.
    pub inline: bool,
    /// Chunks from the first to the one with the last byte.
    pub chunks: Chunks,
}

impl LayoutView {
    /// The distribution with its parameters.
    pub fn distributed(&self) -> String {
        match &self.parameters {
            Some(parameters) => format!("{}={parameters}", self.distribution),
            None => self.distribution.clone(),
        }
    }

    /// The length that chunks have; none: its parameters give each strip its own.
    pub fn equal_size(&self) -> Option<u64> {
        (self.distribution != VARSTRIP).then_some(self.chunk_size)
    }
}

/// The distribution whose chunks differ in length.
const VARSTRIP: &str = "varstrip";

/// The chunks of a file. Each is made when it is looked at: a long file has more than fit into memory.
#[derive(Clone, Debug)]
pub struct Chunks {
    placement: Placement,
    count: u64,
    /// The targets of each of its groups, and those in sync.
    places: BTreeMap<GroupId, [Vec<String>; 2]>,
}

impl Chunks {
    pub(crate) fn new(placement: Placement, count: u64, map: &ClusterMap) -> Self {
        let places = placement.slots().iter().map(|&group| (group, places(map, group))).collect();
        Self { placement, count, places }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One of them.
    pub fn get(&self, index: u64) -> Option<ChunkView> {
        (index < self.count).then(|| {
            let group = self.placement.group_of(ChunkIndex(index));
            let (_, bytes) = self.placement.layout().chunk_bounds(ChunkIndex(index));
            let [targets, in_sync] = self.places.get(&group).cloned().unwrap_or_default();
            ChunkView { index, bytes, group: group.0, targets, in_sync }
        })
    }

    /// All of them, from the first on.
    pub fn iter(&self) -> impl Iterator<Item = ChunkView> {
        (0..self.count).filter_map(|index| self.get(index))
    }
}

impl Serialize for Chunks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// The members of a group, and those in sync, by the names of their servers and paths.
fn places(map: &ClusterMap, group: GroupId) -> [Vec<String>; 2] {
    let name = |id: &u32| {
        let target = map.targets.iter().find(|t| t.id == *id);
        let server = target.and_then(|t| map.servers.iter().find(|s| s.id == t.server));
        match (target, server) {
            (Some(target), Some(server)) => format!("{}:{}", server.name, target.spec.path),
            _ => format!("target {id}"),
        }
    };
    let names = |ids: &[u32]| ids.iter().map(name).collect();
    map.group(group)
        .map_or_else(Default::default, |found| [names(&found.members), names(found.in_sync())])
}

/// Where a chunk lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChunkView {
    /// Its index in the file.
    pub index: u64,
    /// Its length when it is full.
    #[serde(skip)]
    pub bytes: u64,
    /// Its group.
    pub group: u32,
    /// The targets of the group in order, by the names of their servers and paths.
    pub targets: Vec<String>,
    /// Those of them that hold every acknowledged write: the first orders the writes.
    pub in_sync: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::layout::{Distribution, GroupTables, LayoutTemplate, Strip};

    #[test]
    fn a_mount_takes_an_eighth_of_little_memory_and_of_very_little_what_it_needs() {
        let shares = [24 << 30, 1 << 30, 200 << 20, 1 << 20].map(share_of);
        assert_eq!(shares, [256 << 20, 128 << 20, MEMORY_BYTES_MIN, MEMORY_BYTES_MIN]);
    }

    #[test]
    fn a_chunk_that_is_shown_is_as_long_as_its_strip() {
        let strips = [4096, 64 << 20].map(|bytes| Strip { slot: 0, bytes }).to_vec();
        let distribution = Some(Distribution::Varstrip(strips));
        let template = LayoutTemplate { distribution, ..LayoutTemplate::default() };
        let layout = template.resolve(7, &GroupTables::of([GroupId(0)]));
        let chunks = Chunks::new(Placement::new(layout), 3, &ClusterMap::default());
        let bytes: Vec<u64> = chunks.iter().map(|chunk| chunk.bytes).collect();
        assert_eq!(bytes, [4096, 64 << 20, 4096]);
    }
}
