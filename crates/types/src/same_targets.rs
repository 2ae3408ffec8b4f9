//! Other copies on the same targets: which groups lie where given ones do.
//!
//! A list of groups stands for targets: those that lead them. Numbers of groups say nothing about that. Groups of one copy
//! stay when their target leaves, and another one leads them then; those of several are made for the targets that there are
//! at the time. So a map says who leads what.

use crate::{Error, ErrorKind, GroupId, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Groups of a number of copies that lie where the groups of a list do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameTargets {
    /// In the order of the list, each once.
    groups: Vec<GroupId>,
    /// Why there is none for the first listed group that has none.
    missing: Option<String>,
}

impl SameTargets {
    /// Looks for them among the groups of a map, each with the target that leads it. Of several that one target leads, each
    /// listed group gets another one.
    pub fn find(
        list: &[GroupId],
        copies: u32,
        led_by: impl Iterator<Item = (GroupId, u32)> + Clone,
    ) -> Self {
        let listed: BTreeSet<GroupId> = list.iter().copied().collect();
        let leads: BTreeMap<GroupId, u32> =
            led_by.clone().filter(|(group, _)| listed.contains(group)).collect();
        let mut led: BTreeMap<u32, BTreeSet<GroupId>> =
            leads.values().map(|&target| (target, BTreeSet::new())).collect();
        for (group, target) in led_by.filter(|(group, _)| group.copies() == copies) {
            if let Some(led) = led.get_mut(&target) {
                led.insert(group);
            }
        }
        let mut found = Self { groups: Vec::new(), missing: None };
        for group in list {
            let led = leads.get(group).map(|target| (*target, &led[target]));
            match led {
                None => found.lacks(|| format!("group {group} is not in the cluster")),
                Some((target, led)) if led.is_empty() => found.lacks(|| {
                    format!("target {target} is the first of no group that keeps {copies} copies")
                }),
                Some((_, led)) => found.take(*group, copies, led),
            }
        }
        found
    }

    fn lacks(&mut self, why: impl FnOnce() -> String) {
        self.missing.get_or_insert_with(why);
    }

    /// One of those that its target leads: of the same number, if that is among them. Where all are taken it lies there already.
    fn take(&mut self, group: GroupId, copies: u32, led: &BTreeSet<GroupId>) {
        let free = |id: &&GroupId| !self.groups.contains(id);
        let same = GroupId::of_class(copies, group.ordinal());
        let taken = led.get(&same).filter(free).or_else(|| led.iter().find(free)).copied();
        self.groups.extend(taken);
    }

    /// All of them; refused where a target that is listed leads none.
    pub fn all(self) -> Result<Vec<GroupId>> {
        match self.missing {
            None => Ok(self.groups),
            Some(why) => Err(Error::with(ErrorKind::Invalid, format!("{why}; name other targets"))),
        }
    }

    /// Those that there are: for files that are to be made although a target leads none now. Refused where there are none.
    pub fn some(self) -> Result<Vec<GroupId>> {
        if self.groups.is_empty() { self.all() } else { Ok(self.groups) }
    }

    /// Those that there are, if any.
    pub fn known(self) -> Vec<GroupId> {
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
    fn groups() -> Vec<(GroupId, u32)> {
        let ones = [3, 2, 3, 4].into_iter().zip(0..).map(|(target, at)| (one(at), target));
        let twos = [2, 3, 4].into_iter().zip(0..).map(|(target, at)| (two(at), target));
        ones.chain(twos).collect()
    }

    fn find(list: &[GroupId], copies: u32) -> SameTargets {
        SameTargets::find(list, copies, groups().into_iter())
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
        let more = groups().into_iter().chain([(two(7), 3)]);
        let found = SameTargets::find(&[one(0), one(2)], 2, more);
        assert_eq!(found.all(), Ok(vec![two(1), two(7)]));
    }

    #[test]
    fn a_target_that_leads_none_is_named_and_can_be_left_out() {
        let left = groups().into_iter().filter(|(group, _)| *group != two(2));
        let find = |list: &[GroupId]| SameTargets::find(list, 2, left.clone());
        let refused = find(&[one(1), one(3)]).all().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.detail.contains("target 4 is the first of no group"), "{refused}");
        assert_eq!(find(&[one(1), one(3)]).some(), Ok(vec![two(0)]));
        assert_eq!(find(&[one(3)]).some().unwrap_err(), find(&[one(3)]).all().unwrap_err());
        assert!(find(&[one(3)]).known().is_empty());
        let gone = find(&[one(9)]).all().unwrap_err();
        assert!(gone.detail.contains("group 9 is not in the cluster"), "{gone}");
    }
}
