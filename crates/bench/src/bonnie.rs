//! bonnie++'s tests, under its names and with its meanings.
//!
//! One large file is written byte by byte, written anew block by block, rewritten (each block read,
//! changed and written back), read byte by byte and block by block; then five workers seek in it,
//! read, and write every tenth block back. Whatever writes ends with `fsync` and `close`, inside its
//! timing. In the second half, many files are created, asked for ("read", as bonnie++ calls it) and deleted: with
//! names whose order is that of their making, in the order that the directory lists; and with names
//! that begin with random letters, in random order.
//!
//! This is what bonnie++ 2.00 does, but that single bytes go through a buffer, as in 1.03: since 1.9x each
//! is a call. 1.03 closed its file without `fsync`, which is [`Options::flush`].
//!
//! Several workers have a file and directories each, and begin each test together: as bonnie++ does
//! it with `-p` and `-y`.

use crate::content::Content;
use crate::error::{Error, Result};
use crate::machine;
use crate::plan::{Cell, Measure, Plan, Protocol, Room, Step};
use crate::result::Unit;
use crate::work::file::{Calls, Direction, Ending, Open, Pass};
use crate::work::names::{Naming, Operation, Phase, Shape, Visiting};
use crate::work::{Job, Order};
use std::collections::BTreeMap;

/// bonnie++'s block.
pub const BLOCK: u64 = 8 << 10;
/// Files that bonnie++ counts as one.
pub const FILES_UNIT: u64 = 1024;
/// Workers that seek at the same time.
const SEEKERS: u64 = 5;
/// Seeks of all of them together.
const SEEKS: u64 = 8192;
/// The file is that many times as large as the memory, so that no cache holds it.
const MEMORIES: u64 = 2;
/// Most workers.
const WORKERS_MAX: usize = 4096;
/// Most files of the second half.
const FILES_MAX: u64 = 1 << 30;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of each worker's file, a multiple of [`BLOCK`]; 0 leaves the first half out.
    pub size: u64,
    /// Number of files of each worker; 0 leaves the second half out.
    pub files: u64,
    /// Workers at the same time.
    pub workers: usize,
    /// Without the per-character tests (`-f`).
    pub fast: bool,
    /// Whether what writes the large file ends with `fsync`, as since bonnie++ 1.9x; without it with
    /// `close` alone, as in 1.03.
    pub flush: bool,
    /// Every write, and every file that is made or deleted, waits for the disk (`-b`).
    pub unbuffered: bool,
    /// Whether caches are emptied before what reads.
    pub cold: bool,
    /// How often it is done, and with what contents.
    pub protocol: Protocol,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: 0,
            files: 16 * FILES_UNIT,
            workers: 1,
            fast: false,
            flush: true,
            unbuffered: false,
            cold: false,
            protocol: Protocol::default(),
        }
    }
}

/// The size of each worker's file with which the files of so many workers are twice the memory of
/// this machine.
pub fn default_size(workers: usize) -> Result<u64> {
    let share = |memory: u64| (memory * MEMORIES).div_ceil(workers.max(1) as u64);
    machine::memory_known().map(|memory| share(memory).next_multiple_of(BLOCK))
}

/// What a run of these options does.
pub fn plan(options: &Options) -> Result<Plan> {
    if !options.size.is_multiple_of(BLOCK) {
        return Err(Error::usage(format!(
            "a file of {} bytes: bonnie++ has blocks of 8K",
            options.size
        ))
        .next("choose a size that is a multiple of 8K"));
    }
    let workers = options.workers as u64;
    if options.workers == 0 || options.workers > WORKERS_MAX {
        return Err(Error::usage(format!("{workers} workers: 1 to {WORKERS_MAX} make sense")));
    }
    if options.files.saturating_mul(workers) > FILES_MAX {
        return Err(Error::usage(format!("more than {FILES_MAX} files")));
    }
    if options.size.checked_mul(workers).is_none_or(|all| all > i64::MAX as u64) {
        let size = options.size;
        return Err(Error::usage(format!("{workers} times {size} bytes is too much")));
    }
    let mut plan = Plan::new("bonnie++'s tests");
    plan.repetitions = options.protocol.repetitions;
    if options.size > 0 {
        plan.cells.push(large_file(options));
        if default_size(options.workers).is_ok_and(|least| options.size < least) {
            plan.notes.push(
                "the file is smaller than twice the memory: caches may answer what reads".into(),
            );
        }
        if !options.flush {
            plan.notes.push("bonnie: writing ends with close, without fsync, as in 1.03".into());
        }
    }
    if options.files > 0 {
        plan.cells.push(many_files(options));
    }
    plan.chart_each_test(&["size", "files"], false);
    plan.notes.extend(options.protocol.note());
    Ok(plan)
}

/// The first half.
fn large_file(options: &Options) -> Cell {
    use Direction::{Change, Read, Write};
    let of_all = |direction, calls, generation| {
        let one = |worker| Job::File(pass(options, worker, direction, calls, generation));
        (0..options.workers).map(one).collect::<Vec<Job>>()
    };
    let mut steps = Vec::new();
    if !options.fast {
        steps.push(data("output per chr", of_all(Write, Calls::Characters, 1)));
    }
    steps.push(data("output block", of_all(Write, Calls::Plain, 2)));
    steps.push(data("rewrite", of_all(Change, Calls::Plain, 3)));
    if !options.fast {
        steps.push(data("input per chr", of_all(Read, Calls::Characters, 3)));
    }
    steps.push(data("input block", of_all(Read, Calls::Plain, 3)));
    steps.push(Step::measured("bonnie/seeks", Unit::PerSecond, seekers(options)));
    for step in &mut steps {
        let reads =
            step.measures.iter().any(|m| m.test.contains("input") || m.test.contains("seeks"));
        *step = std::mem::take(step).cooled(options.cold && reads);
    }
    let workers = options.workers as u64;
    let needs = Room { bytes: options.size * workers, files: workers + 2 };
    Cell { parameters: parameters("size", options.size, options), steps, needs, ..Cell::default() }
}

/// What the figures of a half are of.
fn parameters(name: &str, value: u64, options: &Options) -> BTreeMap<String, f64> {
    let mut parameters = BTreeMap::from([(name.to_owned(), value as f64)]);
    if options.workers > 1 {
        parameters.insert("threads".to_owned(), options.workers as f64);
    }
    parameters
}

/// Those who seek in each worker's file. The first of all workers come first: by turns they are then
/// where their file was written.
fn seekers(options: &Options) -> Vec<Job> {
    let seeker = |number: u64, worker: usize| {
        let seed = options.protocol.seed ^ number << 48;
        let order = Order::Anywhere { seed, visits: SEEKS.div_ceil(SEEKERS) };
        Job::File(Pass { order, ..pass(options, worker, Direction::Seek, Calls::Plain, 3) })
    };
    let of_all = |number| (0..options.workers).map(move |worker| seeker(number, worker));
    (0..SEEKERS).flat_map(of_all).collect()
}

/// A test of the first half: how fast, and how much of a processor it takes.
fn data(name: &str, jobs: Vec<Job>) -> Step {
    let test = format!("bonnie/{name}");
    let mut step = Step::measured(&test, Unit::BytesPerSecond, jobs);
    step.measures.push(Measure { test: format!("{test} %CP"), unit: Unit::Percent });
    step
}

fn pass(
    options: &Options,
    worker: usize,
    direction: Direction,
    calls: Calls,
    generation: u64,
) -> Pass {
    let makes = direction == Direction::Write;
    let content = options.protocol.content(generation);
    Pass {
        file: format!("bonnie-{worker}"),
        direction,
        start: 0,
        record: BLOCK,
        records: options.size / BLOCK,
        order: Order::Forward,
        calls,
        open: Open { create: makes, fresh: makes, direct: false, synced: options.unbuffered },
        ending: Ending { flush: options.flush, close: direction != Direction::Read },
        // Two files of one run hold different bytes: a file system that mixes them up is found.
        content: Content { seed: content.seed ^ ((worker as u64) << 32), ..content },
    }
}

/// The second half.
fn many_files(options: &Options) -> Cell {
    let numbered = Visiting::Numbered;
    let seed = options.protocol.seed;
    let anywhere = Order::Anywhere { seed, visits: options.files };
    let (by_number, by_letters) = (Naming::NumberFirst, Naming::LettersFirst);
    let mut steps = Vec::new();
    for (kind, naming, asked, deleted) in [
        ("sequential", by_number, Visiting::Listed, Visiting::Listed),
        ("random", by_letters, numbered(anywhere), numbered(Order::Shuffled { seed })),
    ] {
        let jobs = |operation, visiting| {
            let job =
                |worker| names(options, format!("{kind}-{worker}"), operation, naming, visiting);
            (0..options.workers).map(job).collect()
        };
        steps.push(Step::preparing(jobs(Operation::Mkdir, numbered(Order::Forward))));
        for (test, operation, visiting) in [
            ("create", Operation::Create, numbered(Order::Forward)),
            ("read", Operation::Stat, asked),
            ("delete", Operation::Remove, deleted),
        ] {
            let test = format!("bonnie/{kind} {test}");
            let cold = options.cold && operation == Operation::Stat;
            let mut step =
                Step::measured(&test, Unit::PerSecond, jobs(operation, visiting)).cooled(cold);
            step.measures.push(Measure { test: format!("{test} %CP"), unit: Unit::Percent });
            steps.push(step);
        }
    }
    let needs = Room { bytes: 0, files: (options.files + 3) * options.workers as u64 + 1 };
    Cell {
        parameters: parameters("files", options.files, options),
        steps,
        needs,
        ..Cell::default()
    }
}

fn names(
    options: &Options,
    root: String,
    operation: Operation,
    naming: Naming,
    visiting: Visiting,
) -> Job {
    Job::Names(Phase {
        operation,
        root,
        shape: Shape { depth: 0, branching: 1, files: options.files },
        worker: 0,
        workers: 1,
        naming,
        visiting,
        bytes: 0,
        content: Content { checked: false, ..options.protocol.content(1) },
        flush: options.unbuffered,
        flush_names: options.unbuffered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::measure;
    use std::collections::BTreeSet;

    fn options() -> Options {
        Options { size: 20 * BLOCK, files: 30, protocol: Protocol::VERIFYING, ..Options::default() }
    }

    #[test]
    fn all_tests_run_verified_under_bonnies_names() {
        let report = measure(&plan(&options()).unwrap());
        let speeds = report.figures.iter().filter(|figure| figure.unit != Unit::Percent);
        let names: Vec<_> = speeds.map(|figure| &figure.test["bonnie/".len()..]).collect();
        let expected = [
            "output per chr",
            "output block",
            "rewrite",
            "input per chr",
            "input block",
            "seeks",
            "sequential create",
            "sequential read",
            "sequential delete",
            "random create",
            "random read",
            "random delete",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            report.figures.len(),
            expected.len() + 11,
            "all but seeks say how much processor"
        );
        assert!(report.notes.iter().any(|note| note.contains("twice the memory")));
    }

    #[test]
    fn what_is_left_out_is_not_measured() {
        let fast = Options { fast: true, files: 0, ..options() };
        let report = measure(&plan(&fast).unwrap());
        assert!(
            report.figures.iter().all(|f| !f.test.contains("chr") && !f.test.contains("create"))
        );
        let files = Options { size: 0, unbuffered: true, ..options() };
        let report = measure(&plan(&files).unwrap());
        assert!(report.figures.iter().all(|figure| figure.parameters["files"] == 30.0));
    }

    /// What the page cache had taken was the figure, where bonnie++ waits for the disk.
    #[test]
    fn what_writes_ends_with_fsync_as_in_2_00_or_with_close_alone_as_in_1_03() {
        for flush in [true, false] {
            let cell = large_file(&Options { flush, ..options() });
            let jobs = cell.steps.iter().flat_map(|step| &step.jobs);
            let endings = jobs.filter_map(|job| match job {
                Job::File(pass) if pass.direction != Direction::Read => Some(pass.ending),
                _ => None,
            });
            let endings: Vec<Ending> = endings.collect();
            // Three tests that write, and those who seek.
            assert_eq!(endings, vec![Ending { flush, close: true }; 3 + SEEKERS as usize]);
        }
        assert!(Options::default().flush);
    }

    /// Of what `-b` promises, files that are made and deleted had nothing.
    #[test]
    fn unbuffered_files_are_made_and_deleted_on_disk() {
        for unbuffered in [false, true] {
            let cell = many_files(&Options { unbuffered, ..options() });
            for job in cell.steps.iter().flat_map(|step| &step.jobs) {
                let Job::Names(phase) = job else { panic!("{job:?} is no phase over names") };
                assert_eq!((phase.flush, phase.flush_names), (unbuffered, unbuffered));
            }
        }
    }

    #[test]
    fn every_seeker_goes_elsewhere_and_all_make_8192_seeks() {
        let cell = large_file(&options());
        let seeks = &cell.steps[cell.steps.len() - 1];
        let orders: Vec<_> = seeks
            .jobs
            .iter()
            .map(|job| match job {
                Job::File(pass) => pass.order,
                other => panic!("{other:?} is no pass over a file"),
            })
            .collect();
        assert!(orders.windows(2).all(|pair| pair[0] != pair[1]));
        let visits: u64 = orders.iter().map(|order| order.visits(0)).sum();
        assert!((SEEKS..SEEKS + SEEKERS).contains(&visits));
    }

    #[test]
    fn several_workers_have_files_and_directories_of_their_own() {
        let plan = plan(&Options { workers: 3, ..options() }).unwrap();
        for step in plan.cells.iter().flat_map(|cell| &cell.steps) {
            let where_ = |job: &Job| match job {
                Job::File(pass) => (pass.file.clone(), pass.content.seed),
                Job::Names(phase) => (phase.root.clone(), 0),
            };
            let of_first_three: BTreeSet<_> = step.jobs[..3].iter().map(where_).collect();
            assert_eq!(of_first_three.len(), 3, "{step:?}");
            assert!(step.jobs.len() == 3 || step.jobs.len() == 15, "{step:?}");
            // Workers are at their hosts by turns: a file's seekers are where it was written.
            let file = |at: usize| where_(&step.jobs[at]);
            assert!((0..step.jobs.len()).all(|at| file(at) == file(at % 3)), "{step:?}");
        }
        let report = measure(&plan);
        assert!(report.figures.iter().all(|figure| figure.parameters["threads"] == 3.0));
    }

    #[test]
    fn wrong_sizes_are_refused() {
        assert!(plan(&Options { workers: 0, ..options() }).is_err());
        assert!(plan(&Options { workers: 4096, size: 1 << 60, ..options() }).is_err());
        assert!(plan(&Options { size: 10_000, ..options() }).is_err());
        assert!(plan(&Options { files: 1 << 40, ..options() }).is_err());
    }
}
