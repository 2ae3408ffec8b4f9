//! How long a call may take that moves data.
//!
//! Much may be before it on its connection, and on a slow one all of that goes out before its turn comes. To give it up meanwhile, and
//! to make the same call anew, helps nobody: the new one has its turn later still. So the limit of such a call begins
//! when the socket has taken its frame, as long as the socket takes what is before it.

use crate::link::Outbox;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// How many times its limit a call may take in all.
const TIMES_MAX: u32 = 6;
/// How often in its limit it is looked where it is.
const LOOKS: u32 = 16;

/// Where a call is that waits for its turn.
#[derive(Default)]
pub(crate) struct Turn {
    outbox: OnceLock<Arc<Outbox>>,
    /// The number of its frame there; 0: it has none yet.
    frame: AtomicU64,
}

impl Turn {
    /// It waits for a slot of this connection.
    pub fn wait_at(&self, outbox: &Arc<Outbox>) {
        self.outbox.get_or_init(|| outbox.clone());
    }

    /// It has one, and its frame this number.
    pub fn set_frame(&self, number: u64) {
        self.frame.store(number, Ordering::Relaxed);
    }

    /// Bytes that its connection has taken until now, if it waits there.
    fn taken(&self) -> Option<u64> {
        self.outbox.get()?.taken_before(self.frame.load(Ordering::Relaxed))
    }
}

/// The time of a call.
pub(crate) struct CallTime {
    limit: Duration,
    /// Longest time between two looks.
    pause: Duration,
    look: Instant,
    end: Instant,
    /// The end is no later.
    end_max: Instant,
    /// What its connection had taken when it was looked at last, if it waited there.
    taken: Option<u64>,
}

impl CallTime {
    /// It begins now; `waits`: it may wait for its turn.
    pub fn new(limit: Duration, waits: bool) -> Self {
        let now = Instant::now();
        let (pause, times) = if waits { (limit / LOOKS, TIMES_MAX) } else { (limit, 1) };
        let (look, end, end_max) = (now + pause, now + limit, now + limit * times);
        Self { limit, pause, look, end, end_max, taken: None }
    }

    /// When it is to be looked at next.
    pub fn look(&self) -> Instant {
        self.look
    }

    /// True if it is over now.
    pub fn is_over(&mut self, turn: &Turn) -> bool {
        let (now, taken) = (Instant::now(), turn.taken());
        if let (Some(before), Some(taken)) = (self.taken, taken)
            && taken > before
        {
            self.end = (now + self.limit).min(self.end_max);
        }
        self.taken = taken;
        self.look = self.end.min(now + self.pause);
        now >= self.end
    }
}
