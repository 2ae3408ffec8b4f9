//! Members that do not take what their primaries send them, although the manager may hear both: nobody else would say why all that write
//! to their groups wait. It is shown to people. Where the member is silent, too, its server and the primary's do not reach each other,
//! and one of them is asked to go (`liveness::apart`).

use crate::liveness::{Liveness, Silences};
use crate::state::State;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use strake_wire::message::manager::{MISSED_MAX, Missed, MissedBy, by_turns};

/// What each server has said last of the groups that it leads, if anything.
#[derive(Default)]
pub(crate) struct Misses(HashMap<u32, Vec<Missed>>);

impl Misses {
    /// A server says which members are missed: all of them.
    pub fn hear(&mut self, server: u32, mut missed: Vec<Missed>) {
        missed.truncate(MISSED_MAX);
        match missed.is_empty() {
            true => self.0.remove(&server),
            false => self.0.insert(server, missed),
        };
    }

    /// Who is missed by whom, or out of groups for that, of all groups together: first who is silent, then for whom changes wait longest;
    /// and each member, and each two servers, once before one of them a second time.
    pub fn shown(&self, state: &State, live: &Liveness, now: Duration) -> Vec<MissedBy> {
        let mut pairs: BTreeMap<(u32, u32), MissedBy> = BTreeMap::new();
        for (&server, missed) in self.0.iter().filter(|(server, _)| live.is_up(**server, now)) {
            for one in missed {
                let Some(primary) = primary_of(state, server, one) else { continue };
                let pair = pairs.entry((primary, one.member)).or_default();
                let for_ms = pair.for_ms.max(one.for_ms);
                let silent = pair.silent || one.silent;
                *pair = MissedBy { member: one.member, primary, for_ms, silent, left: false };
            }
        }
        for ((member, primary), lasts) in live.left_out(state, now) {
            let for_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
            let left = MissedBy { member, primary, for_ms, silent: true, left: true };
            pairs.entry((primary, member)).or_insert(left);
        }
        let mut pairs: Vec<MissedBy> = pairs.into_values().collect();
        pairs.sort_by_key(|pair| (!pair.silent, Reverse(pair.for_ms)));
        // Between two servers that do not reach each other there are very many, and so there are for one slow disk.
        let server = |target| state.server_of(target);
        let pairs = by_turns(pairs, |pair| (server(pair.primary), server(pair.member)));
        let mut pairs = by_turns(pairs, |pair| pair.member);
        pairs.truncate(MISSED_MAX);
        pairs
    }

    /// Which servers do not reach which, although both are heard. A disk that hangs is told of by its own server.
    pub fn silences(&self, state: &State, live: &Liveness, now: Duration) -> Silences {
        let mut said = Silences::default();
        for (&server, missed) in self.0.iter().filter(|(server, _)| live.is_up(**server, now)) {
            for one in missed.iter().filter(|one| primary_of(state, server, one).is_some()) {
                if one.early {
                    said.early.insert(one.group);
                }
                let hangs = live.target(one.member).is_some_and(|spec| spec.silent_ms.is_some());
                let there = state.server_of(one.member);
                let there = there.filter(|there| live.has_spoken(*there, now));
                if let Some(there) = there.filter(|there| one.silent && !hangs && *there != server)
                {
                    said.ways.insert((server, there));
                }
            }
        }
        said
    }
}

/// Who leads the group in which a member is missed, if that is on the server that says so, and the group still as it was.
fn primary_of(state: &State, server: u32, said: &Missed) -> Option<u32> {
    let group = state.groups.get(&said.group).filter(|group| group.epoch == said.epoch)?;
    let (&primary, others) = group.in_sync.split_first()?;
    let is_waited_for = others.contains(&said.member) || group.joining.contains(&said.member);
    (is_waited_for && state.server_of(primary) == Some(server)).then_some(primary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::Word;
    use crate::records::{Group, Target};
    use std::collections::BTreeSet;

    /// Three servers with one target each, of the same number, and two groups that the first one leads.
    fn state() -> State {
        let target = |server| (server, Target { server, ..Target::default() });
        let group = |id, in_sync: &[u32], joining: &[u32]| {
            let (in_sync, joining) = (in_sync.to_vec(), joining.to_vec());
            (id, Group { epoch: 7, in_sync, joining, ..Group::default() })
        };
        State {
            targets: [1, 2, 3].map(target).into(),
            groups: [group(10, &[1, 2, 3], &[]), group(11, &[1, 2], &[3])].into(),
            ..State::default()
        }
    }

    fn shown(misses: &Misses) -> Vec<MissedBy> {
        let lease = Duration::from_secs(3);
        let live = Liveness::new(lease, Duration::ZERO, [1, 2, 3].into_iter());
        misses.shown(&state(), &live, Duration::ZERO)
    }

    fn missed(group: u32, member: u32, for_ms: u64) -> Missed {
        Missed { group, epoch: 7, member, for_ms, ..Missed::default() }
    }

    #[test]
    fn two_are_told_once_whatever_their_common_groups_and_who_is_silent_first() {
        let mut misses = Misses::default();
        let silent = Missed { silent: true, ..missed(10, 2, 4_000) };
        misses.hear(1, vec![missed(11, 3, 9_000), silent, missed(11, 2, 6_000)]);
        let pair =
            |member, for_ms, silent| MissedBy { member, primary: 1, for_ms, silent, left: false };
        assert_eq!(shown(&misses), [pair(2, 6_000, true), pair(3, 9_000, false)]);
        misses.hear(1, vec![]);
        assert_eq!(shown(&misses), []);
    }

    /// The members that are shown of these pairs of a primary and a member, each of which misses for less long than those before it. The
    /// number of a target begins with that of its server.
    fn members_shown(pairs: &[(u32, u32)]) -> BTreeSet<u32> {
        let (mut state, mut said) = (State::default(), BTreeMap::<u32, Vec<Missed>>::new());
        for (group, &(primary, member)) in (0..).zip(pairs) {
            for id in [primary, member] {
                let server = id / 1_000;
                state.targets.insert(id, Target { server, ..Target::default() });
            }
            let in_sync = vec![primary, member];
            state.groups.insert(group, Group { epoch: 7, in_sync, ..Group::default() });
            let told = missed(group, member, 90_000 - u64::from(group));
            said.entry(primary / 1_000).or_default().push(told);
        }
        let live = Liveness::new(Duration::from_secs(3), Duration::ZERO, said.keys().copied());
        let mut misses = Misses::default();
        said.into_iter().for_each(|(server, missed)| misses.hear(server, missed));
        let shown = misses.shown(&state, &live, Duration::ZERO);
        assert_eq!(shown.len(), MISSED_MAX);
        shown.iter().map(|pair| pair.member).collect()
    }

    /// All places were for pairs with one server or disk, and what else was wrong was not told until that was mended.
    #[test]
    fn a_server_or_disk_that_is_missed_by_many_hides_no_other() {
        // Two servers miss all targets of a third, and one of them one of another server.
        let lost = (0..60).flat_map(|nth| [(1_000, 3_000 + nth), (2_000, 3_100 + nth)]);
        let pairs: Vec<(u32, u32)> = lost.chain([(1_000, 4_000)]).collect();
        assert!(members_shown(&pairs).contains(&4_000));
        // Many servers miss one disk, and one of them one that is beside it.
        let slow = (1..=70).map(|server| (server * 1_000, 80_000));
        let pairs: Vec<(u32, u32)> = slow.chain([(1_000, 80_001)]).collect();
        assert!(members_shown(&pairs).contains(&80_001));
    }

    #[test]
    fn only_who_leads_a_group_as_it_is_now_is_believed() {
        let mut misses = Misses::default();
        misses.hear(2, vec![missed(10, 3, 9_000)]);
        let of_another = Missed { epoch: 6, ..missed(10, 2, 9_000) };
        misses.hear(1, vec![of_another, missed(10, 1, 9_000), missed(12, 2, 9_000)]);
        assert_eq!(shown(&misses), []);
    }

    #[test]
    fn two_servers_are_apart_by_what_either_says_of_a_member_that_is_silent() {
        let mut misses = Misses::default();
        let mut state = state();
        state.groups.insert(12, Group { epoch: 7, in_sync: vec![2, 1], ..Group::default() });
        let lease = Duration::from_secs(3);
        let mut live = Liveness::new(lease, Duration::ZERO, [1, 2, 3].into_iter());
        let silent =
            |group, member| Missed { silent: true, early: true, ..missed(group, member, 0) };
        misses.hear(1, vec![silent(10, 2), silent(11, 2), missed(10, 3, 60_000)]);
        misses.hear(2, vec![silent(12, 1), Missed { epoch: 6, ..silent(12, 3) }]);
        let said = |live: &Liveness| misses.silences(&state, live, Duration::ZERO);
        assert_eq!(said(&live).ways, BTreeSet::new(), "they may be gone");
        for server in [1, 2, 3] {
            live.hear(server, Duration::ZERO, Word::Beat, Vec::new());
        }
        assert_eq!(said(&live).ways, BTreeSet::from([(1, 2), (2, 1)]), "3 is slow");
        assert_eq!(said(&live).early, BTreeSet::from([10, 11, 12]));
        live.leave(2, Duration::ZERO);
        assert_eq!(said(&live).ways, BTreeSet::new(), "it is gone");
    }
}
