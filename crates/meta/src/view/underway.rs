//! A commit that is under way.
//!
//! What a store was asked for may come to pass although nobody waits for it any more: a database has it in hand, or is about
//! to get it. So a commit goes on to its end without its caller, and until it is known how it ended others see that it is
//! under way: nothing of what it changes is cached or leased, it stays locked, and who counts the volume waits.

use super::effects::Effects;
use crate::cache::Commit;
use crate::keys;
use crate::leases::Changing as Recalled;
use crate::ledger::Running;
use crate::locks::inodes::Held;
use crate::places::Places;
use crate::session::Session;
use crate::stored::store_error;
use crate::volume::Volume;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_base::task;
use strake_engine::kv::{KvError, Outcome, Transaction};
use strake_types::{Error, ErrorKind, Result};
use tokio::sync::OwnedRwLockReadGuard;

/// A request whose reply is stored with what it changes.
pub(super) struct Numbered {
    pub session: Arc<Session>,
    pub seq: u64,
    /// A repeat of it waits.
    pub _running: Running,
    /// Numbers whose replies are deleted with that.
    pub forgotten: Vec<u64>,
}

/// What others are kept from until the commit has ended.
pub(super) struct Kept {
    /// In the caches.
    pub places: Places,
    /// What nobody believes any more.
    pub _recalled: Recalled,
    /// The locks of the operation.
    pub held: Held,
    /// To count the volume, if the commit makes it hold more or less.
    pub counting: Option<OwnedRwLockReadGuard<()>>,
}

/// How it ended.
pub(super) struct Ended {
    /// True if it got through; an error if nobody knows, or the store refused it.
    pub committed: Result<bool>,
    /// It did not, and never will.
    pub is_never: bool,
}

/// A commit, until its caller goes on after it, or it has ended without him.
pub(super) struct Underway {
    pub volume: Arc<Volume>,
    pub asked: Vec<Numbered>,
    /// A key and the value that only this commit gives it.
    pub witness: Option<(Vec<u8>, Option<Bytes>)>,
    /// Inodes and bytes that the volume has more afterwards.
    pub delta: (i64, i64),
    /// What comes of it in memory.
    pub effects: Effects,
    pub kept: Kept,
    /// The caller has put into the caches what is so now.
    pub is_put: bool,
}

impl Underway {
    /// Commits. Others see that until what is given back is dropped.
    pub async fn commit(self, kv: Transaction) -> (Self, Ended) {
        self.kept.places.forget(Commit::Begins);
        self.kept.places.core.under_way.fetch_add(1, Ordering::SeqCst);
        let commit = async move {
            let ended = self.carry_out(kv).await;
            self.note(&ended).await;
            (self, ended)
        };
        task::to_the_end(commit).await
    }

    /// The locks, for the caller to go on with.
    pub fn take_locks(&mut self) -> Held {
        std::mem::take(&mut self.kept.held)
    }

    async fn carry_out(&self, kv: Transaction) -> Ended {
        match kv.commit(&*self.volume.kv).await {
            Ok(Outcome::Committed) => Ended { committed: Ok(true), is_never: false },
            Ok(Outcome::Conflict) => Ended { committed: Ok(false), is_never: true },
            Ok(Outcome::Unknown) => {
                let committed = self.settle().await;
                if committed.is_err() {
                    self.doubt();
                }
                Ended { committed, is_never: false }
            }
            Err(error) => {
                // Whoever lends could not write that down.
                let is_never = matches!(error, KvError::Full { .. });
                Ended { committed: Err(store_error(error)), is_never }
            }
        }
    }

    /// After a commit whose answer was lost: looks whether the witness is there.
    async fn settle(&self) -> Result<bool> {
        let Some((key, value)) = &self.witness else {
            return Err(Error::with(ErrorKind::Io, "the store lost the answer to a commit"));
        };
        let snapshot = self.volume.kv.snapshot().await.map_err(store_error)?;
        Ok(snapshot.get(key).await.map_err(store_error)? == *value)
    }

    /// Nobody knows what has become of it.
    fn doubt(&self) {
        self.asked.iter().for_each(|one| one.session.ledger.doubt(one.seq));
        if self.kept.counting.is_some() {
            self.kept.places.core.doubt_counts(&self.volume);
        }
    }

    /// What is remembered of it, whoever waits for it.
    async fn note(&self, ended: &Ended) {
        let got_through = matches!(ended.committed, Ok(true));
        if got_through {
            self.volume.counts.add(self.delta.0, self.delta.1);
            self.effects.bring_about(&self.kept.places.core, &self.volume);
        }
        for Numbered { session, seq, forgotten, .. } in &self.asked {
            match got_through {
                true => session.ledger.stored(*seq),
                false => session.ledger.keep(forgotten),
            }
        }
        if got_through {
            self.forget_nobodys().await;
        }
    }

    /// A session that has ended since its request began has no replies any more: this one came after they were deleted.
    async fn forget_nobodys(&self) {
        let volume = &self.volume;
        let nobodys = self.asked.iter().filter(|one| one.session.has_ended());
        let nobodys = nobodys.map(|one| (keys::result(volume.id, one.session.id, one.seq), None));
        let nobodys: Vec<_> = nobodys.collect();
        if !nobodys.is_empty()
            && let Err(error) = volume.write(nobodys).await
        {
            tracing::warn!(
                "volume {}: a reply to a session that is over stays: {error}",
                volume.id
            );
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if !self.is_put {
            self.kept.places.forget(Commit::Ended);
        }
        self.kept.places.core.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
