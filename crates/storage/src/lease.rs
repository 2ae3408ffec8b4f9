//! How long a server may answer reads of groups in which it is not alone.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use strake_base::clock::Clock;

/// The part of a lease that its holder does not use, because clocks drift: one of so many.
const DRIFT_PART: u32 = 10;

/// A server's lease from the manager, renewed by each heartbeat that is answered.
pub struct Lease {
    clock: Arc<dyn Clock>,
    until: Mutex<Duration>,
}

impl Lease {
    /// A lease that is over.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, until: Mutex::default() }
    }

    /// A heartbeat was answered: the lease holds from when it was `sent`, on the monotonic clock,
    /// for `lease_ms` less a tenth.
    pub fn renew(&self, sent: Duration, lease_ms: u64) {
        let lease = Duration::from_millis(lease_ms);
        let until = sent + (lease - lease / DRIFT_PART);
        let mut known = self.until.lock();
        *known = (*known).max(until);
    }

    /// Ends it at once.
    pub fn end(&self) {
        *self.until.lock() = Duration::ZERO;
    }

    /// True while the lease holds.
    pub fn holds(&self) -> bool {
        self.clock.monotonic() < *self.until.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hand(Mutex<Duration>);

    impl Clock for Hand {
        fn monotonic(&self) -> Duration {
            *self.0.lock()
        }

        fn wall(&self) -> Duration {
            *self.0.lock()
        }
    }

    #[test]
    fn a_lease_holds_from_when_the_heartbeat_was_sent() {
        let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(10))));
        let lease = Lease::new(clock.clone());
        assert!(!lease.holds(), "before the first heartbeat");
        lease.renew(Duration::from_secs(9), 3_000);
        lease.renew(Duration::from_secs(8), 3_000);
        *clock.0.lock() = Duration::from_millis(11_699);
        assert!(lease.holds(), "an older answer takes nothing away");
        *clock.0.lock() = Duration::from_millis(11_700);
        assert!(!lease.holds());
    }
}
