//! What readers and writer of one part share.

use super::super::KvError;
use super::super::horizon::Horizon;
use super::cluster::Cluster;
use super::keys::Keys;
use super::messages::KeyValue;
use super::records::{self, ClaimRecord};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// That a part is ours.
pub struct Claim {
    /// The key that says so, for as long as `revision` is the one that wrote it last.
    pub key: Bytes,
    pub revision: i64,
    /// What it says, with a number of this very opening: after a restore another may get the same revision.
    pub record: Bytes,
    /// Where the number of our last commit is.
    pub receipt: Bytes,
    /// The revision that wrote the receipt last.
    pub receipt_revision: i64,
}

/// Shared by all tasks of one part.
pub struct Hub {
    pub cluster: Arc<Cluster>,
    pub keys: Keys,
    pub claim: Claim,
    /// Which revisions of ours somebody still looks at.
    pub horizon: Horizon,
    /// There may be a commit of which it is not known whether it happened.
    pub in_doubt: AtomicBool,
    /// The newest revision that was met.
    met: AtomicI64,
    /// How often etcd had gone back to an earlier state before the part was opened.
    gone_back_before: u64,
    full: AtomicBool,
    taken_over: AtomicBool,
}

impl Hub {
    pub fn new(cluster: Arc<Cluster>, keys: Keys, claim: Claim, gone_back_before: u64) -> Self {
        let (horizon, in_doubt, full, taken_over) = Default::default();
        let met = AtomicI64::new(claim.revision);
        let hub = Self {
            cluster,
            keys,
            claim,
            horizon,
            in_doubt,
            met,
            gone_back_before,
            full,
            taken_over,
        };
        hub.horizon.advance(version(hub.claim.revision));
        hub
    }

    /// Fails unless what was found is our claim.
    pub fn check_claim(&self, found: Option<&KeyValue>) -> Result<(), KvError> {
        let Some(found) = found else {
            return Err(self.changed("the key that says that this server writes it is gone"));
        };
        if found.mod_revision == self.claim.revision && found.value == self.claim.record {
            return Ok(());
        }
        let store = self.cluster.shown().to_owned();
        let record: ClaimRecord = records::read(&store, &found.key, &found.value)?;
        self.taken_over.store(true, Ordering::Relaxed);
        Err(KvError::TakenOver { store, by: record.host })
    }

    /// Something is there that nobody has written who goes by our rules. What is known of the map here is of a history that is
    /// gone, so the part has to be opened anew, as if another had taken it over.
    pub fn changed(&self, cause: &str) -> KvError {
        let error = KvError::Refused {
            store: self.cluster.shown().to_owned(),
            cause: format!("{cause}; was etcd restored from a backup, or changed by hand?"),
            next: "what was written last may be lost; the server goes on with what is there".into(),
        };
        self.cluster.gone_back.note(self.gone_back_before, &error);
        error
    }

    fn gone_back(&self) -> KvError {
        self.changed("it has gone back to an earlier state")
    }

    /// True once any part has met that, or something that nobody has written who goes by our rules.
    fn has_gone_back(&self) -> bool {
        self.cluster.gone_back.times() != self.gone_back_before
    }

    /// The newest revision so far. Whatever sees all acknowledged changes, and is asked from now on, is not answered by
    /// an older one.
    pub fn met(&self) -> i64 {
        self.met.load(Ordering::SeqCst)
    }

    /// Notes the revision of a change, or of one that was refused, where `least` is the oldest that it can be: most members
    /// have agreed upon it. One that is older stops us for good.
    pub fn meet(&self, revision: i64, least: i64) -> Result<(), KvError> {
        if revision < least {
            return Err(self.gone_back());
        }
        self.met.fetch_max(revision, Ordering::SeqCst);
        self.check_history()
    }

    /// The same of a read. One that is older proves nothing: a member that has stood still has answered like that.
    pub fn meet_read(&self, revision: i64, least: i64) -> Result<(), KvError> {
        self.check_history()?;
        if revision < least {
            return Err(self.cluster.unreachable("a member has answered with an earlier state"));
        }
        self.met.fetch_max(revision, Ordering::SeqCst);
        Ok(())
    }

    /// Fails once etcd has gone back to an earlier state.
    pub fn check_history(&self) -> Result<(), KvError> {
        match self.has_gone_back() {
            true => Err(self.gone_back()),
            false => Ok(()),
        }
    }

    /// True if the part has to be opened anew before it is read or written again.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed) || self.has_gone_back()
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub fn note_full(&self, full: bool) {
        if self.full.swap(full, Ordering::Relaxed) != full {
            let store = self.cluster.shown();
            match full {
                true => tracing::warn!("{store} is full: {}", super::failure::MAKE_ROOM),
                false => tracing::info!("{store} takes changes again"),
            }
        }
    }
}

/// A revision, as what tells older from newer writes: it is never negative.
pub fn version(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}
