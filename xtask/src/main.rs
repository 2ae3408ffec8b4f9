//! Tools of the repository: `cargo xtask tidy`, `cargo xtask ci`, `cargo xtask test`, `cargo xtask sim` and `cargo xtask fuzz`.
//!
//! `tidy` holds the tree against the rules that rustc and clippy do not know (ARCHITECTURE.md and
//! CONTRIBUTING.md say which); it only reads files and needs nothing built. `ci` is the one gate:
//! it runs every check, step by step, and is what `make test` and CI call. `fuzz` runs the fuzz targets.
//!
//! A tool here never changes a tracked file, and needs no more than a toolchain and git (`fuzz`: the
//! fuzzer, too).

use std::path::PathBuf;
use std::process::{Command, ExitCode};

mod ci;
mod fuzz;
mod programs;
mod said;
mod sim;
mod tidy;

const USAGE: &str = "usage: cargo xtask <tidy|ci|test [N]|sim ARGUMENTS|fuzz SECONDS [TARGET]...>

  tidy   check the rules of the repository; prints one line per finding
  ci     fmt, tidy, clippy, tests, docs: everything that CI runs
  test   the tests of all packages, N test programs at once
  sim    the whole cluster, simulated, from seeds: --seeds N or --seconds S; `sim --help` says more
  fuzz   every fuzz target (or those named) for so many seconds each; needs nightly and cargo-fuzz
";

/// Test programs that run at once.
const PROGRAMS_AT_ONCE: usize = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => tidy_here(&root),
        ["ci"] => ci::run(&root),
        ["test"] => programs::run(&root, PROGRAMS_AT_ONCE),
        ["test", at_once] if at_once.parse::<u8>().is_ok() => {
            programs::run(&root, at_once.parse().unwrap_or(1))
        }
        ["sim", ..] => sim::run(&root, &arguments[1..]),
        ["fuzz", seconds, ..] if seconds.parse::<u32>().is_ok() => {
            fuzz::run(&root, seconds, &arguments[2..])
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy_here(root: &std::path::Path) -> ExitCode {
    let findings = match tidy::Tree::of_repository(root).and_then(|tree| tidy::check(&tree)) {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: everything in order");
        return ExitCode::SUCCESS;
    }
    println!(
        "tidy: {} findings; mend them, or name them with a reason in xtask/exceptions.toml",
        findings.len()
    );
    ExitCode::FAILURE
}

/// A command that is not told which package this tool is. A cargo that inherits it builds `ring` anew, whose
/// build script looks at these variables, and everything that depends on it.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(own)) {
        command.env_remove(name);
    }
    command
}
