//! iozone's tests, under its names and with its meanings.
//!
//! A test writes or reads a file record by record; what differs is the order and the calls. In a
//! cell (one file size, one record size) the tests follow each other on the same files, as in
//! iozone: what reads finds what was written, in whatever cache it is.
//!
//! Where this differs from iozone: sizes without a unit are bytes; records must divide files; the
//! random mix and the record rewrite are the last tests of a file, because they leave records of
//! another generation; the time of several workers is from the first beginning to the last end.

mod cells;
mod test;

pub use test::{Act, Test};

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
    /// The files of the workers (`-F`), by their paths in the measured directory, one for each; empty
    /// where the run names its own.
    pub names: Vec<String>,
    /// Of a hundred workers, so many read in the random mix (`-+p`); every second one where nobody says.
    pub read_percent: Option<u32>,
    /// Results in operations per second (`-O`).
    pub per_second: bool,
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
            tests: Test::all(1),
            sizes: Vec::new(),
            workers: 1,
            shared_file: false,
            names: Vec::new(),
            read_percent: None,
            per_second: false,
            mapped: false,
            in_flight: None,
            open: Open::default(),
            ending: Ending::default(),
            cold: false,
            protocol: Protocol::default(),
        }
    }
}

impl Options {
    /// How many workers read in the random mix.
    pub fn readers(&self) -> usize {
        (0..self.workers).filter(|worker| self.is_reader(*worker)).count()
    }

    /// As iozone has it: of a percentage the first workers read; without one, every second does.
    fn is_reader(&self, worker: usize) -> bool {
        match self.read_percent {
            Some(percent) => worker < self.workers * percent as usize / 100,
            None => worker.is_multiple_of(2),
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
    refuse_crew(options)?;
    let Options { workers, mapped, in_flight, open, .. } = options;
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

/// Numbers of workers that cannot be, or not with the rest.
fn refuse_crew(options: &Options) -> Result<()> {
    let Options { workers, names, shared_file, .. } = options;
    if *workers == 0 || *workers > WORKERS_MAX {
        return Err(Error::usage(format!("{workers} workers: 1 to {WORKERS_MAX} make sense")));
    }
    if !names.is_empty() && names.len() != *workers {
        let count = names.len();
        return Err(Error::usage(format!("-F names {count} files for {workers} workers"))
            .next(format!("name one file for each: -t {count}")));
    }
    if !names.is_empty() && *shared_file {
        return Err(Error::usage("-F gives each worker a file, and --shared-file all of them one"));
    }
    let mixes = options.tests.iter().any(|test| test.act == Act::Mix);
    if mixes && *workers < 2 {
        return Err(Error::usage(
            "test 8 (random mix) needs a worker that reads and one that writes",
        )
        .next("use two or more: -t 2"));
    }
    if options.read_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
        return Err(Error::usage("-+p: 1 to 100 percent of the workers can read"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
