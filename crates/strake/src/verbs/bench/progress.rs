//! How far a run is: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_bench::watch::Watch;

/// How often the bar is drawn.
const BAR_EVERY: Duration = Duration::from_millis(200);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// What the bar looks like.
const RUNNING: &str = "{wide_bar} {percent} % {msg}";
/// The same of a run that is to stop: how far it is of all that it would have done tells nobody anything.
const STOPPING: &str = "{msg}";

/// From when on it is said that nothing moves.
const STILL_TOLD: Duration = Duration::from_secs(30);

/// For how long a run has stood still.
pub struct Stillness {
    pulse: (u64, u64),
    since: Instant,
}

impl Stillness {
    /// From now on.
    pub fn of(watch: &Watch) -> Self {
        Self { pulse: watch.pulse(), since: Instant::now() }
    }

    /// Looks again.
    pub fn look(&mut self, watch: &Watch) -> Duration {
        let pulse = watch.pulse();
        if pulse != self.pulse {
            *self = Self { pulse, since: Instant::now() };
        }
        self.since.elapsed()
    }
}

/// Shows on standard error how far a run is, until it ends.
pub async fn draw(watch: Arc<Watch>) {
    let began = Instant::now();
    let bar = std::io::stderr().is_terminal().then(bar);
    let mut told = began;
    let mut stillness = Stillness::of(&watch);
    while !watch.has_ended() {
        tokio::time::sleep(BAR_EVERY).await;
        let (done, total, _) = watch.progress();
        let said = said(&watch, began.elapsed()) + &still(stillness.look(&watch));
        match &bar {
            Some(bar) => {
                if watch.is_stopped() {
                    bar.set_style(style(STOPPING));
                }
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(said);
            }
            None if told.elapsed() >= LINE_EVERY => {
                told = Instant::now();
                match watch.is_stopped() {
                    true => eprintln!("{said}"),
                    false => eprintln!("{} %, {said}", done.saturating_mul(100) / total.max(1)),
                }
            }
            None => {}
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn bar() -> ProgressBar {
    ProgressBar::new(0).with_style(style(RUNNING))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What is being done, and how long it will take. Who has stopped a run does not wait for the rest of it.
fn said(watch: &Watch, elapsed: Duration) -> String {
    let (done, total, doing) = watch.progress();
    match watch.is_stopped() {
        true => format!("stopping: {doing}"),
        false => format!("{doing}, {}", left(elapsed, done, total)),
    }
}

/// What is left, if the rest goes on as what is done.
fn left(elapsed: Duration, done: u64, total: u64) -> String {
    if done == 0 || total == 0 {
        return format!("{} gone, time left unknown", span(elapsed.as_secs()));
    }
    let left = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
    format!("{} left", span(left as u64))
}

/// What is said of a run that stands still.
fn still(since: Duration) -> String {
    match since < STILL_TOLD {
        true => String::new(),
        false => format!(", nothing has moved for {}", span(since.as_secs())),
    }
}

/// Seconds as people say them.
pub fn span(seconds: u64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    match minutes {
        0 => format!("{seconds} s"),
        1..60 => format!("{minutes} min {seconds} s"),
        60..2880 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{} days", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_in_proportion() {
        let minute = Duration::from_secs(60);
        assert_eq!(left(minute, 1, 2), "1 min 0 s left");
        assert_eq!(left(minute, 3, 4), "20 s left");
        assert_eq!(left(minute, 1, 121), "2 h 0 min left");
        assert_eq!(left(minute, 1, 10_001), "6 days left");
        assert_eq!(left(minute, 0, 2), "1 min 0 s gone, time left unknown");
    }

    /// Of a run that was removing its files it was said, after Ctrl-C, that it had 20 minutes left.
    #[test]
    fn a_run_that_is_to_stop_has_no_time_left() {
        let watch = Watch::default();
        watch.expect(10);
        watch.advance(1);
        watch.doing("a: removing files");
        let minute = Duration::from_secs(60);
        assert_eq!(said(&watch, minute), "a: removing files, 9 min 0 s left");
        watch.stop();
        assert_eq!(said(&watch, minute), "stopping: a: removing files");
    }

    #[test]
    fn a_run_that_stands_still_is_told_of() {
        assert_eq!(still(Duration::from_secs(29)), "");
        assert_eq!(still(Duration::from_secs(61)), ", nothing has moved for 1 min 1 s");
    }
}
