//! Locks that applications hold: POSIX record locks on byte ranges, and flocks on whole files.
//!
//! The table in memory decides; the caller keeps it equal to the store (`F` and `P` keys), by the [pages](super::pages) of
//! each session and file that a change touches. While it stores some, and when nobody knows whether that was stored, the
//! table says so. Waiters are told when a file's locks change and then look again; who waits for a POSIX
//! lock is found if that could never end ([`super::waits`]).

use super::pages::{Filled, Page, Pages};
use super::waits::{Owner, Waits};
use crate::records::HeldLock;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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

    /// True if this is a lock of the same owner, or a part of it.
    fn is_within(&self, lock: &HeldLock) -> bool {
        let own = &self.lock;
        (own.owner, own.exclusive) == (lock.owner, lock.exclusive)
            && lock.start <= own.start
            && own.end <= lock.end
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
    /// How those of a session lie in the store, where that has more than one page of them.
    pages: HashMap<u64, Pages>,
    changed: Arc<Notify>,
    /// How many wait.
    waiting: usize,
    /// Sessions of whose locks the store may have others, in these pages: they are being stored, in this order, or the answer to that
    /// was lost, or they were read back where they do not belong.
    unsettled: BTreeMap<u64, Vec<Page>>,
}

impl File {
    fn locks_of(&self, session: u64) -> impl Iterator<Item = &HeldLock> {
        self.held.iter().filter(move |range| range.session == session).map(|range| &range.lock)
    }

    fn pages_of(&self, session: u64) -> Pages {
        self.pages.get(&session).cloned().unwrap_or_default()
    }

    /// A session's locks are those of before without some and with others.
    fn change(&mut self, session: u64, removed: Vec<HeldLock>, added: Vec<HeldLock>) {
        if !removed.is_empty() {
            let removed: HashSet<HeldLock> = removed.into_iter().collect();
            self.held.retain(|range| range.session != session || !removed.contains(&range.lock));
        }
        self.held.extend(added.into_iter().map(|lock| Range { session, lock }));
    }
}

/// What a change makes of a session's locks on a file.
pub(crate) struct Plan {
    removed: Vec<HeldLock>,
    added: Vec<HeldLock>,
    /// How they lie in the store then.
    pages: Pages,
    /// What is to be stored for that, and what to be deleted, in such an order that whatever is locked before and after it is so all the
    /// time ([`Turn`]).
    pub records: Filled,
}

/// When a page is stored, of those that a change touches: what comes later may be taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// There was none before: it is cut from another one.
    New,
    /// No lock goes there. It may gain what is left of one that begins in an earlier page.
    Gains,
    /// It gets the lock that was asked for, in whose place others go.
    Wanted,
    /// Locks go, and what is left of them there, if anything, does not reach to where another one takes their place.
    Loses,
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

    /// True if the owner of `wanted` has a lock on the file.
    pub fn has(&self, flock: bool, ino: Ino, wanted: &Range) -> bool {
        let table = self.table.lock();
        let mut held = table.files.get(&(flock, ino)).into_iter().flat_map(|file| &file.held);
        held.any(|held| held.owner() == wanted.owner())
    }

    /// What a change would make of the session's locks on the file.
    pub fn plan(&self, flock: bool, ino: Ino, wanted: &Range, change: Change) -> Plan {
        let table = self.table.lock();
        let (nothing, session) = (File::default(), wanted.session);
        let file = table.files.get(&(flock, ino)).unwrap_or(&nothing);
        let Delta { removed, added } = changed(&file.held, wanted, change);
        let mut pages = file.pages_of(session);
        let losing: BTreeSet<Page> = removed.iter().map(|lock| pages.of(lock)).collect();
        let gaining = added.iter().map(|lock| pages.of(lock));
        let touched: BTreeSet<Page> = losing.iter().copied().chain(gaining).collect();
        let contents = {
            let gone: HashSet<&HeldLock> = removed.iter().collect();
            let stay = file.locks_of(session).filter(|lock| !gone.contains(lock));
            pages.contents(touched.iter().copied(), stay.chain(&added))
        };
        let mut records = Vec::new();
        for (page, locks) in contents {
            records.extend(pages.fill(page, locks));
        }
        records.sort_by_key(|(page, locks)| match page {
            page if !touched.contains(page) => Turn::New,
            page if !losing.contains(page) => Turn::Gains,
            _ if locks.iter().any(|lock| wanted.is_within(lock)) => Turn::Wanted,
            _ => Turn::Loses,
        });
        Plan { removed, added, pages, records }
    }

    /// These pages of a session's locks on a file are about to be stored, in this order: until that is [made](RangeLocks::make), the
    /// store may have others.
    pub fn unsettle(
        &self,
        flock: bool,
        ino: Ino,
        session: u64,
        pages: impl IntoIterator<Item = Page>,
    ) {
        let mut table = self.table.lock();
        let file = table.files.entry((flock, ino)).or_default();
        file.unsettled.entry(session).or_default().extend(pages);
    }

    /// Nothing was stored, or what was there before was stored again.
    pub fn settle(&self, flock: bool, ino: Ino, session: u64) {
        let mut table = self.table.lock();
        if let Some(file) = table.files.get_mut(&(flock, ino)) {
            file.unsettled.remove(&session);
        }
        table.tidy((flock, ino));
    }

    /// Sessions of whose locks on a file the store may have others, each with those that it has in the pages in doubt. Last come those
    /// that were to be stored first: so nothing is missing while they are put back, either.
    pub fn unsettled(&self, flock: bool, ino: Ino) -> Vec<(u64, Filled)> {
        let table = self.table.lock();
        let Some(file) = table.files.get(&(flock, ino)) else { return Vec::new() };
        let contents = |(&session, in_doubt): (&u64, &Vec<Page>)| {
            let pages = file.pages_of(session);
            let mut locks = pages.contents(in_doubt.iter().copied(), file.locks_of(session));
            let backwards = in_doubt.iter().rev();
            let pages: Vec<_> = backwards.filter_map(|page| locks.remove_entry(page)).collect();
            (session, pages)
        };
        file.unsettled.iter().map(contents).collect()
    }

    /// All pages of a session's locks on a file that the store has, or may have.
    pub fn stored(&self, flock: bool, ino: Ino, session: u64) -> BTreeSet<Page> {
        let table = self.table.lock();
        let Some(file) = table.files.get(&(flock, ino)) else { return BTreeSet::new() };
        let in_doubt = file.unsettled.get(&session).into_iter().flatten().copied();
        file.pages_of(session).all().chain(in_doubt).collect()
    }

    /// A planned change of a session's locks on a file has been stored.
    pub fn make(&self, flock: bool, ino: Ino, session: u64, plan: Plan) {
        let mut table = self.table.lock();
        let file = table.files.entry((flock, ino)).or_default();
        file.change(session, plan.removed, plan.added);
        match plan.pages.is_one() {
            true => file.pages.remove(&session),
            false => file.pages.insert(session, plan.pages),
        };
        file.unsettled.remove(&session);
        file.changed.notify_waiters();
        table.tidy((flock, ino));
    }

    /// All pages of a session's locks on a file have been read back. A page may still have locks of another one: a change was stored in
    /// part, or a release that knows of no pages has stored its one record beside them. Those count, and the store is to have each
    /// where it belongs before anything changes: it would come back with that page when it was given back.
    pub fn load(&self, flock: bool, ino: Ino, session: u64, stored: Filled) {
        let mut pages = Pages::default();
        stored.iter().for_each(|(page, _)| pages.add(*page));
        let (mut in_doubt, mut known, mut held) = (BTreeSet::new(), HashSet::new(), Vec::new());
        for (page, locks) in stored {
            for lock in locks {
                let own = pages.of(&lock);
                if own != page {
                    // In order: it belongs to a later one, and is stored there before it goes here.
                    in_doubt.extend([page, own]);
                }
                if known.insert(lock) {
                    held.push(lock);
                }
            }
        }
        let mut table = self.table.lock();
        let file = table.files.entry((flock, ino)).or_default();
        file.change(session, Vec::new(), held);
        if !pages.is_one() {
            file.pages.insert(session, pages);
        }
        if !in_doubt.is_empty() {
            file.unsettled.insert(session, in_doubt.into_iter().collect());
        }
        table.tidy((flock, ino));
    }

    /// A session has no locks on a file any more, here or in the store.
    pub fn forget(&self, flock: bool, ino: Ino, session: u64) {
        let mut table = self.table.lock();
        let Some(file) = table.files.get_mut(&(flock, ino)) else { return };
        file.held.retain(|range| range.session != session);
        file.pages.remove(&session);
        file.unsettled.remove(&session);
        file.changed.notify_waiters();
        table.tidy((flock, ino));
    }

    /// Files on which the session holds locks, or may hold some in the store.
    pub fn of_session(&self, session: u64) -> Vec<(bool, Ino)> {
        let table = self.table.lock();
        let holds = |file: &File| {
            let held = file.held.iter().any(|range| range.session == session);
            held || file.unsettled.contains_key(&session)
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

/// What a change takes away of an owner's locks, and what comes in its place.
struct Delta {
    removed: Vec<HeldLock>,
    added: Vec<HeldLock>,
}

/// What a change makes of the locks of a file. The owner's own locks are cut where `wanted` lies; what is then adjacent and alike
/// becomes one.
fn changed(held: &[Range], wanted: &Range, change: Change) -> Delta {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let (cut, mut new) = (wanted.lock, wanted.lock);
    for range in held.iter().filter(|range| range.owner() == wanted.owner()) {
        let own = range.lock;
        let touches =
            own.start <= new.end.saturating_add(1) && new.start <= own.end.saturating_add(1);
        if change == Change::Lock && own.exclusive == cut.exclusive && touches {
            new.start = new.start.min(own.start);
            new.end = new.end.max(own.end);
            removed.push(own);
            continue;
        }
        if own.start > cut.end || own.end < cut.start {
            continue;
        }
        removed.push(own);
        if own.start < cut.start {
            added.push(HeldLock { end: cut.start - 1, ..own });
        }
        if own.end > cut.end {
            added.push(HeldLock { start: cut.end + 1, ..own });
        }
    }
    if change == Change::Lock {
        added.push(new);
    }
    // What it has already need not be stored again; of a change that was stored in part it may have it twice.
    added.retain(|new| {
        let had = removed.contains(new);
        removed.retain(|old| old != new);
        !had
    });
    Delta { removed, added }
}

#[cfg(test)]
mod tests;
