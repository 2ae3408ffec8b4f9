//! Servers that do not reach each other, although the manager hears both: what writes to groups that need the way between them
//! would wait for it.
//!
//! Primaries say which members are silent to them. Which of two servers is apart is not seen in one group, since each leads some. So
//! it is decided by servers, for all groups of two at once, who *goes*: its members are asked to resign, and take themselves out as
//! those do whose disks hang. Only groups are concerned of which one of the two has the primary: nothing goes from one member to another
//! that does not lead.
//!
//! Who has gone joins again when the primary reaches it. In one group of the two at a time that is tried, after a pause that
//! grows: the writes of that group wait for it a moment.

use super::{Liveness, Pause};
use crate::records::Group;
use crate::state::State;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strake_wire::message::manager::{RESIGNS_MAX, Resign, Resynced};

/// For how long it has to be told of a way that it is cut, before anybody goes. It is told after 3 s.
const LASTING: Duration = Duration::from_secs(2);
/// When nothing was heard of a way for so long it counts as whole: longer than from one try to the next.
const FORGOTTEN: Duration = Duration::from_secs(90);

/// Two servers, the one with the smaller number first.
type Pair = (u32, u32);

/// Two servers.
pub(crate) fn pair(one: u32, other: u32) -> Pair {
    (one.min(other), one.max(other))
}

/// What primaries say of members that are silent to them.
#[derive(Default)]
pub(crate) struct Silences {
    /// Which servers do not reach each other.
    pub pairs: BTreeSet<Pair>,
    /// Groups whose primaries have acknowledged what other members may not have.
    pub early: BTreeSet<u32>,
}

/// A way between two servers that is cut.
struct Way {
    /// Since when it is told so,
    since: Duration,
    /// and when it was last, or a member was tried in vain.
    last: Duration,
    /// Which of the two goes, once that is decided.
    goes: Option<u32>,
    /// How long nobody is tried again.
    pause: Option<Pause>,
    /// The group in which somebody was tried last.
    tried: u32,
}

/// All of them, and what follows from them.
#[derive(Default)]
pub(super) struct Apart {
    ways: BTreeMap<Pair, Way>,
    /// Members that are to resign, by server.
    asked: BTreeMap<u32, Vec<Resign>>,
    /// Members that do not join, by group.
    barred: BTreeSet<(u32, u32)>,
    /// Groups whose primaries lead on: who would take their place does not reach another member.
    led_on: BTreeSet<u32>,
}

impl Apart {
    /// So much time passed in which the manager heard nobody.
    pub fn pass_over(&mut self, gap: Duration) {
        for way in self.ways.values_mut() {
            (way.since, way.last) = (way.since + gap, way.last + gap);
        }
    }

    /// Which ways are cut by what is said now.
    fn hear(&mut self, pairs: &BTreeSet<Pair>, now: Duration) {
        for pair in pairs {
            let way = Way { since: now, last: now, goes: None, pause: None, tried: 0 };
            self.ways.entry(*pair).or_insert(way).last = now;
        }
        self.ways.retain(|pair, way| match way.goes {
            None => pairs.contains(pair),
            // Nobody is missed any more by whom he has left.
            Some(_) => now.saturating_sub(way.last) <= FORGOTTEN,
        });
    }

    /// Decides who goes where a way has been cut for long enough.
    fn decide(&mut self, state: &State, live: &Liveness, now: Duration) {
        let lasts = |way: &Way| way.goes.is_none() && now.saturating_sub(way.since) >= LASTING;
        let due = self.ways.iter().filter(|(_, way)| lasts(way)).map(|(pair, _)| *pair);
        for (one, other) in due.collect::<Vec<_>>() {
            let weight = |server| self.weight(state, live, (one, other), server, now);
            let goes = if weight(one) > weight(other) { one } else { other };
            tracing::warn!(
                "servers {one} and {other} do not reach each other: server {goes} leaves groups of both"
            );
            strake_base::count_case("servers-apart");
            if let Some(way) = self.ways.get_mut(&(one, other)) {
                (way.goes, way.pause) = (Some(goes), Some(Pause::after(None, now)));
            }
        }
    }

    /// How much speaks for it that one of two goes: it is apart from more others; it is needed in fewer of their groups; it leads
    /// fewer of these, so that there is one of another primary in which it can be tried later whether it is reached; or just its number.
    fn weight(
        &self,
        state: &State,
        live: &Liveness,
        of: Pair,
        server: u32,
        now: Duration,
    ) -> (usize, Reverse<usize>, Reverse<usize>, u32) {
        let ways = self.ways.keys().filter(|way| way.0 == server || way.1 == server).count();
        let (mut needed, mut leads) = (0, 0);
        for group in groups(state).map(|(_, group)| group).filter(|group| needs(state, group, of)) {
            let is_own = |member: &&u32| state.server_of(**member) == Some(server);
            let Some(own) = group.in_sync.iter().find(is_own) else { continue };
            needed += usize::from(!may_go(state, live, group, *own, now));
            leads += usize::from(group.in_sync.first() == Some(own));
        }
        (ways, Reverse(needed), Reverse(leads), server)
    }

    /// Who goes where the way between two servers is cut; `None`: it is not, as far as is known, or that is not decided yet.
    fn goes(&self, one: u32, other: u32) -> Option<u32> {
        self.ways.get(&pair(one, other))?.goes
    }

    /// Who is to go from a group now: its primary, or the first of those that it does not reach. Of several, one in each epoch.
    fn who_goes(&self, state: &State, group: &Group, is_early: bool) -> Option<u32> {
        let (&primary, others) = group.in_sync.split_first()?;
        let here = state.server_of(primary)?;
        let goes = |member: &u32| self.goes(here, state.server_of(*member)?);
        let member = others.iter().find(|member| goes(*member).is_some())?;
        // What it has acknowledged alone nobody else has.
        let primary_goes = !is_early && others.iter().any(|member| goes(member) == Some(here));
        Some(if primary_goes { primary } else { *member })
    }

    /// Who is asked to go: nobody whom a group needs.
    fn ask(&mut self, state: &State, live: &Liveness, early: &BTreeSet<u32>, now: Duration) {
        let mut asked: BTreeMap<u32, Vec<Resign>> = BTreeMap::new();
        for (group, found) in groups(state) {
            let member = self.who_goes(state, found, early.contains(&group));
            let Some(member) = member.filter(|one| may_go(state, live, found, *one, now)) else {
                continue;
            };
            let Some(server) = state.server_of(member) else { continue };
            asked.entry(server).or_default().push(Resign { group, epoch: found.epoch, member });
        }
        self.asked = asked;
    }

    /// Who does not join, and where the lead stays. Of those that a way keeps out one is tried at a time, in the next group each time.
    fn bar(&mut self, state: &State, live: &Liveness, now: Duration) {
        let (mut barred, mut led_on) = (BTreeSet::new(), BTreeSet::new());
        let (mut tried, mut next) = (BTreeSet::new(), BTreeMap::<Pair, Vec<(u32, u32)>>::new());
        for (id, group) in groups(state) {
            if self.would_not_reach(state, group) {
                led_on.insert(id);
            }
            for (member, way) in self.kept_out(state, group) {
                if group.joining.contains(&member) {
                    tried.insert(way);
                    continue;
                }
                barred.insert((id, member));
                if serves(state, live, member, now) && !live.has_failed_lately(id, member, now) {
                    next.entry(way).or_default().push((id, member));
                }
            }
        }
        for (pair, waiting) in next {
            let Some(way) = self.ways.get(&pair).filter(|_| !tried.contains(&pair)) else {
                continue;
            };
            if way.pause.is_none_or(|pause| !pause.lasts(now)) {
                let after = waiting.iter().find(|(id, _)| *id > way.tried);
                if let Some(one) = after.or(waiting.first()) {
                    barred.remove(one);
                }
            }
        }
        (self.barred, self.led_on) = (barred, led_on);
    }

    /// Members that are not in sync, and that the primary does not reach as far as is known; and the way.
    fn kept_out(&self, state: &State, group: &Group) -> impl Iterator<Item = (u32, Pair)> {
        let here = group.in_sync.first().and_then(|primary| state.server_of(*primary));
        let others = group.members.iter().filter(move |member| !group.in_sync.contains(member));
        others.filter_map(move |member| {
            let (here, there) = (here?, state.server_of(*member)?);
            self.goes(here, there).map(|_| (*member, pair(here, there)))
        })
    }

    /// True if who leads by the list of members does not reach another one in sync.
    fn would_not_reach(&self, state: &State, group: &Group) -> bool {
        let lead = group.members.iter().find(|member| group.in_sync.contains(member));
        let Some(here) = lead.and_then(|lead| state.server_of(*lead)) else { return false };
        let mut servers = group.in_sync.iter().filter_map(|member| state.server_of(*member));
        servers.any(|there| self.goes(here, there).is_some())
    }
}

impl Liveness {
    /// Decides who goes because of ways that are cut by what is said now, and who is tried again.
    pub fn decide_apart(&mut self, state: &State, said: &Silences, now: Duration) {
        let mut apart = std::mem::take(&mut self.apart);
        apart.hear(&said.pairs, now);
        apart.decide(state, self, now);
        if apart.ways.values().any(|way| way.goes.is_some()) {
            apart.ask(state, self, &said.early, now);
            apart.bar(state, self, now);
        } else {
            apart = Apart { ways: apart.ways, ..Apart::default() };
        }
        self.apart = apart;
    }

    /// Members of a server that are to resign.
    pub fn asked_to_resign(&self, server: u32) -> Vec<Resign> {
        let asked = self.apart.asked.get(&server).into_iter().flatten();
        asked.take(RESIGNS_MAX).copied().collect()
    }

    /// Members that are out of groups whose primaries they do not reach: the member, the primary, and for how long that is known.
    pub fn left_out(&self, state: &State, now: Duration) -> BTreeMap<(u32, u32), Duration> {
        let mut found = BTreeMap::new();
        if self.apart.ways.values().all(|way| way.goes.is_none()) {
            return found;
        }
        for (_, group) in groups(state) {
            let Some(primary) = group.in_sync.first() else { continue };
            for (member, way) in self.apart.kept_out(state, group) {
                let since = self.apart.ways.get(&way).map_or(now, |way| way.since);
                found.insert((member, *primary), now.saturating_sub(since));
            }
        }
        found
    }

    /// True if a member is not let in again, since its server and the primary's do not reach each other.
    pub(super) fn is_barred(&self, group: u32, member: u32) -> bool {
        self.apart.barred.contains(&(group, member))
    }

    /// True if who would lead a group does not reach another member.
    pub(super) fn is_led_on(&self, group: u32) -> bool {
        self.apart.led_on.contains(&group)
    }

    /// A member that joins was made equal, or could not be: the way from its primary is whole, or is not tried again at once.
    pub(super) fn note_tried(&mut self, state: &State, report: &Resynced, now: Duration) {
        let group = state.groups.get(&report.group);
        let group = group.filter(|group| group.joining.contains(&report.member));
        let primary = group.and_then(|group| group.in_sync.first());
        let servers =
            primary.and_then(|id| state.server_of(*id)).zip(state.server_of(report.member));
        let Some(key) = servers.map(|(here, there)| pair(here, there)) else { return };
        let Some(way) = self.apart.ways.get_mut(&key).filter(|way| way.goes.is_some()) else {
            return;
        };
        if report.failed {
            (way.last, way.tried) = (now, report.group);
            way.pause = Some(Pause::after(way.pause.as_ref(), now));
        } else {
            tracing::info!("servers {} and {} reach each other again", key.0, key.1);
            self.apart.ways.remove(&key);
        }
    }
}

/// Groups of several copies, or of one that moves.
fn groups(state: &State) -> impl Iterator<Item = (u32, &Group)> {
    let groups = state.groups.iter().map(|(&id, group)| (id, group));
    groups.filter(|(_, group)| group.members.len() > 1)
}

/// True if what is written to a group goes from one of two servers to the other.
fn needs(state: &State, group: &Group, of: Pair) -> bool {
    let Some((primary, others)) = group.in_sync.split_first() else { return false };
    let Some(here) = state.server_of(*primary) else { return false };
    let mut servers = others.iter().filter_map(|member| state.server_of(*member));
    servers.any(|there| there != here && pair(here, there) == of)
}

fn serves(state: &State, live: &Liveness, target: u32, now: Duration) -> bool {
    let server = state.server_of(target);
    server.is_some_and(|server| live.life_in_groups(target, server, now).serves())
}

/// True if another one in sync goes on without a member. Of one that is to leave anyway the manager wants to know that of all others.
fn may_go(state: &State, live: &Liveness, group: &Group, member: u32, now: Duration) -> bool {
    let others = || group.in_sync.iter().filter(|other| **other != member);
    let serving = others().filter(|other| serves(state, live, **other, now)).count();
    match group.leaving.contains(&member) {
        true => serving > 0 && serving == others().count(),
        false => serving > 0,
    }
}

#[cfg(test)]
mod tests;
