//! What is not tried again at once.

use super::Liveness;
use crate::state::State;
use std::time::Duration;
use strake_wire::message::manager::Resynced;

/// Pause after a member could not be made equal, or a server was refused; it doubles each time, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(32);

/// How long something is not tried again.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    length: Duration,
    end: Duration,
}

impl Pause {
    /// One that begins now, after this one.
    pub fn after(before: Option<&Pause>, now: Duration) -> Self {
        let length = before.map_or(PAUSE, |pause| (pause.length * 2).min(PAUSE_MAX));
        Self::of(length, now)
    }

    /// One of this length that begins now.
    pub fn of(length: Duration, now: Duration) -> Self {
        Self { length, end: now + length }
    }

    /// The same, which is over: the next one is longer all the same.
    pub fn ended(self) -> Self {
        Self { end: Duration::ZERO, ..self }
    }

    pub fn lasts(&self, now: Duration) -> bool {
        now < self.end
    }
}

impl Liveness {
    /// What is said of a group as it is now: a member was made equal, or it could not be, and is not tried again at once.
    pub fn hear_resynced(&mut self, state: &State, report: &Resynced, now: Duration) {
        let key = (report.group, report.member);
        match report.failed {
            true => {
                let pause = Pause::after(self.pauses.get(&key), now);
                self.pauses.insert(key, pause);
            }
            false => {
                self.pauses.remove(&key);
            }
        }
        self.note_tried(state, report, now);
    }

    /// True while a member is not tried again, or not before another one shows that its server is reached.
    pub fn is_paused(&self, group: u32, member: u32, now: Duration) -> bool {
        self.has_failed_lately(group, member, now) || self.is_barred(group, member)
    }

    /// True while a member is not tried again.
    pub(super) fn has_failed_lately(&self, group: u32, member: u32, now: Duration) -> bool {
        self.pauses.get(&(group, member)).is_some_and(|pause| pause.lasts(now))
    }
}
