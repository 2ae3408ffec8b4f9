//! What a primary does: recovery, writes, syncs, and making joining members equal.
//!
//! Every function is one step. It returns `None` where the step cannot be taken now.

use super::history::Violation;
use super::ids::Members;
use super::rules::{Broken, Rules};
use super::state::{Contents, Forward, Kind, Lease, Mark, Member, Op, Phase, Primary, State, Sync};

/// A member begins to act in the epoch that it has just adopted.
pub fn begin(rules: &Rules, state: &mut State, member: usize) -> Option<()> {
    state.members[member].primary = Primary::default();
    if state.leads(member) { recover_when_asked(rules, state, member) } else { Some(()) }
}

/// An in-sync member has told the new primary what it has unsettled.
pub fn told(rules: &Rules, state: &mut State, primary: usize, member: usize) -> Option<()> {
    let unsettled = state.members[member].unsettled.is_some();
    let knows = &mut state.members[primary].primary;
    knows.asked = knows.asked.with(member);
    knows.dirty |= unsettled;
    recover_when_asked(rules, state, primary)
}

/// When all were asked, the primary serves, after it has written its own contents over what is
/// unsettled anywhere.
fn recover_when_asked(rules: &Rules, state: &mut State, primary: usize) -> Option<()> {
    let group = *state.group(state.members[primary].epoch);
    let acting = &mut state.members[primary];
    if !group.in_sync.without(primary).within(acting.primary.asked) {
        return Some(());
    }
    let dirty = acting.primary.dirty || acting.unsettled.is_some();
    acting.primary.asked = Members::default();
    acting.primary.dirty = false;
    if !dirty || rules.without(Broken::Recovery) {
        become_ready(rules, state, primary);
        return Some(());
    }
    if !rules.without(Broken::RecoveryAfterPromises) {
        await_promises(rules, state, primary);
    }
    start(state, primary, Kind::Recovery, group.joining)
}

fn become_ready(rules: &Rules, state: &mut State, primary: usize) {
    await_promises(rules, state, primary);
    state.members[primary].primary.ready = true;
}

/// Whom it has promised not to act without, and who is not in sync any more, reads no longer.
fn await_promises(rules: &Rules, state: &mut State, primary: usize) {
    if !rules.without(Broken::Promises) {
        let in_sync = state.group(state.members[primary].epoch).in_sync;
        state.end_promises(primary, in_sync);
    }
}

/// The primary carries out a client's write, or answers it where it has done so before. `late` is a
/// copy of a request that was answered already.
pub fn request(
    rules: &Rules,
    state: &mut State,
    primary: usize,
    client: usize,
    late: bool,
) -> Option<()> {
    let acting = state.members[primary];
    if !state.leads(primary) || !acting.primary.ready || acting.primary.op.is_some() {
        return None;
    }
    let from = state.clients[client];
    let (seq, value, began) = if late {
        let copy = from.late.filter(|copy| acting.epoch <= copy.until)?;
        (copy.seq, copy.value, copy.began)
    } else {
        (from.phase != Phase::Idle).then_some((from.seq, from.value, from.began))?
    };
    let group = *state.group(acting.epoch);
    if began < group.founded && !rules.without(Broken::RefoundFence) {
        // Nobody knows any more whether it was carried out. The client asks anew, under a new number.
        return if late { None } else { renew(state, client) };
    }
    let done = acting.contents.done[client];
    if seq <= done && !rules.without(Broken::DoneRequests) {
        let answers = !late && seq == done && may_answer(rules, state, primary);
        return if answers { acknowledge(state, primary, client, seq) } else { None };
    }
    let contents = &mut state.members[primary].contents;
    contents.value = value;
    contents.done[client] = seq;
    let joining = group.joining.minus(acting.primary.failed);
    start(state, primary, Kind::Write { client: client as u8, seq }, joining)
}

fn renew(state: &mut State, client: usize) -> Option<()> {
    let epoch = state.manager.epoch;
    let from = &mut state.clients[client];
    from.phase = Phase::Writing;
    from.seq += 1;
    from.began = epoch;
    Some(())
}

/// The primary begins to make a joining member equal.
pub fn resync(state: &mut State, primary: usize, member: usize) -> Option<()> {
    let acting = &state.members[primary];
    let knows = &acting.primary;
    let joins = state.leads(primary) && state.group(acting.epoch).joining.has(member);
    if !joins || !knows.ready || knows.op.is_some() || knows.copied.or(knows.failed).has(member) {
        return None;
    }
    start(state, primary, Kind::Resync, Members::only(member))
}

/// Takes the range, gives a number, applies and forwards. `joining` are those joining members that
/// it is sent to.
fn start(state: &mut State, primary: usize, kind: Kind, joining: Members) -> Option<()> {
    let epoch = state.members[primary].epoch;
    let in_sync = state.group(epoch).in_sync.without(primary);
    let acting = &mut state.members[primary];
    acting.primary.number += 1;
    let number = acting.primary.number;
    let to = if kind == Kind::Resync {
        joining
    } else {
        acting.unsettled = Some(Mark { epoch, number });
        in_sync.or(joining)
    };
    let replied = Members::only(primary);
    acting.primary.op = Some(Op { kind, number, to: joining, replied });
    let contents = acting.contents;
    if !to.is_empty() {
        state.send(Forward { epoch, number, kind, to, contents });
    }
    Some(())
}

/// A member's reply reaches the primary, if that still waits for it.
pub fn replied(state: &mut State, forward: &Forward, member: usize) {
    let Some(primary) = state.group(forward.epoch).primary() else { return };
    let acting = &mut state.members[primary];
    if !acting.alive || acting.epoch != forward.epoch {
        return;
    }
    if let Some(op) = acting.primary.op.as_mut().filter(|op| op.number == forward.number) {
        op.replied = op.replied.with(member);
    }
}

/// A joining member does not answer a forward or a sync, and is not waited for any longer.
pub fn give_up(rules: &Rules, state: &mut State, primary: usize, member: usize) -> Option<()> {
    if !state.leads(primary) {
        return None;
    }
    let joins = state.group(state.members[primary].epoch).joining.has(member);
    let knows = &mut state.members[primary].primary;
    let counts = knows.reported.has(member) && !rules.without(Broken::ReportedCounts);
    let waits = knows.op.is_some_and(|op| op.to.has(member)) || knows.sync.is_some();
    if !joins || counts || knows.failed.has(member) || !waits {
        return None;
    }
    if let Some(op) = &mut knows.op {
        op.to = op.to.without(member);
    }
    if !rules.without(Broken::FailedIsNotReported) {
        knows.failed = knows.failed.with(member);
    }
    Some(())
}

/// Everybody who counts has applied what is under way: the range is released.
pub fn complete(rules: &Rules, state: &mut State, primary: usize) -> Option<()> {
    if !state.leads(primary) {
        return None;
    }
    let acting = state.members[primary];
    let op = acting.primary.op?;
    let counted = match op.kind {
        Kind::Resync => Members::default(),
        Kind::Write { .. } if rules.without(Broken::WaitForAllInSync) => Members::default(),
        Kind::Write { .. } | Kind::Recovery => state.counted(rules, primary),
    };
    let answers = !matches!(op.kind, Kind::Write { .. }) || may_answer(rules, state, primary);
    if !counted.or(op.to).within(op.replied) || !answers {
        return None;
    }
    let member = &mut state.members[primary];
    member.primary.op = None;
    settle(member, op.number);
    state.network.settled[usize::from(acting.epoch)] = op.number;
    match op.kind {
        Kind::Write { client, seq } => {
            return acknowledge(state, primary, usize::from(client), seq);
        }
        Kind::Recovery => become_ready(rules, state, primary),
        Kind::Resync => member.primary.copied = member.primary.copied.or(op.to),
    }
    Some(())
}

/// Whether nobody can be in a later epoch without this member: its lease runs, or it alone counts as
/// in sync, so that nobody else can become so.
pub fn leased(rules: &Rules, state: &State, member: usize) -> bool {
    let holder = &state.members[member];
    let in_sync = state.group(holder.epoch).in_sync;
    let counted = if rules.without(Broken::LeaseAfterReport) {
        in_sync
    } else {
        in_sync.or(holder.primary.reported)
    };
    holder.lease != Lease::No || holder.promised || counted == Members::only(member)
}

fn may_answer(rules: &Rules, state: &State, primary: usize) -> bool {
    leased(rules, state, primary) || rules.without(Broken::LeaseForAnswers)
}

/// Up to this number of its epoch all is settled.
pub fn settle(member: &mut Member, number: u8) {
    let epoch = member.epoch;
    member.unsettled = member.unsettled.filter(|mark| mark.epoch != epoch || mark.number > number);
}

/// The answer to a write goes on its way.
fn acknowledge(state: &mut State, primary: usize, client: usize, seq: u8) -> Option<()> {
    let epoch = state.members[primary].epoch;
    let (last, by) = state.history.last;
    if epoch == last && usize::from(by) != primary {
        state.history.violate(Violation::TwoPrimaries);
    }
    if epoch < last {
        state.history.violate(Violation::LateAcknowledgement);
    }
    state.history.last = (epoch, primary as u8);
    let losses = state.group(epoch).losses;
    let from = &mut state.clients[client];
    if from.phase == Phase::Writing && from.seq == seq {
        from.phase = Phase::Answered;
        if !from.unsynced {
            from.losses = losses;
        }
    }
    Some(())
}

/// The primary reports a joining member as equal: from now on it counts.
pub fn report(rules: &Rules, state: &mut State, primary: usize, member: usize) -> Option<()> {
    if !state.leads(primary) {
        return None;
    }
    let acting = &mut state.members[primary];
    let knows = &mut acting.primary;
    if !knows.copied.minus(knows.failed.or(knows.reported)).has(member) {
        return None;
    }
    knows.reported = knows.reported.with(member);
    if acting.epoch == state.manager.epoch {
        state.manager.reports = state.manager.reports.with(member);
    }
    // It has promised nothing, nor does anybody know of it who reads by a promise of the primary.
    if !rules.without(Broken::ReportEndsPromised) {
        state.end_promised(primary);
    }
    if !rules.without(Broken::ReportAfterPromises) {
        state.end_promises(primary, Members::default());
    }
    Some(())
}

/// The primary begins a client's sync, or refuses it where that client's writes may be lost.
pub fn sync(rules: &Rules, state: &mut State, primary: usize, client: usize) -> Option<()> {
    let acting = state.members[primary];
    let from = state.clients[client];
    let free = acting.primary.ready && acting.primary.sync.is_none();
    if !state.leads(primary) || !free || !from.unsynced || from.phase != Phase::Idle {
        return None;
    }
    let losses = state.group(acting.epoch).losses;
    if from.losses < losses && !rules.without(Broken::SyncComparesLosses) {
        state.clients[client].unsynced = false;
        return Some(());
    }
    let replied = Members::only(primary);
    let member = &mut state.members[primary];
    member.disk = member.contents.value;
    member.primary.sync = Some(Sync { client: client as u8, replied });
    Some(())
}

/// A member syncs for the primary.
pub fn sync_at(state: &mut State, primary: usize, member: usize) -> Option<()> {
    let epoch = state.members[primary].epoch;
    let other = state.members[member];
    if !state.leads(primary) || !other.alive || other.epoch != epoch {
        return None;
    }
    let under_way = state.members[primary].primary.sync.as_mut()?;
    under_way.replied = under_way.replied.with(member);
    state.members[member].disk = other.contents.value;
    Some(())
}

/// Everybody who counts has synced.
pub fn sync_complete(rules: &Rules, state: &mut State, primary: usize) -> Option<()> {
    if !state.leads(primary) {
        return None;
    }
    let sync = state.members[primary].primary.sync?;
    let mut awaited = state.counted(rules, primary);
    if !rules.without(Broken::SyncToJoining) {
        let acting = &state.members[primary];
        awaited = awaited.or(state.group(acting.epoch).joining.minus(acting.primary.failed));
    }
    if !awaited.within(sync.replied) || !may_answer(rules, state, primary) {
        return None;
    }
    state.members[primary].primary.sync = None;
    let from = &mut state.clients[usize::from(sync.client)];
    if from.unsynced && from.phase == Phase::Idle {
        from.unsynced = false;
        state.history.gone |= from.before;
    }
    Some(())
}

/// What a member has after a forward.
pub fn after(rules: &Rules, member: &Member, forward: &Forward) -> Contents {
    let mut contents = forward.contents;
    if let Kind::Write { client, seq } = forward.kind {
        contents.done = member.contents.done;
        contents.done[usize::from(client)] = seq;
    } else if rules.without(Broken::DoneTravels) {
        contents.done = member.contents.done;
    }
    contents
}
