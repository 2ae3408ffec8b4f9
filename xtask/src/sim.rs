//! The simulation of the whole cluster: builds its program and gives it the arguments.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Its program.
const PROGRAM: &str = "strake-sim";

/// Runs `strake-sim` with these arguments; its exit code.
///
/// It is built as a part of the workspace, so that what the tests have built already serves: alone its
/// dependencies would have other features, and be built once more.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut cargo = crate::command("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--bin", PROGRAM]).current_dir(root);
    let built = cargo.status().map(|status| status.success());
    let program = std::env::current_exe().map(|own| own.with_file_name(PROGRAM));
    let run = |program| Command::new(program).args(arguments).current_dir(root).status();
    match built.and_then(|built| if built { program.and_then(run).map(Some) } else { Ok(None) }) {
        Ok(Some(status)) => {
            ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1))
        }
        Ok(None) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}
