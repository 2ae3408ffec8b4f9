//! Whether the disk of a target still answers.
//!
//! A disk whose cable, controller or host has gone gives no error: what is asked of it just never ends, and whoever waits
//! holds a thread, a lock, room for a payload. A disk that is slow, throttled or full of work ends one thing after the other, however
//! late. So what tells them apart is progress: a disk **hangs** if, and only if, for [`SILENCE_MAX`]
//!
//! * a *probe* has waited: a read of one block past all memory, by a thread of its own, of a file that nobody writes
//!   ([`strake_base::disk::Prober`]), so that it waits for nothing but the disk; and
//! * not one of the calls to any file of the target has ended ([`strake_base::disk::Calls`]).
//!
//! The disk is probed when something is asked of it and nothing has ended for [`PROBE_AFTER`]. Where it cannot be probed, it is
//! never said to hang. It does so no more when its answers have come for [`RECOVERY`], without as long a silence in between.
//!
//! Time in which this process did not look (it was stopped, or its host slept) does not count.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::disk::{Calls, Prober};
use strake_engine::chunk::ChunkStore;
use tokio::time::Instant;

/// So long no disk answers nothing, whatever it has to do.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// After so long without an answer that somebody waits for, the disk is probed; and as often while it hangs.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// The manager has heard that a disk hangs after so long: there are some heartbeats in it.
const SAID_AFTER: Duration = Duration::from_secs(2);
/// A disk that hung answers again when it has for so long.
const RECOVERY: Duration = Duration::from_secs(10);
/// Who has not looked for so long stood still.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub silence: Duration,
    pub probe_after: Duration,
    pub said_after: Duration,
    pub recovery: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            silence: SILENCE_MAX,
            probe_after: PROBE_AFTER,
            said_after: SAID_AFTER,
            recovery: RECOVERY,
        }
    }
}

#[cfg(test)]
impl Limits {
    /// For a disk that is held: it hangs soon, and does not end to by itself.
    pub const HELD: Self = Self {
        silence: Duration::from_millis(300),
        probe_after: Duration::from_millis(100),
        said_after: Duration::from_millis(100),
        recovery: Duration::from_secs(3_600),
    };
    /// For the same disk when it goes on: soon it hangs no more.
    pub const LET_GO: Self =
        Self { silence: Self::PATIENT.silence, recovery: Duration::from_secs(1), ..Self::HELD };
    /// For a disk that is not held: it never hangs, however busy the machine is.
    pub const PATIENT: Self = Self {
        silence: Duration::from_secs(3_600),
        probe_after: PROBE_AFTER,
        said_after: SAID_AFTER,
        recovery: RECOVERY,
    };
}

/// What is known of one disk.
pub(crate) struct Watch {
    /// For how many ms it has hung, else 0: whoever begins something looks here.
    silent_ms: AtomicU64,
    calls: Arc<Calls>,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    /// `None`: the disk cannot be probed.
    prober: Option<Prober>,
    /// The probe that waits: how many were answered before it, and since when.
    probing: Option<(u64, Instant)>,
    /// When the last one was answered.
    probed: Instant,
    /// Calls that had ended when it was looked at last.
    ended: u64,
    /// When it was seen last that a call has ended, or that a probe was answered.
    answered: Instant,
    /// When it was looked at last,
    looked: Instant,
    /// and since when that was often enough.
    watched: Instant,
    hangs: Option<Hang>,
}

#[derive(Clone, Copy)]
struct Hang {
    /// The last answer before it,
    since: Instant,
    /// when it was noticed,
    noticed: Instant,
    /// and since when the disk answers again, if it goes on to.
    well: Instant,
}

impl Watch {
    /// Watches the disk of a store.
    pub fn of(store: &ChunkStore) -> Self {
        let start = |probe| match Prober::start(probe) {
            Ok(prober) => Some(prober),
            Err(error) => {
                tracing::warn!("{}: no thread to probe its disk: {error}", store.path());
                None
            }
        };
        Self::since(store.calls(), store.take_probe().and_then(start), Instant::now())
    }

    fn since(calls: Arc<Calls>, prober: Option<Prober>, now: Instant) -> Self {
        let state = State {
            limits: Limits::default(),
            prober,
            probing: None,
            probed: now,
            ended: calls.ended(),
            answered: now,
            looked: now,
            watched: now,
            hangs: None,
        };
        Self { silent_ms: AtomicU64::new(0), calls, state: Mutex::new(state) }
    }

    /// Looks how the disk is; to be called several times a second.
    pub fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.looked) > STOOD_STILL {
            state.watched = now;
        }
        state.looked = now;
        // In this order: what begins after it has not ended for sure.
        let is_waited_for = self.calls.any_under_way();
        state.hear(self.calls.ended(), now);
        state.hangs = match state.hangs {
            None => state.hang(now),
            Some(hang) => state.go_on_with(hang, now),
        };
        state.probe(is_waited_for, now);
        let ms = |hang: Hang| {
            let silent = now.saturating_duration_since(hang.since).as_millis();
            u64::try_from(silent).unwrap_or(u64::MAX).max(1)
        };
        self.silent_ms.store(state.hangs.map_or(0, ms), Ordering::Relaxed);
    }

    /// For how long the disk has hung, if it does.
    pub fn silent(&self) -> Option<Duration> {
        let ms = self.silent_ms.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// True if it has hung for so long that the manager has heard of it, if it hears anything.
    pub fn has_hung(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let said_after = state.limits.said_after;
        state.hangs.is_some_and(|hang| now.saturating_duration_since(hang.noticed) >= said_after)
    }

    #[cfg(test)]
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }
}

impl State {
    /// Takes note of what has ended since it was looked at last.
    fn hear(&mut self, ended: u64, now: Instant) {
        let answers = self.prober.as_ref().map_or(0, Prober::answers);
        if self.probing.take_if(|(before, _)| answers > *before).is_some() {
            (self.probed, self.answered) = (now, now);
        }
        if ended != self.ended {
            (self.ended, self.answered) = (ended, now);
        }
    }

    /// Whether it hangs from now on.
    fn hang(&self, now: Instant) -> Option<Hang> {
        let (_, asked) = self.probing?;
        let silent_since = self.answered.max(asked).max(self.watched);
        (now.saturating_duration_since(silent_since) >= self.limits.silence).then_some(Hang {
            since: self.answered,
            noticed: now,
            well: now,
        })
    }

    /// Whether it still does: until its answers, none of them long after the one before, have come for long enough.
    fn go_on_with(&self, hang: Hang, now: Instant) -> Option<Hang> {
        let recovery = self.limits.recovery;
        if now.saturating_duration_since(self.answered) > recovery {
            return Some(Hang { well: now, ..hang });
        }
        let well = hang.well.max(self.watched);
        (self.answered.saturating_duration_since(well) < recovery).then_some(hang)
    }

    /// Probes the disk if that is of use: one probe at a time.
    fn probe(&mut self, is_waited_for: bool, now: Instant) {
        let Some(prober) = self.prober.as_ref().filter(|_| self.probing.is_none()) else { return };
        let since = match self.hangs {
            Some(_) => self.probed,
            None if is_waited_for => self.answered.max(self.watched),
            None => return,
        };
        let answers = prober.answers();
        let is_due = now.saturating_duration_since(since) >= self.limits.probe_after;
        if is_due && prober.ask() {
            self.probing = Some((answers, now));
        }
    }
}

#[cfg(test)]
mod tests;
