//! `strake bench`: measuring mounted directories, side by side.

mod iozone;
mod progress;
mod running;
mod show;

use crate::failure::{Failure, Outcome};
use clap::{Args, Subcommand};
use strake_bench::error::{Error, Kind};

/// Flags of `strake bench`.
#[derive(Args, Debug)]
pub struct BenchFlags {
    /// What to measure, and by what
    #[command(subcommand)]
    pub what: What,
}

/// The generators and what can be done with their results.
#[derive(Subcommand, Debug)]
pub enum What {
    /// iozone's tests: write, read, random, backward, stride, stdio, mmap, io_uring, ...
    Iozone(iozone::IozoneFlags),
}

/// Runs the verb; the exit code.
pub async fn run(flags: BenchFlags) -> Outcome<u8> {
    match flags.what {
        What::Iozone(flags) => iozone::run(&flags).await,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = match error.kind {
            Kind::Usage => Failure::usage(error.cause),
            Kind::Stopped | Kind::Failed => Failure::new(error.cause),
        };
        match error.next {
            Some(next) => failure.next(next),
            None => failure,
        }
    }
}
