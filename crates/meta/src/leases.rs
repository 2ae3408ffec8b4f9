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

mod exclusive;
mod holder;

pub(crate) use exclusive::Visitors;
pub(crate) use holder::Holder;

use exclusive::Exclusive;
use holder::{Entered, Recall, Renewed, now_ms};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::Ino;

/// Parts of the table with a lock each.
const PARTS: usize = 64;
/// How long a request for recalls waits for one.
pub(crate) const FETCH: Duration = Duration::from_secs(1);

/// The leases of a volume.
pub(crate) struct Leases {
    parts: [Mutex<HashMap<Ino, Place>>; PARTS],
    /// Holders of which everything is being recalled.
    clearing: AtomicUsize,
    /// The number of the last exclusive lease.
    last_exclusive: AtomicU64,
}

/// What is known of an inode.
#[derive(Default)]
struct Place {
    /// It is being changed: only who does it gets a lease.
    changing: u32,
    shares: Vec<Share>,
    /// Somebody has an exclusive lease on it.
    exclusive: Option<Exclusive>,
    /// The sessions of requests that are at it, 0 of those without one; with repeats.
    visitors: Vec<u64>,
    /// None is given an exclusive lease before then: several use it.
    crowded_until_ms: u64,
}

/// Who asks for a lease, or makes a change: a session, under one of its numbers (`MetaRequest::leases`).
#[derive(Clone)]
pub(crate) struct Keeper {
    /// The side of the session.
    pub holder: Arc<Holder>,
    /// The number.
    pub number: u64,
}

impl Keeper {
    /// True of the same session under the same number.
    pub fn is(&self, other: &Keeper) -> bool {
        (self.holder.id, self.number) == (other.holder.id, other.number)
    }
}

/// The lease of one session.
struct Share {
    holder: Arc<Holder>,
    /// The greatest number that it was given under.
    number: u64,
    recalled: Option<Recall>,
}

/// Inodes that are being changed; leases on them are given again when this is dropped.
pub(crate) struct Changing {
    leases: Arc<Leases>,
    inodes: Vec<Ino>,
}

impl Default for Leases {
    fn default() -> Self {
        Leases {
            parts: std::array::from_fn(|_| Mutex::default()),
            clearing: AtomicUsize::new(0),
            last_exclusive: AtomicU64::new(0),
        }
    }
}

impl Leases {
    fn part(&self, ino: Ino) -> &Mutex<HashMap<Ino, Place>> {
        let mixed = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 50) as usize % PARTS]
    }

    /// A session may have leases of a server that ran before: everything is recalled from it, and changes wait until
    /// that is followed, or over.
    pub fn expect(&self, holder: &Holder, clock: &dyn Clock) {
        holder.expect(now_ms(clock), &self.clearing);
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
            if place.changing > 0 && !own || place.is_others(holder.id) {
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
        let taken = self.part(ino).lock().get_mut(&ino).map(|place| {
            place.exclusive.take().iter().for_each(Exclusive::drop);
            std::mem::take(&mut place.shares)
        });
        taken.iter().flatten().for_each(|share| share.holder.drop_lease(ino));
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

    /// The same of one holder's.
    pub fn recall_of(&self, holder: &Holder, ino: Ino, clock: &dyn Clock) {
        self.recall_those(ino, |share| share.holder.id == holder.id, now_ms(clock));
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

    /// Takes the shares of holders out of which everything is recalled.
    fn clear(&self, cleared: Vec<(Arc<Holder>, Vec<Ino>)>) {
        for (holder, inodes) in cleared {
            self.take_shares(&holder, inodes);
            holder.freed();
        }
    }

    fn take_shares(&self, holder: &Holder, inodes: Vec<Ino>) {
        inodes.into_iter().for_each(|ino| self.take_share(holder, ino, |_| true));
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
        self: &Arc<Self>,
        own: Option<&Keeper>,
        inodes: Vec<Ino>,
        holders: impl Fn() -> Vec<Arc<Holder>>,
        clock: &dyn Clock,
    ) -> Changing {
        let mut waits = Vec::new();
        if inodes.is_empty() {
            return Changing { leases: self.clone(), inodes };
        }
        let changing = self.mark(own, inodes, clock, &mut waits);
        // Looked at after the marks: who has been freed of a lease by this is waited for here.
        if self.clearing.load(Ordering::SeqCst) > 0 {
            let is_own =
                |holder: &Holder| own.is_some_and(|own| holder.is_of(&own.holder, own.number));
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
        self: &Arc<Self>,
        own: Option<&Keeper>,
        inodes: Vec<Ino>,
        clock: &dyn Clock,
        waits: &mut Vec<(Arc<Holder>, Recall)>,
    ) -> Changing {
        let (now_ms, mut cleared) = (now_ms(clock), Vec::new());
        for &ino in &inodes {
            let mut part = self.part(ino).lock();
            let place = part.entry(ino).or_default();
            place.changing += 1;
            place.note_crowd(own.map_or(0, |own| own.holder.id), now_ms);
            let others = |share: &Share| own.is_none_or(|own| !share.is_of(own));
            self.recall_from(place, ino, others, now_ms, waits, &mut cleared);
        }
        self.clear(cleared);
        Changing { leases: self.clone(), inodes }
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
        let Renewed { done, over, at_once } =
            holder.renew(followed, forgotten, now_ms(clock), &self.clearing);
        for (number, ino) in done {
            let same = |recalled: Option<Recall>| recalled.is_some_and(|r| r.number == number);
            self.take_share(holder, ino, same);
        }
        over.into_iter()
            .for_each(|ino| self.take_share(holder, ino, |recalled| recalled.is_none()));
        holder.extend(now_ms(clock));
        at_once
    }

    /// The session is over, with all that was leased to it.
    pub fn end(&self, holder: &Arc<Holder>) {
        let inodes = holder.end(&self.clearing);
        self.take_shares(holder, inodes);
        // Without a lease on a directory it is given none.
        self.take_all_exclusive(holder);
        holder.wake();
    }

    /// How many inodes something is known of.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}

impl Drop for Changing {
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
        self.changing == 0
            && self.shares.is_empty()
            && self.exclusive.is_none()
            && self.visitors.is_empty()
    }
}

#[cfg(test)]
mod tests;
