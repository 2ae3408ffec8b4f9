//! Groups of several copies: which there are, and which of their members are in sync.
//!
//! Everything here decides on a [`State`] and what is known of the targets at a moment. Each change of
//! a group is the next epoch of that group: whoever acts in an older one is refused by its members.
//! Nobody comes to be in sync but by [`resynced`], in the very epoch in which it was made equal;
//! nobody is taken out who could be the last, and [`returned`] leaves one member at most where none
//! is known to live. A member that is to leave goes when it is not in sync, or has said itself that it
//! answers nobody any more, and others have all copies. `docs/design/0040-replication.md` says why.
//! Groups of one copy have one member, but while they move.

use crate::advice::{ADD_DISK, ADD_SERVER};
use crate::records::{Group, Item};
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use strake_base::random::mixed;
use strake_types::layout::GroupTables;
use strake_types::limits::COPIES_MAX;
use strake_types::{Error, ErrorKind, GroupId, Result};
use strake_wire::message::manager::{PrepareCopies, Resynced, Used, Voucher};

/// What is known of a target at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It serves, and has for so long that it may lead at once: no promise of an earlier life binds it.
    Steady,
    /// It serves, and said so a moment ago.
    Serves,
    /// Its lease may last; no more is known.
    Quiet,
    /// Its lease is over, or its server says that it is gone.
    Gone,
}

impl Life {
    /// True if it serves, for however long.
    pub fn serves(self) -> bool {
        matches!(self, Self::Steady | Self::Serves)
    }
}

/// What is known of a target since a server of its groups came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// It was heard from.
    Lives,
    /// Nothing yet.
    Unknown,
    /// It was heard from, and refused, since the manager does not reach it.
    Refused,
    /// It said that it is gone, or was silent for a lease.
    Gone,
}

/// Whether the primary of a group lets another member lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yields {
    /// It is not asked: its server is of a release that would not answer.
    AtOnce,
    /// It has not said yet that all members have what it has acknowledged.
    NotYet,
    /// It has, and vouches for this reign.
    As(u64),
    /// It does not: that one does not reach another member.
    Never,
}

/// A server that came back, and what it has forgotten.
pub(crate) struct Return<'a> {
    /// Targets it brings.
    pub targets: &'a [u32],
    /// All targets that are its own, brought or not.
    pub own: HashSet<u32>,
    /// Those it brings of which it is not sure that they have all that they had acknowledged when they came last.
    pub rebooted: HashSet<u32>,
}

/// Sees to it that there are groups of so many copies, as many as targets that stay.
pub(crate) fn prepare(state: &mut State, copies: u32) -> Result<()> {
    check_copies(state, copies)?;
    extend_class(state, copies, staying(state));
    Ok(())
}

/// The same, and that these targets lead one each, however many there are.
pub(crate) fn prepare_led(
    state: &mut State,
    copies: u32,
    leads: impl Fn(u32) -> bool,
) -> Result<()> {
    prepare(state, copies)?;
    lead(state, copies, leads);
    Ok(())
}

/// The same of the targets that somebody names. Who names none means all: an earlier release does.
pub(crate) fn prepare_named(state: &mut State, wanted: &PrepareCopies) -> Result<()> {
    let named: HashSet<u32> = wanted.targets.iter().copied().collect();
    prepare_led(state, wanted.copies, |id| named.is_empty() || named.contains(&id))
}

/// The same of all targets that lead some group: files may list these, and none of the others.
pub(crate) fn prepare_listed(state: &mut State, copies: u32) -> Result<()> {
    prepare(state, copies)?;
    lead_listed(state, copies);
    Ok(())
}

/// While files get so many copies, whoever comes to lead some group leads one of so many, too; but for who is about to get the lead of
/// one. Groups move one by one: who takes the place of another may lead one of another class a moment before.
pub(crate) fn lead_listed(state: &mut State, copies: u32) {
    let first = |group: &Group| group.members.first().copied();
    let mut listed: HashSet<u32> = state.groups.values().filter_map(first).collect();
    let brings_lead = |item: &&Item| {
        let leads = state.groups.get(&item.group).and_then(first) == Some(item.from);
        item.lasts() && GroupId(item.group).copies() == copies && leads
    };
    for item in state.jobs.values().flat_map(|job| &job.items).filter(brings_lead) {
        listed.remove(&item.to);
    }
    lead(state, copies, |id| listed.contains(&id));
}

fn check_copies(state: &State, copies: u32) -> Result<()> {
    let invalid = |detail: String| Err(Error::with(ErrorKind::Invalid, detail));
    if !(1..=COPIES_MAX).contains(&copies) {
        return invalid(format!("{copies} copies; 1 to {COPIES_MAX} are possible"));
    }
    let targets = staying(state);
    if targets < copies as usize {
        return invalid(format!(
            "{copies} copies need {copies} targets, and the cluster has {targets}; add a server \
             ({ADD_SERVER}), or a disk to one there is ({ADD_DISK})"
        ));
    }
    Ok(())
}

/// Targets that are new lead a group of one copy, and one of every other class that is in use, while it has fewer than targets stay.
/// No group is ever deleted, and new files are laid over all of them: who comes when others have left gets theirs, by a job.
pub(crate) fn extend(state: &mut State) {
    let (tables, targets) = (tables(state), staying(state));
    for copies in (1..=COPIES_MAX).filter(|&copies| copies == 1 || tables.size(copies) > 0) {
        extend_class(state, copies, targets);
    }
}

pub(crate) fn tables(state: &State) -> GroupTables {
    GroupTables::of(state.groups.keys().map(|&id| GroupId(id)))
}

/// How many targets stay.
fn staying(state: &State) -> usize {
    state.targets.values().filter(|target| !target.drains).count()
}

/// Targets get a group of the class to lead, the newest first, until it has so many.
fn extend_class(state: &mut State, copies: u32, most: usize) {
    let missing = most.saturating_sub(tables(state).size(copies) as usize);
    if missing > 0 {
        begin(state, copies, missing, |_| true);
    }
}

/// All of these targets lead a group of so many copies.
pub(crate) fn lead(state: &mut State, copies: u32, is_wanted: impl Fn(u32) -> bool) {
    begin(state, copies, usize::MAX, is_wanted);
}

/// Targets that are wanted, stay and lead no group of the class get one to lead, at most so many, the newest of them. None does while
/// fewer stay than a group has members.
fn begin(state: &mut State, copies: u32, most: usize, is_wanted: impl Fn(u32) -> bool) {
    let class = state.groups.iter().filter(|(id, _)| GroupId(**id).copies() == copies);
    let led: HashSet<u32> = class.filter_map(|(_, group)| group.members.first().copied()).collect();
    let lacks = |id: &u32| !led.contains(id) && is_wanted(*id);
    let stay = state.targets.iter().filter(|(_, target)| !target.drains).map(|(&id, _)| id);
    let leaders: Vec<u32> = stay.filter(lacks).collect();
    if leaders.is_empty() || staying(state) < copies as usize {
        return;
    }
    let size = tables(state).size(copies);
    let mut loads = Loads::of(state);
    let passed_over = leaders.len().saturating_sub(most);
    for (ordinal, leader) in (size..).zip(leaders.into_iter().skip(passed_over)) {
        let members = loads.choose(leader, copies);
        members.iter().for_each(|&member| loads.note(member));
        let id = GroupId::of_class(copies, ordinal).0;
        let in_sync = members.clone();
        let never_used = copies == 1;
        let group = Group { epoch: 1, members, in_sync, never_used, ..Group::default() };
        state.groups.insert(id, group);
    }
}

/// In how many groups each target is that stays.
struct Loads {
    /// The number of groups, and the server.
    of: BTreeMap<u32, (usize, u32)>,
    /// Number of groups, target, server: thousands of new groups look at the first few each, under the lock of the manager. (Where
    /// few servers have very many targets each, at those of one that has a member already.)
    fewest_first: BTreeSet<(usize, u32, u32)>,
}

impl Loads {
    fn of(state: &State) -> Self {
        let staying = state.targets.iter().filter(|(_, target)| !target.drains);
        let mut of: BTreeMap<u32, (usize, u32)> =
            staying.map(|(&id, target)| (id, (0, target.server))).collect();
        for member in state.groups.values().flat_map(|group| &group.members) {
            if let Some((groups, _)) = of.get_mut(member) {
                *groups += 1;
            }
        }
        let fewest_first = of.iter().map(|(&id, &(groups, server))| (groups, id, server)).collect();
        Self { of, fewest_first }
    }

    /// A target is in one more.
    fn note(&mut self, target: u32) {
        let Some((groups, server)) = self.of.get_mut(&target) else { return };
        self.fewest_first.remove(&(*groups, target, *server));
        *groups += 1;
        self.fewest_first.insert((*groups, target, *server));
    }

    /// The members of a new group: on other servers where there are enough, those with the fewest groups
    /// first.
    fn choose(&self, leader: u32, copies: u32) -> Vec<u32> {
        let mut members = vec![leader];
        let mut used: Vec<u32> =
            self.of.get(&leader).map(|&(_, server)| server).into_iter().collect();
        while members.len() < copies as usize {
            let is_other = |(_, target, _): &&(usize, u32, u32)| {
                #[cfg(test)]
                LOOKS.with(|looks| looks.set(looks.get() + 1));
                !members.contains(target)
            };
            let mut others = self.fewest_first.iter().filter(is_other);
            let apart = others.find(|(_, _, server)| !used.contains(server));
            let best = apart.or_else(|| self.fewest_first.iter().find(is_other));
            let Some(&(_, target, server)) = best else { break };
            members.push(target);
            used.push(server);
        }
        members
    }
}

#[cfg(test)]
thread_local! {
    /// How often it was looked at a target as a member of a new group.
    static LOOKS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Takes out who is gone, lets join who is back, and lead who leads by the list of members. `pauses` says which member of
/// which group failed to be made equal a moment ago, `yields` which groups may get another primary.
pub(crate) fn settle(
    state: &mut State,
    life: impl Fn(u32) -> Life,
    pauses: impl Fn(u32, u32) -> bool,
    yields: impl Fn(u32, &Group) -> Yields,
) {
    for (&id, group) in &mut state.groups {
        if let Some(next) = settled(id, group, &life, |member| pauses(id, member), &yields) {
            if next.epoch > group.epoch {
                log_change(id, group, &next);
            }
            *group = next;
        }
    }
}

/// True if [`settle`] would change nothing.
pub(crate) fn is_settled(
    state: &State,
    life: impl Fn(u32) -> Life,
    pauses: impl Fn(u32, u32) -> bool,
    yields: impl Fn(u32, &Group) -> Yields,
) -> bool {
    let mut groups = state.groups.iter();
    groups.all(|(&id, group)| {
        settled(id, group, &life, |member| pauses(id, member), &yields).is_none()
    })
}

/// What a group becomes, if another.
fn settled(
    id: u32,
    group: &Group,
    life: &impl Fn(u32) -> Life,
    pauses: impl Fn(u32) -> bool,
    yields: &impl Fn(u32, &Group) -> Yields,
) -> Option<Group> {
    if group.members.len() < 2 {
        return None;
    }
    let serves = |member: &u32| life(*member).serves();
    let here = |member: &u32| life(*member) != Life::Gone;
    // Only beside one that was heard a moment ago: of several that lose their power together, the one
    // whose lease ends last must not be left as the only one to know everything.
    let safe = group.in_sync.iter().any(serves);
    let stays = |member: &u32| !safe || here(member);
    let in_sync: Vec<u32> = group.in_sync.iter().copied().filter(stays).collect();
    let led = in_sync.first().is_some_and(serves);
    let joins = |member: &u32| {
        let known = group.joining.contains(member);
        !in_sync.contains(member)
            && (known && here(member) || led && serves(member) && !pauses(*member))
    };
    let joining: Vec<u32> = group.members.iter().copied().filter(joins).collect();
    let mut next = Group { in_sync, joining, ..group.clone() };
    depart(id, &mut next);
    if next == *group {
        return handed_over(group, life, || yields(id, group));
    }
    Some(Group { epoch: group.epoch + 1, ..next })
}

/// Who takes the lead keeps it when the one before is back: that one may answer nobody until all that
/// it promised in its earlier life is over. When it is, it leads again, so that each target leads as
/// many groups as before. It writes its own contents over what is in doubt, so not before all have what was acknowledged: the
/// one that leads says when, and is asked for that in the map. `None`: everything stays.
fn handed_over(
    group: &Group,
    life: &impl Fn(u32) -> Life,
    yields: impl FnOnce() -> Yields,
) -> Option<Group> {
    let lead = *group.members.iter().find(|member| group.in_sync.contains(member))?;
    let rests =
        group.joining.is_empty() && group.in_sync.iter().all(|member| life(*member).serves());
    if !rests || life(lead) != Life::Steady || group.in_sync.first() == Some(&lead) {
        return None;
    }
    let epoch = group.epoch + 1;
    let in_sync = in_order(&group.members, lead, |member| group.in_sync.contains(member));
    let next = Group { epoch, in_sync, ..group.clone() };
    match yields() {
        Yields::AtOnce => Some(next),
        Yields::As(stands_for) => Some(Group { handed_in: epoch, stands_for, ..next }),
        Yields::Never => None,
        Yields::NotYet if group.hand_over == group.epoch => None,
        Yields::NotYet => Some(Group { hand_over: group.epoch, ..group.clone() }),
    }
}

/// The members in sync: who leads, then the others as they stand among the members.
fn in_order(members: &[u32], lead: u32, in_sync: impl Fn(&u32) -> bool) -> Vec<u32> {
    let others = members.iter().copied().filter(|member| *member != lead && in_sync(member));
    std::iter::once(lead).chain(others).collect()
}

/// True if a member of a group has got another one in its place already, in sync or not yet.
pub(crate) fn is_replaced(id: u32, group: &Group, member: u32) -> bool {
    let stays = |m: &&u32| **m != member && !group.leaving.contains(m);
    group.members.iter().filter(stays).count() >= GroupId(id).copies() as usize
}

/// Members that are to leave and are not in sync go, if there are enough others.
fn depart(id: u32, group: &mut Group) {
    let stays = group.in_sync.iter().filter(|m| !group.leaving.contains(m)).count();
    if stays < GroupId(id).copies() as usize {
        return;
    }
    let Group { members, in_sync, joining, leaving, .. } = group;
    let goes = |m: &u32| leaving.contains(m) && !in_sync.contains(m);
    joining.retain(|m| !goes(m));
    members.retain(|m| !goes(m));
    leaving.retain(|m| members.contains(m));
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

/// Something is lost that a group had acknowledged. Its epoch is a new one already; the time makes its word another than that
/// of a manager whose data were older.
pub(crate) fn lose(id: u32, group: &mut Group, now_ms: u64) {
    group.losses += 1;
    if !group.never_used {
        group.lost_ms = now_ms;
    }
    if GroupId(id).copies() == 1 {
        // A word that nobody has ever given: no answer may be taken for one that covers what was lost, also
        // if a target goes on with the group whose boot was its word before.
        group.word = mixed(u64::from(id) << 40 ^ group.epoch ^ now_ms << 20).max(1);
        group.vouchers.clear();
    }
}

/// These targets have less than when they were here last: where others are in sync they are not, and of what they alone
/// had something is lost.
pub(crate) fn have_less(state: &mut State, old: &[u32], now_ms: u64) {
    let is_old = |member: &u32| old.contains(member);
    for (&id, group) in &mut state.groups {
        if !group.in_sync.iter().any(is_old) {
            continue;
        }
        let before = group.clone();
        group.epoch += 1;
        match group.in_sync.iter().all(is_old) {
            false => group.in_sync.retain(|member| !is_old(member)),
            true => {
                group.in_sync.truncate(1);
                lose(id, group, now_ms);
            }
        }
        log_change(id, &before, group);
    }
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
    let is_whole = |member: &&u32| brought(member) && !back.rebooted.contains(*member);
    let whole = group.in_sync.iter().find(is_whole).copied();
    let lives = |since: Since| match since {
        Since::Lives => true,
        // It has what nobody brings.
        Since::Refused => whole.is_none(),
        Since::Unknown | Since::Gone => false,
    };
    match (others.iter().any(|(_, since)| lives(*since)), unknown) {
        (true, _) if strake_base::is_broken("who-starts-is-not-in-sync") => {}
        (true, _) => next.in_sync.retain(|member| !brought(member)),
        (false, Some((member, _))) => {
            let detail = format!(
                "group {id}: target {member} has what target {first} has, and may live; ask again, \
                 it is known within a lease"
            );
            return Err(Error::with(ErrorKind::Busy, detail));
        }
        (false, None) => {
            strake_base::count_case("group-refounded");
            let first = whole.unwrap_or(first);
            next.in_sync = vec![first];
            let silent = strake_base::is_broken("losses-are-counted");
            next.losses += u64::from(back.rebooted.contains(&first) && !silent);
        }
    }
    Ok(Some(next))
}

/// True if a report is about a group as it is now.
pub(crate) fn is_current(state: &State, report: &Resynced) -> bool {
    let Some(group) = state.groups.get(&report.group) else { return false };
    // One in sync that could not take a change answers nobody any more in that epoch.
    let resigned = report.failed && group.in_sync.iter().skip(1).any(|m| *m == report.member);
    // So does one whose disk does not answer, the primary too.
    let hangs = report.failed && report.hangs && group.in_sync.len() > 1;
    let resigned = resigned || hangs && group.in_sync.contains(&report.member);
    // And one that leaves; others have all copies.
    let stays = group.in_sync.iter().filter(|m| !group.leaving.contains(m)).count();
    let resigned = resigned
        || report.failed
            && group.leaving.contains(&report.member)
            && group.in_sync.contains(&report.member)
            && stays >= GroupId(report.group).copies() as usize;
    group.epoch == report.epoch && (resigned || group.joining.contains(&report.member))
}

/// A member that leaves has said that it answers nobody any more; but so few of the others live by now
/// that it is needed. It goes on in a new epoch, until [`settle`] has taken out who is gone. True if so.
/// So does one whose disk hangs while nobody else in sync serves: none is as good as it then.
pub(crate) fn keep_needed(
    state: &mut State,
    report: &Resynced,
    life: impl Fn(u32) -> Life,
) -> bool {
    if !is_current(state, report) {
        return false;
    }
    let Some(group) = state.groups.get_mut(&report.group) else { return false };
    let stays = || group.in_sync.iter().filter(|m| !group.leaving.contains(m));
    let living = stays().filter(|m| life(**m).serves()).count();
    let copies = GroupId(report.group).copies() as usize;
    let leaves = report.failed && group.leaving.contains(&report.member);
    let goes_on = |m: &u32| *m != report.member && life(*m).serves();
    let needed = leaves && stays().count() >= copies && living < copies
        || report.failed && report.hangs && !group.in_sync.iter().any(goes_on);
    group.epoch += u64::from(needed);
    needed
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
            let lead = group.in_sync.first().copied().unwrap_or(report.member);
            next.in_sync = in_order(&group.members, lead, joins);
            vouch(&mut next, report);
        }
        depart(report.group, &mut next);
        log_change(report.group, group, &next);
        *group = next;
    }
    Ok(())
}

/// Something is about to be put into a group, so it is not given up any more without being asked. Refused is who
/// does not have the group, or not any more: it was given up, and what comes there now would be lost.
pub(crate) fn used(state: &mut State, said: &Used) -> Result<()> {
    let Used { group: id, target } = *said;
    let Some(group) = state.groups.get_mut(&id).filter(|group| group.in_sync.contains(&target))
    else {
        let detail = format!("target {target} is not one of those that have group {id}");
        return Err(Error::with(ErrorKind::StaleMap, detail));
    };
    group.never_used = false;
    Ok(())
}

/// A group of one copy goes on with the primary's word, for which the member vouches from now on, too.
fn vouch(group: &mut Group, report: &Resynced) {
    if report.word == 0 {
        return;
    }
    if group.word != report.word {
        group.vouchers.clear();
    }
    group.word = report.word;
    let primary = group.in_sync.iter().copied().find(|m| *m != report.member);
    let boots = [(primary, report.primary_boot), (Some(report.member), report.member_boot)];
    for (target, boot) in boots {
        let Some(target) = target else { continue };
        group.vouchers.retain(|voucher| voucher.target != target);
        group.vouchers.push(Voucher { target, boot });
    }
}

fn log_change(id: u32, old: &Group, new: &Group) {
    let Group { epoch, members, in_sync, joining, .. } = new;
    if new.losses != old.losses {
        tracing::warn!(
            "group {id}: all its members were away, and target {in_sync:?} speaks from another boot: \
             what was written and not synced may be lost"
        );
    }
    tracing::info!(
        "group {id} epoch {epoch}: members {members:?}, in sync {in_sync:?}, joining {joining:?}"
    );
}

#[cfg(test)]
mod tests;
