//! The program `strake`, built as part of this package: cargo builds it, fresh and with the same
//! profile, before the tests that run it. It never differs from the real one by more than its name.

use std::process::ExitCode;

fn main() -> ExitCode {
    strake::main()
}
