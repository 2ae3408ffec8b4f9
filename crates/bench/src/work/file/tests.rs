//! Every pass moves the bytes that its name says, to where they belong.

use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const RECORD: u64 = 4096;
const RECORDS: u64 = 33;
const CONTENT: Content = Content { seed: 11, salt: 0, generation: 3, checked: true };

fn pass(direction: Direction, order: Order, calls: Calls) -> Pass {
    let open = Open { create: direction == Direction::Write, ..Open::default() };
    let (file, ending) = ("f".to_owned(), Ending { flush: true, close: false });
    let (start, record, records) = (0, RECORD, RECORDS);
    let content = CONTENT;
    Pass { file, direction, start, record, records, order, calls, open, ending, content }
}

fn run(pass: &Pass, directory: &Path) -> Result<Amount> {
    let mut prepared = prepare(pass, directory)?;
    let amount = prepared.run(&Watch::default());
    prepared.finish()?;
    amount
}

fn expected(content: Content) -> Vec<u8> {
    let mut bytes = vec![0; (RECORD * RECORDS) as usize];
    content.fill(&mut bytes, 0);
    bytes
}

const CALLS: &[Calls] = &[
    Calls::Plain,
    Calls::Positioned,
    Calls::Vectored,
    Calls::Stdio,
    Calls::Characters,
    Calls::Mapped,
    Calls::Ring { depth: 5 },
];

const ORDERS: &[Order] =
    &[Order::Forward, Order::Backward, Order::Stride { step: 7 }, Order::Shuffled { seed: 3 }];

#[test]
fn every_pair_of_order_and_calls_writes_and_reads_the_whole_file() {
    for &calls in CALLS {
        for &order in ORDERS {
            if matches!(calls, Calls::Stdio | Calls::Characters) && order != Order::Forward {
                continue;
            }
            let directory = tempfile::tempdir().unwrap();
            let amount = run(&pass(Direction::Write, order, calls), directory.path()).unwrap();
            assert_eq!(amount, Amount { bytes: RECORD * RECORDS, operations: RECORDS });
            let found = std::fs::read(directory.path().join("f")).unwrap();
            assert!(found == expected(CONTENT), "{order:?} {calls:?}");
            let amount = run(&pass(Direction::Read, order, calls), directory.path()).unwrap();
            assert_eq!(amount, Amount { bytes: RECORD * RECORDS, operations: RECORDS });
        }
    }
}

/// Every record of a file was the same but for its first word, and a file system that compresses or
/// keeps equal parts once looked many times as fast as it was.
#[test]
fn what_is_not_checked_has_no_part_twice_however_it_is_written() {
    for &calls in CALLS {
        let directory = tempfile::tempdir().unwrap();
        let (mut whole, mut bodies, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
        for seed in [1, 2] {
            let content = Content { seed, checked: false, ..CONTENT };
            let write = Pass { content, ..pass(Direction::Write, Order::Forward, calls) };
            run(&write, directory.path()).unwrap();
            let found = std::fs::read(directory.path().join("f")).unwrap();
            assert_eq!(found.len() as u64, RECORD * RECORDS);
            for part in found.chunks(512) {
                whole.insert(part.to_vec());
                bodies.insert(part[8..].to_vec());
                count += 1;
            }
        }
        assert_eq!(whole.len(), count, "{calls:?}");
        // In which buffer of a ring a record comes is chance, and so is whether it comes there twice.
        if !matches!(calls, Calls::Ring { .. }) {
            assert_eq!(bodies.len(), count, "{calls:?}");
        }
    }
}

#[test]
fn a_flipped_bit_is_found_by_every_way_of_reading() {
    let directory = tempfile::tempdir().unwrap();
    run(&pass(Direction::Write, Order::Forward, Calls::Plain), directory.path()).unwrap();
    let file = File::options().read(true).write(true).open(directory.path().join("f")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 70_001).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 70_001).unwrap();
    for &calls in CALLS {
        let read = pass(Direction::Read, Order::Forward, calls);
        let error = run(&read, directory.path()).unwrap_err();
        assert!(error.cause.contains("offset 70001 "), "{calls:?}: {error}");
        assert!(error.cause.contains("/f: "), "{calls:?}: {error}");
    }
}

/// "failed to fill whole buffer", and no word on how much was lost.
#[test]
fn a_file_that_lost_its_end_is_found_by_every_way_of_reading() {
    let directory = tempfile::tempdir().unwrap();
    run(&pass(Direction::Write, Order::Forward, Calls::Plain), directory.path()).unwrap();
    let file = File::options().write(true).open(directory.path().join("f")).unwrap();
    file.set_len(70_001).unwrap();
    for &calls in CALLS {
        let read = pass(Direction::Read, Order::Forward, calls);
        let error = run(&read, directory.path()).unwrap_err();
        let told = format!("it is 70001 bytes long, and {} were written", RECORD * RECORDS);
        assert!(error.cause.contains(&told) && error.cause.contains("/f: "), "{calls:?}: {error}");
        assert!(error.next.unwrap().contains("has lost data"), "{calls:?}");
    }
}

#[test]
fn changing_a_file_makes_the_next_generation_of_it() {
    let directory = tempfile::tempdir().unwrap();
    run(&pass(Direction::Write, Order::Forward, Calls::Plain), directory.path()).unwrap();
    let after = Content { generation: 4, ..CONTENT };
    let change = Pass { content: after, ..pass(Direction::Change, Order::Forward, Calls::Plain) };
    run(&change, directory.path()).unwrap();
    assert!(std::fs::read(directory.path().join("f")).unwrap() == expected(after));
    let error = run(&change, directory.path()).unwrap_err();
    assert!(error.cause.contains("offset 0 "), "it holds the new generation already: {error}");
}

#[test]
fn seeking_reads_anywhere_and_leaves_the_file_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    run(&pass(Direction::Write, Order::Forward, Calls::Plain), directory.path()).unwrap();
    let order = Order::Anywhere { seed: 2, visits: 100 };
    let amount = run(&pass(Direction::Seek, order, Calls::Plain), directory.path()).unwrap();
    assert_eq!(amount, Amount { bytes: 100 * RECORD, operations: 100 });
    assert!(std::fs::read(directory.path().join("f")).unwrap() == expected(CONTENT));
}

#[test]
fn rewriting_one_record_touches_no_other() {
    let directory = tempfile::tempdir().unwrap();
    run(&pass(Direction::Write, Order::Forward, Calls::Plain), directory.path()).unwrap();
    let after = Content { generation: 4, ..CONTENT };
    let rewrite = Pass { content: after, ..pass(Direction::Write, Order::Same, Calls::Plain) };
    run(&rewrite, directory.path()).unwrap();
    let found = std::fs::read(directory.path().join("f")).unwrap();
    let (first, rest) = found.split_at(RECORD as usize);
    assert!(first == &expected(after)[..RECORD as usize]);
    assert!(rest == &expected(CONTENT)[RECORD as usize..]);
}

#[test]
fn workers_on_one_file_keep_to_their_regions() {
    let directory = tempfile::tempdir().unwrap();
    for &calls in CALLS {
        for start in [RECORD * RECORDS, 0] {
            let region = Pass { start, ..pass(Direction::Write, Order::Forward, calls) };
            run(&region, directory.path()).unwrap();
        }
        let whole = Pass {
            records: 2 * RECORDS,
            ..pass(Direction::Read, Order::Forward, Calls::Positioned)
        };
        run(&whole, directory.path()).unwrap();
        std::fs::remove_file(directory.path().join("f")).unwrap();
    }
}

#[test]
fn direct_synced_flushed_and_closed_passes_move_the_same_bytes() {
    // A file system in memory may have no O_DIRECT: the build directory is on a disk.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let open = Open { create: true, fresh: true, direct: true, synced: true };
    let ending = Ending { flush: true, close: true };
    for calls in [Calls::Plain, Calls::Vectored, Calls::Ring { depth: 2 }] {
        let write = Pass { open, ending, ..pass(Direction::Write, Order::Forward, calls) };
        run(&write, directory.path()).unwrap();
        assert!(std::fs::read(directory.path().join("f")).unwrap() == expected(CONTENT));
        run(&Pass { direction: Direction::Read, ..write }, directory.path()).unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let sane = pass(Direction::Write, Order::Forward, Calls::Plain);
    let direct = Open { direct: true, ..sane.open };
    for wrong in [
        Pass { record: 0, ..sane.clone() },
        Pass { records: 0, ..sane.clone() },
        Pass { record: 1000, open: direct, ..sane.clone() },
        Pass { record: 1000, calls: Calls::Mapped, ..sane.clone() },
        Pass { calls: Calls::Stdio, order: Order::Backward, ..sane.clone() },
        Pass { calls: Calls::Mapped, direction: Direction::Change, ..sane.clone() },
    ] {
        assert!(prepare(&wrong, directory.path()).is_err(), "{wrong:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_too_short_is_an_error_for_every_way_of_reading() {
    let directory = tempfile::tempdir().unwrap();
    let short = Pass { records: 3, ..pass(Direction::Write, Order::Forward, Calls::Plain) };
    run(&short, directory.path()).unwrap();
    for &calls in CALLS {
        assert!(run(&pass(Direction::Read, Order::Forward, calls), directory.path()).is_err());
    }
}

#[test]
fn a_pass_stops_when_it_is_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let watch = Watch::default();
    watch.stop();
    for &calls in CALLS {
        let mut prepared =
            prepare(&pass(Direction::Write, Order::Forward, calls), directory.path()).unwrap();
        assert_eq!(prepared.run(&watch), Err(Error::stopped()));
        prepared.finish().unwrap();
    }
}

/// Moves nothing, and notes whether it was synced.
struct Noting(Arc<AtomicBool>);

impl Transfer for Noting {
    fn record(&mut self, _offset: u64) -> Result<(), Trouble> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        Ok(())
    }
}

/// A run that was to stop waited for the disk, and was left for standing still.
#[test]
fn a_pass_that_is_to_stop_does_not_wait_for_the_disk() {
    for stops in [false, true] {
        let (synced, watch) = (Arc::new(AtomicBool::new(false)), Watch::default());
        let pass = pass(Direction::Write, Order::Forward, Calls::Plain);
        let transfer: Box<dyn Transfer> = Box::new(Noting(synced.clone()));
        let mut opened = Opened { pass, path: PathBuf::new(), transfer: Some(transfer) };
        if stops {
            watch.stop();
        }
        assert_eq!(opened.run(&watch).is_err(), stops);
        assert_eq!(synced.load(Ordering::Relaxed), !stops);
    }
}

/// The message named the file, and its rights, where the kernel had refused a ring.
#[test]
fn a_ring_that_is_refused_is_told_from_a_file_that_is() {
    let told = |calls, code| {
        let error = io::Error::from_raw_os_error(code);
        not_ready(&pass(Direction::Read, Order::Forward, calls), Path::new("/d/f"), &error)
    };
    let ring = Calls::Ring { depth: 4 };
    for code in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
        let error = told(ring, code);
        assert!(error.cause.contains("io_uring") && !error.cause.contains("/d/f"), "{error}");
        let next = error.next.unwrap();
        assert!(next.contains("-H") && next.contains("kernel.io_uring_disabled"), "{next}");
    }
    assert!(told(ring, libc::ENOSPC).cause.contains("/d/f"));
    assert!(told(Calls::Mapped, libc::ENOMEM).cause.contains("/d/f"));
}
