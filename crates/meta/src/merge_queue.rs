//! Changes of names that wait to be carried out together ([`crate::merge`]).

use crate::leases::Keeper;
use crate::session::Session;
use crate::volume::Opening;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use strake_types::{Credentials, Ino, Result};
use strake_wire::message::meta::{Create, Link, MetaAnswer, Rename, Unlink};
use tokio::sync::oneshot;

pub(crate) type Answer = Result<MetaAnswer>;

/// Which changes may go together: those of names in one directory, whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Of the volume.
    pub opening: Opening,
    /// The directory.
    pub dir: Ino,
}

/// A change of names in one directory.
#[derive(Clone)]
pub(crate) enum Change {
    Create(Create),
    Link(Link),
    /// Within the directory.
    Rename(Rename),
    Unlink(Unlink),
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
    /// Its number in the session.
    pub seq: u64,
    /// Mutations up to this number have been answered.
    pub answered: u64,
    /// What is to be done.
    pub op: Change,
    /// Dropped, it goes its own way.
    pub answer: oneshot::Sender<Answer>,
}

/// All that wait.
#[derive(Default)]
pub(crate) struct MergeQueue {
    waiting: Mutex<HashMap<Place, Vec<Waiting>>>,
}

impl MergeQueue {
    /// One more waits. True of the first in its place: somebody is to come for all that wait there then.
    pub fn add(&self, place: Place, waiting: Waiting) -> bool {
        let mut all = self.waiting.lock();
        let here = all.entry(place).or_default();
        here.push(waiting);
        here.len() == 1
    }

    /// True if nobody waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Those that wait in a place, and still want to know.
    pub fn take(&self, place: Place) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().remove(&place).unwrap_or_default();
        waiting.retain(|one| !one.answer.is_closed());
        waiting
    }
}
