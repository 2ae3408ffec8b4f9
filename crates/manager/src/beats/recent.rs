//! The greatest of what was seen lately.

use std::time::Duration;

/// The greatest number of the last one to two windows.
pub(super) struct Recent {
    window: Duration,
    greatest: u64,
    before: u64,
    /// When the next window begins.
    end: Duration,
}

impl Recent {
    /// Of windows of this length, the first of which ends then; `before` was seen before it.
    pub fn new(window: Duration, end: Duration, before: u64) -> Self {
        Self { window, greatest: 0, before, end }
    }

    /// Counts one.
    pub fn note(&mut self, seen: u64) {
        self.greatest = self.greatest.max(seen);
    }

    /// Forgets what was seen before the last window, if that is over.
    pub fn forget(&mut self, now: Duration) {
        if now >= self.end {
            self.before = std::mem::take(&mut self.greatest);
            self.end = now + self.window;
        }
    }

    /// The greatest of all that is not forgotten.
    pub fn greatest(&self) -> u64 {
        self.greatest.max(self.before)
    }
}
