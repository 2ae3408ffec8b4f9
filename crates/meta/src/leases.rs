//! Leases: what clients may believe of inodes without asking, and how it is taken back.
//!
//! A session has one lease on an inode at most; it covers the attributes and, of a directory, the names
//! in it. It is entered *before* the inode is read. Who changes an inode marks it first, so that nobody
//! gets a lease any more, recalls those of others, and waits until each has followed or its time is over;
//! only then it commits. docs/design/0050-leases.md has the races.
//!
//! Recalls of a session are numbered and wait to be fetched by its next request for them
//! ([`Holder::fetch`]), which says how far it has followed. Lock order: a part of the table, then
//! a holder's state.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::Ino;
use strake_types::limits::LEASE_MS_AT_SERVER;
use strake_wire::message::meta::{Ask, Recalled};
use tokio::sync::Notify;

/// Parts of the table with a lock each.
const PARTS: usize = 64;
/// Most leases of one session; beyond, the one is recalled that was entered longest ago.
const LEASES_MAX: usize = 250_000;
/// Most recalls that wait for one session; beyond, everything is recalled.
const RECALLS_MAX: usize = 16 << 10;
/// Recalls of a session in a millisecond, at most, as a power of two.
const NUMBERS_PER_MS_BITS: u32 = 10;
/// How often one who waits for a session looks at the clock.
const LOOK: Duration = Duration::from_millis(50);
/// How long a request for recalls waits for one.
pub(crate) const FETCH: Duration = Duration::from_secs(1);

/// The leases of a volume.
pub(crate) struct Leases {
    parts: [Mutex<HashMap<Ino, Place>>; PARTS],
    /// Holders of which everything is being recalled.
    clearing: AtomicUsize,
}

/// What is known of an inode.
#[derive(Default)]
struct Place {
    /// It is being changed: only who does it gets a lease.
    changing: u32,
    shares: Vec<Share>,
}

/// Who asks for a lease, or makes a change: a session, under one of its numbers (`MetaRequest::leases`).
#[derive(Clone)]
pub(crate) struct Keeper {
    /// The side of the session.
    pub holder: Arc<Holder>,
    /// The number.
    pub number: u64,
}

/// The lease of one session.
struct Share {
    holder: Arc<Holder>,
    /// The greatest number that it was given under.
    number: u64,
    recalled: Option<Recall>,
}

/// A recall that somebody may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recall {
    number: u64,
    /// When the leases end that the session had when this was entered.
    until_ms: u64,
}

/// The side of one session.
#[derive(Default)]
pub(crate) struct Holder {
    /// The session.
    id: u64,
    state: Mutex<State>,
    /// Held by the one who lets leases begin anew.
    renewing: Mutex<()>,
    /// There is something to fetch.
    entered: Notify,
    /// A recall was followed.
    followed: Notify,
}

#[derive(Default)]
struct State {
    /// When the leases end if nothing more is heard; 0 before the first request for recalls.
    until_ms: u64,
    /// The inodes leased, each with the turn at which it was.
    held: HashMap<Ino, u64>,
    /// The same by their turns, with some that are gone.
    order: VecDeque<(u64, Ino)>,
    turn: u64,
    /// Number of the last recall.
    last: u64,
    /// Up to which number recalls were followed.
    followed: u64,
    /// Recalls that were not.
    waiting: VecDeque<(u64, Ino)>,
    /// Files of which it is to tell what it has written, until it has heard of that.
    asked: BTreeMap<Ino, u64>,
    /// One of them recalls everything: no lease is given until that is forgotten. Followed it is when the kernel there has
    /// forgotten it, too.
    everything: Option<Recall>,
    /// Up to which number everything is forgotten.
    forgotten: u64,
    /// The greatest number that the session may have been given leases under.
    number: u64,
    /// The session is over.
    ended: bool,
    /// Requests for recalls do not wait any more.
    stopping: bool,
}

/// What has become of an attempt to recall one lease.
enum Entered {
    /// It was over.
    Over,
    /// It is waited for.
    Waits(Recall),
    /// There were too many: everything is recalled, and these inodes are free of the holder.
    Everything(Vec<Ino>),
}

/// Inodes that are being changed; leases on them are given again when this is dropped.
pub(crate) struct Changing<'a> {
    leases: &'a Leases,
    inodes: Vec<Ino>,
}

impl Default for Leases {
    fn default() -> Self {
        Leases { parts: std::array::from_fn(|_| Mutex::default()), clearing: AtomicUsize::new(0) }
    }
}

fn now_ms(clock: &dyn Clock) -> u64 {
    clock.monotonic().as_millis() as u64
}

impl Leases {
    fn part(&self, ino: Ino) -> &Mutex<HashMap<Ino, Place>> {
        let mixed = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 50) as usize % PARTS]
    }

    /// A session may have leases of a server that ran before: everything is recalled from it, and changes wait until
    /// that is followed, or over.
    pub fn expect(&self, holder: &Holder, clock: &dyn Clock) {
        let mut state = holder.state.lock();
        state.last += 1;
        let until_ms = now_ms(clock) + LEASE_MS_AT_SERVER;
        state.everything = Some(Recall { number: state.last, until_ms });
        self.clearing.fetch_add(1, Ordering::SeqCst);
    }

    /// Enters a lease on an inode that is read after this, or is in the hands of the caller: `own` says
    /// that he holds its lock. False: there is none.
    pub fn enter(&self, keeper: &Keeper, ino: Ino, own: bool, clock: &dyn Clock) -> bool {
        let Keeper { holder, number } = keeper;
        if !holder.may_have(*number, now_ms(clock)) {
            return false;
        }
        {
            let mut part = self.part(ino).lock();
            let place = part.entry(ino).or_default();
            if place.changing > 0 && !own {
                return false;
            }
            match place.shares.iter_mut().find(|share| share.holder.id == holder.id) {
                Some(share) => {
                    share.number = share.number.max(*number);
                    let lasts = share.recalled.is_none();
                    if lasts {
                        holder.renew_lease(ino);
                    }
                    return lasts;
                }
                None => {
                    let (holder, number) = (holder.clone(), *number);
                    place.shares.push(Share { holder, number, recalled: None });
                }
            }
        }
        if let Some(oldest) = holder.note(ino) {
            self.recall_those(oldest, |share| share.holder.id == holder.id, now_ms(clock));
        }
        true
    }

    /// The inode is gone: leases on it are worth nothing, and nobody would ever recall them.
    pub fn forget(&self, ino: Ino) {
        let place =
            self.part(ino).lock().get_mut(&ino).map(|place| std::mem::take(&mut place.shares));
        place.iter().flatten().for_each(|share| share.holder.drop_lease(ino));
        self.tidy(ino);
    }

    /// The holder gives a lease back.
    pub fn give_back(&self, holder: &Holder, ino: Ino) {
        holder.drop_lease(ino);
        self.take_share(holder, ino, |recalled| recalled.is_none());
    }

    /// Recalls all leases on an inode and waits for nobody: who only defers to close the file closes it.
    pub fn recall(&self, ino: Ino, clock: &dyn Clock) {
        self.recall_those(ino, |_| true, now_ms(clock));
    }

    /// Recalls leases on an inode that nobody waits for yet.
    fn recall_those(&self, ino: Ino, which: impl Fn(&Share) -> bool, now_ms: u64) {
        let mut cleared = Vec::new();
        if let Some(place) = self.part(ino).lock().get_mut(&ino) {
            self.recall_from(place, ino, which, now_ms, &mut Vec::new(), &mut cleared);
        }
        self.clear(cleared);
        self.tidy(ino);
    }

    /// Recalls the shares of a place that `which` chooses; adds what is to be waited for.
    fn recall_from(
        &self,
        place: &mut Place,
        ino: Ino,
        which: impl Fn(&Share) -> bool,
        now_ms: u64,
        waits: &mut Vec<(Arc<Holder>, Recall)>,
        cleared: &mut Vec<(Arc<Holder>, Vec<Ino>)>,
    ) {
        place.shares.retain_mut(|share| {
            if !which(share) {
                return true;
            }
            if share.recalled.is_none() {
                match share.holder.recall(ino, now_ms, &self.clearing) {
                    Entered::Over => return false,
                    Entered::Everything(inodes) => {
                        cleared.push((share.holder.clone(), inodes));
                        return false;
                    }
                    Entered::Waits(recall) => share.recalled = Some(recall),
                }
            }
            waits.extend(share.recalled.map(|recall| (share.holder.clone(), recall)));
            true
        });
    }

    /// Takes the shares of holders out.
    fn clear(&self, cleared: Vec<(Arc<Holder>, Vec<Ino>)>) {
        for (holder, inodes) in cleared {
            inodes.into_iter().for_each(|ino| self.take_share(&holder, ino, |_| true));
        }
    }

    fn take_share(&self, holder: &Holder, ino: Ino, which: impl Fn(Option<Recall>) -> bool) {
        let mut part = self.part(ino).lock();
        let Some(place) = part.get_mut(&ino) else { return };
        place.shares.retain(|share| share.holder.id != holder.id || !which(share.recalled));
        if place.is_empty() {
            part.remove(&ino);
        }
    }

    fn tidy(&self, ino: Ino) {
        let mut part = self.part(ino).lock();
        if part.get(&ino).is_some_and(Place::is_empty) {
            part.remove(&ino);
        }
    }

    /// Marks inodes as being changed by `own` (`None`: the server), recalls the leases of all others on
    /// them, and waits until those have followed or their time is over.
    pub async fn change(
        &self,
        own: Option<&Keeper>,
        inodes: Vec<Ino>,
        holders: impl Fn() -> Vec<Arc<Holder>>,
        clock: &dyn Clock,
    ) -> Changing<'_> {
        let mut waits = Vec::new();
        if inodes.is_empty() {
            return Changing { leases: self, inodes };
        }
        let changing = self.mark(own, inodes, clock, &mut waits);
        // Looked at after the marks: who has been freed of a lease by this is waited for here.
        if self.clearing.load(Ordering::SeqCst) > 0 {
            let is_own = |holder: &Holder| own.is_some_and(|own| holder.is_of(own));
            let others = holders().into_iter().filter(|holder| !is_own(holder));
            waits.extend(others.filter_map(|holder| {
                let recall = holder.everything(now_ms(clock), &self.clearing)?;
                Some((holder, recall))
            }));
        }
        for (holder, recall) in waits {
            holder.wait(recall, clock).await;
        }
        changing
    }

    fn mark(
        &self,
        own: Option<&Keeper>,
        inodes: Vec<Ino>,
        clock: &dyn Clock,
        waits: &mut Vec<(Arc<Holder>, Recall)>,
    ) -> Changing<'_> {
        let (now_ms, mut cleared) = (now_ms(clock), Vec::new());
        for &ino in &inodes {
            let mut part = self.part(ino).lock();
            let place = part.entry(ino).or_default();
            place.changing += 1;
            let others = |share: &Share| own.is_none_or(|own| !share.is_of(own));
            self.recall_from(place, ino, others, now_ms, waits, &mut cleared);
        }
        self.clear(cleared);
        Changing { leases: self, inodes }
    }

    /// The session asks for recalls: it has followed those up to `followed`, has forgotten everything that it was to
    /// forget up to `forgotten`, and its leases go on. If they were over, it knows that as well and believes nothing
    /// of before. True if it is to be answered at once: it may believe nothing before that.
    pub fn renew(
        &self,
        holder: &Arc<Holder>,
        followed: u64,
        forgotten: u64,
        clock: &dyn Clock,
    ) -> bool {
        let _one = holder.renewing.lock();
        let (done, over, at_once) = {
            let (now_ms, mut state) = (now_ms(clock), holder.state.lock());
            let begin = state.until_ms <= now_ms;
            let over = if begin { state.take_held() } else { Vec::new() };
            let at_once = begin || state.everything.is_some();
            state.forget(forgotten);
            (state.follow(followed, now_ms, &self.clearing), over, at_once)
        };
        for (number, ino) in done {
            let same = |recalled: Option<Recall>| recalled.is_some_and(|r| r.number == number);
            self.take_share(holder, ino, same);
        }
        over.into_iter()
            .for_each(|ino| self.take_share(holder, ino, |recalled| recalled.is_none()));
        holder.state.lock().until_ms = now_ms(clock) + LEASE_MS_AT_SERVER;
        holder.followed.notify_waiters();
        at_once
    }

    /// The session is over, with all that was leased to it.
    pub fn end(&self, holder: &Arc<Holder>) {
        let inodes = {
            let mut state = holder.state.lock();
            state.ended = true;
            if state.everything.take().is_some() {
                self.clearing.fetch_sub(1, Ordering::SeqCst);
            }
            state.take_all()
        };
        self.clear(vec![(holder.clone(), inodes)]);
        holder.followed.notify_waiters();
        holder.entered.notify_waiters();
    }

    /// How many inodes something is known of.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        for &ino in &self.inodes {
            let mut part = self.leases.part(ino).lock();
            let Some(place) = part.get_mut(&ino) else { continue };
            place.changing -= 1;
            if place.is_empty() {
                part.remove(&ino);
            }
        }
    }
}

impl Share {
    /// True if the keeper knows of what it changes itself.
    fn is_of(&self, keeper: &Keeper) -> bool {
        self.holder.id == keeper.holder.id && self.number <= keeper.number
    }
}

impl Place {
    fn is_empty(&self) -> bool {
        self.changing == 0 && self.shares.is_empty()
    }
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
    fn may_have(&self, number: u64, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        state.number = state.number.max(number);
        state.until_ms > now_ms && !state.remembers() && !state.ended
    }

    /// The session is taken up again under this number: whatever it had before it was given under no greater one.
    pub fn resume(&self, number: u64) {
        let mut state = self.state.lock();
        state.number = state.number.max(number);
    }

    /// True if the keeper is this session, and knows of what it changes itself.
    fn is_of(&self, keeper: &Keeper) -> bool {
        self.id == keeper.holder.id && self.state.lock().number <= keeper.number
    }

    /// Notes a lease. One that is to end, if there are too many.
    fn note(&self, ino: Ino) -> Option<Ino> {
        let mut state = self.state.lock();
        state.enter(ino);
        match state.held.len() > LEASES_MAX {
            true => state.oldest(),
            false => None,
        }
    }

    /// A lease is entered once more. Where there are many, it is the youngest then: of a directory that is listed the lease
    /// would else be the first to be recalled, and with it all its names.
    fn renew_lease(&self, ino: Ino) {
        let mut state = self.state.lock();
        if state.held.len() > LEASES_MAX / 2 {
            state.enter(ino);
        }
    }

    fn drop_lease(&self, ino: Ino) {
        self.state.lock().held.remove(&ino);
    }

    /// Enters a recall of one inode. The number of those being cleared grows before anything is freed.
    fn recall(&self, ino: Ino, now_ms: u64, clearing: &AtomicUsize) -> Entered {
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
        if state.everything.replace(recall).is_none() {
            clearing.fetch_add(1, Ordering::SeqCst);
        }
        Entered::Everything(state.take_all())
    }

    /// A recall of everything that is to be waited for. One that is over is taken out when the leases are, too: whoever
    /// comes back after that believes nothing.
    fn everything(&self, now_ms: u64, clearing: &AtomicUsize) -> Option<Recall> {
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
    async fn wait(&self, recall: Recall, clock: &dyn Clock) {
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

    /// It is to tell what it has written to a file, with what it fetches next.
    pub fn ask_to_tell(&self, ino: Ino, number: u64) {
        self.state.lock().asked.insert(ino, number);
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
        if self.order.len() > 2 * self.held.len() + PARTS {
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

    /// True from when everything is recalled until it is forgotten.
    fn remembers(&self) -> bool {
        self.everything.is_some_and(|recall| recall.number > self.forgotten)
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
        let early = |recall: Recall| recall.number <= followed && recall.until_ms > now_ms;
        let early = self.remembers() && self.everything.is_some_and(early);
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

    fn fetched(&mut self) -> Option<Recalled> {
        if self.ended || self.stopping {
            return Some(self.nothing());
        }
        let everything = self.remembers();
        (everything || !self.waiting.is_empty() || !self.asked.is_empty()).then(|| Recalled {
            number: self.last,
            inodes: self.waiting.iter().map(|(_, ino)| ino.0).collect(),
            everything,
            shared: std::mem::take(&mut self.asked)
                .into_iter()
                .map(|(ino, number)| Ask { ino: ino.0, number })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests;
