//! What a run and whoever watches it share: how far it is, and whether it shall stop.

use crate::error::{Error, Result};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a run is, in units of work (about a byte), and whether it shall stop.
#[derive(Default)]
pub struct Watch {
    stop: AtomicBool,
    /// One of several workers has failed: the others need not go on.
    failed: AtomicBool,
    /// The run is over.
    ended: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
    doing: Mutex<String>,
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

    /// Says how much work there is.
    pub fn begin(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Says what is being done.
    pub fn doing(&self, what: String) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// Some work has been done.
    pub fn advance(&self, work: u64) {
        self.done.fetch_add(work, Ordering::Relaxed);
    }

    /// So much has been done by now, in all.
    pub fn reach(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Work done, work in all, and what is being done.
    pub fn progress(&self) -> (u64, u64, String) {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let total = self.total.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed).min(total), total, doing)
    }
}
