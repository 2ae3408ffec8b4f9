//! From tests to the steps of a cell.

use super::Options;
use super::test::{Act, Test, Visiting};
use crate::content::Content;
use crate::plan::{Cell, Room, Step};
use crate::result::Unit;
use crate::work::file::{Calls, Direction, Open, Pass};
use crate::work::{Job, Order};
use std::collections::BTreeMap;

/// The kind of file where the user has named the files: one for all tests.
const NAMED: &str = "named";

/// The tests of one file size and one record size.
pub fn cell(options: &Options, size: u64, record: u64) -> Cell {
    let mut tests = options.tests.clone();
    // As in iozone, by their numbers: what makes a file comes before what reads it, or it would
    // rewrite one that had to be made for the reading. But after a mix some files hold another
    // generation than others, after the rewriting of one record that record does: nothing may read
    // them any more.
    tests.sort_by_key(|test| (test.visiting == Visiting::Same, test.act == Act::Mix, test.place()));
    let mut cell = Cell { parameters: parameters(options, size, record), ..Cell::default() };
    let mut files = Files { options, size, record, generations: BTreeMap::new() };
    for test in &tests {
        files.add(test, &mut cell.steps);
    }
    let workers = options.workers as u64;
    let kinds = files.generations.len() as u64;
    let count = if options.shared_file { 1 } else { workers };
    cell.named.clone_from(&options.names);
    cell.needs = Room { bytes: (size * workers).saturating_mul(kinds), files: kinds * count + 2 };
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
        let kind = self.kind(test);
        if !test.makes && !self.generations.contains_key(kind) {
            // What is read or rewritten must be there, even if nobody measures its writing.
            self.generations.insert(kind, 1);
            let jobs = self.jobs(kind, Act::Write, true, Order::Forward, Calls::Plain);
            steps.push(Step::preparing(jobs));
        }
        if test.act == Act::Write {
            *self.generations.entry(kind).or_default() += 1;
        }
        let order = test.order(self.options.protocol.seed);
        let jobs = self.jobs(kind, test.act, test.makes, order, self.calls(test));
        let unit = if self.options.per_second { Unit::PerSecond } else { Unit::BytesPerSecond };
        let mut step = Step::measured(&self.name(test), unit, jobs).cooled(self.is_cold(test));
        if test.act == Act::Mix {
            step.parameters.insert("readers".to_owned(), self.options.readers() as f64);
        }
        steps.push(step);
    }

    fn is_cold(&self, test: &Test) -> bool {
        self.options.cold && test.act.reads()
    }

    fn kind(&self, test: &Test) -> &'static str {
        if self.options.names.is_empty() { test.file() } else { NAMED }
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
            (ending.flush && test.act.writes(), "e"),
            (open.direct, "I"),
            (open.synced && test.act.writes(), "o"),
            (*mapped && plain, "B"),
            (in_flight.is_some() && plain, "H"),
        ];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect();
        let dash = if flags.is_empty() { "" } else { " -" };
        let cold = if self.is_cold(test) { " cold" } else { "" };
        format!("iozone/{}{dash}{flags}{cold}", test.name)
    }

    fn jobs(&self, kind: &str, act: Act, makes: bool, order: Order, calls: Calls) -> Vec<Job> {
        let Options { workers, shared_file, open, ending, protocol, .. } = *self.options;
        let generation = self.generations.get(kind).copied().unwrap_or_default();
        let job = |worker: usize| {
            let writes = match act {
                Act::Write => true,
                Act::Read => false,
                Act::Mix => !self.options.is_reader(worker),
            };
            // Two files of one run hold different bytes: a file system that mixes them up is found.
            let owner = if shared_file { 0 } else { worker as u64 };
            let content = protocol.content(generation + u64::from(act == Act::Mix && writes));
            // A named file serves several tests that make theirs.
            let fresh = makes && writes && kind == NAMED;
            Job::File(Pass {
                file: self.file(kind, worker),
                direction: if writes { Direction::Write } else { Direction::Read },
                start: if shared_file { worker as u64 * self.size } else { 0 },
                record: self.record,
                records: self.size / self.record,
                order,
                calls,
                open: Open { create: writes, fresh, ..open },
                ending,
                content: Content { seed: content.seed ^ (owner << 32), ..content },
            })
        };
        (0..workers).map(job).collect()
    }

    fn file(&self, kind: &str, worker: usize) -> String {
        match self.options.names.get(worker) {
            Some(name) => name.clone(),
            None if self.options.shared_file => format!("{kind}-shared"),
            None => format!("{kind}-{worker}"),
        }
    }
}
