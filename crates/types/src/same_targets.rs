//! Other copies on the same targets: which groups lie where given ones do.
//!
//! A list of groups stands for targets: those that lead them. Numbers of groups say nothing about that. Groups of one copy
//! stay when their target leaves, and another one leads them then; those of several are made for the targets that there are
//! at the time. So a map says who leads what.

use crate::{Error, ErrorKind, GroupId, Result};
use std::collections::{HashMap, HashSet};

/// Which target leads which groups, and is another member of which: of one map.
#[derive(Debug, Default)]
pub struct GroupsByTarget {
    leaders: HashMap<GroupId, u32>,
    /// Those that a target leads, by the target and how many copies they keep.
    led: HashMap<(u32, u32), Vec<GroupId>>,
    /// Those that it is in and does not lead.
    joined: HashMap<(u32, u32), Vec<GroupId>>,
}

impl GroupsByTarget {
    /// Of these groups, each with its members.
    pub fn of<'a>(groups: impl IntoIterator<Item = (GroupId, &'a [u32])>) -> Self {
        let mut by_target = Self::default();
        for (group, members) in groups {
            let Some((first, others)) = members.split_first() else { continue };
            let copies = group.copies();
            by_target.leaders.insert(group, *first);
            by_target.led.entry((*first, copies)).or_default().push(group);
            for other in others {
                by_target.joined.entry((*other, copies)).or_default().push(group);
            }
        }
        by_target
    }

    /// Looks for groups of so many copies on the targets of those that are listed. Of several that one target leads, each
    /// listed group gets another one.
    pub fn on_same_targets(&self, list: &[GroupId], copies: u32) -> SameTargets {
        let mut chosen = Chosen { copies, places: vec![None; list.len()], taken: HashSet::new() };
        let (mut missing, mut lead_none) = (None, Vec::new());
        let leads_none = |target: u32| {
            format!("target {target} is the first of no group that keeps {copies} copies")
        };
        for (at, group) in list.iter().enumerate() {
            let Some(target) = self.leaders.get(group) else {
                missing.get_or_insert_with(|| format!("group {group} is not in the cluster"));
                continue;
            };
            match self.led.get(&(*target, copies)) {
                Some(led) => chosen.take(at, *group, led),
                None => {
                    missing.get_or_insert_with(|| leads_none(*target));
                    lead_none.push((at, *group, *target));
                }
            }
        }
        for (at, group, target) in lead_none {
            if let Some(joined) = self.joined.get(&(target, copies)) {
                chosen.take(at, group, joined);
            }
        }
        SameTargets { groups: chosen.places.into_iter().flatten().collect(), missing }
    }
}

/// Groups that were found, in the places of those that are listed.
struct Chosen {
    copies: u32,
    places: Vec<Option<GroupId>>,
    taken: HashSet<GroupId>,
}

impl Chosen {
    /// One of those on its target: of the same number, if that is among them. Where all are taken it lies there already.
    fn take(&mut self, at: usize, group: GroupId, on_target: &[GroupId]) {
        let same = GroupId::of_class(self.copies, group.ordinal());
        let same = Some(same).filter(|id| on_target.contains(id));
        let mut wanted = same.into_iter().chain(on_target.iter().copied());
        let free = wanted.find(|id| !self.taken.contains(id));
        self.taken.extend(free);
        self.places[at] = free;
    }
}

/// Groups of a number of copies that lie where the groups of a list do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameTargets {
    /// In the order of the list, each once.
    groups: Vec<GroupId>,
    /// Why the first listed group whose target leads none has none.
    missing: Option<String>,
}

impl SameTargets {
    /// True if every target that is listed leads one.
    pub fn is_whole(&self) -> bool {
        self.missing.is_none()
    }

    /// All of them; refused where a target that is listed leads none.
    pub fn all(self) -> Result<Vec<GroupId>> {
        match self.missing {
            None => Ok(self.groups),
            Some(why) => Err(Error::with(ErrorKind::Invalid, why)),
        }
    }

    /// Those that there are, for what is to be made: who leads which group changes whenever groups move. In place of a group
    /// that a target leads no more it is one that the target is a member of, or none.
    pub fn some(self) -> Vec<GroupId> {
        self.groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(ordinal: u32) -> GroupId {
        GroupId::of_class(1, ordinal)
    }

    fn two(ordinal: u32) -> GroupId {
        GroupId::of_class(2, ordinal)
    }

    /// Of four targets the first has left, and the third leads its group, before groups of two copies were made.
    fn groups() -> Vec<(GroupId, Vec<u32>)> {
        let ones = [3, 2, 3, 4].into_iter().zip(0..).map(|(target, at)| (one(at), vec![target]));
        let twos = [[2, 3], [3, 4], [4, 2]].into_iter().zip(0..);
        ones.chain(twos.map(|(members, at)| (two(at), members.to_vec()))).collect()
    }

    fn find_in(groups: &[(GroupId, Vec<u32>)], list: &[GroupId], copies: u32) -> SameTargets {
        let groups = groups.iter().map(|(group, members)| (*group, &members[..]));
        GroupsByTarget::of(groups).on_same_targets(list, copies)
    }

    fn find(list: &[GroupId], copies: u32) -> SameTargets {
        find_in(&groups(), list, copies)
    }

    /// Group 2 of one copy is that of target 3, and group 2 of two copies that of target 4.
    #[test]
    fn other_copies_of_listed_groups_lie_on_the_same_targets() {
        assert_eq!(find(&[one(1), one(2)], 2).all(), Ok(vec![two(0), two(1)]));
        assert_eq!(find(&[one(3)], 2).all(), Ok(vec![two(2)]));
        assert_eq!(find(&[two(2), two(0)], 1).all(), Ok(vec![one(3), one(1)]));
        assert_eq!(find(&[two(1)], 1).all(), Ok(vec![one(0)]), "target 3 leads two of them");
        assert_eq!(find(&[one(2)], 1).all(), Ok(vec![one(2)]), "the same if it is among them");
    }

    #[test]
    fn a_target_that_is_listed_twice_by_its_groups_gets_as_many_as_it_leads() {
        assert_eq!(find(&[one(0), one(2), one(1)], 2).all(), Ok(vec![two(1), two(0)]));
        let more = [groups(), vec![(two(7), vec![3, 2])]].concat();
        assert_eq!(find_in(&more, &[one(0), one(2)], 2).all(), Ok(vec![two(1), two(7)]));
    }

    /// A rebalance moves the lead of one group of a target and not of the other: nothing could be made any more.
    #[test]
    fn where_a_target_leads_none_it_is_named_and_what_is_made_lies_where_it_is_a_member() {
        let mut moved = groups();
        moved.retain(|(group, _)| *group != two(2));
        let find = |list: &[GroupId]| find_in(&moved, list, 2);
        let refused = find(&[one(1), one(3)]).all().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.detail.contains("target 4 is the first of no group"), "{refused}");
        assert!(!find(&[one(3)]).is_whole() && find(&[one(1)]).is_whole());
        assert_eq!(find(&[one(3), one(1)]).some(), [two(1), two(0)], "in its place");
        assert_eq!(find(&[one(3), one(2)]).some(), [two(1)], "that of target 3 comes first");
        moved.retain(|(group, _)| *group != two(1));
        let find = |list: &[GroupId]| find_in(&moved, list, 2);
        assert_eq!(find(&[one(3), one(1)]).some(), [two(0)], "it is in none");
        assert!(find(&[one(3)]).some().is_empty());
        let gone = find(&[one(9)]).all().unwrap_err();
        assert!(gone.detail.contains("group 9 is not in the cluster"), "{gone}");
    }
}
