//! Changes of names that this mount has answered and that are under way to the metadata server: by exclusive leases on
//! directories, which say that nobody else is there before we have told. docs/design/0053-names-behind.md.
//!
//! Here is what is leased so, and what is under way, in order; [`crate::ops`] decides what may be answered, and sends it.

use crate::told::After;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{Ino, Timestamp};
use strake_wire::message::meta::{Ask, ChangeBehind};
use tokio::sync::Notify;

/// Most changes under way at once.
const UNDER_WAY_MAX: usize = 128;
/// Most changes of one message.
const BATCH_MAX: usize = 64;
/// How long changes gather before they are sent, where nobody waits for them.
pub(crate) const GATHER: Duration = Duration::from_millis(5);
/// An exclusive lease that was not used for so long is given back.
const IDLE: Duration = Duration::from_secs(1);
/// So many that were given back are remembered one by one.
const GIVEN_BACK_MAX: usize = 1_024;
/// So many directories are remembered of which changes were lost; of more only that there are some.
const LOST_MAX: usize = 1_024;

/// What is leased exclusively by one share, and what is under way there.
#[derive(Default)]
pub(crate) struct Behind {
    /// Held while something begins, and while what has become of it is learnt: so what is known here is always that of
    /// the last that has begun.
    turn: Mutex<()>,
    state: Mutex<State>,
    /// How many changes are under way, to be looked at without the lock.
    under_way: AtomicUsize,
    /// Some have ended.
    ended: Notify,
    /// Somebody waits for some, or there are as many as go into a message.
    wanted: Notify,
}

#[derive(Default)]
struct State {
    leased: HashMap<Ino, Exclusive>,
    /// The numbers of those that were given back, by directory; and a number up to which no other is believed.
    given_back: HashMap<Ino, u64>,
    believed_after: u64,
    /// Numbers given back of which the server has not heard, and their directories.
    to_tell: BTreeMap<u64, Ino>,
    /// Nothing that is leased was unused for long before then.
    idle_at: Duration,
    /// Numbers that it has asked for, as long as they are being given back.
    asked_for: HashSet<u64>,
    /// What is under way, in order.
    queue: VecDeque<Queued>,
    /// Somebody sends it.
    is_sent: bool,
    /// How many have begun, and how many of those have ended: all up to that.
    begun: u64,
    ended: u64,
    /// How many had begun when the session was last taken up, or all leases had ended.
    begun_before: u64,
    /// The last change that touches an inode.
    touched: HashMap<Ino, u64>,
    /// What is changed otherwise, under way, and how often.
    others: HashMap<Ino, usize>,
    /// Directories of which changes were lost that nobody has been told of.
    lost: HashSet<Ino>,
    lost_more: bool,
    /// The server's time at some moment, as far as is known.
    time: Option<(Timestamp, Duration)>,
}

/// An exclusive lease on a directory.
struct Exclusive {
    number: u64,
    /// When it was given, or used last.
    used: Duration,
}

/// A change that is under way.
#[derive(Clone)]
pub(crate) struct Queued {
    /// As it is sent; its number is 0 before.
    pub change: ChangeBehind,
    /// The session in which it has begun, and that of the leases by which it has; 0 before.
    pub session: u64,
    /// Directories of which names are changed.
    pub dirs: Vec<Ino>,
    /// What the names stand for.
    pub inodes: Vec<Ino>,
    /// Which of these is gone with it.
    pub gone: Option<Ino>,
}

impl Queued {
    fn touches(&self) -> impl Iterator<Item = Ino> + '_ {
        self.dirs.iter().chain(&self.inodes).copied()
    }
}

/// Changes of inodes that are not written behind, until this is dropped: none begins there meanwhile.
pub(crate) struct Otherwise {
    behind: Arc<Behind>,
    inodes: Vec<Ino>,
}

impl Drop for Otherwise {
    fn drop(&mut self) {
        if self.inodes.is_empty() {
            return;
        }
        let mut state = self.behind.state.lock();
        for ino in &self.inodes {
            if let Some(count) = state.others.get_mut(ino) {
                *count -= 1;
                if *count == 0 {
                    state.others.remove(ino);
                }
            }
        }
    }
}

/// The right to begin a change, or to learn what has become of some.
pub(crate) struct Turn<'a> {
    behind: &'a Behind,
    /// So many changes end with it.
    ends: Cell<usize>,
    _turn: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    /// A change begins, if these directories are leased exclusively, nothing that it touches is changed otherwise, and there
    /// is room: who finds none does not stand in line here, but goes the old way. True if somebody has to send it.
    pub fn begin(
        &self,
        mut queued: Queued,
        leased: &[Ino],
        now: Duration,
        session: impl FnOnce() -> u64,
    ) -> Option<bool> {
        let state = &mut *self.behind.state.lock();
        let may = state.queue.len() < UNDER_WAY_MAX
            && leased.iter().all(|dir| state.leased.contains_key(dir))
            && queued.touches().all(|ino| !state.others.contains_key(&ino));
        if !may {
            return None;
        }
        // With the lock held: before another one begins nothing is leased any more.
        queued.session = session();
        for dir in leased {
            state.leased.entry(*dir).and_modify(|leased| leased.used = now);
        }
        // Told when it is made, or refused: then it is still there, and the server has it as ours.
        if let Some(gone) = queued.gone
            && let Some(held) = state.leased.remove(&gone)
        {
            state.give_back(gone, held.number);
        }
        state.begun += 1;
        let nth = state.begun;
        state.touched.extend(queued.touches().map(|ino| (ino, nth)));
        state.queue.push_back(queued);
        if state.queue.len() >= BATCH_MAX {
            self.behind.wanted.notify_one();
        }
        self.behind.under_way.store(state.queue.len(), Ordering::Release);
        Some(!std::mem::replace(&mut state.is_sent, true))
    }

    /// The first so many end with this turn. Until it is dropped they are under way, for whoever looks without one: what has
    /// become of them is learnt before that.
    pub fn end(&self, count: usize) -> Vec<Queued> {
        let over: Vec<Queued> =
            self.behind.state.lock().queue.iter().take(count).cloned().collect();
        self.ends.set(over.len());
        over
    }

    /// True if something touches an inode that comes after the nth of these.
    pub fn touches_after(&self, nth: usize, ino: Ino) -> bool {
        let state = self.behind.state.lock();
        state.touched.get(&ino).is_some_and(|last| *last > state.ended + nth as u64)
    }

    /// Changes of names in a directory were answered and are not made.
    pub fn lose(&self, dirs: &[Ino]) {
        let state = &mut *self.behind.state.lock();
        match state.lost.len() < LOST_MAX {
            true => state.lost.extend(dirs),
            false => state.lost_more = true,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let count = self.ends.get();
        if count == 0 {
            return;
        }
        let state = &mut *self.behind.state.lock();
        let State { queue, touched, ended, .. } = state;
        *ended += count as u64;
        for ino in queue.drain(..count).flat_map(|queued| queued.touches().collect::<Vec<_>>()) {
            if touched.get(&ino).is_some_and(|last| *last <= *ended) {
                touched.remove(&ino);
            }
        }
        self.behind.under_way.store(queue.len(), Ordering::Release);
        self.behind.ended.notify_waiters();
    }
}

impl Behind {
    /// Waits for nothing but who has it, for some instructions.
    pub fn turn(&self) -> Turn<'_> {
        Turn { _turn: self.turn.lock(), behind: self, ends: Cell::new(0) }
    }

    /// An answer says that a directory is leased exclusively under a number.
    pub fn learn(&self, dir: Ino, number: u64, now: Duration) {
        let state = &mut *self.state.lock();
        let over = state.given_back.get(&dir).copied().unwrap_or(0).max(state.believed_after);
        if state.holds(dir, number) || number > over {
            state.leased.insert(dir, Exclusive { number, used: now });
        } else if !state.asked_for.contains(&number) {
            // The server has it as ours: it would give no other, and have others wait for us.
            state.to_tell.insert(number, dir);
        }
    }

    /// The same of an answer that is not believed: what is not known here the server would have as ours for ever.
    pub fn disbelieve(&self, dir: Ino, number: u64) {
        let state = &mut *self.state.lock();
        if !state.holds(dir, number) && !state.asked_for.contains(&number) {
            state.give_back(dir, number);
        }
    }

    /// It was that late at the server between when something was `asked` and now. What was known goes on within that: clocks
    /// run apart, and that of the server may be set back.
    pub fn learn_time(&self, told: Timestamp, asked: Duration, now: Duration) {
        let mut state = self.state.lock();
        let latest = told.plus(now.saturating_sub(asked));
        let known = state.time.map_or(told, |(known, then)| known.plus(now.saturating_sub(then)));
        state.time = Some((known.clamp(told, latest), now));
    }

    /// The server's time now, as far as is known.
    pub fn time(&self, now: Duration) -> Option<Timestamp> {
        let (told, then) = self.state.lock().time?;
        Some(told.plus(now.saturating_sub(then)))
    }

    /// Nothing is leased any more; also as the session is about to be taken up, or another one to begin. What the server may
    /// have as ours yet is given back.
    pub fn forget_leases(&self) {
        let state = &mut *self.state.lock();
        for (dir, held) in std::mem::take(&mut state.leased) {
            state.give_back(dir, held.number);
        }
        state.begun_before = state.begun;
    }

    /// True if something is under way that had begun before that.
    pub fn is_of_before(&self) -> bool {
        let state = self.state.lock();
        state.ended < state.begun_before
    }

    /// These inodes are changed otherwise from now on.
    pub fn change_otherwise(self: &Arc<Self>, inodes: Vec<Ino>) -> Otherwise {
        if !inodes.is_empty() {
            let mut state = self.state.lock();
            inodes.iter().for_each(|ino| *state.others.entry(*ino).or_default() += 1);
        }
        Otherwise { behind: Arc::clone(self), inodes }
    }

    /// How much is under way.
    pub fn count(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }

    /// True if something is under way.
    pub fn is_busy(&self) -> bool {
        self.count() > 0
    }

    /// True if something that is under way touches an inode.
    pub fn touches(&self, ino: Ino) -> bool {
        self.is_busy() && self.state.lock().touched.contains_key(&ino)
    }

    /// True if an inode is gone with something that is under way.
    pub fn is_gone(&self, ino: Ino) -> bool {
        if !self.is_busy() {
            return false;
        }
        let state = self.state.lock();
        let goes = || state.queue.iter().any(|one| one.gone == Some(ino));
        state.touched.contains_key(&ino) && goes()
    }

    /// Returns when so much is made that had begun before.
    pub async fn until(&self, after: &After) {
        if !self.is_busy() {
            return;
        }
        let last = match after {
            After::Nothing => return,
            After::Everything => self.state.lock().begun,
            After::These(inodes) => self.last_of(inodes),
        };
        self.until_ended(last).await;
    }

    fn last_of(&self, inodes: &[Ino]) -> u64 {
        let state = self.state.lock();
        inodes.iter().filter_map(|ino| state.touched.get(ino)).copied().max().unwrap_or(0)
    }

    async fn until_ended(&self, nth: u64) {
        loop {
            let ended = self.ended.notified();
            // In turn: what has become of those that have ended is known.
            if self.turn().has_ended(nth) {
                return;
            }
            self.wanted.notify_one();
            ended.await;
        }
    }

    /// Lets some gather: with each message processors are taken from the program that makes them.
    pub async fn gather(&self) {
        if self.count() < BATCH_MAX {
            let _wanted = tokio::time::timeout(GATHER, self.wanted.notified()).await;
        }
    }

    /// The next changes to be sent, from the first on, and the session of that one; none: nobody sends them any more.
    pub fn batch(&self, mut number: impl FnMut() -> u64) -> (u64, Vec<ChangeBehind>) {
        let state = &mut *self.state.lock();
        let session = state.queue.front().map_or(0, |queued| queued.session);
        let first = state.queue.iter_mut().take(BATCH_MAX);
        let batch: Vec<ChangeBehind> = first
            .map(|queued| {
                if queued.change.seq == 0 {
                    queued.change.seq = number();
                }
                queued.change.clone()
            })
            .collect();
        state.is_sent = !batch.is_empty();
        (session, batch)
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
        self.until_ended(self.last_of(&[dir])).await;
        true
    }

    /// The server has been told, or is to be told once more.
    pub fn gave_back(&self, ask: Ask, was_told: bool) {
        let state = &mut *self.state.lock();
        state.asked_for.remove(&ask.number);
        if !was_told {
            state.to_tell.insert(ask.number, Ino(ask.ino));
        }
    }

    /// The numbers of exclusive leases that are given back, and were not told: also those that were not used for a while. Not
    /// yet where something is under way.
    pub fn to_tell(&self, now: Duration) -> Vec<u64> {
        let state = &mut *self.state.lock();
        if now >= state.idle_at {
            state.give_idle_back(now);
        }
        let State { to_tell, touched, .. } = state;
        let over = to_tell.iter().filter(|(_, dir)| !touched.contains_key(dir));
        over.map(|(number, _)| *number).collect()
    }

    /// The server has heard of these.
    pub fn told(&self, numbers: &[u64]) {
        if !numbers.is_empty() {
            let mut state = self.state.lock();
            for number in numbers {
                state.to_tell.remove(number);
            }
        }
    }

    /// True, once, if changes in a directory were lost.
    pub fn take_lost(&self, dir: Ino) -> bool {
        self.state.lock().lost.remove(&dir)
    }

    /// The same of any directory.
    pub fn take_all_lost(&self) -> bool {
        let state = &mut *self.state.lock();
        let lost = std::mem::take(&mut state.lost);
        !lost.is_empty() | std::mem::take(&mut state.lost_more)
    }
}

impl Turn<'_> {
    fn has_ended(&self, nth: u64) -> bool {
        self.behind.state.lock().ended >= nth
    }
}

impl State {
    /// True if a directory is leased exclusively under this number, as far as is known.
    fn holds(&self, dir: Ino, number: u64) -> bool {
        self.leased.get(&dir).is_some_and(|held| held.number == number)
    }

    fn give_idle_back(&mut self, now: Duration) {
        let is_idle = |dir: &Ino, leased: &Exclusive| {
            now >= leased.used + IDLE && !self.touched.contains_key(dir)
        };
        let idle = self.leased.iter().filter(|(dir, leased)| is_idle(dir, leased));
        let idle: Vec<(Ino, u64)> = idle.map(|(dir, leased)| (*dir, leased.number)).collect();
        for (dir, number) in idle {
            self.leased.remove(&dir);
            self.give_back(dir, number);
        }
        let used = self.leased.values().map(|leased| leased.used).min();
        self.idle_at = used.unwrap_or(now) + IDLE;
    }

    /// It is not ours any more, as soon as the server has heard that.
    fn give_back(&mut self, dir: Ino, number: u64) {
        self.note_given_back(dir, number);
        self.to_tell.insert(number, dir);
    }

    fn note_given_back(&mut self, dir: Ino, number: u64) {
        let last = self.given_back.entry(dir).or_default();
        *last = number.max(*last);
        if self.given_back.len() > GIVEN_BACK_MAX {
            let numbers = std::mem::take(&mut self.given_back).into_values();
            self.believed_after = numbers.fold(self.believed_after, u64::max);
        }
    }
}

#[cfg(test)]
mod tests;
