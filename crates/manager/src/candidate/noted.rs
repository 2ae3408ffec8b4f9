//! The beats in the store, and whether it has lost some.
//!
//! Their numbers grow. So where a manager finds a lower one than it knows to have been stored, the store has gone back to an earlier
//! state: it was restored from a backup, or a standby that lacked the last commits has taken its place.

use super::Candidate;
use crate::records::{self, Beat, Kind};
use crate::state::stored;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use strake_engine::kv::{Kv, Outcome, Transaction};
use strake_types::{Error, ErrorKind, Result};

/// How often a beat is tried to be stored.
const NOTE_TRIES_MAX: u32 = 5;
/// So many lower beats, one after the other, prove that the store has gone back: one to two seconds of them.
const LOWER_BEATS: u32 = 10;

/// The newest beat that is known to have been stored.
#[derive(Default)]
pub(super) struct Newest {
    number: AtomicU64,
    /// How many beats of another manager in a row were lower ones.
    lower: AtomicU32,
    /// How often another manager was seen to lead that did not know of it.
    times_gone_back: AtomicU64,
}

impl Newest {
    /// A beat is there.
    pub fn note(&self, beat: &Beat) {
        self.number.fetch_max(beat.number, Ordering::Relaxed);
    }

    /// Later ones have greater numbers, so that what is lost is missed once.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    fn is_before(&self, beat: &Beat) -> bool {
        beat.number < self.number()
    }

    /// True if some are lost, and nobody who leads has noted that: the last one that is there is an older one, or says so.
    pub fn is_lost(&self, found: Option<&Beat>) -> bool {
        found.map_or(self.number() > 0, |beat| beat.lost || self.is_before(beat))
    }

    /// Another manager has given a beat that was not seen before. If many in a row are lower, it does not know what was lost, and goes on
    /// as if nothing were. (A few are no proof: a member of etcd that lags behind the others may show them. Or they are the last ones
    /// that are left, and whoever leads next knows.)
    pub fn note_next(&self, beat: &Beat) {
        if !self.is_before(beat) {
            return self.lower.store(0, Ordering::Relaxed);
        }
        if self.lower.fetch_add(1, Ordering::Relaxed) + 1 < LOWER_BEATS {
            return;
        }
        self.lower.store(0, Ordering::Relaxed);
        self.number.store(beat.number, Ordering::Relaxed);
        self.times_gone_back.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "the store has gone back to an earlier state: was it restored from a backup? (strake status)"
        );
    }
}

impl Candidate {
    /// How often this manager has seen that the store had gone back to an earlier state and that whoever led did not know it: the
    /// server is to tell that one.
    pub fn times_gone_back(&self) -> u64 {
        self.inner.newest.times_gone_back.load(Ordering::Relaxed)
    }
}

/// Stores a beat, unless another manager has opened the store. Only beats of the same manager that were given up are in its way.
pub(super) async fn note(kv: &dyn Kv, beat: &Beat) -> Result<()> {
    for _ in 0..NOTE_TRIES_MAX {
        let mut transaction = Transaction::begin(kv).await.map_err(|e| stored(&e))?;
        transaction.put(records::key(Kind::Beat, 0), records::encode(beat));
        match transaction.commit(kv).await.map_err(|e| stored(&e))? {
            Outcome::Committed => return Ok(()),
            Outcome::Conflict | Outcome::Unknown => {}
        }
    }
    Err(Error::with(ErrorKind::Conflict, "a beat was not stored"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(number: u64) -> Beat {
        Beat { number, ..Beat::default() }
    }

    /// Two were enough, and all storage servers of a cluster that was well had to be started anew.
    #[test]
    fn a_member_of_the_store_that_lags_does_not_count_as_a_store_that_has_gone_back() {
        let newest = Newest::default();
        let see = |number| {
            newest.note(&beat(number));
            newest.note_next(&beat(number));
            newest.times_gone_back.load(Ordering::Relaxed)
        };
        assert_eq!(see(100), 0);
        // Whoever is about to lead looks once more, and asks another member.
        newest.note(&beat(120));
        for lag in [101, 110, 130] {
            assert!((lag..lag + 9).all(|number| see(number) == 0), "{lag}");
            assert_eq!(see(200 + lag), 0, "it has caught up");
        }
        assert!((101..110).all(|number| see(number) == 0));
        assert_eq!((see(110), newest.number()), (1, 110));
        assert!((111..400).all(|number| see(number) == 1), "it is told once");
    }
}
