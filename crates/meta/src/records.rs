//! Every value of the metadata store.
//!
//! A value is a version byte, a body with numbered fields, and the CRC32C of both as a
//! little-endian `u32`. A value that does not match its checksum, or was written by a newer
//! release, is an error that names the key; nothing is guessed and nothing panics.

use bytes::{Bytes, BytesMut};
use crc_fast::CrcAlgorithm;
use prost::Message;
use strake_types::{Consistency, Error, ErrorKind, FileKind, GroupId, Ino, Result};
use strake_wire::message::common::{FileLayout, Template, Time};
use strake_wire::message::recopies::RecopyTally;

/// Version of the values written by this release.
const VERSION: u8 = 1;
/// Version byte and checksum.
const FRAME_BYTES: usize = 5;

/// `I`: an inode.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Inode {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// [`FileKind`] as its number.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Permission bits with setuid, setgid and sticky.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// Owner.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    /// Names (not used for directories: see [`Shard`]). 0: to be deleted when nobody has it open.
    #[prost(uint32, tag = "6")]
    pub nlink: u32,
    /// Device number.
    #[prost(uint32, tag = "7")]
    pub rdev: u32,
    /// Length in bytes.
    #[prost(uint64, tag = "8")]
    pub length: u64,
    /// Bytes occupied, as clients have told, or as was counted on the targets.
    #[prost(uint64, tag = "9")]
    pub occupied: u64,
    /// Last read, where somebody set it.
    #[prost(message, required, tag = "10")]
    pub atime: Time,
    /// Last change of the contents (not used for directories).
    #[prost(message, required, tag = "11")]
    pub mtime: Time,
    /// Last change of this record.
    #[prost(message, required, tag = "12")]
    pub ctime: Time,
    /// Creation.
    #[prost(message, required, tag = "13")]
    pub btime: Time,
    /// Grows with each change of this record.
    #[prost(uint64, tag = "14")]
    pub version: u64,
    /// Contents lie under `B` and not in chunks.
    #[prost(bool, tag = "15")]
    pub inline: bool,
    /// Where the chunks of a regular file lie.
    #[prost(message, optional, tag = "16")]
    pub layout: Option<FileLayout>,
    /// Directories: the parent. Files: the parent of a name it had last (a hint).
    #[prost(uint64, tag = "17")]
    pub parent: u64,
    /// The name under that parent (a hint).
    #[prost(bytes = "bytes", tag = "18")]
    pub name: Bytes,
    /// It has had a second name: each of its names has an `L` key.
    #[prost(bool, tag = "19")]
    pub linked: bool,
    /// Made without a name (O_TMPFILE): a link may still give it one.
    #[prost(bool, tag = "20")]
    pub nameless: bool,
    /// Layout that a directory hands down, with what it inherited when it was made.
    #[prost(message, optional, tag = "21")]
    pub template: Option<Template>,
    /// Access ACL in its binary form, if it says more than the mode.
    #[prost(bytes = "bytes", tag = "22")]
    pub acl_access: Bytes,
    /// Default ACL of a directory.
    #[prost(bytes = "bytes", tag = "23")]
    pub acl_default: Bytes,
    /// Number of `X` keys.
    #[prost(uint32, tag = "24")]
    pub xattrs: u32,
    /// Bytes of their names and values.
    #[prost(uint32, tag = "25")]
    pub xattr_bytes: u32,
    /// Chunks may hold bytes from this offset on that must not be seen: cut them first.
    #[prost(uint64, optional, tag = "26")]
    pub cut_from: Option<u64>,
    /// When its time in the queue `G` comes (milliseconds); 0: it is not in it.
    #[prost(uint64, tag = "27")]
    pub queued_ms: u64,
    /// Guard shards of a directory: their number is 1 more than this.
    #[prost(uint32, tag = "28")]
    pub more_shards: u32,
    /// Groups in which that cut is still to be done. None: in all of the layout.
    #[prost(uint32, repeated, tag = "29")]
    pub cut_groups: Vec<u32>,
}

impl Inode {
    /// What clients see of each other's work on its contents.
    pub fn consistency(&self) -> Consistency {
        self.layout.as_ref().map(FileLayout::consistency).unwrap_or_default()
    }

    /// Its number.
    pub fn id(&self) -> Ino {
        Ino(self.ino)
    }

    /// What it is. Records are checked when they are read, so the number is a known one.
    pub fn file_kind(&self) -> FileKind {
        u8::try_from(self.kind).ok().and_then(FileKind::from_code).unwrap_or(FileKind::File)
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory as u32
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File as u32
    }

    /// True if it has a name and seems to occupy less than it is long: it may have holes.
    pub fn is_sparse(&self) -> bool {
        self.is_file() && !self.inline && self.nlink > 0 && self.occupied < self.length
    }

    /// True for a file with a length that says that it occupies nothing: it has no contents, or nobody has told of them.
    pub fn seems_empty(&self) -> bool {
        self.is_sparse() && self.occupied == 0
    }

    /// Number of guard shards of a directory.
    pub fn shards(&self) -> u16 {
        (self.more_shards.min(u32::from(u8::MAX)) + 1) as u16
    }

    /// True if the inode may have chunks somewhere.
    pub fn has_chunks(&self) -> bool {
        self.is_file() && (!self.inline || self.cut_from.is_some())
    }

    /// True if what it has in a group of its layout waits to be cut.
    pub fn is_to_be_cut_in(&self, group: GroupId) -> bool {
        let is_left = self.cut_groups.is_empty() || self.cut_groups.contains(&group.0);
        self.cut_from.is_some() && is_left
    }
}

/// `D`: a directory entry by name.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Entry {
    /// The inode.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// [`FileKind`] as its number.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Its place in the directory.
    #[prost(uint64, tag = "3")]
    pub cookie: u64,
}

/// `E`: a directory entry by cookie.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Order {
    /// The name.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// The inode.
    #[prost(uint64, tag = "2")]
    pub ino: u64,
    /// [`FileKind`] as its number.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
}

/// `U`: guard and statistics shard of a directory.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Shard {
    /// Entries.
    #[prost(uint64, tag = "1")]
    pub entries: u64,
    /// Entries that are directories.
    #[prost(uint64, tag = "2")]
    pub subdirs: u64,
    /// Last change of the entries.
    #[prost(message, required, tag = "3")]
    pub mtime: Time,
    /// Last change of the entries, or of mtime.
    #[prost(message, required, tag = "4")]
    pub ctime: Time,
    /// Number of the last cookie given.
    #[prost(uint64, tag = "5")]
    pub last_cookie: u64,
    /// Grows with each change of this shard.
    #[prost(uint64, tag = "6")]
    pub version: u64,
}

impl Shard {
    /// Two shards of a directory taken together: counts added up, the latest times.
    pub fn with(&self, other: &Shard) -> Shard {
        Shard {
            entries: self.entries + other.entries,
            subdirs: self.subdirs + other.subdirs,
            mtime: later(self.mtime, other.mtime),
            ctime: later(self.ctime, other.ctime),
            last_cookie: self.last_cookie.max(other.last_cookie),
            version: self.version + other.version,
        }
    }
}

/// The later of two times.
pub(crate) fn later(a: Time, b: Time) -> Time {
    match (a.seconds, a.nanos) >= (b.seconds, b.nanos) {
        true => a,
        false => b,
    }
}

/// `N`: the first number that is not reserved.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Number {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub next: u64,
}

/// `O`: by which process the store is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BootRecord {
    /// Under which boot of its machine.
    #[prost(string, tag = "1")]
    pub boot: String,
    /// How often what was not synced may have been lost.
    #[prost(uint64, tag = "2")]
    pub losses: u64,
    /// It has stopped in good order.
    #[prost(bool, tag = "3")]
    pub clean: bool,
}

/// `T`: counts moves of directories.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Topology {
    /// Moves so far.
    #[prost(uint64, tag = "1")]
    pub moves: u64,
}

/// `K`: for which loan a slot was written last, and what its changes were.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LoanRecord {
    /// The loan.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// A change was made with this; else none ever will be.
    #[prost(bool, tag = "2")]
    pub made: bool,
    /// Inodes that the share has more since, by all changes that were.
    #[prost(sint64, tag = "3")]
    pub inodes: i64,
    /// Bytes that it has more.
    #[prost(sint64, tag = "4")]
    pub bytes: i64,
    /// Its lender has ended it: no further change is made with it.
    #[prost(bool, tag = "5")]
    pub over: bool,
}

/// `S`: a session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionRecord {
    /// Who the client is, for people.
    #[prost(string, tag = "1")]
    pub client: String,
    /// When it began, milliseconds since 1970.
    #[prost(uint64, tag = "2")]
    pub since_ms: u64,
    /// It keeps leases.
    #[prost(bool, tag = "3")]
    pub leases: bool,
    /// Which client that is, in its sessions with other shares as well; 0: it has not said so.
    #[prost(uint64, tag = "4")]
    pub mount: u64,
    /// It was granted claims on files: after a restart who reads waits for it.
    #[prost(bool, tag = "5")]
    pub claims: bool,
    /// It was given exclusive leases on directories: after a restart who comes to any waits for it.
    #[prost(bool, tag = "6")]
    pub behind: bool,
}

/// `V`: statistics of the volume.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stat {
    /// Inodes in use.
    #[prost(uint64, tag = "1")]
    pub inodes: u64,
    /// Bytes of contents.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Written at an orderly stop: nothing has changed since.
    #[prost(bool, tag = "3")]
    pub clean: bool,
    /// The volume was deleted, and there is nothing else of it any more, here or on targets.
    #[prost(bool, tag = "4")]
    pub emptied: bool,
    /// With `clean`: files of which it is still to be counted how much they occupy.
    #[prost(uint64, repeated, tag = "5")]
    pub uncounted: Vec<u64>,
    /// The volume was deleted, and emptied for the first time then (milliseconds since 1970).
    #[prost(uint64, tag = "6")]
    pub emptied_once_ms: u64,
}

/// One lock of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(crate) struct HeldLock {
    /// Owner within the session.
    #[prost(uint64, tag = "1")]
    pub owner: u64,
    /// Process, for others to see.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// First byte.
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// Last byte, inclusive.
    #[prost(uint64, tag = "4")]
    pub end: u64,
    /// It excludes all others.
    #[prost(bool, tag = "5")]
    pub exclusive: bool,
}

/// `F` and `P`: the locks of one session on one file, or a page of them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Locks {
    /// The locks.
    #[prost(message, repeated, tag = "1")]
    pub held: Vec<HeldLock>,
}

/// `A`: chunks of a file that are not where its layout says, and are to be deleted.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Spare {
    /// The layout that has them.
    #[prost(message, required, tag = "1")]
    pub layout: FileLayout,
    /// Nothing writes to them any more: they need be deleted but once.
    #[prost(bool, tag = "2")]
    pub settled: bool,
    /// They are to be deleted from this time on (milliseconds since 1970): again, unless somebody may have been reading there.
    #[prost(uint64, tag = "3")]
    pub again_ms: u64,
}

/// `H`: until when a client that was lost may use a file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LostUse {
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "1")]
    pub until_ms: u64,
}

/// `J`: how far a job is that gives files of the volume another number of copies.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Recopying {
    /// The job.
    #[prost(uint64, tag = "1")]
    pub job: u64,
    /// Directories that are to be gone through still, the last one first. Empty: the walk is over.
    #[prost(message, repeated, tag = "2")]
    pub stack: Vec<Place>,
    /// What it has gone through.
    #[prost(message, required, tag = "3")]
    pub tally: RecopyTally,
}

/// A place in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Place {
    /// The directory.
    #[prost(uint64, tag = "1")]
    pub dir: u64,
    /// The cookie of the last entry that was gone through.
    #[prost(uint64, tag = "2")]
    pub after: u64,
}

/// A key that only has to be there (`G`, `L`).
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Mark {}

/// `B`, `X` and `R`: bytes as they are.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Raw {
    /// The bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub bytes: Bytes,
}

/// Encodes a value.
pub(crate) fn encode(body: &impl Message) -> Bytes {
    let mut out = BytesMut::with_capacity(body.encoded_len() + FRAME_BYTES);
    out.extend_from_slice(&[VERSION]);
    // A BytesMut grows as needed, so the only error of encode cannot happen.
    let _ = body.encode(&mut out);
    let crc = checksum(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.freeze()
}

/// Decodes a value; the error names its key. Bytes inside it share the value's memory.
pub(crate) fn decode<T: Message + Default>(key: &[u8], value: &Bytes) -> Result<T> {
    let body = unframe(key, value)?;
    T::decode(body).map_err(|e| corrupt(key, &e.to_string()))
}

/// Decodes a value that is to be kept: it shares nothing with what the store handed out, which may
/// be part of a larger block.
pub(crate) fn decode_to_keep<T: Message + Default>(key: &[u8], value: &Bytes) -> Result<T> {
    let body = unframe(key, value)?;
    T::decode(&body[..]).map_err(|e| corrupt(key, &e.to_string()))
}

/// The body of a value whose version and checksum are right.
fn unframe(key: &[u8], value: &Bytes) -> Result<Bytes> {
    let Some((framed, crc)) = value.split_last_chunk::<4>() else {
        return Err(corrupt(key, "shorter than its frame"));
    };
    if checksum(framed) != u32::from_le_bytes(*crc) {
        return Err(corrupt(key, "does not match its checksum"));
    }
    match framed.first() {
        None => Err(corrupt(key, "shorter than its frame")),
        Some(&VERSION) => Ok(value.slice(1..value.len() - 4)),
        Some(newer) => {
            let what =
                format!("has version {newer}, this release reads {VERSION}; install the newer one");
            Err(corrupt(key, &what))
        }
    }
}

/// CRC32C.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The error for a value that cannot be used.
pub(crate) fn corrupt(key: &[u8], what: &str) -> Error {
    let detail = format!("metadata value under {} {what}; run `strake doctor`", shown(key));
    tracing::error!("{detail}");
    Error::with(ErrorKind::Corrupt, detail)
}

/// A key as people read it: kind letter, volume, the rest in hexadecimal.
fn shown(key: &[u8]) -> String {
    let (kind, rest) = key.split_first().map_or(('?', key), |(k, rest)| (char::from(*k), rest));
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    match rest.split_first_chunk::<4>() {
        Some((volume, rest)) => {
            format!("key {kind} of volume {} {}", u32::from_be_bytes(*volume), hex(rest))
        }
        None => format!("key {kind} {}", hex(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use strake_types::VolumeId;

    fn sample() -> Inode {
        Inode { ino: 9, kind: 1, mode: 0o644, length: 77, inline: true, ..Inode::default() }
    }

    #[test]
    fn values_come_back_as_they_were() {
        let key = keys::inode(VolumeId(1), Ino(9));
        assert_eq!(decode::<Inode>(&key, &encode(&sample())).unwrap(), sample());
    }

    #[test]
    fn an_inode_of_this_version_is_read_for_ever() {
        let time = |seconds| Time { seconds, nanos: 5 };
        let everything = Inode {
            uid: 1,
            gid: 2,
            nlink: 3,
            rdev: 4,
            occupied: 5,
            atime: time(-1),
            mtime: time(1),
            ctime: time(2),
            btime: time(3),
            version: 6,
            layout: Some(FileLayout {
                chunk_size: 1 << 20,
                width: 2,
                table: 4,
                ..FileLayout::default()
            }),
            parent: 7,
            name: "name".into(),
            linked: true,
            nameless: true,
            template: Some(Template { width: Some(2), ..Template::default() }),
            acl_access: "acl".into(),
            acl_default: "default".into(),
            xattrs: 8,
            xattr_bytes: 9,
            cut_from: Some(10),
            queued_ms: 11,
            more_shards: 12,
            ..sample()
        };
        let fixture = Bytes::from_static(include_bytes!("records/fixture-inode-v1.bin"));
        assert_eq!(decode::<Inode>(b"I", &fixture).unwrap(), everything);
        assert_eq!(encode(&everything), fixture);
    }

    #[test]
    fn the_form_of_an_entry_is_the_one_in_formats_md() {
        let entry = Entry { ino: 300, kind: 2, cookie: 5 };
        let value = encode(&entry);
        assert_eq!(value[..8], [1, 0x08, 0xac, 0x02, 0x10, 2, 0x18, 5]);
        assert_eq!(value.len(), 8 + 4);
    }

    #[test]
    fn every_flipped_bit_is_found_and_the_error_names_the_key() {
        let key = keys::inode(VolumeId(3), Ino(9));
        let good = encode(&sample());
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = decode::<Inode>(&key, &bad.into()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt);
            assert!(error.detail.contains("key I of volume 3 0000000000000009"), "{error}");
        }
    }

    #[test]
    fn a_cut_value_is_found() {
        let good = encode(&sample());
        for len in 0..good.len() {
            assert!(decode::<Inode>(b"I", &good.slice(..len)).is_err());
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let mut value = vec![2, 1, 2, 3];
        let crc = checksum(&value);
        value.extend_from_slice(&crc.to_le_bytes());
        let error = decode::<Inode>(b"I", &value.into()).unwrap_err();
        assert!(error.detail.contains("version 2"), "{error}");
    }
}
