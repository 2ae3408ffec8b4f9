//! Room for data that is written and not yet acknowledged, and what is left of it for groups of which little waits.
//!
//! What is written to a target that does not answer keeps its room for as long as the target is waited for. So a part of all room
//! is given only where the rest is taken, and to a group only while that holds less of it than is free: the rule of dynamic
//! thresholds (Choudhury, Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). Of groups that do
//! not answer each takes less than the one before, and something is left to those that do.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strake_types::GroupId;
use tokio::sync::OwnedSemaphorePermit;

/// What goes into inodes waits for the metadata server, which counts as a group of its own.
pub(crate) const IN_INODES: GroupId = GroupId(u32::MAX);

/// Room that is taken; given back when dropped.
pub(crate) struct Room {
    /// Of what anybody may take.
    common: Option<OwnedSemaphorePermit>,
    /// Boxed, as there seldom is any.
    reserved: Option<Box<Reserved>>,
}

impl From<OwnedSemaphorePermit> for Room {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self { common: Some(permit), reserved: None }
    }
}

impl Room {
    /// How much it is.
    pub(crate) fn bytes(&self) -> usize {
        permits(&self.common) + self.reserved.as_ref().map_or(0, |reserved| reserved.bytes)
    }

    /// Takes so much off it, or all that there is.
    pub(crate) fn split(&mut self, bytes: usize) -> Room {
        let there = permits(&self.common).min(bytes);
        let common = self.common.as_mut().and_then(|common| common.split(there));
        let more = bytes - there;
        let reserved = match &mut self.reserved {
            Some(reserved) if more > 0 => Some(Box::new(reserved.split(more))),
            _ => None,
        };
        Room { common, reserved }
    }

    /// Adds other room of the same kind.
    pub(crate) fn merge(&mut self, other: Room) {
        let Room { common, reserved } = other;
        match (&mut self.common, common) {
            (Some(ours), Some(theirs)) => ours.merge(theirs),
            (ours, Some(theirs)) => *ours = Some(theirs),
            (_, None) => {}
        }
        match (&mut self.reserved, reserved) {
            (Some(ours), Some(theirs)) => ours.merge(*theirs),
            (ours, Some(theirs)) => *ours = Some(theirs),
            (_, None) => {}
        }
    }

    /// It is for what goes to this group.
    pub(crate) fn charge(&mut self, group: GroupId) {
        if let Some(reserved) = &mut self.reserved {
            reserved.charge(group);
        }
    }
}

fn permits(common: &Option<OwnedSemaphorePermit>) -> usize {
    common.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
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

/// Room of the reserve.
struct Reserved {
    reserve: Arc<Reserve>,
    /// Which group holds it, if that is known yet.
    group: Option<GroupId>,
    bytes: usize,
}

impl Reserved {
    fn split(&mut self, bytes: usize) -> Reserved {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Reserved { reserve: Arc::clone(&self.reserve), group: self.group, bytes }
    }

    fn merge(&mut self, mut other: Reserved) {
        if let Some(group) = self.group {
            other.charge(group);
        } else if let Some(group) = other.group {
            self.charge(group);
        }
        self.bytes += std::mem::take(&mut other.bytes);
    }

    fn charge(&mut self, group: GroupId) {
        let before = self.group.replace(group);
        if before == Some(group) || self.bytes == 0 {
            return;
        }
        let mut held = self.reserve.held.lock();
        if let Some(before) = before {
            take_off(&mut held, before, self.bytes);
        }
        *held.entry(group).or_default() += self.bytes;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.reserve.held.lock();
        if let Some(group) = self.group {
            take_off(&mut held, group, self.bytes);
        }
        self.reserve.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

fn take_off(held: &mut HashMap<GroupId, usize>, group: GroupId, bytes: usize) {
    let left = held.remove(&group).unwrap_or(0).saturating_sub(bytes);
    if left > 0 {
        held.insert(group, left);
    }
}

/// What is left for groups of which little waits.
pub(crate) struct Reserve {
    bytes: usize,
    /// Changes under the lock of `held` only.
    free: AtomicUsize,
    /// What each group holds of it.
    held: Mutex<HashMap<GroupId, usize>>,
}

impl Reserve {
    /// A reserve of `bytes`.
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, free: AtomicUsize::new(bytes), held: Mutex::default() })
    }

    /// How much of it nobody has.
    pub(crate) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Room for what goes to these groups, if none of them holds as much as is free. Nobody gets more than half of all at once.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, groups: &[GroupId]) -> Option<Room> {
        let held = self.held.lock();
        let free = self.free();
        let has_little = |group: &GroupId| held.get(group).is_none_or(|held| *held < free);
        if bytes > free.min(self.bytes / 2) || !groups.iter().all(has_little) {
            return None;
        }
        self.free.store(free - bytes, Ordering::Relaxed);
        let reserved = Reserved { reserve: Arc::clone(self), group: None, bytes };
        Some(Room { common: None, reserved: Some(Box::new(reserved)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 1_600;

    /// Takes for a group, a hundred each time, until it gets no more.
    fn fill(reserve: &Arc<Reserve>, group: u32) -> Vec<Room> {
        let next = || {
            let mut room = reserve.take(100, &[GroupId(group)])?;
            room.charge(GroupId(group));
            Some(room)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn groups_that_give_nothing_back_leave_something_to_the_next_one() {
        let reserve = Reserve::new(ALL);
        let mut all: Vec<_> = (0..4).map(|group| fill(&reserve, group)).collect();
        let taken: Vec<_> = all.iter().map(Vec::len).collect();
        assert_eq!(taken, [8, 4, 2, 1]);
        assert_eq!(reserve.free(), 100);
        let both = [GroupId(9), GroupId(0)];
        assert!(reserve.take(10, &both).is_none(), "one of the two holds much");
        assert!(reserve.take(10, &both[..1]).is_some());
        all.clear();
        assert_eq!((reserve.free(), reserve.held.lock().len()), (ALL, 0));
        assert!(reserve.take(ALL / 2 + 1, &[]).is_none(), "too much for one");
    }

    #[test]
    fn room_that_is_split_and_joined_is_given_back_once() {
        let reserve = Reserve::new(ALL);
        let semaphore = Arc::new(tokio::sync::Semaphore::new(100));
        let permit = Arc::clone(&semaphore).try_acquire_many_owned(60).unwrap();
        let mut room = Room::from(permit);
        room.merge(reserve.take(200, &[]).unwrap());
        assert_eq!(room.bytes(), 260);
        let mut part = room.split(100);
        assert_eq!((part.bytes(), room.bytes()), (100, 160));
        part.charge(GroupId(1));
        room.charge(GroupId(2));
        let held = || reserve.held.lock().clone();
        assert_eq!(held(), HashMap::from([(GroupId(1), 40), (GroupId(2), 160)]));
        let room = join(Some(room), Some(part)).unwrap();
        assert_eq!(held(), HashMap::from([(GroupId(2), 200)]));
        assert_eq!((semaphore.available_permits(), reserve.free()), (40, ALL - 200));
        drop(room);
        assert_eq!((semaphore.available_permits(), reserve.free()), (100, ALL));
    }
}
