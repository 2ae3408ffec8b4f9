//! Who asks to join, and since when.

use super::Liveness;
use std::time::Duration;

/// A server that asks to join.
#[derive(Clone, Copy)]
pub(super) struct Knock {
    pub first: Duration,
    pub last: Duration,
}

impl Liveness {
    /// A server asks to join; answers since when it does. One that stops asking begins anew, and so does one that was heard
    /// from since it asked last: that was an earlier life of it, or it asked in a late copy of a Join that was answered.
    pub fn knock(&mut self, server: u32, address: &str, now: Duration) -> Duration {
        let lease = self.lease;
        let heard = self.servers.get(&server).filter(|heard| heard.spoke).map(|heard| heard.at);
        self.knocks.retain(|_, knock| now.saturating_sub(knock.last) <= lease);
        let knock = Knock { first: now, last: now };
        let knock = self.knocks.entry((server, address.to_owned())).or_insert(knock);
        if heard.is_some_and(|at| at > knock.last) {
            knock.first = now;
        }
        knock.last = now;
        knock.first
    }

    /// From where another process asks to join under the number of a server that is up at this address; empty: none does.
    pub fn rival(&self, server: u32, address: &str, now: Duration) -> &str {
        if !self.is_up(server, now) {
            return "";
        }
        let lately = |knock: &Knock| now.saturating_sub(knock.last) <= self.lease;
        let others = self.knocks.iter().filter(|((id, from), knock)| {
            *id == server && from.as_str() != address && lately(knock)
        });
        others.map(|((_, from), _)| from.as_str()).min().unwrap_or_default()
    }

    /// It need not ask any more.
    pub fn let_in(&mut self, server: u32, address: &str) {
        self.knocks.remove(&(server, address.to_owned()));
    }
}
