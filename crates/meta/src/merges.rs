//! Creates that wait to be carried out together ([`crate::merge`]).

use crate::leases::Keeper;
use crate::session::Session;
use crate::volume::Opening;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use strake_types::{Credentials, Ino, Result, Timestamp};
use strake_wire::message::meta::{Create, MetaAnswer};
use tokio::sync::oneshot;

/// Most creates in a transaction.
const CREATES_MAX: usize = 256;

pub(crate) type Answer = Result<MetaAnswer>;

/// Which creates may go together: those in one directory, whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Of the volume.
    pub opening: Opening,
    /// The directory.
    pub dir: Ino,
}

/// One that waits.
pub(crate) struct Waiting {
    /// The client's session.
    pub session: Arc<Session>,
    /// Its incarnation.
    pub incarnation: u64,
    /// As whom it is given leases, if it keeps any.
    pub keeper: Option<Keeper>,
    /// Who asks.
    pub cred: Credentials,
    /// The time to stamp.
    pub now: Timestamp,
    /// Its number in the session.
    pub seq: u64,
    /// Mutations up to this number have been answered.
    pub answered: u64,
    /// What is to be made.
    pub op: Create,
    /// Dropped, it goes its own way.
    pub answer: oneshot::Sender<Answer>,
}

/// All that wait.
#[derive(Default)]
pub(crate) struct Merges {
    waiting: Mutex<HashMap<Place, Vec<Waiting>>>,
}

impl Merges {
    /// One more waits.
    pub fn add(&self, place: Place, waiting: Waiting) {
        self.waiting.lock().entry(place).or_default().push(waiting);
    }

    /// For who waits there: when this ends, what nobody wants to know any more goes.
    pub fn leaves(&self, place: Place) -> Leaves<'_> {
        Leaves { all: self, place }
    }

    /// True if nobody waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// The first of those that wait, and still want to know.
    pub fn take(&self, place: Place) -> Vec<Waiting> {
        let mut all = self.waiting.lock();
        let Some(waiting) = all.get_mut(&place) else { return Vec::new() };
        waiting.retain(|one| !one.answer.is_closed());
        let later = waiting.split_off(waiting.len().min(CREATES_MAX));
        let first = std::mem::replace(waiting, later);
        if waiting.is_empty() {
            all.remove(&place);
        }
        first
    }
}

/// See [`Merges::leaves`].
pub(crate) struct Leaves<'a> {
    all: &'a Merges,
    place: Place,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut all = self.all.waiting.lock();
        let Some(waiting) = all.get_mut(&self.place) else { return };
        waiting.retain(|one| !one.answer.is_closed());
        if waiting.is_empty() {
            all.remove(&self.place);
        }
    }
}
