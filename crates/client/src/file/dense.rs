//! Reads here and there: when to have a whole part of a file costs no more than what was paid for pieces of it.
//!
//! A small read that no cache answers costs its reader a round trip, or an answer of a disk. Whoever has waited for
//! small reads of one part of a file as long as all of that part would have taken gets all of it. So no more than twice
//! the least possible time is ever spent, whatever is read next: the rule for renting or buying skis (Karlin, Manasse,
//! Rudolph, Sleator, "Competitive snoopy caching", 1988). A file that is read here and there is soon
//! cached where that happens often, and stays as it is where it does not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Length of a part: it begins at a multiple of this.
pub(crate) const PART_BYTES: u64 = 1 << 20;
/// A longer read is not a small one.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 << 10;
/// A part is not had as a whole before so many small reads.
const READS_MIN: u32 = 4;
/// Parts of a file that are remembered; when there are more, all begin anew.
const PARTS_MAX: usize = 16 << 10;
/// What a part is taken to cost before one was fetched.
const FIRST_COST: Duration = Duration::from_millis(1);
/// What a read costs whoever waits for it beside the answer of servers.
const ASKING: Duration = Duration::from_micros(20);
/// What the last part counts of the mean: a part in so many.
const SHARE: u64 = 4;

#[derive(Default)]
struct Part {
    reads: u32,
    /// What readers have waited.
    paid: Duration,
}

/// What was paid for small reads of one file.
#[derive(Default)]
pub(crate) struct Paid {
    parts: HashMap<u64, Part>,
}

impl Paid {
    /// Takes note of a small read of the part with this number; true if all of it costs no more than what was
    /// paid. Then the part begins anew.
    pub(crate) fn note(&mut self, part: u64, took: Duration, cost: Duration) -> bool {
        if self.parts.len() >= PARTS_MAX && !self.parts.contains_key(&part) {
            self.parts.clear();
        }
        let noted = self.parts.entry(part).or_default();
        noted.reads += 1;
        noted.paid += took + ASKING;
        let enough = noted.reads >= READS_MIN && noted.paid >= cost;
        if enough {
            self.parts.remove(&part);
        }
        enough
    }
}

/// What it costs to have a part: the mean of the last ones.
pub(crate) struct Cost {
    nanoseconds: AtomicU64,
}

impl Default for Cost {
    fn default() -> Self {
        Self { nanoseconds: AtomicU64::new(FIRST_COST.as_nanos() as u64) }
    }
}

impl Cost {
    /// The mean.
    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// A part was fetched in this time.
    pub(crate) fn note(&self, took: Duration) {
        let mean = self.nanoseconds.load(Ordering::Relaxed);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Two at once may lose one: it is an estimate.
        self.nanoseconds.store(mean - mean / SHARE + took / SHARE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_millis(1);

    #[test]
    fn a_part_is_had_as_a_whole_when_as_much_was_paid_for_pieces_of_it() {
        let mut paid = Paid::default();
        let mut reads = |part, micros, count| {
            (0..count)
                .map(|_| paid.note(part, Duration::from_micros(micros), COST))
                .collect::<Vec<_>>()
        };
        assert_eq!(reads(7, 280, 4), [false, false, false, true]);
        assert_eq!(reads(7, 280, 3), [false; 3], "it has begun anew");
        assert_eq!(reads(8, 280, 1), [false], "each part pays for itself");
        assert_eq!(reads(9, 5_000, 4), [false, false, false, true], "a few reads prove nothing");
        assert_eq!(reads(10, 5, 39), [false; 39], "what is cheap goes on as it is");
        assert_eq!(reads(10, 5, 1), [true]);
    }

    #[test]
    fn parts_that_are_remembered_are_bounded() {
        let mut paid = Paid::default();
        (0..3 * PARTS_MAX as u64).for_each(|part| _ = paid.note(part, Duration::ZERO, COST));
        assert!(paid.parts.len() <= PARTS_MAX);
    }

    #[test]
    fn the_cost_of_a_part_follows_what_parts_have_cost() {
        let cost = Cost::default();
        assert_eq!(cost.mean(), FIRST_COST);
        (0..40).for_each(|_| cost.note(Duration::from_millis(88)));
        let near = Duration::from_millis(87)..=Duration::from_millis(88);
        assert!(near.contains(&cost.mean()), "{:?}", cost.mean());
        cost.note(Duration::MAX);
        cost.note(Duration::ZERO);
        assert!(cost.mean() > Duration::from_millis(88));
    }
}
