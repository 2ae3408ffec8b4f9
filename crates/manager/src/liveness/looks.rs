//! Who is reached of those that are heard, and who is given up before it has been silent for a lease.
//!
//! A server whose heartbeats come and at which nobody arrives (a firewall, a wrong address) holds up all that wait for it as a silent
//! one does, but for ever. So the manager looks. One that it has not reached for as long as another may be silent is *unreached*,
//! which is told; [`super::refusals`] decides what else follows.

use super::{Liveness, Pause};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many looks in a row have to show that a server is reached no more, or again: one alone may have been lost, or answered late.
const LOOKS_MIN: u32 = 3;

/// What looks at servers have shown.
#[derive(Default)]
pub(super) struct Looks {
    pub servers: BTreeMap<u32, Looked>,
    /// Those whose heartbeats are refused.
    pub refused: BTreeSet<u32>,
}

/// What looks at one server have shown.
#[derive(Default)]
pub(super) struct Looked {
    /// When the last look began that was answered; what began before says nothing any more.
    answered: Duration,
    pub unreached: bool,
    /// Why the last look failed that did.
    pub why: String,
    /// How many looks in a row have shown otherwise by now, and when the first of them began.
    otherwise: u32,
    since: Duration,
    /// When a heartbeat was refused last.
    pub refused_at: Option<Duration>,
    /// How long it is not refused again, if it was.
    pub pause: Option<Pause>,
}

impl Looked {
    /// A look has come to this end. True if the server counts as reached no more, or again.
    fn note(
        &mut self,
        began: Duration,
        end: Result<(), String>,
        now: Duration,
        patience: Duration,
    ) -> bool {
        let failed = end.is_err();
        match end {
            Err(_) if began < self.answered => return false,
            Err(why) => self.why = why,
            Ok(()) => self.answered = self.answered.max(began),
        }
        if failed == self.unreached {
            self.otherwise = 0;
            return false;
        }
        if self.otherwise == 0 {
            self.since = began;
        }
        self.otherwise += 1;
        let lasts = now.saturating_sub(self.since) >= patience;
        if !lasts || self.otherwise < LOOKS_MIN {
            return false;
        }
        (self.unreached, self.otherwise) = (failed, 0);
        true
    }

    /// True if the last look has failed, or too few have not yet.
    pub fn is_doubtful(&self) -> bool {
        self.unreached || self.otherwise > 0
    }
}

impl Looks {
    /// What is under way says nothing: the manager stood still.
    pub fn pass_over(&mut self, now: Duration) {
        for looked in self.servers.values_mut() {
            (looked.answered, looked.otherwise) = (now, 0);
            looked.refused_at = looked.refused_at.map(|_| now);
        }
    }

    /// A server has joined, perhaps at another address.
    pub fn begin_anew(&mut self, server: u32, now: Duration) {
        self.refused.remove(&server);
        self.servers.insert(server, Looked { answered: now, ..Looked::default() });
    }
}

impl Liveness {
    /// A look that began then at a server has come to this end. True if the server counts as reached no more, or again.
    pub fn note_look(
        &mut self,
        server: u32,
        began: Duration,
        end: Result<(), String>,
        now: Duration,
    ) -> bool {
        let looked = self.looks.servers.entry(server).or_default();
        let changed = looked.note(began, end, now, self.lease);
        if !looked.unreached {
            self.end_refusal(server, now);
        }
        changed
    }

    /// Nothing is known of those any more that say nothing, nor of the server of this manager, at which it does not look.
    pub fn forget_looks(&mut self, own: u32, now: Duration) {
        let is_over = |id: &u32| *id == own || !self.is_heard(*id, now);
        let over: Vec<u32> = self.looks.servers.keys().copied().filter(is_over).collect();
        for id in over {
            self.looks.servers.remove(&id);
        }
    }

    /// True if something was heard of a server lately, although it may have been refused.
    pub fn is_heard(&self, server: u32, now: Duration) -> bool {
        let lately = |at: Duration| now.saturating_sub(at) <= self.lease;
        let heard = self.servers.get(&server).filter(|heard| !heard.left && heard.spoke);
        heard.is_some_and(|heard| lately(heard.at) || self.refused_at(server).is_some_and(lately))
    }

    /// True if the manager hears a server and does not reach it, as far as it knows by now.
    pub(super) fn is_unreached(&self, server: u32) -> bool {
        self.looks.servers.get(&server).is_some_and(|looked| looked.unreached)
    }

    /// The same, or the last look at it has failed.
    pub(super) fn is_doubtful(&self, server: u32) -> bool {
        self.looks.servers.get(&server).is_some_and(Looked::is_doubtful)
    }

    /// When a heartbeat of a server was refused last.
    pub(super) fn refused_at(&self, server: u32) -> Option<Duration> {
        self.looks.servers.get(&server)?.refused_at
    }

    /// Why the manager does not reach a server that it hears; empty: it does, or does not know yet.
    pub fn why_unreached(&self, server: u32) -> &str {
        let looked = self.looks.servers.get(&server).filter(|looked| looked.unreached);
        looked.map_or("", |looked| &looked.why)
    }

    /// A server, `by`, says that somebody waits for another one: if the lease of that one is over, it is given up until
    /// it is heard again. True if it was not yet.
    pub fn give_up(&mut self, server: u32, by: u32, now: Duration) -> bool {
        let is_new = self.let_go(server, now);
        if is_new {
            tracing::warn!(server, by, "others wait for it, and it says nothing");
        }
        is_new
    }

    /// Gives a server up if its lease is over, until it is heard again. True if it was not yet.
    pub(super) fn let_go(&mut self, server: u32, now: Duration) -> bool {
        let Some(heard) = self.servers.get_mut(&server) else { return false };
        if !heard.is_over(now) || std::mem::replace(&mut heard.given_up, true) {
            return false;
        }
        // Whoever goes on without it has lived longer.
        self.denied = self.denied.max(heard.lease_end.min(now));
        true
    }
}
