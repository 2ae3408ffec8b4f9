//! How long a call may take that sends data.
//!
//! Much may be before it on its connection, and on a slow one all of that goes out before its turn comes. To give it up meanwhile, and
//! to make the same call anew, helps nobody: the new one has its turn later still. So the limit of such a call begins
//! when the socket has taken its frame, as long as the socket takes what is before it. A read may wait in the same way; for how long its
//! answer waits for a turn on the server's side its limit makes no allowance.

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
    pub fn taken(&self) -> Option<u64> {
        self.outbox.get()?.taken_before(self.frame.load(Ordering::Relaxed))
    }
}

/// The time of a call.
pub(crate) struct CallTime {
    began: Instant,
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
        Self { began: now, limit, pause, look, end, end_max, taken: None }
    }

    /// When it is to be looked at next.
    pub fn look(&self) -> Instant {
        self.look
    }

    /// How long it is, as far as is known now.
    pub fn whole(&self) -> Duration {
        self.end - self.began
    }

    /// True if it is over now; `taken` as [`Turn::taken`] says.
    pub fn is_over(&mut self, taken: Option<u64>) -> bool {
        let now = Instant::now();
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// Seconds until a call is given up whose connection has taken so much after so many milliseconds.
    async fn lasts(waits: bool, taken: impl Fn(u64) -> Option<u64>) -> u64 {
        let began = Instant::now();
        let mut time = CallTime::new(LIMIT, waits);
        loop {
            tokio::time::sleep_until(time.look()).await;
            if time.is_over(taken(began.elapsed().as_millis() as u64)) {
                assert!(began.elapsed() >= time.whole());
                return began.elapsed().as_secs();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_call_begins_anew_while_what_is_before_it_is_taken() {
        assert_eq!(lasts(false, Some).await, 20, "it does not wait for a turn");
        assert_eq!(lasts(true, |_| None).await, 20, "it has had its turn");
        assert_eq!(lasts(true, |_| Some(7)).await, 20, "nothing is taken");
        assert_eq!(lasts(true, Some).await, 120, "not for ever");
        let had_its_turn = lasts(true, |ms| (ms < 50_000).then_some(ms)).await;
        assert!((67..=70).contains(&had_its_turn), "{had_its_turn}");
        let stands_still = lasts(true, |ms| Some(ms.min(50_000))).await;
        assert!((69..=72).contains(&stands_still), "{stands_still}");
    }
}
