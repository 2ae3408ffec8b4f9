//! How long the leases may be that the manager which leads gives, so that who follows it knows.
//!
//! Each beat says so ([`Beat`]): whoever opens the store after it waits for no lease longer than that. So the manager
//! gives a longer lease only when a beat that allows it is stored, and says a shorter time only when it has given no longer
//! lease for three seconds, which no lease outlasts. What its own server may do ends with its lead, which is over when
//! another begins.

use crate::records::Beat;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::member::tenure_ms;
use tokio::sync::{Notify, watch};

/// What beats say is a multiple of so many ms, so that lengths that differ a little need no new beat.
const STEP_MS: u64 = 100;
/// What every beat allows: a little more than the shortest lease that servers ask for.
const LEAST_MS: u64 = 800;

/// What the manager before may have given, as its last beat says, from when it leads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bequest {
    /// Its server; 0: that is not known.
    pub leader: u32,
    /// How long what that server may do lasts at most.
    pub own: Duration,
    /// The same of all others.
    pub longest: Duration,
}

impl Bequest {
    /// By the last beat, if there was one, where a whole lease is so long. Earlier releases do not say it.
    pub fn of(beat: Option<&Beat>, whole_ms: u64) -> Self {
        let whole = Duration::from_millis(whole_ms);
        let ms = |ms: u64| Duration::from_millis(ms).min(whole);
        match beat.filter(|beat| beat.lent_ms > 0) {
            Some(beat) => {
                Self { leader: beat.server, own: ms(beat.own_ms), longest: ms(beat.lent_ms) }
            }
            None => Self { leader: 0, own: whole, longest: whole },
        }
    }
}

/// The lengths of leases that a manager may give.
pub(crate) struct Grants {
    clock: Arc<dyn Clock>,
    whole_ms: u64,
    /// When what others may have given to this server is over.
    own_until: Duration,
    /// When it leads.
    from: Duration,
    state: Mutex<State>,
    /// The longest that the last stored beat allows, as long as none that allows less is under way, in ms.
    allowed: watch::Sender<u64>,
    /// Somebody waits for a beat that allows more.
    short: Notify,
}

struct State {
    /// The longest that was asked for in this window and in the one before, in ms.
    longest_ms: u64,
    before_ms: u64,
    /// When the next window begins. One is as long as a whole lease.
    end: Duration,
    /// The last beat is stored.
    is_said: bool,
}

impl Grants {
    /// Of a manager that leads from then on, after what the one before has left.
    pub fn new(clock: Arc<dyn Clock>, whole_ms: u64, from: Duration, left: Bequest) -> Self {
        let before_ms = u64::try_from(left.longest.as_millis()).unwrap_or(whole_ms);
        let end = from + Duration::from_millis(whole_ms);
        let tenure = Duration::from_millis(tenure_ms(whole_ms));
        Self {
            clock,
            whole_ms,
            own_until: from + left.longest.max(tenure),
            from,
            state: Mutex::new(State { longest_ms: 0, before_ms, end, is_said: true }),
            allowed: watch::Sender::new(0),
            short: Notify::new(),
        }
    }

    /// What a beat says that is given now. From here on no more is allowed, until that is stored; one beat is under way at a
    /// time.
    pub fn say(&self) -> Beat {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        // As long as the store is away, what was said last goes on: nobody else leads then.
        if now >= state.end && state.is_said {
            state.before_ms = std::mem::take(&mut state.longest_ms);
            state.end = now + Duration::from_millis(self.whole_ms);
        }
        state.is_said = false;
        let longest = state.longest_ms.max(state.before_ms).max(LEAST_MS);
        let lent_ms = (longest.div_ceil(STEP_MS) * STEP_MS).min(self.whole_ms).max(1);
        // Under the lock: who asks from now on is counted by the next beat.
        self.allowed.send_modify(|allowed| *allowed = lent_ms.min(*allowed));
        let until = |end: Duration| {
            let ms = end.saturating_sub(now).as_millis();
            u64::try_from(ms).map_or(self.whole_ms, |ms| ms.min(self.whole_ms))
        };
        let (own_ms, waits_ms) = (until(self.own_until), until(self.from));
        Beat { lent_ms, own_ms, waits_ms, ..Beat::default() }
    }

    /// A beat that said `lent_ms` is stored.
    pub fn note_said(&self, lent_ms: u64) {
        self.state.lock().is_said = true;
        self.allowed.send_replace(lent_ms);
    }

    /// Returns when a beat is to be given before its time.
    pub async fn until_short(&self) {
        self.short.notified().await;
    }

    /// A lease is to be given for `asked_ms`; 0: a whole one. Returns when the store says that there may be such, or fails
    /// if it does not for `limit`.
    pub async fn lend(&self, asked_ms: u64, limit: Duration) -> Result<()> {
        let asked_ms = if asked_ms == 0 { self.whole_ms } else { asked_ms.min(self.whole_ms) };
        let mut allowed = self.allowed.subscribe();
        let waits = async {
            while !self.may_lend(asked_ms) {
                self.short.notify_one();
                if allowed.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, waits).await.map_err(|_| {
            let detail = "the metadata store does not note how long leases are, so none is given";
            Error::with(ErrorKind::Unavailable, detail)
        })
    }

    /// True if so long a lease may be given now; it is counted either way.
    fn may_lend(&self, asked_ms: u64) -> bool {
        if strake_base::is_broken("long-leases-are-said-first") {
            return true;
        }
        let mut state = self.state.lock();
        state.longest_ms = state.longest_ms.max(asked_ms);
        asked_ms <= *self.allowed.borrow()
    }
}

#[cfg(test)]
mod tests;
