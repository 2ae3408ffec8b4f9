//! Which members of which groups are to move where, and why that cannot be.
//!
//! Everything here decides on a [`State`] and on [`Facts`]; nothing moves before a job does it.

mod empties;
mod even;

use crate::advice::{ADD_DISK, ADD_SERVER};
use crate::groups::Life;
use crate::records::{Group, Item};
use crate::state::State;
pub(crate) use even::{even_out, left_out};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use strake_types::{Error, ErrorKind, GroupId, Result};
use strake_wire::message::jobs::{JobKind, JobState, Plan};
use strake_wire::message::manager::TargetSpec;
use strake_wire::message::recopies::RecopyProgress;
use strake_wire::message::scrubs::ScrubProgress;

/// What is known at a moment, beside what is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Who lives.
    pub lives: HashMap<u32, Life>,
    /// Bytes that a target holds of a group; 0 where there may be some that were not counted yet.
    pub held: HashMap<(u32, u32), u64>,
    /// Targets of which that is not known yet: their servers have just started, and go through them.
    pub uncounted: BTreeSet<u32>,
    /// Bytes free on targets that have said so.
    pub free: HashMap<u32, u64>,
    /// Bytes that those may hold.
    pub total: HashMap<u32, u64>,
    /// How far servers are with what they verify, by job and target.
    pub scrubs: HashMap<(u64, u32), Arc<ScrubProgress>>,
    /// How far metadata servers are with files that get another number of copies, by job and share.
    pub recopies: BTreeMap<(u64, u32), Arc<RecopyProgress>>,
    /// Targets that may have more than is said, of groups of long ago: their servers have not come to their end yet, or cannot.
    pub unwalked: BTreeSet<u32>,
    /// Servers that are up.
    pub up: BTreeSet<u32>,
    /// For how many milliseconds this manager has seen parts of jobs wait for servers.
    pub waited: HashMap<Wait, u64>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// A part of a job that waits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wait {
    pub job: u32,
    /// The target that it is about; 0: the job as a whole.
    pub target: u32,
    /// Since when, as it is stored: one that begins anew is another one.
    pub since_ms: u64,
}

impl Facts {
    pub fn serves(&self, target: u32) -> bool {
        self.lives.get(&target).is_some_and(|life| life.serves())
    }

    pub fn is_gone(&self, target: u32) -> bool {
        self.lives.get(&target).is_none_or(|life| *life == Life::Gone)
    }

    /// True if a part of a job has waited longer than that.
    pub fn has_waited(&self, wait: Wait, ms: u64) -> bool {
        self.waited.get(&wait).is_some_and(|waited| *waited > ms)
    }

    /// True if everybody who has everything of a group is among those that go for good, and none of them
    /// answers. One that is away and is to stay comes back with what it has.
    pub fn is_lost(&self, group: &Group, going: &BTreeSet<u32>) -> bool {
        group.in_sync.iter().all(|member| going.contains(member) && self.is_gone(*member))
    }

    /// True if something is lost with it: of what was never used nothing is.
    pub fn loses(&self, group: &Group, going: &BTreeSet<u32>) -> bool {
        !group.never_used && self.is_lost(group, going)
    }

    /// Bytes that each target holds.
    pub fn held_by_target(&self) -> HashMap<u32, u64> {
        let mut held: HashMap<u32, u64> = HashMap::new();
        for ((target, _), bytes) in &self.held {
            *held.entry(*target).or_default() += bytes;
        }
        held
    }

    /// What a group had when it was moved counts until its new holder has counted it, or for a while: there may be nothing
    /// any more.
    pub fn carried_over(mut self, state: &State) -> Self {
        let since_ms = self.now_ms.saturating_sub(CARRIED_MS_MAX);
        for job in state.jobs.values().filter(|job| job.lasts() || job.ended_ms >= since_ms) {
            for item in job.items.iter().filter(|item| item.is(JobState::Done)) {
                match self.held.get_mut(&(item.to, item.group)) {
                    Some(held) if *held == 0 => *held = item.bytes.max(item.sent),
                    _ => {}
                }
            }
        }
        self
    }

    /// True if a group has nothing.
    fn is_empty(&self, id: u32, group: &Group) -> bool {
        !group.in_sync.iter().any(|&member| self.held.contains_key(&(member, id)))
    }

    /// True if a group may have something, and nobody has counted it yet.
    pub fn is_uncounted(&self, id: u32, group: &Group) -> bool {
        self.bytes_of(id, group) == 0 && !self.is_empty(id, group)
    }

    /// Bytes of a group, as far as known.
    pub fn bytes_of(&self, id: u32, group: &Group) -> u64 {
        let counts = group.in_sync.iter().filter_map(|&member| self.held.get(&(member, id)));
        counts.copied().max().unwrap_or(0)
    }
}

/// An error while it is not known what some target holds: its server has not spoken yet, as after a change of the leader, or has
/// just started and goes through it, where that is asked for. A plan made then would move nothing, or the wrong things.
pub(crate) fn check_heard(
    state: &State,
    facts: &Facts,
    has_beaten: impl Fn(u32) -> bool,
    request: &Plan,
) -> Result<()> {
    use JobKind::{Drain, Rebalance, Replace};
    if request.undo || !matches!(JobKind::of(request.kind), Some(Drain | Rebalance | Replace)) {
        return Ok(());
    }
    for (&id, target) in state.targets.iter().filter(|(id, _)| !facts.is_gone(**id)) {
        let why = if !has_beaten(target.server) {
            "has not said yet what it holds: its server or the manager has just started; try again in some seconds"
        } else if facts.uncounted.contains(&id) && needs_count(state, facts, request, id) {
            "has not counted yet what it holds: its server has just started and goes through it, which takes minutes \
             where it holds much; try again then"
        } else {
            continue;
        };
        let or = match JobKind::of(request.kind) {
            Some(Drain) if has_beaten(target.server) => ", or give --force",
            _ => "",
        };
        let detail = format!("{} {why}{or}", name_of(state, id));
        return Err(Error::with(ErrorKind::Unavailable, detail));
    }
    Ok(())
}

/// True if a plan waits until a target has counted what it holds. Who takes the place of another is named; and copies that are
/// gone are made again at once, however even that gets.
fn needs_count(state: &State, facts: &Facts, request: &Plan, target: u32) -> bool {
    match JobKind::of(request.kind) {
        Some(JobKind::Replace) => target == request.to,
        Some(JobKind::Drain) => {
            let mut about = state.targets.iter().filter(|(id, target)| {
                request.targets.contains(id) || request.servers.contains(&target.server)
            });
            !request.force && !about.all(|(&id, _)| facts.is_gone(id))
        }
        _ => true,
    }
}

/// For how long the count of who held a group before may stand for that of who has it now.
const CARRIED_MS_MAX: u64 = 600_000;
/// A target that is full.
const FULL: u64 = 1 << 40;
/// What evens out leaves one part of so many of a target free: it is written to meanwhile.
const MARGIN_PART: u64 = 20;

/// What targets will hold when everything planned is done.
#[derive(Default)]
pub(crate) struct Loads {
    bytes: HashMap<u32, u64>,
    /// In how many groups of so many copies they will be, by that number and target.
    places: HashMap<(u32, u32), u64>,
    /// What they do not hold yet of that.
    coming: HashMap<u32, u64>,
    /// What they may hold, and what is taken for it where they have not said.
    sizes: HashMap<u32, u64>,
    size_unknown: u64,
}

impl Loads {
    pub fn of(state: &State, facts: &Facts) -> Self {
        let sizes = facts.total.clone();
        let size_unknown = sizes.values().copied().max().unwrap_or(FULL);
        let mut loads = Self { sizes, size_unknown, ..Self::default() };
        for (&id, group) in &state.groups {
            let bytes = facts.bytes_of(id, group);
            for &member in group.members.iter().filter(|m| !group.leaving.contains(m)) {
                let held = facts.held.get(&(member, id)).copied().unwrap_or(0);
                loads.add(id, member, bytes, bytes.saturating_sub(held));
            }
        }
        loads
    }

    fn add(&mut self, group: u32, target: u32, bytes: u64, coming: u64) {
        *self.bytes.entry(target).or_default() += bytes;
        *self.places.entry((GroupId(group).copies(), target)).or_default() += 1;
        *self.coming.entry(target).or_default() += coming;
    }

    fn take(&mut self, group: u32, target: u32, bytes: u64) {
        let held = self.bytes.entry(target).or_default();
        *held = held.saturating_sub(bytes);
        let places = self.places.entry((GroupId(group).copies(), target)).or_default();
        *places = places.saturating_sub(1);
    }

    fn moved(&mut self, item: &Item) {
        self.take(item.group, item.from, item.bytes);
        self.add(item.group, item.to, item.bytes, item.bytes);
    }

    fn bytes(&self, target: u32) -> u64 {
        self.bytes.get(&target).copied().unwrap_or(0)
    }

    /// In how many groups of so many copies a target will be.
    fn places(&self, copies: u32, target: u32) -> u64 {
        self.places.get(&(copies, target)).copied().unwrap_or(0)
    }

    /// The less, the better a target is for a group of so many bytes: first how full it will be. What has none, or was not counted
    /// yet, makes nobody fuller, and new files are striped over it all the same: first in how many groups of the kind it is.
    fn rank(&self, group: u32, target: u32, bytes: u64) -> (u64, u64) {
        let fill = self.fill_with(target, bytes);
        let places = self.places(GroupId(group).copies(), target);
        if bytes == 0 { (places, fill) } else { (fill, places) }
    }

    /// Bytes that are yet to come to a target, with so many more.
    fn coming_with(&self, target: u32, bytes: u64) -> u64 {
        self.coming.get(&target).copied().unwrap_or(0).saturating_add(bytes)
    }

    /// How full a target would be with so many bytes.
    fn fill(&self, target: u32, bytes: u64) -> u64 {
        let size = self.sizes.get(&target).copied().unwrap_or(self.size_unknown).max(1);
        let fill = u128::from(bytes) * u128::from(FULL) / u128::from(size);
        u64::try_from(fill).unwrap_or(u64::MAX)
    }

    /// How full it will be.
    fn fill_now(&self, target: u32) -> u64 {
        self.fill(target, self.bytes(target))
    }

    /// How full it will be with so many bytes more.
    fn fill_with(&self, target: u32, bytes: u64) -> u64 {
        self.fill(target, self.bytes(target).saturating_add(bytes))
    }

    /// True if a target has room for so many bytes beside all that is yet to come, and keeps some for what is written meanwhile.
    pub fn fits(&self, facts: &Facts, target: u32, bytes: u64) -> bool {
        self.leaves(facts, target, bytes, |size| size / MARGIN_PART)
    }

    /// True if a target is not nearly full when all that is yet to come is there: new files come to it.
    pub fn has_room(&self, facts: &Facts, target: u32) -> bool {
        self.leaves(facts, target, 0, |size| size / 100 * TargetSpec::low_percent(size))
    }

    /// True if so many bytes beside all that is yet to come leave a target a margin, which its size gives.
    fn leaves(&self, facts: &Facts, target: u32, bytes: u64, margin: fn(u64) -> u64) -> bool {
        let margin = self.sizes.get(&target).map_or(0, |size| margin(*size));
        let needed = self.coming_with(target, bytes).saturating_add(margin);
        facts.free.get(&target).is_none_or(|free| *free >= needed)
    }
}

/// Who is to lose its groups, and to whom.
pub(crate) struct Wanted {
    /// Targets that lose their groups.
    pub leaving: BTreeSet<u32>,
    /// The target that gets them where it can.
    pub to: Option<u32>,
    /// Copies may come to lie on one server.
    pub force: bool,
    /// What only a target has that is gone is given up.
    pub lose_data: bool,
    /// They stay in the cluster, and with them groups that nobody else can take and in which nothing is.
    pub stays: bool,
}

impl Wanted {
    /// True for a group that may stay where it is, if no other target can take its part: nothing is in it, and somebody who does not
    /// leave has what may come. A command that was taken back makes such ones.
    fn leaves_out(&self, state: &State, facts: &Facts, id: u32, group: &Group) -> bool {
        let remains = |member: &u32| {
            let stays = state.targets.get(member).is_some_and(|target| !target.drains);
            stays && !self.leaving.contains(member) && facts.serves(*member)
        };
        let may_hold = |member: &u32| {
            facts.uncounted.contains(member) || facts.held.contains_key(&(*member, id))
        };
        let is_whole = || group.members.iter().all(|member| group.in_sync.contains(member));
        self.stays
            && is_whole()
            && group.members.iter().any(remains)
            && !group.members.iter().any(may_hold)
    }
}

/// What was asked for cannot be meant, or would do harm.
pub(crate) fn refuse(detail: String) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

/// A target as people know it.
pub(crate) fn name_of(state: &State, id: u32) -> String {
    let Some(target) = state.targets.get(&id) else { return format!("target {id}") };
    let server = state.servers.get(&target.server).map_or("?", |server| server.name.as_str());
    format!("target {id} ({} on server {server})", target.path)
}

fn numbers(list: impl IntoIterator<Item = u32>, between: &str) -> String {
    let list: Vec<String> = list.into_iter().map(|id| id.to_string()).collect();
    list.join(between)
}

/// Everything that leaves some targets, as items of a job, some of which may be planned already: what is lost with those now is
/// looked at anew.
pub(crate) fn empty(
    state: &State,
    facts: &Facts,
    wanted: &Wanted,
    mut items: Vec<Item>,
) -> Result<Vec<Item>> {
    let mut loads = Loads::of(state, facts);
    items.iter().for_each(|item| loads.moved(item));
    let known: HashMap<(u32, u32), usize> =
        items.iter().enumerate().map(|(at, item)| ((item.group, item.from), at)).collect();
    let mut losses = Vec::new();
    for (&id, group) in &state.groups {
        let mut members = group.members.clone();
        for from in group.members.iter().copied().filter(|m| wanted.leaving.contains(m)) {
            let lost = facts.loses(group, &wanted.leaving);
            if lost && !wanted.lose_data {
                losses.push((id, group));
                break;
            }
            members.retain(|member| *member != from);
            if let Some(&at) = known.get(&(id, from)) {
                items[at].lost = lost;
                members.push(items[at].to);
                continue;
            }
            let bytes = facts.bytes_of(id, group);
            let place = Place { id, members: &members, from };
            let to = match choose(state, facts, &loads, &place, wanted) {
                Err(_) if wanted.leaves_out(state, facts, id, group) => break,
                chosen => chosen?,
            };
            members.push(to);
            let fixed = wanted.to == Some(to);
            let uncounted = facts.is_uncounted(id, group);
            let item =
                Item { group: id, from, to, bytes, fixed, lost, uncounted, ..Item::default() };
            loads.moved(&item);
            items.push(item);
        }
    }
    match losses.first() {
        None => Ok(items),
        Some(_) => Err(lost(state, &losses)),
    }
}

/// Why targets cannot be emptied: nobody else has what they hold.
fn lost(state: &State, losses: &[(u32, &Group)]) -> Error {
    let targets: BTreeSet<u32> =
        losses.iter().flat_map(|(_, group)| group.in_sync.iter().copied()).collect();
    let names: Vec<String> = targets.iter().map(|&id| name_of(state, id)).collect();
    let groups = numbers(losses.iter().map(|(group, _)| *group), ", ");
    refuse(format!(
        "{} does not answer or takes no writes any more, and nobody else has everything of group {groups}: what files have there \
         would be lost (strake target files {} --only-copy names them); start its server again with the disk it had, or give it \
         up with --lose-data (those parts then read as zeros)",
        names.join(" and "),
        numbers(targets, " ")
    ))
}

/// A place in a group that is to be filled.
pub(crate) struct Place<'a> {
    /// The group.
    pub id: u32,
    /// Its members without the one that leaves.
    pub members: &'a [u32],
    /// Who leaves.
    pub from: u32,
}

impl Place<'_> {
    /// True if `to` would bring two members to one server, and the one that leaves does not lie so.
    pub(crate) fn brings_together(&self, state: &State, to: u32) -> bool {
        let has =
            |target| self.members.iter().any(|&m| state.server_of(m) == state.server_of(target));
        has(to) && !has(self.from)
    }
}

/// Who takes a place: on a server that has no other member where possible, with room, and with the
/// least to hold; the one with the fewest groups for what has nothing or was not counted yet, or all that would go to one.
pub(crate) fn choose(
    state: &State,
    facts: &Facts,
    loads: &Loads,
    place: &Place<'_>,
    wanted: &Wanted,
) -> Result<u32> {
    let group = state.groups.get(&place.id);
    let bytes = group.map_or(0, |group| facts.bytes_of(place.id, group));
    let others: HashSet<_> = place.members.iter().map(|&m| state.server_of(m)).collect();
    let known = group.map_or(&[][..], |group| group.members.as_slice());
    let stays = |id: &u32| {
        let target = state.targets.get(id);
        target.is_some_and(|t| !t.drains) && !wanted.leaving.contains(id) && !known.contains(id)
    };
    let able: Vec<u32> = state
        .targets
        .keys()
        .copied()
        .filter(|id| stays(id) && !place.members.contains(id) && !facts.is_gone(*id))
        .collect();
    if let Some(to) = wanted.to.filter(|to| able.contains(to))
        && (wanted.force || !place.brings_together(state, to))
    {
        return has_room(state, facts, loads, place.id, to, bytes);
    }
    let cost = |id: &&u32| {
        let near = others.contains(&state.server_of(**id));
        let coming = loads.coming_with(**id, bytes);
        let full = facts.free.get(*id).is_some_and(|free| *free < coming);
        // New files leave it out, and nothing else is to come into what is empty.
        let crowded = bytes == 0 && !loads.fits(facts, **id, 0);
        (near, !facts.serves(**id), full, crowded, loads.rank(place.id, **id, bytes), **id)
    };
    let Some(&to) = able.iter().min_by_key(cost) else {
        return Err(too_few(state, place, wanted));
    };
    if !wanted.force && place.brings_together(state, to) {
        return Err(refuse(format!(
            "group {} keeps {} copies on different servers, and without target {} two would lie on \
             one server; add a server ({ADD_SERVER}), or accept that with --force",
            place.id,
            GroupId(place.id).copies(),
            place.from
        )));
    }
    has_room(state, facts, loads, place.id, to, bytes)
}

fn has_room(
    state: &State,
    facts: &Facts,
    loads: &Loads,
    group: u32,
    to: u32,
    bytes: u64,
) -> Result<u32> {
    let coming = loads.coming_with(to, bytes);
    match facts.free.get(&to) {
        Some(&free) if free < coming => Err(Error::with(
            ErrorKind::NoSpace,
            format!(
                "{} has {free} bytes free, and {coming} would come with group {group}; add a disk \
                 ({ADD_DISK}) or a server ({ADD_SERVER}) first",
                name_of(state, to)
            ),
        )),
        _ => Ok(to),
    }
}

fn too_few(state: &State, place: &Place<'_>, wanted: &Wanted) -> Error {
    let copies = GroupId(place.id).copies();
    let stays = |(id, target): &(&u32, &crate::records::Target)| {
        !target.drains && !wanted.leaving.contains(id)
    };
    let left = state.targets.iter().filter(stays).count();
    refuse(format!(
        "group {} keeps {copies} {}, and without target {} no other target can take its part ({left} \
         stay, some may be away: strake status); add a server ({ADD_SERVER}) first",
        place.id,
        if copies == 1 { "copy" } else { "copies" },
        place.from
    ))
}

/// Refuses to empty targets where too few would stay for what these and other jobs move: each of them could
/// find a place for its own, and all together not.
pub(crate) fn check_places(state: &State, facts: &Facts, wanted: &Wanted) -> Result<()> {
    let leaving = &wanted.leaving;
    let goes = |id: &u32| leaving.contains(id) || state.targets.get(id).is_some_and(|t| t.drains);
    let stay = state.targets.keys().filter(|id| !goes(id)).count();
    let lacks = |(id, group): &(&u32, &Group)| {
        stay < GroupId(**id).copies() as usize
            && group.members.iter().any(goes)
            && !wanted.leaves_out(state, facts, **id, group)
    };
    let Some((id, _)) = state.groups.iter().find(lacks).filter(|_| !leaving.is_empty()) else {
        return Ok(());
    };
    Err(refuse(format!(
        "group {id} keeps {} copies, and {stay} targets would stay that are not emptied by this or another \
         job (strake job list); add a server ({ADD_SERVER}) first",
        GroupId(*id).copies()
    )))
}

#[cfg(test)]
mod tests;
