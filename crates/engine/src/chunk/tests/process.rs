//! A child process on a real disk, killed at random moments.

use super::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use strake_base::disk::{Disk, RealDisk};

const DIRECTORY: &str = "STRAKE_CHUNK_CHILD_DIRECTORY";
const FIRST: &str = "STRAKE_CHUNK_CHILD_FIRST";
/// Chunks that the child writes to in turn.
const CHUNKS: u64 = 20;

fn real(path: &Path) -> Arc<dyn Disk> {
    Arc::new(RealDisk::new(path).unwrap())
}

/// What write number `nth` puts where.
fn write_of(nth: u64) -> (ChunkId, u64, Vec<u8>) {
    let mut random = Random(nth);
    let (offset, len) = (random.below(50_000), 1 + random.below(20_000));
    (chunk(1, nth % CHUNKS), offset, random.bytes(len))
}

/// Not a test by itself: what [`sigkill_loses_nothing_acknowledged`] runs as a child.
#[test]
#[ignore = "runs only as the child of another test"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let options = ChunkOptions { background: true, checkpoint_ms_max: 5, ..options() };
    let store = ChunkStore::open(real(Path::new(&directory)), options).unwrap();
    for nth in first.. {
        let (id, offset, data) = write_of(nth);
        put(&store, id, offset, data).unwrap();
        println!("\nacknowledged {nth}");
    }
}

/// Runs a child that writes from number `first` on, kills it after `count` acknowledgements, and
/// returns the number after the last one acknowledged.
fn run_and_kill(directory: &Path, first: u64, count: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "chunk::tests::process::child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = first;
    for line in lines {
        let Some(nth) = line.unwrap().strip_prefix("acknowledged ").map(str::to_owned) else {
            continue;
        };
        next = nth.parse::<u64>().unwrap() + 1;
        if next == first + count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(next >= first + count, "the child ended by itself");
    next
}

#[test]
fn sigkill_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    ChunkStore::format(&real(directory.path()), &identity(), &options()).unwrap();
    let (mut random, mut next) = (Random(5), 0);
    let mut model = Model::new();
    for _ in 0..6 {
        let acknowledged = run_and_kill(directory.path(), next, 50 + random.below(400));
        for nth in next..acknowledged {
            let (id, offset, data) = write_of(nth);
            Op::Write(id, offset, data).apply(&mut model);
        }
        let store = ChunkStore::open(real(directory.path()), options()).unwrap();
        let state = state_of(&store);
        // The write after the last acknowledged one may be there or not.
        let mut with_next = model.clone();
        let (id, offset, data) = write_of(acknowledged);
        Op::Write(id, offset, data).apply(&mut with_next);
        assert!(state == model || state == with_next, "after {acknowledged} writes");
        (model, next) = (state, acknowledged);
    }
}

#[test]
fn a_real_disk_behaves_as_the_store_expects() {
    let directory = tempfile::tempdir().unwrap();
    let disk = real(directory.path());
    ChunkStore::format(&disk, &identity(), &options()).unwrap();
    let store = ChunkStore::open(disk.clone(), ChunkOptions::default()).unwrap();
    let other = real(directory.path());
    let refusal = ChunkStore::open(other, options()).err().unwrap();
    assert!(matches!(refusal, ChunkError::InUse { .. }), "{refusal}");
    put(&store, chunk(1, 0), 3, vec![7; 3_000_000]).unwrap();
    store.sync().unwrap();
    let (bytes, _) = store.read_cached(chunk(1, 0), 3, 3_000_000).unwrap().unwrap();
    assert_eq!(bytes, vec![7; 3_000_000]);
    assert!(store.stat().free_bytes > 0);
    drop(store);
    assert_eq!(Identity::read(&*disk).unwrap(), Some(identity()));
}
