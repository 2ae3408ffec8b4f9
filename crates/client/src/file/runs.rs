//! Where a handle writes to a file that others have open as well, and so what of it is to be [claimed](super::claims) next.

use std::collections::VecDeque;
use std::ops::Range;

/// What is claimed begins and ends at multiples of this.
const UNIT: u64 = 1 << 20;
/// Who writes on and on claims as much again as he has written, up to this.
const AHEAD_MAX: u64 = 32 << 20;
/// Runs of a handle that are remembered. The one that was written longest ago goes.
const RUNS_MAX: usize = 8;

/// What of a file is to be claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) start: u64,
    /// So far it is needed,
    pub(crate) end: u64,
    /// and so far it may be of use.
    pub(crate) wanted_end: u64,
}

/// Where a handle writes: runs, of which each is written from its begin on. Threads that share the handle have one each, and so
/// has a header between records. Who writes records by turns with others is to claim his record, and not the begin of the next
/// one, which is somebody else's.
#[derive(Default)]
pub(crate) struct Runs {
    /// The one that was written last is the last.
    recent: VecDeque<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    /// Where it begins,
    start: u64,
    /// and how far it has come.
    end: u64,
    /// Where the run begins that it is taken to be like, and how long that is.
    before: Option<(u64, u64)>,
}

impl Run {
    fn len(&self) -> u64 {
        self.end - self.start
    }

    /// True if a write goes on with it, about where it ends, or comes just before it: several may be under way at once, and
    /// pass each other. Who begins anew where it began does not.
    fn goes_on(&self, range: &Range<u64>) -> bool {
        let behind = range.end.saturating_add(UNIT);
        let at_end = range.start < self.end.saturating_add(UNIT) && self.end < behind;
        at_end || range.end <= self.start && self.start < behind
    }

    /// Two that turn out to be one.
    fn joined(self, other: Self) -> Self {
        let first = if self.start <= other.start { self } else { other };
        Self { end: self.end.max(other.end), ..first }
    }

    /// Where it ends, by the length of the one before it, if a write at `at` is part of it. Records lie at multiples of their
    /// length from each other: so it is known where this one ends though what is written first need not be its begin.
    fn end_like(&self, (start, len): (u64, u64), at: u64) -> u64 {
        let into_record = (at % len + len - start % len) % len;
        at.saturating_add(len - into_record).min(self.start.saturating_add(len))
    }
}

impl Runs {
    /// The run that a write goes on with, or the runs that are one with it.
    fn known(&self, range: &Range<u64>) -> Option<Run> {
        self.recent.iter().copied().filter(|run| run.goes_on(range)).reduce(Run::joined)
    }

    /// The run of a write, with it.
    fn with(&self, range: &Range<u64>) -> Run {
        let Range { start, end } = *range;
        let run = match self.known(range) {
            Some(known) => known,
            None => Run { start, end, before: self.before(start) },
        };
        Run { start: run.start.min(start), end: run.end.max(end), ..run }
    }

    /// What a run that begins here is taken to be like: the next one before it in the file, or that which was written last; and
    /// like what that one is like, if this is likely to be a part of it that comes early. Headers are none.
    fn before(&self, start: u64) -> Option<(u64, u64)> {
        let records = || self.recent.iter().filter(|run| run.len() >= UNIT);
        let nearest = records().filter(|run| run.start <= start).max_by_key(|run| run.end);
        let run = nearest.or_else(|| records().next_back())?;
        let is_part = |before| run.start <= start && start < run.end_like(before, run.start);
        run.before.filter(|before| is_part(*before)).or(Some((run.start, run.len())))
    }

    /// A range was written.
    pub(crate) fn note(&mut self, range: &Range<u64>) {
        let run = self.with(range);
        self.recent.retain(|other| !other.goes_on(range));
        if self.recent.len() >= RUNS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(run);
    }

    /// What to ask for before a range is written: to the end of a run that is as long as one before it, and of one that is
    /// longer as much again as it is longer. What is written once more is as long as it was.
    pub(crate) fn wish(&self, range: &Range<u64>) -> Wish {
        let start = range.start / UNIT * UNIT;
        let end = range.end.checked_next_multiple_of(UNIT).unwrap_or(range.end);
        let run = self.with(range);
        let wanted = match (self.known(range), run.before) {
            (Some(known), _) if range.end <= known.end => known.end,
            (_, Some(before)) if before.1 >= run.len() => run.end_like(before, range.start),
            (_, before) => {
                let written = run.len().saturating_sub(range.end - range.start);
                let longer = written.saturating_sub(before.map_or(0, |(_, len)| len));
                end.saturating_add(longer)
            }
        };
        let wanted = wanted / UNIT * UNIT;
        Wish { start, end, wanted_end: wanted.clamp(end, end.saturating_add(AHEAD_MAX)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Each write was a jump, and asked for one unit.
    #[test]
    fn two_who_write_through_one_handle_claim_as_those_with_a_handle_each() {
        let (mut runs, part) = (Runs::default(), 64 << 10);
        let begins = [0, 512 * MIB];
        let (mut claimed, mut asked) = (begins, [0, 0]);
        for at in (0..15 * MIB).step_by(64 << 10) {
            for (nth, begin) in begins.into_iter().enumerate() {
                let range = begin + at..begin + at + part;
                if range.end > claimed[nth] {
                    claimed[nth] = runs.wish(&range).wanted_end;
                    asked[nth] += 1;
                }
                runs.note(&range);
            }
        }
        assert_eq!((claimed, asked), ([15 * MIB, (512 + 15) * MIB], [4, 4]));
    }

    /// As a kernel sends a long write. What came first was taken for the record's begin, and what came next for another record.
    #[test]
    fn requests_of_one_record_that_pass_each_other_claim_nothing_of_the_next_record() {
        let order = [3, 0, 1, 2, 4, 5, 7, 6, 8, 9, 11, 15, 10, 14, 12, 13];
        let mut runs = Runs::default();
        write(&mut runs, 0..16 * MIB, 1 << 20);
        for start in [32, 64, 96, 160] {
            let request = |nth: u64| (start + nth) * MIB..(start + nth + 1) * MIB;
            for nth in order {
                let wanted_end = runs.wish(&request(nth)).wanted_end;
                assert_eq!(wanted_end, (start + 16) * MIB, "{nth} of that at {start}");
            }
            for nth in order {
                let wanted_end = runs.wish(&request(nth)).wanted_end;
                assert!(wanted_end <= (start + 16) * MIB, "{nth} of that at {start}, later");
                runs.note(&request(nth));
            }
            let run = runs.recent.back().map(|run| (run.start, run.end));
            assert_eq!(run, Some((start * MIB, (start + 16) * MIB)));
        }
    }

    /// Records of other lengths than their distance: the first claim of each may be too short, and none too long.
    #[test]
    fn records_that_lie_anywhere_are_claimed_up_to_their_end() {
        let mut runs = Runs::default();
        write(&mut runs, 0..4 * MIB, 1 << 20);
        for start in [10, 21, 33] {
            let (start, end) = (start * MIB, (start + 4) * MIB);
            let (claimed, asked) = write(&mut runs, start..end, 1 << 20);
            assert!(claimed == end && asked <= 2, "{claimed}, {asked}");
        }
    }

    #[test]
    fn runs_that_were_not_written_for_long_are_forgotten() {
        let mut runs = Runs::default();
        for nth in 0..3 * RUNS_MAX as u64 {
            runs.note(&(nth * 10 * MIB..nth * 10 * MIB + 1));
            runs.note(&(0..4_096));
        }
        assert_eq!(runs.recent.len(), RUNS_MAX);
        assert_eq!(runs.recent.back().map(|run| (run.start, run.end)), Some((0, 4_096)));
    }
}
