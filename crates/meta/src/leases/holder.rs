//! The side of one session: what is leased to it, and what is recalled and not yet followed.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::Ino;
use strake_types::limits::LEASE_MS_AT_SERVER;
use strake_wire::message::meta::{Ask, Recalled};
use tokio::sync::Notify;

/// Most leases of one session; beyond, the one is recalled that was entered longest ago.
pub(super) const LEASES_MAX: usize = 250_000;
/// Most recalls that wait for one session; beyond, everything is recalled.
pub(super) const RECALLS_MAX: usize = 16 << 10;
/// Turns of leases that are gone, beside as many as there are leases.
const GONE_MAX: usize = 64;
/// Recalls of a session in a millisecond, at most, as a power of two.
const NUMBERS_PER_MS_BITS: u32 = 10;
/// How often one who waits for a session looks at the clock.
const LOOK: Duration = Duration::from_millis(50);

/// A recall that somebody may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recall {
    pub number: u64,
    /// When the leases end that the session had when this was entered.
    pub until_ms: u64,
}

/// The side of one session.
#[derive(Default)]
pub(crate) struct Holder {
    /// The session.
    pub(crate) id: u64,
    pub(super) state: Mutex<State>,
    /// Held by the one who lets leases begin anew.
    pub(super) renewing: Mutex<()>,
    /// There is something to fetch.
    entered: Notify,
    /// A recall was followed.
    followed: Notify,
}

#[derive(Default)]
pub(super) struct State {
    /// When the leases end if nothing more is heard; 0 before the first request for recalls.
    until_ms: u64,
    /// The inodes leased, each with the turn at which it was.
    pub(super) held: HashMap<Ino, u64>,
    /// The same by their turns, with some that are gone.
    pub(super) order: VecDeque<(u64, Ino)>,
    turn: u64,
    /// Number of the last recall.
    last: u64,
    /// Up to which number recalls were followed.
    followed: u64,
    /// Recalls that were not.
    pub(super) waiting: VecDeque<(u64, Ino)>,
    /// Files of which it is to tell what it has written, until it has heard of that; and whether it keeps its claims on them
    /// (`Ask::keep`).
    asked: BTreeMap<(Ino, bool), u64>,
    /// Files of which it is asked whether it rests, until it has heard of that.
    rest: BTreeMap<Ino, u64>,
    /// Files of which a cut may stay undone, until it has heard of that.
    cuts: BTreeSet<Ino>,
    /// Its exclusive leases, by their numbers.
    exclusive: HashMap<u64, Ino>,
    /// Those that it is to give back, until it has heard of that.
    asked_back: BTreeMap<Ino, u64>,
    /// One of them recalls everything: no lease is given until that is forgotten. Followed it is when the kernel there has
    /// forgotten it, too.
    everything: Option<Recall>,
    /// Up to which number everything is forgotten.
    forgotten: u64,
    /// Who takes its shares out. No lease is given meanwhile: it would go with them.
    freeing: u32,
    /// The greatest number that the session may have been given leases under.
    pub(super) number: u64,
    /// The session is over.
    ended: bool,
    /// Requests for recalls do not wait any more.
    stopping: bool,
}

/// What has become of an attempt to recall one lease.
pub(super) enum Entered {
    /// It was over.
    Over,
    /// It is waited for.
    Waits(Recall),
    /// There were too many: everything is recalled, and these inodes are free of the holder.
    Everything(Vec<Ino>),
}

/// What a request for recalls has said.
pub(super) struct Renewed {
    /// Recalls that are followed, with their inodes.
    pub done: Vec<(u64, Ino)>,
    /// Leases on these are over.
    pub over: Vec<Ino>,
    /// The session may believe nothing before it is answered.
    pub at_once: bool,
}

pub(super) fn now_ms(clock: &dyn Clock) -> u64 {
    clock.monotonic().as_millis() as u64
}

impl Holder {
    /// The side of a session that has no leases.
    pub fn new(id: u64) -> Arc<Self> {
        Arc::new(Holder { id, ..Holder::default() })
    }

    /// Numbers recalls from here on: of a session that was there before a start, greater than any that it
    /// may have heard of then, so that it cannot say that it has followed one that it was not told of.
    pub fn count_from(&self, wall_ms: u64) {
        let mut state = self.state.lock();
        state.last = wall_ms << NUMBERS_PER_MS_BITS;
        state.followed = state.last;
    }

    /// It may have leases of a server that ran before: everything is recalled.
    pub(super) fn expect(&self, now_ms: u64, clearing: &AtomicUsize) {
        let mut state = self.state.lock();
        state.last += 1;
        let until_ms = now_ms + LEASE_MS_AT_SERVER;
        state.everything = Some(Recall { number: state.last, until_ms });
        clearing.fetch_add(1, Ordering::SeqCst);
    }

    /// Inodes that are leased to it.
    pub fn len(&self) -> usize {
        self.state.lock().held.len()
    }

    /// True if the session may believe something still.
    pub fn believes(&self, now_ms: u64) -> bool {
        let state = self.state.lock();
        let recalled = state.everything.map_or(0, |recall| recall.until_ms);
        state.until_ms.max(recalled) > now_ms && !state.ended
    }

    /// True if a lease may be given to the session, under this number.
    pub(super) fn may_have(&self, number: u64, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        state.number = state.number.max(number);
        state.until_ms > now_ms && !state.remembers() && state.freeing == 0 && !state.ended
    }

    /// The session is taken up again under this number: whatever it had before it was given under no greater one.
    /// Recalls begin anew for it.
    pub fn resume(&self, number: u64) {
        let mut state = self.state.lock();
        state.number = state.number.max(number);
        if let Some(recall) = state.everything {
            state.last += 1;
            state.everything = Some(Recall { number: state.last, ..recall });
        }
    }

    /// True if a change by `other` under this number is one of this session, which knows then of what it changes itself.
    pub(super) fn is_of(&self, other: &Holder, number: u64) -> bool {
        self.id == other.id && self.state.lock().number <= number
    }

    /// Notes a lease. One that is to end, if there are too many.
    pub(super) fn note(&self, ino: Ino) -> Option<Ino> {
        let mut state = self.state.lock();
        state.enter(ino);
        match state.held.len() > LEASES_MAX {
            true => state.oldest(),
            false => None,
        }
    }

    /// A lease is entered once more. Where there are many, it is the youngest then: of a directory that is listed the lease
    /// would else be the first to be recalled, and with it all its names.
    pub(super) fn renew_lease(&self, ino: Ino) {
        let mut state = self.state.lock();
        if state.held.len() > LEASES_MAX / 2 {
            state.enter(ino);
        }
    }

    pub(super) fn drop_lease(&self, ino: Ino) {
        self.state.lock().held.remove(&ino);
    }

    /// Enters a recall of one inode. The number of those being cleared grows before anything is freed.
    pub(super) fn recall(&self, ino: Ino, now_ms: u64, clearing: &AtomicUsize) -> Entered {
        let mut state = self.state.lock();
        state.held.remove(&ino);
        if state.ended || state.until_ms <= now_ms || state.remembers() {
            return Entered::Over;
        }
        state.last += 1;
        let recall = Recall { number: state.last, until_ms: state.until_ms };
        self.entered.notify_waiters();
        if state.waiting.len() < RECALLS_MAX {
            state.waiting.push_back((recall.number, ino));
            return Entered::Waits(recall);
        }
        state.freeing += 1;
        if state.everything.replace(recall).is_none() {
            clearing.fetch_add(1, Ordering::SeqCst);
        }
        Entered::Everything(state.take_all())
    }

    /// The shares are taken out of which [`Holder::recall`] said that they are free of the holder.
    pub(super) fn freed(&self) {
        self.state.lock().freeing -= 1;
    }

    /// The first half of [`super::Leases::renew`]: what it has followed and forgotten.
    pub(super) fn renew(
        &self,
        followed: u64,
        forgotten: u64,
        now_ms: u64,
        clearing: &AtomicUsize,
    ) -> Renewed {
        let mut state = self.state.lock();
        let begin = state.until_ms <= now_ms;
        let over = if begin { state.take_held() } else { Vec::new() };
        let at_once = begin || state.everything.is_some();
        state.forget(forgotten);
        Renewed { done: state.follow(followed, now_ms, clearing), over, at_once }
    }

    /// The second, when shares that are over are taken out: its leases go on.
    pub(super) fn extend(&self, now_ms: u64) {
        self.state.lock().until_ms = now_ms + LEASE_MS_AT_SERVER;
        self.followed.notify_waiters();
    }

    /// It is over. All that something is leased or recalled of.
    pub(super) fn end(&self, clearing: &AtomicUsize) -> Vec<Ino> {
        let mut state = self.state.lock();
        state.ended = true;
        if state.everything.take().is_some() {
            clearing.fetch_sub(1, Ordering::SeqCst);
        }
        state.take_all()
    }

    /// Whoever waits for it looks again.
    pub(super) fn wake(&self) {
        self.followed.notify_waiters();
        self.entered.notify_waiters();
    }

    /// A recall of everything that is to be waited for. One that is over is taken out when the leases are, too: whoever
    /// comes back after that believes nothing.
    pub(super) fn everything(&self, now_ms: u64, clearing: &AtomicUsize) -> Option<Recall> {
        let mut state = self.state.lock();
        let recall = state.everything?;
        if recall.until_ms.max(state.until_ms) > now_ms {
            return Some(recall);
        }
        state.everything = None;
        clearing.fetch_sub(1, Ordering::SeqCst);
        None
    }

    /// Waits until a recall was followed, or the leases are over that it was for.
    pub(super) async fn wait(&self, recall: Recall, clock: &dyn Clock) {
        loop {
            let told = self.followed.notified();
            {
                let state = self.state.lock();
                if state.ended || state.followed >= recall.number {
                    return;
                }
            }
            let left = recall.until_ms.saturating_sub(now_ms(clock));
            if left == 0 {
                return;
            }
            // Told or not: it is looked at again.
            let _ = tokio::time::timeout(LOOK.min(Duration::from_millis(left)), told).await;
        }
    }

    /// It is to tell what it has written to a file, with what it fetches next; once only, if it is to `keep` its claims.
    pub fn ask_to_tell(&self, ino: Ino, number: u64, keep: bool) {
        self.state.lock().asked.insert((ino, keep), number);
        self.entered.notify_waiters();
    }

    /// It is asked whether it rests, with what it fetches next.
    pub fn ask_to_rest(&self, ino: Ino, number: u64) {
        self.state.lock().rest.insert(ino, number);
        self.entered.notify_waiters();
    }

    /// It hears with what it fetches next that a cut of a file may stay undone.
    pub fn doubt_cut(&self, ino: Ino) {
        self.state.lock().cuts.insert(ino);
        self.entered.notify_waiters();
    }

    /// It has an exclusive lease.
    pub(super) fn note_exclusive(&self, number: u64, ino: Ino) {
        self.state.lock().exclusive.insert(number, ino);
    }

    /// True if it has one.
    pub fn has_exclusive(&self) -> bool {
        !self.state.lock().exclusive.is_empty()
    }

    /// It has it no more. On which inode it was.
    pub(super) fn drop_exclusive(&self, number: u64) -> Option<Ino> {
        self.state.lock().exclusive.remove(&number)
    }

    /// It has none any more. On which inodes they were.
    pub(super) fn drop_all_exclusive(&self) -> HashMap<u64, Ino> {
        std::mem::take(&mut self.state.lock().exclusive)
    }

    /// It is to give an exclusive lease back, with what it fetches next.
    pub(super) fn ask_back(&self, ino: Ino, number: u64) {
        self.state.lock().asked_back.insert(ino, number);
        self.entered.notify_waiters();
    }

    /// What is recalled and not followed; waits for something as long as it may.
    pub async fn fetch(&self, patience: Duration) -> Recalled {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let told = self.entered.notified();
            if let Some(recalled) = self.state.lock().fetched() {
                return recalled;
            }
            if tokio::time::timeout_at(until, told).await.is_err() {
                return self.state.lock().nothing();
            }
        }
    }

    /// Requests for recalls are answered at once from now on: the server stops.
    pub fn release(&self) {
        self.state.lock().stopping = true;
        self.entered.notify_waiters();
    }
}

impl State {
    fn enter(&mut self, ino: Ino) {
        self.turn += 1;
        self.held.insert(ino, self.turn);
        self.order.push_back((self.turn, ino));
        if self.order.len() > 2 * self.held.len() + GONE_MAX {
            let Self { held, order, .. } = self;
            order.retain(|(turn, ino)| held.get(ino) == Some(turn));
        }
    }

    fn oldest(&mut self) -> Option<Ino> {
        while let Some((turn, ino)) = self.order.pop_front() {
            if self.held.get(&ino) == Some(&turn) {
                return Some(ino);
            }
        }
        None
    }

    fn take_held(&mut self) -> Vec<Ino> {
        self.order.clear();
        std::mem::take(&mut self.held).into_keys().collect()
    }

    /// All that something is leased or recalled of.
    fn take_all(&mut self) -> Vec<Ino> {
        let mut inodes = self.take_held();
        inodes.extend(self.waiting.drain(..).map(|(_, ino)| ino));
        inodes
    }

    /// The recall of everything, until that is forgotten.
    fn unforgotten(&self) -> Option<Recall> {
        self.everything.filter(|recall| recall.number > self.forgotten)
    }

    /// True from when everything is recalled until it is forgotten.
    fn remembers(&self) -> bool {
        self.unforgotten().is_some()
    }

    /// Everything is forgotten that was to be up to a number.
    fn forget(&mut self, forgotten: u64) {
        // A greater number is of another server's time.
        if forgotten <= self.last {
            self.forgotten = self.forgotten.max(forgotten);
        }
    }

    /// Recalls up to a number are followed: which.
    fn follow(&mut self, followed: u64, now_ms: u64, clearing: &AtomicUsize) -> Vec<(u64, Ino)> {
        // Who does not say that he has forgotten everything looks no further than his own memory: his kernel has its time.
        let is_early = |recall: Recall| recall.number <= followed && recall.until_ms > now_ms;
        let early = self.unforgotten().is_some_and(is_early);
        // A greater number is of another server's time.
        if followed <= self.last && !early {
            self.followed = self.followed.max(followed);
        }
        if self.everything.is_some_and(|recall| recall.number <= self.followed) {
            self.everything = None;
            clearing.fetch_sub(1, Ordering::SeqCst);
        }
        let count = self.waiting.partition_point(|(number, _)| *number <= self.followed);
        self.waiting.drain(..count).collect()
    }

    fn nothing(&self) -> Recalled {
        Recalled { number: self.followed, ..Recalled::default() }
    }

    /// What is to be answered at once, if anything.
    fn fetched(&mut self) -> Option<Recalled> {
        let everything = self.remembers();
        let is_asked = !self.asked.is_empty()
            || !self.rest.is_empty()
            || !self.cuts.is_empty()
            || !self.asked_back.is_empty();
        if everything || !self.waiting.is_empty() || is_asked {
            let asked = std::mem::take(&mut self.asked).into_iter();
            let ask = |((ino, keep), number): ((Ino, bool), u64)| Ask { ino: ino.0, number, keep };
            let rest = std::mem::take(&mut self.rest).into_iter();
            let asked_back = std::mem::take(&mut self.asked_back).into_iter();
            return Some(Recalled {
                number: self.last,
                inodes: self.waiting.iter().map(|(_, ino)| ino.0).collect(),
                everything,
                shared: asked.map(ask).collect(),
                rest: rest.map(|(ino, number)| ask(((ino, false), number))).collect(),
                cuts: std::mem::take(&mut self.cuts).into_iter().map(|ino| ino.0).collect(),
                exclusive: asked_back.map(|(ino, number)| ask(((ino, false), number))).collect(),
            });
        }
        (self.ended || self.stopping).then(|| self.nothing())
    }
}
