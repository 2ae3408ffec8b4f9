//! When an item of a job may begin, and why not yet.

use crate::groups::is_replaced;
use crate::loss;
use crate::plan::{Facts, name_of};
use crate::records::{Item, Job};
use crate::state::State;
use std::collections::HashMap;
use strake_wire::message::jobs::JobState;

/// Moves under way at once, of one target and in all.
pub(crate) const TARGET_MOVES_MAX: usize = 2;
const MOVES_MAX: usize = 16;

/// What is under way beside the items of a job that wait: collected once for all of them, until one of them begins.
pub(crate) struct Turns {
    /// Moves that hold a place: the job of each, 0 for the own one, and the targets that it concerns.
    running: Vec<(u32, [u32; 2])>,
    /// By group, the first other job by which something becomes of it.
    changed_by: HashMap<u32, u32>,
}

impl Turns {
    /// For the items of a job. A paused job holds no place.
    pub fn of(state: &State, own: &Job) -> Self {
        #[cfg(test)]
        COLLECTED.with(|times| times.set(times.get() + 1));
        // Who is equal already moves nothing any more, even if the one that it replaces cannot leave yet.
        let is_done =
            |one: &Item| state.groups.get(&one.group).is_some_and(|g| g.in_sync.contains(&one.to));
        let moves = |one: &&Item| one.is(JobState::Running) && one.from != 0 && !is_done(one);
        let all = state.jobs.iter().map(|(&id, job)| (id, job)).chain(Some((0, own)));
        let mut running = Vec::new();
        for (id, job) in all.filter(|(_, job)| job.is(JobState::Running)) {
            running.extend(job.items.iter().filter(moves).map(|one| (id, [one.from, one.to])));
        }
        let mut changed_by = HashMap::new();
        for (&id, job) in state.jobs.iter().filter(|(_, job)| job.lasts()) {
            for one in job.items.iter().filter(|one| one.is(JobState::Running)) {
                changed_by.entry(one.group).or_insert(id);
            }
        }
        Self { running, changed_by }
    }

    /// Why an item has to wait for its turn: something else moves the group, or many moves concern the same
    /// targets. Nobody waits for who is gone.
    pub fn hindrance(
        &self,
        state: &State,
        facts: &Facts,
        own: &Job,
        item: &Item,
    ) -> Option<String> {
        let group = state.groups.get(&item.group)?;
        let changes = !group.leaving.is_empty() || !group.joining.is_empty();
        // Another job brings somebody in for the very member; nothing may come of that where all is lost.
        let is_dead = || {
            facts.is_gone(item.from)
                && (facts.is_lost(group, &own.going())
                    || !group.in_sync.contains(&item.from)
                        && !is_replaced(item.group, group, item.from))
        };
        if changes && !is_dead() {
            return Some(turn_of(self.changed_by.get(&item.group).copied()));
        }
        let first = |mut ids: Vec<u32>| {
            ids.retain(|id| *id != 0);
            Some(turn_of(ids.first().copied()))
        };
        for target in [item.from, item.to] {
            let of = self.running.iter().filter(|(_, both)| both.contains(&target));
            let of: Vec<u32> = of.map(|(id, _)| *id).collect();
            if of.len() >= TARGET_MOVES_MAX {
                return first(of);
            }
        }
        match self.running.len() >= MOVES_MAX {
            true => first(self.running.iter().map(|(id, _)| *id).collect()),
            false => None,
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How often what is under way was collected.
    pub(crate) static COLLECTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
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

#[cfg(test)]
mod tests;
