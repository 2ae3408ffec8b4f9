//! How far servers are with their parts of jobs.

use std::sync::Arc;
use std::time::Duration;
use strake_wire::message::jobs::Progress;
use strake_wire::message::recopies::{RecopyFile, RecopyProgress, RecopyTally};
use strake_wire::message::scrubs::ScrubProgress;

/// How far a primary is with a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// What it said last,
    pub progress: Progress,
    /// and when.
    pub at: Duration,
    /// Bytes gone through per second lately.
    pub rate: f64,
}

impl Seen {
    pub fn rate_with(&self, said: &Progress, now: Duration) -> f64 {
        let done = said.compared.saturating_sub(self.progress.compared);
        smoothed(self.rate, done, now.saturating_sub(self.at))
    }
}

/// How far a server is with a target that it verifies.
#[derive(Clone, Debug)]
pub(crate) struct SeenScrub {
    /// What it said last,
    pub progress: Arc<ScrubProgress>,
    /// and when.
    pub at: Duration,
    /// Bytes verified per second lately.
    pub rate: f64,
}

/// How far a metadata server is with a job, in a share.
#[derive(Clone, Debug)]
pub(crate) struct SeenRecopy {
    /// What it said last,
    pub progress: Arc<RecopyProgress>,
    /// and when.
    pub at: Duration,
    /// Bytes copied per second lately.
    pub rate: f64,
}

/// Bytes copied, those of files under way included.
pub(crate) fn copied(tally: &RecopyTally, under_way: &[RecopyFile]) -> u64 {
    tally.bytes + under_way.iter().map(|file| file.copied).sum::<u64>()
}

/// Half of the rate of so many bytes in that time, and half of what it was before.
pub(crate) fn smoothed(before: f64, bytes: u64, passed: Duration) -> f64 {
    let passed = passed.as_secs_f64();
    if passed <= 0.0 {
        return before;
    }
    let lately = bytes as f64 / passed;
    if before == 0.0 { lately } else { (before + lately) / 2.0 }
}
