//! Members that do not take what the primaries here send them, and those here that are to go for such a reason.

use super::StorageServer;
use std::cmp::Reverse;
use strake_types::{GroupId, TargetId};
use strake_wire::message::manager::{MISSED_MAX, Missed, Resign, by_turns};

impl StorageServer {
    /// Those of them that the manager is told of.
    pub fn missed(&self) -> Vec<Missed> {
        let replicas = self.replicas.lock();
        gravest(replicas.values().flat_map(|replica| replica.missing()).collect())
    }

    /// The manager has these members resign: others go on without them, which do not reach this server.
    pub fn ask_to_resign(&self, asked: &[Resign]) {
        let replicas = self.replicas.lock();
        for resign in asked {
            let place = (TargetId(resign.member), GroupId(resign.group));
            replicas.get(&place).inspect(|replica| replica.ask_to_resign(resign.epoch));
        }
    }
}

/// As many as may be told: first who is silent, then for whom changes wait longest. One group of each member before a second one of any,
/// which is told as well, where there is room: the manager believes none that has another epoch by then.
fn gravest(mut missed: Vec<Missed>) -> Vec<Missed> {
    missed.sort_by_key(|one| (!one.silent, Reverse(one.for_ms)));
    let mut missed = by_turns(missed, |one| one.member);
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
