//! The thread matrix of the second study: file size, block size, threads, with and without `fsync`.
//!
//! Written is a new file of random bytes by each thread. Read is one file by all threads, each
//! its own region from the beginning to the end, after caches were emptied.

use crate::content::Content;
use crate::error::{Error, Result};
use crate::plan::{Before, Cell, Plan, Protocol, Room, Step};
use crate::result::Unit;
use crate::work::file::{Calls, Direction, Ending, Open, Pass};
use crate::work::{Job, Order};

/// Most threads; fewer than 2 to the 13th (`writing` counts on it).
const THREADS_MAX: u64 = 4096;
/// Largest file.
const SIZE_MAX: u64 = 1 << 44;
/// Block by which the file is made that is read.
const PREPARED_BLOCK: u64 = 1 << 20;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Sizes of files.
    pub sizes: Vec<u64>,
    /// Sizes of blocks.
    pub blocks: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// Whether to write with `fsync`, without, or both ways; none: it is only read.
    pub flush: Vec<bool>,
    /// How often it is done, and with what contents.
    pub protocol: Protocol,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sizes: vec![1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30],
            blocks: vec![1 << 10, 1 << 15, 1 << 20],
            threads: vec![1, 2, 4, 8, 16, 32],
            flush: vec![false, true],
            protocol: Protocol::default(),
        }
    }
}

/// What a run of these options does.
pub fn plan(options: &Options) -> Result<Plan> {
    refuse_nonsense(options)?;
    let mut plan = Plan::new("the thread matrix of study 2");
    plan.repetitions = options.protocol.repetitions;
    plan.cells = options.sizes.iter().map(|size| cell(options, *size)).collect();
    plan.chart_each_test(&["threads"], true);
    let all = options.blocks.len() * options.threads.len() * options.sizes.len();
    let left_out = all - combinations(options).count();
    if left_out > 0 {
        plan.notes.push(format!(
            "{left_out} of {all} combinations are not read: their files cannot be cut into regions of whole blocks"
        ));
    }
    plan.notes.extend(options.protocol.note());
    Ok(plan)
}

fn refuse_nonsense(options: &Options) -> Result<()> {
    let wrong =
        |what: &str, value: u64| Err(Error::usage(format!("{what} {value} makes no sense")));
    if let Some(size) = options.sizes.iter().find(|size| **size == 0 || **size > SIZE_MAX) {
        return wrong("a file size of", *size);
    }
    if let Some(threads) = options.threads.iter().find(|n| **n == 0 || **n > THREADS_MAX) {
        return wrong("a number of threads of", *threads);
    }
    for block in &options.blocks {
        if *block == 0 {
            return wrong("a block size of", *block);
        }
        if let Some(size) = options.sizes.iter().find(|size| !size.is_multiple_of(*block)) {
            return Err(Error::usage(format!(
                "a file of {size} bytes cannot be cut into blocks of {block} bytes"
            ))
            .next("choose file sizes that are multiples of all block sizes"));
        }
    }
    Ok(())
}

/// Size, block and threads wherever a region has whole blocks.
fn combinations(options: &Options) -> impl Iterator<Item = (u64, u64, u64)> {
    let threads = |size, block| options.threads.iter().map(move |threads| (size, block, *threads));
    let blocks = move |size| options.blocks.iter().flat_map(move |block| threads(size, *block));
    options
        .sizes
        .iter()
        .flat_map(move |size| blocks(*size))
        .filter(|(size, block, threads)| size.is_multiple_of(block * threads))
}

fn cell(options: &Options, size: u64) -> Cell {
    let most = options.threads.iter().max().copied().unwrap_or(1);
    let mut steps = Vec::new();
    for flush in &options.flush {
        for block in &options.blocks {
            for threads in &options.threads {
                steps.push(writing(options, size, *block, *threads, *flush));
            }
        }
    }
    let record = if size.is_multiple_of(PREPARED_BLOCK) { PREPARED_BLOCK } else { size };
    let whole = Pass { record, records: size / record, ..pass(options, Direction::Write) };
    steps.push(Step::preparing(vec![Job::File(whole)]));
    for (_, block, threads) in combinations(options).filter(|(of, _, _)| *of == size) {
        steps.push(reading(options, size, block, threads));
    }
    let writers = if options.flush.is_empty() { 0 } else { most };
    let needs = Room { bytes: size * (writers + 1), files: writers + 3 };
    let parameters = [("size".to_owned(), size as f64)].into();
    Cell { parameters, steps, needs, ..Cell::default() }
}

fn writing(options: &Options, size: u64, block: u64, threads: u64, flush: bool) -> Step {
    // Another one for each writing of a file, and another one than that of the file that is read.
    let generation = (block << 14) | (threads << 1) | u64::from(flush);
    let of = |thread: u64| {
        let plain = pass(options, Direction::Write);
        let seed = options.protocol.seed ^ (thread << 32);
        Job::File(Pass {
            file: format!("written-{thread}"),
            record: block,
            records: size / block,
            ending: Ending { flush, close: false },
            content: Content { seed, generation, ..plain.content },
            ..plain
        })
    };
    let test = if flush { "matrix/write fsync" } else { "matrix/write" };
    let step = Step::measured(test, Unit::BytesPerSecond, (0..threads).map(of).collect());
    Step { parameters: parameters(block, threads), before: Before::Settle, ..step }
}

fn reading(options: &Options, size: u64, block: u64, threads: u64) -> Step {
    let region = size / threads;
    let of = |thread: u64| {
        let (start, records) = (thread * region, region / block);
        Job::File(Pass { start, record: block, records, ..pass(options, Direction::Read) })
    };
    let jobs = (0..threads).map(of).collect();
    let step = Step::measured("matrix/read", Unit::BytesPerSecond, jobs).cooled(true);
    Step { parameters: parameters(block, threads), ..step }
}

fn parameters(block: u64, threads: u64) -> std::collections::BTreeMap<String, f64> {
    [("block".to_owned(), block as f64), ("threads".to_owned(), threads as f64)].into()
}

/// A pass over the file that is read; what differs is filled in.
fn pass(options: &Options, direction: Direction) -> Pass {
    let makes = direction == Direction::Write;
    Pass {
        file: "read".into(),
        direction,
        start: 0,
        record: 0,
        records: 0,
        order: Order::Forward,
        calls: Calls::Positioned,
        open: Open { create: makes, fresh: makes, ..Open::default() },
        ending: Ending::default(),
        content: options.protocol.content(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::measure;

    fn options() -> Options {
        let (sizes, blocks) = (vec![16 << 10, 64 << 10], vec![1 << 10, 16 << 10]);
        Options {
            sizes,
            blocks,
            threads: vec![1, 4],
            protocol: Protocol::VERIFYING,
            ..Options::default()
        }
    }

    #[test]
    fn every_cell_is_written_both_ways_and_read_where_regions_have_whole_blocks() {
        let mut plan = plan(&options()).unwrap();
        assert!(plan.notes[0].starts_with("1 of 8 combinations are not read"), "{:?}", plan.notes);
        // Dropping caches would disturb whatever else runs on this machine.
        for step in plan.cells.iter_mut().flat_map(|cell| &mut cell.steps) {
            assert_eq!(
                step.before == Before::Cool,
                step.measures.iter().any(|m| m.test == "matrix/read")
            );
            step.before = Before::Nothing;
        }
        let report = measure(&plan);
        let count = |test| report.figures.iter().filter(|figure| figure.test == test).count();
        assert_eq!(
            [count("matrix/write"), count("matrix/write fsync"), count("matrix/read")],
            [8, 8, 7]
        );
    }

    #[test]
    fn what_is_only_read_has_no_room_for_a_file_of_each_thread() {
        let only = plan(&Options { flush: Vec::new(), ..options() }).unwrap();
        let steps = only.cells.iter().flat_map(|cell| &cell.steps);
        let tests: Vec<_> = steps.flat_map(|step| &step.measures).map(|m| &m.test).collect();
        assert!(!tests.is_empty() && tests.iter().all(|test| *test == "matrix/read"));
        let room = |plan: &Plan| plan.cells.iter().map(|cell| cell.needs.bytes).sum::<u64>();
        assert_eq!(room(&only), options().sizes.iter().sum::<u64>());
        assert!(room(&plan(&options()).unwrap()) > room(&only));
    }

    #[test]
    fn readers_share_one_file_in_disjoint_regions_and_writers_have_their_own() {
        let options = options();
        let read = reading(&options, 64 << 10, 1 << 10, 4);
        let write = writing(&options, 64 << 10, 1 << 10, 4, true);
        for (number, job) in read.jobs.iter().enumerate() {
            let Job::File(pass) = job else { panic!("{job:?} is no pass over a file") };
            assert_eq!((pass.file.as_str(), pass.start), ("read", number as u64 * (16 << 10)));
            assert_eq!(pass.bytes(), 16 << 10);
        }
        for (number, job) in write.jobs.iter().enumerate() {
            let Job::File(pass) = job else { panic!("{job:?} is no pass over a file") };
            assert_eq!((pass.file.clone(), pass.start), (format!("written-{number}"), 0));
            assert!(pass.bytes() == 64 << 10 && pass.ending.flush);
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for wrong in [
            Options { sizes: vec![0], ..options() },
            Options { blocks: vec![0], ..options() },
            Options { blocks: vec![3000], ..options() },
            Options { threads: vec![0], ..options() },
            Options { threads: vec![1 << 40], ..options() },
        ] {
            assert!(plan(&wrong).is_err(), "{wrong:?}");
        }
    }
}
