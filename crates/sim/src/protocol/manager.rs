//! What the manager does: grant leases, and make epochs.
//!
//! Left out: its own restart, in whose first lease time it takes nobody out and lets Joins wait that
//! it cannot judge; members that leave in good order, which are stops as all others here. Other managers
//! may come to lead ([`Rules::managers`]): what the one before has decided is stored, and of the leases
//! that it gave the next one knows as much as it was told. That no two answer at once is taken for granted.

use super::ids::{Epoch, Members};
use super::member;
use super::rules::{Broken, Rules};
use super::state::{Group, Lease, State};

/// Makes the next epoch.
fn advance(rules: &Rules, state: &mut State, group: Group) -> Option<()> {
    if state.manager.epoch == rules.epochs {
        return None;
    }
    state.manager.epoch += 1;
    state.manager.groups[usize::from(state.manager.epoch)] = Group { failed_over: false, ..group };
    state.manager.reports = Members::default();
    Some(())
}

/// A member learns of an epoch. News may be late.
pub fn learn(rules: &Rules, state: &mut State, member: usize, epoch: Epoch) -> Option<()> {
    // One that has just started knows nothing older than its Join.
    if state.members[member].epoch == 0 && epoch != state.manager.epoch {
        return None;
    }
    member::adopt(rules, state, member, epoch)
}

/// Gives every lease that may be given, after each step. No step waits for somebody to have none, and
/// one that may not be while a lease runs ends it itself: so a member with a lease does all that one
/// without does, and leases need no steps of their own.
pub fn allow(rules: &Rules, state: &mut State) {
    for member in 0..rules.members {
        grant(rules, state, member);
        member::promise(rules, state, member);
    }
}

/// A heartbeat is answered: with the epoch, and so with a lease for it.
fn grant(rules: &Rules, state: &mut State, member: usize) {
    let holder = state.members[member];
    let knows = holder.epoch == state.manager.epoch || rules.without(Broken::LeaseTellsEpoch);
    let serves = holder.alive && state.group(holder.epoch).in_sync.has(member);
    if !knows || !serves || holder.lease != Lease::No {
        return;
    }
    let manager = &mut state.manager;
    let own = rules.managers > 1 && usize::from(manager.at) == member;
    state.members[member].lease = if own { Lease::Led } else { Lease::Short };
    manager.ended = manager.ended.without(member);
    if !rules.without(Broken::AnsweredHaveNotEnded) {
        manager.says_ended = manager.ended;
    }
}

/// Whether another manager may come to lead.
pub fn may_be_followed(rules: &Rules, state: &State) -> bool {
    usize::from(state.manager.followed) + 1 < rules.managers
}

/// A heartbeat asks for a long lease. Those that follow are told before it is given.
pub fn ask(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    let holder = state.members[member];
    let asks = holder.epoch == state.manager.epoch && holder.lease == Lease::Short;
    // One that is followed by nobody knows what it gives itself.
    if !asks || !may_be_followed(rules, state) {
        return None;
    }
    state.members[member].lease = Lease::Long;
    state.manager.says_long = !rules.without(Broken::LongLeasesAreSaidFirst);
    Some(())
}

/// The manager of another server leads. What the one before it has allowed its own server is over by then,
/// which those that follow are told, unless others have allowed that server something that lasts.
pub fn follow(rules: &Rules, state: &mut State, next: usize) -> Option<()> {
    let before = usize::from(state.manager.at);
    if !may_be_followed(rules, state) || next == before {
        return None;
    }
    let own = &mut state.members[before];
    if own.lease == Lease::Led && !rules.without(Broken::OwnLeasesEndWithLead) {
        own.lease = Lease::No;
    }
    let has_none = own.lease == Lease::No;
    let manager = &mut state.manager;
    manager.at = next as u8;
    manager.followed += 1;
    if has_none {
        manager.says_ended = manager.says_ended.with(before);
    }
    manager.says_ended = manager.says_ended.without(next);
    manager.ended = manager.says_ended;
    Some(())
}

/// The manager has waited until a member's lease is over, if it knows that there may be one.
fn end_lease(state: &mut State, member: usize) {
    let manager = &state.manager;
    let knows = match state.members[member].lease {
        _ if manager.ended.has(member) => false,
        Lease::No | Lease::Short => true,
        Lease::Long => manager.followed == 0 || manager.says_long,
        Lease::Led => usize::from(manager.at) == member,
    };
    if knows {
        state.members[member].lease = Lease::No;
    }
}

/// A member is taken out, for its lease is over, and `next` leads then. Never the last one.
pub fn take_out(rules: &Rules, state: &mut State, member: usize, next: usize) -> Option<()> {
    let group = *state.newest();
    if !group.in_sync.has(member) || !group.leaders_without(member).has(next) {
        return None;
    }
    if !rules.without(Broken::TakeOutAfterLease) {
        end_lease(state, member);
    }
    let in_sync = group.in_sync.without(member);
    advance(rules, state, Group { in_sync, lead: next as u8, ..group })?;
    let next = &mut state.manager.groups[usize::from(state.manager.epoch)];
    next.failed_over = group.primary() == Some(member);
    Some(())
}

/// A member that is alive and not in sync is to join.
pub fn admit(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    let group = *state.newest();
    let stands = group.in_sync.or(group.joining).has(member);
    if stands || !state.members[member].alive || member >= rules.members {
        return None;
    }
    advance(rules, state, Group { joining: group.joining.with(member), ..group })
}

/// The primary's report of an equal member arrives.
pub fn accept(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    if !state.manager.reports.has(member) {
        return None;
    }
    let group = *state.newest();
    let in_sync = group.in_sync.with(member);
    advance(rules, state, Group { in_sync, joining: group.joining.without(member), ..group })
}

/// Another member in sync becomes the primary, while all go on.
pub fn hand_over(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    let group = *state.newest();
    if !group.in_sync.has(member) || group.primary() == Some(member) {
        return None;
    }
    advance(rules, state, Group { lead: member as u8, ..group })
}

/// The primary tells that a joining member has failed: it begins anew in another epoch.
pub fn drop_failed(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    let group = *state.newest();
    let acting = &state.members[group.primary()?];
    let tells = acting.alive && acting.epoch == state.manager.epoch;
    if !tells || !acting.primary.failed.has(member) {
        return None;
    }
    advance(rules, state, Group { joining: group.joining.without(member), ..group })
}

/// A server that has started joins. `next` leads then if the manager believes that other in-sync members
/// live; that all are dead it believes only when their leases are over.
pub fn join(rules: &Rules, state: &mut State, member: usize, next: Option<usize>) -> Option<()> {
    if state.members[member].alive || member >= rules.members {
        return None;
    }
    let in_sync = state.newest().in_sync.has(member);
    if !in_sync && next.is_none() {
        return None;
    }
    let lost = std::mem::take(&mut state.members[member].rebooted);
    state.members[member].alive = true;
    restarted(rules, state, member, next, lost)?;
    // A promise of its earlier life may keep it from leading there for a while.
    member::adopt(rules, state, member, state.manager.epoch);
    Some(())
}

/// A copy of a Join arrives once more, and is taken for another restart.
pub fn join_again(rules: &Rules, state: &mut State, member: usize, next: usize) -> Option<()> {
    if !rules.without(Broken::JoinOnce) || !state.members[member].alive {
        return None;
    }
    restarted(rules, state, member, Some(next), false)
}

fn restarted(
    rules: &Rules,
    state: &mut State,
    member: usize,
    next: Option<usize>,
    lost: bool,
) -> Option<()> {
    let group = *state.newest();
    if !group.in_sync.has(member) {
        if !group.joining.has(member) || rules.without(Broken::JoinOfJoining) {
            return Some(());
        }
        return advance(rules, state, group);
    }
    let others = group.in_sync.without(member);
    if let Some(next) = next {
        if !group.leaders_without(member).has(next) {
            return None;
        }
        let (lead, joining) = (next as u8, group.joining.with(member));
        return advance(rules, state, Group { in_sync: others, lead, joining, ..group });
    }
    for other in others.iter().filter(|_| !rules.without(Broken::RefoundOnlyAlone)) {
        end_lease(state, other);
    }
    refound(rules, state, member, lost)
}

/// No in-sync member lives, and this one returns: it alone is in sync now.
fn refound(rules: &Rules, state: &mut State, member: usize, lost: bool) -> Option<()> {
    let group = *state.newest();
    let founded = state.manager.epoch + 1;
    let losses = group.losses + u8::from(lost);
    let (in_sync, lead) = (Members::only(member), member as u8);
    advance(rules, state, Group { in_sync, lead, founded, losses, ..group })?;
    state.history.refounds(member, lost);
    Some(())
}
