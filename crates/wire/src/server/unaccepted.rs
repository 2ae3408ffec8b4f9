//! Callers that could not be accepted.

use std::io;
use std::time::Duration;
use strake_base::descriptor;
use tokio::time::Instant;

/// What fails after so long a time in which nothing did is news again, as another error is.
const APART: Duration = Duration::from_secs(60);

/// Those at a listener, since it began to fail.
#[derive(Default)]
pub(super) struct Unaccepted {
    times: u64,
    /// When it last did, and of what.
    last: Option<(Instant, Option<i32>)>,
}

impl Unaccepted {
    /// Says that there was one more, ever more seldom: where no file is left it fails ten times a second.
    pub(super) fn tell(&mut self, address: &str, error: &io::Error) {
        let (now, of) = (Instant::now(), error.raw_os_error());
        if self.last.is_some_and(|(last, was)| was != of || now.duration_since(last) > APART) {
            self.times = 0;
        }
        (self.times, self.last) = (self.times + 1, Some((now, of)));
        if !self.times.is_power_of_two() {
            return;
        }
        tracing::warn!(times = self.times, "accepting at {address}: {}", descriptor::told(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lines::Lines;

    /// It was said ten times a second for as long as it lasted, and never what to do.
    #[tokio::test(start_paused = true)]
    async fn that_no_file_is_left_for_callers_is_said_ever_more_seldom_with_what_to_do() {
        let lines = Lines::default();
        let _collected = tracing::subscriber::set_default(lines.clone());
        let (mut unaccepted, no_file) = (Unaccepted::default(), io::Error::from_raw_os_error(24));
        for _ in 0..600 {
            unaccepted.tell("a:1", &no_file);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mend = format!("may have {} files", descriptor::limit());
        assert_eq!((lines.count("LimitNOFILE="), lines.count(&mend)), (10, 10));
        tokio::time::sleep(2 * APART).await;
        unaccepted.tell("a:1", &io::ErrorKind::ConnectionAborted.into());
        assert_eq!((lines.count("accepting at a:1: "), lines.count("LimitNOFILE=")), (11, 10));
        unaccepted.tell("a:1", &no_file);
        assert_eq!(lines.count("LimitNOFILE="), 11, "it is another error");
    }
}
