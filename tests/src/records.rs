//! Records that are overwritten again and again, each throughout with the number that was last written to
//! it: so it shows whether one is old, or torn.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a record.
const RECORD: usize = 4096;

/// Overwrites a record and makes it durable; both are acknowledged when this returns without an error.
pub fn write(file: &File, at: usize, number: u64) -> io::Result<()> {
    let record: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(RECORD).collect();
    file.write_all_at(&record, (at * RECORD) as u64)?;
    file.sync_data()
}

/// The number that a record of a file holds; fails if it is torn.
pub fn number_in(bytes: &[u8], at: usize) -> u64 {
    let record = &bytes[at * RECORD..(at + 1) * RECORD];
    let number = u64::from_le_bytes(record[..8].try_into().expect("a record has eight bytes"));
    let whole = record.chunks(8).all(|part| part == number.to_le_bytes());
    assert!(whole, "record {at}, which begins with {number}, is torn");
    number
}

/// The record whose turn it is: all of them, one after the other, and no two neighbours.
pub fn place_of(turn: usize, records: usize) -> usize {
    (turn * 7919) % records
}

/// Says stop at the end of its scope, also where a test fails: else threads that write until they are told
/// would keep it from ending.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file of records, with what was written to each.
pub struct Ledger {
    file: File,
    numbers: Vec<u64>,
}

impl Ledger {
    /// An empty one.
    pub fn new(path: &Path, records: usize) -> Self {
        let mut options = File::options();
        let file = options.create(true).truncate(true).read(true).write(true).open(path);
        Self { file: file.expect("a file can be made"), numbers: vec![0; records] }
    }

    /// Closes the file; what was written can be checked still.
    pub fn close(&mut self) {
        self.file = File::open("/dev/null").expect("it is always there");
    }

    /// Overwrites a record and makes it durable; both are acknowledged when this returns.
    pub fn write(&mut self, at: usize, number: u64) {
        write(&self.file, at, number).expect("a write and its sync succeed");
        self.numbers[at] = number;
    }

    /// Overwrites one record after the other until `stop`.
    pub fn write_until(&mut self, stop: &AtomicBool) {
        for number in 1.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            self.write(place_of(number as usize, self.numbers.len()), number);
        }
    }

    /// Fails unless a file holds what was written.
    pub fn check(&self, path: &Path) {
        let bytes = fs::read(path).expect("the ledger can be read");
        let written = self.numbers.iter().enumerate().filter(|(_, number)| **number > 0);
        assert!(written.clone().count() > 0, "nothing was written");
        for (at, number) in written {
            assert_eq!(number_in(&bytes, at), *number, "record {at}");
        }
    }
}
