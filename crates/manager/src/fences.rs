//! Sessions that are over, and what was allowed to them.
//!
//! A capability says to which session it was given, and holds for a day whatever becomes of that. The map
//! names the sessions whose capabilities storage servers are to refuse; a name stays there until no capability
//! of that session can be valid any more.

use crate::records::Fence;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::manager as message;

/// How long a session stays fenced: twice as long as a capability holds, so that clocks may differ.
const LASTS: Duration = Duration::from_secs(2 * 24 * 3600);

/// Most sessions that are fenced: the map has all of them, and has to fit into a message.
pub(crate) const FENCES_MAX: usize = 25_000;

/// Since when this manager has known each fence, by the clock that nobody sets. It begins anew with each start.
pub(crate) struct Known {
    since: BTreeMap<u32, Duration>,
}

impl Known {
    /// Those that are stored when it starts.
    pub fn new(fences: &BTreeMap<u32, Fence>, now: Duration) -> Self {
        Self { since: fences.keys().map(|&id| (id, now)).collect() }
    }

    /// Notes which there are now; those that it has known for so long that they may go.
    pub fn note(&mut self, fences: &BTreeMap<u32, Fence>, now: Duration) -> BTreeSet<u32> {
        self.since.retain(|id, _| fences.contains_key(id));
        for &id in fences.keys() {
            self.since.entry(id).or_insert(now);
        }
        let is_old = |since: Duration| now.saturating_sub(since) >= LASTS;
        self.since.iter().filter(|(_, since)| is_old(**since)).map(|(&id, _)| id).collect()
    }
}

/// Fences sessions, and forgets those fenced long ago: by the time that is stored, and as this manager knows itself (`old`), for
/// it may only be the clock that was set.
pub(crate) fn enter(
    state: &mut State,
    fence: &message::Fence,
    wall: Duration,
    old: &BTreeSet<u32>,
) -> Result<()> {
    if !state.volumes.contains_key(&fence.volume) {
        let detail = format!("volume {} of sessions that are to be fenced", fence.volume);
        return Err(Error::with(ErrorKind::NotFound, detail));
    }
    let since_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    let lasts_ms = LASTS.as_millis() as u64;
    let volumes = &state.volumes;
    state.fences.retain(|id, fence| {
        let is_over = since_ms.saturating_sub(fence.since_ms) >= lasts_ms && old.contains(id);
        volumes.contains_key(&fence.volume) && !is_over
    });
    let epoch = state.cluster.epoch + 1;
    // Once for all: of a large cluster that has lost its clients thousands come at once.
    let known = state.fences.values().filter(|known| known.volume == fence.volume);
    let mut known: BTreeSet<u64> = known.map(|known| known.session).collect();
    for &session in &fence.sessions {
        if !known.insert(session) {
            continue;
        }
        state.cluster.next_fence = state.cluster.next_fence.wrapping_add(1);
        let entered = Fence { volume: fence.volume, session, epoch, since_ms };
        state.fences.insert(state.cluster.next_fence, entered);
        strake_base::count_case("session-fenced");
    }
    while state.fences.len() > FENCES_MAX
        && let Some((_, oldest)) = state.fences.pop_first()
    {
        tracing::warn!(
            "more than {FENCES_MAX} sessions are fenced: storage servers take again what session {} of volume {} sends",
            oldest.session,
            oldest.volume
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Volume;

    const HOUR: Duration = Duration::from_secs(3600);

    fn state() -> State {
        let mut state = State::default();
        state.volumes.insert(1, Volume::default());
        state
    }

    fn fence(session: u64) -> message::Fence {
        message::Fence { volume: 1, sessions: vec![session] }
    }

    /// A manager and its clocks.
    struct Bench {
        state: State,
        known: Known,
    }

    impl Bench {
        fn new() -> Self {
            Self { state: state(), known: Known::new(&BTreeMap::new(), Duration::ZERO) }
        }

        /// Enters a session by a wall clock and one that nobody sets; who is fenced then.
        fn enter(&mut self, session: u64, wall: Duration, now: Duration) -> Vec<u64> {
            let old = self.known.note(&self.state.fences, now);
            enter(&mut self.state, &fence(session), wall, &old).unwrap();
            self.known.note(&self.state.fences, now);
            sessions(&self.state)
        }
    }

    fn sessions(state: &State) -> Vec<u64> {
        state.fences.values().map(|fence| fence.session).collect()
    }

    #[test]
    fn a_session_is_fenced_once_in_the_epoch_that_says_so_first() {
        let mut state = state();
        state.cluster.epoch = 7;
        enter(&mut state, &fence(5), HOUR, &BTreeSet::new()).unwrap();
        let before = state.clone();
        state.cluster.epoch = 8;
        enter(&mut state, &fence(5), HOUR * 2, &BTreeSet::new()).unwrap();
        assert!(state.fences == before.fences, "asked again after a lost answer");
        assert_eq!(state.fences.values().next().unwrap().epoch, 8);
    }

    #[test]
    fn a_fence_stays_until_no_capability_of_its_session_can_be_valid() {
        let mut bench = Bench::new();
        assert_eq!(bench.enter(5, HOUR, HOUR), [5]);
        assert_eq!(bench.enter(6, HOUR * 40, HOUR * 40), [5, 6]);
        assert_eq!(bench.enter(7, HOUR * 50, HOUR * 50), [6, 7]);
        // A clock that is put back forgets nothing.
        assert_eq!(bench.enter(8, Duration::ZERO, HOUR * 51), [6, 7, 8]);
    }

    /// Those of an hour ago were forgotten, and their sessions written again for what was left of the day.
    #[test]
    fn a_clock_that_jumps_ahead_forgets_no_fence() {
        let mut bench = Bench::new();
        bench.enter(5, HOUR, HOUR);
        assert_eq!(bench.enter(6, HOUR * 73, HOUR * 2), [5, 6]);
        // After a restart nobody knows how long they have been there.
        bench.known = Known::new(&bench.state.fences, HOUR * 40);
        assert_eq!(bench.enter(7, HOUR * 130, HOUR * 60), [5, 6, 7]);
        assert_eq!(bench.enter(8, HOUR * 160, HOUR * 88), [7, 8]);
    }

    /// With them the map grew until nobody could be sent it.
    #[test]
    fn of_too_many_fences_the_oldest_are_forgotten() {
        let mut state = state();
        let all = (1..=FENCES_MAX as u64).map(|session| {
            let fence = Fence { volume: 1, session, since_ms: 1, ..Fence::default() };
            (session as u32, fence)
        });
        state.fences = all.collect();
        state.cluster.next_fence = FENCES_MAX as u32;
        enter(&mut state, &fence(1 << 40), Duration::from_millis(2), &BTreeSet::new()).unwrap();
        let left = sessions(&state);
        assert_eq!((left.len(), left[0], left[FENCES_MAX - 1]), (FENCES_MAX, 2, 1 << 40));
    }

    /// They are looked for among those of their volume alone, and among what came with them.
    #[test]
    fn many_sessions_that_are_lost_at_once_are_each_fenced_once() {
        let mut state = state();
        state.volumes.insert(2, Volume::default());
        // The same number in another volume is another session.
        let other = message::Fence { volume: 2, sessions: vec![7] };
        enter(&mut state, &other, HOUR, &BTreeSet::new()).unwrap();
        let twice = (1..=100).chain(1..=100).collect();
        let fence = message::Fence { volume: 1, sessions: twice };
        enter(&mut state, &fence, HOUR, &BTreeSet::new()).unwrap();
        assert_eq!(state.fences.len(), 101);
        let mut fenced = sessions(&state);
        fenced.sort_unstable();
        let mut expected: Vec<u64> = (1..=100).chain([7]).collect();
        expected.sort_unstable();
        assert_eq!(fenced, expected);
    }

    #[test]
    fn a_volume_that_does_not_exist_is_an_error() {
        let other = message::Fence { volume: 2, sessions: vec![1] };
        let error = enter(&mut state(), &other, HOUR, &BTreeSet::new()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
    }
}
