//! Stores of every format that was ever written, opened by this release.

use super::workload::{self, run};
use crate::kv::embedded::{Embedded, Store};
use crate::kv::fjall::Lsm;
use crate::kv::redb::BTree;
use std::fs;
use std::path::Path;

/// A segment of the journal with the commits 1 to 20 of writer 0.
const JOURNAL: &[u8] = include_bytes!("fixtures/journal-v2.bin");

/// The directory of a fjall store with 60 commits, some in tables: for each file its path, its
/// length in decimal, each with a line end, and its bytes.
const FJALL: &[u8] = include_bytes!("fixtures/fjall-v2.pack");

/// The same of a redb store.
const REDB: &[u8] = include_bytes!("fixtures/redb-v2.pack");

const CHECKPOINT_BYTES: u64 = 8 << 10;

fn heads<S: Store>(directory: &Path) -> Vec<u64> {
    let kv = Embedded::<S>::open_with(directory, CHECKPOINT_BYTES).unwrap();
    run(workload::verify(&kv, 1)).unwrap()
}

fn reads_journal_v2<S: Store>() {
    let directory = tempfile::tempdir().unwrap();
    let format = format!("strake metadata store\nformat 2\nengine {}\n", S::NAME);
    fs::write(directory.path().join("format"), format).unwrap();
    fs::write(directory.path().join("journal-0000000000000001"), JOURNAL).unwrap();
    assert_eq!(heads::<S>(directory.path()), [20]);
}

#[test]
fn journal_v2_is_read_by_both_engines() {
    reads_journal_v2::<Lsm>();
    reads_journal_v2::<BTree>();
}

#[test]
fn fjall_v2_is_read() {
    reads::<Lsm>(FJALL);
}

#[test]
fn redb_v2_is_read() {
    reads::<BTree>(REDB);
}

fn reads<S: Store>(packed: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let mut rest = packed;
    while !rest.is_empty() {
        let path = directory.path().join(line(&mut rest));
        let length: usize = line(&mut rest).parse().unwrap();
        let (content, after) = rest.split_at(length);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        rest = after;
    }
    assert_eq!(heads::<S>(directory.path()), [60]);
}

fn line<'a>(rest: &mut &'a [u8]) -> &'a str {
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
    let line = std::str::from_utf8(&rest[..end]).unwrap();
    *rest = &rest[end + 1..];
    line
}

fn pack(directory: &Path, below: &Path, packed: &mut Vec<u8>) {
    let mut entries: Vec<_> = fs::read_dir(below).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            pack(directory, &path, packed);
            continue;
        }
        let content = fs::read(&path).unwrap();
        let name = path.strip_prefix(directory).unwrap().display();
        packed.extend_from_slice(format!("{name}\n{}\n", content.len()).as_bytes());
        packed.extend_from_slice(&content);
    }
}

/// Makes the fixtures of an engine; those of the journal are the same for each.
fn make<S: Store>(pack_name: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kv/tests/fixtures");
    let directory = tempfile::tempdir().unwrap();
    let commits = |checkpoint_bytes, numbers: std::ops::RangeInclusive<u64>| {
        let kv = Embedded::<S>::open_with(directory.path(), checkpoint_bytes).unwrap();
        for n in numbers {
            run(workload::commit(&kv, 0, n)).unwrap();
        }
    };
    commits(1 << 20, 1..=20);
    let journal = fs::read(directory.path().join("journal-0000000000000001")).unwrap();
    fs::write(fixtures.join("journal-v2.bin"), journal).unwrap();
    commits(CHECKPOINT_BYTES, 21..=60);
    let mut packed = Vec::new();
    pack(directory.path(), directory.path(), &mut packed);
    fs::write(fixtures.join(pack_name), packed).unwrap();
}

#[test]
#[ignore = "makes the fixtures anew: for a new version of the format, under a new name"]
fn make_the_fixtures() {
    make::<BTree>("redb-v2.pack");
    make::<Lsm>("fjall-v2.pack");
}
