//! When an item of a job may begin, and why not yet.

use crate::groups::is_replaced;
use crate::loss;
use crate::plan::{Facts, name_of};
use crate::records::{Item, Job};
use crate::state::State;
use strake_wire::message::jobs::JobState;

/// Moves under way at once, of one target and in all.
pub(crate) const TARGET_MOVES_MAX: usize = 2;
const MOVES_MAX: usize = 16;

/// Why an item has to wait for its turn: something else moves the group, or many moves concern the same
/// targets. A paused job holds no place. Nobody waits for who is gone.
pub(crate) fn hindrance(state: &State, facts: &Facts, own: &Job, item: &Item) -> Option<String> {
    let group = state.groups.get(&item.group)?;
    // Who is equal already moves nothing any more, even if the one that it replaces cannot leave yet.
    let is_done =
        |one: &Item| state.groups.get(&one.group).is_some_and(|g| g.in_sync.contains(&one.to));
    let moves = |job: &Job, one: &Item| {
        job.is(JobState::Running) && one.is(JobState::Running) && one.from != 0 && !is_done(one)
    };
    let others = state.jobs.iter().map(|(&id, job)| (id, job)).chain(Some((0, own)));
    let running: Vec<(u32, &Item)> = others
        .flat_map(|(id, job)| job.items.iter().map(move |one| (id, job, one)))
        .filter(|(_, job, one)| moves(job, one))
        .map(|(id, _, one)| (id, one))
        .collect();
    let changes = !group.leaving.is_empty() || !group.joining.is_empty();
    // Another job brings somebody in for the very member; nothing may come of that where all is lost.
    let dead = facts.is_gone(item.from)
        && (facts.is_lost(group, &own.going())
            || !group.in_sync.contains(&item.from) && !is_replaced(item.group, group, item.from));
    if changes && !dead {
        let at = |job: &Job| job.lasts() && job.items.iter().any(|one| one.holds(item.group));
        return Some(turn_of(state.jobs.iter().find(|(_, job)| at(job)).map(|(&id, _)| id)));
    }
    let other = |mut ids: Vec<u32>| {
        ids.retain(|id| *id != 0);
        Some(turn_of(ids.first().copied()))
    };
    for target in [item.from, item.to] {
        let of = running.iter().filter(|(_, one)| one.from == target || one.to == target);
        let of: Vec<u32> = of.map(|(id, _)| *id).collect();
        if of.len() >= TARGET_MOVES_MAX {
            return other(of);
        }
    }
    match running.len() >= MOVES_MAX {
        true => other(running.iter().map(|(id, _)| *id).collect()),
        false => None,
    }
}

/// Why an item waits for others: those of another job, or of its own.
fn turn_of(job: Option<u32>) -> String {
    job.map(|id| format!("waits for job {id}")).unwrap_or_default()
}

/// Why a member cannot enter now: nobody is there who could make it equal.
pub(crate) fn not_yet(
    state: &State,
    facts: &Facts,
    job: &Job,
    item: &Item,
    to: u32,
) -> Option<String> {
    let group = state.groups.get(&item.group)?;
    let first = *group.in_sync.first()?;
    match facts.is_lost(group, &job.going()) {
        // What was never used when it was planned may have been since, and who answered then may restart.
        true if !(job.lose_data && item.lost || group.never_used) => Some(format!(
            "{} alone has everything, and does not answer; start its server, or cancel this job and give \
             it up with --lose-data",
            name_of(state, first)
        )),
        true => loss::leftover(state, facts, item.group, item.from, to),
        false => (!facts.serves(first)).then(|| {
            format!("{}, which has everything, is away; start its server", name_of(state, first))
        }),
    }
}
