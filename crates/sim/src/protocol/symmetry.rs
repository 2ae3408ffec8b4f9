//! States that differ in nothing but the numbers of members. All that follows from one follows from the
//! others too, by other numbers, so one of them is enough.
//!
//! With several managers it is not so here: where the leading one runs is not renamed.

use super::ids::Names;
use super::state::{Group, Member, Op, Primary, State, Sync};

/// All ways to number the members; the first leaves them as they are.
pub const RENAMINGS: [Names; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Of all states that differ from this one in the numbers of members alone the least.
pub fn representative(state: &State) -> State {
    RENAMINGS[1..].iter().map(|names| renamed(state, names)).fold(*state, Ord::min)
}

/// The state with other numbers for the members.
pub fn renamed(state: &State, names: &Names) -> State {
    let mut renamed = *state;
    for (at, member) in state.members.iter().enumerate() {
        renamed.members[names[at]] = of_member(member, names);
    }
    for group in &mut renamed.manager.groups {
        *group = of_group(group, names);
    }
    renamed.manager.reports = state.manager.reports.renamed(names);
    for forward in renamed.network.forwards.iter_mut().flatten() {
        forward.to = forward.to.renamed(names);
    }
    renamed.network.forwards.sort_unstable();
    renamed.history = state.history.renamed(names);
    renamed
}

fn of_group(group: &Group, names: &Names) -> Group {
    // An epoch that is forgotten, or not there yet, has no lead.
    let lead = group.primary().map_or(group.lead, |lead| names[lead] as u8);
    let (in_sync, joining) = (group.in_sync.renamed(names), group.joining.renamed(names));
    Group { in_sync, joining, lead, ..*group }
}

fn of_member(member: &Member, names: &Names) -> Member {
    let knows = &member.primary;
    let op = knows.op.map(|op| Op {
        to: op.to.renamed(names),
        replied: op.replied.renamed(names),
        ..op
    });
    let sync = knows.sync.map(|sync| Sync { replied: sync.replied.renamed(names), ..sync });
    let primary = Primary {
        asked: knows.asked.renamed(names),
        op,
        sync,
        copied: knows.copied.renamed(names),
        reported: knows.reported.renamed(names),
        failed: knows.failed.renamed(names),
        ..*knows
    };
    Member { promises: member.promises.renamed(names), primary, ..*member }
}
