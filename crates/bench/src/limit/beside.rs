//! Limits beside the figures of a plan that is carried out in a testbed.

use super::{Limits, SampleBytes};
use crate::error::Result;
use crate::plan::{Before, Plan, Step};
use crate::result::Figure;
use crate::runner::{self, Ended, Run};
use crate::testbed::Testbed;
use crate::work::Job;
use crate::work::file::Direction;
use std::collections::BTreeMap;

/// Most bytes over the links, and to and from a disk, for each sample of the limits.
const BYTES: u64 = 16 << 20;
/// Samples of the limits.
const SAMPLES: u32 = 3;
/// The same in a quick run.
const QUICK: (u64, u32) = (8 << 20, 1);

/// Carries out a plan on directories that the first client of a testbed has mounted, after what its
/// links and disks carry at most was measured, which then stands beside the figures. `parameters` are
/// those by which figures say in which testbed they were taken.
pub fn carry_out(
    plan: &Plan,
    run: Run<'_>,
    testbed: &Testbed,
    parameters: &BTreeMap<String, f64>,
    quick: bool,
) -> Result<Ended> {
    run.watch.doing("what links and disks carry at most");
    let (most, samples) = if quick { QUICK } else { (BYTES, SAMPLES) };
    let bytes = SampleBytes::of(&testbed.state.plan, most);
    let watch = run.watch;
    let stopped = || {
        // Bytes arrive as long as somebody asks.
        watch.live();
        watch.is_stopped()
    };
    let limits = Limits::measure(testbed, bytes, samples, &stopped)?;
    runner::run(&limits.within(plan, parameters), run)
}

impl Limits {
    /// A plan in the testbed, with its limits: a run that is left where it stands still has them, too.
    fn within(&self, plan: &Plan, parameters: &BTreeMap<String, f64>) -> Plan {
        let mut whole = plan.clone();
        whole.published.extend(self.beside(plan, parameters));
        whole.has_servers_here = true;
        whole
    }

    /// A limit beside each test of a plan that must cross the links: reads from cold caches, and writes
    /// up to and with an fsync. What caches may answer has no limit here.
    pub fn beside(&self, plan: &Plan, parameters: &BTreeMap<String, f64>) -> Vec<Figure> {
        let mut tests: Vec<(&str, Way)> = Vec::new();
        for step in plan.cells.iter().flat_map(|cell| &cell.steps) {
            let Some(way) = crosses(step) else { continue };
            for measure in &step.measures {
                if !tests.iter().any(|(test, _)| *test == measure.test) {
                    tests.push((&measure.test, way));
                }
            }
        }
        let of = |(test, way): (&str, Way)| match way {
            Way::ToServers => self.of_writing(test, parameters),
            Way::FromServers => self.of_reading(test, parameters),
        };
        tests.into_iter().flat_map(of).collect()
    }
}

/// Which way the bytes of a test must go over the links.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    ToServers,
    FromServers,
}

/// Which way all bytes of a step must go; `None` where a cache may answer, or both ways are gone.
fn crosses(step: &Step) -> Option<Way> {
    let mut ways = step.jobs.iter().map(|job| way(job, step.before));
    let first = ways.next()??;
    ways.all(|way| way == Some(first)).then_some(first)
}

/// The same of one of its jobs.
fn way(job: &Job, before: Before) -> Option<Way> {
    let Job::File(pass) = job else { return None };
    match pass.direction {
        Direction::Write => pass.ending.flush.then_some(Way::ToServers),
        Direction::Read => (before == Before::Cool).then_some(Way::FromServers),
        Direction::Change | Direction::Seek => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Crew;
    use crate::iozone::{self, Test};
    use crate::place;
    use crate::result::{Origin, Report};
    use crate::watch::Watch;
    use crate::work::file::Ending;

    fn plan(test: &str) -> Plan {
        iozone::plan(&iozone::Options {
            tests: Test::select(test).unwrap(),
            sizes: vec![(1 << 20, vec![1 << 16])],
            workers: 2,
            ending: Ending { flush: true, close: true },
            ..iozone::Options::default()
        })
        .unwrap()
    }

    /// They were added when the run had ended: who left one that hung had no limit of all that it had measured.
    #[test]
    fn limits_are_kept_with_what_a_run_has_measured_by_now() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { to_one: vec![12e6], ..Limits::default() };
        let watch = Watch::default();
        let run = Run {
            sides: place::sides(&[directory.path().display().to_string()]).unwrap(),
            crew: Crew::Threads,
            command: String::new(),
            version: String::new(),
            watch: &watch,
        };
        let plan = limits.within(&plan("write"), &BTreeMap::new());
        assert!(plan.has_servers_here, "it is in a testbed");
        let ended = runner::run(&plan, run).unwrap();
        let count = |report: &Report| {
            report.figures.iter().filter(|figure| figure.origin == Origin::Limit).count()
        };
        assert_eq!((count(&watch.kept()[0]), count(&ended.report)), (1, 1));
    }

    /// The random mix had the limit of its first worker, who reads, for what all of them moved.
    #[test]
    fn what_goes_both_ways_has_no_limit_of_one() {
        let limits = Limits { to_one: vec![12e6], from_one: vec![11e6], ..Limits::default() };
        let beside = |test: &str| {
            let mut plan = plan(test);
            // Its readers read from cold caches, too.
            plan.cells[0].steps.iter_mut().for_each(|step| step.before = Before::Cool);
            limits.beside(&plan, &BTreeMap::new())
        };
        assert!(beside("random mix").is_empty());
        for (test, limit) in [("read", 11e6), ("write", 12e6)] {
            let figures = beside(test);
            assert!(figures.iter().all(|figure| figure.samples == [limit]), "{figures:?}");
            assert_eq!(figures.len(), 1, "{figures:?}");
        }
    }
}
