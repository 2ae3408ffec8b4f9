//! Jobs: what is moved or made equal in the background, item by item; their records outlive the manager.
//!
//! [`keep`] brings all of them up to date, after every change and a few times a second while there are
//! any. It only ever adds a member that joins, marks one that is to leave, or takes back one that is
//! not in sync; who comes to be in sync, and who goes, [`groups`] decides.

use crate::ended;
use crate::groups::{self, Life};
use crate::loss;
use crate::owners;
use crate::plan::{self, Facts, Loads, Place, Wanted, name_of, refuse};
use crate::recopies;
use crate::records::{Group, Item, Job, Target};
use crate::requests::{about, check_free, check_removable, check_replacement, targets_of};
use crate::scrubs;
use crate::state::State;
use crate::turns::{Turns, not_yet};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use strake_types::{ErrorKind, GroupId, Result};
use strake_wire::message::jobs::{JobKind, JobState, Plan};
use strake_wire::message::manager::Resynced;

/// How often an item is tried.
const TRIES_MAX: u32 = 10;
/// Why an item waits that fits nowhere.
const NO_ROOM: &str =
    "no target has room for it; add a disk (strake target add SERVER DIR) or a server";
/// Why an item waits whose target has just come back.
const NOT_COUNTED: &str = "its target has not counted yet what it holds";

impl Job {
    pub fn is(&self, state: JobState) -> bool {
        self.state == state as u32
    }

    /// Neither done nor given up.
    pub fn lasts(&self) -> bool {
        self.is(JobState::Running) || self.is(JobState::Paused)
    }

    /// Targets that it takes out of their groups.
    pub fn going(&self) -> BTreeSet<u32> {
        self.targets.iter().copied().collect()
    }

    /// What each of so many parts may send or read per second; 0: no limit.
    pub fn share_of_rate(&self, default: u64, parts: usize) -> u64 {
        let rate = self.rate.unwrap_or(default);
        if rate == 0 { 0 } else { (rate / parts.max(1) as u64).max(1) }
    }

    pub(crate) fn end(&mut self, state: JobState, now_ms: u64) {
        self.state = state as u32;
        self.ended_ms = now_ms;
        tracing::info!("job about {} is {state:?} {}", self.about, self.reason);
    }
}

impl Item {
    pub fn is(&self, state: JobState) -> bool {
        self.state == state as u32
    }

    pub fn lasts(&self) -> bool {
        self.is(JobState::Waiting) || self.is(JobState::Running)
    }

    pub fn set(&mut self, state: JobState, reason: &str) {
        self.state = state as u32;
        if self.reason != reason {
            reason.clone_into(&mut self.reason);
        }
    }
}

/// True if some job is under way, or ought to be.
pub(crate) fn are_due(state: &State) -> bool {
    state.jobs.values().any(Job::lasts)
}

/// Makes a job of a request, or only says which it would be; its number and itself.
pub(crate) fn plan(state: &mut State, facts: &Facts, request: &Plan) -> Result<(u32, Job)> {
    plan_on(state, facts, request, None)
}

/// As [`plan()`], where moves are planned already: of a rebalance these are all, and it begins no group. Who has come since would count
/// as left out.
pub(crate) fn plan_on(
    state: &mut State,
    facts: &Facts,
    request: &Plan,
    planned: Option<Vec<Item>>,
) -> Result<(u32, Job)> {
    let targets = targets_of(state, request)?;
    if request.undo {
        if request.dry_run || request.force || request.lose_data || request.remove {
            return Err(refuse(
                "undoing a drain moves nothing; give no other flags with it".into(),
            ));
        }
        return undo(state, &targets);
    }
    let kind = JobKind::of(request.kind);
    if kind == Some(JobKind::Scrub) {
        let job = scrub(state, facts, request, &targets)?;
        return Ok(take_up(state, request, job));
    }
    if kind == Some(JobKind::Recopy) {
        let job = recopies::plan(state, facts, request)?;
        return Ok(take_up(state, request, job));
    }
    check_free(state, &targets)?;
    let wanted = wanted(request, &targets);
    let mut left_out = Vec::new();
    let items = match kind {
        Some(JobKind::Drain | JobKind::Replace) => {
            if kind == Some(JobKind::Replace) {
                check_replacement(state, facts, request)?;
            }
            plan::empty(state, facts, &wanted, planned.unwrap_or_default())?
        }
        Some(JobKind::Rebalance) => match planned {
            Some(items) => items,
            None => {
                let items = plan::even_out(state, facts);
                left_out = plan::left_out(state, facts, &items);
                items
            }
        },
        _ => return Err(refuse(format!("no job of kind {} can be asked for", request.kind))),
    };
    let mut job = moves(state, facts, request, &wanted, items)?;
    begin_groups(state, request, &mut job, &left_out);
    Ok(take_up(state, request, job))
}

/// Begins a group of so many copies for each of these targets, unless it is only a plan. The job tells how many.
fn begin_groups(state: &mut State, request: &Plan, job: &mut Job, left_out: &[(u32, u32)]) {
    match left_out.len() {
        0 => {}
        1 => job.about += ", with 1 new group",
        many => job.about += &format!(", with {many} new groups"),
    }
    for &(copies, target) in left_out.iter().filter(|_| !request.dry_run) {
        groups::lead(state, copies, |id| id == target);
    }
}

/// What a request wants of the groups of these targets.
fn wanted(request: &Plan, targets: &BTreeSet<u32>) -> Wanted {
    Wanted {
        leaving: targets.clone(),
        to: (request.to != 0).then_some(request.to),
        force: request.force,
        lose_data: request.lose_data,
        stays: JobKind::of(request.kind) == Some(JobKind::Drain) && !request.remove,
    }
}

/// Makes a job of moves, if enough targets stay.
fn moves(
    state: &mut State,
    facts: &Facts,
    request: &Plan,
    wanted: &Wanted,
    items: Vec<Item>,
) -> Result<Job> {
    plan::check_places(state, facts, wanted)?;
    let targets = &wanted.leaving;
    let drains = |id: &u32| state.targets.get(id).is_some_and(|target| target.drains);
    let job = Job {
        kind: request.kind,
        state: JobState::Running as u32,
        about: about(state, request, targets),
        begun_ms: facts.now_ms,
        rate: request.rate,
        items,
        targets: targets.iter().copied().collect(),
        drained_before: targets.iter().copied().filter(drains).collect(),
        servers: if request.remove { request.servers.clone() } else { Vec::new() },
        remove: request.remove,
        force: request.force,
        lose_data: request.lose_data,
        ..Job::default()
    };
    let going = state.targets.iter_mut().filter(|(id, _)| targets.contains(*id));
    going.filter(|_| !request.dry_run).for_each(|(_, target)| target.drains = true);
    Ok(job)
}

/// Begins a job, unless it is only a plan.
fn take_up(state: &mut State, request: &Plan, job: Job) -> (u32, Job) {
    if request.dry_run {
        return (0, job);
    }
    (enter(state, job.clone()), job)
}

/// Makes a job that verifies targets, all or those that are named.
fn scrub(state: &State, facts: &Facts, request: &Plan, targets: &BTreeSet<u32>) -> Result<Job> {
    Ok(Job {
        kind: request.kind,
        state: JobState::Running as u32,
        about: about(state, request, targets),
        begun_ms: facts.now_ms,
        rate: request.rate,
        scrubs: scrubs::plan(state, facts, targets)?,
        no_repair: request.no_repair,
        ..Job::default()
    })
}

fn enter(state: &mut State, job: Job) -> u32 {
    let id = state.cluster.next_job.max(1);
    state.cluster.next_job = id + 1;
    state.jobs.insert(id, job);
    id
}

/// Targets that were drained are used again, and others may have come meanwhile.
fn undo(state: &mut State, targets: &BTreeSet<u32>) -> Result<(u32, Job)> {
    check_free(state, targets)?;
    let named = state.targets.iter_mut().filter(|(id, _)| targets.contains(*id));
    named.for_each(|(_, target)| target.drains = false);
    groups::extend(state);
    Ok((0, Job { state: JobState::Done as u32, ..Job::default() }))
}

/// Takes a member that entered out again; false if it is in sync and stays.
pub(crate) fn take_back(group: &mut Group, item: &Item) -> bool {
    if group.in_sync.contains(&item.to) {
        return false;
    }
    if group.members.contains(&item.to) {
        group.members.retain(|member| *member != item.to);
        group.joining.retain(|member| *member != item.to);
        group.leaving.retain(|member| *member != item.from);
        group.epoch += 1;
    }
    true
}

/// A primary has reported: what concerns an item is noted there, with the bytes that are counted of the group by now.
pub(crate) fn reported(state: &mut State, report: &Resynced, bytes: u64) {
    let items = state.jobs.values_mut().filter(|job| job.lasts()).flat_map(|job| &mut job.items);
    let concerned =
        |i: &&mut Item| i.is(JobState::Running) && (i.group, i.to) == (report.group, report.member);
    for item in items.filter(concerned) {
        item.sent += report.sent;
        item.bytes = item.bytes.max(bytes);
        if report.failed {
            item.tries += 1;
            item.reason.clone_from(&report.reason);
        }
    }
}

/// Brings all jobs up to date.
pub(crate) fn keep(state: &mut State, facts: &Facts) {
    begin_heals(state, facts);
    // First of all what is under way: another job may bring in again who has just left.
    each(state, |state, _, job| go_on(state, facts, job));
    each(state, |state, id, job| match JobKind::of(job.kind) {
        Some(JobKind::Heal) => heal_on(state, facts, job),
        Some(JobKind::Scrub) => scrubs::keep(state, facts, id, job),
        Some(JobKind::Recopy) => recopies::keep(state, facts, id, job),
        _ => move_on(state, facts, job),
    });
    ended::forget(state, facts.now_ms);
}

/// Does something with every job that lasts, one after the other.
fn each(state: &mut State, mut what: impl FnMut(&mut State, u32, &mut Job)) {
    let ids: Vec<u32> =
        state.jobs.iter().filter(|(_, job)| job.lasts()).map(|(&id, _)| id).collect();
    for id in ids {
        let Some(mut job) = state.jobs.remove(&id) else { continue };
        what(state, id, &mut job);
        state.jobs.insert(id, job);
    }
}

/// Every member that joins is some job's item.
fn begin_heals(state: &mut State, facts: &Facts) {
    let running = state.jobs.values().filter(|job| job.lasts()).flat_map(|job| &job.items);
    let known: BTreeSet<(u32, u32)> =
        running.filter(|item| item.lasts()).map(|item| (item.group, item.to)).collect();
    let mut found: BTreeMap<u32, Vec<Item>> = BTreeMap::new();
    for (&id, group) in &state.groups {
        let (bytes, uncounted) = (facts.bytes_of(id, group), facts.is_uncounted(id, group));
        for &to in group.joining.iter().filter(|&&member| !known.contains(&(id, member))) {
            let state = JobState::Running as u32;
            let item = Item { group: id, to, state, bytes, uncounted, ..Item::default() };
            found.entry(to).or_default().push(item);
        }
    }
    for (target, items) in found {
        let heals = |job: &&mut Job| {
            job.lasts() && job.kind == JobKind::Heal as u32 && job.targets == [target]
        };
        if let Some(job) = state.jobs.values_mut().find(heals) {
            let again = |item: &Item| items.iter().any(|new| new.group == item.group);
            job.items.retain(|item| !again(item));
            job.items.extend(items);
            continue;
        }
        let job = Job {
            kind: JobKind::Heal as u32,
            state: JobState::Running as u32,
            about: name_of(state, target),
            begun_ms: facts.now_ms,
            items,
            targets: vec![target],
            ..Job::default()
        };
        enter(state, job);
    }
}

fn heal_on(state: &State, facts: &Facts, job: &mut Job) {
    for item in job.items.iter_mut().filter(|item| item.lasts()) {
        let group = state.groups.get(&item.group);
        match group.filter(|group| group.members.contains(&item.to)) {
            None => item.set(JobState::Cancelled, "it is no member any more"),
            Some(group) if group.in_sync.contains(&item.to) => item.set(JobState::Done, ""),
            Some(group) if !group.joining.contains(&item.to) && facts.is_gone(item.to) => {
                item.set(JobState::Failed, "it is away again");
            }
            // Between two attempts the reason of the last one stays.
            Some(_) => {}
        }
    }
    end_if_over(job, facts);
}

fn end_if_over(job: &mut Job, facts: &Facts) -> bool {
    if job.items.iter().any(Item::lasts) {
        return false;
    }
    let failed = job.items.iter().any(|item| item.is(JobState::Failed));
    job.end(if failed { JobState::Failed } else { JobState::Done }, facts.now_ms);
    true
}

fn move_on(state: &mut State, facts: &Facts, job: &mut Job) {
    if job.is(JobState::Running) {
        // Until an item begins nothing changes that others are held against.
        let (mut turns, mut loads) = (None, None);
        for at in 0..job.items.len() {
            if !job.items[at].is(JobState::Waiting) {
                continue;
            }
            let turns_now = turns.get_or_insert_with(|| Turns::of(state, job));
            match turns_now.hindrance(state, facts, job, &job.items[at]) {
                Some(reason) => job.items[at].set(JobState::Waiting, &reason),
                None => start(state, facts, job, at, &mut loads),
            }
            if job.items[at].is(JobState::Running) {
                (turns, loads) = (None, None);
            }
        }
    }
    // A job that is paused does not take away what still has something to hand over, nor anything else.
    if job.remove && (!job.is(JobState::Running) || owners::hands_over(state, &job.servers)) {
        return;
    }
    if end_if_over(job, facts) && job.is(JobState::Done) && job.remove {
        remove(state, facts, job);
    }
}

/// The moves of a job that are under way.
fn go_on(state: &mut State, facts: &Facts, job: &mut Job) {
    let moves = |item: &&mut Item| item.is(JobState::Running) && item.from != 0;
    job.items.iter_mut().filter(moves).for_each(|item| move_item(state, facts, item));
}

/// A move that is under way.
fn move_item(state: &mut State, facts: &Facts, item: &mut Item) {
    let Some(group) = state.groups.get_mut(&item.group) else {
        return item.set(JobState::Failed, "the group is gone");
    };
    if !group.members.contains(&item.from) {
        return item.set(JobState::Done, "");
    }
    if !group.members.contains(&item.to) {
        return item.set(JobState::Waiting, "");
    }
    if !group.leaving.contains(&item.from) {
        // It was cleared when the group went on after a loss.
        group.leaving.push(item.from);
        group.epoch += 1;
    }
    let in_sync = group.in_sync.contains(&item.to);
    if item.tries >= TRIES_MAX && take_back(group, item) {
        let reason = item.reason.clone();
        return item.set(JobState::Failed, &reason);
    }
    if !in_sync && facts.is_gone(item.to) {
        item.tries += 1;
        take_back(group, item);
        return item.set(JobState::Waiting, &format!("target {} went away", item.to));
    }
    if in_sync {
        let reason = awaited(state, facts, item).unwrap_or_default();
        item.set(JobState::Running, &reason);
    }
}

/// For whom a move waits whose newcomer has everything, if for anybody: its group keeps so many copies without the one that is to leave.
fn awaited(state: &State, facts: &Facts, item: &Item) -> Option<String> {
    let group = state.groups.get(&item.group)?;
    let stays = |member: &u32| !group.leaving.contains(member);
    let (in_sync, behind): (Vec<u32>, Vec<u32>) =
        group.members.iter().copied().filter(stays).partition(|m| group.in_sync.contains(m));
    let copies = GroupId(item.group).copies();
    if in_sync.len() >= copies as usize {
        return None;
    }
    let why = |id: u32| match facts.is_gone(id) {
        true => format!("{} is away; start its server", name_of(state, id)),
        false => format!("{} is not in sync yet", name_of(state, id)),
    };
    let why: Vec<String> = behind.into_iter().map(why).collect();
    let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) };
    Some(format!(
        "target {} has everything, and target {} leaves when {copies} copies are in sync without it{why}",
        item.to, item.from
    ))
}

/// Begins an item whose turn has come, or says why it waits.
fn start(state: &mut State, facts: &Facts, job: &mut Job, at: usize, loads: &mut Option<Loads>) {
    let item = &job.items[at];
    let Some(group) = state.groups.get(&item.group) else {
        return job.items[at].set(JobState::Failed, "the group is gone");
    };
    if !group.members.contains(&item.from) {
        return job.items[at].set(JobState::Done, "");
    }
    let members = group.without(item.from);
    let place = Place { id: item.group, members: &members, from: item.from };
    // Another move may have brought somebody to that server since this one was planned.
    let is_near = |to: u32| !job.force && place.brings_together(state, to);
    let suits = |to: u32| {
        let target = state.targets.get(&to);
        let stays = target.is_some_and(|target| !target.drains && !is_near(to) || item.fixed);
        stays && facts.serves(to) && !group.members.contains(&to)
    };
    let mut to = item.to;
    if !suits(to) {
        let (force, lose_data) = (job.force, job.lose_data);
        let wanted = Wanted { leaving: job.going(), to: None, force, lose_data, stays: false };
        let loads = loads.get_or_insert_with(|| Loads::of(state, facts));
        match plan::choose(state, facts, loads, &place, &wanted) {
            // It may have got another part of the group since: then this one has to go elsewhere.
            _ if item.fixed && !group.members.contains(&to) => {
                let reason = format!("{} is away; start its server", name_of(state, to));
                return job.items[at].set(JobState::Waiting, &reason);
            }
            Ok(other) => to = other,
            // Nothing has to move: what is in the way may stay for ever.
            Err(error) if job.kind == JobKind::Rebalance as u32 => {
                return job.items[at].set(JobState::Cancelled, &error.detail);
            }
            // The numbers of free bytes change with every heartbeat, and a reason is stored.
            Err(error) if error.kind == ErrorKind::NoSpace => {
                return job.items[at].set(JobState::Waiting, NO_ROOM);
            }
            Err(error) => return job.items[at].set(JobState::Waiting, &error.detail),
        }
    }
    if job.kind == JobKind::Rebalance as u32 {
        // What was written since the job was planned has taken room, too.
        let loads = loads.get_or_insert_with(|| Loads::of(state, facts));
        if !loads.fits(facts, to, facts.bytes_of(item.group, group)) {
            // All that it has seems to be on its way there still.
            let (how, why) = match facts.uncounted.contains(&to) {
                true => (JobState::Waiting, NOT_COUNTED),
                false => (JobState::Cancelled, NO_ROOM),
            };
            return job.items[at].set(how, why);
        }
    }
    let going = job.going();
    let (lost, loses) = (facts.is_lost(group, &going), facts.loses(group, &going));
    if let Some(reason) = not_yet(state, facts, job, item, to) {
        return job.items[at].set(JobState::Waiting, &reason);
    }
    match lost {
        true => loss::give_up(state, facts, item.group, item.from, to),
        false => bring_in(state, item.group, item.from, to),
    }
    let item = &mut job.items[at];
    item.fixed &= item.to == to;
    (item.to, item.lost) = (to, loses);
    item.set(JobState::Running, "");
}

/// A member enters beside the one that is to leave.
fn bring_in(state: &mut State, group: u32, from: u32, to: u32) {
    let Some(group) = state.groups.get_mut(&group) else { return };
    let place = group.members.iter().position(|member| *member == from);
    group.members.insert(place.map_or(group.members.len(), |at| at + 1), to);
    group.joining.push(to);
    group.leaving.push(from);
    group.epoch += 1;
}

/// What was emptied leaves the cluster.
fn remove(state: &mut State, facts: &Facts, job: &mut Job) {
    let held = |id: &u32| state.groups.values().any(|group| group.members.contains(id));
    if let Some(id) = job.targets.iter().copied().find(held) {
        job.reason = format!("target {id} has got groups again; try again");
        return job.end(JobState::Failed, facts.now_ms);
    }
    // Targets may have been added there since the job began, as disks with which the server was started,
    let own = |t: &Target| job.servers.contains(&t.server);
    let mut targets = state.targets.iter();
    if let Some((&id, _)) = targets.find(|(id, t)| own(t) && !job.targets.contains(id)) {
        job.reason = format!("{} was added meanwhile; try again", name_of(state, id));
        return job.end(JobState::Failed, facts.now_ms);
    }
    // and a volume made.
    let servers = job.servers.iter().filter_map(|id| Some((*id, state.servers.get(id)?)));
    let checked: Result<Vec<()>> =
        servers.map(|(id, server)| check_removable(state, id, server)).collect();
    if let Err(error) = checked {
        job.reason = error.detail.into();
        return job.end(JobState::Failed, facts.now_ms);
    }
    for id in &job.targets {
        state.targets.remove(id);
    }
    for id in &job.servers {
        state.servers.remove(id);
    }
}

/// The life of every target at a moment.
pub(crate) fn lives(state: &State, life: impl Fn(u32) -> Life) -> HashMap<u32, Life> {
    state.targets.keys().map(|&id| (id, life(id))).collect()
}

#[cfg(test)]
mod tests;
