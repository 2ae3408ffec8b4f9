//! Tools of the repository: `cargo xtask tidy` and `cargo xtask ci`.
//!
//! `tidy` holds the tree against the rules that rustc and clippy do not know (ARCHITECTURE.md and
//! CONTRIBUTING.md say which); it only reads files and needs nothing built. `ci` is the one gate:
//! it runs every check, step by step, and is what `make test` and CI call.
//!
//! A tool here never changes a tracked file, and never needs more than a toolchain and git.

use std::path::PathBuf;
use std::process::ExitCode;

mod ci;
mod tidy;

const USAGE: &str = "usage: cargo xtask <tidy|ci>

  tidy   check the rules of the repository; prints one line per finding
  ci     fmt, tidy, clippy, tests, docs: everything that CI runs
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("tidy"), None) => tidy_here(&root),
        (Some("ci"), None) => ci::run(&root),
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
