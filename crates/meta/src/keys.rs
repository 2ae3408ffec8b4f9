//! Every key of the metadata store: how it is written, how it is read back, how it sorts.
//!
//! A key is a kind byte, the volume as a big-endian `u32`, and ids as big-endian integers, so that
//! what belongs together lies together. docs/FORMATS.md draws each.

use std::ops::Bound;
use strake_types::{Ino, Shares, VolumeId};

/// Bits of the counter in an inode number; above it lies the placement prefix.
const COUNTER_BITS: u32 = 40;
/// Largest counter of an inode number.
pub(crate) const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
/// Bits of the placement prefix in use: one less than there is room for, so that inode numbers
/// stay positive where a program reads them as signed.
const PREFIX_MASK: u64 = (1 << 23) - 1;

/// What a key is about; its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Chunks of a file that are not where its layout says, and go.
    Spare = b'A',
    /// Contents of a small file, or the target of a symbolic link.
    Contents = b'B',
    /// A directory entry, by name.
    Entry = b'D',
    /// A directory entry, by cookie.
    Order = b'E',
    /// A flock.
    Flock = b'F',
    /// The delayed work queue.
    Queue = b'G',
    /// A file that a lost client may be using.
    Lost = b'H',
    /// An inode.
    Inode = b'I',
    /// How far a job is that gives files another number of copies.
    Recopying = b'J',
    /// Slots of loans to other shares of the volume.
    Loan = b'K',
    /// A further name of a hard-linked file.
    Link = b'L',
    /// Counters.
    Number = b'N',
    /// By which process the store is written.
    Boot = b'O',
    /// POSIX record locks.
    Posix = b'P',
    /// Result ledger.
    Result = b'R',
    /// A session.
    Session = b'S',
    /// Topology of the directory tree.
    Topology = b'T',
    /// Guard and statistics shard of a directory.
    Shard = b'U',
    /// Statistics of the volume.
    Volume = b'V',
    /// An extended attribute.
    Xattr = b'X',
}

impl Kind {
    /// Every kind: what an empty volume has no key of.
    pub(crate) const ALL: [Kind; 20] = [
        Kind::Spare,
        Kind::Contents,
        Kind::Entry,
        Kind::Order,
        Kind::Flock,
        Kind::Queue,
        Kind::Lost,
        Kind::Inode,
        Kind::Recopying,
        Kind::Loan,
        Kind::Link,
        Kind::Number,
        Kind::Boot,
        Kind::Posix,
        Kind::Result,
        Kind::Session,
        Kind::Topology,
        Kind::Shard,
        Kind::Volume,
        Kind::Xattr,
    ];
}

/// A key under construction.
struct Key(Vec<u8>);

impl Key {
    fn new(kind: Kind, volume: VolumeId) -> Self {
        let mut bytes = Vec::with_capacity(40);
        bytes.push(kind as u8);
        bytes.extend_from_slice(&volume.0.to_be_bytes());
        Key(bytes)
    }

    fn id(mut self, id: u64) -> Self {
        self.0.extend_from_slice(&id.to_be_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        self.0
    }

    fn end(self) -> Vec<u8> {
        self.0
    }
}

/// Contents inside the inode.
pub(crate) fn contents(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(Kind::Contents, volume).id(ino.0).end()
}

/// Chunks of a file that go.
pub(crate) fn spare(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(Kind::Spare, volume).id(ino.0).end()
}

/// What a lost client may be using; inode 0: any file.
pub(crate) fn lost(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(Kind::Lost, volume).id(ino.0).end()
}

/// A directory entry by name.
pub(crate) fn entry(volume: VolumeId, dir: Ino, name: &[u8]) -> Vec<u8> {
    Key::new(Kind::Entry, volume).id(dir.0).bytes(name)
}

/// A directory entry by cookie.
pub(crate) fn order(volume: VolumeId, dir: Ino, cookie: u64) -> Vec<u8> {
    Key::new(Kind::Order, volume).id(dir.0).id(cookie).end()
}

/// Locks of one session on a file: flocks or POSIX locks. Where there are many of them, those from an owner's byte on; `None`: the
/// first ones.
pub(crate) fn lock(
    volume: VolumeId,
    flock: bool,
    ino: Ino,
    session: u64,
    page: Option<(u64, u64)>,
) -> Vec<u8> {
    let kind = if flock { Kind::Flock } else { Kind::Posix };
    let key = Key::new(kind, volume).id(ino.0).id(session);
    match page {
        Some((owner, start)) => key.id(owner).id(start).end(),
        None => key.end(),
    }
}

/// Delayed work on an inode, whose time comes at `time_ms`.
pub(crate) fn queue(volume: VolumeId, time_ms: u64, ino: Ino) -> Vec<u8> {
    Key::new(Kind::Queue, volume).id(time_ms).id(ino.0).end()
}

/// An inode.
pub(crate) fn inode(volume: VolumeId, ino: Ino) -> Vec<u8> {
    Key::new(Kind::Inode, volume).id(ino.0).end()
}

/// A name of a hard-linked file.
pub(crate) fn link(volume: VolumeId, ino: Ino, parent: Ino, name: &[u8]) -> Vec<u8> {
    Key::new(Kind::Link, volume).id(ino.0).id(parent.0).bytes(name)
}

/// How far the job is that gives files of the volume another number of copies.
pub(crate) fn recopying(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Recopying, volume).end()
}

/// What the change was for which a slot was lent last.
pub(crate) fn loan(volume: VolumeId, slot: u8) -> Vec<u8> {
    Key::new(Kind::Loan, volume).bytes(&[slot])
}

/// The next inode counter (0), session id (1) or lending (2) not reserved yet.
pub(crate) fn number(volume: VolumeId, which: u8) -> Vec<u8> {
    Key::new(Kind::Number, volume).bytes(&[which])
}

/// By which process the store is written: of no volume.
pub(crate) fn boot() -> Vec<u8> {
    Key::new(Kind::Boot, VolumeId(0)).end()
}

/// The reply to a mutation.
pub(crate) fn result(volume: VolumeId, session: u64, seq: u64) -> Vec<u8> {
    Key::new(Kind::Result, volume).id(session).id(seq).end()
}

/// A session.
pub(crate) fn session(volume: VolumeId, session: u64) -> Vec<u8> {
    Key::new(Kind::Session, volume).id(session).end()
}

/// Topology of the tree: written by each move of a directory to another parent.
pub(crate) fn topology(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Topology, volume).end()
}

/// A guard shard of a directory.
pub(crate) fn shard(volume: VolumeId, dir: Ino, shard: u16) -> Vec<u8> {
    Key::new(Kind::Shard, volume).id(dir.0).bytes(&shard.to_be_bytes())
}

/// Statistics of the volume.
pub(crate) fn volume_stat(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Volume, volume).end()
}

/// An extended attribute.
pub(crate) fn xattr(volume: VolumeId, ino: Ino, name: &[u8]) -> Vec<u8> {
    Key::new(Kind::Xattr, volume).id(ino.0).bytes(name)
}

/// The common beginning of a kind's keys of one volume.
pub(crate) fn prefix(kind: Kind, volume: VolumeId) -> Vec<u8> {
    Key::new(kind, volume).end()
}

/// The common beginning of a kind's keys of one inode (or session).
pub(crate) fn prefix_of(kind: Kind, volume: VolumeId, id: u64) -> Vec<u8> {
    Key::new(kind, volume).id(id).end()
}

/// The first key after all that begin with `prefix`.
pub(crate) fn end_of(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// The `u64` at the end of a key.
pub(crate) fn last_id(key: &[u8]) -> Option<u64> {
    key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id))
}

/// The `u64` that follows kind and volume.
pub(crate) fn first_id(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(5..)?.first_chunk::<8>()?))
}

/// Which guard shard of its directory a key is about.
pub(crate) fn shard_index(key: &[u8]) -> u16 {
    key.last_chunk::<2>().map_or(u16::MAX, |index| u16::from_be_bytes(*index))
}

/// The two `u64`s that follow kind and volume.
pub(crate) fn two_ids(key: &[u8]) -> Option<(u64, u64)> {
    let first = key.get(5..)?.first_chunk::<8>()?;
    let second = key.get(13..)?.first_chunk::<8>()?;
    Some((u64::from_be_bytes(*first), u64::from_be_bytes(*second)))
}

/// From which owner's byte on the locks under a key are.
pub(crate) fn lock_page(key: &[u8]) -> Option<(u64, u64)> {
    let owner = key.get(21..)?.first_chunk::<8>()?;
    let start = key.get(29..)?.first_chunk::<8>()?;
    Some((u64::from_be_bytes(*owner), u64::from_be_bytes(*start)))
}

/// What follows kind, volume and one id: a name.
pub(crate) fn name_after_id(key: &[u8]) -> &[u8] {
    key.get(13..).unwrap_or_default()
}

/// What follows kind, volume and two ids: a name.
pub(crate) fn name_after_two_ids(key: &[u8]) -> &[u8] {
    key.get(21..).unwrap_or_default()
}

/// A number that says where the children of a directory lie.
fn placement(dir: Ino) -> u64 {
    let mixed = dir.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)) & PREFIX_MASK
}

/// The number of a new inode made in `dir`: children of one directory lie together, in the order
/// in which they were made.
pub(crate) fn child_ino(dir: Ino, counter: u64) -> Ino {
    Ino(placement(dir) << COUNTER_BITS | counter & COUNTER_MAX)
}

/// True if the inode lies among the children of `dir` that are in the share of `dir`, where one range scan finds it.
pub(crate) fn lies_in(shares: &Shares, dir: Ino, ino: Ino) -> bool {
    let child = shares.place(child_ino(dir, 0), shares.index_of(dir));
    ino.0 >> COUNTER_BITS == child.0 >> COUNTER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: VolumeId = VolumeId(7);

    #[test]
    fn kinds_are_one_letter_each() {
        let mut letters: Vec<u8> = Kind::ALL.iter().map(|k| *k as u8).collect();
        letters.dedup();
        assert_eq!(letters.len(), Kind::ALL.len());
    }

    #[test]
    fn keys_sort_by_volume_then_id_then_name() {
        let sorted = [
            entry(VolumeId(6), Ino(u64::MAX), b"z"),
            entry(V, Ino(1), b"a"),
            entry(V, Ino(1), b"a\xff"),
            entry(V, Ino(1), b"b"),
            entry(V, Ino(256), b"a"),
            order(V, Ino(1), 255),
            order(V, Ino(1), 256),
            inode(V, Ino(1)),
            inode(V, Ino(2)),
        ];
        assert!(sorted.is_sorted());
    }

    #[test]
    fn ids_come_back_out_of_keys() {
        assert_eq!(two_ids(&queue(V, 5, Ino(9))), Some((5, 9)));
        for page in [None, Some((5, 6))] {
            let key = lock(V, true, Ino(3), 4, page);
            assert_eq!((two_ids(&key), lock_page(&key)), (Some((3, 4)), page));
        }
        assert_eq!(last_id(&order(V, Ino(3), 77)), Some(77));
        assert_eq!(name_after_id(&xattr(V, Ino(3), b"user.a")), b"user.a");
        assert_eq!(two_ids(b"short"), None);
        assert_eq!(name_after_id(b"short"), b"");
    }

    #[test]
    fn a_prefix_ends_before_the_next_volume() {
        let end = match end_of(&prefix(Kind::Entry, VolumeId(u32::MAX))) {
            Bound::Excluded(end) => end,
            other => panic!("{other:?}"),
        };
        assert!(entry(VolumeId(u32::MAX), Ino(u64::MAX), &[255; 255]) < end);
        assert!(end <= order(VolumeId(0), Ino(0), 0));
        assert_eq!(end_of(&[255, 255]), Bound::Unbounded);
    }

    #[test]
    fn children_of_a_directory_lie_together_and_are_positive() {
        let dir = Ino(12345);
        let (first, next) = (child_ino(dir, 2), child_ino(dir, 3));
        assert_eq!(first.0 + 1, next.0);
        let one = Shares::one(V);
        assert!(lies_in(&one, dir, first) && lies_in(&one, dir, child_ino(dir, COUNTER_MAX)));
        assert!(i64::try_from(child_ino(Ino(u64::MAX), COUNTER_MAX).0).is_ok());
    }
}
