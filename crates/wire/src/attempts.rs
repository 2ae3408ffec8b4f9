//! Numbers under which servers know what they are asked to change, so that what is sent twice is
//! done once.
//!
//! A number is taken when a change begins and given back when it is over, with whatever result. Below
//! the smallest that is still open nothing will be sent again: servers may forget what they remember
//! of those, and refuse a late duplicate of one.

use crate::message::storage::Attempt;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use strake_base::random::SystemRandom;
use strake_types::{Error, ErrorKind, Result};

/// Ascending numbers from 1.
pub struct Numbers {
    next: u64,
    /// Taken and not given back.
    open: BTreeSet<u64>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next: 1, open: BTreeSet::new() }
    }
}

impl Numbers {
    /// Takes a number; [`Numbers::end`] must follow.
    pub fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number);
        number
    }

    /// Gives one back.
    pub fn end(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// The smallest that is open, or will be taken next.
    pub fn oldest(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

/// The numbers of one client's changes on targets. A metadata server is one, too.
pub struct Attempts {
    client: u64,
    numbers: Mutex<Numbers>,
}

impl Attempts {
    /// Of a client that nobody has heard of.
    pub fn new() -> Result<Self> {
        let client = SystemRandom
            .number()
            .map_err(|e| Error::with(ErrorKind::Io, format!("the system's random numbers: {e}")))?;
        Ok(Self { client, numbers: Mutex::default() })
    }

    /// The client.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// A number for a change, given back when it is dropped.
    pub fn begin(&self) -> OpenAttempt<'_> {
        OpenAttempt { attempts: self, seq: self.numbers.lock().begin() }
    }
}

/// The number of a change that is under way.
pub struct OpenAttempt<'a> {
    attempts: &'a Attempts,
    seq: u64,
}

impl OpenAttempt<'_> {
    /// What goes with the change when it is sent now.
    pub fn stamp(&self) -> Attempt {
        let settled = self.attempts.numbers.lock().oldest();
        Attempt { client: self.attempts.client, seq: self.seq, settled }
    }
}

impl Drop for OpenAttempt<'_> {
    fn drop(&mut self) {
        self.attempts.numbers.lock().end(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_follows_the_oldest_open_number() {
        let attempts = Attempts::new().unwrap();
        let (first, second, third) = (attempts.begin(), attempts.begin(), attempts.begin());
        let stamp = |seq, settled| Attempt { client: attempts.client, seq, settled };
        assert_eq!([first.stamp(), third.stamp()], [stamp(1, 1), stamp(3, 1)]);
        drop(second);
        assert_eq!(third.stamp(), stamp(3, 1), "the first is open still");
        drop(first);
        assert_eq!(third.stamp(), stamp(3, 3));
        let fourth = attempts.begin();
        drop(third);
        assert_eq!(fourth.stamp(), stamp(4, 4));
    }

    #[test]
    fn clients_differ() {
        let client = || Attempts::new().unwrap().client;
        assert_ne!(client(), client());
    }
}
