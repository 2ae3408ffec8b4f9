//! Locks that applications hold: POSIX record locks on byte ranges, and flocks on whole files.
//!
//! The table in memory decides; the caller keeps it equal to the store (`F` and `P` keys), one
//! value per session and file. While it stores one, and when nobody knows whether that was stored, the
//! table says so. Waiters are told when a file's locks change and then look again; who waits for a POSIX
//! lock is found if that could never end ([`super::waits`]).

use super::waits::{Owner, Waits};
use crate::records::HeldLock;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use strake_types::Ino;
use tokio::sync::Notify;

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
    /// Sessions of whose locks the store may have others: they are being stored, or the answer to that was lost.
    unsettled: BTreeSet<u64>,
}

/// Names a file's locks of one kind: flocks (`true`) or POSIX locks.
type FileKey = (bool, Ino);

#[derive(Default)]
struct Table {
    files: HashMap<FileKey, File>,
    /// Waits for POSIX locks.
    waits: Waits<(FileKey, Range)>,
}

/// The locks of a volume.
#[derive(Default)]
pub(crate) struct RangeLocks {
    table: Mutex<Table>,
}

/// A request that waits; when it is dropped, it has been answered.
pub(crate) struct Waiting<'a> {
    locks: &'a RangeLocks,
    key: FileKey,
    wanted: Range,
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

    /// A session's locks on a file are about to be stored: until they are [set](RangeLocks::set), the store may have others.
    pub fn unsettle(&self, flock: bool, ino: Ino, session: u64) {
        let mut table = self.table.lock();
        table.files.entry((flock, ino)).or_default().unsettled.insert(session);
    }

    /// Nothing was stored.
    pub fn settle(&self, flock: bool, ino: Ino, session: u64) {
        let mut table = self.table.lock();
        if let Some(file) = table.files.get_mut(&(flock, ino)) {
            file.unsettled.remove(&session);
        }
        table.tidy((flock, ino));
    }

    /// Sessions of whose locks on a file the store may have others, each with those that it has.
    pub fn unsettled(&self, flock: bool, ino: Ino) -> Vec<(u64, Vec<HeldLock>)> {
        let table = self.table.lock();
        let Some(file) = table.files.get(&(flock, ino)) else { return Vec::new() };
        let of = |session: u64| file.held.iter().filter(move |range| range.session == session);
        let with_locks = |&session: &u64| (session, of(session).map(|range| range.lock).collect());
        file.unsettled.iter().map(with_locks).collect()
    }

    /// Sets a session's locks on a file: after they have been stored, or read back.
    pub fn set(&self, flock: bool, ino: Ino, session: u64, locks: Vec<HeldLock>) {
        let mut table = self.table.lock();
        let file = table.files.entry((flock, ino)).or_default();
        file.held.retain(|range| range.session != session);
        file.held.extend(locks.into_iter().map(|lock| Range { session, lock }));
        file.unsettled.remove(&session);
        file.changed.notify_waiters();
        table.tidy((flock, ino));
    }

    /// Files on which the session holds locks, or may hold some in the store.
    pub fn of_session(&self, session: u64) -> Vec<(bool, Ino)> {
        let table = self.table.lock();
        let holds = |file: &File| {
            let held = file.held.iter().any(|range| range.session == session);
            held || file.unsettled.contains(&session)
        };
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
        let (key, wanted) = ((flock, ino), *wanted);
        let file = table.files.entry(key).or_default();
        file.waiting += 1;
        let changed = file.changed.clone();
        if !flock {
            table.waits.ask(wanted.owner(), (key, wanted));
        }
        Waiting { locks: self, key, wanted, changed }
    }

    /// `wanted` was granted or refused for good: no other request will wait for the same.
    pub fn end_wait(&self, flock: bool, ino: Ino, wanted: &Range) {
        self.table.lock().waits.end(wanted.owner(), &((flock, ino), *wanted));
    }
}

impl Waiting<'_> {
    /// True if the wait can end only when somebody gives up: whoever holds the lock waits, perhaps through others,
    /// for its owner.
    pub fn is_in_circle(&self) -> bool {
        let Table { files, waits } = &mut *self.locks.table.lock();
        let blockers = |(key, wanted): &(FileKey, Range)| {
            let held = files.get(key).into_iter().flat_map(|file| &file.held);
            held.filter(|held| held.conflicts(wanted)).map(Range::owner).collect()
        };
        waits.is_in_circle(self.wanted.owner(), blockers)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table.lock();
        if !self.key.0 {
            table.waits.pause(self.wanted.owner(), &(self.key, self.wanted));
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
        let idle =
            |file: &File| file.held.is_empty() && file.waiting == 0 && file.unsettled.is_empty();
        if self.files.get(&key).is_some_and(idle) {
            self.files.remove(&key);
        }
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
    fn a_circle_of_waits_is_found_when_all_ask_again() {
        let locks = RangeLocks::default();
        for (ino, owner) in [(1, 1), (2, 2), (3, 3)] {
            locks.set(false, Ino(ino), owner, vec![range(owner, 0, 9, true).lock]);
        }
        let wants = |owner| Range { session: owner, ..range(owner, 0, 0, true) };
        let ask = |ino, owner| {
            let found = locks.wait(false, Ino(ino), &wants(owner)).is_in_circle();
            if found {
                locks.end_wait(false, Ino(ino), &wants(owner));
            }
            found
        };
        let all = [(2, 1), (3, 2), (1, 3)];
        assert!(all.iter().all(|(ino, owner)| !ask(*ino, *owner)));
        assert_eq!(all.map(|(ino, owner)| ask(ino, owner)), [false, false, true]);
        assert!(!ask(2, 1) && !ask(3, 2), "the third waits no more");
        assert!(!ask(1, 3));
        locks.set(false, Ino(1), 1, Vec::new());
        assert!(!ask(2, 1) && !ask(3, 2) && !ask(1, 3), "nobody is in the third's way");
    }

    #[test]
    fn what_may_not_be_stored_is_known_until_it_is_set() {
        let locks = RangeLocks::default();
        locks.set(false, Ino(1), 1, vec![range(1, 0, 9, true).lock]);
        locks.unsettle(false, Ino(1), 1);
        locks.unsettle(false, Ino(1), 2);
        let own = vec![range(1, 0, 9, true).lock];
        assert_eq!(locks.unsettled(false, Ino(1)), [(1, own.clone()), (2, Vec::new())]);
        assert_eq!(locks.of_session(2), [(false, Ino(1))]);
        locks.set(false, Ino(1), 1, Vec::new());
        assert_eq!(locks.unsettled(false, Ino(1)), [(2, Vec::new())]);
        locks.set(false, Ino(1), 2, Vec::new());
        assert!(locks.table.lock().files.is_empty());
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
