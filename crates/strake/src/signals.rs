//! Being asked to stop.

use crate::failure::{Context, Outcome};
use std::process::exit;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code after a second signal, as shells give it for SIGINT.
const INTERRUPTED: i32 = INTERRUPTED_CODE as i32;
/// The same, of a verb that ends by itself.
pub const INTERRUPTED_CODE: u8 = 130;

/// Becomes true at the first SIGTERM or SIGINT. At the second one `at_once` runs and the program
/// ends: whoever waits is not made to wait.
pub fn stop_requested(at_once: impl Fn() + Send + 'static) -> Outcome<watch::Receiver<bool>> {
    watch_signals(move || {
        tracing::warn!("second signal: ending at once");
        at_once();
        exit(INTERRUPTED);
    })
}

/// As [`stop_requested`], for what ends soon after the first signal and leaves a mess if it cannot:
/// further ones change nothing.
pub fn tidy_end_requested() -> Outcome<watch::Receiver<bool>> {
    watch_signals(|| eprintln!("tidying up; it takes a moment"))
}

fn watch_signals(again: impl Fn() + Send + 'static) -> Outcome<watch::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).context(|| "SIGTERM".into())?;
    let mut interrupt = signal(SignalKind::interrupt()).context(|| "SIGINT".into())?;
    // Without this a log reader that goes away or a closing terminal would end the program half-way.
    let mut hangup = signal(SignalKind::hangup()).context(|| "SIGHUP".into())?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => continue,
            }
            if asked {
                again();
                continue;
            }
            tracing::info!("stopping");
            asked = true;
            let _nobody_waits = sender.send(true);
        }
    });
    Ok(receiver)
}
