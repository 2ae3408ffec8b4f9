//! `strake bench`: measuring mounted directories, side by side, and what becomes of the reports.

mod baselines;
mod bed;
mod bonnie;
mod crew;
mod iozone;
mod matrix;
mod meta;
mod output;
mod progress;
mod run;
mod running;
mod study;
mod tune;

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
    /// One of the four founding studies, by its own protocol, beside its published figures
    Study(study::StudyFlags),
    /// Do the jobs that a run on another host, or in another process, sends
    #[command(hide = true)]
    Worker,
    /// Drive another tool where it is installed: fio, bonnie++, iozone, mdtest, dbench
    Run(run::ToolFlags),
    /// Suggest chunk size and stripe width for a directory of a Strake mount, by a short measurement
    Tune(tune::TuneFlags),
    /// Show a report again
    Show(baselines::ShowFlags),
    /// Keep a report as a baseline, under a name
    Save(baselines::SaveFlags),
    /// List baselines
    List(baselines::ListFlags),
    /// Put two reports beside each other: ratios, their intervals, a verdict where noise allows one
    Compare(baselines::CompareFlags),
    /// bonnie++'s tests: per character, block, rewrite, seeks; create, stat and delete many files
    Bonnie(bonnie::BonnieFlags),
    /// The thread matrix of study 2: file size, block size, threads, with and without fsync
    Matrix(matrix::MatrixFlags),
    /// Names and attributes, mdtest's phases: mkdir, create, stat, read, list, rename, remove, rmdir
    Meta(meta::MetaFlags),
}

/// Runs the verb; the exit code.
pub async fn run(flags: BenchFlags) -> Outcome<u8> {
    match flags.what {
        What::Iozone(flags) => iozone::run(&flags).await,
        What::Run(flags) => run::run(flags).await,
        What::Tune(flags) => tune::run(flags).await,
        What::Show(flags) => baselines::show(&flags).map(|()| 0),
        What::Save(flags) => baselines::save(&flags).map(|()| 0),
        What::List(flags) => baselines::list(&flags).map(|()| 0),
        What::Compare(flags) => baselines::compare(&flags).map(|()| 0),
        What::Bonnie(flags) => bonnie::run(&flags).await,
        What::Matrix(flags) => matrix::run(&flags).await,
        What::Worker => crew::worker().await,
        What::Study(flags) => study::run(&flags).await,
        What::Meta(flags) => meta::run(&flags).await,
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
