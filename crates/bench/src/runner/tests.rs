//! What a run keeps, and what it leaves: everything and nothing.

use super::*;
use crate::content::Content;
use crate::result::Unit;
use crate::work::file::{Calls, Direction, Ending, Open, Pass};
use crate::work::{Job, Order};
use std::path::PathBuf;
use tempfile::TempDir;

const RECORD: u64 = 4096;

fn write(records: u64) -> Pass {
    Pass {
        file: "f".into(),
        direction: Direction::Write,
        start: 0,
        record: RECORD,
        records,
        order: Order::Forward,
        calls: Calls::Plain,
        open: Open { create: true, ..Open::default() },
        ending: Ending::default(),
        content: Content { seed: 1, salt: 0, generation: 1, checked: false },
    }
}

fn plan(cells: usize, repetitions: usize, records: u64) -> Plan {
    let step = Step::measured("t/write", Unit::BytesPerSecond, vec![Job::File(write(records))]);
    let cell = |number: usize| Cell {
        parameters: [("size".to_owned(), number as f64)].into(),
        steps: vec![step.clone()],
        ..Cell::default()
    };
    Plan { cells: (0..cells).map(cell).collect(), repetitions, ..Plan::new("test") }
}

fn side(name: &str, directory: &Path) -> Side {
    let directory = directory.display().to_string();
    Side { name: name.into(), directory, file_system: String::new() }
}

fn started<'a>(sides: Vec<Side>, watch: &'a Watch) -> Run<'a> {
    let (command, version) = (String::new(), String::new());
    Run { sides, crew: Crew::Threads, command, version, watch }
}

fn left_in(directory: &TempDir) -> Vec<PathBuf> {
    std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_cell_of_every_side_has_a_sample_of_every_repetition() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let watch = Watch::default();
    let sides = vec![side("a", a.path()), side("b", b.path())];
    let ended = run(&plan(2, 3, 5), started(sides, &watch)).unwrap();
    assert_eq!(ended.failure, None);
    let figures = &ended.report.figures;
    assert_eq!(figures.len(), 4);
    assert!(figures.iter().all(|f| f.samples.len() == 3 && f.origin == Origin::Measured));
    let (done, total, _) = watch.progress();
    assert_eq!(done, total, "the bar ends at its end");
    assert!(left_in(&a).is_empty() && left_in(&b).is_empty());
}

#[test]
fn an_interrupted_run_keeps_what_it_measured_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let watch = Watch::default();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first step is done when the bar has moved that far; the other never ends by itself.
            while watch.progress().0 < 5 * RECORD {
                std::thread::yield_now();
            }
            watch.stop();
        });
        let mut plan = plan(2, 1, 5);
        plan.cells[1].steps[0].jobs = vec![Job::File(endless())];
        run(&plan, started(vec![side("a", directory.path())], &watch)).unwrap()
    });
    assert_eq!(ended.failure, None);
    assert!(ended.report.notes.iter().any(|note| note.contains("interrupted")));
    assert!(ended.report.figures.len() <= 1, "what did not end has no figure");
    assert!(left_in(&directory).is_empty());
}

/// One record, again and again, for longer than any test waits.
fn endless() -> Pass {
    Pass { order: Order::Same, ..write(u64::MAX / RECORD / 2) }
}

#[test]
fn a_directory_that_vanishes_ends_the_run_and_keeps_what_was_measured() {
    let parent = tempfile::tempdir().unwrap();
    let measured = parent.path().join("measured");
    std::fs::create_dir(&measured).unwrap();
    let watch = Watch::default();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while watch.progress().0 == 0 {
                std::thread::yield_now();
            }
            // The run makes files while this removes them: until there are none.
            while measured.exists() {
                let _again = std::fs::remove_dir_all(&measured);
            }
        });
        run(&plan(1, 1000, 50), started(vec![side("a", &measured)], &watch)).unwrap()
    });
    let failure = ended.failure.expect("it cannot go on");
    assert!(failure.cause.contains("measured"), "{failure}");
    assert!(ended.report.notes.iter().any(|note| note.contains("ended early")));
}

/// The turn of one side had begun, and what stood still in it was said of the side before, which was sound.
#[test]
fn what_is_done_is_said_of_the_side_whose_turn_it_is() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sides = vec![side("a", a.path()), side("b", b.path())];
    let workspaces = [&a, &b].map(|directory| Workspace::new(directory.path()).unwrap());
    // The first call there fails.
    std::fs::remove_dir_all(&left_in(&b)[0]).unwrap();
    let (plan, watch) = (plan(1, 1, 1), Watch::default());
    let mut report = begin("test", "", "", &sides);
    let mut progress = Progress { plan: &plan, report: &mut report, done: 0, id: 1 };
    progress.repeat(&mut started(sides, &watch), &workspaces).unwrap_err();
    assert_eq!(watch.progress().2, "b: preparing");
}

#[test]
fn a_failing_worker_ends_the_others() {
    let directory = tempfile::tempdir().unwrap();
    // There are fewer bytes than the reader wants.
    let read = Pass { direction: Direction::Read, ..write(10) };
    let other = Pass { file: "other".into(), ..endless() };
    let jobs = vec![Job::File(read), Job::File(other)];
    let mut plan = plan(1, 1, 1);
    plan.cells[0].steps.push(Step::measured("t/read", Unit::PerSecond, jobs));
    let watch = Watch::default();
    let sides = vec![side("a", directory.path())];
    let ended = run(&plan, started(sides, &watch)).unwrap();
    assert!(ended.failure.unwrap().cause.contains("reading"));
    assert_eq!(ended.report.figures.len(), 1, "the failed step has no figure");
    assert!(left_in(&directory).is_empty());
}

#[test]
fn what_an_interrupted_run_left_is_removed_and_told() {
    let directory = tempfile::tempdir().unwrap();
    // What a run of this machine says, before it was started anew.
    let ours = Workspace::new(directory.path()).unwrap();
    let [name] = &left_in(&directory)[..] else { panic!("one workspace") };
    let path = directory.path().join(name).join("owner.json");
    let text = std::fs::read(path).unwrap();
    let mut owner: serde_json::Value = serde_json::from_slice(&text).unwrap();
    owner["boot"] = "before".into();
    ours.remove(&Watch::default()).unwrap();
    let left = directory.path().join(".strake-bench-0badcafe");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("owner.json"), owner.to_string()).unwrap();
    let watch = Watch::default();
    let ended = run(&plan(1, 1, 1), started(vec![side("a", directory.path())], &watch)).unwrap();
    assert!(ended.report.notes.iter().any(|note| note.starts_with("removed ")));
    assert!(left_in(&directory).is_empty());
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let watch = Watch::default();
    let mut too_large = plan(1, 1, 1);
    too_large.cells[0].needs.bytes = u64::MAX / 2;
    let mut too_many = plan(1, 1, 1);
    let large = Pass { record: 1 << 30, calls: Calls::Ring { depth: 4096 }, ..write(1) };
    too_many.cells[0].steps[0].jobs = vec![Job::File(large); 4096];
    for (wrong, word) in [
        (plan(1, 0, 1), "0 repetitions"),
        (plan(0, 1, 1), "nothing to measure"),
        (too_large, "has room for"),
        (too_many, "the buffers of all workers"),
    ] {
        let error = run(&wrong, started(vec![side("a", directory.path())], &watch)).err().unwrap();
        assert!(error.cause.contains(word), "{error}");
        assert!(left_in(&directory).is_empty());
    }
}

#[test]
fn one_directory_under_two_names_is_no_other_run() {
    let directory = tempfile::tempdir().unwrap();
    let watch = Watch::default();
    let sides = vec![side("a", directory.path()), side("b", directory.path())];
    let ended = run(&plan(1, 1, 1), started(sides, &watch)).unwrap();
    assert_eq!(ended.report.notes, Vec::<String>::new());
    assert_eq!(ended.report.figures.len(), 2);
    assert!(left_in(&directory).is_empty());
}

/// The contents followed from seed, generation, worker and offset alone: where a write was lost, what
/// an earlier one had left at the place was taken for what this one had written.
#[test]
fn what_another_run_or_cell_has_written_is_not_what_this_one_has() {
    let directory = tempfile::tempdir().unwrap();
    let content = Content { seed: 1, salt: 0, generation: 1, checked: true };
    // Beside the directories of all cells, so that it stays.
    let kept = Pass { file: "../../kept".into(), content, ..write(5) };
    let step =
        |pass: &Pass| Step::measured("t/pass", Unit::BytesPerSecond, vec![Job::File(pass.clone())]);
    let read = step(&Pass { direction: Direction::Read, open: Open::default(), ..kept.clone() });
    let cell = |steps| Cell { steps, ..Cell::default() };
    let failure = |cells| {
        let watch = Watch::default();
        let sides = vec![side("a", directory.path())];
        run(&Plan { cells, ..Plan::new("test") }, started(sides, &watch)).unwrap().failure
    };
    assert_eq!(failure(vec![cell(vec![step(&kept), read.clone()])]), None);
    let other_run = failure(vec![cell(vec![read.clone()])]).unwrap();
    assert!(other_run.cause.contains("is not what was written"), "{other_run}");
    let other_cell = failure(vec![cell(vec![step(&kept)]), cell(vec![read])]).unwrap();
    assert!(other_cell.cause.contains("is not what was written"), "{other_cell}");
}

#[test]
fn every_repetition_cell_and_side_has_contents_of_its_own() {
    let salts = (0..27).map(|at| salt(7, at / 9, at / 3 % 3, at % 3));
    let salts: std::collections::BTreeSet<_> = salts.collect();
    assert_eq!(salts.len(), 27);
    assert!(!salts.contains(&salt(8, 0, 0, 0)));
}
