//! A plan that was ready when the cluster had changed already, too often to make it anew.

use crate::jobs;
use crate::plan::{Facts, check_heard};
use crate::records::{Item, Job};
use crate::state::State;
use strake_types::Result;
use strake_wire::message::jobs::{JobKind, Plan};

/// Enters a job that was planned of an earlier state; its number and itself. It is refused for what a plan made now would be
/// refused for, except that moves which are planned and do not fit any more, for room or for a copy on the same server, get another
/// target when their turn comes, as those of any job; and that a rebalance, which plans nothing anew, goes by what was counted when
/// it was planned, also where a server has started since and goes through what it holds. What has come to the targets that are
/// emptied is moved, too. That takes little time: nothing that is planned is planned again.
pub(crate) fn enter(
    state: &mut State,
    facts: &Facts,
    has_beaten: impl Fn(u32) -> bool,
    request: &Plan,
    planned: &Job,
) -> Result<(u32, Job)> {
    if JobKind::of(request.kind) != Some(JobKind::Rebalance) {
        check_heard(state, facts, has_beaten, request)?;
    }
    let is_there = |item: &Item| {
        let group = state.groups.get(&item.group);
        group.is_some_and(|group| group.members.contains(&item.from))
    };
    let items = planned.items.iter().filter(|item| is_there(item)).cloned().collect();
    jobs::plan_on(state, facts, request, Some(items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::{Life, prepare};
    use crate::testing::{add_target, all_serve, cluster};
    use std::collections::BTreeSet;
    use strake_types::{ErrorKind, GroupId};

    fn request(kind: JobKind, targets: &[u32]) -> Plan {
        Plan { kind: kind as u32, targets: targets.to_vec(), ..Plan::default() }
    }

    /// A cluster of four targets with two copies, and the job that a request would be there.
    fn planned(request: &Plan) -> (State, Job) {
        let mut state = cluster(&[1; 4]);
        prepare(&mut state, 2).unwrap();
        let facts = all_serve(&state, 10);
        let (_, job) = jobs::plan(&mut state.clone(), &facts, request).unwrap();
        (state, job)
    }

    /// Puts a target into the place of another one in a group, and says in which.
    fn change(state: &mut State, from: u32, to: u32) -> u32 {
        let pair = |(id, group): &(&u32, &mut crate::records::Group)| {
            let (has, had) = (group.members.contains(&from), group.members.contains(&to));
            GroupId(**id).copies() == 2 && has && !had
        };
        let (&id, group) = state.groups.iter_mut().find(pair).unwrap();
        for members in [&mut group.members, &mut group.in_sync] {
            members.iter_mut().filter(|member| **member == from).for_each(|member| *member = to);
        }
        id
    }

    /// The lock that every change needs was held for as long as a plan takes, of which there may be minutes.
    #[test]
    fn a_late_plan_empties_what_its_targets_have_now() {
        let request = request(JobKind::Drain, &[2]);
        let (mut state, job) = planned(&request);
        let (left, came) = (change(&mut state, 2, 4), change(&mut state, 3, 2));
        let facts = all_serve(&state, 10);
        let (id, job) = enter(&mut state, &facts, |_| true, &request, &job).unwrap();
        let moves: BTreeSet<(u32, u32)> = job.items.iter().map(|i| (i.group, i.from)).collect();
        let has = state.groups.iter().filter(|(_, group)| group.members.contains(&2));
        assert_eq!(moves, has.map(|(&group, _)| (group, 2)).collect());
        assert_eq!(moves.len(), job.items.len(), "each once");
        assert!(moves.contains(&(came, 2)) && !moves.contains(&(left, 2)));
        let stays = |item: &crate::records::Item| {
            item.to != 2 && !state.groups[&item.group].members.contains(&item.to)
        };
        assert!(job.items.iter().all(stays), "{:?}", job.items);
        assert!(state.targets[&2].drains && state.jobs.contains_key(&id));
    }

    #[test]
    fn a_late_plan_of_a_server_takes_the_target_that_it_has_got_since() {
        let request = Plan { servers: vec![2], ..request(JobKind::Drain, &[]) };
        let (mut state, job) = planned(&request);
        let new = add_target(&mut state, 2);
        let facts = all_serve(&state, 10);
        let (_, job) = enter(&mut state, &facts, |_| true, &request, &job).unwrap();
        assert_eq!(job.targets, [2, new]);
        assert!(job.items.iter().any(|item| item.from == new));
        assert!(job.items.iter().all(|item| ![2, new].contains(&item.to)), "{:?}", job.items);
    }

    #[test]
    fn a_late_plan_is_refused_for_what_a_new_one_is() {
        let drain = request(JobKind::Drain, &[2]);
        let (mut state, job) = planned(&drain);
        let facts = all_serve(&state, 10);
        enter(&mut state, &facts, |_| true, &drain, &job).unwrap();
        let error = enter(&mut state, &facts, |_| true, &drain, &job).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy, "another job empties it: {error}");

        let (mut state, job) = planned(&drain);
        for id in [3, 4] {
            state.targets.get_mut(&id).unwrap().drains = true;
        }
        let error = enter(&mut state, &facts, |_| true, &drain, &job).unwrap_err();
        assert!(error.detail.contains("1 targets would stay"), "{error}");

        let replace = Plan { to: 3, ..request(JobKind::Replace, &[2]) };
        let (mut state, job) = planned(&replace);
        state.targets.get_mut(&3).unwrap().drains = true;
        let error = enter(&mut state, &facts, |_| true, &replace, &job).unwrap_err();
        assert!(error.detail.contains("is being drained itself"), "{error}");
        state.targets.remove(&2);
        let error = enter(&mut state, &facts, |_| true, &replace, &job).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }

    /// It was entered, and its move waited for a server that is gone, also with `--lose-data`.
    #[test]
    fn a_late_plan_looks_anew_at_what_is_lost() {
        let drain = request(JobKind::Drain, &[2]);
        let (mut state, job) = planned(&drain);
        let mut facts = all_serve(&state, 10);
        facts.lives.insert(2, Life::Gone);
        let error = enter(&mut state, &facts, |_| true, &drain, &job).unwrap_err();
        assert!(error.detail.contains("nobody else has everything of group"), "{error}");

        let drain = Plan { lose_data: true, ..drain };
        let (mut state, job) = planned(&drain);
        assert!(job.items.iter().all(|item| !item.lost));
        let (_, entered) = enter(&mut state, &facts, |_| true, &drain, &job).unwrap();
        let is_only_copy = |id: u32| state.groups[&id].in_sync == [2];
        assert!(entered.items.iter().any(|item| item.lost));
        assert!(entered.items.iter().all(|item| item.lost == is_only_copy(item.group)));
    }

    /// Where a drain puts what has come since is decided by what targets hold now.
    #[test]
    fn a_late_plan_needs_counts_where_something_is_planned_anew() {
        let requests = [request(JobKind::Drain, &[2]), request(JobKind::Rebalance, &[])];
        for (request, is_refused) in requests.into_iter().zip([true, false]) {
            let (mut state, job) = planned(&request);
            let mut facts = all_serve(&state, 10);
            facts.uncounted.insert(3);
            let entered = enter(&mut state, &facts, |_| true, &request, &job);
            assert_eq!(entered.is_err_and(|e| e.kind == ErrorKind::Unavailable), is_refused);
        }
    }

    #[test]
    fn a_late_rebalance_leaves_out_what_has_moved_since_and_begins_no_group() {
        let request = request(JobKind::Rebalance, &[]);
        let mut state = cluster(&[1; 3]);
        prepare(&mut state, 2).unwrap();
        for server in 4..=6 {
            add_target(&mut state, server);
        }
        let mut facts = all_serve(&state, 0);
        facts.held.values_mut().for_each(|bytes| *bytes = 100);
        for target in 4..=6 {
            facts.held.remove(&(target, target - 1));
        }
        let (_, job) = jobs::plan(&mut state.clone(), &facts, &request).unwrap();
        let first = job.items.first().expect("three are empty");
        let (new, groups) = (add_target(&mut state, 7), state.groups.len());
        facts.lives.insert(new, Life::Serves);
        let group = state.groups.get_mut(&first.group).unwrap();
        for members in [&mut group.members, &mut group.in_sync] {
            members.iter_mut().filter(|m| **m == first.from).for_each(|m| *m = first.to);
        }
        let (_, entered) = enter(&mut state, &facts, |_| true, &request, &job).unwrap();
        assert_eq!(entered.items, job.items[1..]);
        assert_eq!(state.groups.len(), groups, "who has come since is in none, and gets none yet");
    }
}
