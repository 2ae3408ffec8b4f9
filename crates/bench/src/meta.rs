//! Names and attributes: mdtest's phases over a tree of files.
//!
//! Each worker makes its files, asks for their attributes, reads, lists, renames and removes them; a
//! phase begins when all workers have ended the one before. `shift` lets each worker visit the files
//! of its neighbour, so that no client answers from what it has made itself.

use crate::error::{Error, Result};
use crate::plan::{Cell, Plan, Protocol, Room, Step};
use crate::result::Unit;
use crate::work::names::{BYTES_MAX, DIRECTORIES_MAX, Naming, Operation, Phase, Shape, Visiting};
use crate::work::{Job, Order};
use std::collections::BTreeMap;

/// Most workers.
const WORKERS_MAX: usize = 4096;
/// Most files in all.
const FILES_MAX: u64 = 1 << 32;
/// What a small file occupies at least on most file systems.
const BLOCK: u64 = 4096;

/// The phases, in their order, with their names.
pub const PHASES: &[(&str, Operation)] = &[
    ("mkdir", Operation::Mkdir),
    ("create", Operation::Create),
    ("stat", Operation::Stat),
    ("read", Operation::Read),
    ("list", Operation::List),
    ("rename", Operation::Rename),
    ("remove", Operation::Remove),
    ("rmdir", Operation::Rmdir),
];

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The tree of each worker, or of all of them.
    pub shape: Shape,
    /// Workers at the same time.
    pub workers: usize,
    /// All workers in one tree, instead of a tree each.
    pub shared: bool,
    /// Each worker visits the files that its neighbour has made.
    pub shift: bool,
    /// Bytes in each file.
    pub bytes: u64,
    /// Whether each file ends with `fsync`.
    pub flush: bool,
    /// Whether files are visited in random order.
    pub random: bool,
    /// Which phases are measured; what they need is done in any case.
    pub phases: Vec<Operation>,
    /// Whether caches are emptied before each phase that only reads.
    pub cold: bool,
    /// How often it is done, and with what contents.
    pub protocol: Protocol,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shape: Shape { depth: 0, branching: 1, files: 1000 },
            workers: 1,
            shared: false,
            shift: false,
            bytes: 0,
            flush: false,
            random: false,
            phases: PHASES.iter().map(|(_, phase)| *phase).collect(),
            cold: false,
            protocol: Protocol::default(),
        }
    }
}

/// The phase of a name.
pub fn phase(name: &str) -> Result<Operation> {
    let found = PHASES.iter().find(|(known, _)| *known == name);
    found.map(|(_, phase)| *phase).ok_or_else(|| {
        let known: Vec<_> = PHASES.iter().map(|(name, _)| *name).collect();
        Error::usage(format!("there is no phase {name:?}"))
            .next(format!("the phases are {}", known.join(", ")))
    })
}

/// What a run of these options does.
pub fn plan(options: &Options) -> Result<Plan> {
    refuse_nonsense(options)?;
    let mut plan = Plan::new("names and attributes (mdtest's phases)");
    plan.repetitions = options.protocol.repetitions;
    plan.cells.push(cell(options));
    plan.chart_each_test(&["files"], false);
    plan.notes.extend(options.protocol.note());
    Ok(plan)
}

fn refuse_nonsense(options: &Options) -> Result<()> {
    let Options { shape, workers, bytes, .. } = options;
    if *workers == 0 || *workers > WORKERS_MAX {
        return Err(Error::usage(format!("{workers} workers: 1 to {WORKERS_MAX} make sense")));
    }
    if *bytes > BYTES_MAX {
        return Err(Error::usage(format!("{bytes} bytes: a file has at most {BYTES_MAX} here")));
    }
    if shape.files == 0 || (shape.depth > 0 && shape.branching == 0) {
        return Err(Error::usage("a tree needs files, and branches where it has a depth"));
    }
    let Some(directories) = shape.directories() else {
        return Err(Error::usage(format!("the tree has more than {DIRECTORIES_MAX} directories")));
    };
    let files = shape.files.checked_mul(directories).and_then(|n| n.checked_mul(*workers as u64));
    match files.is_some_and(|files| files <= FILES_MAX) {
        true => Ok(()),
        false => Err(Error::usage(format!("more than {FILES_MAX} files in all"))),
    }
}

fn cell(options: &Options) -> Cell {
    let Options { shape, workers, bytes, shared, .. } = *options;
    let directories = shape.directories().unwrap_or(1);
    let trees = if shared { 1 } else { workers as u64 };
    let files = shape.files * directories * workers as u64;
    let occupied = bytes.next_multiple_of(BLOCK);
    let mut naming = Naming::Numbered;
    let mut steps = Vec::new();
    for (name, operation) in PHASES {
        let wanted = options.phases.contains(operation);
        let needed = match operation {
            Operation::Mkdir | Operation::Create => true,
            // Directories that hold files cannot be removed.
            Operation::Remove => options.phases.contains(&Operation::Rmdir),
            _ => false,
        };
        if !wanted && !needed {
            continue;
        }
        let jobs = jobs(options, *operation, naming);
        let step = match wanted {
            true => Step::measured(&format!("meta/{name}"), Unit::PerSecond, jobs),
            false => Step::preparing(jobs),
        };
        let reads = matches!(operation, Operation::Stat | Operation::Read | Operation::List);
        steps.push(step.cooled(options.cold && reads));
        if *operation == Operation::Rename {
            naming = Naming::Renamed;
        }
    }
    let needs = Room { bytes: files * occupied, files: files + trees * directories + 2 };
    Cell { parameters: parameters(options), steps, needs, ..Cell::default() }
}

fn parameters(options: &Options) -> BTreeMap<String, f64> {
    let Options { shape, workers, bytes, .. } = *options;
    let mut parameters = BTreeMap::from([("files".to_owned(), shape.files as f64)]);
    for (name, value, plain) in [
        ("threads", workers as f64, 1.0),
        ("directories", shape.directories().unwrap_or(1) as f64, 1.0),
        ("bytes", bytes as f64, 0.0),
    ] {
        if value != plain {
            parameters.insert(name.to_owned(), value);
        }
    }
    parameters
}

fn jobs(options: &Options, operation: Operation, naming: Naming) -> Vec<Job> {
    let Options { shape, workers, shared, shift, bytes, flush, random, protocol, .. } = *options;
    let of_tree = matches!(operation, Operation::Mkdir | Operation::Rmdir);
    let count = if shared && of_tree { 1 } else { workers };
    let moves = matches!(operation, Operation::Stat | Operation::Read | Operation::List);
    let job = |number: usize| {
        let worker = if shift && moves { (number + 1) % workers } else { number };
        let order = if random && operation != Operation::Create {
            Order::Shuffled { seed: protocol.seed }
        } else {
            Order::Forward
        };
        Job::Names(Phase {
            operation,
            root: if shared { "shared".into() } else { format!("own-{worker}") },
            shape,
            worker,
            workers: if shared { workers } else { 1 },
            naming,
            visiting: Visiting::Numbered(order),
            bytes,
            content: protocol.content(1),
            flush,
            flush_names: false,
        })
    };
    (0..count).map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::measure;

    #[test]
    fn all_phases_run_in_own_trees_and_in_a_shared_one() {
        for (shared, shift, random) in
            [(false, false, false), (false, true, true), (true, true, false)]
        {
            let shape = Shape { depth: 1, branching: 2, files: 10 };
            let options = Options {
                shape,
                workers: 3,
                shared,
                shift,
                random,
                bytes: 100,
                protocol: Protocol::VERIFYING,
                ..Options::default()
            };
            let report = measure(&plan(&options).unwrap());
            let names: Vec<_> = report.figures.iter().map(|f| &f.test["meta/".len()..]).collect();
            let expected: Vec<_> = PHASES.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, expected);
            assert!(report.figures.iter().all(|f| f.samples[0] > 0.0));
        }
    }

    #[test]
    fn one_phase_brings_what_it_needs_and_measures_only_itself() {
        for (name, operation) in PHASES {
            let options = Options { phases: vec![*operation], ..Options::default() };
            let report = measure(&plan(&options).unwrap());
            assert_eq!(report.figures.len(), 1, "{name}");
            assert_eq!(report.figures[0].test, format!("meta/{name}"));
        }
        assert!(phase("chown").unwrap_err().next.unwrap().contains("rename"));
    }

    #[test]
    fn wrong_trees_are_refused() {
        let shape = |depth, branching, files| Shape { depth, branching, files };
        for wrong in [shape(0, 1, 0), shape(1, 0, 1), shape(20, 10, 1), shape(0, 1, 1 << 40)] {
            assert!(plan(&Options { shape: wrong, ..Options::default() }).is_err(), "{wrong:?}");
        }
        assert!(plan(&Options { workers: 0, ..Options::default() }).is_err());
    }
}
