//! Which of two servers goes, where the way between them is cut.

use super::{Apart, Pair, Way, groups, pair, serves};
use crate::liveness::Liveness;
use crate::records::Group;
use crate::state::State;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strake_wire::message::manager::{Doubt, Resign};

/// Decisions at one look. The others are made at the next.
const DECIDED_MAX: usize = 64;
/// Who is asked for so long and does not go is of an earlier release, perhaps: the other one is asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known of one of two servers. Where that is another than when it was decided who goes, it is decided again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Side {
    /// The manager does not reach it.
    unreached: bool,
    /// From how many others it is apart.
    ways: usize,
    /// It does not reach the other one.
    is_cut: bool,
}

/// Who goes of two servers, and why.
pub(super) struct Choice {
    sides: [Side; 2],
    goes: u32,
}

/// Who is asked to go from a group, in which epoch, and since when.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    member: u32,
    epoch: u64,
    pub since: Duration,
}

/// What is lost if a server goes: groups that need it, and that it leads.
#[derive(Clone, Copy, Default)]
struct Stake {
    needed: usize,
    leads: usize,
}

impl Apart {
    /// Decides who goes where a way has been told as cut for long enough.
    pub(super) fn decide(&mut self, state: &State, live: &Liveness, now: Duration) {
        let cut = self.ways.iter().filter(|(_, known)| known.cut.is_some());
        // Of one that a member has tried in vain to join by nobody who counts may know.
        let is_meant = |known: bool, of: Pair| known || self.choices.contains_key(&of);
        let pairs: BTreeSet<Pair> = cut
            .filter(|(way, known)| is_meant(known.told.is_some(), pair(**way)))
            .map(|(way, _)| pair(*way))
            .collect();
        self.choices.retain(|of, _| pairs.contains(of));
        let counts = self.counts();
        let sides = pairs.into_iter().map(|of| (of, self.sides(live, &counts, of)));
        let is_other = |(of, sides): &(Pair, [Side; 2])| {
            self.choices.get(of).is_none_or(|choice| choice.sides != *sides)
        };
        let due: BTreeMap<Pair, [Side; 2]> = sides.filter(is_other).take(DECIDED_MAX).collect();
        if due.is_empty() {
            return;
        }
        let stakes = self.stakes(state, live, &due, now);
        for (of, sides) in due {
            let weight = |server: u32, [own, other]: [Side; 2]| {
                let stake = stakes.get(&(of, server)).copied().unwrap_or_default();
                // Where it does not reach the other one, and that one reaches it, both copies stay if the other one leads.
                let only_hears = own.is_cut && !other.is_cut;
                let (needed, leads) = (Reverse(stake.needed), Reverse(stake.leads));
                (live.is_doubtful(server), own.ways, only_hears, needed, leads, server)
            };
            let [one, other] = sides;
            let goes = match weight(of.0, [one, other]) > weight(of.1, [other, one]) {
                true => of.0,
                false => of.1,
            };
            self.choose(of, Choice { sides, goes });
        }
    }

    fn choose(&mut self, of: Pair, choice: Choice) {
        let goes = choice.goes;
        let before = self.choices.insert(of, choice).map(|choice| choice.goes);
        if before != Some(goes) {
            tracing::warn!(
                "servers {} and {} do not reach each other: server {goes} leaves groups of both",
                of.0,
                of.1
            );
        }
        if before.is_none() {
            strake_base::count_case("servers-apart");
        }
    }

    /// Where a way is cut, or told to be, and of the way back nobody has said so, a primary that needs that is to find it out: who writes
    /// there next would wait as long once more.
    pub(super) fn doubt(&mut self, state: &State) {
        let (mut doubts, mut seen) = (BTreeMap::<u32, Vec<Doubt>>::new(), BTreeSet::new());
        for (id, group) in groups(state) {
            let Some((&primary, others)) = group.in_sync.split_first() else { continue };
            let Some(here) = state.server_of(primary) else { continue };
            for &member in others {
                let Some(there) = state.server_of(member) else { continue };
                let is_doubtful = self.is_missed((there, here)) && !self.is_missed((here, there));
                if is_doubtful && seen.insert((here, there)) {
                    let doubt = Doubt { group: id, epoch: group.epoch, member, primary };
                    doubts.entry(here).or_default().push(doubt);
                }
            }
        }
        self.doubts = doubts;
    }

    /// From how many others each server is apart.
    fn counts(&self) -> BTreeMap<u32, usize> {
        let missed = self.ways.keys().filter(|way| self.is_missed(**way));
        let pairs: BTreeSet<Pair> = missed.map(|way| pair(*way)).collect();
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for server in pairs.into_iter().flat_map(|(one, other)| [one, other]) {
            *counts.entry(server).or_default() += 1;
        }
        counts
    }

    /// True if a way is cut, or is told to be.
    fn is_missed(&self, way: Way) -> bool {
        self.ways.get(&way).is_some_and(|known| known.told.is_some() || known.cut.is_some())
    }

    fn sides(&self, live: &Liveness, counts: &BTreeMap<u32, usize>, of: Pair) -> [Side; 2] {
        [of, (of.1, of.0)].map(|way| Side {
            unreached: live.is_unreached(way.0),
            ways: counts.get(&way.0).copied().unwrap_or_default(),
            is_cut: self.is_missed(way),
        })
    }

    /// What is lost if one of two servers goes: of all of these in one pass.
    fn stakes(
        &self,
        state: &State,
        live: &Liveness,
        due: &BTreeMap<Pair, [Side; 2]>,
        now: Duration,
    ) -> BTreeMap<(Pair, u32), Stake> {
        let mut stakes: BTreeMap<(Pair, u32), Stake> = BTreeMap::new();
        for (_, group) in groups(state) {
            let Some(&primary) = group.in_sync.first() else { continue };
            for (member, way) in self.cut_off(state, group, |one| group.in_sync.contains(one)) {
                let of = pair(way);
                if !due.contains_key(&of) {
                    continue;
                }
                for (server, target) in [(way.0, primary), (way.1, member)] {
                    let stake = stakes.entry((of, server)).or_default();
                    stake.needed += usize::from(!may_go(state, live, group, target, now));
                    stake.leads += usize::from(target == primary);
                }
            }
        }
        stakes
    }

    /// Who is to go from a group: its primary, or the first of those that it does not reach; then, should that one not, the other. Of
    /// several that are to go it is one in each epoch.
    fn candidates(&self, state: &State, group: &Group, is_early: bool) -> Vec<u32> {
        let cut_off = self.cut_off(state, group, |one| group.in_sync.contains(one));
        let decided = cut_off.iter().filter_map(|(member, way)| {
            let choice = self.choices.get(&pair(*way))?;
            Some((*member, choice.goes == way.0))
        });
        let decided: Vec<(u32, bool)> = decided.collect();
        let (Some(&primary), Some(&(member, _))) = (group.in_sync.first(), decided.first()) else {
            return Vec::new();
        };
        match decided.iter().any(|(_, primary_goes)| *primary_goes) {
            // What it has acknowledged alone nobody else has.
            _ if is_early => vec![member],
            true => vec![primary, member],
            false => vec![member, primary],
        }
    }

    /// Who is asked to go: nobody whom a group needs.
    pub(super) fn ask(
        &mut self,
        state: &State,
        live: &Liveness,
        early: &BTreeSet<u32>,
        now: Duration,
    ) {
        let (mut asks, mut resigns) = (BTreeMap::new(), BTreeMap::<u32, Vec<Resign>>::new());
        for (id, group) in groups(state) {
            let candidates = self.candidates(state, group, early.contains(&id));
            let may_go = |ask: &Ask| may_go(state, live, group, ask.member, now);
            let is_same = |ask: &&Ask| ask.epoch == group.epoch && candidates.contains(&ask.member);
            let before = self.asks.get(&id).filter(is_same).copied();
            let lasts = |ask: &Ask| now.saturating_sub(ask.since) < PATIENCE;
            let in_vain = before.filter(|ask| !lasts(ask)).map(|ask| ask.member);
            let next = candidates.iter().find(|one| Some(**one) != in_vain).or(candidates.first());
            let next = next.map(|&member| Ask { member, epoch: group.epoch, since: now });
            let same = before.filter(|ask| lasts(ask) && may_go(ask));
            let Some(ask) = same.or(next).filter(may_go) else { continue };
            let Some(server) = state.server_of(ask.member) else { continue };
            let Ask { member, epoch, .. } = ask;
            asks.insert(id, ask);
            resigns.entry(server).or_default().push(Resign { group: id, epoch, member });
        }
        (self.asks, self.resigns) = (asks, resigns);
    }
}

/// True if another one in sync goes on without a member, whom clients reach as far as is known. Of one that is to leave anyway the manager
/// wants to know that of all others.
fn may_go(state: &State, live: &Liveness, group: &Group, member: u32, now: Duration) -> bool {
    let is_reached =
        |one: u32| state.server_of(one).is_some_and(|server| !live.is_unreached(server));
    let goes_on = |one: &&u32| serves(state, live, **one, now) && is_reached(**one);
    let others = || group.in_sync.iter().filter(|other| **other != member);
    let serving = others().filter(goes_on).count();
    match group.leaving.contains(&member) {
        true => serving > 0 && serving == others().count(),
        false => serving > 0,
    }
}
