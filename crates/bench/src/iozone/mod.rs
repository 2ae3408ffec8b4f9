//! iozone's tests, under its names and with its meanings.
//!
//! A test writes or reads a file record by record; what differs is the order and the calls. In a
//! cell (one file size, one record size) the tests follow each other on the same files, as in
//! iozone: what reads finds what was written, in whatever cache it is.
//!
//! Where this differs from iozone: sizes without a unit are bytes; records must divide files; the
//! record rewrite is the last test of a file, because it leaves one record of another generation;
//! the time of several workers is from the first beginning to the last end.

mod cells;
mod test;

pub use test::Test;

use crate::error::{Error, Result};
use crate::plan::{Plan, Protocol};
use crate::work::file::{Ending, Open};

/// Smallest file of automatic mode.
pub const FILE_MIN: u64 = 64 << 10;
/// Largest file of automatic mode, unless something else is asked for.
pub const FILE_MAX: u64 = 512 << 20;
/// Smallest record of automatic mode.
pub const RECORD_MIN: u64 = 4 << 10;
/// Largest record of automatic mode.
pub const RECORD_MAX: u64 = 16 << 20;
/// From this size on, automatic mode leaves small records out...
const LARGE_FILE: u64 = 32 << 20;
/// ...namely those below this one.
const LARGE_FILE_RECORD_MIN: u64 = 64 << 10;
/// Most workers.
pub const WORKERS_MAX: usize = 4096;
/// Largest record that there can be a buffer for.
const RECORD_LIMIT: u64 = 1 << 30;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which tests, in groups as iozone's `-i` selects them.
    pub tests: Vec<Test>,
    /// Sizes of files (of each worker), each with the sizes of records to use.
    pub sizes: Vec<(u64, Vec<u64>)>,
    /// Workers at the same time (`-t`).
    pub workers: usize,
    /// All workers on disjoint parts of one file, instead of a file each.
    pub shared_file: bool,
    /// By mappings (`-B`).
    pub mapped: bool,
    /// By `io_uring`, with so many records in flight (`-H`).
    pub in_flight: Option<u32>,
    /// How files are opened (`-I`, `-o`).
    pub open: Open,
    /// What the timing includes (`-c`, `-e`).
    pub ending: Ending,
    /// Whether caches are emptied before each test that reads.
    pub cold: bool,
    /// How often it is done, and with what contents.
    pub protocol: Protocol,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tests: Test::GROUPS.iter().flat_map(|(_, tests)| *tests).copied().collect(),
            sizes: Vec::new(),
            workers: 1,
            shared_file: false,
            mapped: false,
            in_flight: None,
            open: Open::default(),
            ending: Ending::default(),
            cold: false,
            protocol: Protocol::default(),
        }
    }
}

/// The files and records of automatic mode (`-a`): sizes double from `min` to `max`, and records from
/// 4 KiB to 16 MiB, but no longer than the file, and none below 64 KiB for files of 32 MiB and more.
pub fn automatic(min: u64, max: u64) -> Vec<(u64, Vec<u64>)> {
    let records = |file| {
        let least = if file >= LARGE_FILE { LARGE_FILE_RECORD_MIN } else { RECORD_MIN };
        doubling(least, RECORD_MAX.min(file)).collect()
    };
    doubling(min, max).map(|file| (file, records(file))).collect()
}

/// Sizes from one to another, each twice the one before.
pub fn doubling(min: u64, max: u64) -> impl Iterator<Item = u64> {
    let next = |size: &u64| size.checked_mul(2).filter(|next| *next > 0);
    std::iter::successors(Some(min), next).take_while(move |size| *size <= max)
}

/// What a run of these options does.
pub fn plan(options: &Options) -> Result<Plan> {
    refuse_nonsense(options)?;
    let mut plan = Plan::new("iozone");
    plan.repetitions = options.protocol.repetitions;
    for (file, records) in &options.sizes {
        for record in records {
            plan.cells.push(cells::cell(options, *file, *record));
        }
    }
    let (files, records) = (options.sizes.len(), options.sizes.iter().map(|(_, r)| r.len()).max());
    let across = if files > 1 || records < Some(2) { "size" } else { "record" };
    plan.chart_each_test(&[across], true);
    plan.notes.extend(options.protocol.note());
    Ok(plan)
}

fn refuse_nonsense(options: &Options) -> Result<()> {
    let Options { workers, mapped, in_flight, open, .. } = options;
    if *workers == 0 || *workers > WORKERS_MAX {
        return Err(Error::usage(format!("{workers} workers: 1 to {WORKERS_MAX} make sense")));
    }
    if *mapped && (in_flight.is_some() || open.direct) {
        return Err(Error::usage("-B (mmap) goes with neither -H (io_uring) nor -I (O_DIRECT)"));
    }
    for (file, records) in &options.sizes {
        if let Some(record) = records.iter().find(|r| **r == 0 || **r > RECORD_LIMIT) {
            return Err(Error::usage(format!(
                "records of {record} bytes: 1 byte to 1 GiB make sense"
            )));
        }
        let divides = |record: &&u64| *file == 0 || !file.is_multiple_of(**record);
        if let Some(record) = records.iter().find(divides) {
            return Err(Error::usage(format!(
                "a file of {file} bytes cannot be cut into records of {record} bytes"
            ))
            .next("choose a file size that is a multiple of the record size"));
        }
        if file.checked_mul(*workers as u64).is_none_or(|all| all > i64::MAX as u64) {
            return Err(Error::usage(format!("{workers} times {file} bytes is too much")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
