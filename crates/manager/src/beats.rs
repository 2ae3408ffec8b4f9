//! What the beats of a manager that leads say: for how long it leads by each, and how long the leases are that it gives.
//!
//! **The lead.** The others know that nobody leads any more when they have seen no newer beat for as long as the last one
//! said. That is as short as the store has lately been quick and this process in time, because others wait for it when the
//! leader is lost, and longer where they are not, because it would be over before the next beat came.
//!
//! **The leases.** Whoever opens the store waits for no lease longer than the last beat said. So the manager gives a longer
//! one only when a beat that allows it is stored, and says a shorter time only when it has given no longer lease for three
//! seconds, which no lease outlasts. What its own server may do ends with its lead, which is over when another begins: so
//! whoever follows says of it for how long it may do what others have allowed, and so do those after that one, until it is
//! answered.
//!
//! **The beginning.** A manager that reads the control plane answers nothing, and its beats say so: whoever opens the store
//! meanwhile goes on with what it has found there itself.

mod recent;

use crate::records::{Beat, PastLead};
use parking_lot::Mutex;
use recent::Recent;
use std::sync::Arc;
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::lease::given_ms;
use strake_wire::member::tenure_ms;
use tokio::sync::{Notify, watch};

/// For how long a beat lets its manager lead, in ms: at least, with a beat every quarter of that,
const LEAD_MIN_MS: u64 = 400;
/// and at most; also by one that does not say it.
const LEAD_MAX_MS: u64 = 800;
/// The same.
pub(crate) const LEAD_MAX: Duration = Duration::from_millis(LEAD_MAX_MS);
/// There are so many beats in the time that each lets it lead.
const BEATS: u32 = 4;
/// For so long after it began to lead a manager takes its store for slow: five beats.
const LEARNS: Duration = Duration::from_secs(1);
/// Delays are remembered for this long, and twice as long at most,
const DELAYS: Duration = Duration::from_secs(5);
/// those of more than so many ms for longer: a store may stand still every few minutes only.
const STALL_MS: u64 = 100;
const STALLS: Duration = Duration::from_secs(120);
/// The lengths of leases that beats say are multiples of so many ms, so that those that differ a little need no new beat.
const STEP_MS: u64 = 100;
/// What every beat allows: a little more than the shortest lease that servers ask for.
const LEAST_MS: u64 = 800;

/// What the manager before may have given, as its last beat says, from when it leads no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bequest {
    /// Servers whose managers have led, as far as that is known, and how long what each may do lasts at most.
    pub led: Vec<(u32, Duration)>,
    /// How long the lease of any server lasts at most.
    pub longest: Duration,
}

impl Bequest {
    /// By the last beat, if there was one, where a whole lease is so long. Earlier releases do not say it.
    pub fn of(beat: Option<&Beat>, whole_ms: u64) -> Self {
        let whole = Duration::from_millis(whole_ms);
        let Some(beat) = beat.filter(|beat| beat.lent_ms > 0) else {
            return Self { led: Vec::new(), longest: whole };
        };
        let ms = |ms: u64| Duration::from_millis(ms).min(whole);
        // The server of one that has answered nothing is like any other.
        let own = (!beat.loads).then_some((beat.server, ms(beat.own_ms)));
        let past = beat.past.iter().map(|past| (past.server, ms(past.lasts_ms)));
        Self { led: past.chain(own).collect(), longest: ms(beat.lent_ms) }
    }

    /// How long what a server may do lasts at most, if its manager has led.
    pub fn lasts(&self, server: u32) -> Option<Duration> {
        self.led.iter().find(|(led, _)| *led == server).map(|(_, lasts)| *lasts)
    }
}

/// For how long a beat lets its manager lead. Those of earlier releases do not say it.
pub(crate) fn lead_of(beat: &Beat) -> Duration {
    let said = if beat.lead_ms == 0 { LEAD_MAX_MS } else { beat.lead_ms };
    Duration::from_millis(said.clamp(LEAD_MIN_MS, LEAD_MAX_MS))
}

/// How long anybody may answer still after a beat that was just given: its manager, or the one for which that waits.
pub(crate) fn answers_for(beat: &Beat) -> Duration {
    match beat.loads {
        true => Duration::from_millis(beat.waits_ms).min(LEAD_MAX),
        false => lead_of(beat),
    }
}

/// The pause between two beats, or two looks at them, where each lets its manager lead for so long.
pub(crate) fn pause_of(lead: Duration) -> Duration {
    lead / BEATS
}

/// What the beats of one lead say.
pub(crate) struct Beats {
    clock: Arc<dyn Clock>,
    whole_ms: u64,
    /// When what others may have given to this server is over.
    own_until: Duration,
    /// When it leads.
    from: Duration,
    /// When the leases of all others are over that were given before.
    left_until: Duration,
    state: Mutex<State>,
    /// The longest that the last stored beat allows, as long as none that allows less is under way, in ms.
    allowed: watch::Sender<u64>,
    /// Somebody waits for a beat that allows more.
    short: Notify,
}

struct State {
    /// What was asked for within a whole lease, in ms.
    asked: Recent,
    /// How long beats took until they were stored, from when they were due, in ms.
    delays: Recent,
    /// The long ones among them.
    stalls: Recent,
    /// By the beats so far it leads until then at most.
    leads_until: Duration,
    /// For how long it leads by the last one, in ms.
    last_ms: u64,
    /// The last beat is stored.
    is_said: bool,
    /// Servers whose managers have led, while a beat that names them may be the last one.
    past: Vec<Past>,
    /// Until then beats name them: by then this manager has given them up itself, which begins when it can be heard.
    names_until: Duration,
    /// It answers nothing yet.
    loads: bool,
    /// The store has lost what earlier leads have stored, and nobody has noted that.
    lost: bool,
}

/// A server whose manager has led.
struct Past {
    server: u32,
    /// When what it may do is over, unless this manager answers it.
    until: Duration,
    /// It has asked, and is to be answered: no beat names it any more.
    asks: bool,
}

impl State {
    /// For how long a beat is to let it lead.
    fn lead_ms(&self) -> u64 {
        let delay = self.delays.greatest().max(self.stalls.greatest());
        (LEAD_MIN_MS + 2 * delay).min(LEAD_MAX_MS)
    }
}

impl Beats {
    /// Of a manager that leads from then on, after what the one before has left.
    pub fn new(clock: Arc<dyn Clock>, whole_ms: u64, from: Duration, left: &Bequest) -> Self {
        let before_ms = u64::try_from(left.longest.as_millis()).unwrap_or(whole_ms);
        let whole = Duration::from_millis(whole_ms);
        let tenure = Duration::from_millis(tenure_ms(whole_ms));
        let past = |&(server, lasts): &(u32, Duration)| {
            let until = from + lasts;
            Past { server, until, asks: false }
        };
        Self {
            clock,
            whole_ms,
            own_until: from + left.longest.max(tenure),
            from,
            left_until: from + left.longest,
            state: Mutex::new(State {
                asked: Recent::new(whole, from + whole, before_ms),
                delays: Recent::new(DELAYS, from + LEARNS, LEAD_MAX_MS),
                stalls: Recent::new(STALLS, from + STALLS, 0),
                leads_until: Duration::ZERO,
                last_ms: LEAD_MAX_MS,
                is_said: true,
                past: left.led.iter().map(past).collect(),
                names_until: Duration::MAX,
                loads: true,
                lost: false,
            }),
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
        if state.is_said {
            state.asked.forget(now);
        }
        state.is_said = false;
        state.delays.forget(now);
        state.stalls.forget(now);
        let until = |end: Duration| {
            let ms = end.saturating_sub(now).as_millis();
            u64::try_from(ms).map_or(self.whole_ms, |ms| ms.min(self.whole_ms))
        };
        // While it loads it gives none itself. When it answers, servers may ask at once for what they had before.
        let longest = match state.loads {
            true => until(self.left_until),
            false => state.asked.greatest(),
        };
        let longest = longest.max(LEAST_MS);
        let lent_ms = (longest.div_ceil(STEP_MS) * STEP_MS).min(self.whole_ms).max(1);
        // Under the lock: who asks from now on is counted by the next beat.
        self.allowed.send_if_modified(|allowed| {
            std::mem::replace(allowed, lent_ms.min(*allowed)) > lent_ms
        });
        let (own_ms, waits_ms) = (until(self.own_until), until(self.from));
        let is_named = |past: &&Past| now < state.names_until && !past.asks;
        let past = state.past.iter().filter(is_named);
        let past = past
            .map(|past| PastLead { server: past.server, lasts_ms: until(past.until) })
            .collect();
        let (loads, lost) = (state.loads, state.lost);
        // Never over before what an earlier one said: who comes late has seen this one only.
        let lead_ms = state.lead_ms().max(until(state.leads_until)).min(LEAD_MAX_MS);
        state.last_ms = lead_ms;
        state.leads_until = state.leads_until.max(now + Duration::from_millis(lead_ms));
        Beat { lent_ms, own_ms, waits_ms, lead_ms, past, loads, lost, ..Beat::default() }
    }

    /// A beat was stored so long after it was due; `None`: it was not. The pause from when that was until the next is due.
    pub fn note_delay(&self, delay: Option<Duration>) -> Duration {
        let ms = delay.and_then(|delay| u64::try_from(delay.as_millis()).ok());
        let ms = ms.unwrap_or(LEAD_MAX_MS);
        let mut state = self.state.lock();
        state.delays.note(ms);
        if ms > STALL_MS {
            state.stalls.note(ms);
        }
        // The next one must come before the last one is over, and may be as late.
        pause_of(Duration::from_millis(state.lead_ms().min(state.last_ms)))
    }

    /// The manager before it turned out to be well: only its beats were late.
    pub fn note_stall(&self) {
        self.state.lock().stalls.note(LEAD_MAX_MS);
    }

    /// This beat is stored.
    pub fn note_said(&self, beat: &Beat) {
        let mut state = self.state.lock();
        state.is_said = true;
        state.past.retain(|past| beat.past.iter().any(|said| said.server == past.server));
        self.allowed.send_replace(beat.lent_ms);
    }

    /// Returns when a beat is to be given before its time.
    pub async fn until_short(&self) {
        self.short.notified().await;
    }

    /// Whether the store has lost what earlier leads have stored, and that is not noted yet: whoever opens the store then has to.
    pub fn set_lost(&self, is: bool) {
        self.state.lock().lost = is;
    }

    pub fn has_lost(&self) -> bool {
        self.state.lock().lost
    }

    /// The manager answers as soon as the next beat is stored: whoever opens the store then waits for this lead.
    pub fn begin_to_answer(&self) {
        self.state.lock().loads = false;
    }

    /// From now on the manager can be heard, so that silence counts.
    pub fn begin_to_hear(&self, now: Duration) {
        let end = now.max(self.from) + Duration::from_millis(self.whole_ms);
        self.state.lock().names_until = end;
    }

    /// A lease is to be given to a server for `asked_ms`; 0: a whole one. Returns when the store says that it may have such,
    /// or fails if it does not for `limit`.
    pub async fn lend(&self, server: u32, asked_ms: u64, limit: Duration) -> Result<()> {
        let asked_ms = given_ms(asked_ms, self.whole_ms);
        let mut allowed = self.allowed.subscribe();
        let waits = async {
            while !self.may_lend(server, asked_ms) {
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

    /// True if a server may be given so long a lease now; it is counted either way.
    fn may_lend(&self, server: u32, asked_ms: u64) -> bool {
        let mut state = self.state.lock();
        state.asked.note(asked_ms);
        let past = state.past.iter_mut().find(|past| past.server == server);
        let is_named = past.is_some_and(|past| {
            past.asks = true;
            true
        });
        let is_short = asked_ms <= *self.allowed.borrow();
        !is_named && (is_short || strake_base::is_broken("long-leases-are-said-first"))
    }
}

#[cfg(test)]
mod tests;
