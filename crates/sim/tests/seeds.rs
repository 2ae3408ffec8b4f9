//! The simulation of the whole cluster, by its own program: a seed is run in a process of its own.

use std::process::Command;

/// Runs a seed; its output, and whether it was without a failure.
fn run(seed: u64, more: &[&str]) -> (String, bool) {
    let program = env!("CARGO_BIN_EXE_strake-sim");
    let mut command = Command::new(program);
    command.args(["--single", "--from", &seed.to_string()]).args(more);
    let output = command.output().expect("cargo has built the program that is run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.success())
}

#[test]
fn the_same_seed_gives_the_same_trace_to_the_last_line() {
    for seed in [1, 2, 66, 114] {
        let (first, good) = run(seed, &["--trace"]);
        let (second, _) = run(seed, &["--trace"]);
        let differ = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}: the first line that differs");
        assert!(good && first.lines().count() > 100, "seed {seed}: {first}");
    }
    assert_ne!(run(1, &[]).0, run(2, &[]).0.replace("seed 2", "seed 1"));
}

#[test]
fn the_first_seeds_find_nothing() {
    let program = env!("CARGO_BIN_EXE_strake-sim");
    let arguments = ["--from", "1", "--seeds", "10", "--jobs", "2"];
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Those rules that take few seeds; `cargo xtask sim --broken all` tries each.
#[test]
fn a_rule_that_is_broken_is_noticed() {
    for rule in [
        "chunks-are-deleted",
        "fsync-reaches-journal",
        "leases-cover-opens",
        "range-locks-outlive-servers",
        "scrubs-repair",
        "settled-is-everywhere",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strake-sim"));
        command.args(["--broken", rule, "--from", "1", "--seeds", "100", "--jobs", "1"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_the_reason() {
    let refused = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_strake-sim")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--broken", "nothing"]).contains("no rule nothing; there are: "));
    assert!(refused(&[]).contains("--seeds N or --seconds S"));
}
