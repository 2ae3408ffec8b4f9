//! Sessions that may have exclusive leases on directories ([`crate::leases`]), and what they have under way by them.

use super::{Session, Sessions};
use crate::leases::Holder;
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How long a session has had no exclusive lease before the store is told so.
const NONE_MS: u64 = 10_000;

/// What is known of one session.
#[derive(Default)]
pub(crate) struct Behind {
    /// Its client gives exclusive leases back when it is asked to.
    said: AtomicBool,
    /// The store is being told whether it may have some.
    noting: AtomicBool,
    /// It may have some, as the store says. Held while some are given.
    noted: RwLock<bool>,
    /// Since when it has none.
    none_since_ms: AtomicU64,
    /// An earlier server may have given it some, and it may have something under way by them.
    unsure: AtomicBool,
    /// Its leases were over when somebody came who would wait for that: nothing more is made by those.
    lapsed: AtomicBool,
    /// How many changes are just being made that its client has answered.
    making: AtomicUsize,
}

/// A change that a client has answered is being made, until this is dropped.
pub(crate) struct Making<'a>(&'a AtomicUsize);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session {
    /// Whether its client gives exclusive leases back when it is asked to: of who keeps no leases that is not believed.
    pub fn says_behind(&self, said: bool) {
        self.behind.said.store(said && self.keeps_leases, Ordering::Release);
    }

    /// The store says that it was given exclusive leases.
    pub fn was_behind(self) -> Self {
        *self.behind.noted.write() = true;
        self.behind.unsure.store(true, Ordering::Release);
        self
    }

    /// It may be given exclusive leases as long as this is held.
    pub fn may_be_behind(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let noted = self.behind.noted.read();
        (*noted && self.behind.said.load(Ordering::Acquire)).then_some(noted)
    }

    /// True for the one who is to note in the store that it may be given some.
    pub fn begins_to_note_behind(&self) -> bool {
        let may = self.behind.said.load(Ordering::Acquire) && !*self.behind.noted.read();
        may && !self.behind.noting.swap(true, Ordering::AcqRel)
    }

    /// True for the one who is to note in the store that it has none, and is given none: that has been so for a while.
    pub fn begins_to_note_none(&self, now_ms: u64) -> bool {
        let none = !self.holder.has_exclusive() && !self.is_unsure();
        let since = self.behind.none_since_ms.load(Ordering::Acquire);
        if !none || since == 0 {
            self.behind.none_since_ms.store(if none { now_ms } else { 0 }, Ordering::Release);
            return false;
        }
        if now_ms < since + NONE_MS || self.behind.noting.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut noted = self.behind.noted.write();
        let ends = *noted && !self.holder.has_exclusive();
        *noted &= !ends;
        self.behind.noting.store(ends, Ordering::Release);
        ends
    }

    /// The store says now whether it may be given some, or could not be told.
    pub fn note_behind(&self, noted: bool) {
        *self.behind.noted.write() = noted;
        self.behind.noting.store(false, Ordering::Release);
    }

    /// True if it may have something under way by what an earlier server has given it.
    pub fn is_unsure(&self) -> bool {
        self.behind.unsure.load(Ordering::Acquire)
    }

    /// A change that its client has answered is about to be made. Before it is looked whether that may be.
    pub fn begins_to_make(&self) -> Making<'_> {
        self.behind.making.fetch_add(1, Ordering::SeqCst);
        Making(&self.behind.making)
    }

    /// True if what its client has answered is made whatever is leased to it now.
    pub fn makes_of_before(&self) -> bool {
        self.is_unsure() && !self.behind.lapsed.load(Ordering::SeqCst)
    }

    /// Nothing more of before is made. False: something just is.
    fn lapse(&self) -> bool {
        self.behind.lapsed.store(true, Ordering::SeqCst);
        self.behind.making.load(Ordering::SeqCst) == 0
    }
}

/// How many sessions are unsure.
#[derive(Default)]
pub(crate) struct Unsure(AtomicUsize);

impl Sessions {
    /// One that is unsure is entered.
    pub(super) fn count_unsure(&self, session: &Session) {
        self.unsure.0.fetch_add(session.is_unsure().into(), Ordering::AcqRel);
    }

    /// Nothing of what an earlier server has given to a session is under way any more, or is to be carried out.
    pub fn is_sure(&self, session: &Session) {
        if session.behind.unsure.swap(false, Ordering::AcqRel) {
            self.unsure.0.fetch_sub(1, Ordering::AcqRel);
            self.told.notify_waiters();
        }
    }

    /// One that is unsure, beside `own`. With those whose leases are over that ends, as soon as nothing of before is being made.
    pub fn unsure(&self, own: u64, now_ms: u64) -> Option<Arc<Holder>> {
        if self.unsure.0.load(Ordering::Acquire) == 0 {
            return None;
        }
        let unsure = self.all().into_iter().filter(|one| one.id != own && one.is_unsure());
        unsure.into_iter().find_map(|one| {
            if one.holder.believes(now_ms) || !one.lapse() {
                return Some(one.holder.clone());
            }
            self.is_sure(&one);
            None
        })
    }
}
