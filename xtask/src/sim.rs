//! The simulation of the whole cluster: builds its program and gives it the arguments.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs `strake-sim` with these arguments; its exit code.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--package", "strake-sim", "--"]);
    match cargo.args(arguments).current_dir(root).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("sim: cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
