//! Since when this server hears its clients. One that could answer nobody for a while, because its tenure was over or its
//! process stood still, has heard of nobody either: they may have asked all the time, and are silent only from then on.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Who looks only after this part of a session's lease has stood still, and who has no tenure for so long is deaf.
const STILL_PART: u64 = 4;

/// Since when this server hears its clients.
pub(crate) struct Hearing {
    /// On the monotonic clock.
    since_ms: AtomicU64,
    /// When its tenure was renewed last.
    renewed_ms: AtomicU64,
    looked: Mutex<Instant>,
}

impl Hearing {
    /// It hears, from its start.
    pub fn new() -> Self {
        let (since_ms, renewed_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        Hearing { since_ms, renewed_ms, looked: Mutex::new(Instant::now()) }
    }

    /// Its tenure is renewed, which may have been over since soon after the last time: then everybody was refused, however
    /// often he asked.
    pub fn renewed(&self, was_over: bool, now_ms: u64, lease_ms: u64) {
        let last = self.renewed_ms.swap(now_ms, Ordering::Relaxed);
        // For a moment is no reason: somebody who is gone would never be found out where that comes again and again.
        if was_over && now_ms.saturating_sub(last) > lease_ms / STILL_PART {
            self.begin(now_ms);
        }
    }

    /// It heard nobody until now.
    fn begin(&self, now_ms: u64) {
        self.since_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Looks whether it has stood still since the last look. True if it has heard for a lease since then: whoever was silent
    /// for so long has not asked.
    pub fn for_a_lease(&self, now_ms: u64, lease_ms: u64) -> bool {
        let looked = std::mem::replace(&mut *self.looked.lock(), Instant::now());
        if looked.elapsed() > Duration::from_millis(lease_ms / STILL_PART) {
            self.begin(now_ms);
        }
        now_ms >= self.since_ms.load(Ordering::Relaxed) + lease_ms
    }
}
