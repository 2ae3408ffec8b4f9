//! Runs seeds of the simulated cluster, each in a process of its own: `cargo xtask sim`.
//!
//! A process of its own, because a few things in a process are counted from its start (Tokio's
//! randomness among them), and so that a run which hangs or grows takes nothing with it.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_base::clock::wall_time;
use strake_sim::broken::{self, Rule};
use strake_sim::cases::{self, Met};
use strake_sim::cluster::{self, Options};
use strake_sim::panics;

/// Real time after which a run is killed.
const RUN_SECONDS_MAX: u64 = 120;
/// What is said of one that was.
const TOO_LONG: &str = "took too long";
/// Exit code of a run that found something.
const FOUND: u8 = 1;

/// Runs the whole cluster, simulated, from seeds.
#[derive(Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    seeds: u64,
    /// The first; a fresh one unless given.
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Stop after so long.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Processes at once [default: the cores there are].
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Go on after a seed that fails.
    #[arg(long)]
    keep_going: bool,
    /// Break a rule on purpose, or `all` one after the other: the simulation has to notice.
    #[arg(long, value_name = "NAME")]
    broken: Option<String>,
    /// Fail unless the seeds have met every case that they are to meet: some hundred do.
    #[arg(long)]
    require: bool,
    /// One seed, here: what `--from` begins with.
    #[arg(long, hide = true)]
    single: bool,
    /// With one seed: show what has happened.
    #[arg(long)]
    trace: bool,
    /// With one seed: show what servers and clients log, as in RUST_LOG.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let broken = match arguments.broken.as_deref() {
        None => None,
        Some("all") => return try_all(&arguments),
        Some(name) => match broken::find(name) {
            Some(rule) => Some(rule),
            None => {
                let names: Vec<_> = broken::RULES.iter().map(|rule| rule.name).collect();
                eprintln!("sim: no rule {name}; there are: {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
    };
    let from = arguments.from.unwrap_or_else(fresh_seed);
    if arguments.single || arguments.trace || arguments.log.is_some() || arguments.seeds == 1 {
        return run_one(from, &arguments, broken);
    }
    if arguments.seeds == u64::MAX && arguments.seconds.is_none() {
        eprintln!("sim: say how much: --seeds N or --seconds S");
        return ExitCode::from(2);
    }
    if let Some(rule) = broken {
        let noticed = try_rule(&arguments, rule, from);
        return if noticed { ExitCode::SUCCESS } else { ExitCode::from(FOUND) };
    }
    let batch = Runner::new(&arguments, from, arguments.seeds, None).run();
    let is_good = batch.judge(arguments.require) && batch.found.is_empty();
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

/// Nobody has run it before, and everybody can read it out.
fn fresh_seed() -> u64 {
    wall_time().as_millis() as u64 % 1_000_000_000_000
}

fn run_one(seed: u64, arguments: &Arguments, broken: Option<&'static Rule>) -> ExitCode {
    if let Some(log) = &arguments.log {
        let show = tracing_subscriber::fmt().with_env_filter(log).with_ansi(false);
        show.without_time().with_writer(std::io::stderr).init();
    }
    panics::watch();
    let options = Options { trace: arguments.trace, broken: broken.map(|rule| rule.name) };
    let report = cluster::run(seed, options);
    report.lines.iter().for_each(|line| println!("{line}"));
    if arguments.trace {
        println!("{}", report.plan);
    }
    report.cases.iter().for_each(|(case, times)| println!("{}", cases::line(case, *times)));
    println!("seed {seed}: digest {:016x}, {:.1} s", report.digest, report.took.as_secs_f64());
    match report.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("seed {seed} FAILED: {failure}");
            ExitCode::from(FOUND)
        }
    }
}

/// Every rule is broken, one after the other, until a seed shows it.
fn try_all(arguments: &Arguments) -> ExitCode {
    let from = arguments.from.unwrap_or(1);
    let missed = broken::RULES.iter().filter(|rule| !try_rule(arguments, rule, from)).count();
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

/// A rule is broken until a seed shows it; false if none does.
fn try_rule(arguments: &Arguments, rule: &'static Rule, from: u64) -> bool {
    let seeds = arguments.seeds.min(1_000);
    let (mut next, end) = (from, from + seeds);
    while next < end {
        let found = Runner::new(arguments, next, end - next, Some(rule)).run().found;
        let Some(last) = found.iter().map(|(seed, _)| *seed).max() else { break };
        let whole = Runner::new(arguments, from, seeds, None);
        if let Some((seed, what)) = shown(found, |seed| whole.run_apart(seed).is_some()) {
            println!("{:32} found after {} seeds: {what}", rule.name, seed - from + 1);
            return true;
        }
        // All before have been run.
        next = last + 1;
    }
    println!("{:32} NOT FOUND in {seeds} seeds", rule.name);
    false
}

/// The first of the seeds that failed with a rule broken which does not fail with all rules whole, too: that one shows
/// nothing of the rule.
fn shown(found: Vec<(u64, String)>, fails_whole: impl Fn(u64) -> bool) -> Option<(u64, String)> {
    let mut own = found.into_iter().filter(|(seed, what)| {
        let flakes = fails_whole(*seed);
        if flakes {
            println!("seed {seed} fails with no rule broken, too: {what}");
        }
        !flakes
    });
    own.next()
}

/// What a batch of seeds has shown.
struct Batch {
    /// Seeds that failed, ascending, with what they have shown.
    found: Vec<(u64, String)>,
    /// How often they have met each case.
    met: Met,
}

impl Batch {
    /// Tells which cases were met; false if some were not that have to be, or too much was not judged.
    fn judge(&self, require: bool) -> bool {
        let met: Vec<_> = self.met.iter().map(|(case, times)| format!("{case} {times}")).collect();
        println!("sim: cases: {}", met.join(", "));
        let missing = cases::missing(&self.met);
        if require && !missing.is_empty() {
            println!("sim: FAILED: cases that no seed has met: {}", missing.join(", "));
        }
        let are_judged = cases::are_judged(&self.met);
        if !are_judged {
            println!("sim: FAILED: too many histories are too long to be judged");
        }
        are_judged && (!require || missing.is_empty())
    }
}

/// Seeds on all cores.
struct Runner<'a> {
    arguments: &'a Arguments,
    from: u64,
    seeds: u64,
    broken: Option<&'static Rule>,
    next: AtomicU64,
    stop: AtomicBool,
    found: Mutex<Vec<(u64, String)>>,
    met: Mutex<Met>,
    bar: ProgressBar,
    end: Option<Instant>,
}

impl<'a> Runner<'a> {
    fn new(arguments: &'a Arguments, from: u64, seeds: u64, broken: Option<&'static Rule>) -> Self {
        let bar = match seeds {
            u64::MAX => ProgressBar::new_spinner(),
            seeds => ProgressBar::new(seeds),
        };
        let shape = "{elapsed} {wide_bar} {pos} seeds ({per_sec}) {msg}";
        bar.set_style(ProgressStyle::with_template(shape).unwrap_or(ProgressStyle::default_bar()));
        let limit = arguments.seconds.map(Duration::from_secs);
        Self {
            arguments,
            from,
            seeds,
            broken,
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            found: Mutex::default(),
            met: Mutex::default(),
            bar,
            end: limit.map(|limit| Instant::now() + limit),
        }
    }

    fn run(self) -> Batch {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.arguments.jobs.unwrap_or(cores).max(1);
        std::thread::scope(|scope| {
            (0..jobs).for_each(|_| drop(scope.spawn(|| self.work())));
        });
        let done = self.bar.position();
        let met = self.met.into_inner().unwrap_or_default();
        let mut found = self.found.into_inner().unwrap_or_default();
        found.sort();
        self.bar.finish_and_clear();
        if self.broken.is_none() {
            let late = found.iter().filter(|(_, what)| what.starts_with(TOO_LONG)).count();
            let (took, failed) = (self.bar.elapsed().as_secs(), found.len() - late);
            println!(
                "sim: {done} seeds from {}, {failed} failed, {late} {TOO_LONG}, {took} s",
                self.from
            );
        }
        Batch { found, met }
    }

    fn work(&self) {
        let late = || self.end.is_some_and(|end| Instant::now() >= end);
        while !self.stop.load(Ordering::Relaxed) && !late() {
            let nth = self.next.fetch_add(1, Ordering::Relaxed);
            if nth >= self.seeds {
                return;
            }
            let seed = self.from + nth;
            let failure = self.run_apart(seed);
            self.bar.inc(1);
            let Some(failure) = failure else { continue };
            let repeat = self.repeat(seed);
            if self.broken.is_none() {
                let says = if failure.starts_with(TOO_LONG) { "" } else { " FAILED:" };
                self.bar.suspend(|| println!("seed {seed}{says} {failure}\n  {repeat}"));
            }
            if let Ok(mut found) = self.found.lock() {
                found.push((seed, failure));
                self.bar.set_message(format!("{} failed", found.len()));
            }
            if !self.arguments.keep_going || self.broken.is_some() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The command that repeats a seed, and shows what happens.
    fn repeat(&self, seed: u64) -> String {
        let broken = self.broken.map(|rule| format!(" --broken {}", rule.name));
        let broken = broken.unwrap_or_default();
        format!("repeat it: cargo xtask sim --from {seed} --seeds 1 --trace{broken}")
    }

    /// Runs a seed in a process of its own; what it has shown, if it failed.
    fn run_apart(&self, seed: u64) -> Option<String> {
        let mut command = match std::env::current_exe() {
            Ok(program) => Command::new(program),
            Err(error) => return Some(format!("cannot find this program: {error}")),
        };
        command.args(["--single", "--from", &seed.to_string()]);
        if let Some(rule) = self.broken {
            command.args(["--broken", rule.name]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Some(format!("cannot run: {error}")),
        };
        let (done, pid) = (AtomicBool::new(false), child.id());
        let (output, is_late) = std::thread::scope(|scope| {
            let guard = scope.spawn(|| kill_late(&done, pid));
            let output = child.wait_with_output();
            done.store(true, Ordering::Relaxed);
            guard.thread().unpark();
            (output, guard.join().unwrap_or(false))
        });
        let output = match output {
            Ok(output) => output,
            Err(error) => return Some(format!("cannot be waited for: {error}")),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        if let Ok(mut met) = self.met.lock() {
            cases::add(&mut met, &text);
        }
        if output.status.success() {
            return None;
        }
        let told = text.lines().find_map(|line| line.split_once(" FAILED: "));
        if told.is_none() && is_late {
            return Some(format!("{TOO_LONG}: it was killed after {RUN_SECONDS_MAX} s"));
        }
        Some(told.map_or_else(|| format!("ended with {}", output.status), |t| t.1.to_owned()))
    }
}

/// Kills a run that takes too long; true if this one did.
fn kill_late(done: &AtomicBool, pid: u32) -> bool {
    let end = Instant::now() + Duration::from_secs(RUN_SECONDS_MAX);
    while !done.load(Ordering::Relaxed) {
        let Some(left) = end.checked_duration_since(Instant::now()) else {
            let _gone = Command::new("kill").args(["-9", &pid.to_string()]).status();
            return true;
        };
        std::thread::park_timeout(left);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any failure with a rule broken counted as noticed, also one that the seed has by itself.
    #[test]
    fn a_seed_that_fails_by_itself_shows_nothing_of_a_rule() {
        let found = || vec![(3, "a flake".to_owned()), (5, "noticed".to_owned())];
        assert_eq!(shown(found(), |seed| seed == 3), Some((5, "noticed".to_owned())));
        assert_eq!(shown(found(), |_| true), None);
    }
}
