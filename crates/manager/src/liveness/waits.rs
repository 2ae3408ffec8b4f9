//! How long parts of jobs have waited for servers, as this manager knows itself: the time that is stored with them goes by a
//! clock that is set now and then.

use super::{Liveness, in_ms};
use crate::plan::Wait;
use crate::state::State;
use std::collections::HashMap;
use std::time::Duration;
use strake_wire::message::jobs::JobState;

impl Liveness {
    /// Notes what waits now.
    pub fn note_waits(&mut self, state: &State, now: Duration) {
        let known = std::mem::take(&mut self.waits);
        let since = |wait: Wait| (wait, known.get(&wait).copied().unwrap_or(now));
        self.waits = waiting(state).map(since).collect();
    }

    /// For how many milliseconds that has waited.
    pub fn waited(&self, now: Duration) -> HashMap<Wait, u64> {
        let waited = |(&wait, &since): (&Wait, &Duration)| (wait, in_ms(now.saturating_sub(since)));
        self.waits.iter().map(waited).collect()
    }
}

/// The parts of jobs that wait.
pub(crate) fn waiting(state: &State) -> impl Iterator<Item = Wait> {
    state.jobs.iter().filter(|(_, job)| job.lasts()).flat_map(|(&job, record)| {
        let scrubs = record.scrubs.iter().filter(|one| one.is(JobState::Waiting));
        let recopy = record.recopy.iter().filter(|one| !one.reason.is_empty());
        let wait = move |target, since_ms| Wait { job, target, since_ms };
        let scrubs = scrubs.map(move |one| wait(one.target, one.since_ms));
        scrubs.chain(recopy.map(move |one| wait(0, one.since_ms)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Job, Scrub};

    #[test]
    fn a_wait_is_counted_from_when_it_was_seen_first_and_anew_when_it_begins_anew() {
        let at = Duration::from_secs;
        let one = Scrub { target: 3, since_ms: 1 << 40, ..Scrub::default() };
        let state = JobState::Running as u32;
        let job = Job { state, scrubs: vec![one], ..Job::default() };
        let mut state = State { jobs: [(7, job)].into(), ..State::default() };
        let mut live = Liveness::new(at(3), at(100), std::iter::empty());
        for now in [100, 200] {
            live.note_waits(&state, at(now));
        }
        let wait = Wait { job: 7, target: 3, since_ms: 1 << 40 };
        assert_eq!(live.waited(at(300)), HashMap::from([(wait, 200_000)]));
        let mut job = state.jobs.remove(&7).unwrap();
        job.scrubs[0].since_ms = 5;
        state.jobs.insert(7, job);
        live.note_waits(&state, at(400));
        assert_eq!(live.waited(at(401)), HashMap::from([(Wait { since_ms: 5, ..wait }, 1_000)]));
    }

    /// Nobody could tell it that he is back: what waited was given up in the moment in which the manager went on.
    #[test]
    fn while_the_manager_stands_still_nothing_waits() {
        let at = Duration::from_secs;
        let job = Job { state: JobState::Running as u32, ..Job::default() };
        let job = Job { scrubs: vec![Scrub { target: 3, ..Scrub::default() }], ..job };
        let state = State { jobs: [(7, job)].into(), ..State::default() };
        let mut live = Liveness::new(at(3), at(100), std::iter::empty());
        live.note_waits(&state, at(100));
        live.watch(at(160));
        live.watch(at(3_760));
        live.note_waits(&state, at(3_760));
        assert_eq!(live.waited(at(3_761)).into_values().collect::<Vec<_>>(), [61_000]);
    }
}
