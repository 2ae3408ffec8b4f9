//! What a rebalance moves: copies onto different servers, groups to who is in none of so many copies, and what lies on fuller
//! targets to others. Nobody loses the last group of a number of copies but for another one, as no new file would lie there; or
//! where it has no room, so that none does anyway.

use super::{Facts, Loads, Place, empties};
use crate::records::{Group, Item, Job, Target};
use crate::state::State;
use std::cmp::Reverse;
use std::collections::HashSet;
use strake_types::GroupId;
use strake_types::limits::COPIES_MAX;
use strake_wire::message::jobs::JobKind;

/// Of what a move would bring to a target, the part that it has to even out to be worth it.
pub(super) const GAIN_PART: u64 = 16;

/// Moves by which copies come to lie on different servers, each target to be in a group of each class in use, and targets to hold more
/// evenly what there is and what will come, as far as whole groups allow.
pub(crate) fn even_out(state: &State, facts: &Facts) -> Vec<Item> {
    let mut loads = Loads::of(state, facts);
    let mut taken: HashSet<u32> =
        state.groups.iter().filter(|(_, g)| !g.leaving.is_empty()).map(|(&id, _)| id).collect();
    let mut items = Vec::new();
    for (&id, group) in state.groups.iter().filter(|(id, _)| !taken.contains(id)) {
        let item = spread(state, facts, &loads, id, group);
        item.iter().for_each(|item| loads.moved(item));
        items.extend(item);
    }
    taken.extend(items.iter().map(|item| item.group));
    let mut bare = None;
    loop {
        let before = items.len();
        let mut stuck = HashSet::new();
        while let Some(item) = next_move(state, facts, &loads, &taken, bare, &mut stuck) {
            loads.moved(&item);
            let (copies, from) = (GroupId(item.group).copies(), item.from);
            bare = (loads.places(copies, from) == 0).then_some((copies, from));
            taken.insert(item.group);
            items.push(item);
        }
        // Who found no group may find one with others, which are in more by now.
        if stuck.is_empty() || items.len() == before {
            break;
        }
    }
    items.extend(empties::spread(state, facts, &loads, &items));
    items
}

/// Who will be in no group of a class although it could, when these moves are done: the number of copies, and the target. Nobody while
/// others are being emptied, groups move or are made equal, or somebody is away that stays: there may be one to give in a moment, and
/// one that is begun stays for good.
pub(crate) fn left_out(state: &State, facts: &Facts, items: &[Item]) -> Vec<(u32, u32)> {
    let is_emptying = |job: &Job| {
        job.lasts() && matches!(JobKind::of(job.kind), Some(JobKind::Drain | JobKind::Replace))
    };
    let is_away = |(id, target): (&u32, &Target)| !target.drains && !facts.serves(*id);
    let changes =
        |group: &Group| !group.leaving.is_empty() || group.in_sync.len() < group.members.len();
    if state.jobs.values().any(is_emptying)
        || state.targets.iter().any(is_away)
        || state.groups.values().any(changes)
    {
        return Vec::new();
    }
    let mut loads = Loads::of(state, facts);
    items.iter().for_each(|item| loads.moved(item));
    lacking(state, facts, &loads)
}

/// True if a target can lose and take groups.
fn is_able(state: &State, facts: &Facts, id: u32) -> bool {
    facts.serves(id) && state.targets.get(&id).is_some_and(|target| !target.drains)
}

/// Targets with room for new files that are in no group of a class in use, behind the number of copies.
fn lacking(state: &State, facts: &Facts, loads: &Loads) -> Vec<(u32, u32)> {
    let takes = |id: &u32| is_able(state, facts, *id) && loads.has_room(facts, *id);
    let takers: Vec<u32> = state.targets.keys().copied().filter(takes).collect();
    let is_used = |copies: &u32| state.groups.contains_key(&GroupId::of_class(*copies, 0).0);
    let mut lacking = Vec::new();
    for copies in (1..=COPIES_MAX).filter(is_used) {
        let without = takers.iter().filter(|id| loads.places(copies, **id) == 0);
        lacking.extend(without.map(|id| (copies, *id)));
    }
    lacking
}

/// The move that brings copies which lie on one server onto two.
fn spread(state: &State, facts: &Facts, loads: &Loads, id: u32, group: &Group) -> Option<Item> {
    let server = |member: &u32| state.server_of(*member);
    let twice = |(at, member): (usize, &u32)| {
        group.members[..at].iter().any(|other| server(other) == server(member)).then_some(*member)
    };
    let from = group.members.iter().enumerate().find_map(twice)?;
    let bytes = facts.bytes_of(id, group);
    let able = |(to, target): &(&u32, &Target)| {
        let near = group.members.iter().any(|member| server(member) == Some(target.server));
        facts.serves(**to) && !target.drains && !near && loads.fits(facts, **to, bytes)
    };
    let able = state.targets.iter().filter(able).map(|(&to, _)| to);
    let to = able.min_by_key(|to| (loads.rank(id, *to, bytes), *to))?;
    Some(Item { group: id, from, to, bytes, ..Item::default() })
}

/// A move to a target that is in no group of a class, first of all to the one that has just given its only one (`bare`), else the move
/// that evens out most. Who finds none is `stuck`, and not asked again.
fn next_move(
    state: &State,
    facts: &Facts,
    loads: &Loads,
    taken: &HashSet<u32>,
    bare: Option<(u32, u32)>,
    stuck: &mut HashSet<(u32, u32)>,
) -> Option<Item> {
    for (copies, to) in bare.into_iter().chain(lacking(state, facts, loads)) {
        if stuck.contains(&(copies, to)) {
            continue;
        }
        let item = smallest_for(state, facts, loads, taken, copies, to);
        if item.is_some() {
            return item;
        }
        stuck.insert((copies, to));
    }
    best_move(state, facts, loads, taken)
}

/// The move of the smallest group of a class for which a target has room, from the fullest that is in another one. What nothing is in
/// needs none.
fn smallest_for(
    state: &State,
    facts: &Facts,
    loads: &Loads,
    taken: &HashSet<u32>,
    copies: u32,
    to: u32,
) -> Option<Item> {
    #[cfg(test)]
    SEARCHES.with(|searches| searches.set(searches.get() + 1));
    let class = GroupId::of_class(copies, 0).0..GroupId::of_class(copies + 1, 0).0;
    let mut moves = Vec::new();
    for (&id, group) in state.groups.range(class).filter(|(id, _)| !taken.contains(id)) {
        let bytes = facts.bytes_of(id, group);
        let unfit = group.members.contains(&to) || facts.is_uncounted(id, group);
        if unfit || bytes > 0 && !loads.fits(facts, to, bytes) {
            continue;
        }
        let gives = |from: &u32| {
            let members = group.without(*from);
            let place = Place { id, members: &members, from: *from };
            is_able(state, facts, *from)
                && loads.places(copies, *from) > 1
                && !place.brings_together(state, to)
        };
        let givers = group.in_sync.iter().copied().filter(gives);
        moves.extend(givers.map(|from| Item { group: id, from, to, bytes, ..Item::default() }));
    }
    moves.into_iter().min_by_key(|item| (item.bytes, Reverse(loads.fill_now(item.from))))
}

/// The move from the fullest target that evens out most; each group is moved once at most.
pub(super) fn best_move(
    state: &State,
    facts: &Facts,
    loads: &Loads,
    taken: &HashSet<u32>,
) -> Option<Item> {
    let able = |id: &u32| is_able(state, facts, *id);
    // The emptiest first: for most groups it is the one.
    let mut by_fill: Vec<u32> = state.targets.keys().copied().filter(able).collect();
    by_fill.sort_by_cached_key(|&id| (loads.fill_now(id), id));
    let swappers = swappers(state, facts, taken, &by_fill);
    let mut best: Option<(u64, Item)> = None;
    for (&id, group) in state.groups.iter().filter(|(id, _)| !taken.contains(id)) {
        let (copies, bytes) = (GroupId(id).copies(), facts.bytes_of(id, group));
        for from in group.in_sync.iter().copied().filter(|from| bytes > 0 && able(from)) {
            let members = group.without(from);
            let place = Place { id, members: &members, from };
            let takes = |to: &u32| {
                let apart = !group.members.contains(to) && !place.brings_together(state, *to);
                apart && loads.fits(facts, *to, bytes)
            };
            let takers: &[u32] = match loads.places(copies, from) {
                // Who has no room is left out by new files already, and what it gives finds none there afterwards: it never comes back.
                ..2 if loads.fits(facts, from, 0) => {
                    swappers.get(copies as usize).map(Vec::as_slice).unwrap_or_default()
                }
                _ => &by_fill,
            };
            let Some((to, filled)) = least_filled(loads, takers, bytes, takes) else { continue };
            // What the fuller of the two has less afterwards.
            let left = loads.bytes(from).saturating_sub(bytes);
            let after = loads.fill(from, left).max(filled);
            let gain = loads.fill_now(from).saturating_sub(after);
            if gain > (filled - loads.fill_now(to)) / GAIN_PART
                && best.as_ref().is_none_or(|(most, _)| gain > *most)
            {
                best = Some((gain, Item { group: id, from, to, bytes, ..Item::default() }));
            }
        }
    }
    best.map(|(_, item)| item)
}

/// Those of some targets that can give a group in which nothing is for the only one that another target is in: by the number of copies.
fn swappers(state: &State, facts: &Facts, taken: &HashSet<u32>, targets: &[u32]) -> Vec<Vec<u32>> {
    let mut have: HashSet<(u32, u32)> = HashSet::new();
    for (&id, group) in state.groups.iter().filter(|(id, _)| !taken.contains(id)) {
        if facts.is_empty(id, group) {
            have.extend(group.in_sync.iter().map(|&member| (GroupId(id).copies(), member)));
        }
    }
    let of_class = |copies: u32| -> Vec<u32> {
        targets.iter().copied().filter(|id| have.contains(&(copies, *id))).collect()
    };
    (0..=COPIES_MAX).map(of_class).collect()
}

/// Who of those that come the emptiest first takes so many bytes and is least full with them, and how full.
fn least_filled(
    loads: &Loads,
    by_fill: &[u32],
    bytes: u64,
    takes: impl Fn(&u32) -> bool,
) -> Option<(u32, u64)> {
    let mut best: Option<(u32, u64)> = None;
    for &to in by_fill {
        if best.is_some_and(|(_, least)| loads.fill_now(to) >= least) {
            break;
        }
        let filled = loads.fill_with(to, bytes);
        if best.is_none_or(|(_, least)| filled < least) && takes(&to) {
            best = Some((to, filled));
        }
    }
    best
}

#[cfg(test)]
thread_local! {
    /// How often a group was looked for that a target can get.
    pub(super) static SEARCHES: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}
