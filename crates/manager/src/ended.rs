//! Jobs that have ended: which of them are remembered.

use crate::records::Job;
use crate::state::State;
use strake_types::limits::ALL_TARGETS_MAX;
use strake_wire::message::jobs::JobKind;

/// Ended jobs that are remembered: so many heals, and so many others,
pub(crate) const ENDED_MAX: usize = 100;
/// and those that have ended so lately, for who waits for one looks only now and then. By so much, too, the clock may have been
/// set back since,
const LATELY_MS: u64 = 60_000;
/// but no more than this: a heal of each target.
const LATELY_MAX: usize = ALL_TARGETS_MAX;

/// Forgets the others of those that have ended, first those that did so longest ago. Heals begin by themselves and may be many:
/// they drive no other job out.
pub(crate) fn forget(state: &mut State, now_ms: u64) {
    for heals in [true, false] {
        forget_of(state, now_ms, heals);
    }
}

/// The same of heals, or of all others.
fn forget_of(state: &mut State, now_ms: u64, heals: bool) {
    let is_meant = |job: &Job| !job.lasts() && (job.kind == JobKind::Heal as u32) == heals;
    let latest_ms = now_ms.saturating_add(LATELY_MS);
    let ended = state.jobs.iter().filter(|(_, job)| is_meant(job));
    // One that is to have ended long after now did so before the clock was set back by as much.
    let mut ended: Vec<(bool, u64, u32)> =
        ended.map(|(&id, job)| (job.ended_ms <= latest_ms, job.ended_ms, id)).collect();
    ended.sort_unstable();
    let but = |most: usize| ended.len().saturating_sub(most);
    let (old, all) = (but(ENDED_MAX), but(LATELY_MAX));
    for (nth, &(_, ended_ms, id)) in ended.iter().enumerate().take(old) {
        if nth < all || ended_ms.abs_diff(now_ms) > LATELY_MS {
            state.jobs.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::repeat_n;
    use strake_wire::message::jobs::JobState;

    const NOW_MS: u64 = 1_000_000;

    fn heals(times: impl IntoIterator<Item = u64>) -> State {
        let job = |ended_ms| {
            let (kind, state) = (JobKind::Heal as u32, JobState::Done as u32);
            Job { kind, state, ended_ms, ..Job::default() }
        };
        let jobs = (1..).zip(times).map(|(id, ended_ms)| (id, job(ended_ms))).collect();
        State { jobs, ..State::default() }
    }

    /// A switch is back and hundreds of targets are whole at once: those with the lowest numbers were forgotten in the moment in
    /// which they ended, and who watched one of them was told that it does not exist.
    #[test]
    fn more_jobs_than_are_remembered_that_end_at_once_are_known_for_a_minute() {
        let mut state = heals(repeat_n(NOW_MS, 3 * ENDED_MAX));
        for later_ms in [0, 1_000, LATELY_MS] {
            forget(&mut state, NOW_MS + later_ms);
            assert_eq!(state.jobs.len(), 3 * ENDED_MAX, "after {later_ms} ms");
        }
        forget(&mut state, NOW_MS + LATELY_MS + 1);
        assert_eq!(state.jobs.len(), ENDED_MAX);
        assert!(state.jobs.contains_key(&(3 * ENDED_MAX as u32)));
        let mut state = heals(repeat_n(NOW_MS, LATELY_MAX + 1));
        forget(&mut state, NOW_MS);
        assert_eq!(state.jobs.len(), LATELY_MAX);
    }

    /// What had ended last was taken for what had ended before the clock was set back by hours, and forgotten first.
    #[test]
    fn the_last_that_ended_are_remembered_where_the_clock_is_set_back_a_little() {
        let ago = |nth: u64| NOW_MS - 200_000 + nth;
        let last = NOW_MS + 2_000;
        let mut state = heals((0..ENDED_MAX as u64).map(ago).chain([last, NOW_MS + 7_200_000]));
        forget(&mut state, NOW_MS);
        let number = ENDED_MAX as u32 + 1;
        assert_eq!(state.jobs.len(), ENDED_MAX);
        assert!(state.jobs[&number].ended_ms == last && !state.jobs.contains_key(&(number + 1)));
        assert!(!state.jobs.contains_key(&1), "it had ended first");
    }
}
