//! Who is reached of those that are heard, and who is given up before it has been silent for a lease.
//!
//! A server whose heartbeats come and at which nobody arrives (a firewall, a wrong address) holds up all that wait for it as a silent
//! one does, but for ever. So the manager looks. One that it has not reached for as long as another may be silent is *unreached*: its
//! heartbeats are refused, and when the lease that it got last is over it is *cut*, which is to be gone as who is silent.

use super::Liveness;
use std::collections::BTreeMap;
use std::time::Duration;

/// So many looks in a row have to show that a server is reached no more, or again: one alone may have been lost, or answered late.
const LOOKS_MIN: u32 = 3;

/// What looks at servers have shown.
#[derive(Default)]
pub(super) struct Looks {
    servers: BTreeMap<u32, Looked>,
    /// The server of this manager: that it does not reach itself is shown, and nothing else.
    own: u32,
}

/// What looks at one server have shown.
#[derive(Default)]
struct Looked {
    /// When the last look began that was answered; what began before says nothing any more.
    answered: Duration,
    unreached: bool,
    /// Why the last look failed that did.
    why: String,
    /// How many looks in a row have shown otherwise by now, and when the first of them began.
    otherwise: u32,
    since: Duration,
    /// When a heartbeat was refused last.
    refused: Option<Duration>,
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
    fn is_doubtful(&self) -> bool {
        self.unreached || self.otherwise > 0
    }
}

impl Looks {
    /// What is under way says nothing: the manager stood still.
    pub fn pass_over(&mut self, now: Duration) {
        for looked in self.servers.values_mut() {
            (looked.answered, looked.otherwise) = (now, 0);
            looked.refused = looked.refused.map(|_| now);
        }
    }

    /// A server has joined, perhaps at another address.
    pub fn begin_anew(&mut self, server: u32, now: Duration) {
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
        looked.note(began, end, now, self.lease)
    }

    /// Nothing is known of those any more that say nothing; `own` is the server of this manager.
    pub fn forget_looks(&mut self, own: u32, now: Duration) {
        let mut looks = std::mem::take(&mut self.looks.servers);
        self.looks.own = own;
        looks.retain(|&id, looked| self.speaks(id, looked.refused, now));
        self.looks.servers = looks;
    }

    /// True if something was heard of a server lately, although it may have been refused.
    pub fn is_heard(&self, server: u32, now: Duration) -> bool {
        let looked = self.looks.servers.get(&server);
        self.speaks(server, looked.and_then(|looked| looked.refused), now)
    }

    fn speaks(&self, server: u32, refused: Option<Duration>, now: Duration) -> bool {
        let lately = |at: Duration| now.saturating_sub(at) <= self.lease;
        let heard = self.servers.get(&server).filter(|heard| !heard.left && heard.spoke);
        heard.is_some_and(|heard| lately(heard.at) || refused.is_some_and(lately))
    }

    /// Why the manager does not reach a server that it hears; empty: it does, or does not know yet.
    pub fn why_unreached(&self, server: u32) -> &str {
        let looked = self.looks.servers.get(&server).filter(|looked| looked.unreached);
        looked.map_or("", |looked| &looked.why)
    }

    /// True if a server counts as unreached: others are reached, so that it is not for the network of the manager.
    fn is_unreached(&self, server: u32, now: Duration) -> bool {
        let looked = self.looks.servers.get(&server);
        server != self.looks.own
            && looked.is_some_and(|looked| looked.unreached)
            && self.reaches_most(now)
    }

    fn reaches_most(&self, now: Duration) -> bool {
        let heard = self.servers.keys().filter(|id| self.is_heard(**id, now)).count();
        let looked = self.looks.servers.iter().filter(|(id, _)| **id != self.looks.own);
        let doubtful = looked.filter(|(id, one)| one.is_doubtful() && self.is_heard(**id, now));
        2 * doubtful.count() < heard
    }

    /// A heartbeat has come. If it is of a server that is unreached it counts for nothing; answers why that one is.
    pub fn refuse(&mut self, server: u32, now: Duration) -> Option<String> {
        if !self.is_unreached(server, now) {
            return None;
        }
        let looked = self.looks.servers.get_mut(&server)?;
        looked.refused = Some(now);
        Some(looked.why.clone())
    }

    /// True for one that is unreached, and was given up for that.
    pub(super) fn is_cut(&self, server: u32, now: Duration) -> bool {
        let given_up = self.servers.get(&server).is_some_and(|heard| heard.given_up);
        given_up && self.is_unreached(server, now)
    }

    /// Gives those up that are unreached, when their leases are over.
    pub fn cut_unreached(&mut self, now: Duration) {
        let unreached = self.looks.servers.iter().filter(|(_, looked)| looked.unreached);
        for server in unreached.map(|(&id, _)| id).collect::<Vec<_>>() {
            if self.is_unreached(server, now) && self.let_go(server, now) {
                strake_base::count_case("heard-and-unreached");
                tracing::warn!(server, "it is heard, and cannot be reached: it counts as silent");
            }
        }
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

    fn let_go(&mut self, server: u32, now: Duration) -> bool {
        let Some(heard) = self.servers.get_mut(&server) else { return false };
        if !heard.is_over(now) || std::mem::replace(&mut heard.given_up, true) {
            return false;
        }
        // Whoever goes on without it has lived longer.
        self.denied = self.denied.max(heard.lease_end.min(now));
        true
    }
}
