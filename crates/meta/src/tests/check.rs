//! Looks through a whole store and complains about everything that does not fit together.

use crate::keys::{self, Kind};
use crate::records::{self, Entry, Inode, Order, Shard};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use strake_engine::kv::Kv;
use strake_types::{FileKind, Ino, Shares, VolumeId};

/// A store, and the shares of the volume in it.
#[derive(Clone, Copy)]
struct Place<'a> {
    kv: &'a dyn Kv,
    shares: Shares,
}

type Pairs = Vec<(Bytes, Bytes)>;

async fn all(place: Place<'_>, kind: Kind) -> Pairs {
    let snapshot = place.kv.snapshot().await.unwrap();
    let mut found = Pairs::new();
    for share in place.shares.all() {
        let prefix = keys::prefix(kind, share);
        let end = keys::end_of(&prefix);
        let to = end.as_ref().map(Vec::as_slice);
        let pairs = snapshot.scan(Bound::Included(&prefix), to, usize::MAX).await.unwrap();
        let strays = pairs.iter().filter(|(key, _)| {
            let id = keys::first_id(key).filter(|_| kind != Kind::Queue);
            let id = id.or_else(|| keys::last_id(key)).unwrap();
            place.shares.of(Ino(id)) != share
        });
        assert_eq!(strays.count(), 0, "{kind:?} of another share");
        found.extend(pairs);
    }
    found
}

fn decode<T: prost::Message + Default>(pair: &(Bytes, Bytes)) -> T {
    records::decode(&pair.0, &pair.1).unwrap()
}

/// Panics unless entries, inodes, counts and links agree. Returns the number of inodes.
pub async fn check(kv: &dyn Kv) -> usize {
    check_shares(kv, Shares::one(VolumeId(1))).await
}

/// The same, of a volume of several shares.
pub async fn check_shares(kv: &dyn Kv, shares: Shares) -> usize {
    let kv = Place { kv, shares };
    let inodes = all(kv, Kind::Inode).await;
    let inodes: BTreeMap<u64, Inode> =
        inodes.iter().map(decode::<Inode>).map(|inode| (inode.ino, inode)).collect();
    let names = entries(kv, &inodes).await;
    let queued: BTreeSet<(u64, u64)> =
        all(kv, Kind::Queue).await.iter().filter_map(|(key, _)| keys::two_ids(key)).collect();
    let links = all(kv, Kind::Link).await.len();
    let mut linked = 0;
    for inode in inodes.values() {
        let own = names.get(&inode.ino).map_or(0, Vec::len);
        if inode.is_dir() {
            check_directory(kv, inode, &names, &inodes).await;
        } else {
            assert_eq!(inode.nlink as usize, own, "names of {inode:?}");
            linked += if inode.linked { own } else { 0 };
        }
        let in_queue = queued.contains(&(inode.queued_ms, inode.ino));
        assert_eq!(inode.queued_ms != 0, in_queue, "{inode:?}");
        assert!(inode.nlink > 0 || in_queue, "forgotten: {inode:?}");
    }
    assert_eq!(links, linked, "L keys");
    check_contents(kv, &inodes).await;
    inodes.len()
}

/// The names of each inode: directory, name, kind.
type Names = BTreeMap<u64, Vec<(u64, u32)>>;

async fn entries(kv: Place<'_>, inodes: &BTreeMap<u64, Inode>) -> Names {
    let mut names = Names::new();
    let mut by_cookie = BTreeSet::new();
    for pair in &all(kv, Kind::Entry).await {
        let dir = u64::from_be_bytes(*pair.0[5..].first_chunk().unwrap());
        let entry: Entry = decode(pair);
        let inode = inodes.get(&entry.ino).unwrap_or_else(|| panic!("{entry:?} leads nowhere"));
        assert_eq!(inode.kind, entry.kind);
        names.entry(entry.ino).or_default().push((dir, entry.kind));
        assert!(by_cookie.insert((dir, entry.cookie)), "cookie twice");
        let order = keys::order(kv.shares.of(Ino(dir)), Ino(dir), entry.cookie);
        let order = kv.kv.snapshot().await.unwrap().get(&order).await.unwrap().unwrap();
        let order: Order = records::decode(b"E", &order).unwrap();
        assert_eq!((&order.name[..], order.ino), (keys::name_after_id(&pair.0), entry.ino));
    }
    assert_eq!(all(kv, Kind::Order).await.len(), by_cookie.len(), "E keys");
    names
}

async fn check_directory(kv: Place<'_>, dir: &Inode, names: &Names, inodes: &BTreeMap<u64, Inode>) {
    let own = names.get(&dir.ino).cloned().unwrap_or_default();
    let expected = if dir.ino == 1 { vec![] } else { vec![(dir.parent, dir.kind)] };
    assert_eq!(own, expected, "names of {dir:?}");
    let entries = names.values().flatten().filter(|(parent, _)| *parent == dir.ino);
    let directory = FileKind::Directory as u32;
    let subdirs = entries.clone().filter(|(_, kind)| *kind == directory).count() as u64;
    let shard = keys::shard(kv.shares.of(dir.id()), dir.id(), 0);
    let shard = kv.kv.snapshot().await.unwrap().get(&shard).await.unwrap().expect("a shard");
    let shard: Shard = records::decode(b"U", &shard).unwrap();
    assert_eq!((shard.entries, shard.subdirs), (entries.count() as u64, subdirs));
    let mut at = dir;
    for _ in 0..=inodes.len() {
        if at.ino == 1 {
            return;
        }
        at = &inodes[&at.parent];
    }
    panic!("{dir:?} does not lead to the root");
}

async fn check_contents(kv: Place<'_>, inodes: &BTreeMap<u64, Inode>) {
    for (key, _) in all(kv, Kind::Contents).await {
        let inode = &inodes[&keys::last_id(&key).unwrap()];
        assert!(inode.length > 0 && (inode.inline || !inode.is_file()), "contents of {inode:?}");
    }
    let mut xattrs: BTreeMap<u64, u32> = BTreeMap::new();
    for (key, _) in all(kv, Kind::Xattr).await {
        let ino = u64::from_be_bytes(*key[5..].first_chunk().unwrap());
        *xattrs.entry(ino).or_default() += 1;
    }
    for inode in inodes.values() {
        assert_eq!(inode.xattrs, xattrs.get(&inode.ino).copied().unwrap_or(0), "{inode:?}");
    }
}
