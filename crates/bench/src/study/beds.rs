//! A study in testbeds of its own: one for each setting, with what is possible there measured beside,
//! and gone afterwards.

use super::{Options, Setting, Study, chosen, join, plan};
use crate::crew::Crew;
use crate::error::{Error, Kind, Result};
use crate::limit;
use crate::place;
use crate::plan::{Plan, Room};
use crate::result::Report;
use crate::runner::{Ended, Run};
use crate::testbed::{self, Rate, Registry, Temporary, Testbed};
use crate::watch::Watch;
use std::path::Path;
use strake_base::process::began_ticks;

/// What the names of these testbeds begin with; the number of the process and of its beginning follow.
const NAME: &str = "study";
/// Name of the side that is measured.
const SIDE: &str = "strake";

/// How to need less room.
const SMALLER: [&str; 2] = ["free some room, or choose a part of the study: --sizes, --threads"; 2];

/// What belongs to a run beside its study.
pub struct Beds<'a> {
    /// Where the testbeds have their data, each in a directory of its own that goes with it.
    pub data: &'a Path,
    /// The program `strake`.
    pub program: &'a Path,
    /// The command line, for the report.
    pub command: String,
    /// The version of the program, for the report.
    pub version: String,
    /// How far it is, and whether it shall stop.
    pub watch: &'a Watch,
    /// Keeps what is measured, after each setting: the next one may take days.
    pub keep: &'a dyn Fn(&Report),
}

/// Carries a study out in every setting it asks for. An error means that nothing was measured.
pub fn run(study: Study, options: &Options, beds: &Beds<'_>) -> Result<Ended> {
    let settings = chosen(study, options)?;
    if settings.is_empty() {
        return Err(Error::usage("this study compares what is there: it makes no testbed")
            .next("name directories: --on DIR, several times to compare"));
    }
    remove_leftovers()?;
    let plans: Vec<Plan> =
        settings.iter().map(|of| plan(study, Some(of), options)).collect::<Result<_>>()?;
    for (setting, plan) in settings.iter().zip(&plans) {
        // Of its files only some data on targets grow.
        let bytes = plan.needs().bytes.saturating_add(setting.room());
        place::has_room(Room { bytes, files: 0 }, beds.data, SMALLER)?;
    }
    beds.watch.expect(plans.iter().map(|plan| plan.weight(1)).fold(0, u64::saturating_add));
    let mut whole: Option<Report> = None;
    for (setting, plan) in settings.iter().zip(&plans) {
        let ended = in_setting(study, setting, plan, options.quick, beds);
        let failure = match ended {
            Ok(ended) => {
                match &mut whole {
                    Some(whole) => join(whole, ended.report),
                    None => whole = Some(ended.report),
                }
                ended.failure
            }
            Err(error) => Some(error),
        };
        match (whole.take(), failure) {
            (None, Some(error)) => return Err(error),
            (Some(report), Some(error)) => return Ok(ended_early(report, error)),
            (report, None) => {
                report.iter().for_each(beds.keep);
                whole = report;
            }
        }
    }
    let report = whole.ok_or_else(Error::stopped)?;
    Ok(Ended { report, failure: None })
}

/// The end of a run that has not come to its own, said once: a setting's run may have said it already.
fn ended_early(mut report: Report, error: Error) -> Ended {
    let (note, failure) = match error.kind {
        Kind::Stopped => ("interrupted: not every setting was measured".into(), None),
        _ => (format!("ended early: {error}"), Some(error)),
    };
    if !report.notes.contains(&note) {
        report.notes.push(note);
    }
    Ended { report, failure }
}

fn in_setting(
    study: Study,
    setting: &Setting,
    plan: &Plan,
    quick: bool,
    beds: &Beds<'_>,
) -> Result<Ended> {
    beds.watch.check()?;
    let stopped = || beds.watch.is_stopped();
    beds.watch.doing(format!("making a testbed of {} servers", setting.servers));
    let wanted = testbed_of(setting)?;
    let data = beds.data.join(&wanted.name);
    let testbed = Testbed::up(&wanted, &data, beds.program, &stopped)?;
    let bed = Temporary { testbed };
    let sides = place::sides(&[format!("{SIDE}={}", bed.testbed.state.mount(1).display())])?;
    let (command, version) = (beds.command.clone(), beds.version.clone());
    let run = Run { sides, crew: Crew::Threads, command, version, watch: beds.watch };
    let parameters = study.parameters(setting);
    let mut ended = limit::carry_out(plan, run, &bed.testbed, &parameters, quick)?;
    beds.watch.keep(ended.report.clone());
    beds.watch.doing("removing the testbed");
    // What was measured is shown all the same.
    if let Err(error) = bed.down() {
        ended.failure.get_or_insert(error);
    }
    Ok(ended)
}

/// Removes the testbed of this process while its run stands still in it: the call that does not return
/// ends with the mount.
pub fn leave() -> Result<()> {
    testbed::down(&own_name()).map(drop)
}

/// The name of the testbeds of this process, which has one at a time.
fn own_name() -> String {
    let own = std::process::id();
    format!("{NAME}-{own}-{}", began_ticks(own).unwrap_or(0))
}

/// The testbed of a setting. The client's link is a server's: the studies had one kind of machine.
fn testbed_of(setting: &Setting) -> Result<testbed::Plan> {
    let rate = |bytes: f64| Rate::of(bytes.round() as u64).map_err(Error::usage);
    let link = setting.link.map(rate).transpose()?;
    Ok(testbed::Plan {
        name: own_name(),
        servers: setting.servers,
        clients: 1,
        targets: 1,
        link,
        client_link: link,
        disk: setting.disk.map(rate).transpose()?,
        chunk_size: setting.chunk_size,
        cluster: true,
    })
}

/// Removes the testbeds of runs that were killed.
fn remove_leftovers() -> Result<()> {
    for name in Registry::of_machine().names() {
        if is_left_over(&name) {
            testbed::down(&name)?;
        }
    }
    Ok(())
}

fn is_left_over(name: &str) -> bool {
    let of_run = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('-'));
    let numbers = of_run.and_then(|rest| rest.split_once('-'));
    let numbers = numbers.and_then(|(pid, began)| Some((pid.parse().ok()?, began.parse().ok()?)));
    numbers.is_some_and(|(pid, began): (u32, u64)| began_ticks(pid) != Some(began))
}

#[cfg(test)]
mod tests {
    use super::super::{Part, settings};
    use super::*;
    use crate::limit::{DISKS, Limits, TCP};
    use crate::report::fixture::study;
    use crate::result::Figure;
    use std::collections::BTreeSet;

    const OPTIONS: Options =
        Options { quick: true, repetitions: None, verify: false, seed: 1, part: Part::ALL };

    fn limits() -> Limits {
        let (to_one, from_one) = (vec![12e6], vec![11e6]);
        let (disks_written, disks_read) = (vec![6e6], vec![7e6]);
        Limits { to_one, from_one, disks_written, disks_read, ..Limits::default() }
    }

    fn figures(study: Study) -> Vec<Figure> {
        let setting = settings(study, true)[0];
        let plan = plan(study, Some(&setting), &OPTIONS).unwrap();
        limits().beside(&plan, &study.parameters(&setting))
    }

    #[test]
    fn only_what_crosses_the_links_has_a_limit() {
        let figures = figures(Study::One);
        let tests: BTreeSet<_> = figures.iter().map(|f| f.test.as_str()).collect();
        let crossing = [
            "iozone/read -c cold",
            "iozone/reread -c cold",
            "iozone/rewrite -ce",
            "iozone/write -ce",
        ];
        assert_eq!(tests, crossing.into());
        let of = |test: &str, side: &str| {
            figures.iter().find(|f| f.test == test && f.side == side).map(|f| f.samples[0])
        };
        assert_eq!(of("iozone/write -ce", TCP), Some(12e6));
        assert_eq!(of("iozone/read -c cold", TCP), Some(11e6));
        assert_eq!(of("iozone/read -c cold", DISKS), Some(7e6));
    }

    #[test]
    fn limits_stand_beside_their_own_setting() {
        for figure in figures(Study::Two) {
            assert_eq!(figure.parameters.len(), 2, "{figure:?}");
            assert!(figure.parameters.contains_key("servers"));
        }
    }

    #[test]
    fn every_setting_can_be_made() {
        for study in [Study::One, Study::Two, Study::Three] {
            for setting in settings(study, false) {
                let plan = testbed_of(&setting).unwrap();
                plan.check().unwrap();
                assert_eq!(plan.disk.is_some(), setting.disk.is_some());
            }
        }
    }

    /// It was told twice, in the same words.
    #[test]
    fn why_a_study_ended_early_is_said_once() {
        let mut report = study();
        report.notes = vec!["ended early: no room".into()];
        let ended = ended_early(report, Error::failed("no room"));
        assert_eq!(ended.report.notes, ["ended early: no room"]);
        let ended = ended_early(ended.report, Error::stopped());
        assert!(ended.report.notes.len() == 2 && ended.failure.is_none());
    }

    #[test]
    fn only_testbeds_of_runs_that_are_dead_are_left_over() {
        let own = testbed_of(&settings(Study::One, true)[0]).unwrap().name;
        assert!(!is_left_over(&own));
        assert!(is_left_over(&format!("study-{}-1", std::process::id())));
        for other in ["study", "study-hall", "study-1-x", "testbed"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
