//! What this mount has claimed of a file that others have open as well: what it writes there it may hold back, as that of
//! a file that it has alone. Until the metadata server calls the claims back, all at once ([`super::shared`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use strake_types::{Error, ErrorKind};

/// How often a change asks for a claim: each time something may come between.
pub(super) const CLAIMS_MAX: usize = 32;

/// Something always does.
pub(super) fn no_claim() -> Error {
    Error::with(ErrorKind::TimedOut, "others claim parts of the file all the time")
}

/// The claims on a file.
#[derive(Default)]
pub(crate) struct Claims {
    /// Where each begins and ends. None touch.
    ranges: BTreeMap<u64, u64>,
    /// Until then nobody has claimed anything: all write through.
    through_until: Duration,
    /// How often all were given up: what was asked for before that is not believed.
    turn: u64,
}

impl Claims {
    /// True if all of a range is claimed.
    pub(crate) fn cover(&self, range: &Range<u64>) -> bool {
        self.before(range.start).is_some_and(|(_, end)| end >= range.end)
    }

    /// True if what is written now may be written without a claim, if it is told before it is answered.
    pub(crate) fn let_through(&self, now: Duration) -> bool {
        now < self.through_until
    }

    /// How often claims were given up.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// A range was granted.
    pub(crate) fn granted(&mut self, range: Range<u64>) {
        let (mut first, mut last) = (range.start, range.end);
        while let Some((start, end)) = self.before(last).filter(|(_, end)| *end >= first) {
            self.ranges.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.ranges.insert(first, last);
    }

    /// Nobody has claimed anything until then.
    pub(crate) fn refused(&mut self, until: Duration) {
        self.through_until = self.through_until.max(until);
    }

    /// All are given up.
    pub(crate) fn give_up(&mut self) {
        self.ranges.clear();
        self.turn += 1;
    }

    /// The metadata server knows nothing of them any more, nor of what it has said.
    pub(crate) fn forget(&mut self) {
        self.give_up();
        self.through_until = Duration::ZERO;
    }

    /// The range that begins last of those that begin here or before.
    fn before(&self, at: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=at).next_back().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_is_covered_until_it_is_given_up() {
        let mut claims = Claims::default();
        assert!(!claims.cover(&(0..1)));
        claims.granted(0..10);
        claims.granted(20..30);
        assert!(claims.cover(&(0..10)) && claims.cover(&(25..30)));
        assert!(!claims.cover(&(5..11)) && !claims.cover(&(15..25)) && !claims.cover(&(10..11)));
        claims.granted(10..20);
        assert_eq!(claims.ranges, BTreeMap::from([(0, 30)]));
        claims.granted(5..8);
        claims.granted(50..60);
        claims.granted(40..70);
        assert_eq!(claims.ranges, BTreeMap::from([(0, 30), (40, 70)]));
        let turn = claims.turn();
        claims.give_up();
        assert!(!claims.cover(&(0..1)) && claims.turn() != turn);
    }

    #[test]
    fn what_a_server_has_said_ends_with_what_it_knows() {
        let mut claims = Claims::default();
        claims.refused(Duration::from_secs(5));
        claims.refused(Duration::from_secs(3));
        claims.give_up();
        assert!(claims.let_through(Duration::from_secs(4)));
        assert!(!claims.let_through(Duration::from_secs(5)));
        claims.forget();
        assert!(!claims.let_through(Duration::from_secs(4)));
    }
}
