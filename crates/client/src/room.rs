//! Room for data that is written and not yet acknowledged: who holds it, and what is left of it for groups that hold little.
//!
//! What is written to a target that does not answer keeps its room for as long as the target is waited for; after a while such
//! targets have all that anybody may take. So a part of all room, the reserve, is given only where the rest is taken, and to a
//! group only while all that it holds is little of what the reserve has left: the rule of dynamic thresholds (Choudhury, Hahne,
//! "Dynamic queue length thresholds for shared-memory packet switches", 1998). Groups that do not answer hold much, and get
//! nothing more; those that do answer have the reserve from then on. Each group that begins with nothing gets one write of it, of
//! up to half of what is left: small writes go on after many such groups, and large ones after few.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strake_types::GroupId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A group holds little while that is less than this part of what the reserve has left.
const LITTLE_SHARE: usize = 8;

/// How much one group holds.
type Holder = Arc<AtomicUsize>;

/// What goes into inodes waits for the metadata server of a share, which counts as a group of its own. No group has so many copies
/// that it would be one of these.
pub(crate) fn in_inodes(share: u32) -> GroupId {
    GroupId(u32::MAX - share)
}

/// Room that is taken; given back when dropped.
pub(crate) struct Room {
    /// Of what anybody may take.
    common: Option<OwnedSemaphorePermit>,
    reserved: Option<OwnedSemaphorePermit>,
    /// Who holds it, if that is known yet.
    holder: Option<Holder>,
}

impl From<OwnedSemaphorePermit> for Room {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self { common: Some(permit), reserved: None, holder: None }
    }
}

impl Room {
    /// How much it is.
    pub(crate) fn bytes(&self) -> usize {
        permits(&self.common) + permits(&self.reserved)
    }

    /// Takes so much off it, or all that there is; of the reserve first.
    pub(crate) fn split(&mut self, bytes: usize) -> Room {
        let reserved = split(&mut self.reserved, bytes);
        let common = split(&mut self.common, bytes - permits(&reserved));
        Room { common, reserved, holder: self.holder.clone() }
    }

    /// Adds other room of the same kind.
    pub(crate) fn merge(&mut self, mut other: Room) {
        if let Some(holder) = &self.holder {
            other.charge(holder);
        } else if let Some(holder) = &other.holder {
            self.charge(holder);
        }
        merge(&mut self.common, other.common.take());
        merge(&mut self.reserved, other.reserved.take());
    }

    fn charge(&mut self, holder: &Holder) {
        if self.holder.as_ref().is_some_and(|before| Arc::ptr_eq(before, holder)) {
            return;
        }
        let bytes = self.bytes();
        holder.fetch_add(bytes, Ordering::Relaxed);
        if let Some(before) = self.holder.replace(Arc::clone(holder)) {
            before.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(holder) = &self.holder {
            holder.fetch_sub(self.bytes(), Ordering::Relaxed);
        }
    }
}

fn permits(part: &Option<OwnedSemaphorePermit>) -> usize {
    part.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
}

fn split(part: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let bytes = bytes.min(permits(part));
    part.as_mut().filter(|_| bytes > 0)?.split(bytes)
}

fn merge(ours: &mut Option<OwnedSemaphorePermit>, theirs: Option<OwnedSemaphorePermit>) {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => ours.merge(theirs),
        (ours, Some(theirs)) => *ours = Some(theirs),
        (_, None) => {}
    }
}

/// The room of two that become one.
pub(crate) fn join(a: Option<Room>, b: Option<Room>) -> Option<Room> {
    match (a, b) {
        (Some(mut a), Some(b)) => {
            a.merge(b);
            Some(a)
        }
        (a, b) => a.or(b),
    }
}

/// What is left for groups that hold little, and how much each holds.
pub(crate) struct Reserve {
    permits: Arc<Semaphore>,
    /// All groups that anything was written to, with what they hold, of whatever room.
    holders: RwLock<HashMap<GroupId, Holder>>,
    /// Held while it is looked what they hold and something is given: of many who come at once each counts what the others got.
    giving: Mutex<()>,
}

impl Reserve {
    /// A reserve of `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let permits = Arc::new(Semaphore::new(bytes));
        Self { permits, holders: RwLock::default(), giving: Mutex::default() }
    }

    /// How much of it nobody has.
    pub(crate) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    /// Room, of whatever kind, is for what goes to this group.
    pub(crate) fn charge(&self, room: &mut Room, group: GroupId) {
        room.charge(&self.holder(group));
    }

    fn holder(&self, group: GroupId) -> Holder {
        let known = self.holders.read().get(&group).cloned();
        known.unwrap_or_else(|| self.holders.write().entry(group).or_default().clone())
    }

    /// Room for what goes to these groups, if each of them holds little. Nobody gets more than half of what is there.
    pub(crate) fn take(&self, bytes: usize, groups: &[GroupId]) -> Option<Room> {
        let holders: Vec<Holder> = groups.iter().map(|&group| self.holder(group)).collect();
        let _alone = self.giving.lock();
        let free = self.free();
        let little = free / LITTLE_SHARE;
        let have_little = holders.iter().all(|held| held.load(Ordering::Relaxed) < little);
        if bytes > free / 2 || !have_little {
            return None;
        }
        let permits = u32::try_from(bytes).ok()?;
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(permits).ok()?;
        let mut room = Room { common: None, reserved: Some(permit), holder: None };
        if let Some(holder) = holders.first() {
            // Once it is written, each of them is charged with its own.
            room.charge(holder);
        }
        Some(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 1_600;

    fn held(reserve: &Reserve, group: u32) -> usize {
        reserve.holder(GroupId(group)).load(Ordering::Relaxed)
    }

    /// Takes for a group, so much each time, until it gets no more.
    fn fill(reserve: &Reserve, group: u32, bytes: usize) -> Vec<Room> {
        std::iter::from_fn(|| reserve.take(bytes, &[GroupId(group)])).collect()
    }

    /// Each took as much of the reserve as it had left.
    #[test]
    fn groups_that_hold_all_else_get_nothing_of_the_reserve() {
        let (reserve, semaphore) = (Reserve::new(ALL), Arc::new(Semaphore::new(2 * ALL)));
        let mut all = Vec::new();
        for group in 0..16 {
            let permit = Arc::clone(&semaphore).try_acquire_many_owned(200).unwrap();
            let mut room = Room::from(permit);
            reserve.charge(&mut room, GroupId(group));
            all.push(room);
            assert_eq!(fill(&reserve, group, ALL / 16).len(), 0);
        }
        let both = [GroupId(99), GroupId(0)];
        assert!(reserve.take(ALL / 16, &both).is_none(), "one of the two holds much");
        assert_eq!(fill(&reserve, 99, ALL / 16).len(), 2);
        assert!(reserve.take(ALL / 2 + 1, &[]).is_none(), "too much for one");
        all.clear();
        assert_eq!((reserve.free(), held(&reserve, 0), held(&reserve, 99)), (ALL, 0, 0));
    }

    #[test]
    fn groups_that_give_nothing_back_leave_something_to_the_next_one() {
        let reserve = Reserve::new(ALL);
        let all: Vec<_> = (0..16).map(|group| fill(&reserve, group, 10)).collect();
        assert!(all.iter().all(|taken| !taken.is_empty()));
        assert!(all[0].len() <= 18, "{}", all[0].len());
        assert!(reserve.free() > ALL / 10, "{}", reserve.free());
        drop(all);
        assert_eq!(reserve.free(), ALL);
    }

    /// A write of half of the reserve leaves nothing to others that are as large.
    #[test]
    fn a_large_write_leaves_half_of_the_reserve_to_writes_that_are_smaller() {
        let reserve = Reserve::new(ALL);
        let large = reserve.take(ALL / 2, &[GroupId(0)]);
        assert!(large.is_some() && reserve.take(ALL / 2, &[GroupId(1)]).is_none());
        assert!(reserve.take(ALL / 4, &[GroupId(1)]).is_some());
        drop(large);
        assert_eq!(reserve.free(), ALL);
        let all: Vec<_> = (0..16).map(|group| fill(&reserve, group, ALL / 16)).collect();
        let counts: Vec<_> = all.iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        assert!(reserve.take(ALL / 32, &[GroupId(15)]).is_some(), "a smaller one has room");
    }

    #[test]
    fn room_that_is_split_and_joined_is_given_back_once() {
        let reserve = Reserve::new(ALL);
        let semaphore = Arc::new(Semaphore::new(100));
        let permit = Arc::clone(&semaphore).try_acquire_many_owned(60).unwrap();
        let mut room = Room::from(permit);
        room.merge(reserve.take(200, &[]).unwrap());
        assert_eq!(room.bytes(), 260);
        let mut part = room.split(210);
        assert_eq!((part.bytes(), room.bytes()), (210, 50));
        reserve.charge(&mut part, GroupId(1));
        reserve.charge(&mut room, GroupId(2));
        assert_eq!((held(&reserve, 1), held(&reserve, 2)), (210, 50));
        drop(part.split(150));
        assert_eq!((held(&reserve, 1), reserve.free()), (60, ALL - 50), "the reserve first");
        let room = join(Some(room), Some(part)).unwrap();
        assert_eq!((held(&reserve, 1), held(&reserve, 2)), (0, 110));
        assert_eq!((semaphore.available_permits(), reserve.free()), (40, ALL - 50));
        drop(room);
        assert_eq!((semaphore.available_permits(), reserve.free()), (100, ALL));
        assert_eq!(held(&reserve, 2), 0);
    }
}
