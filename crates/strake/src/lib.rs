//! The program: one subcommand per verb.
//!
//! [`main`] reads the command line, runs the verb and says how it went by the exit code.

use std::process::ExitCode;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
