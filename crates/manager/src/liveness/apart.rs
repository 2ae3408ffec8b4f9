//! Servers that do not reach each other, although the manager hears both: what writes to groups that need the way between them
//! would wait for it.
//!
//! Primaries say which members are silent to them: nothing gets from the one server to the other. That is a *way*, and it may be whole
//! the other way round. Which of two servers is apart is not seen in one group, since each leads some. So it is decided by servers,
//! for all groups of two at once, who *goes* (`goes`): its members are asked to resign, and take themselves out as those do whose disks
//! hang. Only groups are concerned whose primaries are where a way begins that is cut: nothing goes from one member to another that does
//! not lead.
//!
//! Who has gone joins again when the primary reaches it (`tries`). In one group of the way at a time that is tried, after a pause that
//! grows: the writes of that group wait for it a moment. Nor does the lead go back to who does not reach another member.
//!
//! When all who could tell have left, nobody says any more that a way is cut. So that is remembered, for longer each time that it turns
//! out to be cut again.

mod goes;
mod tries;

use super::{Liveness, Pause};
use crate::records::Group;
use crate::state::State;
use goes::{Ask, Choice};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strake_wire::message::manager::{Doubt, RESIGNS_MAX, Resign};

/// For how long it has to be told of a way that it is cut, before anybody goes. It is told after 3 s.
const LASTING: Duration = Duration::from_secs(2);
/// For how long a way counts as cut after it was last told so, or tried in vain: longer than from one try to the next. Each time that it
/// is cut again, it is twice as long.
const KEPT: Duration = Duration::from_secs(90);
const KEPT_MAX: Duration = Duration::from_secs(3_600);
/// The same, while nobody is out of a group for it, or kept from leading: in a new epoch it is told again by then.
const KEPT_UNUSED: Duration = Duration::from_secs(15);
/// First pause before somebody is tried: who writes there has just waited for the way.
const PAUSE: Duration = Duration::from_secs(5);
/// Where more members of a server are to resign than it is told at once, they take turns, of this length: they go in less.
const TURN: Duration = Duration::from_secs(4);

/// From one server to another.
type Way = (u32, u32);
/// Two servers, the one with the smaller number first.
type Pair = (u32, u32);

fn pair((one, other): Way) -> Pair {
    (one.min(other), one.max(other))
}

/// What primaries say of members that are silent to them.
#[derive(Default)]
pub(crate) struct Silences {
    /// From which server nothing gets to which.
    pub ways: BTreeSet<(u32, u32)>,
    /// Groups whose primaries have acknowledged what other members may not have.
    pub early: BTreeSet<u32>,
}

/// What is known of a way.
struct Known {
    /// Since when primaries have said without a break that members that count are silent; `None`: they do not say so now.
    told: Option<Duration>,
    /// Since when it counts as cut; `None`: it does not.
    cut: Option<Duration>,
    /// Since when somebody who joins has been silent; `None`: nobody was, or it counts as cut.
    vain: Option<Duration>,
    /// When it was last told, or tried in vain,
    last: Duration,
    /// and for how long it counts as cut after that.
    kept: Duration,
    /// How long nobody is tried again. It stays when the way is whole: the next one is longer.
    pause: Option<Pause>,
    /// The group in which somebody was tried last.
    tried: u32,
}

impl Known {
    fn new(now: Duration) -> Self {
        let (told, cut, vain, pause) = (None, None, None, None);
        Self { told, cut, vain, last: now, kept: KEPT, pause, tried: 0 }
    }

    /// It counts as cut from now on, if it did not yet.
    fn note_cut(&mut self, since: Duration, now: Duration) {
        self.vain = None;
        if self.cut.is_some() {
            return;
        }
        self.cut = Some(since);
        if self.pause.is_some() {
            self.kept = (self.kept * 2).min(KEPT_MAX);
        }
        self.note_vain(now);
    }

    /// Nobody is tried again at once.
    fn note_vain(&mut self, now: Duration) {
        self.last = now;
        let first = Pause::of(PAUSE, now);
        self.pause =
            Some(self.pause.as_ref().map_or(first, |pause| Pause::after(Some(pause), now)));
    }
}

/// All of them, and what follows from them.
#[derive(Default)]
pub(super) struct Apart {
    ways: BTreeMap<Way, Known>,
    /// Which of two servers goes, where that is decided.
    choices: BTreeMap<Pair, Choice>,
    /// Who is asked to go, by group,
    asks: BTreeMap<u32, Ask>,
    /// and by server.
    resigns: BTreeMap<u32, Vec<Resign>>,
    /// Of whom primaries on a server are to find out whether they are silent.
    doubts: BTreeMap<u32, Vec<Doubt>>,
    /// Members that do not join, by group.
    barred: BTreeSet<(u32, u32)>,
    /// Members that join all the same, by group, and since when.
    joins: BTreeMap<(u32, u32), Duration>,
    /// Groups whose primaries lead on: who would take their place does not reach another member.
    led_on: BTreeSet<u32>,
}

impl Apart {
    /// So much time passed in which the manager heard nobody.
    pub fn pass_over(&mut self, gap: Duration) {
        for known in self.ways.values_mut() {
            known.last += gap;
            known.told = known.told.map(|told| told + gap);
            known.cut = known.cut.map(|cut| cut + gap);
            known.vain = known.vain.map(|vain| vain + gap);
        }
        self.joins.values_mut().for_each(|since| *since += gap);
        self.asks.values_mut().for_each(|ask| ask.since += gap);
    }

    /// A server has joined, and its network may be another one: its members are tried at once. What is known only of who has joined in
    /// vain is forgotten: one of the two may have been down then.
    pub fn begin_anew(&mut self, server: u32) {
        let is_of = |way: &Way| way.0 == server || way.1 == server;
        let choices = &self.choices;
        self.ways.retain(|way, known| {
            !is_of(way) || known.told.is_some() || choices.contains_key(&pair(*way))
        });
        for (way, known) in &mut self.ways {
            if is_of(way) {
                known.vain = None;
                known.pause = known.pause.map(Pause::ended);
            }
        }
    }

    /// Which ways are told as cut now. One on which a member has joined in vain is, too, if its server is heard after that: it was not down.
    fn hear(&mut self, told: &BTreeSet<Way>, live: &Liveness, now: Duration) {
        for way in told {
            let known = self.ways.entry(*way).or_insert_with(|| Known::new(now));
            known.last = now;
            let since = *known.told.get_or_insert(now);
            if now.saturating_sub(since) >= LASTING {
                known.note_cut(since, now);
            }
        }
        for (_, known) in self.ways.iter_mut().filter(|(way, _)| !told.contains(*way)) {
            known.told = None;
        }
        for (way, known) in &mut self.ways {
            if let Some(vain) = known.vain.filter(|vain| live.is_well_since(way.1, *vain)) {
                known.note_cut(vain, now);
            }
        }
    }

    /// A way of which nothing was heard for long counts as whole, and is forgotten later. These are `used`: somebody is out of a group for
    /// it, or does not lead. Where both ways between two are cut only one of them is ever tried.
    fn forget(&mut self, used: &BTreeSet<Way>, now: Duration) {
        let lasts: BTreeMap<Way, Duration> =
            self.ways.iter().map(|(way, known)| (*way, known.last)).collect();
        self.ways.retain(|&(from, to), known| {
            let back = lasts.get(&(to, from)).copied().unwrap_or_default();
            let age = now.saturating_sub(known.last.max(back));
            let kept = if used.contains(&(from, to)) { known.kept } else { KEPT_UNUSED };
            if age > kept {
                known.cut = None;
            }
            known.vain = known.vain.filter(|vain| now.saturating_sub(*vain) <= KEPT_UNUSED);
            let is_recent = known.pause.is_some() && age <= known.kept * 2;
            known.told.is_some() || known.cut.is_some() || known.vain.is_some() || is_recent
        });
    }

    fn is_cut(&self, way: Way) -> bool {
        self.ways.get(&way).is_some_and(|known| known.cut.is_some())
    }

    /// Those of a group's members that the primary does not reach, as far as is known, and the ways.
    fn cut_off(
        &self,
        state: &State,
        group: &Group,
        is_meant: impl Fn(&u32) -> bool,
    ) -> Vec<(u32, Way)> {
        let here = group.in_sync.first().and_then(|primary| state.server_of(*primary));
        let others = group.members.iter().filter(|member| is_meant(member));
        let cut_off = others.filter_map(|member| {
            let way = (here?, state.server_of(*member)?);
            self.is_cut(way).then_some((*member, way))
        });
        cut_off.collect()
    }
}

impl Liveness {
    /// Decides who goes because of ways that are cut by what is said now, and who is tried again.
    pub fn decide_apart(&mut self, state: &State, said: &Silences, now: Duration) {
        let mut apart = std::mem::take(&mut self.apart);
        apart.hear(&said.ways, self, now);
        if apart.ways.values().any(|known| known.cut.is_some() || known.told.is_some()) {
            apart.decide(state, self, now);
            let used = apart.bar(state, self, now);
            apart.forget(&used, now);
            apart.ask(state, self, &said.early, now);
            apart.doubt(state);
        } else {
            apart.forget(&BTreeSet::new(), now);
            apart = Apart { ways: apart.ways, ..Apart::default() };
        }
        self.apart = apart;
    }

    /// Members of a server that are to resign.
    pub fn asked_to_resign(&self, server: u32, now: Duration) -> Vec<Resign> {
        let Some(all) = self.apart.resigns.get(&server) else { return Vec::new() };
        let turns = all.len().div_ceil(RESIGNS_MAX).max(1);
        let turn = (now.as_secs() / TURN.as_secs()) as usize % turns;
        all.iter().skip(turn * RESIGNS_MAX).take(RESIGNS_MAX).copied().collect()
    }

    /// Of whom primaries on a server are to find out whether they are silent.
    pub fn doubts(&self, server: u32) -> Vec<Doubt> {
        self.apart.doubts.get(&server).cloned().unwrap_or_default()
    }

    /// Members that are out of groups whose primaries do not reach them: the member, the primary, and for how long that is known.
    pub fn left_out(&self, state: &State, now: Duration) -> BTreeMap<(u32, u32), Duration> {
        let mut found = BTreeMap::new();
        if self.apart.ways.values().all(|known| known.cut.is_none()) {
            return found;
        }
        for (_, group) in groups(state) {
            let Some(primary) = group.in_sync.first() else { continue };
            for (member, way) in self.apart.kept_out(state, group) {
                let since = self.apart.ways.get(&way).and_then(|known| known.cut).unwrap_or(now);
                found.insert((member, *primary), now.saturating_sub(since));
            }
        }
        found
    }

    /// True if a member is not let in again, since the primary's server does not reach its own.
    pub(super) fn is_barred(&self, group: u32, member: u32) -> bool {
        self.apart.barred.contains(&(group, member))
    }

    /// True if who would lead a group does not reach another member.
    pub(super) fn is_led_on(&self, group: u32) -> bool {
        self.apart.led_on.contains(&group)
    }
}

/// Groups of several copies, or of one that moves.
fn groups(state: &State) -> impl Iterator<Item = (u32, &Group)> {
    let groups = state.groups.iter().map(|(&id, group)| (id, group));
    groups.filter(|(_, group)| group.members.len() > 1)
}

fn serves(state: &State, live: &Liveness, target: u32, now: Duration) -> bool {
    let server = state.server_of(target);
    server.is_some_and(|server| live.life_in_groups(target, server, now).serves())
}

#[cfg(test)]
mod tests;
