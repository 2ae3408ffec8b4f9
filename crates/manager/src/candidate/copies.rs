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
use strake_wire::message::manager::Leader;

impl Candidate {
    /// Waits until another process has led with the number of this server since this one did; what is to be said of that.
    pub async fn overtaken(&self) -> &Error {
        self.inner.overtaken.wait().await
    }

    /// Why its server finds nobody who leads: another process with the number of that does. `None`: it is not so, as where what it
    /// finds is the last beat of before it has moved.
    pub fn alive_elsewhere(&self) -> Option<Error> {
        let inner = &self.inner;
        let Seat::Follows(Leader { server, address, .. }) = inner.seat() else { return None };
        let is_heard = inner.heard_elsewhere.load(Ordering::Relaxed);
        // Where the store is of no use, that is why.
        let is_why = is_heard && inner.cut_off.lock().is_empty();
        (is_why && inner.is_elsewhere(server, &address)).then(|| join::alive_at(server, &address))
    }
}

impl Inner {
    /// True for another process with the number of this server.
    fn is_elsewhere(&self, server: u32, address: &str) -> bool {
        server != 0 && server == self.number() && address != self.address
    }

    /// True for a beat of this process, or of an earlier one at the same address.
    pub(super) fn is_own(&self, beat: &Beat) -> bool {
        beat.server == self.number() && beat.address == self.address
    }

    /// True if another process with the number of this server may lead by this beat or after it: that one has joined elsewhere, and
    /// this one has not since (`has_moved`). If this one led, that one would have to end. One that ran and has stopped may be about
    /// to be started again.
    pub(super) fn leaves_to_others(&self, beat: &Beat, has_moved: bool) -> bool {
        let was_heard = self.heard_elsewhere.load(Ordering::Relaxed);
        match beat.server == self.number() {
            true => self.is_elsewhere(beat.server, &beat.address) && (!beat.ended || was_heard),
            false => has_moved && beat.server != 0,
        }
    }

    /// How long there has to be no other beat after this one before this manager takes the lead. While leases of servers last, another
    /// process with the number of its server may be well, and only its store away.
    pub(super) fn waits_for(&self, beat: &Beat, has_moved: bool) -> Duration {
        let lease = Duration::from_millis(self.options.lease_ms);
        match self.leaves_to_others(beat, has_moved) {
            true => lead_of(beat).max(lease),
            false => lead_of(beat),
        }
    }

    /// True for a beat after another one of a process elsewhere with the number of this server: that one runs.
    pub(super) fn runs_elsewhere(&self, beat: &Beat, before: Option<&Beat>) -> bool {
        let follows = |before: &Beat| {
            (before.server, &before.address) == (beat.server, &beat.address) && before != beat
        };
        self.is_elsewhere(beat.server, &beat.address) && before.is_some_and(follows)
    }

    /// True for a beat that another process has given with this server's number: after this one has led or joined, no earlier process
    /// did. The own numbers may be far ahead, by beats that could not be stored; then what shows it is that there are more from
    /// elsewhere.
    pub(super) fn is_of_copy(&self, beat: &Beat, before: Option<&Beat>) -> bool {
        if beat.server == 0 || beat.server != self.number() {
            return false;
        }
        let own = self.last_number.load(Ordering::Relaxed);
        let (has_led, has_joined) = (own != 0, self.joined.load(Ordering::Relaxed));
        has_led && beat.number > own || (has_led || has_joined) && self.runs_elsewhere(beat, before)
    }

    /// Such a beat has come.
    pub(super) fn note_overtaken(&self, beat: &Beat) {
        let Beat { server, address, .. } = beat;
        if self.overtaken.set(join::overtaken(*server, address)).is_ok() {
            tracing::error!(server, %address, "another process leads with the number of this server");
        }
    }
}
