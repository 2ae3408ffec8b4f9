//! The one gate: every check that CI makes, in one order, with one profile.
//!
//! Tests, clippy and rustdoc share the `dev` profile and the same set of packages, so that a
//! dependency is compiled at most twice: once with code (tests), once without (clippy, rustdoc).
//!
//! Tests wait for much of their time. What checks the code without running it runs beside them, with what they leave of
//! the processors.

use crate::said::Said;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

/// A step: what it is called, its command, and what it adds to the environment.
struct Step {
    name: &'static str,
    command: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// Cheap steps first, so that a small slip is found in seconds.
const FIRST: &[Step] = &[
    Step { name: "format", command: &["cargo", "fmt", "--check"], environment: &[] },
    Step { name: "tidy", command: &["cargo", "xtask", "tidy"], environment: &[] },
];

const TESTS: Step = Step { name: "tests", command: &["cargo", "xtask", "test"], environment: &[] };

/// Beside the tests, from when those are built: two that build in one directory wait for each other.
const BESIDE: &[Step] = &[
    // With TiKV, which is no default: its tests need a double of it (docs/design/0066-tikv.md); that it compiles is seen
    // here. What it is compiled without is what the tests are, in one go with all that both need.
    Step {
        name: "clippy",
        command: &[
            "nice",
            "-n19",
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "strake/tikv",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
    },
    Step {
        name: "docs",
        command: &[
            "nice",
            "-n19",
            "cargo",
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--features",
            "strake/tikv",
        ],
        // Private items are documented too, so links to them lead somewhere.
        environment: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
    },
];

/// Seeds that nobody has run before.
const LAST: &[Step] = &[Step {
    name: "simulate",
    command: &["cargo", "xtask", "sim", "--seconds", "60"],
    environment: &[],
}];

/// Most lines about failures that the summary repeats: readers of a log often see its end only.
const REPEATED_MAX: usize = 16;
/// Most characters of such a line.
const REPEATED_CHARS: usize = 240;

/// Tests counted over every `test result:` line, and what those that failed said.
#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Names of tests that failed, and their panics.
    failures: Vec<String>,
    /// Whether the next line is a panic's message.
    after_panic: bool,
}

/// How a step has ended.
struct Ended {
    name: &'static str,
    good: bool,
    seconds: u64,
}

/// Runs every step, also after a failed one. The last line counts the tests of all binaries, and
/// each step that failed without one, as `cargo test` itself would.
pub fn run(root: &Path) -> ExitCode {
    let start = Instant::now();
    let mut counts = Counts::default();
    let one_by_one = |steps: &[Step], counts: &mut Counts| -> Vec<Ended> {
        steps.iter().map(|step| show(root, step, counts, || {})).collect()
    };
    let mut ended = one_by_one(FIRST, &mut counts);
    ended.extend(tests_and_checks(root, &mut counts));
    ended.extend(one_by_one(LAST, &mut counts));
    let mut summary = String::new();
    for Ended { name, good, seconds } in ended {
        let verdict = if good { "ok" } else { "FAILED" };
        summary += &format!("{name:8} {verdict:6} {seconds:5} s\n");
    }
    let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
    for line in counts.failures.iter().take(REPEATED_MAX) {
        summary += &format!("  {line}\n");
    }
    println!(
        "\n{summary}\ntest result: {verdict}. {} passed; {} failed; {} ignored; 0 measured; \
         0 filtered out; finished in {:.2}s",
        counts.passed,
        counts.failed,
        counts.ignored,
        start.elapsed().as_secs_f64()
    );
    if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests, and beside them, from their first line on, what only looks at the code; that is shown when both have ended.
fn tests_and_checks(root: &Path, counts: &mut Counts) -> Vec<Ended> {
    std::thread::scope(|scope| {
        let mut checks = None;
        let mut begin = || {
            checks.get_or_insert_with(|| {
                scope.spawn(|| BESIDE.iter().map(|step| run_unseen(root, step)).collect::<Vec<_>>())
            });
        };
        let tests = show(root, &TESTS, counts, &mut begin);
        // Also where they could not be built.
        begin();
        let checks = checks.and_then(|checks| checks.join().ok()).unwrap_or_default();
        let mut ended = vec![tests];
        for (check, output) in checks {
            println!("==> {}\n{output}", check.name);
            counts.failed += u64::from(!check.good);
            ended.push(check);
        }
        ended
    })
}

/// Runs a step and shows what it says; `begun` is called with each line.
fn show(root: &Path, step: &Step, counts: &mut Counts, begun: impl FnMut()) -> Ended {
    println!("==> {}: {}", step.name, step.command.join(" "));
    let (began, failed_before) = (Instant::now(), counts.failed);
    let good = run_step(root, step, counts, begun).unwrap_or(false);
    if !good && counts.failed == failed_before {
        counts.failed += 1;
    }
    Ended { name: step.name, good, seconds: began.elapsed().as_secs() }
}

fn run_step(
    root: &Path,
    step: &Step,
    counts: &mut Counts,
    mut begun: impl FnMut(),
) -> io::Result<bool> {
    let mut child = command(root, step).stdout(Stdio::piped()).spawn()?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            println!("{line}");
            counts.add(&line);
            begun();
        }
    }
    Ok(child.wait()?.success())
}

/// Runs a step whose output is shown later.
fn run_unseen(root: &Path, step: &Step) -> (Ended, String) {
    let began = Instant::now();
    let (good, said) = match output(root, step) {
        Ok(output) => output,
        Err(error) => (false, format!("{}: {error}", step.command.join(" "))),
    };
    (Ended { name: step.name, good, seconds: began.elapsed().as_secs() }, said)
}

fn output(root: &Path, step: &Step) -> io::Result<(bool, String)> {
    let said = Said::at(&root.join("target").join(format!("{}.out", step.name)))?;
    let good = said.by(&mut command(root, step))?.status()?.success();
    Ok((good, said.read()?))
}

fn command(root: &Path, step: &Step) -> std::process::Command {
    let mut command = crate::command(step.command[0]);
    command.args(&step.command[1..]).envs(step.environment.iter().copied()).current_dir(root);
    command
}

impl Counts {
    /// Adds up `test result: ok. 8 passed; 0 failed; 1 ignored; ...`, and keeps what a failure says.
    fn add(&mut self, line: &str) {
        let is_panic = line.starts_with("thread '") && line.contains("panicked at");
        let is_failed = line.starts_with("test ") && line.ends_with("... FAILED");
        if is_panic || is_failed || self.after_panic {
            self.failures.push(line.chars().take(REPEATED_CHARS).collect());
        }
        self.after_panic = is_panic;
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let words: Vec<_> = rest.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed;" => self.passed += number,
                "failed;" => self.failed += number,
                "ignored;" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        counts.add("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured;");
        counts.add("running 8 tests");
        assert_eq!((counts.passed, counts.failed, counts.ignored), (10, 3, 1));
        assert!(counts.failures.is_empty());
    }

    #[test]
    fn the_summary_repeats_what_failed_and_why() {
        let mut counts = Counts::default();
        let said = [
            "test names::are_told ... ok",
            "test names::are_kept ... FAILED",
            "---- names::are_kept stdout ----",
            "thread 'names::are_kept' (12) panicked at tests/names.rs:3:9:",
            "left is not right",
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
        ];
        said.iter().for_each(|line| counts.add(line));
        assert_eq!(counts.failures, [said[1], said[3], said[4]]);
    }
}
