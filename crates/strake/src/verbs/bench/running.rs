//! What every generator's run has in common: where, how often, and how it ends.

use super::output::{self, OutputFlags};
use super::progress::{self, Stillness};
use crate::failure::{Context, Failure, Outcome};
use crate::release::RELEASE;
use crate::signals::stops_counted;
use clap::Args;
use std::sync::Arc;
use std::time::Duration;
use strake_bench::crew::Crew;
use strake_bench::place;
use strake_bench::plan::{Plan, Protocol};
use strake_bench::result::{Report, Side};
use strake_bench::runner::{self, Ended, Run};
use strake_bench::study;
use strake_bench::watch::Watch;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

/// Exit code of a run that was interrupted; what it measured is shown.
const INTERRUPTED: u8 = 130;
/// For how long a run that is to stop may stand still before it is left.
const STILL_MAX: Duration = Duration::from_secs(20);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it may take to take away what it has made.
const FREE_MAX: Duration = Duration::from_secs(60);

/// What to do where that did not go.
const SEE_WHAT_IS_LEFT: &str = "see what is left: strake testbed status";

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

    /// What decides random orders and names; contents differ from run to run
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
    let ending = Ending { asked: stops_counted()?, free: || Ok(()) };
    supervise_sides(sides, ending, wanted, measure, print).await
}

/// How a run is ended.
pub struct Ending<F> {
    /// How often somebody has asked for it.
    pub asked: Receiver<u32>,
    /// Takes away what the run has made, while a call of it does not return.
    pub free: F,
}

/// As [`supervise`], of sides that are known, or of none. The run ends by itself soon after somebody
/// has asked once; it is left when it then stands still, or when somebody asks again.
pub async fn supervise_sides(
    sides: Vec<Side>,
    ending: Ending<impl FnOnce() -> strake_bench::error::Result<()> + Send + 'static>,
    wanted: &OutputFlags,
    measure: impl FnOnce(Supervised<'_>) -> strake_bench::error::Result<Ended> + Send + 'static,
    print: impl FnOnce(&Report),
) -> Outcome<u8> {
    wanted.check()?;
    let watch = Arc::new(Watch::default());
    let spectator = tokio::spawn(progress::draw(watch.clone()));
    let working = watch.clone();
    let mut working = tokio::task::spawn_blocking(move || {
        let (command, version) = (command_line(), RELEASE.to_owned());
        measure(Supervised { sides, command, version, watch: &working })
    });
    let ended = tokio::select! {
        ended = &mut working => Some(ended.context(|| "measuring".into())),
        () = is_to_be_left(&watch, ending.asked) => None,
    };
    watch.end();
    spectator.await.context(|| "showing the progress".into())?;
    let Some(ended) = ended else { return leave(&watch, wanted, ending.free, print).await };
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

/// Asks the run to stop as soon as somebody wants it to; returns when it then stands still, or when
/// somebody asks again.
async fn is_to_be_left(watch: &Watch, mut asked: Receiver<u32>) {
    if asked.wait_for(|asked| *asked > 0).await.is_err() {
        // Nobody is there any more who could ask.
        return std::future::pending().await;
    }
    watch.stop();
    let mut stillness = Stillness::of(watch);
    while *asked.borrow() < 2 && stillness.look(watch) < STILL_MAX {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Leaves a run to itself, of which a call into a file system does not return: takes away what it has
/// made, and gives what it has measured. The exit code.
async fn leave(
    watch: &Watch,
    wanted: &OutputFlags,
    free: impl FnOnce() -> strake_bench::error::Result<()> + Send + 'static,
    print: impl FnOnce(&Report),
) -> Outcome<u8> {
    let (_, _, doing) = watch.progress();
    eprintln!("strake: left where it stands still ({doing}); the next run removes what is there");
    let freed = match timeout(FREE_MAX, tokio::task::spawn_blocking(free)).await {
        Ok(freed) => {
            freed.context(|| "ending the run".into()).and_then(|freed| freed.map_err(Failure::from))
        }
        Err(_too_long) => {
            let seconds = FREE_MAX.as_secs();
            let cause = format!("what the run has made has not gone within {seconds} s");
            Err(Failure::new(cause).next(SEE_WHAT_IS_LEFT))
        }
    };
    let parts = watch.kept().into_iter().reduce(|mut whole, part| {
        study::join(&mut whole, part);
        whole
    });
    let Some(mut report) = parts else {
        let cause = format!("interrupted where it stood still ({doing})");
        return Err(match freed {
            Ok(()) => Failure::new(cause),
            Err(left) => Failure::new(format!("{cause}; {}", left.cause)).next(SEE_WHAT_IS_LEFT),
        });
    };
    report.notes.push(format!(
        "interrupted where it stood still ({doing}): figures have fewer samples than were asked for"
    ));
    let written = output::write(&report, wanted, false, print);
    freed?;
    written.map(|()| INTERRUPTED)
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

#[cfg(test)]
mod tests {
    use super::super::output::StoreFlags;
    use super::*;
    use std::sync::mpsc;
    use strake_bench::result::{Figure, Machine, Origin, Rule, Unit};
    use tokio::sync::watch::channel;

    fn report() -> Report {
        let figure = Figure {
            side: "a".into(),
            origin: Origin::Measured,
            test: "t".into(),
            parameters: std::collections::BTreeMap::new(),
            unit: Unit::PerSecond,
            samples: vec![1.0],
            rule: Rule::Median,
        };
        Report {
            title: "t".into(),
            command: String::new(),
            started: 0,
            machine: Machine::default(),
            sides: Vec::new(),
            programs: Vec::new(),
            figures: vec![figure],
            charts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// What was measured lay in the thread that stood still, and went with it.
    #[tokio::test]
    async fn a_run_that_never_returns_is_left_with_what_it_measured() {
        let directory = tempfile::tempdir().unwrap();
        let store = StoreFlags { store: Some(directory.path().to_owned()) };
        let (wanted, (asks, asked)) = (OutputFlags { store, ..OutputFlags::default() }, channel(0));
        let (never, call) = mpsc::channel::<()>();
        let (frees, freed) = mpsc::channel();
        let measure = move |run: Supervised<'_>| {
            run.watch.begin(2, &report());
            run.watch.doing("a: t");
            asks.send_replace(2);
            let _ended_with_the_test = call.recv();
            Ok(Ended { report: report(), failure: None })
        };
        let free = move || {
            let _heard = frees.send(());
            Ok(())
        };
        let mut shown = Vec::new();
        let ending = Ending { asked, free };
        let print = |report: &Report| shown.push(report.clone());
        let code = supervise_sides(Vec::new(), ending, &wanted, measure, print).await.unwrap();
        assert_eq!(code, INTERRUPTED);
        freed.recv().unwrap();
        assert_eq!(shown[0].figures, report().figures);
        assert!(shown[0].notes[0].contains("(a: t)"), "{:?}", shown[0].notes);
        let kept = wanted.store.open().unwrap().last_run().unwrap();
        assert_eq!(kept, shown[0]);
        drop(never);
    }

    /// Of a testbed that stayed nothing was said, where the run had measured nothing yet.
    #[tokio::test]
    async fn what_stays_of_a_run_is_told_although_it_measured_nothing() {
        let (wanted, (asks, asked)) = (OutputFlags::default(), channel(0));
        let (never, call) = mpsc::channel::<()>();
        let measure = move |run: Supervised<'_>| {
            run.watch.doing("making a testbed");
            asks.send_replace(2);
            let _ended_with_the_test = call.recv();
            Ok(Ended { report: report(), failure: None })
        };
        let free = || Err(strake_bench::error::Error::failed("a mount is busy"));
        let ending = Ending { asked, free };
        let ended = supervise_sides(Vec::new(), ending, &wanted, measure, |_: &Report| ()).await;
        let failure = ended.unwrap_err();
        for part in ["stood still (making a testbed)", "a mount is busy"] {
            assert!(failure.cause.contains(part), "{failure}");
        }
        assert!(failure.next.unwrap().contains("strake testbed status"));
        drop(never);
    }
}
