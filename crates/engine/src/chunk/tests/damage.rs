//! Logs that are damaged, or that the disk does not read; and a damaged map.

use super::super::log::FILES;
use super::super::record::{CONTENT_AT, KEY_BYTES, LOG_HEAD_BYTES, SALT_BYTES, encode_key};
use super::super::table::{FILE as MAP, Table};
use super::*;

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;
/// Length of a note: salt, and a place.
const NOTE_BYTES: u64 = (CONTENT_AT + SALT_BYTES) as u64 + 8;

/// A target whose process was killed after everything was synced, the last of it by marks.
struct Synced {
    disk: SimDisk,
    state: Model,
    /// The file of its last log, and the one of the log before.
    files: [&'static str; 2],
    /// Where the last note of that log ends.
    end: u64,
}

impl Synced {
    /// After some logs that were folded into the map; `random` says what is in them.
    fn after(logs: u64, random: &mut Random) -> Self {
        let disk = formatted(1, 64 << 20);
        let store = open(&disk);
        for nth in 0..=logs {
            if nth > 0 {
                store.checkpoint().unwrap();
            }
            let durable = store.flushes.lock().durable;
            for _ in 0..4 {
                let (offset, len) = (random.below(40_000), 1 + random.below(6_000));
                put(&store, chunk(1, random.below(2)), offset, random.bytes(len)).unwrap();
                store.sync().unwrap();
            }
            assert_eq!(store.flushes.lock().durable, durable, "it was a checkpoint");
        }
        let (generation, end) = store.commit.lock().log.position();
        let files = [generation, generation + 1].map(|log| FILES[(log % 2) as usize]);
        let state = state_of(&store);
        disk.kill();
        drop(store);
        Self { disk, state, files, end }
    }

    /// Once more, to be damaged: all of it is on the disk, and the host was started anew or was not.
    fn again(&self, is_other_boot: bool) -> SimDisk {
        let copy = SimDisk::new(2, 64 << 20);
        copy.restore(&self.disk);
        if is_other_boot {
            copy.power_loss();
        }
        copy
    }

    /// True if the target is refused with a word about its log; else everything must be there.
    fn is_refused(&self, disk: &SimDisk) -> bool {
        match ChunkStore::open(disk.process(), options()) {
            Ok(store) => {
                assert!(state_of(&store) == self.state, "something is lost");
                false
            }
            Err(error) => {
                let told = error.to_string();
                assert!(told.contains(self.files[0]) && told.contains(" from byte "), "{told}");
                assert!(told.contains("strake target replace"), "{told}");
                true
            }
        }
    }
}

/// A damaged record ended the log: what came after it was dropped without a word, although it had been synced. A
/// damaged head was that of no log.
#[test]
fn a_log_that_is_damaged_in_front_of_what_was_synced_is_refused() {
    for logs in [0, 3] {
        let mut random = Random(logs);
        let synced = Synced::after(logs, &mut random);
        for nth in 0..300 {
            let disk = synced.again(nth % 2 == 0);
            let at = match nth % 5 {
                0 => random.below(LOG_HEAD_BYTES as u64),
                1 => synced.end - 100 + random.below(200),
                _ => random.below(synced.end + 5000),
            };
            disk.flip_bit(synced.files[0], at, random.below(8) as u8);
            // The head has a copy, and nothing was synced after the last note.
            let is_needed = (LOG_HEAD_BYTES as u64..synced.end - NOTE_BYTES).contains(&at);
            assert_eq!(synced.is_refused(&disk), is_needed, "bit of byte {at} of {}", synced.end);
        }
    }
}

/// A page that cannot be read kept a target from being opened wherever in a log it was.
#[test]
fn a_page_of_a_log_that_the_disk_does_not_read_is_missed_only_where_changes_may_lie() {
    for (logs, is_other_boot) in [(0, false), (0, true), (3, false), (3, true)] {
        let synced = Synced::after(logs, &mut Random(logs));
        let len = synced.disk.process().open(synced.files[0], false).unwrap().len().unwrap();
        for page in (0..len).step_by(PAGE as usize) {
            let disk = synced.again(is_other_boot);
            disk.spoil(synced.files[0], page);
            let refused = synced.is_refused(&disk);
            assert!(refused || page >= synced.end, "page at {page} of {}", synced.end);
            // What the file held before may look like the beginning of a record there.
            let is_behind = page >= synced.end + CONTENT_AT as u64;
            assert!(logs > 0 || refused != is_behind, "page at {page} of {}", synced.end);
            if refused {
                // Nothing was given up.
                disk.unspoil();
                assert!(!synced.is_refused(&disk));
            } else {
                let file = disk.process().open(synced.files[0], false).unwrap();
                file.read_exact_at(&mut [0], page).unwrap();
            }
        }
    }
}

/// Of a log that is in the map nothing is missed. Under the last page of a file, which it only begins, a bad sector was not
/// written over, and the next log could not begin.
#[test]
fn damage_to_a_log_that_is_in_the_map_already_does_no_harm() {
    let mut random = Random(5);
    let synced = Synced::after(3, &mut random);
    let last = synced.disk.process().open(synced.files[1], false).unwrap().len().unwrap() - 1;
    for nth in 0..60 {
        let disk = synced.again(nth % 2 == 0);
        let at = [0, random.below(60_000), last][random.below(3) as usize];
        match random.below(2) {
            0 => disk.spoil(synced.files[1], at),
            _ => disk.flip_bit(synced.files[1], at, random.below(8) as u8),
        }
        assert!(!synced.is_refused(&disk), "byte {at}");
    }
}

/// As a disk does that has lost a write.
#[test]
fn after_sectors_of_a_log_have_become_zeros_everything_synced_is_there_or_the_target_is_refused() {
    let (mut random, mut refused) = (Random(11), 0);
    for seed in 0..8 {
        let synced = Synced::after(seed % 3, &mut random);
        for nth in 0..40 {
            let disk = synced.again(nth % 2 == 0);
            // The last note may not be hit together with what it vouches for.
            let sectors = (synced.end - NOTE_BYTES) / SECTOR;
            let first = random.below(sectors);
            let count = 1 + random.below(sectors - first).min(20);
            let zeros = vec![0; (count * SECTOR) as usize];
            let file = disk.process().open(synced.files[0], false).unwrap();
            file.write_all_at(&zeros, first * SECTOR).unwrap();
            refused += u64::from(synced.is_refused(&disk));
        }
    }
    assert!(refused > 150, "{refused}");
}

/// The note that follows a sync is nothing to be synced.
#[test]
fn a_sync_of_nothing_new_writes_nothing() {
    let disk = formatted(1, 64 << 20);
    let store = open(&disk);
    put(&store, chunk(1, 0), 0, vec![1; 100]).unwrap();
    store.sync().unwrap();
    let before = disk.operations();
    store.sync().unwrap();
    assert_eq!(disk.operations(), before);
}

/// A search goes on with what it meets: a chunk before those of a cut was cut with them, and a walk by pages could come back
/// to where it was, for ever.
#[test]
fn a_damaged_map_shows_no_chunk_but_those_that_are_looked_for() {
    let disk = SimDisk::new(1, 64 << 20).process();
    let key = |index| encode_key(chunk(1, index), 0);
    let table = Table::create(&*disk, 1 << 20, 1 << 20).unwrap();
    let writes = (1..8).map(|nth| (key(10 * nth), Some(vec![0]))).collect();
    table.commit(&writes, 1).unwrap();
    drop(table);
    let map = disk.open(MAP, false).unwrap();
    let mut bytes = vec![0; map.len().unwrap() as usize];
    map.read_exact_at(&mut bytes, 0).unwrap();
    for (at, part) in bytes.windows(KEY_BYTES).enumerate() {
        if part == key(60) {
            map.write_all_at(&key(1), at as u64).unwrap();
        }
    }
    let table = Table::open(&*disk, 1 << 20, 1 << 20).unwrap();
    let shown = |first| {
        let mut shown = Vec::new();
        let each = |id: ChunkId| {
            shown.push(id.index.0);
            true
        };
        table.ids(chunk(1, first), chunk(1, u64::MAX), each).map(|()| shown)
    };
    assert_eq!(shown(0).unwrap(), [10, 20, 30, 40, 50, 1, 70], "as it is damaged");
    let refused = shown(5).unwrap_err();
    assert!(matches!(refused, ChunkError::Damaged { .. }), "{refused}");
}

/// Each scrub of the target ended at that chunk, for ever: nothing behind it was verified.
#[test]
fn a_damaged_map_of_a_chunk_is_found_by_scrub_and_what_is_behind_it_is_verified() {
    let store = with_a_damaged_map(1);
    let report = store.scrub(None, u64::MAX).unwrap();
    assert_eq!((report.chunks, report.next), (3, None));
    assert_eq!(report.corrupt, [chunk(1, 1)]);
}
