//! What every generator's run has in common: where, how often, and how it ends.

use super::output::{self, OutputFlags};
use super::progress;
use crate::failure::{Context, Failure, Outcome};
use crate::signals::stop_requested;
use clap::Args;
use std::sync::Arc;
use strake_bench::crew::Crew;
use strake_bench::place;
use strake_bench::plan::{Plan, Protocol};
use strake_bench::result::{Report, Side};
use strake_bench::runner::{self, Ended, Run};
use strake_bench::watch::Watch;

/// Exit code of a run that was interrupted; what it measured is shown.
const INTERRUPTED: u8 = 130;

/// Flags of every run.
#[derive(Args, Debug)]
pub struct RunFlags {
    /// A directory on the file system to measure (default: the current one); repeat it to compare
    /// several side by side
    #[arg(long, value_name = "[NAME=]DIR")]
    pub on: Vec<String>,

    /// How often everything is measured; the directories take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repetitions: usize,

    /// What decides the contents of files and random orders
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_default_value = true)]
    pub seed: u64,

    /// Fill files with a pattern and compare every byte that is read
    #[arg(long)]
    pub verify: bool,

    /// What to do with the report.
    #[command(flatten)]
    pub output: OutputFlags,
}

impl RunFlags {
    /// As the generators take it.
    pub fn protocol(&self) -> Protocol {
        Protocol { verify: self.verify, seed: self.seed, repetitions: self.repetitions }
    }
}

/// Carries out a plan and shows what it measured; the exit code.
pub async fn carry_out(plan: Plan, crew: Crew, on: &[String], wanted: &OutputFlags) -> Outcome<u8> {
    carry_out_and(plan, crew, on, wanted, output::print).await
}

/// As [`carry_out`]; printed by `print` where neither JSON nor CSV is asked for.
pub async fn carry_out_and(
    plan: Plan,
    crew: Crew,
    on: &[String],
    wanted: &OutputFlags,
    print: impl FnOnce(&Report),
) -> Outcome<u8> {
    let measure = move |run: Supervised<'_>| {
        let Supervised { sides, command, version, watch } = run;
        runner::run(&plan, Run { sides, crew, command, version, watch })
    };
    supervise(on, wanted, measure, print).await
}

/// What every run is told.
pub struct Supervised<'a> {
    /// What is compared.
    pub sides: Vec<Side>,
    /// The command line, for the report.
    pub command: String,
    /// The version of the program, for the report.
    pub version: String,
    /// How far it is, and whether it shall stop.
    pub watch: &'a Watch,
}

/// Runs something that measures, with its progress shown and stopped by signals; then prints what it
/// measured, by `print` where neither JSON nor CSV is asked for. The exit code.
pub async fn supervise(
    on: &[String],
    wanted: &OutputFlags,
    measure: impl FnOnce(Supervised<'_>) -> strake_bench::error::Result<Ended> + Send + 'static,
    print: impl FnOnce(&Report),
) -> Outcome<u8> {
    let sides = place::sides(on)?;
    let stopped =
        stop_requested(|| eprintln!("strake: the next run removes what this one leaves"))?;
    supervise_sides(sides, stopped, wanted, measure, print).await
}

/// As [`supervise`], of sides that are known, or of none; it ends soon after `stopped`.
pub async fn supervise_sides(
    sides: Vec<Side>,
    stopped: tokio::sync::watch::Receiver<bool>,
    wanted: &OutputFlags,
    measure: impl FnOnce(Supervised<'_>) -> strake_bench::error::Result<Ended> + Send + 'static,
    print: impl FnOnce(&Report),
) -> Outcome<u8> {
    wanted.check()?;
    let watch = Arc::new(Watch::default());
    let (stopping, spectator) = (watch.clone(), tokio::spawn(progress::draw(watch.clone())));
    tokio::spawn(async move {
        let mut stopped = stopped;
        if stopped.wait_for(|asked| *asked).await.is_ok() {
            stopping.stop();
        }
    });
    let working = watch.clone();
    let ended = tokio::task::spawn_blocking(move || {
        let (command, version) = (command_line(), env!("CARGO_PKG_VERSION").to_owned());
        measure(Supervised { sides, command, version, watch: &working })
    });
    let ended = ended.await.context(|| "measuring".into());
    watch.end();
    spectator.await.context(|| "showing the progress".into())?;
    let Ended { report, failure } = ended??;
    let is_whole = failure.is_none() && !watch.is_stopped();
    let written = output::write(&report, wanted, is_whole, print);
    match failure {
        Some(failure) => Err(Failure::from(failure)),
        None if written.is_err() => written.map(|()| 0),
        None if watch.is_stopped() => Ok(INTERRUPTED),
        None => Ok(0),
    }
}

/// The command line, so that it can be given again.
fn command_line() -> String {
    let quoted =
        |word: String| match word.chars().all(|c| c.is_alphanumeric() || "-_=./:,+".contains(c)) {
            true if !word.is_empty() => word,
            _ => format!("'{}'", word.replace('\'', r"'\''")),
        };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("strake".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
