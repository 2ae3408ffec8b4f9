//! Changes of names that this mount has answered and that are under way to the metadata server: by exclusive leases on
//! directories, which say that nobody else is there before we have told. docs/design/0053-names-behind.md.
//!
//! Here is only what is leased so, and what is under way; [`crate::ops`] decides what may be answered, and sends it.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::Ino;
use strake_wire::message::meta::Ask;
use tokio::sync::Notify;

/// Most changes under way at once.
const UNDER_WAY_MAX: usize = 64;
/// An exclusive lease that was not used for so long is given back.
const IDLE: Duration = Duration::from_secs(1);
/// So many that were given back are remembered one by one.
const GIVEN_BACK_MAX: usize = 1_024;
/// So many directories are remembered of which changes were lost; beyond, each is taken for one.
const LOST_MAX: usize = 1_024;

/// What is leased exclusively by one share, and what is under way there.
#[derive(Default)]
pub(crate) struct Behind {
    state: Mutex<State>,
    /// How many changes are under way, to be looked at without the lock.
    under_way: AtomicUsize,
    /// One has ended.
    ended: Notify,
}

#[derive(Default)]
struct State {
    leased: HashMap<Ino, Exclusive>,
    /// The numbers of those that were given back, by directory; and a number up to which no other is believed.
    given_back: HashMap<Ino, u64>,
    believed_after: u64,
    /// Numbers given back of which the server has not heard.
    to_tell: Vec<u64>,
    /// Numbers that it has asked for, as long as they are being given back.
    asked_for: HashSet<u64>,
    /// What is under way, in the order in which it has begun.
    changes: BTreeMap<u64, Touched>,
    /// How many have begun.
    begun: u64,
    /// The same when the session was last taken up.
    begun_before: u64,
    /// Changes by which a directory is changed otherwise, under way.
    others: HashMap<Ino, usize>,
    /// Directories of which changes were lost that nobody has been told of.
    lost: HashSet<Ino>,
}

/// An exclusive lease on a directory.
struct Exclusive {
    number: u64,
    /// When it was given, or used last.
    used: Duration,
}

/// What a change touches.
pub(crate) struct Touched {
    /// Directories of which names are changed: all have to be leased exclusively.
    pub dirs: Vec<Ino>,
    /// What the names stand for.
    pub inodes: Vec<Ino>,
    /// Those of them that have to be leased exclusively, too.
    pub removed_dir: Option<Ino>,
    pub names: Vec<(Ino, Bytes)>,
}

impl Touched {
    fn has(&self, ino: Ino) -> bool {
        self.dirs.contains(&ino) || self.inodes.contains(&ino)
    }

    /// True if it matters which of the two is carried out first.
    fn meets(&self, other: &Touched) -> bool {
        self.inodes.iter().any(|ino| other.has(*ino))
            || other.inodes.iter().any(|ino| self.has(*ino))
            || self.names.iter().any(|name| other.names.contains(name))
    }
}

/// A change that is under way until this is dropped.
pub(crate) struct UnderWay {
    behind: Arc<Behind>,
    nth: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.behind.state.lock();
        state.changes.remove(&self.nth);
        self.behind.under_way.store(state.changes.len(), Ordering::Release);
        drop(state);
        self.behind.ended.notify_waiters();
    }
}

/// A change of names in directories that is not written behind, until this is dropped: none begins there meanwhile.
pub(crate) struct Otherwise {
    behind: Arc<Behind>,
    dirs: Vec<Ino>,
}

impl Drop for Otherwise {
    fn drop(&mut self) {
        let mut state = self.behind.state.lock();
        for dir in &self.dirs {
            if let Some(count) = state.others.get_mut(dir) {
                *count -= 1;
                if *count == 0 {
                    state.others.remove(dir);
                }
            }
        }
    }
}

impl Behind {
    /// An answer says that a directory is leased exclusively under a number.
    pub fn learn(&self, dir: Ino, number: u64, now: Duration) {
        let mut state = self.state.lock();
        let over = state.given_back.get(&dir).copied().unwrap_or(0).max(state.believed_after);
        if number > over {
            state.leased.insert(dir, Exclusive { number, used: now });
        }
    }

    /// Nothing is leased any more.
    pub fn forget_leases(&self) {
        self.state.lock().leased.clear();
    }

    /// The session is about to be taken up, or another one to begin.
    pub fn note_session(&self) {
        let mut state = self.state.lock();
        state.leased.clear();
        state.begun_before = state.begun;
    }

    /// True if something is under way that was before the session was last taken up.
    pub fn is_of_before(&self) -> bool {
        let state = self.state.lock();
        state.changes.first_key_value().is_some_and(|(nth, _)| *nth <= state.begun_before)
    }

    /// A change begins, if it may.
    pub fn begin(self: &Arc<Self>, touched: Touched, now: Duration) -> Option<UnderWay> {
        let state = &mut *self.state.lock();
        let needed = touched.dirs.iter().chain(&touched.removed_dir);
        let may = state.changes.len() < UNDER_WAY_MAX
            && needed.clone().all(|dir| state.leased.contains_key(dir))
            && needed.clone().all(|dir| !state.others.contains_key(dir))
            && !state.changes.values().any(|other| other.meets(&touched));
        if !may {
            return None;
        }
        for dir in needed {
            state.leased.entry(*dir).and_modify(|leased| leased.used = now);
        }
        touched.removed_dir.iter().for_each(|dir| drop(state.leased.remove(dir)));
        state.begun += 1;
        let nth = state.begun;
        state.changes.insert(nth, touched);
        self.under_way.store(state.changes.len(), Ordering::Release);
        Some(UnderWay { behind: Arc::clone(self), nth })
    }

    /// Names of these directories are changed otherwise from now on.
    pub fn change_otherwise(self: &Arc<Self>, dirs: Vec<Ino>) -> Otherwise {
        let mut state = self.state.lock();
        for dir in &dirs {
            *state.others.entry(*dir).or_default() += 1;
        }
        drop(state);
        Otherwise { behind: Arc::clone(self), dirs }
    }

    /// True if something that is under way touches an inode.
    pub fn touches(&self, ino: Ino) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
            && self.state.lock().changes.values().any(|change| change.has(ino))
    }

    /// Returns when nothing is under way that has begun before.
    pub async fn over(&self) {
        if self.under_way.load(Ordering::Acquire) > 0 {
            let begun = self.state.lock().begun;
            self.until(|nth, _| nth > begun).await;
        }
    }

    /// The same of what touches a directory.
    async fn over_in(&self, dir: Ino) {
        self.until(|_, change| !change.has(dir)).await;
    }

    async fn until(&self, is_fine: impl Fn(u64, &Touched) -> bool) {
        loop {
            let ended = self.ended.notified();
            if self.state.lock().changes.iter().all(|(nth, change)| is_fine(*nth, change)) {
                return;
            }
            ended.await;
        }
    }

    /// Gives back an exclusive lease that the server has asked for, when nothing is under way there any more. False: that is
    /// being done already. Then [`Behind::gave_back`] has to follow.
    pub async fn give_back(&self, ask: Ask) -> bool {
        let dir = Ino(ask.ino);
        {
            let state = &mut *self.state.lock();
            if !state.asked_for.insert(ask.number) {
                return false;
            }
            state.leased.remove(&dir);
            state.note_given_back(dir, ask.number);
        }
        self.over_in(dir).await;
        true
    }

    /// The server has been told, or could not be.
    pub fn gave_back(&self, number: u64) {
        self.state.lock().asked_for.remove(&number);
    }

    /// The numbers of exclusive leases that are given back, and were not told: also those that were not used for a while.
    pub fn to_tell(&self, now: Duration) -> Vec<u64> {
        let state = &mut *self.state.lock();
        let is_used = |dir: Ino| state.changes.values().any(|change| change.has(dir));
        let is_idle = |leased: &Exclusive| now >= leased.used + IDLE;
        let idle = state.leased.iter().filter(|(dir, leased)| is_idle(leased) && !is_used(**dir));
        let idle: Vec<(Ino, u64)> = idle.map(|(dir, leased)| (*dir, leased.number)).collect();
        for (dir, number) in idle {
            state.leased.remove(&dir);
            state.note_given_back(dir, number);
            state.to_tell.push(number);
        }
        state.to_tell.clone()
    }

    /// The server has heard of these.
    pub fn told(&self, numbers: &[u64]) {
        if !numbers.is_empty() {
            self.state.lock().to_tell.retain(|number| !numbers.contains(number));
        }
    }

    /// A change of names in these directories was answered and is not made.
    pub fn lose(&self, dirs: &[Ino]) {
        self.state.lock().lost.extend(dirs);
    }

    /// True, once, if changes in a directory were lost.
    pub fn take_lost(&self, dir: Ino) -> bool {
        let lost = &mut self.state.lock().lost;
        lost.remove(&dir) || lost.len() > LOST_MAX
    }

    /// The same of any directory.
    pub fn take_all_lost(&self) -> bool {
        !std::mem::take(&mut self.state.lock().lost).is_empty()
    }
}

impl State {
    fn note_given_back(&mut self, dir: Ino, number: u64) {
        let last = self.given_back.entry(dir).or_default();
        *last = number.max(*last);
        if self.given_back.len() > GIVEN_BACK_MAX {
            let numbers = std::mem::take(&mut self.given_back).into_values();
            self.believed_after = numbers.fold(self.believed_after, u64::max);
        }
    }
}
