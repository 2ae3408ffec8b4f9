use super::*;
use crate::groups::prepare;
use crate::testing::{all_serve, cluster};
use std::collections::BTreeSet;
use strake_base::random::SplitMix64;

/// As it is meant, with everything gone through for each item.
fn plainly(state: &State, facts: &Facts, own: &Job, item: &Item) -> Option<String> {
    let group = state.groups.get(&item.group)?;
    let is_done =
        |one: &Item| state.groups.get(&one.group).is_some_and(|g| g.in_sync.contains(&one.to));
    let all = state.jobs.iter().map(|(&id, job)| (id, job)).chain(Some((0, own)));
    let running: Vec<(u32, &Item)> = all
        .filter(|(_, job)| job.is(JobState::Running))
        .flat_map(|(id, job)| job.items.iter().map(move |one| (id, one)))
        .filter(|(_, one)| one.is(JobState::Running) && one.from != 0 && !is_done(one))
        .collect();
    let first = |found: Vec<u32>| Some(turn_of(found.into_iter().find(|id| *id != 0)));
    let dead = facts.is_gone(item.from)
        && (facts.is_lost(group, &own.going())
            || !group.in_sync.contains(&item.from) && !is_replaced(item.group, group, item.from));
    if !(group.leaving.is_empty() && group.joining.is_empty() || dead) {
        let changes = |one: &Item| one.group == item.group && one.is(JobState::Running);
        let mut jobs = state.jobs.iter();
        let found = jobs.find(|(_, job)| job.lasts() && job.items.iter().any(changes));
        return Some(turn_of(found.map(|(&id, _)| id)));
    }
    for target in [item.from, item.to] {
        let of = running.iter().filter(|(_, one)| one.from == target || one.to == target);
        let of: Vec<u32> = of.map(|(id, _)| *id).collect();
        if of.len() >= TARGET_MOVES_MAX {
            return first(of);
        }
    }
    let all = || running.iter().map(|(id, _)| *id).collect();
    if running.len() >= MOVES_MAX { first(all()) } else { None }
}

fn any_job(random: &mut SplitMix64, groups: &[u32], targets: u64) -> Job {
    let states = [JobState::Waiting, JobState::Running, JobState::Done];
    let item = |random: &mut SplitMix64| Item {
        group: groups[random.below(groups.len() as u64) as usize],
        from: random.below(targets + 1) as u32,
        to: 1 + random.below(targets) as u32,
        state: states[random.below(3) as usize] as u32,
        ..Item::default()
    };
    let items = (0..random.below(12)).map(|_| item(random)).collect();
    let states = [JobState::Running, JobState::Running, JobState::Paused, JobState::Done];
    Job { state: states[random.below(4) as usize] as u32, items, ..Job::default() }
}

#[test]
fn what_is_collected_once_says_the_same_as_what_is_looked_for_each_time() {
    let mut said = BTreeSet::new();
    for seed in 1..300 {
        let mut random = SplitMix64::new(seed);
        let mut state = cluster(&[2, 2, 2]);
        prepare(&mut state, 2).unwrap();
        let mut facts = all_serve(&state, 1);
        for target in 1..=6 {
            if random.below(5) == 0 {
                facts.lives.remove(&target);
            }
        }
        for group in state.groups.values_mut() {
            match random.below(4) {
                0 => group.leaving = group.members[..1].to_vec(),
                1 => group.joining = group.members[..1].to_vec(),
                _ => {}
            }
        }
        let groups: Vec<u32> = state.groups.keys().copied().collect();
        for id in 1..=4 {
            state.jobs.insert(id, any_job(&mut random, &groups, 6));
        }
        let own = any_job(&mut random, &groups, 6);
        let turns = Turns::of(&state, &own);
        for item in &own.items {
            let why = turns.hindrance(&state, &facts, &own, item);
            assert_eq!(why, plainly(&state, &facts, &own, item), "seed {seed}: {item:?}");
            said.insert(why);
        }
    }
    assert!(said.len() > 3, "{said:?}");
}
