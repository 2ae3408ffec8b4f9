//! Groups in which nothing is. They make no target fuller, wherever they lie, and new files are striped over them as over all
//! others: they are moved until each target is in as many groups as any other, of each number of copies by itself.

use super::{Facts, Loads};
use crate::records::{Group, Item, Target};
use crate::state::State;
use std::collections::{BTreeSet, HashMap, HashSet};
use strake_types::GroupId;
use strake_types::limits::COPIES_MAX;

/// Moves of groups in which nothing is, beside those that are planned already.
pub(super) fn spread(state: &State, facts: &Facts, loads: &Loads, planned: &[Item]) -> Vec<Item> {
    let of_class = |copies| Class::of(state, facts, loads, planned, copies).evened_out();
    (1..=COPIES_MAX).flat_map(of_class).collect()
}

/// A target in the order in which it takes or loses groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seat {
    /// In how many groups of the class it is.
    places: u64,
    target: u32,
    server: u32,
}

/// Targets that serve, and groups of so many copies in which nothing is.
#[derive(Default)]
struct Class {
    /// Targets that may lose a group: the last one has the most.
    givers: BTreeSet<Seat>,
    /// Those with room for new files: the first one has the fewest.
    takers: BTreeSet<Seat>,
    /// The groups that each target may lose.
    leaves: HashMap<u32, BTreeSet<u32>>,
    /// Targets that are or come to be in each group, and their servers. Those that go count, too: moves of one group may be made
    /// in any order.
    members: HashMap<u32, Vec<(u32, u32)>>,
}

impl Class {
    fn of(state: &State, facts: &Facts, loads: &Loads, planned: &[Item], copies: u32) -> Self {
        let mut class = Self::default();
        let serves = |(id, target): &(&u32, &Target)| facts.serves(**id) && !target.drains;
        for (&target, record) in state.targets.iter().filter(serves) {
            let places = loads.places(copies, target);
            let seat = Seat { places, target, server: record.server };
            class.givers.insert(seat);
            if loads.fits(facts, target, 0) {
                class.takers.insert(seat);
            }
        }
        let with_server = |id: u32| state.server_of(id).map(|server| (id, server));
        let all = GroupId::of_class(copies, 0).0..GroupId::of_class(copies + 1, 0).0;
        let is_empty =
            |(id, group): &(&u32, &Group)| group.leaving.is_empty() && facts.is_empty(**id, group);
        for (&id, group) in state.groups.range(all).filter(is_empty) {
            let members = group.members.iter().copied().filter_map(with_server);
            class.members.insert(id, members.collect());
            for &member in &group.in_sync {
                class.leaves.entry(member).or_default().insert(id);
            }
        }
        for item in planned {
            if let Some(to) = with_server(item.to) {
                class.moved(item.group, item.from, to);
            }
        }
        class
    }

    fn evened_out(mut self) -> Vec<Item> {
        let mut items = Vec::new();
        loop {
            let before = items.len();
            let mut stuck = HashSet::new();
            while let Some((group, from, to)) = self.next_move(&mut stuck) {
                self.recount(from, from.places - 1);
                self.recount(to, to.places + 1);
                self.moved(group, from.target, (to.target, to.server));
                items.push(Item { group, from: from.target, to: to.target, ..Item::default() });
            }
            // Those that found no taker may find one among the others, which have fewer by now.
            if stuck.is_empty() || items.len() == before {
                return items;
            }
        }
    }

    /// The group that moves next, from the target with the most that can lose one, and to which; those with more are stuck.
    fn next_move(&self, stuck: &mut HashSet<u32>) -> Option<(u32, Seat, Seat)> {
        let fewest = self.takers.first()?.places;
        for &from in self.givers.iter().rev().take_while(|seat| seat.places > fewest + 1) {
            if stuck.contains(&from.target) {
                continue;
            }
            if let Some((group, to)) = self.move_from(from) {
                return Some((group, from, to));
            }
            stuck.insert(from.target);
        }
        None
    }

    /// The group that a target loses, and who gets it: of those that can, the one with the fewest.
    fn move_from(&self, from: Seat) -> Option<(u32, Seat)> {
        let groups = self.leaves.get(&from.target)?;
        let takers = self.takers.iter().take_while(|to| to.places + 1 < from.places);
        takers.copied().find_map(|to| {
            let group = groups.iter().find(|group| self.suits(**group, from, to))?;
            Some((*group, to))
        })
    }

    /// True if a target can take the place of another one, and brings no copies together on its server by that.
    fn suits(&self, group: u32, from: Seat, to: Seat) -> bool {
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        let Some(members) = self.members.get(&group) else { return false };
        let has_other =
            members.iter().any(|(member, on)| *member != from.target && *on == to.server);
        let is_member = members.iter().any(|(member, _)| *member == to.target);
        !is_member && (to.server == from.server || !has_other)
    }

    fn moved(&mut self, group: u32, from: u32, to: (u32, u32)) {
        if let Some(members) = self.members.get_mut(&group) {
            members.push(to);
        }
        if let Some(groups) = self.leaves.get_mut(&from) {
            groups.remove(&group);
        }
    }

    /// A target is in so many groups now.
    fn recount(&mut self, seat: Seat, places: u64) {
        for seats in [&mut self.givers, &mut self.takers] {
            if seats.remove(&seat) {
                seats.insert(Seat { places, ..seat });
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How often it was looked whether a target can take a group.
    pub(super) static LOOKS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}
