//! What this mount has claimed of a file that others have open as well: what it writes there it may hold back, as that of
//! a file that it has alone. Until the metadata server calls the claims back, all at once ([`super::shared`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use strake_types::{Error, ErrorKind};

/// What is claimed begins and ends at multiples of this.
const UNIT: u64 = 1 << 20;
/// Who writes on and on claims as much again as he has written, up to this.
const AHEAD_MAX: u64 = 32 << 20;

/// How often a change asks for a claim: each time something may come between.
pub(super) const CLAIMS_MAX: usize = 32;

/// Something always does.
pub(super) fn no_claim() -> Error {
    Error::with(ErrorKind::TimedOut, "others claim parts of the file all the time")
}

/// Where a handle writes: runs, one after the other, that it writes from their begin on. Who writes records by turns with others
/// is to claim his record, and not the begin of the next one, which is somebody else's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Runs {
    /// Where the run begins that is being written,
    start: u64,
    /// and how far it has come.
    end: u64,
    /// How long the last two before it were: a header may lie between records.
    before: [u64; 2],
}

impl Runs {
    /// With one more write. One that begins near the run goes on with it: several may be under way at once.
    fn with(self, range: &Range<u64>) -> Self {
        let is_first = self.end == self.start;
        let goes_on = range.start < self.end.saturating_add(UNIT)
            && self.start < range.end.saturating_add(UNIT);
        match goes_on {
            _ if is_first => Self { start: range.start, end: range.end, ..self },
            true => {
                let (start, end) = (self.start.min(range.start), self.end.max(range.end));
                Self { start, end, ..self }
            }
            false => {
                let before = [self.end - self.start, self.before[0]];
                Self { start: range.start, end: range.end, before }
            }
        }
    }

    /// A range was written.
    pub(crate) fn note(&mut self, range: &Range<u64>) {
        *self = self.with(range);
    }

    /// What to ask for before a range is written: to the end of a run that is as long as one of the last, and of one that is
    /// longer as much again as it is longer.
    pub(crate) fn wish(&self, range: &Range<u64>) -> Wish {
        let start = range.start / UNIT * UNIT;
        let end = range.end.checked_next_multiple_of(UNIT).unwrap_or(range.end);
        let run = self.with(range);
        let len = run.end - run.start;
        let as_long = run.before.into_iter().filter(|before| *before >= len).min();
        let wanted = match as_long {
            Some(before) => run.start.saturating_add(before),
            None => {
                let written = len.saturating_sub(range.end - range.start);
                let longest = run.before.into_iter().max().unwrap_or(0);
                end.saturating_add(written.saturating_sub(longest))
            }
        };
        let wanted = wanted / UNIT * UNIT;
        Wish { start, end, wanted_end: wanted.clamp(end, end.saturating_add(AHEAD_MAX)) }
    }
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

/// What of a file is to be claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) start: u64,
    /// So far it is needed,
    pub(crate) end: u64,
    /// and so far it may be of use.
    pub(crate) wanted_end: u64,
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

    const MIB: u64 = 1 << 20;

    fn wish(start: u64, end: u64, wanted_end: u64) -> Wish {
        Wish { start: start * MIB, end: end * MIB, wanted_end: wanted_end * MIB }
    }

    /// Writes a range in parts. Whatever is claimed is granted: up to where that is, and how often it was asked for.
    fn write(runs: &mut Runs, range: Range<u64>, part: usize) -> (u64, usize) {
        let (mut claimed, mut asked) = (range.start, 0);
        for at in range.clone().step_by(part) {
            let part = at..range.end.min(at + part as u64);
            if part.end > claimed {
                (claimed, asked) = (runs.wish(&part).wanted_end, asked + 1);
            }
            runs.note(&part);
        }
        (claimed, asked)
    }

    #[test]
    fn who_writes_on_and_on_asks_for_twice_as_much_each_time() {
        let mut runs = Runs::default();
        assert_eq!(runs.wish(&(3 * MIB + 5..3 * MIB + 6)), wish(3, 4, 4));
        runs.note(&(3 * MIB..4 * MIB));
        assert_eq!(runs.wish(&(4 * MIB..4 * MIB + 1)), wish(4, 5, 6));
        assert_eq!(runs.wish(&(9 * MIB - 1..9 * MIB + 1)), wish(8, 10, 10), "not where it ended");
        runs.note(&(4 * MIB..200 * MIB));
        assert_eq!(runs.wish(&(200 * MIB..201 * MIB)), wish(200, 201, 233));
        assert_eq!(write(&mut Runs::default(), 0..15 * MIB, 64 << 10), (15 * MIB, 4));
    }

    /// Each claimed the begin of the other's next record, and all claims were called back.
    #[test]
    fn who_writes_records_by_turns_with_others_claims_no_part_of_theirs() {
        for (record, part) in [(2, 64 << 10), (4, 1 << 20), (16, 1 << 20), (7, 8 << 20)] {
            let mut runs = Runs::default();
            write(&mut runs, 0..record * MIB, part);
            for nth in 1..5 {
                let start = 2 * nth * record * MIB;
                let header = 0..4_096;
                if nth > 2 {
                    let claimed = runs.wish(&header).wanted_end;
                    assert!(nth == 3 || claimed == MIB, "{claimed}: what it writes there is short");
                    runs.note(&header);
                }
                let end = start + record * MIB;
                assert_eq!(write(&mut runs, start..end, part), (end, 1), "{record} MiB, {nth}");
            }
        }
    }

    #[test]
    fn a_run_that_is_longer_than_the_last_claims_more_only_as_it_goes_on() {
        let mut runs = Runs::default();
        write(&mut runs, 0..4 * MIB, 1 << 20);
        let start = 100 * MIB;
        assert_eq!(write(&mut runs, start..start + 4 * MIB, 1 << 20), (start + 4 * MIB, 1));
        for (at, wanted_end) in [(104, 105), (105, 107), (107, 111), (111, 119)] {
            runs.note(&(start..at * MIB));
            assert_eq!(runs.wish(&(at * MIB..at * MIB + 1)), wish(at, at + 1, wanted_end));
        }
    }

    /// As asynchronous writes of one process, and threads with handles of their own.
    #[test]
    fn writes_that_pass_each_other_are_one_run() {
        let mut runs = Runs::default();
        let part = MIB / 4;
        for nth in [1, 0, 3, 2, 5, 4, 7, 6] {
            runs.note(&(nth * part..(nth + 1) * part));
        }
        assert_eq!(runs.wish(&(2 * MIB..2 * MIB + part)), wish(2, 3, 5));
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
