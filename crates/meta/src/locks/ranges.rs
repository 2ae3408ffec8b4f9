//! Locks that applications hold: POSIX record locks on byte ranges, and flocks on whole files.
//!
//! The table in memory decides; the caller keeps it equal to the store (`F` and `P` keys), one
//! value per session and file. Waiters are told when a file's locks change and then look again. For
//! POSIX locks each waiter is also an edge of a graph of owners, so that a wait that could never
//! end is found.

use crate::records::HeldLock;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use strake_types::Ino;
use tokio::sync::Notify;

/// Who holds or wants a lock: session, and owner within the session.
pub(crate) type Owner = (u64, u64);

/// A lock of some session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The session.
    pub session: u64,
    /// The lock.
    pub lock: HeldLock,
}

impl Range {
    fn owner(&self) -> Owner {
        (self.session, self.lock.owner)
    }

    fn conflicts(&self, wanted: &Range) -> bool {
        self.owner() != wanted.owner()
            && (self.lock.exclusive || wanted.lock.exclusive)
            && self.lock.start <= wanted.lock.end
            && wanted.lock.start <= self.lock.end
    }
}

/// What is done to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The owner's locks there are replaced by this one.
    Lock,
    /// The owner's locks there end.
    Unlock,
}

/// The locks of one file of one kind.
#[derive(Default)]
struct File {
    held: Vec<Range>,
    changed: Arc<Notify>,
    /// How many wait.
    waiting: usize,
}

/// Names a file's locks of one kind: flocks (`true`) or POSIX locks.
type FileKey = (bool, Ino);

#[derive(Default)]
struct Table {
    files: HashMap<FileKey, File>,
    /// POSIX waits: who waits for whom.
    waits: HashMap<Owner, Vec<Owner>>,
}

/// The locks of a volume.
#[derive(Default)]
pub(crate) struct RangeLocks {
    table: Mutex<Table>,
}

/// Somebody who waits; dropping it takes his edge out of the graph.
pub(crate) struct Waiting<'a> {
    locks: &'a RangeLocks,
    owner: Owner,
    key: FileKey,
    /// Told at each change of the file's locks.
    pub changed: Arc<Notify>,
}

impl RangeLocks {
    /// The first lock that keeps `wanted` from being given.
    pub fn conflict(&self, flock: bool, ino: Ino, wanted: &Range) -> Option<Range> {
        let table = self.table.lock();
        let file = table.files.get(&(flock, ino))?;
        let conflicts = file.held.iter().filter(|held| held.conflicts(wanted));
        conflicts.min_by_key(|held| held.lock.start).copied()
    }

    /// The session's locks on the file as they would be after a change.
    pub fn preview(&self, flock: bool, ino: Ino, wanted: &Range, change: Change) -> Vec<HeldLock> {
        let table = self.table.lock();
        let held = table.files.get(&(flock, ino)).map(|file| file.held.as_slice());
        let after = changed(held.unwrap_or_default(), wanted, change);
        after.into_iter().filter(|r| r.session == wanted.session).map(|r| r.lock).collect()
    }

    /// Sets a session's locks on a file: after they have been stored, or read back.
    pub fn set(&self, flock: bool, ino: Ino, session: u64, locks: Vec<HeldLock>) {
        let mut table = self.table.lock();
        let file = table.files.entry((flock, ino)).or_default();
        file.held.retain(|range| range.session != session);
        file.held.extend(locks.into_iter().map(|lock| Range { session, lock }));
        file.changed.notify_waiters();
        table.tidy((flock, ino));
    }

    /// Files on which the session holds locks.
    pub fn of_session(&self, session: u64) -> Vec<(bool, Ino)> {
        let table = self.table.lock();
        let holds = |file: &File| file.held.iter().any(|range| range.session == session);
        table.files.iter().filter(|(_, file)| holds(file)).map(|(key, _)| *key).collect()
    }

    /// How many locks of both kinds a session holds on a file.
    pub fn count(&self, ino: Ino, session: u64) -> usize {
        let table = self.table.lock();
        let files = [true, false].into_iter().filter_map(|flock| table.files.get(&(flock, ino)));
        files.flat_map(|file| &file.held).filter(|range| range.session == session).count()
    }

    /// Begins to wait for `wanted`. The caller looks again at each change.
    pub fn wait(&self, flock: bool, ino: Ino, wanted: &Range) -> Waiting<'_> {
        let mut table = self.table.lock();
        let key = (flock, ino);
        let owner = wanted.owner();
        let file = table.files.entry(key).or_default();
        let changed = file.changed.clone();
        let blockers = file.held.iter().filter(|held| held.conflicts(wanted)).map(Range::owner);
        let blockers: Vec<Owner> = blockers.collect();
        file.waiting += 1;
        if !flock {
            table.waits.insert(owner, blockers);
        }
        Waiting { locks: self, owner, key, changed }
    }
}

impl Waiting<'_> {
    /// True if the wait can end only when it is given up: whoever holds the lock waits, perhaps through others,
    /// for its owner.
    pub fn is_in_circle(&self) -> bool {
        let table = self.locks.table.lock();
        let blockers = table.waits.get(&self.owner).filter(|_| !self.key.0);
        blockers.is_some_and(|blockers| table.leads_to(blockers, self.owner))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table.lock();
        if !self.key.0 {
            table.waits.remove(&self.owner);
        }
        table.leave(self.key);
    }
}

impl Table {
    /// One less waits for a file's locks.
    fn leave(&mut self, key: FileKey) {
        if let Some(file) = self.files.get_mut(&key) {
            file.waiting -= 1;
        }
        self.tidy(key);
    }

    /// Forgets a file without locks that nobody waits for.
    fn tidy(&mut self, key: FileKey) {
        let idle = |file: &File| file.held.is_empty() && file.waiting == 0;
        if self.files.get(&key).is_some_and(idle) {
            self.files.remove(&key);
        }
    }

    /// True if one of `from` waits, through others, for `owner`.
    fn leads_to(&self, from: &[Owner], owner: Owner) -> bool {
        let mut open = from.to_vec();
        let mut seen = HashSet::new();
        while let Some(next) = open.pop() {
            if next == owner {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.waits.get(&next).into_iter().flatten());
            }
        }
        false
    }
}

/// The locks of a file after a change. The owner's own locks are cut where `wanted` lies; what is
/// then adjacent and alike becomes one.
fn changed(held: &[Range], wanted: &Range, change: Change) -> Vec<Range> {
    let mut after = Vec::with_capacity(held.len() + 2);
    let mut new = *wanted;
    for range in held {
        if range.owner() != wanted.owner() {
            after.push(*range);
            continue;
        }
        let (own, cut) = (range.lock, wanted.lock);
        let touches = own.start <= new.lock.end.saturating_add(1)
            && new.lock.start <= own.end.saturating_add(1);
        if change == Change::Lock && own.exclusive == cut.exclusive && touches {
            new.lock.start = new.lock.start.min(own.start);
            new.lock.end = new.lock.end.max(own.end);
            continue;
        }
        if own.start < cut.start {
            let end = own.end.min(cut.start - 1);
            after.push(Range { lock: HeldLock { end, ..own }, ..*range });
        }
        if own.end > cut.end {
            let start = own.start.max(cut.end + 1);
            after.push(Range { lock: HeldLock { start, ..own }, ..*range });
        }
    }
    if change == Change::Lock {
        after.push(new);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(owner: u64, start: u64, end: u64, exclusive: bool) -> Range {
        Range { session: 1, lock: HeldLock { owner, pid: 1, start, end, exclusive } }
    }

    fn apply(held: &[Range], wanted: Range, change: Change) -> Vec<(u64, u64, bool)> {
        let mut after: Vec<_> = changed(held, &wanted, change)
            .into_iter()
            .map(|r| (r.lock.start, r.lock.end, r.lock.exclusive))
            .collect();
        after.sort();
        after
    }

    #[test]
    fn an_unlock_in_the_middle_splits() {
        let held = [range(1, 0, 99, true)];
        let after = apply(&held, range(1, 10, 19, false), Change::Unlock);
        assert_eq!(after, [(0, 9, true), (20, 99, true)]);
        let to_end = [range(1, 10, u64::MAX, true)];
        let after = apply(&to_end, range(1, 50, u64::MAX, false), Change::Unlock);
        assert_eq!(after, [(10, 49, true)]);
    }

    #[test]
    fn alike_neighbours_become_one_and_others_are_cut() {
        let held = [range(1, 0, 9, true), range(1, 20, 29, true), range(2, 0, 99, false)];
        let after = apply(&held, range(1, 10, 19, true), Change::Lock);
        assert_eq!(after, [(0, 29, true), (0, 99, false)]);
        let after = apply(&held[..2], range(1, 5, 24, false), Change::Lock);
        assert_eq!(after, [(0, 4, true), (5, 24, false), (25, 29, true)]);
    }

    #[test]
    fn shared_locks_agree_and_exclusive_ones_do_not() {
        let locks = RangeLocks::default();
        locks.set(false, Ino(1), 1, vec![range(1, 0, 9, false).lock]);
        let other = |start, exclusive| Range { session: 2, ..range(1, start, start, exclusive) };
        assert_eq!(locks.conflict(false, Ino(1), &other(5, false)), None);
        assert!(locks.conflict(false, Ino(1), &other(5, true)).is_some());
        assert_eq!(locks.conflict(false, Ino(1), &other(10, true)), None);
        assert_eq!(locks.conflict(true, Ino(1), &other(5, true)), None, "flocks are apart");
    }

    #[test]
    fn a_circle_of_waits_is_found() {
        let locks = RangeLocks::default();
        for (ino, owner) in [(1, 1), (2, 2), (3, 3)] {
            locks.set(false, Ino(ino), owner, vec![range(owner, 0, 9, true).lock]);
        }
        let wants = |owner| Range { session: owner, ..range(owner, 0, 0, true) };
        let first = locks.wait(false, Ino(2), &wants(1));
        let second = locks.wait(false, Ino(3), &wants(2));
        assert!(!first.is_in_circle() && !second.is_in_circle());
        let third = locks.wait(false, Ino(1), &wants(3));
        assert!([&first, &second, &third].iter().all(|waiting| waiting.is_in_circle()));
        drop(first);
        assert!(!second.is_in_circle() && !third.is_in_circle());
    }

    #[test]
    fn nothing_is_kept_of_files_without_locks() {
        let locks = RangeLocks::default();
        locks.set(true, Ino(1), 1, vec![range(1, 0, 9, true).lock]);
        let waiting = locks.wait(true, Ino(1), &range(2, 0, 9, true));
        locks.set(true, Ino(1), 1, Vec::new());
        drop(waiting);
        assert!(locks.table.lock().files.is_empty());
    }
}
