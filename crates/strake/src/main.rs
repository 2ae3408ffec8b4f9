//! The program `strake`. Everything is in the library of this crate, so that the black-box tests can
//! build the same program as part of their own package and never run an old one. This file never
//! holds more than the call.

use std::process::ExitCode;

fn main() -> ExitCode {
    strake::main()
}
