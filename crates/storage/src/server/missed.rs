//! Members that do not take what the primaries here send them, and those here that are to go for such a reason.

use super::StorageServer;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use strake_types::{GroupId, TargetId};
use strake_wire::message::manager::{Doubt, MISSED_MAX, Missed, Resign, by_turns};

impl StorageServer {
    /// Those of them that the manager is told of.
    pub fn missed(&self) -> Vec<Missed> {
        let replicas = self.replicas.lock();
        gravest(replicas.values().flat_map(|replica| replica.missing()).collect())
    }

    /// The manager has these members resign, and no others: others go on without them, which do not reach this server.
    pub fn ask_to_resign(&self, asked: &[Resign]) {
        let place = |resign: &Resign| (TargetId(resign.member), GroupId(resign.group));
        let asked: HashMap<_, u64> = asked.iter().map(|one| (place(one), one.epoch)).collect();
        for (place, replica) in self.replicas.lock().iter() {
            replica.ask_to_resign(asked.get(place).copied());
        }
    }

    /// The manager has primaries here ask these members whether they are there.
    pub fn doubt(&self, doubts: &[Doubt]) {
        for doubt in doubts {
            let place = (TargetId(doubt.primary), GroupId(doubt.group));
            if let Some(replica) = self.replicas.lock().get(&place) {
                replica.doubt(doubt.epoch, TargetId(doubt.member));
            }
        }
    }
}

/// As many as may be told: first who is silent, then for whom changes wait longest. One group of each member before a second one of any,
/// which is told as well, where there is room: the manager believes none that has another epoch by then. Before other second ones those
/// whose primaries cannot go in the member's place: of all others the manager thinks that they can.
fn gravest(mut missed: Vec<Missed>) -> Vec<Missed> {
    missed.sort_by_key(|one| (!one.silent, !one.early, Reverse(one.for_ms)));
    let members = missed.iter().map(|one| one.member).collect::<BTreeSet<u32>>().len();
    let mut missed = by_turns(missed, |one| one.member);
    missed[members..].sort_by_key(|one| !one.early);
    missed.truncate(MISSED_MAX);
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many groups on a slow disk left no place for the one whose member nobody reached.
    #[test]
    fn who_is_silent_is_told_before_many_that_are_slow_for_longer() {
        let slow = |group| Missed { group, for_ms: 60_000, ..Missed::default() };
        let silent = Missed { group: 9_999, for_ms: 10_000, silent: true, ..Missed::default() };
        let told = gravest((0..500).map(slow).chain([silent]).collect());
        assert_eq!((told.len(), told[0]), (MISSED_MAX, silent));
    }

    /// The manager asked their primaries to go, which did not.
    #[test]
    fn groups_whose_primaries_cannot_go_are_told_before_many_others() {
        let lost = Missed { member: 2, for_ms: 60_000, silent: true, ..Missed::default() };
        let early = |group| Missed { group, for_ms: 7_000, early: true, ..lost };
        let told = gravest((0..100).map(|_| lost).chain((1..=60).map(early)).collect());
        assert_eq!(told.iter().filter(|one| one.early).count(), 60);
    }

    /// All places were for the groups of one lost neighbour, and the network to another one was not named until that was mended.
    #[test]
    fn a_member_that_is_missed_in_many_groups_hides_no_other() {
        let lost = Missed { member: 2, for_ms: 60_000, silent: true, ..Missed::default() };
        let other = Missed { member: 3, for_ms: 59_000, ..lost };
        let told = gravest((0..100).map(|_| lost).chain([other]).collect());
        let members: Vec<u32> = told.iter().map(|one| one.member).collect();
        assert_eq!((members.len(), &members[..3]), (MISSED_MAX, &[2, 3, 2][..]));
    }
}
