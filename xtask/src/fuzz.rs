//! Runs the fuzz targets one after the other, each for a while.
//!
//! What the fuzzer adds to a corpus goes to `fuzz/target`, so the corpora that are checked in stay
//! small; an input that breaks a decoder is left in `fuzz/artifacts`.

use std::path::Path;
use std::process::ExitCode;

/// Limits of a run: an input is short, and nothing it claims may cost much time or memory.
const LIMITS: &[&str] = &["-max_len=8192", "-timeout=10", "-malloc_limit_mb=64"];

/// Runs the targets named, or all of them, each for so many seconds.
pub fn run(root: &Path, seconds: &str, named: &[String]) -> ExitCode {
    let fuzz = root.join("fuzz");
    let targets = match named.is_empty() {
        false => named.to_vec(),
        true => match all(&fuzz) {
            Ok(targets) => targets,
            Err(error) => {
                eprintln!("fuzz: {error}");
                return ExitCode::from(2);
            }
        },
    };
    for target in &targets {
        println!("==> {target}");
        if !run_one(&fuzz, target, seconds).unwrap_or(false) {
            eprintln!(
                "fuzz: {target} failed (rustup toolchain install nightly and cargo install \
                 cargo-fuzz get the fuzzer; an input that broke it is in fuzz/artifacts/{target})"
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn all(fuzz: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(fuzz.join("fuzz_targets"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn run_one(fuzz: &Path, target: &str, seconds: &str) -> std::io::Result<bool> {
    let (found, seeds) = (format!("target/corpus/{target}"), format!("corpus/{target}"));
    std::fs::create_dir_all(fuzz.join(&found))?;
    let mut command = crate::command("rustup");
    command.args(["run", "nightly", "cargo", "fuzz", "run", target, &found, &seeds, "--"]);
    command.arg(format!("-max_total_time={seconds}")).args(LIMITS);
    Ok(command.current_dir(fuzz).status()?.success())
}
