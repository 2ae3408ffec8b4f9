//! Being asked to stop.

use crate::failure::{Context, Outcome};
use crate::output;
use crate::stderr;
use std::process::exit;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code after a second signal, as shells give it for SIGINT.
const INTERRUPTED: i32 = INTERRUPTED_CODE as i32;
/// The same, of a verb that ends by itself.
pub const INTERRUPTED_CODE: u8 = 130;

/// What comes so soon after a signal is no second one: `timeout` signals its child, and then the whole group that this is in.
const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// Becomes true at the first SIGTERM or SIGINT. At the second one `at_once` runs and the program
/// ends: whoever waits is not made to wait.
pub fn stop_requested(at_once: impl Fn() + Send + 'static) -> Outcome<watch::Receiver<bool>> {
    first_and_further(move || {
        tracing::warn!("second signal: ending at once");
        at_once();
        stderr::flush();
        exit(INTERRUPTED);
    })
}

/// Waits until it was asked to stop. (What `wait_for` gives has the channel locked for as long as it is there: whoever tells of a
/// second signal would wait for that, with a thread of the runtime.)
pub async fn asked(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// As [`stop_requested`], for what ends soon after the first signal and leaves a mess if it cannot:
/// further ones change nothing.
pub fn tidy_end_requested() -> Outcome<watch::Receiver<bool>> {
    first_and_further(|| output::aside("tidying up; it takes a moment"))
}

/// How often SIGTERM or SIGINT has come, for whoever has something to do at the second one, too.
pub fn stops_counted() -> Outcome<watch::Receiver<u32>> {
    let (sender, receiver) = watch::channel(0);
    watch_signals(move || {
        tracing::info!("stopping");
        sender.send_modify(|count| *count += 1);
    })?;
    Ok(receiver)
}

fn first_and_further(further: impl Fn() + Send + 'static) -> Outcome<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    watch_signals(move || {
        if sender.send_replace(true) {
            further();
        } else {
            tracing::info!("stopping");
        }
    })?;
    Ok(receiver)
}

fn watch_signals(heard: impl Fn() + Send + 'static) -> Outcome {
    let mut terminate = signal(SignalKind::terminate()).context(|| "SIGTERM".into())?;
    let mut interrupt = signal(SignalKind::interrupt()).context(|| "SIGINT".into())?;
    // Without this a log reader that goes away or a closing terminal would end the program half-way.
    let mut hangup = signal(SignalKind::hangup()).context(|| "SIGHUP".into())?;
    tokio::spawn(async move {
        let mut last = None;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => continue,
            }
            if is_another(&mut last, Instant::now()) {
                heard();
            }
        }
    });
    Ok(())
}

/// True unless it belongs to the `last` one of which this was true.
fn is_another(last: &mut Option<Instant>, now: Instant) -> bool {
    let is_same = last.is_some_and(|last| now.duration_since(last) < SAME_SIGNAL);
    if !is_same {
        *last = Some(now);
    }
    !is_same
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under `timeout` nothing was flushed nor unmounted in order: it sends its signal twice.
    #[test]
    fn signals_of_one_moment_are_one_and_a_later_one_is_the_second() {
        let (mut last, began) = (None, Instant::now());
        let is_counted = |ms| is_another(&mut last, began + Duration::from_millis(ms));
        // Who sends one every 0.15 s is heard, too.
        let heard = [0, 0, 150, 300, 450, 600].map(is_counted);
        assert_eq!(heard, [true, false, false, true, false, true]);
    }
}
