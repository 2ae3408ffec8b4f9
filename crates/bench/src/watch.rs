//! What a run and whoever watches it share: how far it is, what it has measured by now, and whether it
//! shall stop.

use crate::error::{Error, Result};
use crate::result::Report;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far a run is, in units of work (about a byte), what it has measured, and whether it shall stop.
#[derive(Default)]
pub struct Watch {
    stop: AtomicBool,
    /// One of several workers has failed: the others need not go on.
    failed: AtomicBool,
    /// The run is over.
    ended: AtomicBool,
    done: AtomicU64,
    /// What was done when the part that goes on began.
    before: AtomicU64,
    total: AtomicU64,
    doing: Mutex<String>,
    /// Signs of life beside the work that is counted.
    signs: AtomicU64,
    /// What each part of the run has measured by now: a call that never returns holds the run's own.
    kept: Mutex<Vec<Report>>,
}

impl Watch {
    /// Asks the run to stop soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True when the run has been asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// For a worker between two operations: an error when it is to give up.
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() || self.failed.load(Ordering::Relaxed) {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }

    /// Says whether a worker has failed, for the others.
    pub fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Ordering::Relaxed);
    }

    /// Says that the run is over.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// True when the run is over.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Says how much work there is in all parts of the run together, where it has several.
    pub fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// A part of the run begins, which may be all of it: so much work, and a report of its own.
    pub fn begin(&self, work: u64, report: &Report) {
        let before = self.done.load(Ordering::Relaxed);
        self.before.store(before, Ordering::Relaxed);
        self.total.fetch_max(before.saturating_add(work), Ordering::Relaxed);
        lock(&self.kept).push(report.clone());
    }

    /// Keeps what the part that goes on has measured by now, for when it does not come to its end.
    pub fn keep(&self, report: Report) {
        if let Some(last) = lock(&self.kept).last_mut() {
            *last = report;
        }
    }

    /// What each part has measured by now.
    pub fn kept(&self) -> Vec<Report> {
        lock(&self.kept).clone()
    }

    /// Says what is being done.
    pub fn doing(&self, what: impl Into<String>) {
        self.live();
        *lock(&self.doing) = what.into();
    }

    /// Says that the run does not stand still, where no work can be counted.
    pub fn live(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
    }

    /// What changes as long as the run does not stand still.
    pub fn pulse(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.signs.load(Ordering::Relaxed))
    }

    /// Some work has been done.
    pub fn advance(&self, work: u64) {
        self.done.fetch_add(work, Ordering::Relaxed);
    }

    /// So much has been done by now, of the part that goes on.
    pub fn reach(&self, done: u64) {
        let before = self.before.load(Ordering::Relaxed);
        self.done.store(before.saturating_add(done), Ordering::Relaxed);
    }

    /// Work done, work in all, and what is being done.
    pub fn progress(&self) -> (u64, u64, String) {
        let doing = lock(&self.doing).clone();
        let total = self.total.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed).min(total), total, doing)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::study;

    /// The bar of a study stood at its end from the second setting on: what was done was counted on,
    /// and what was to do began anew.
    #[test]
    fn the_parts_of_a_run_are_counted_on() {
        let watch = Watch::default();
        watch.expect(30);
        watch.begin(10, &study());
        watch.advance(3);
        watch.reach(10);
        assert_eq!((watch.progress().0, watch.progress().1), (10, 30));
        watch.begin(20, &study());
        watch.reach(5);
        assert_eq!((watch.progress().0, watch.progress().1), (15, 30));
    }

    #[test]
    fn each_part_keeps_what_it_measured_last() {
        let (watch, first) = (Watch::default(), study());
        let empty = Report { figures: Vec::new(), ..study() };
        watch.keep(first.clone());
        assert!(watch.kept().is_empty(), "nothing has begun");
        watch.begin(1, &empty);
        watch.keep(first.clone());
        watch.begin(1, &empty);
        assert_eq!(watch.kept(), [first, empty]);
    }
}
