//! Study 3: sequential reads over 1 to 5 servers: of a file that fits the memory, ten times, the first
//! from cold caches and told apart; and of a file of four times the memory, five times.
//!
//! The study's machines had 16 GB of memory and read 13 and 65 GB; here the files have the same
//! proportion to the memory of this machine. In a testbed the client and the servers share it, and
//! each side keeps what it has read or written: there they have it to half of the memory.

use super::published::{STUDY_3, figure};
use super::{Options, Setting};
use crate::error::Result;
use crate::machine;
use crate::plan::{Cell, Plan, Room, Step};
use crate::result::{Figure, Rule, Unit};
use crate::work::file::{Calls, Direction, Ending, Open, Pass};
use crate::work::{Job, Order};

/// Names of the rows of the study's table.
const TESTS: [&str; 3] =
    ["sequential/first read", "sequential/cached read", "sequential/large read"];
/// Reads of the file that fits the memory.
const READS: usize = 10;
/// Reads of the large one.
const LARGE_READS: usize = 5;
/// Reads of a quick run.
const QUICK_READS: usize = 3;
/// Sizes of a quick run, in bytes; the large file is read from cold caches each time. Whole stripes over one to five servers: of 64 MiB
/// one of five servers would have 13 chunks, which allows 4.92 times the speed of one.
const QUICK_SIZES: [u64; 2] = [60 << 20, 120 << 20];
/// The study's files and memory, in GB.
const PROPORTION: ([u64; 2], u64) = ([13, 65], 16);
/// What a reader of the figures of a testbed must know.
const SHARED: &str = "files are as large beside half of the memory as the study's beside all of it: client and servers share it";
/// The same, of every size of files.
const SLOWED: &str = "the published figures are of disks of 127.3 MB/s, and this study's testbeds have disks of a twentieth of that: \
     compare how figures grow with the servers, not the figures";
/// Bytes of a call.
const RECORD: u64 = 1 << 20;
/// The study's links: InfiniBand QDR, and never the limit. Its hard disks read this much, in bytes per
/// second; in a testbed the disks are slowed to a twentieth of it, so that they limit there too.
const DISK: f64 = 127.3e6 / 20.0;

/// One to five servers whose disks limit.
pub fn settings(quick: bool) -> Vec<Setting> {
    let servers = if quick { vec![1, 5] } else { (1..=5).collect() };
    let setting = |servers| Setting { servers, link: None, disk: Some(DISK), chunk_size: None };
    servers.into_iter().map(setting).collect()
}

/// What it does; `shared` says that the servers are on this machine, too.
pub fn plan(options: &Options, shared: bool) -> Result<Plan> {
    let copies = if shared { 2 } else { 1 };
    let [fitting, large] = sizes(options.quick, copies)?;
    let (reads, large_reads) =
        if options.quick { (QUICK_READS, QUICK_READS) } else { (READS, LARGE_READS) };
    let mut plan = Plan::new("");
    plan.rule = Rule::Mean;
    let [first, cached, beyond] = TESTS;
    let mut steps = vec![read(options, fitting, first).cooled(true)];
    steps.extend((1..reads).map(|_| read(options, fitting, cached)));
    plan.cells.push(cell(options, fitting, steps));
    let steps = (0..large_reads).map(|_| read(options, large, beyond).cooled(true));
    plan.cells.push(cell(options, large, steps.collect()));
    plan.chart_each_test(&["size"], false);
    plan.published = published();
    if shared {
        plan.notes.push(SLOWED.into());
    }
    if shared && !options.quick {
        plan.notes.push(SHARED.into());
    }
    Ok(plan)
}

/// Of memory in which everything is `copies` times.
fn sizes(quick: bool, copies: u64) -> Result<[u64; 2]> {
    if quick {
        return Ok(QUICK_SIZES);
    }
    let memory = machine::memory_known()? / copies;
    let (sizes, whole) = PROPORTION;
    Ok(sizes.map(|size| (memory / whole * size).next_multiple_of(RECORD)))
}

fn cell(options: &Options, size: u64, reads: Vec<Step>) -> Cell {
    let mut steps = vec![Step::preparing(vec![pass(options, size, Direction::Write)])];
    steps.extend(reads);
    let parameters = [("size".to_owned(), size as f64)].into();
    Cell { parameters, steps, needs: Room { bytes: size, files: 3 }, ..Cell::default() }
}

fn read(options: &Options, size: u64, test: &str) -> Step {
    Step::measured(test, Unit::BytesPerSecond, vec![pass(options, size, Direction::Read)])
}

fn pass(options: &Options, size: u64, direction: Direction) -> Job {
    let makes = direction == Direction::Write;
    Job::File(Pass {
        file: "file".into(),
        direction,
        start: 0,
        record: RECORD,
        records: size / RECORD,
        order: Order::Forward,
        calls: Calls::Plain,
        open: Open { create: makes, ..Open::default() },
        ending: Ending { flush: makes, close: true },
        content: options.protocol(1).content(1),
    })
}

fn published() -> Vec<Figure> {
    let row = |(test, row): (&&str, [f64; 5])| {
        let test = (*test).to_owned();
        row.into_iter().enumerate().map(move |(at, speed)| {
            figure("GlusterFS 3.6.2", &test, &[("servers", at as f64 + 1.0)], speed)
        })
    };
    TESTS.iter().zip(STUDY_3).flat_map(row).collect()
}
