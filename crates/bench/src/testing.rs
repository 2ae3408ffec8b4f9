//! Running plans in tests.

use crate::crew::Crew;
use crate::plan::Plan;
use crate::result::{Report, Side};
use crate::runner::{self, Run};
use crate::watch::Watch;

/// Carries a plan out in a temporary directory, which must be empty afterwards.
pub fn measure(plan: &Plan) -> Report {
    let directory = tempfile::tempdir().expect("a test can make directories");
    let side = Side {
        name: "here".into(),
        directory: directory.path().display().to_string(),
        file_system: String::new(),
    };
    let watch = Watch::default();
    let run = Run {
        sides: vec![side],
        crew: Crew::Threads,
        command: String::new(),
        version: String::new(),
        watch: &watch,
    };
    let ended = runner::run(plan, run).expect("the plan makes sense, and there is room");
    assert_eq!(ended.failure, None);
    let left = std::fs::read_dir(directory.path()).expect("it is still there");
    assert_eq!(left.count(), 0, "nothing is left");
    ended.report
}
