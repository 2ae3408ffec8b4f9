//! A target as an earlier release wrote it: a checkpoint, and a log that goes on after it.
//!
//! The fixture is the directory's files packed into one: for each, the length of its name, the name,
//! its length, the number of its pages that are not all zeros, and these with their numbers.

use super::*;
use strake_base::disk::Disk;

const FIXTURE: &[u8] = include_bytes!("fixtures/target-v1.pack");
/// With a mark in its log.
const FIXTURE_2: &[u8] = include_bytes!("fixtures/target-v2.pack");

fn pack(disk: &dyn Disk) -> Vec<u8> {
    let mut packed = Vec::new();
    for name in disk.list().unwrap() {
        let file = disk.open(&name, false).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let pages = || (0u32..).zip(bytes.chunks(4096)).filter(|(_, p)| p.iter().any(|b| *b != 0));
        packed.push(name.len() as u8);
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        packed.extend_from_slice(&(pages().count() as u32).to_le_bytes());
        for (number, page) in pages() {
            packed.extend_from_slice(&number.to_le_bytes());
            packed.extend_from_slice(page);
            packed.resize(packed.len() + 4096 - page.len(), 0);
        }
    }
    packed
}

fn unpack(mut packed: &[u8]) -> SimDisk {
    let simulated = SimDisk::new(1, 1 << 30);
    let disk = simulated.process();
    let mut take = |len: usize| {
        let (taken, rest) = packed.split_at(len);
        packed = rest;
        (taken.to_vec(), rest.is_empty())
    };
    loop {
        let name_len = take(1).0[0];
        let name = String::from_utf8(take(usize::from(name_len)).0).unwrap();
        let file = disk.open(&name, true).unwrap();
        let len = u64::from_le_bytes(take(8).0.try_into().unwrap());
        let (pages, mut last) = take(4);
        for _ in 0..u32::from_le_bytes(pages.try_into().unwrap()) {
            let number = u32::from_le_bytes(take(4).0.try_into().unwrap());
            let page;
            (page, last) = take(4096);
            file.write_all_at(&page, u64::from(number) * 4096).unwrap();
        }
        file.set_len(len).unwrap();
        file.sync().unwrap();
        if last {
            disk.sync_directory().unwrap();
            return simulated;
        }
    }
}

/// What the fixture was made by.
fn fill(store: &ChunkStore) {
    put(store, chunk(1, 0), 0, vec![1; 10_000]).unwrap();
    put(store, chunk(1, 1), 2_000_000, vec![2; 100]).unwrap();
    store.allocate(chunk(1, 2), 0, 8192).unwrap();
    store.sync().unwrap();
    // After the checkpoint: in the log only.
    store.clone_range(chunk(1, 0), 0, chunk(2, 0), 0, 10_000).unwrap();
    store.punch(chunk(1, 0), 0, 4096).unwrap();
    store.delete_range(VolumeId(1), Ino(1), from(2)).unwrap();
    store.sync().unwrap();
    // After the mark: gone with the power.
    put(store, chunk(3, 0), 0, vec![3; 100]).unwrap();
}

#[test]
#[ignore = "makes the fixture anew: for a new version of the format, under a new name"]
fn make_the_fixture() {
    let disk = SimDisk::new(1, 1 << 30);
    let options = ChunkOptions { reserve_bytes: 4096, ..options() };
    ChunkStore::format(&disk.process(), &identity(), &options).unwrap();
    let store = ChunkStore::open(disk.process(), options).unwrap();
    fill(&store);
    disk.kill();
    drop(store);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/chunk/tests/fixtures/target-v2.pack");
    std::fs::write(path, pack(&*disk.process())).unwrap();
}

/// Checks what all fixtures hold; returns what was written last.
fn check(disk: &SimDisk) -> Vec<u8> {
    let store = open(disk);
    let mut punched = vec![1; 10_000];
    punched[..4096].fill(0);
    assert_eq!(store.identity(), &identity());
    assert_eq!(contents(&store, chunk(1, 0)), punched);
    assert_eq!(contents(&store, chunk(2, 0)), vec![1; 10_000]);
    let (bytes, _) = store.read(chunk(1, 1), 1_999_999, 1000).unwrap();
    assert_eq!((bytes[0], &bytes[1..]), (0, &[2; 100][..]));
    let last = contents(&store, chunk(3, 0));
    assert_eq!(store.stat().chunks, 3 + u64::from(!last.is_empty()));
    last
}

#[test]
fn a_target_of_format_2_is_opened_with_its_log() {
    assert_eq!(check(&unpack(FIXTURE_2)), vec![3; 100]);
    let disk = unpack(FIXTURE_2);
    disk.power_loss();
    assert_eq!(check(&disk), vec![]);
}

#[test]
fn a_target_of_format_1_is_opened_with_its_log() {
    let disk = unpack(FIXTURE);
    check(&disk);
    check(&disk);
}

/// Without notes, damage cannot be told from what a power loss leaves.
#[test]
fn a_log_of_an_earlier_release_ends_at_its_first_damage() {
    for power_is_lost in [false, true] {
        let disk = unpack(FIXTURE_2);
        if power_is_lost {
            disk.power_loss();
        }
        for name in ["log-0", "log-1"] {
            disk.flip_bit(name, 80, 1);
        }
        assert_eq!(open(&disk).identity(), &identity());
    }
}

#[test]
fn a_target_of_a_newer_format_is_refused() {
    let disk = unpack(FIXTURE);
    let file = disk.process().open("identity", false).unwrap();
    file.write_all_at(&[3], 8).unwrap();
    let error = ChunkStore::open(disk.process(), options()).err().unwrap();
    assert!(matches!(error, ChunkError::Newer { found: 3, known: 2, .. }), "{error}");
}

#[test]
fn a_damaged_map_is_an_error_and_no_panic() {
    let (mut damaged, mut random) = (0, Random(1));
    for _ in 0..200 {
        let disk = unpack(FIXTURE);
        let name = ["map.redb", "log-0", "log-1", "identity"][random.below(4) as usize];
        let len = disk.process().open(name, false).unwrap().len().unwrap();
        disk.flip_bit(name, random.below(len), random.below(8) as u8);
        match ChunkStore::open(disk.process(), options()) {
            Ok(store) => drop(store.read(chunk(1, 0), 0, u64::MAX)),
            Err(_) => damaged += 1,
        }
    }
    assert!(damaged > 0);
}
