//! What a run will do, as data: cells of steps of jobs.

use crate::content::Content;
use crate::result::{Chart, Figure, Rule, Unit};
use crate::work::{self, Done, Job};
use std::collections::BTreeMap;

/// Least time that a step can take, so that nothing is divided by zero.
const SECONDS_MIN: f64 = 1e-9;
/// What any operation weighs beside its bytes when the time left is estimated.
const STEP_WEIGHT: u64 = 1 << 16;

/// Everything a run will do on each side.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What it is, as a title.
    pub title: String,
    /// The cells, in the order of their running.
    pub cells: Vec<Cell>,
    /// How often all cells run.
    pub repetitions: usize,
    /// How the samples of a figure become one number.
    pub rule: Rule,
    /// How to draw the figures.
    pub charts: Vec<Chart>,
    /// Figures that others have published, and limits, to be shown beside.
    pub published: Vec<Figure>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// True where all servers of what is measured are on this machine: in a testbed.
    pub has_servers_here: bool,
}

/// What all generators are told alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// Whether every byte that is read is compared.
    pub verify: bool,
    /// What decides random orders and names, and tells files apart.
    pub seed: u64,
    /// How often everything is repeated.
    pub repetitions: usize,
}

/// Steps that follow each other in a directory of their own, at one set of parameters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// The parameters of all its figures.
    pub parameters: BTreeMap<String, f64>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Room it needs at once.
    pub needs: Room,
    /// Files that the user has named: they lie in the measured directory under these paths, instead
    /// of in a directory of the run. All workers use these, or none does.
    pub named: Vec<String>,
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}

/// Jobs that are done at the same time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// What is told of it; nothing where a step only prepares the next.
    pub measures: Vec<Measure>,
    /// Parameters of its figures beside those of the cell.
    pub parameters: BTreeMap<String, f64>,
    /// What is done before, outside the timing.
    pub before: Before,
    /// One for each worker.
    pub jobs: Vec<Job>,
}

/// What is done before a step, outside its timing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Before {
    /// Nothing: caches are as the step before has left them.
    #[default]
    Nothing,
    /// What the file system holds back is written, so that the step does not wait for it.
    Settle,
    /// Caches are emptied.
    Cool,
}

/// One figure that a step gives a sample of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// The figure's test: "iozone/write".
    pub test: String,
    /// What is counted.
    pub unit: Unit,
}

impl Default for Protocol {
    fn default() -> Self {
        Self { verify: false, seed: 1, repetitions: 1 }
    }
}

impl Protocol {
    #[cfg(test)]
    pub(crate) const VERIFYING: Protocol = Protocol { verify: true, seed: 1, repetitions: 1 };

    /// What a file holds after so many writings.
    pub fn content(&self, generation: u64) -> Content {
        Content { seed: self.seed, salt: 0, generation, checked: self.verify }
    }

    /// What a reader of the figures must know.
    pub fn note(&self) -> Option<String> {
        let note = "--verify: the figures include the time of filling and comparing";
        self.verify.then(|| note.into())
    }
}

impl Plan {
    /// A plan of nothing, to be done once.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            cells: Vec::new(),
            repetitions: 1,
            rule: Rule::Median,
            charts: Vec::new(),
            published: Vec::new(),
            notes: Vec::new(),
            has_servers_here: false,
        }
    }

    /// How much there is to do on so many sides, in units of about a byte.
    pub fn weight(&self, sides: usize) -> u64 {
        let steps = self.cells.iter().flat_map(|cell| &cell.steps);
        let once = steps.map(Step::weight).fold(0, u64::saturating_add);
        once.saturating_mul((self.repetitions * sides) as u64)
    }

    /// True where files are read or written through mappings: a page that the file system cannot give or
    /// take ends the process.
    pub fn uses_mappings(&self) -> bool {
        let steps = self.cells.iter().flat_map(|cell| &cell.steps);
        steps.flat_map(|step| &step.jobs).any(Job::uses_mapping)
    }

    /// Most room that a cell needs in a directory of the run.
    pub fn needs(&self) -> Room {
        let cells = || self.cells.iter().filter(|cell| cell.named.is_empty());
        let of = |room: fn(&Room) -> u64| cells().map(|c| room(&c.needs)).max();
        Room { bytes: of(|r| r.bytes).unwrap_or(0), files: of(|r| r.files).unwrap_or(0) }
    }

    /// Draws a chart of every test that is measured, across the first of some parameters that it has.
    pub fn chart_each_test(&mut self, across: &[&str], doubling: bool) {
        let mut charts: Vec<Chart> = Vec::new();
        for cell in &self.cells {
            for step in &cell.steps {
                let has = |name: &&&str| {
                    cell.parameters.contains_key(**name) || step.parameters.contains_key(**name)
                };
                let Some(across) = across.iter().find(has) else { continue };
                for Measure { test, .. } in &step.measures {
                    if !charts.iter().any(|chart| chart.test == *test) {
                        let (title, test) = (test.clone(), test.clone());
                        charts.push(Chart { title, test, across: (*across).to_owned(), doubling });
                    }
                }
            }
        }
        self.charts = charts;
    }
}

impl Step {
    /// A step that is measured by what it moves or makes in a second.
    pub fn measured(test: &str, unit: Unit, jobs: Vec<Job>) -> Self {
        let measures = vec![Measure { test: test.to_owned(), unit }];
        Self { measures, jobs, ..Self::default() }
    }

    /// A step that only prepares the next.
    pub fn preparing(jobs: Vec<Job>) -> Self {
        Self { jobs, ..Self::default() }
    }

    /// The same with emptied caches before it, if `cold`.
    #[must_use]
    pub fn cooled(self, cold: bool) -> Self {
        let before = if cold { Before::Cool } else { self.before };
        Self { before, ..self }
    }

    /// Bytes of memory that its workers need together.
    pub fn memory(&self) -> u64 {
        self.jobs.iter().map(Job::memory).fold(0, u64::saturating_add)
    }

    /// How much work it is, in units of about a byte.
    pub fn weight(&self) -> u64 {
        self.jobs.iter().map(Job::weight).fold(STEP_WEIGHT, u64::saturating_add)
    }
}

impl Measure {
    /// The sample that a step has given: all that its workers did, over the time of the last.
    pub fn sample(&self, done: &[Done]) -> f64 {
        let seconds = work::seconds(done).max(SECONDS_MIN);
        let sum = |of: fn(&Done) -> f64| done.iter().map(of).sum::<f64>();
        match self.unit {
            Unit::BytesPerSecond => sum(|d| d.amount.bytes as f64) / seconds,
            Unit::PerSecond => sum(|d| d.amount.operations as f64) / seconds,
            Unit::Seconds => seconds,
            Unit::Percent => 100.0 * sum(|d| d.processor_seconds) / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Amount;

    #[test]
    fn a_sample_is_what_all_did_from_the_first_beginning_to_the_last_end() {
        let done = |clock: &str, began, ended, bytes| Done {
            clock: clock.into(),
            began,
            ended,
            told: ended,
            processor_seconds: 0.5,
            amount: Amount { bytes, operations: 10 },
        };
        // Two workers that one processor runs after each other, and one with another clock.
        let done = [done("a", 5.0, 6.0, 100), done("a", 6.0, 7.0, 300), done("b", 90.0, 91.5, 0)];
        let sample = |unit| Measure { test: "t".into(), unit }.sample(&done);
        assert_eq!(sample(Unit::BytesPerSecond), 200.0);
        assert_eq!(sample(Unit::PerSecond), 15.0);
        assert_eq!(sample(Unit::Seconds), 2.0);
        assert_eq!(sample(Unit::Percent), 75.0);
    }
}
