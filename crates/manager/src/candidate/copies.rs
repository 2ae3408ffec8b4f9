//! Another process that leads with the number of this server: one of the two has a copy of the other's data directory.
//!
//! The two cannot ask each other. In each of them that number stands for itself.

use super::{Candidate, Inner, Seat};
use crate::beats::lead_of;
use crate::join;
use crate::records::Beat;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_types::Error;

impl Candidate {
    /// Waits until another process has led with the number of this server since this one did; what is to be said of that.
    pub async fn overtaken(&self) -> &Error {
        self.inner.overtaken.wait().await
    }

    /// Why its server finds nobody who leads: another process with the number of that does. `None`: it is not so.
    pub fn alive_elsewhere(&self) -> Option<Error> {
        let Seat::Follows(leader) = self.inner.seat() else { return None };
        let is_elsewhere = self.inner.is_elsewhere(leader.server, &leader.address);
        is_elsewhere.then(|| join::alive_at(leader.server, &leader.address))
    }
}

impl Inner {
    /// True for another process with the number of this server.
    fn is_elsewhere(&self, server: u32, address: &str) -> bool {
        server != 0 && server == self.number() && address != self.address
    }

    /// How long there has to be no other beat after this one before this manager takes the lead. A process with the number of its
    /// server would have to end then: while leases of servers last, that one may be well, and only its store away.
    pub(super) fn waits_for(&self, beat: &Beat) -> Duration {
        let lease = Duration::from_millis(self.options.lease_ms);
        match self.is_elsewhere(beat.server, &beat.address) {
            true => lead_of(beat).max(lease),
            false => lead_of(beat),
        }
    }

    /// True for a beat that another process has given with this server's number: after this one has led, no earlier process did. The
    /// own numbers may be far ahead, by beats that could not be stored; then what shows it is that there are more from elsewhere.
    pub(super) fn is_of_copy(&self, beat: &Beat, before: Option<&Beat>) -> bool {
        let own = self.last_number.load(Ordering::Relaxed);
        if own == 0 || beat.server == 0 || beat.server != self.number() {
            return false;
        }
        let is_elsewhere = self.is_elsewhere(beat.server, &beat.address);
        let follows = |before: &Beat| {
            (before.server, &before.address) == (beat.server, &beat.address) && before != beat
        };
        beat.number > own || is_elsewhere && before.is_some_and(follows)
    }

    /// Such a beat has come.
    pub(super) fn note_overtaken(&self, beat: &Beat) {
        let Beat { server, address, .. } = beat;
        if self.overtaken.set(join::overtaken(*server, address)).is_ok() {
            tracing::error!(server, %address, "another process leads with the number of this server");
        }
    }
}
