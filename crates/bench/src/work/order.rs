//! In which order the records of a file are visited.

use serde::{Deserialize, Serialize};
use strake_base::random::mixed;

/// Rounds of the Feistel network that shuffles; four are enough for it to look random.
const ROUNDS: u64 = 4;

/// In which order the records of a region are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Backward,
    /// Every `step`-th record, then again from the second on, until each has been visited once.
    Stride {
        /// Records from one visit to the next.
        step: u64,
    },
    /// Each once, in an order that looks random.
    Shuffled {
        /// Which order.
        seed: u64,
    },
    /// The first, as often as there are records.
    Same,
    /// Anywhere, some of them several times and some never.
    Anywhere {
        /// Which.
        seed: u64,
        /// How many visits.
        visits: u64,
    },
}

impl Order {
    /// How many visits there are.
    pub fn visits(&self, records: u64) -> u64 {
        match self {
            Order::Anywhere { visits, .. } => *visits,
            _ => records,
        }
    }

    /// The record of each visit, counted from 0.
    pub fn indices(self, records: u64) -> Box<dyn Iterator<Item = u64> + Send> {
        match self {
            Order::Forward => Box::new(0..records),
            Order::Backward => Box::new((0..records).rev()),
            Order::Stride { step } => {
                let step = usize::try_from(step.max(1)).unwrap_or(usize::MAX);
                let starts = 0..records.min(step as u64);
                Box::new(starts.flat_map(move |start| (start..records).step_by(step)))
            }
            Order::Shuffled { seed } => {
                Box::new((0..records).map(move |at| shuffled(at, records, seed)))
            }
            Order::Same => Box::new((0..records).map(|_| 0)),
            Order::Anywhere { seed, visits } => {
                let place = move |at| mixed(seed ^ mixed(at)) % records.max(1);
                Box::new((0..visits).map(place))
            }
        }
    }
}

/// Where a permutation of 0..count takes a number: a Feistel network over the next power of four,
/// walked until it comes back below `count`. It needs no memory, however many records there are.
fn shuffled(number: u64, count: u64, seed: u64) -> u64 {
    let half = (u64::BITS - count.leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut number = number;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..ROUNDS {
            let turned = left ^ (mixed(seed ^ (right << 3) ^ round) & mask);
            (left, right) = (right, turned);
        }
        number = (left << half) | right;
        if number < count {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(order: Order, records: u64) -> Vec<u64> {
        order.indices(records).collect()
    }

    #[test]
    fn backward_is_every_record_once_from_the_end() {
        assert_eq!(all(Order::Backward, 5), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn a_stride_goes_round_until_each_record_has_been_visited_once() {
        assert_eq!(all(Order::Stride { step: 3 }, 8), [0, 3, 6, 1, 4, 7, 2, 5]);
        assert_eq!(all(Order::Stride { step: 17 }, 3), [0, 1, 2]);
    }

    #[test]
    fn shuffled_is_every_record_once_and_not_in_order() {
        for records in [1, 2, 3, 16, 17, 1000, 4097] {
            let visited = all(Order::Shuffled { seed: 5 }, records);
            let mut sorted = visited.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, all(Order::Forward, records), "{records} records");
            let in_order = visited.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(records < 1000 || in_order < records as usize / 50, "{in_order} in order");
        }
        assert_ne!(all(Order::Shuffled { seed: 5 }, 100), all(Order::Shuffled { seed: 6 }, 100));
    }

    #[test]
    fn anywhere_stays_inside_and_goes_to_many_places() {
        let order = Order::Anywhere { seed: 1, visits: 500 };
        let visited = all(order, 100);
        assert_eq!(visited.len() as u64, order.visits(100));
        assert!(visited.iter().all(|at| *at < 100));
        let places: std::collections::BTreeSet<_> = visited.into_iter().collect();
        assert!(places.len() > 90, "{} places", places.len());
    }

    #[test]
    fn the_same_record_is_visited_as_often_as_there_are_records() {
        assert_eq!(all(Order::Same, 3), [0, 0, 0]);
    }
}
