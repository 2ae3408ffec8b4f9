//! Exclusive leases on directories: who has one answers changes of names there before the server hears of them
//! (docs/design/0053-names-behind.md).
//!
//! Whoever else comes to the directory is entered as a visitor first. As long as there is one none is given, and what
//! was given is asked back; who visits waits for that with no lock held ([`crate::visit`]).

use super::holder::now_ms;
use super::{Holder, Keeper, Leases, Place};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_base::clock::Clock;
use strake_types::Ino;

/// How long after somebody else was there none is given.
const CROWDED_MS: u64 = 2_000;

/// An exclusive lease.
pub(super) struct Exclusive {
    holder: Arc<Holder>,
    number: u64,
    /// It was asked back.
    asked: bool,
    /// The leases of its holder were over when somebody came.
    over: bool,
}

/// A request that is at some inodes, until it is answered.
pub(crate) struct Visitors {
    leases: Arc<Leases>,
    own: u64,
    inodes: Vec<Ino>,
}

/// What became of exclusive leases that somebody else is in the way of.
#[derive(Default)]
pub(crate) struct AskedBack {
    /// One who has not given his back.
    pub waits_for: Option<Arc<Holder>>,
    /// One or more are taken from holders whose leases are over.
    pub is_over: bool,
}

impl Exclusive {
    /// The inode is gone.
    pub fn drop(&self) {
        self.holder.drop_exclusive(self.number);
    }
}

impl Visitors {
    /// Where they are.
    pub fn inodes(&self) -> &[Ino] {
        &self.inodes
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        for &ino in &self.inodes {
            let mut part = self.leases.part(ino).lock();
            let Some(place) = part.get_mut(&ino) else { continue };
            if let Some(at) = place.visitors.iter().position(|visitor| *visitor == self.own) {
                place.visitors.swap_remove(at);
            }
            if place.is_empty() {
                part.remove(&ino);
            }
        }
    }
}

impl Place {
    /// Somebody is there: with others, or where another has an exclusive lease.
    pub(super) fn note_crowd(&mut self, own: u64, now_ms: u64) {
        let others = self.shares.iter().any(|share| share.holder.id != own);
        if others || self.is_others(own) {
            self.crowded_until_ms = now_ms + CROWDED_MS;
        }
    }

    pub(super) fn is_others(&self, own: u64) -> bool {
        self.exclusive.as_ref().is_some_and(|given| given.holder.id != own)
    }

    /// True if nobody else uses the directory, nor has lately.
    fn is_alone(&self, own: u64, now_ms: u64) -> bool {
        let is_own = |share: &super::Share| share.holder.id == own && share.recalled.is_none();
        self.crowded_until_ms <= now_ms
            && !self.shares.is_empty()
            && self.shares.iter().all(is_own)
            && self.visitors.iter().all(|visitor| *visitor == own)
    }
}

impl Leases {
    /// Numbers exclusive leases from here on: greater than any that an earlier server has given.
    pub fn number_exclusive_from(&self, number: u64) {
        self.last_exclusive.fetch_max(number, Ordering::AcqRel);
    }

    /// Gives the keeper an exclusive lease on a directory whose lock he holds, or that he has made, and on which he has a lease. Its number, also of
    /// one that he has; 0: there is none.
    pub fn give_exclusive(&self, keeper: &Keeper, dir: Ino, clock: &dyn Clock) -> u64 {
        let (own, now_ms) = (&keeper.holder, now_ms(clock));
        let mut part = self.part(dir).lock();
        let Some(place) = part.get_mut(&dir) else { return 0 };
        if let Some(given) = &place.exclusive {
            let lasts = given.holder.id == own.id && !given.asked && !given.over;
            return if lasts { given.number } else { 0 };
        }
        if !place.is_alone(own.id, now_ms) {
            return 0;
        }
        let number = self.last_exclusive.fetch_add(1, Ordering::AcqRel) + 1;
        own.note_exclusive(number, dir);
        place.exclusive =
            Some(Exclusive { holder: own.clone(), number, asked: false, over: false });
        number
    }

    /// A request of this session (0: of none) is at these inodes from now on.
    pub fn let_in(self: &Arc<Self>, own: u64, inodes: Vec<Ino>, clock: &dyn Clock) -> Visitors {
        let now_ms = now_ms(clock);
        for &ino in &inodes {
            let mut part = self.part(ino).lock();
            let place = part.entry(ino).or_default();
            place.visitors.push(own);
            place.note_crowd(own, now_ms);
        }
        Visitors { leases: self.clone(), own, inodes }
    }

    /// Which of these inodes others than `own` have exclusive leases on. They are asked for them, if `ask`; from those whose
    /// leases are all over they are taken.
    pub fn ask_back(&self, own: u64, inodes: &[Ino], ask: bool, clock: &dyn Clock) -> AskedBack {
        let (now_ms, mut found) = (now_ms(clock), AskedBack::default());
        for &ino in inodes {
            let mut part = self.part(ino).lock();
            let Some(place) = part.get_mut(&ino).filter(|place| place.is_others(own)) else {
                continue;
            };
            let Some(given) = &mut place.exclusive else { continue };
            if given.over || !given.holder.believes(now_ms) {
                given.over = true;
                found.is_over = true;
                continue;
            }
            given.asked = true;
            if ask {
                given.holder.ask_back(ino, given.number);
            }
            found.waits_for = Some(given.holder.clone());
        }
        found
    }

    /// Takes those that were over from their holders, when nothing is under way by them.
    pub fn take_what_is_over(&self, inodes: &[Ino]) {
        for &ino in inodes {
            if let Some(place) = self.part(ino).lock().get_mut(&ino)
                && let Some(given) = place.exclusive.take_if(|given| given.over)
            {
                given.drop();
            }
        }
    }

    /// True if one session has an exclusive lease on a directory.
    pub fn is_exclusive(&self, own: u64, dir: Ino) -> bool {
        let part = self.part(dir).lock();
        let given = part.get(&dir).and_then(|place| place.exclusive.as_ref());
        given.is_some_and(|given| given.holder.id == own && !given.over)
    }

    /// True if another session than this has one.
    pub fn is_exclusive_to_others(&self, own: u64, ino: Ino) -> bool {
        self.part(ino).lock().get(&ino).is_some_and(|place| place.is_others(own))
    }

    /// The session has given back an exclusive lease.
    pub fn take_exclusive(&self, holder: &Holder, number: u64) {
        if let Some(dir) = holder.drop_exclusive(number) {
            self.remove_exclusive(dir, number);
        }
    }

    /// The session is over, with all its exclusive leases.
    pub(super) fn take_all_exclusive(&self, holder: &Holder) {
        for (number, dir) in holder.drop_all_exclusive() {
            self.remove_exclusive(dir, number);
        }
    }

    fn remove_exclusive(&self, dir: Ino, number: u64) {
        let mut part = self.part(dir).lock();
        let Some(place) = part.get_mut(&dir) else { return };
        place.exclusive.take_if(|given| given.number == number);
        if place.is_empty() {
            part.remove(&dir);
        }
    }
}
