//! What becomes of a group of which nobody has everything any more.

use crate::groups::is_replaced;
use crate::plan::{Facts, name_of};
use crate::records::Group;
use crate::state::State;
use strake_base::random::mixed;
use strake_types::GroupId;

/// Who has everything when a lost group goes on with a new member: one that was there, and lives, has at
/// least what it had when it was away.
fn heir(group: &Group, facts: &Facts, from: u32) -> Option<u32> {
    let known = |member: &&u32| **member != from && !facts.is_gone(**member);
    let others = || group.members.iter().filter(known);
    others().find(|member| facts.serves(**member)).or_else(|| others().next()).copied()
}

/// Why a lost group cannot go on yet with nothing but a new member: that one has not deleted what it
/// had of the group long ago.
pub(crate) fn leftover(
    state: &State,
    facts: &Facts,
    id: u32,
    from: u32,
    to: u32,
) -> Option<String> {
    let group = state.groups.get(&id)?;
    let held = facts.held.get(&(to, id)).is_some_and(|bytes| *bytes > 0);
    (held && heir(group, facts, from).is_none())
        .then(|| format!("{} still deletes what it had of the group before", name_of(state, to)))
}

/// Nobody who has everything of a group lives: it goes on with what others have, or with nothing.
pub(crate) fn give_up(state: &mut State, facts: &Facts, id: u32, from: u32, to: u32) {
    let Some(group) = state.groups.get_mut(&id) else { return };
    if !group.never_used {
        tracing::warn!("group {id}: what only target {:?} had is given up", group.in_sync);
    }
    let heir = heir(group, facts, from);
    let stays = |m: &u32| *m != from && !group.leaving.contains(m);
    let place = match is_replaced(id, group, from) {
        false => Some(from),
        // Who was brought in for it is gone, too.
        true if heir.is_none() => group.members.iter().copied().rfind(stays),
        true => None,
    };
    group.members.iter_mut().filter(|m| Some(**m) == place).for_each(|m| *m = to);
    group.members.retain(|member| *member != from);
    group.in_sync = vec![heir.unwrap_or(to)];
    group.joining.clear();
    group.leaving.clear();
    group.epoch += 1;
    group.losses += 1;
    if GroupId(id).copies() == 1 {
        // A word that nobody has ever given: no answer may be taken for one that covers what was lost, also
        // if a target goes on with the group whose boot was its word before.
        group.word = mixed(u64::from(id) << 40 ^ group.epoch ^ facts.now_ms << 20).max(1);
        group.vouchers.clear();
    }
}
