//! What every member does: apply, settle, answer reads, keep leases and promises, adopt epochs.
//!
//! Time is not measured. A lease is a token, and who granted or promised it may see it expired only when
//! its holder has; that is all that clocks with a bounded drift are there for. A lease runs as long as
//! possible here: it ends in the very step that needs its end. One that ends earlier lets its holder do
//! less and nobody else more.

use super::ids::{Epoch, Members};
use super::primary;
use super::rules::{Broken, Rules};
use super::state::{Group, Kind, Lease, Mark, Member, State};

/// A member begins to act in a later epoch.
pub fn adopt(rules: &Rules, state: &mut State, member: usize, epoch: Epoch) -> Option<()> {
    let group = *state.group(epoch);
    let newest = state.manager.epoch;
    let other = &mut state.members[member];
    if !other.alive || epoch <= other.epoch || epoch > newest {
        return None;
    }
    other.epoch = epoch;
    other.applied = 0;
    if !group.in_sync.has(member) {
        other.lease = Lease::No;
    }
    state.end_promised(member);
    if state.history.takes_effect(member) {
        let (value, pending) = (state.members[member].contents.value, state.pending());
        state.history.refounded(value, &pending);
    }
    primary::begin(rules, state, member)
}

/// A new primary tells an in-sync member the epoch, and is told what is unsettled there.
pub fn tell(rules: &Rules, state: &mut State, primary: usize, member: usize) -> Option<()> {
    let acting = state.members[primary];
    let others = if state.leads(primary) && !acting.primary.ready && acting.primary.op.is_none() {
        state.group(acting.epoch).in_sync.without(primary)
    } else {
        Members::default()
    };
    if !others.minus(acting.primary.asked).has(member) || !state.members[member].alive {
        return None;
    }
    if state.members[member].epoch != acting.epoch {
        adopt(rules, state, member, acting.epoch)?;
    }
    primary::told(rules, state, primary, member)
}

/// A forward arrives at a member, perhaps not for the first time.
pub fn apply(rules: &Rules, state: &mut State, member: usize, slot: usize) -> Option<()> {
    let forward = state.network.forwards[slot].filter(|forward| forward.to.has(member))?;
    let other = &mut state.members[member];
    let same = other.epoch == forward.epoch || rules.without(Broken::EpochCheck);
    if !other.alive || !same {
        return None;
    }
    let again = rules.without(Broken::CopiesNumbered) && forward.kind == Kind::Resync;
    if other.applied & (1 << forward.number) == 0 || again {
        other.applied |= 1 << forward.number;
        other.contents = primary::after(rules, other, &forward);
        other.unsettled = Some(Mark { epoch: forward.epoch, number: forward.number });
        if forward.kind == Kind::Resync && !rules.without(Broken::ResyncSyncs) {
            other.disk = other.contents.value;
        }
    }
    primary::replied(state, &forward, member);
    Some(())
}

/// A member hears up to which number of its epoch all is settled.
pub fn settle(state: &mut State, member: usize) -> Option<()> {
    let settled = state.network.settled;
    let other = &mut state.members[member];
    other.unsettled?;
    primary::settle(other, settled[usize::from(other.epoch)]);
    Some(())
}

/// Whether a member answers a read now, and so with what it has.
pub fn serves(rules: &Rules, state: &State, member: usize) -> bool {
    let other = &state.members[member];
    let group = state.group(other.epoch);
    let leased = group.in_sync.has(member) && primary::leased(rules, state, member);
    let joins = rules.without(Broken::JoiningServesNothing) && group.joining.has(member);
    let still = if state.leads(member) {
        let writes = other.primary.op.is_some_and(|op| op.kind != Kind::Resync);
        other.primary.ready && (!writes || rules.without(Broken::UnsettledRefusesReads))
    } else {
        other.unsettled.is_none_or(|mark| is_everywhere(rules, other.epoch, group, mark))
            || rules.without(Broken::UnsettledRefusesReads)
    };
    other.alive && (leased || joins) && still
}

/// Whether a change that a member got from the primary of its epoch is at all that count: the primary
/// makes it first, so where the two are the only ones and nobody joins, it is.
fn is_everywhere(rules: &Rules, epoch: Epoch, group: &Group, mark: Mark) -> bool {
    let pair = group.in_sync.iter().count() == 2;
    let alone = group.joining.is_empty() || rules.without(Broken::PairAlone);
    let ours = mark.epoch == epoch || rules.without(Broken::PairOfOneEpoch);
    pair && alone && ours
}

/// Somebody reads from a member.
pub fn read(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    if !serves(rules, state, member) {
        return None;
    }
    let pending = state.pending();
    state.history.read(state.members[member].contents.value, &pending);
    Some(())
}

/// All that count as in sync beside it promise a member not to act without it, where they can.
pub fn promise(rules: &Rules, state: &mut State, member: usize) {
    let asker = state.members[member];
    let counted = state.group(asker.epoch).in_sync;
    let others = counted.or(asker.primary.reported).without(member);
    let gives = |other: usize| {
        let other = &state.members[other];
        // Of whom it has reported the asker does not know, and does not ask.
        let reported =
            !other.primary.reported.is_empty() && !rules.without(Broken::NoPromiseAfterReport);
        other.alive && other.epoch == asker.epoch && !reported
    };
    let asks =
        rules.promises && asker.alive && !asker.promised && asker.epoch > 0 && counted.has(member);
    if !asks || others.is_empty() || !others.iter().all(gives) {
        return;
    }
    for other in others.iter() {
        let promises = &mut state.members[other].promises;
        *promises = promises.with(member);
    }
    state.members[member].promised = true;
}

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The process dies; the machine keeps what it was given.
    Process,
    /// Power is lost, and with it all that was not synced.
    Power,
    /// Power is lost just after the machine has written everything by itself.
    PowerAfterFlush,
}

/// A server stops, and forgets what was in its memory; with a loss of power also what was not
/// on its disk.
pub fn crash(rules: &Rules, state: &mut State, member: usize, stop: Stop) -> Option<()> {
    let power = stop != Stop::Process;
    if !state.members[member].alive || state.crashes == 0 || power && state.power_losses == 0 {
        return None;
    }
    state.crashes -= 1;
    state.power_losses -= u8::from(power);
    state.end_promised(member);
    let before = state.members[member];
    let mut after = Member { disk: before.disk, ..Default::default() };
    match stop {
        Stop::Process => after.contents.value = before.contents.value,
        Stop::Power => after.contents.value = before.disk,
        Stop::PowerAfterFlush => {
            after.contents.value = before.contents.value;
            after.disk = before.contents.value;
        }
    }
    after.rebooted = before.rebooted || power;
    if !rules.without(Broken::PromisesOutliveRestart) {
        // A server that has started waits for a lease time before it acts: what it may have promised
        // before is over then.
        after.promises = before.promises;
    }
    state.members[member] = after;
    Some(())
}
