//! How far a copy is.

use crate::failures::{Failures, FirstOf};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_types::{Error, Result};

/// Time between two reports.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Bytes copied or found to be there already. What a client has only taken is yet to be sent.
    pub bytes_done: u64,
    /// Bytes found so far.
    pub bytes_total: u64,
    /// Files and other entries done.
    pub entries_done: u64,
    /// Entries found so far.
    pub entries_total: u64,
    /// Everything has been found: the totals are final.
    pub complete: bool,
    /// Bytes a second over the last few seconds.
    pub bytes_per_second: f64,
}

/// What a copy has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files, directories and other entries.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of them that were there already.
    pub bytes_kept: u64,
    /// Entries that were gone from a tree when their turn came.
    pub gone: u64,
    /// What copies of files are without.
    pub not_kept: NotKept,
}

/// Why a copy is not one of all that was named.
#[derive(Clone, Debug)]
pub struct Incomplete {
    /// What has ended it; or, where nothing has, the first of what could not be copied.
    pub error: Error,
    /// What else could not be copied.
    pub failures: Failures,
    /// Entries that were gone from a tree when their turn came.
    pub gone: u64,
    /// What copies that were made are without.
    pub not_kept: NotKept,
}

impl From<Error> for Incomplete {
    fn from(error: Error) -> Self {
        Self { error, failures: Failures::default(), gone: 0, not_kept: NotKept::default() }
    }
}

/// What copies of files are without, because it could not be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotKept {
    /// A line for each such file.
    pub lines: FirstOf<String>,
    /// Something that is always expected to be kept is among it: an ACL, or an owner where root copies.
    pub failed: bool,
}

impl NotKept {
    pub(crate) fn add(&mut self, line: String, failed: bool) {
        self.failed |= failed;
        self.lines.push(line);
    }
}

/// The figures, counted by all workers.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) bytes_done: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    pub(crate) bytes_kept: AtomicU64,
    pub(crate) entries_done: AtomicU64,
    pub(crate) entries_total: AtomicU64,
    pub(crate) entries_gone: AtomicU64,
    pub(crate) complete: AtomicBool,
}

impl Counters {
    /// Bytes that need not be copied.
    pub(crate) fn keep(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_kept.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Progress {
        Progress {
            bytes_done: self.bytes_done.load(Ordering::Relaxed),
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
            entries_done: self.entries_done.load(Ordering::Relaxed),
            entries_total: self.entries_total.load(Ordering::Relaxed),
            complete: self.complete.load(Ordering::Relaxed),
            bytes_per_second: 0.0,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            entries: self.entries_done.load(Ordering::Relaxed),
            bytes: self.bytes_done.load(Ordering::Relaxed),
            bytes_kept: self.bytes_kept.load(Ordering::Relaxed),
            gone: self.entries_gone.load(Ordering::Relaxed),
            not_kept: NotKept::default(),
        }
    }
}

/// Calls `progress` regularly until `work` is done. Of what is counted so many bytes are `unsent`.
pub(crate) async fn report(
    counters: &Counters,
    unsent: impl Fn() -> u64,
    work: impl Future<Output = Result<()>>,
    progress: &(impl Fn(&Progress) + Send + Sync),
) -> Result<()> {
    let mut work = std::pin::pin!(work);
    let (mut rate, mut done) = (Rate::default(), 0);
    loop {
        match tokio::time::timeout(REPORT_EVERY, &mut work).await {
            Ok(result) => return result,
            Err(_) => {
                let mut now = counters.now();
                // What is being written is unsent before it is counted, and makes nothing undone.
                done = now.bytes_done.saturating_sub(unsent()).max(done);
                now.bytes_done = done;
                let moved =
                    now.bytes_done.saturating_sub(counters.bytes_kept.load(Ordering::Relaxed));
                now.bytes_per_second = rate.update(Instant::now(), moved);
                progress(&now);
            }
        }
    }
}

/// Bytes a second, smoothed over some seconds.
#[derive(Default)]
struct Rate {
    last: Option<(Instant, u64)>,
    smooth: f64,
}

impl Rate {
    fn update(&mut self, now: Instant, bytes: u64) -> f64 {
        const NEW_SHARE: f64 = 0.15;
        if let Some((then, before)) = self.last {
            let seconds = (now - then).as_secs_f64().max(1e-3);
            let fresh = bytes.saturating_sub(before) as f64 / seconds;
            let share = if self.smooth == 0.0 { 1.0 } else { NEW_SHARE };
            self.smooth += (fresh - self.smooth) * share;
        }
        self.last = Some((now, bytes));
        self.smooth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tokio::sync::Notify;

    /// What the client had taken counted as done: all was, while most of it was being sent.
    #[tokio::test]
    async fn what_is_yet_to_be_sent_is_not_done() {
        let (counters, told, seen) = (Counters::default(), Mutex::new(Vec::new()), Notify::new());
        counters.bytes_done.store(100, Ordering::Relaxed);
        let work = async {
            while told.lock().len() < 3 {
                seen.notified().await;
            }
            Ok(())
        };
        let unsent = || if told.lock().len() == 1 { 90 } else { 60 };
        let progress = |now: &Progress| {
            told.lock().push(now.bytes_done);
            seen.notify_one();
        };
        report(&counters, unsent, work, &progress).await.unwrap();
        assert_eq!(*told.lock(), [40, 40, 40], "nothing is undone");
    }

    #[test]
    fn of_many_files_that_lack_something_the_first_are_named() {
        let mut not_kept = NotKept::default();
        let most = FirstOf::<String>::KEPT_MAX;
        (0..most + 2).for_each(|n| not_kept.add(format!("f{n}"), n == 3));
        assert_eq!((not_kept.lines.first.len(), not_kept.lines.more), (most, 2));
        assert!(not_kept.failed && not_kept.lines.first[0] == "f0");
    }

    #[test]
    fn the_rate_follows_slowly() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        assert_eq!(rate.update(start, 0), 0.0);
        let second = |n| start + Duration::from_secs(n);
        assert_eq!(rate.update(second(1), 1000).round(), 1000.0);
        let slower = rate.update(second(2), 1000);
        assert!(slower < 1000.0 && slower > 800.0);
    }
}
