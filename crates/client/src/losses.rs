//! Whether what was written to groups of several members, and not synced, is still there.
//!
//! The map counts how often a group may have lost such writes with all its members. Who wrote
//! remembers the count of the epoch in which the write was acknowledged: a sync that is done in an
//! epoch with a greater one does not cover the write.

use std::collections::BTreeMap;
use strake_types::{Error, ErrorKind, GroupId};

/// What a file has unsynced in groups of several members.
#[derive(Default)]
pub(crate) struct Losses {
    groups: BTreeMap<GroupId, Held>,
    marks: u64,
}

struct Held {
    /// Of the last write.
    mark: u64,
    /// The group's losses at the first write.
    losses: u64,
}

impl Losses {
    /// A write was acknowledged in an epoch with so many losses.
    pub(crate) fn wrote(&mut self, group: GroupId, losses: u64) {
        self.marks += 1;
        let held = self.groups.entry(group).or_insert(Held { mark: 0, losses });
        held.mark = self.marks;
    }

    /// What a sync that begins now will cover.
    pub(crate) fn mark(&self, group: GroupId) -> u64 {
        self.groups.get(&group).map_or(0, |held| held.mark)
    }

    /// A sync that began at a mark was done in an epoch with so many losses. True: it did not cover
    /// everything. What was written meanwhile stays.
    #[must_use]
    pub(crate) fn synced(&mut self, group: GroupId, mark: u64, losses: u64) -> bool {
        let lost = self.grown(group, losses);
        if self.mark(group) == mark {
            self.groups.remove(&group);
        }
        lost
    }

    /// True if more was lost since the last write; once.
    #[must_use]
    pub(crate) fn grown(&mut self, group: GroupId, losses: u64) -> bool {
        let Some(held) = self.groups.get_mut(&group) else { return false };
        let grown = held.losses < losses;
        held.losses = held.losses.max(losses);
        grown
    }
}

/// Why data is lost that a group had acknowledged.
pub(crate) fn lost(group: GroupId) -> Error {
    let detail = format!(
        "all members of group {group} went down at once, and with them writes that had been \
         acknowledged and not synced; write them again"
    );
    Error::with(ErrorKind::Io, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(3);

    #[test]
    fn a_loss_is_told_once_and_only_to_who_had_something_unsynced() {
        let mut losses = Losses::default();
        assert!(!losses.synced(GROUP, losses.mark(GROUP), 5), "nothing was written");
        losses.wrote(GROUP, 5);
        assert!(!losses.synced(GROUP, losses.mark(GROUP), 5));
        assert!(!losses.synced(GROUP, losses.mark(GROUP), 6), "it was synced before the loss");
        losses.wrote(GROUP, 6);
        losses.wrote(GROUP, 7);
        assert!(losses.synced(GROUP, losses.mark(GROUP), 7), "the first write is gone");
        assert!(!losses.synced(GROUP, losses.mark(GROUP), 7));
    }

    #[test]
    fn what_is_written_during_a_sync_stays_with_its_losses() {
        let mut losses = Losses::default();
        losses.wrote(GROUP, 0);
        let mark = losses.mark(GROUP);
        losses.wrote(GROUP, 0);
        assert!(!losses.synced(GROUP, mark, 0));
        assert!(losses.grown(GROUP, 1) && !losses.grown(GROUP, 1));
        assert!(!losses.synced(GROUP, losses.mark(GROUP), 1), "it was told");
    }
}
