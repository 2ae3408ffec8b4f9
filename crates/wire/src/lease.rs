//! How long a server may do what the manager may give to another: answer reads of groups in which it is not
//! alone, or serve volumes.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strake_base::clock::Clock;

/// The part of a lease that its holder does not use, because clocks drift: one of so many.
const DRIFT_PART: u32 = 10;

/// Shortest lease that is asked for: with a heartbeat every 0.2 s, two may be late; and another manager leads before it has
/// long been over.
const SHORTEST: Duration = Duration::from_millis(700);
/// So many delays back a lease is as long as the longest of them needs: those of three seconds, two for each heartbeat.
const RECENT: usize = 32;

/// How long a lease is to be: as short as answers are quick, because others wait for its end when its holder is lost;
/// longer where they are slow, because it would be over before it came.
#[derive(Debug, Default)]
pub struct Term {
    recent: VecDeque<Duration>,
}

impl Term {
    /// An answer took so long, or did not come in that time; or it was asked for so late.
    pub fn note(&mut self, took: Duration) {
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(took);
    }

    /// The length to ask for, in ms: at most `most`.
    pub fn ms(&self, most: u64) -> u64 {
        let slowest = self.recent.iter().max().copied().unwrap_or_default();
        // The tenth that its holder does not use is made up for.
        let length = SHORTEST + slowest + slowest / 4;
        u64::try_from(length.as_millis()).unwrap_or(most).min(most)
    }
}

/// How long a lease is, in ms, for which so many were asked: `most` at most, and also where it was not said (0), as by earlier
/// releases.
pub fn given_ms(asked_ms: u64, most: u64) -> u64 {
    if asked_ms == 0 { most } else { asked_ms.min(most) }
}

/// How long its holder relies on a lease, or on what others have promised for so long.
pub fn relied_on(length: Duration) -> Duration {
    length - length / DRIFT_PART
}

/// Number of the lead that the manager in this process has, while it may answer in it; else 0.
pub type OwnLead = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A server's lease from the manager, renewed by each heartbeat that is answered.
pub struct Lease {
    clock: Arc<dyn Clock>,
    own_lead: OnceLock<OwnLead>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    until: Duration,
    /// As long as the manager in this process has the lead of that number, too.
    led: (u64, Duration),
    given_up: bool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

impl Lease {
    /// A lease that is over.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, own_lead: OnceLock::new(), state: Mutex::default() }
    }

    /// There is a manager in this process: with its lead, leases end that it gives to its own server.
    pub fn ends_with(&self, own_lead: OwnLead) {
        self.own_lead.get_or_init(|| own_lead);
    }

    /// The time by the lease's clock, for [`Lease::renew`].
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// A heartbeat was answered: the lease holds from when it was `sent`, on the monotonic clock,
    /// for `lease_ms` less a tenth.
    pub fn renew(&self, sent: Duration, lease_ms: u64) {
        let until = sent + relied_on(Duration::from_millis(lease_ms));
        let mut state = self.state.lock();
        state.until = state.until.max(until);
    }

    /// The same, by the manager of this server, which has the lead of that number: no longer than it has. 0: by
    /// another, or one that nobody can follow.
    pub fn renew_led(&self, sent: Duration, lease_ms: u64, lead: u64) {
        if lead == 0 {
            return self.renew(sent, lease_ms);
        }
        let until = sent + relied_on(Duration::from_millis(lease_ms));
        let mut state = self.state.lock();
        // A later lead counts first.
        state.led = state.led.max((lead, until));
    }

    /// Ends it for good; after that the server may tell the manager that it leaves.
    pub fn give_up(&self) {
        self.state.lock().given_up = true;
    }

    /// True once it was given up: the server leaves, and no member may renew it either.
    pub fn is_given_up(&self) -> bool {
        self.state.lock().given_up
    }

    /// Ends it at once, for tests.
    #[doc(hidden)]
    pub fn end(&self) {
        let mut state = self.state.lock();
        (state.until, state.led.1) = (Duration::ZERO, Duration::ZERO);
    }

    /// True while the lease holds.
    pub fn holds(&self) -> bool {
        let now = self.clock.monotonic();
        let (lead, until) = {
            let state = self.state.lock();
            if state.given_up || now < state.until {
                return !state.given_up;
            }
            state.led
        };
        let leads = || self.own_lead.get().is_some_and(|own| own() == lead);
        now < until && (leads() || strake_base::is_broken("own-leases-end-with-lead"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

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

    #[test]
    fn a_lease_from_the_own_manager_ends_with_its_lead() {
        let clock = Arc::new(Hand(Mutex::new(Duration::from_secs(10))));
        let lease = Lease::new(clock.clone());
        let leads = Arc::new(AtomicU64::new(7));
        lease.renew_led(clock.monotonic(), 1_000, 7);
        assert!(!lease.holds(), "nobody says that it leads");
        let own = leads.clone();
        lease.ends_with(Arc::new(move || own.load(Ordering::Relaxed)));
        assert!(lease.holds());
        leads.store(0, Ordering::Relaxed);
        assert!(!lease.holds());
        leads.store(9, Ordering::Relaxed);
        assert!(!lease.holds(), "another may have led meanwhile");
        lease.renew_led(clock.monotonic(), 1_000, 9);
        lease.renew_led(clock.monotonic(), 3_000, 7);
        assert!(lease.holds());
        *clock.0.lock() = Duration::from_millis(10_900);
        assert!(!lease.holds(), "an answer of an earlier lead counts no more");
        lease.renew_led(clock.monotonic(), 1_000, 0);
        leads.store(0, Ordering::Relaxed);
        assert!(lease.holds(), "one of another manager does not end with this one's lead");
    }

    #[test]
    fn a_lease_is_as_short_as_answers_are_quick() {
        let mut term = Term::default();
        assert_eq!(term.ms(3_000), 700);
        assert_eq!(term.ms(500), 500, "never longer than the manager says");
        term.note(Duration::from_millis(240));
        assert_eq!(term.ms(3_000), 1_000);
        term.note(Duration::from_secs(2));
        assert_eq!(term.ms(3_000), 3_000);
        (0..RECENT).for_each(|_| term.note(Duration::from_millis(10)));
        assert_eq!(term.ms(3_000), 712, "what was slow long ago is forgotten");
    }

    #[test]
    fn a_lease_that_was_given_up_is_not_renewed() {
        let lease = Lease::new(Arc::new(Hand(Mutex::default())));
        lease.renew(lease.now(), 3_000);
        assert!(lease.holds() && !lease.is_given_up());
        lease.give_up();
        lease.renew(lease.now(), 3_000);
        assert!(!lease.holds() && lease.is_given_up());
    }
}
