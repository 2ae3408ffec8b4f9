//! The tests of all packages, several test programs at once: mounted file systems make them wait most of
//! their time.

use crate::said::Said;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// They take longest, and begin first.
const LONG: &[&str] = &[
    "suites",
    "strake_engine",
    "soak",
    "metadata",
    "strake_sim",
    "strake_storage",
    "property",
    "owners",
    "cli",
];
/// Tests of a program at once, where nobody says how many and there are fewer processors: most wait for others.
const THREADS_MIN: usize = 5;
/// Where the test harness looks for that.
const THREADS: &str = "RUST_TEST_THREADS";
/// Longest that one may take.
const PROGRAM_MAX: Duration = Duration::from_secs(20 * 60);
/// Between two looks whether one has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A test program.
struct Program {
    name: String,
    executable: PathBuf,
    /// Where its package is: it runs there.
    directory: PathBuf,
}

/// Builds all test programs and runs so many at once, then the examples in the documentation. The output of
/// each is shown in one piece when it has ended.
pub fn run(root: &Path, at_once: usize) -> ExitCode {
    let programs = match build(root) {
        Ok(Some(programs)) => programs,
        Ok(None) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("test: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Who runs this from a step waits for a line: all is built.
    println!("{} test programs, {at_once} at once", programs.len());
    let (queue, good) = (Mutex::new(VecDeque::from(programs)), AtomicBool::new(true));
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some(program) = next(&queue) {
                    if !show(&program, attempt(&program)) {
                        good.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let documented = crate::command("cargo")
        .args(["test", "--workspace", "--doc", "--no-fail-fast"])
        .current_dir(root)
        .status()
        .is_ok_and(|status| status.success());
    if documented && good.into_inner() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn next(queue: &Mutex<VecDeque<Program>>) -> Option<Program> {
    queue.lock().ok()?.pop_front()
}

/// Builds the programs; none if that fails, for a reason that cargo has told.
fn build(root: &Path) -> io::Result<Option<Vec<Program>>> {
    let mut cargo = crate::command("cargo")
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut programs = Vec::new();
    if let Some(output) = cargo.stdout.take() {
        for line in BufReader::new(output).lines() {
            programs.extend(program(&line?));
        }
    }
    let long = |program: &Program| {
        let place = LONG.iter().position(|name| *name == program.name);
        place.unwrap_or(LONG.len())
    };
    programs.sort_by_key(long);
    Ok(cargo.wait()?.success().then_some(programs))
}

/// The test program that a message of cargo is about.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let name = message["target"]["name"].as_str()?.to_owned();
    let executable = PathBuf::from(message["executable"].as_str()?);
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Program { name, executable, directory })
}

/// Runs a program to its end; whether it was content, and its output.
fn attempt(program: &Program) -> io::Result<(bool, String)> {
    let said = Said::at(&program.executable.with_extension("out"))?;
    let mut command = Command::new(&program.executable);
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    if processors < THREADS_MIN && std::env::var_os(THREADS).is_none() {
        command.env(THREADS, THREADS_MIN.to_string());
    }
    command.current_dir(&program.directory).stdin(Stdio::null());
    let mut child = said.by(&mut command)?.spawn()?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > PROGRAM_MAX {
            child.kill()?;
            let seconds = PROGRAM_MAX.as_secs();
            writeln!(&said, "test {} has not ended within {seconds} s ... FAILED", program.name)?;
            break child.wait()?;
        }
        std::thread::sleep(LOOK);
    };
    let (said, seconds) = (said.read()?, began.elapsed().as_secs());
    Ok((status.success(), format!("{said}     {} took {seconds} s: {status}\n", program.name)))
}

/// Shows how a program has ended; true if it was content.
fn show(program: &Program, ended: io::Result<(bool, String)>) -> bool {
    let (good, output) = match ended {
        Ok((good, output)) => (good, output),
        Err(error) => (false, format!("{} cannot be run: {error}\n", program.executable.display())),
    };
    println!("     Running {}\n{output}", program.name);
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_told_from_what_else_cargo_builds() {
        let said = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/b/Cargo.toml","executable":{executable},
                   "target":{{"name":"up"}},"profile":{{"test":{test}}}}}"#
            )
        };
        let found = program(&said(true, r#""/t/up-1""#)).expect("a test");
        assert_eq!((found.name.as_str(), found.directory.to_str()), ("up", Some("/a/b")));
        assert!(program(&said(false, r#""/t/up""#)).is_none());
        assert!(program(&said(true, "null")).is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
    }

    #[test]
    fn a_program_that_cannot_be_run_is_a_failure() {
        let (name, executable, directory) = ("it".into(), "/does/not/exist".into(), "/".into());
        let missing = Program { name, executable, directory };
        assert!(!show(&missing, attempt(&missing)));
    }
}
