//! Carrying out a plan, side by side.
//!
//! In each repetition each cell runs on every side in turn, before the next cell begins, and the side
//! that begins changes from repetition to repetition: what disturbs the machine for a while disturbs
//! all sides alike.

use crate::cold;
use crate::crew::Crew;
use crate::error::{Error, Kind, Result};
use crate::machine;
use crate::place::{self, Workspace};
use crate::plan::{Before, Cell, Plan, Room, Step};
use crate::result::{Figure, Machine, Origin, Report, Side};
use crate::watch::Watch;
use crate::work::{Done, Job};
use std::path::{Path, PathBuf};
use strake_base::clock::wall_time;
use strake_base::process::usable_memory_bytes;
use strake_base::random::{SystemRandom, mixed};

/// Most repetitions of a plan.
pub(crate) const REPETITIONS_MAX: usize = 1000;

/// Buffers take at most the memory divided by this.
const MEMORY_SHARE: u64 = 2;

/// What belongs to a run beside its plan.
pub struct Run<'a> {
    /// What is compared.
    pub sides: Vec<Side>,
    /// Who does the jobs.
    pub crew: Crew,
    /// The command line, for the report.
    pub command: String,
    /// The version of the program, for the report.
    pub version: String,
    /// How far it is, and whether it shall stop.
    pub watch: &'a Watch,
}

/// How a run ended: what was measured is there in any case.
pub struct Ended {
    /// What was measured.
    pub report: Report,
    /// Why it ended early, unless somebody asked it to.
    pub failure: Option<Error>,
}

/// Carries out a plan. An error means that nothing was measured.
pub fn run(plan: &Plan, mut run: Run<'_>) -> Result<Ended> {
    refuse_nonsense(plan)?;
    let mut report = begin(&plan.title, &run.command, &run.version, &run.sides);
    report.charts.clone_from(&plan.charts);
    report.notes.clone_from(&plan.notes);
    let smaller = ["free some room, or use smaller files", "measure with fewer files"];
    let workspaces = settle_in(&run.sides, plan.needs(), smaller, &mut report.notes)?;
    for side in &run.sides {
        place::named::can_be_made(plan, Path::new(&side.directory), smaller)?;
    }
    run.watch.begin(plan.weight(run.sides.len()), &report);
    let id = SystemRandom.number();
    let id = id.map_err(|e| Error::failed(format!("this machine has no random numbers: {e}")))?;
    let mut progress = Progress { plan, report: &mut report, done: 0, id };
    let ended = progress.repeat(&mut run, &workspaces);
    run.watch.doing("removing what the run made");
    report.figures.extend(plan.published.iter().cloned());
    Ok(end(report, ended, workspaces, run.watch))
}

fn refuse_nonsense(plan: &Plan) -> Result<()> {
    if plan.repetitions == 0 || plan.repetitions > REPETITIONS_MAX {
        return Err(Error::usage(format!(
            "{} repetitions: between 1 and {REPETITIONS_MAX} make sense",
            plan.repetitions
        )));
    }
    if plan.cells.iter().all(|cell| cell.steps.iter().all(|step| step.measures.is_empty())) {
        return Err(Error::usage("nothing to measure: no test, no size or no record size is left"));
    }
    let steps = plan.cells.iter().flat_map(|cell| &cell.steps);
    let buffers = steps.map(Step::memory).max().unwrap_or(0);
    let memory = usable_memory_bytes();
    if buffers > memory / MEMORY_SHARE {
        return Err(Error::usage(format!(
            "the buffers of all workers together need {} MiB, and there are {} MiB of memory",
            buffers >> 20,
            memory >> 20
        ))
        .next("use fewer workers, or smaller records"));
    }
    Ok(())
}

/// Makes a directory to work in on each side: where leftovers of earlier runs are gone and there is
/// room for what `needs` says; `smaller` says how to need less.
pub(crate) fn settle_in(
    sides: &[Side],
    needs: Room,
    smaller: [&str; 2],
    notes: &mut Vec<String>,
) -> Result<Vec<Workspace>> {
    let directories: Vec<_> = sides.iter().map(|side| Path::new(&side.directory)).collect();
    for directory in &directories {
        notes.extend(place::sweep(directory)?);
        place::has_room(needs, directory, smaller)?;
    }
    // Not before all are swept: one directory may be measured twice, under two names.
    directories.into_iter().map(Workspace::new).collect()
}

/// A report of what is yet to be measured.
pub(crate) fn begin(title: &str, command: &str, version: &str, sides: &[Side]) -> Report {
    Report {
        title: title.to_owned(),
        command: command.to_owned(),
        started: wall_time().as_secs(),
        machine: Machine::here(version),
        sides: sides.to_vec(),
        programs: machine::programs(sides),
        figures: Vec::new(),
        charts: Vec::new(),
        notes: Vec::new(),
    }
}

/// Removes what the run has made, and says in the report how it ended.
pub(crate) fn end(
    mut report: Report,
    ended: Result<()>,
    workspaces: Vec<Workspace>,
    watch: &Watch,
) -> Ended {
    let removed = workspaces.into_iter().map(|workspace| workspace.remove(watch));
    let removed = removed.fold(Ok(()), Result::and);
    let failure = match ended {
        Err(error) if error.kind == Kind::Stopped => {
            report.notes.push("interrupted: figures have fewer samples than were asked for".into());
            removed.err()
        }
        Err(error) => Some(error),
        Ok(()) => removed.err(),
    };
    report.notes.extend(failure.iter().map(|failure| format!("ended early: {failure}")));
    Ended { report, failure }
}

/// A plan on its way.
struct Progress<'a> {
    plan: &'a Plan,
    report: &'a mut Report,
    /// Work that lies behind.
    done: u64,
    /// No other run has it.
    id: u64,
}

impl Progress<'_> {
    fn repeat(&mut self, run: &mut Run<'_>, workspaces: &[Workspace]) -> Result<()> {
        let sides = workspaces.len();
        for repetition in 0..self.plan.repetitions {
            for (number, cell) in self.plan.cells.iter().enumerate() {
                for turn in 0..sides {
                    let side = (repetition + turn) % sides;
                    let measured = PathBuf::from(&run.sides[side].directory);
                    let name = run.sides[side].name.clone();
                    let tidying = format!("{name}: removing files");
                    run.watch.doing(preparing(&name));
                    let salt = salt(self.id, repetition, number, side);
                    if cell.named.is_empty() {
                        let directory = workspaces[side].cell(number)?;
                        let ended = self.cell(cell, side, salt, &directory, run);
                        run.watch.doing(tidying);
                        ended.and(workspaces[side].clear(&directory, run.watch))?;
                    } else {
                        let ended = self.cell(cell, side, salt, &measured, run);
                        run.watch.doing(tidying);
                        ended.and(place::named::remove(cell, &measured, run.watch))?;
                    }
                    if sides > 1 {
                        // What one side still has to write would be written while the next is timed.
                        run.watch.doing(format!("{name}: writing what is held back"));
                        run.crew.settle(&measured, run.watch)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn cell(
        &mut self,
        cell: &Cell,
        side: usize,
        salt: u64,
        directory: &Path,
        run: &mut Run<'_>,
    ) -> Result<()> {
        let name = run.sides[side].name.clone();
        for step in &cell.steps {
            run.watch.check()?;
            run.watch.doing(doing(step, &name));
            self.before(step, side, directory, run)?;
            run.watch.doing(doing(step, &name));
            let jobs: Vec<Job> = step.jobs.iter().map(|job| job.salted(salt)).collect();
            let done = run.crew.work(&jobs, directory, run.watch)?;
            self.done += step.weight();
            run.watch.reach(self.done);
            self.keep(cell, step, &name, &done);
            if !step.measures.is_empty() {
                run.watch.keep(self.by_now());
            }
        }
        Ok(())
    }

    /// The report, as if the run ended here.
    fn by_now(&self) -> Report {
        let mut report = self.report.clone();
        report.figures.extend(self.plan.published.iter().cloned());
        report
    }

    fn before(
        &mut self,
        step: &Step,
        side: usize,
        directory: &Path,
        run: &mut Run<'_>,
    ) -> Result<()> {
        match step.before {
            Before::Nothing => {}
            Before::Settle => run.crew.settle(directory, run.watch)?,
            Before::Cool => {
                let lost = run.crew.cool(&step.jobs, directory, run.watch)?;
                let (kind, here) = (&run.sides[side].file_system, self.plan.has_servers_here);
                let known = cold::not_emptied(kind, &step.jobs, here);
                for note in lost.into_iter().chain(known) {
                    if !self.report.notes.contains(&note) {
                        self.report.notes.push(note);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the samples of a step to their figures.
    fn keep(&mut self, cell: &Cell, step: &Step, side: &str, done: &[Done]) {
        let mut parameters = cell.parameters.clone();
        parameters.extend(step.parameters.clone());
        for measure in &step.measures {
            let sample = measure.sample(done);
            let same = |figure: &&mut Figure| {
                figure.side == side
                    && figure.test == measure.test
                    && figure.unit == measure.unit
                    && figure.parameters == parameters
            };
            match self.report.figures.iter_mut().find(same) {
                Some(figure) => figure.samples.push(sample),
                None => self.report.figures.push(Figure {
                    side: side.to_owned(),
                    origin: Origin::Measured,
                    test: measure.test.clone(),
                    parameters: parameters.clone(),
                    unit: measure.unit,
                    samples: vec![sample],
                    rule: self.plan.rule,
                }),
            }
        }
    }
}

/// What makes the contents of files others than those of any other repetition, cell and side of any
/// run: what a file system has kept of those by mistake is then not what is expected.
fn salt(run: u64, repetition: usize, cell: usize, side: usize) -> u64 {
    let numbers = [repetition, cell, side];
    numbers.into_iter().fold(run, |salt, number| mixed(salt ^ number as u64))
}

fn doing(step: &Step, side: &str) -> String {
    match step.measures.first() {
        Some(measure) => format!("{side}: {}", measure.test),
        None => preparing(side),
    }
}

fn preparing(side: &str) -> String {
    format!("{side}: preparing")
}

#[cfg(test)]
mod tests;
