//! The forms of bytes that are read from a metadata store, for those who test decoders.

use crate::records::{
    self, BootRecord, Entry, HeldLock, Inode, LoanRecord, Locks, LostUse, Mark, Number, Order,
    Place, Raw, Recopying, SessionRecord, Shard, Spare, Stat, Topology,
};
use crate::{keys, layout};
use bytes::Bytes;
use prost::Message;
use strake_types::form::{Form, Outcome, again, unsealed};
use strake_types::{Ino, VolumeId};
use strake_wire::message::common::{Dist, FileLayout, Template, Time};
use strake_wire::message::recopies::RecopyTally;

/// Everything that is read from a metadata store: values, and keys as far as they are read.
pub const FORMS: &[Form] = &[
    value("inode", inodes, check_inode),
    value("entry", entries, check::<Entry>),
    value("order", orders, check::<Order>),
    value("shard", shards, check::<Shard>),
    value("number", || vec![encoded(&Number { next: 1 << 40 })], check::<Number>),
    value("boot", boots, check::<BootRecord>),
    value("topology", || vec![encoded(&Topology { moves: 3 })], check::<Topology>),
    value("loan", loans, check::<LoanRecord>),
    value("session", sessions, check::<SessionRecord>),
    value("stat", stats, check::<Stat>),
    value("locks", locks, check::<Locks>),
    value("raw", || vec![encoded(&Raw { bytes: "bytes as they are".into() })], check::<Raw>),
    value("mark", || vec![encoded(&Mark {})], check::<Mark>),
    value("spare", spares, check::<Spare>),
    value("lost use", || vec![encoded(&LostUse { until_ms: 1 << 41 })], check::<LostUse>),
    value("recopying", recopyings, check::<Recopying>),
    Form { name: "key with a name", samples: named_keys, seal: unsealed, check: check_named_key },
    Form { name: "key with two ids", samples: id_keys, seal: unsealed, check: check_id_key },
];

/// The volume whose keys are looked at.
const VOLUME: VolumeId = VolumeId(7);

const fn value(
    name: &'static str,
    samples: fn() -> Vec<Vec<u8>>,
    check: fn(&[u8]) -> Outcome,
) -> Form {
    Form { name, samples, seal, check }
}

fn seal(bytes: &mut [u8]) {
    if let Some((framed, sum)) = bytes.split_last_chunk_mut() {
        *sum = records::checksum(framed).to_le_bytes();
    }
}

fn encoded(record: &impl Message) -> Vec<u8> {
    records::encode(record).into()
}

fn boots() -> Vec<Vec<u8>> {
    let boot = "c4ba2a9e-5c0c-4d2b-9d0e-2f1f8c1f6a51".into();
    vec![encoded(&BootRecord { boot, losses: 3, clean: true })]
}

fn stats() -> Vec<Vec<u8>> {
    let none = Stat { inodes: 5, bytes: 1 << 50, clean: true, ..Stat::default() };
    let deleted = Stat { emptied_once_ms: 1 << 41, ..Stat::default() };
    vec![encoded(&none), encoded(&Stat { uncounted: vec![2, 1 << 41], ..none }), encoded(&deleted)]
}

fn loans() -> Vec<Vec<u8>> {
    let lasts = LoanRecord { number: 1 << 33, made: true, inodes: -1, bytes: -4096, over: false };
    vec![encoded(&lasts), encoded(&LoanRecord { over: true, ..lasts })]
}

fn decoded<T: Message + Default>(bytes: &[u8]) -> Option<T> {
    records::decode(b"key", &Bytes::copy_from_slice(bytes)).ok()
}

fn check<T: Message + Default + PartialEq>(bytes: &[u8]) -> Outcome {
    again(bytes, decoded::<T>, encoded)
}

/// Also reads what an inode holds in forms of their own.
fn check_inode(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| {
        let inode: Inode = decoded(bytes)?;
        let template = layout::template_of(&inode).ok();
        let layout = inode.layout.clone().map(strake_types::Layout::try_from).and_then(Result::ok);
        Some((inode, template, layout))
    };
    again(bytes, decode, |(inode, _, _)| encoded(inode))
}

fn layout() -> FileLayout {
    FileLayout {
        chunk_size: 1 << 20,
        distribution: Dist { kind: 1, ..Dist::default() },
        width: 2,
        seed: 42,
        table: 4,
        list: Vec::new(),
        copies: 2,
        ack: 1,
        min_copies: 2,
        consistency: 2,
        wanted_width: 0,
    }
}

fn spares() -> Vec<Vec<u8>> {
    let around_full = FileLayout { table: 0, list: vec![2, 0], copies: 1, ..layout() };
    let narrower = FileLayout { wanted_width: 3, ..around_full.clone() };
    let spare = |layout| Spare { layout, settled: true, again_ms: 1 << 40 };
    [layout(), around_full, narrower].map(|layout| encoded(&spare(layout))).to_vec()
}

fn recopyings() -> Vec<Vec<u8>> {
    let place = |dir, after| Place { dir, after };
    vec![encoded(&Recopying {
        job: 3,
        stack: vec![place(1, 5 << 8 | 1), place(1 << 40, 0)],
        tally: RecopyTally { looked: 9, files: 7, bytes: 1 << 30 },
    })]
}

fn inodes() -> Vec<Vec<u8>> {
    let time = |seconds| Time { seconds, nanos: 5 };
    let striped = Dist { kind: 1, ..Dist::default() };
    let file = Inode {
        ino: 9,
        kind: 1,
        mode: 0o644,
        nlink: 2,
        length: 1 << 33,
        atime: time(-1),
        mtime: time(1),
        ctime: time(2),
        btime: time(3),
        layout: Some(layout()),
        parent: 1,
        name: "name".into(),
        linked: true,
        xattrs: 1,
        xattr_bytes: 20,
        cut_from: Some(1 << 20),
        queued_ms: 11,
        cut_groups: vec![1, 3],
        ..Inode::default()
    };
    let template =
        Template { distribution: Some(striped), list: vec![3, 1], ..Template::default() };
    let directory = Inode {
        ino: 1,
        kind: 2,
        template: Some(template),
        acl_default: strake_types::acl::Acl::from_mode(0o750).encode().into(),
        more_shards: 3,
        ..Inode::default()
    };
    vec![encoded(&file), encoded(&directory)]
}

fn entries() -> Vec<Vec<u8>> {
    vec![encoded(&Entry { ino: 300, kind: 2, cookie: 5 << 8 | 1 })]
}

fn orders() -> Vec<Vec<u8>> {
    vec![encoded(&Order { name: "name".into(), ino: 300, kind: 2 })]
}

fn shards() -> Vec<Vec<u8>> {
    let mtime = Time { seconds: 1 << 31, nanos: 999_999_999 };
    vec![encoded(&Shard {
        entries: 3,
        subdirs: 1,
        mtime,
        ctime: mtime,
        last_cookie: 4,
        version: 9,
    })]
}

fn sessions() -> Vec<Vec<u8>> {
    let client = "host, process 7, /mnt".into();
    let (since_ms, mount) = (1 << 40, 1 << 60);
    vec![encoded(&SessionRecord {
        client,
        since_ms,
        leases: true,
        mount,
        claims: true,
        behind: true,
    })]
}

fn locks() -> Vec<Vec<u8>> {
    let lock = HeldLock { owner: 1 << 63, pid: 7, start: 5, end: u64::MAX, exclusive: true };
    vec![encoded(&Locks { held: vec![lock, HeldLock { exclusive: false, ..lock }] })]
}

fn named_keys() -> Vec<Vec<u8>> {
    vec![keys::entry(VOLUME, Ino(1 << 40), b"name"), keys::entry(VOLUME, Ino(0), b"")]
}

fn check_named_key(bytes: &[u8]) -> Outcome {
    let decode = |key: &[u8]| {
        let first = *key.get(5..)?.first_chunk()?;
        Some((u64::from_be_bytes(first), keys::name_after_id(key).to_vec()))
    };
    again(bytes, decode, |(dir, name)| keys::entry(VOLUME, Ino(*dir), name))
}

fn id_keys() -> Vec<Vec<u8>> {
    vec![keys::queue(VOLUME, 1 << 40, Ino(9)), keys::lock(VOLUME, true, Ino(3), 4, None)]
}

fn check_id_key(bytes: &[u8]) -> Outcome {
    again(bytes, keys::two_ids, |(time_ms, ino)| keys::queue(VOLUME, *time_ms, Ino(*ino)))
}
