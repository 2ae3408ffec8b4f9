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
        let (done, total, doing) = watch.progress();
        let left = left(began.elapsed(), done, total) + &still(stillness.look(&watch));
        match &bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(format!("{doing}, {left}"));
            }
            None if told.elapsed() >= LINE_EVERY => {
                told = Instant::now();
                eprintln!("{} %, {left}: {doing}", done.saturating_mul(100) / total.max(1));
            }
            None => {}
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent} % {msg}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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

    #[test]
    fn a_run_that_stands_still_is_told_of() {
        assert_eq!(still(Duration::from_secs(29)), "");
        assert_eq!(still(Duration::from_secs(61)), ", nothing has moved for 1 min 1 s");
    }
}
