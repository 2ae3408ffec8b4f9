//! Reads here and there: when to have a whole part of a file costs no more than what was paid for pieces of it.
//!
//! A small read that no cache answers costs its reader a round trip, or an answer of a disk. Whoever has waited for
//! small reads of one part of a file as long as all of that part would have taken gets all of it. So no more than twice
//! the least possible time is ever spent, whatever is read next: the rule for renting or buying skis (Karlin, Manasse,
//! Rudolph, Sleator, "Competitive snoopy caching", 1988). A file that is read here and there is soon
//! cached where that happens often, and stays as it is where it does not. What was had before and has to be paid for again did
//! not stay: each time it has to be worth twice as much.

use super::open::OpenFile;
use crate::api::ReadData;
use crate::volume::Volume;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino, Result};

/// Length of a part: it begins at a multiple of this.
const PART_BYTES: u64 = 1 << 20;
/// A longer read is not a small one.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// A part is not had as a whole before so many small reads.
const READS_MIN: u32 = 4;
/// Parts that are remembered; when there are more, all begin anew. A few MiB.
const PARTS_MAX: usize = 64 << 10;
/// How often the price of a part that does not stay doubles.
const DOUBLINGS_MAX: u32 = 8;
/// What a part is taken to cost before one was fetched.
const FIRST_COST: Duration = Duration::from_millis(1);
/// What a read costs whoever waits for it beside the answer of servers.
const ASKING: Duration = Duration::from_micros(20);
/// What the last part counts of the mean: a part in so many.
const SHARE: u32 = 4;
/// A part that took so many times the mean counts no more than that: something else was in its way.
const TIMES_MAX: u32 = 4;
/// After so long without a part the mean halves: servers may be faster by now.
const HALVES_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Default)]
struct Part {
    reads: u32,
    /// What readers have waited.
    paid: Duration,
    /// How often it was worth having.
    had: u32,
}

/// What was paid for small reads of the files of a volume, and what parts cost.
#[derive(Default)]
pub(crate) struct Dense {
    files: HashMap<Ino, HashMap<u64, Part>>,
    /// Parts of all files.
    count: usize,
    /// Mean cost of a part, and when that was learned; none: nothing is known.
    cost: Option<(Duration, Duration)>,
}

impl Dense {
    fn cost(&self, now: Duration) -> Duration {
        let Some((mean, learned)) = self.cost else { return FIRST_COST };
        let halvings = now.saturating_sub(learned).as_secs() / HALVES_AFTER.as_secs();
        let halved = mean / (1 << halvings.min(30));
        halved.max(mean.min(FIRST_COST))
    }

    /// Takes note of a small read of a part that took so long; true if all of it costs no more than what was paid.
    /// Then the part begins anew.
    fn read(&mut self, part: (Ino, u64), took: Duration, now: Duration) -> bool {
        let cost = self.cost(now);
        if self.count >= PARTS_MAX {
            (self.files, self.count) = Default::default();
        }
        let count = &mut self.count;
        let noted = self.files.entry(part.0).or_default().entry(part.1).or_insert_with(|| {
            *count += 1;
            Part::default()
        });
        noted.reads += 1;
        noted.paid += took + ASKING;
        let times = 1 << noted.had.min(DOUBLINGS_MAX);
        let enough = noted.reads >= READS_MIN * times && noted.paid >= cost * times;
        if enough {
            *noted = Part { had: noted.had + 1, ..Part::default() };
        }
        enough
    }

    /// Nobody has the file open any more: who opens it next may read elsewhere in it, or have more memory.
    pub(crate) fn closed(&mut self, ino: Ino) {
        self.count -= self.files.remove(&ino).map_or(0, |parts| parts.len());
    }

    fn fetched(&mut self, took: Duration, now: Duration) {
        let mean = self.cost(now);
        let took = took.min(mean * TIMES_MAX);
        self.cost = Some((mean - mean / SHARE + took / SHARE, now));
    }
}

impl Volume {
    /// Takes note of a read of somebody who keeps what he reads, which servers have answered after this time. The part
    /// of the file that it is worth to have as a whole by now.
    pub fn worth_having(
        &self,
        file: &OpenFile,
        read: Range<u64>,
        took: Duration,
    ) -> Option<Range<u64>> {
        let part = (file.ino(), read.start / PART_BYTES);
        let is_small = read.end - read.start <= SMALL_BYTES_MAX;
        if !is_small || !self.dense.lock().read(part, took, self.now()) {
            return None;
        }
        let start = part.1 * PART_BYTES;
        let end = file.state.core().length.min(start + PART_BYTES);
        (start < end).then_some(start..end)
    }

    /// To have a part that was worth it has taken this time, and so many of its bytes were not there before.
    pub fn note_part(&self, bytes: u64, took: Duration) {
        if bytes >= PART_BYTES / 2 {
            self.dense.lock().fetched(took, self.now());
        }
    }

    /// As [`Volume::read`], for who fetches such a part so that it is kept: nothing is worth more for that. Fails where nobody would
    /// tell when it changes, and once the handle is released.
    pub async fn read_part(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: u32,
    ) -> Result<ReadData> {
        let stale = |what: &'static str| Error::with(ErrorKind::Stale, what);
        if file.is_released() {
            return Err(stale("the file was closed meanwhile"));
        }
        let mut leased = true;
        let range = offset..offset.saturating_add(u64::from(len));
        let (data, _) = self.read_range(file, range, false, || leased = false).await?;
        match leased {
            true => Ok(data),
            false => Err(stale("others write to the file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(7);
    const SECOND: Duration = Duration::from_secs(1);

    fn reads(dense: &mut Dense, part: u64, micros: u64, count: usize) -> Vec<bool> {
        let took = Duration::from_micros(micros);
        (0..count).map(|_| dense.read((INO, part), took, SECOND)).collect()
    }

    #[test]
    fn a_part_is_had_as_a_whole_when_as_much_was_paid_for_pieces_of_it() {
        let mut dense = Dense::default();
        assert_eq!(reads(&mut dense, 7, 280, 4), [false, false, false, true]);
        assert_eq!(reads(&mut dense, 8, 280, 1), [false], "each part pays for itself");
        let few = "a few reads prove nothing";
        assert_eq!(reads(&mut dense, 9, 5_000, 4), [false, false, false, true], "{few}");
        let cheap = "what is cheap goes on as it is";
        assert_eq!(reads(&mut dense, 10, 5, 39), [false; 39], "{cheap}");
        assert_eq!(reads(&mut dense, 10, 5, 1), [true]);
    }

    #[test]
    fn what_does_not_stay_has_to_be_worth_twice_as_much_each_time() {
        let mut dense = Dense::default();
        for times in [1, 2, 4, 8] {
            assert_eq!(reads(&mut dense, 7, 280, 4 * times - 1), vec![false; 4 * times - 1]);
            assert_eq!(reads(&mut dense, 7, 280, 1), [true]);
        }
        let all = reads(&mut dense, 8, 280, 100_000);
        let had = all.iter().filter(|had| **had).count() as u32;
        assert!((DOUBLINGS_MAX..110).contains(&had), "{had}");
    }

    #[test]
    fn parts_that_are_remembered_are_bounded() {
        let mut dense = Dense::default();
        for part in 0..3 * PARTS_MAX as u64 {
            dense.read((INO, part), Duration::ZERO, SECOND);
        }
        assert!(dense.count <= PARTS_MAX && dense.files[&INO].len() == dense.count);
        dense.read((Ino(8), 0), Duration::ZERO, SECOND);
        dense.closed(INO);
        dense.closed(INO);
        assert_eq!((dense.count, dense.files.len()), (1, 1));
    }

    /// Whoever measures five times, each time with cold caches, gets five times the same.
    #[test]
    fn a_file_that_was_closed_begins_anew() {
        let mut dense = Dense::default();
        for _ in 0..5 {
            assert_eq!(reads(&mut dense, 7, 280, 4), [false, false, false, true]);
            dense.closed(INO);
        }
    }

    #[test]
    fn the_cost_of_a_part_follows_what_parts_have_cost() {
        let mut dense = Dense::default();
        assert_eq!(dense.cost(SECOND), FIRST_COST);
        (0..60).for_each(|_| dense.fetched(Duration::from_millis(88), SECOND));
        let near = Duration::from_millis(87)..=Duration::from_millis(88);
        assert!(near.contains(&dense.cost(SECOND)), "{:?}", dense.cost(SECOND));
        (0..60).for_each(|_| dense.fetched(Duration::from_micros(300), SECOND));
        assert!(dense.cost(SECOND * 1000) < FIRST_COST / 2, "what is cheap stays so");
    }

    /// Each part pays for itself with its own reads: with a cost that nothing can pay no part would be fetched any more,
    /// and none would tell that they are cheap again.
    #[test]
    fn a_part_that_took_long_once_ends_nothing() {
        let mut dense = Dense::default();
        dense.fetched(SECOND * 60, SECOND);
        assert!(dense.cost(SECOND) <= FIRST_COST * 2);
        (0..60).for_each(|_| dense.fetched(SECOND * 60, SECOND));
        assert!(dense.cost(SECOND) > SECOND * 59);
        assert_eq!(dense.cost(SECOND * 301), FIRST_COST);
    }
}
