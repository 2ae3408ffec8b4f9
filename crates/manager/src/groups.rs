//! Groups of several copies: which there are, and which of their members are in sync.
//!
//! Everything here decides on a [`State`] and what is known of the targets at a moment. Each change of
//! a group is the next epoch of that group: whoever acts in an older one is refused by its members.
//! Nobody comes to be in sync but by [`resynced`], in the very epoch in which it was made equal;
//! nobody is taken out who could be the last, and [`returned`] leaves one member at most where none
//! is known to live. `docs/design/0040-replication.md` says why. Groups of one copy never change.

use crate::records::Group;
use crate::state::State;
use std::collections::{BTreeMap, HashSet};
use strake_types::layout::GroupTables;
use strake_types::limits::COPIES_MAX;
use strake_types::{Error, ErrorKind, GroupId, Result};
use strake_wire::message::manager::Resynced;

/// What is known of a target at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It serves, and said so a moment ago.
    Serves,
    /// Its lease may last; no more is known.
    Quiet,
    /// Its lease is over, or its server says that it is gone.
    Gone,
}

/// What is known of a target since a server of its groups came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// It was heard from.
    Lives,
    /// Nothing yet.
    Unknown,
    /// It said that it is gone, or was silent for a lease.
    Gone,
}

/// A server that came back, and what it has forgotten.
pub(crate) struct Return<'a> {
    /// Targets it brings.
    pub targets: &'a [u32],
    /// All targets that are its own, brought or not.
    pub own: HashSet<u32>,
    /// Those it brings of which it is not sure that their host went on since they came last.
    pub rebooted: HashSet<u32>,
}

/// Sees to it that every target leads a group of so many copies.
pub(crate) fn prepare(state: &mut State, copies: u32) -> Result<()> {
    let invalid = |detail: String| Err(Error::with(ErrorKind::Invalid, detail));
    if !(1..=COPIES_MAX).contains(&copies) {
        return invalid(format!("{copies} copies; 1 to {COPIES_MAX} are possible"));
    }
    let targets = state.targets.len();
    if targets < copies as usize {
        return invalid(format!(
            "{copies} copies need {copies} targets, and the cluster has {targets}; add a server \
             (strake server --join ADDR --data DIR), or a --data to one there is"
        ));
    }
    extend_class(state, copies);
    Ok(())
}

/// Targets that are new lead a group of every class that is in use.
pub(crate) fn extend(state: &mut State) {
    let tables = tables(state);
    for copies in (2..=COPIES_MAX).filter(|&copies| tables.size(copies) > 0) {
        extend_class(state, copies);
    }
}

/// The number of the next group of one copy.
pub(crate) fn next_single(state: &State) -> GroupId {
    GroupId::of_class(1, tables(state).size(1))
}

fn tables(state: &State) -> GroupTables {
    GroupTables::of(state.groups.keys().map(|&id| GroupId(id)))
}

/// Targets ascend and are never removed, so the one at a place leads the group with that ordinal.
fn extend_class(state: &mut State, copies: u32) {
    if copies < 2 {
        return;
    }
    let size = tables(state).size(copies);
    let mut loads: BTreeMap<u32, usize> = state.targets.keys().map(|&id| (id, 0)).collect();
    for member in state.groups.values().flat_map(|group| &group.members) {
        *loads.entry(*member).or_default() += 1;
    }
    let leaders: Vec<u32> = state.targets.keys().copied().skip(size as usize).collect();
    for (ordinal, leader) in (size..).zip(leaders) {
        let members = choose(state, &loads, leader, copies);
        for member in &members {
            *loads.entry(*member).or_default() += 1;
        }
        let id = GroupId::of_class(copies, ordinal).0;
        let in_sync = members.clone();
        let group = Group { epoch: 1, members, in_sync, joining: Vec::new(), losses: 0 };
        state.groups.insert(id, group);
    }
}

/// The members of a new group: on other servers where there are enough, those with the fewest groups
/// first.
fn choose(state: &State, loads: &BTreeMap<u32, usize>, leader: u32, copies: u32) -> Vec<u32> {
    let server_of = |target: u32| state.targets.get(&target).map(|target| target.server);
    let mut members = vec![leader];
    while members.len() < copies as usize {
        let used: HashSet<_> = members.iter().map(|&member| server_of(member)).collect();
        let others = loads.iter().filter(|(target, _)| !members.contains(target));
        let best =
            others.min_by_key(|&(&target, load)| (used.contains(&server_of(target)), load, target));
        match best {
            Some((&target, _)) => members.push(target),
            None => break,
        }
    }
    members
}

/// Takes out who is gone, and lets join who is back. `pauses` says which member of which group failed
/// to be made equal a moment ago.
pub(crate) fn settle(
    state: &mut State,
    life: impl Fn(u32) -> Life,
    pauses: impl Fn(u32, u32) -> bool,
) {
    for (&id, group) in &mut state.groups {
        if let Some(next) = settled(group, &life, |member| pauses(id, member)) {
            log_change(id, group, &next);
            *group = next;
        }
    }
}

/// True if [`settle`] would change nothing.
pub(crate) fn is_settled(
    state: &State,
    life: impl Fn(u32) -> Life,
    pauses: impl Fn(u32, u32) -> bool,
) -> bool {
    let mut groups = state.groups.iter();
    groups.all(|(&id, group)| settled(group, &life, |member| pauses(id, member)).is_none())
}

/// What a group becomes, if another.
fn settled(
    group: &Group,
    life: &impl Fn(u32) -> Life,
    pauses: impl Fn(u32) -> bool,
) -> Option<Group> {
    if group.members.len() < 2 {
        return None;
    }
    let serves = |member: &u32| life(*member) == Life::Serves;
    let here = |member: &u32| life(*member) != Life::Gone;
    // Only beside one that was heard a moment ago: of several that lose their power together, the one
    // whose lease ends last must not be left as the only one to know everything.
    let safe = group.in_sync.iter().any(serves);
    let stays = |member: &u32| group.in_sync.contains(member) && (!safe || here(member));
    let in_sync: Vec<u32> = group.members.iter().copied().filter(stays).collect();
    let led = in_sync.first().is_some_and(serves);
    let joins = |member: &u32| {
        let known = group.joining.contains(member);
        !in_sync.contains(member)
            && (known && here(member) || led && serves(member) && !pauses(*member))
    };
    let joining: Vec<u32> = group.members.iter().copied().filter(joins).collect();
    let next = Group { in_sync, joining, ..group.clone() };
    (next != *group).then(|| Group { epoch: group.epoch + 1, ..next })
}

/// A server has come back and knows nothing of what was under way. Fails with `Busy` while it is not
/// known whether somebody else goes on with a group.
pub(crate) fn returned(
    state: &mut State,
    back: &Return<'_>,
    since: impl Fn(u32) -> Since,
) -> Result<()> {
    for (&id, group) in &mut state.groups {
        if let Some(next) = after_return(id, group, back, &since)? {
            let next = Group { epoch: group.epoch + 1, ..next };
            log_change(id, group, &next);
            *group = next;
        }
    }
    Ok(())
}

/// What a group becomes, `None` if the same. Where one returns that was in sync, a new epoch begins
/// even if it stays so: it has forgotten what it did in this one.
fn after_return(
    id: u32,
    group: &Group,
    back: &Return<'_>,
    since: &impl Fn(u32) -> Since,
) -> Result<Option<Group>> {
    if group.members.len() < 2 {
        return Ok(None);
    }
    let brought = |member: &u32| back.targets.contains(member);
    let mut next = group.clone();
    next.joining.retain(|member| !brought(member));
    let Some(&first) = group.in_sync.iter().find(|member| brought(member)) else {
        return Ok((next != *group).then_some(next));
    };
    let others = group.in_sync.iter().filter(|member| !back.own.contains(member));
    let others: Vec<_> = others.map(|&member| (member, since(member))).collect();
    let unknown = others.iter().find(|(_, since)| *since == Since::Unknown);
    match (others.iter().any(|(_, since)| *since == Since::Lives), unknown) {
        (true, _) => next.in_sync.retain(|member| !brought(member)),
        (false, Some((member, _))) => {
            let detail = format!(
                "group {id}: target {member} has what target {first} has, and may live; ask again, \
                 it is known within a lease"
            );
            return Err(Error::with(ErrorKind::Busy, detail));
        }
        (false, None) => {
            next.in_sync = vec![first];
            next.losses += u64::from(back.rebooted.contains(&first));
        }
    }
    Ok(Some(next))
}

/// True if a report is about a group as it is now.
pub(crate) fn is_current(state: &State, report: &Resynced) -> bool {
    let Some(group) = state.groups.get(&report.group) else { return false };
    // One in sync that could not take a change answers nobody any more in that epoch.
    let resigned = report.failed && group.in_sync.iter().skip(1).any(|m| *m == report.member);
    group.epoch == report.epoch && (resigned || group.joining.contains(&report.member))
}

/// A member has been made equal, or could not be. What is said of another epoch than the present
/// one changes nothing.
pub(crate) fn resynced(state: &mut State, report: &Resynced) -> Result<()> {
    if !state.groups.contains_key(&report.group) {
        let detail = format!("group {} is not in the cluster", report.group);
        return Err(Error::with(ErrorKind::NotFound, detail));
    }
    if !is_current(state, report) {
        return Ok(());
    }
    if let Some(group) = state.groups.get_mut(&report.group) {
        let mut next = Group { epoch: group.epoch + 1, ..group.clone() };
        next.joining.retain(|&member| member != report.member);
        if report.failed {
            next.in_sync.retain(|&member| member != report.member);
        } else {
            let joins = |member: &u32| group.in_sync.contains(member) || *member == report.member;
            next.in_sync = group.members.iter().copied().filter(joins).collect();
        }
        log_change(report.group, group, &next);
        *group = next;
    }
    Ok(())
}

fn log_change(id: u32, old: &Group, new: &Group) {
    let Group { epoch, in_sync, joining, .. } = new;
    if new.losses != old.losses {
        tracing::warn!(
            "group {id}: all its members were away, and the host of target {in_sync:?} has stopped \
             meanwhile: what was written and not synced may be lost"
        );
    }
    tracing::info!("group {id} epoch {epoch}: in sync {in_sync:?}, joining {joining:?}");
}

#[cfg(test)]
mod tests;
