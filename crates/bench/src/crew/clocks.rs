//! What workers of several machines have done, on one clock.
//!
//! Each machine has a clock of its own. As in NTP, how far it is from the run's is known from two
//! words: a worker begins after it was told to, and what it tells has been told before it is heard.

use crate::work::Done;
use std::collections::BTreeSet;

/// When a run and a worker have spoken, in seconds on the clock of the run's machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spoken {
    /// When the worker was told to begin.
    pub go: f64,
    /// When its last answer came.
    pub heard: f64,
}

/// Puts the times of all workers on the run's clock, where they are of several machines: what one
/// machine did later than another counts. They are wrong by half of the shortest way to a machine and
/// back at most.
pub fn on_one(done: &mut [Done], spoken: &[Spoken]) {
    let clocks: BTreeSet<String> = done.iter().map(|one| one.clock.clone()).collect();
    if clocks.len() < 2 {
        return;
    }
    for clock in &clocks {
        let mine = || done.iter().zip(spoken).filter(|(one, _)| one.clock == *clock);
        let least = mine().map(|(one, spoken)| spoken.go - one.began);
        let most = mine().map(|(one, spoken)| spoken.heard - one.told);
        let least = least.fold(f64::NEG_INFINITY, f64::max);
        let shift = f64::midpoint(least, most.fold(f64::INFINITY, f64::min));
        for one in done.iter_mut().filter(|one| one.clock == *clock) {
            one.began += shift;
            one.ended += shift;
            one.told += shift;
        }
    }
    done.iter_mut().for_each(|one| one.clock.clear());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::seconds;

    fn done(clock: &str, began: f64, ended: f64) -> Done {
        Done { clock: clock.into(), began, ended, told: ended + 0.5, ..Done::default() }
    }

    /// The longest span of one machine was taken for that of all: two that worked one after the other
    /// counted as if they had worked at the same time.
    #[test]
    fn a_machine_that_began_later_makes_the_span_longer() {
        // Clocks that are 1000 s apart, and words that take 10 ms; the second machine begins 2 s late,
        // and one of its workers another second.
        let mut all =
            [done("a", 100.01, 103.01), done("b", 1102.01, 1105.01), done("b", 1103.0, 1106.0)];
        let spoken = [(100.0, 103.52), (102.0, 105.52), (102.0, 106.51)];
        let spoken = spoken.map(|(go, heard)| Spoken { go, heard });
        assert!((seconds(&all) - 3.99).abs() < 1e-6);
        on_one(&mut all, &spoken);
        assert!((seconds(&all) - 5.99).abs() < 1e-6, "{all:?}");
    }

    #[test]
    fn times_on_one_clock_stay_as_they_are() {
        let mut all = [done("a", 1.0, 2.0), done("a", 1.5, 4.0)];
        let before = all.clone();
        on_one(&mut all, &[Spoken { go: 0.5, heard: 9.0 }; 2]);
        assert_eq!(all, before);
    }
}
