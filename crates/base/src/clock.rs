//! Time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01 UTC; may jump.
    fn wall(&self) -> Duration;
}

/// The machine's clocks.
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
