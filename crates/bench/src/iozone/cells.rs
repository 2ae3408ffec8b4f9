//! From tests to the steps of a cell.

use super::Options;
use super::test::{Test, Visiting};
use crate::content::Content;
use crate::plan::{Cell, Room, Step};
use crate::result::Unit;
use crate::work::file::{Calls, Direction, Open, Pass};
use crate::work::{Job, Order};
use std::collections::BTreeMap;

/// The tests of one file size and one record size.
pub fn cell(options: &Options, size: u64, record: u64) -> Cell {
    let mut tests = options.tests.clone();
    // Afterwards the file holds one record of another generation than the rest.
    tests.sort_by_key(|test| test.visiting == Visiting::Same);
    let mut cell = Cell { parameters: parameters(options, size, record), ..Cell::default() };
    let mut files = Files { options, size, record, generations: BTreeMap::new() };
    for test in &tests {
        files.add(test, &mut cell.steps);
    }
    let workers = options.workers as u64;
    let kinds = files.generations.len() as u64;
    let count = if options.shared_file { 1 } else { workers };
    cell.needs = Room { bytes: kinds * size * workers, files: kinds * count + 2 };
    cell
}

fn parameters(options: &Options, size: u64, record: u64) -> BTreeMap<String, f64> {
    let mut parameters =
        BTreeMap::from([("size".to_owned(), size as f64), ("record".to_owned(), record as f64)]);
    if options.workers > 1 {
        parameters.insert("threads".to_owned(), options.workers as f64);
    }
    parameters
}

/// The files of a cell while its steps are made.
struct Files<'a> {
    options: &'a Options,
    size: u64,
    record: u64,
    /// How often each has been written, by its kind.
    generations: BTreeMap<&'static str, u64>,
}

impl Files<'_> {
    fn add(&mut self, test: &Test, steps: &mut Vec<Step>) {
        if !test.makes && !self.generations.contains_key(test.file()) {
            // What is read or rewritten must be there, even if nobody measures its writing.
            self.generations.insert(test.file(), 1);
            let (direction, order) = (Direction::Write, Order::Forward);
            let jobs = self.jobs(test.file(), direction, order, Calls::Plain);
            steps.push(Step::preparing(jobs));
        }
        if test.direction == Direction::Write {
            *self.generations.entry(test.file()).or_default() += 1;
        }
        let order = test.order(self.options.protocol.seed);
        let jobs = self.jobs(test.file(), test.direction, order, self.calls(test));
        let step = Step::measured(&self.name(test), Unit::BytesPerSecond, jobs);
        steps.push(step.cooled(self.is_cold(test)));
    }

    fn is_cold(&self, test: &Test) -> bool {
        self.options.cold && test.direction == Direction::Read
    }

    fn calls(&self, test: &Test) -> Calls {
        match (test.calls, self.options.in_flight) {
            (Calls::Plain, Some(depth)) => Calls::Ring { depth },
            (Calls::Plain, None) if self.options.mapped => Calls::Mapped,
            (calls, _) => calls,
        }
    }

    /// The test's name, with what changes it.
    fn name(&self, test: &Test) -> String {
        let Options { ending, open, mapped, in_flight, .. } = self.options;
        let plain = test.calls == Calls::Plain;
        let flags = [
            (ending.close, "c"),
            (ending.flush && test.direction == Direction::Write, "e"),
            (open.direct, "I"),
            (open.synced && test.direction == Direction::Write, "o"),
            (*mapped && plain, "B"),
            (in_flight.is_some() && plain, "H"),
        ];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect();
        let dash = if flags.is_empty() { "" } else { " -" };
        let cold = if self.is_cold(test) { " cold" } else { "" };
        format!("iozone/{}{dash}{flags}{cold}", test.name)
    }

    fn jobs(&self, kind: &str, direction: Direction, order: Order, calls: Calls) -> Vec<Job> {
        let Options { workers, shared_file, open, ending, protocol, .. } = *self.options;
        let generation = self.generations.get(kind).copied().unwrap_or_default();
        let job = |worker: usize| {
            let (file, start) = match shared_file {
                true => (format!("{kind}-shared"), worker as u64 * self.size),
                false => (format!("{kind}-{worker}"), 0),
            };
            // Two files of one run hold different bytes: a file system that mixes them up is found.
            let owner = if shared_file { 0 } else { worker as u64 };
            let content = protocol.content(generation);
            Job::File(Pass {
                file,
                direction,
                start,
                record: self.record,
                records: self.size / self.record,
                order,
                calls,
                open: Open { create: direction == Direction::Write, ..open },
                ending,
                content: Content { seed: content.seed ^ (owner << 32), ..content },
            })
        };
        (0..workers).map(job).collect()
    }
}
