//! Names that a kernel may believe for a moment.
//!
//! A kernel cannot be told that a name has changed without waiting for locks which operations hold that wait for
//! others (`docs/design/0050-leases.md`). So it believes a name for a moment only, and who follows a recall of
//! its directory waits until all moments there are over. Where others change names none are given, so that
//! nobody waits a second time.

use std::collections::HashMap;
use std::time::Duration;
use strake_types::Ino;

/// How long a name may be believed.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);
/// How long no names of a directory are, after a recall of it.
const REST: Duration = Duration::from_secs(60);
/// The same, while a name is taken along into another directory.
const MOVE_REST: Duration = Duration::from_secs(5);
/// Most directories that are known; of others no name is believed.
const DIRECTORIES_MAX: usize = 1_024;

/// The moments of some directories.
#[derive(Default)]
pub(crate) struct Moments {
    directories: HashMap<Ino, Moment>,
}

/// Of one directory.
#[derive(Default)]
struct Moment {
    /// When the last one ends.
    until: Duration,
    /// Until when there are none.
    rests: Duration,
}

impl Moments {
    /// For how long a name of a directory may be believed that is told now: not longer than `most`.
    pub fn begin(&mut self, dir: Ino, most: Duration, now: Duration) -> Duration {
        let time = MOMENT.min(most);
        if let Some(moment) = self.directories.get_mut(&dir) {
            if moment.rests > now {
                return Duration::ZERO;
            }
            moment.until = moment.until.max(now + time);
            return time;
        }
        self.make_room(now);
        if self.directories.len() >= DIRECTORIES_MAX {
            return Duration::ZERO;
        }
        self.directories.insert(dir, Moment { until: now + time, ..Moment::default() });
        time
    }

    fn make_room(&mut self, now: Duration) {
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.retain(|_, moment| moment.until.max(moment.rests) > now);
        }
    }

    /// A name is about to be taken along from here into another directory. When the last moment ends that it
    /// may be taken along with: none begins meanwhile.
    pub fn leave(&mut self, dir: Ino, now: Duration) -> Duration {
        self.make_room(now);
        let moment = self.directories.entry(dir).or_default();
        moment.rests = moment.rests.max(now + MOVE_REST);
        moment.until
    }

    /// What was taken along is believed here until then.
    pub fn arrive(&mut self, dir: Ino, until: Duration, now: Duration) {
        if until > now {
            let moment = self.directories.entry(dir).or_default();
            moment.until = moment.until.max(until);
        }
    }

    /// A directory was recalled, and no name of it is told before that was followed. How long until those told
    /// before are not believed any more.
    pub fn end(&mut self, dir: Ino, now: Duration) -> Duration {
        let Some(moment) = self.directories.get_mut(&dir) else { return Duration::ZERO };
        moment.rests = now + REST;
        moment.until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_recall_waits_for_the_moments_of_its_directory_and_then_there_are_none() {
        let mut moments = Moments::default();
        assert_eq!(moments.end(Ino(1), ms(5)), ms(0), "nobody was told anything");
        assert_eq!(moments.begin(Ino(1), ms(2_000), ms(10)), MOMENT);
        assert_eq!(moments.begin(Ino(1), ms(30), ms(20)), ms(30), "the lease ends");
        assert_eq!(moments.begin(Ino(2), ms(2_000), ms(30)), MOMENT);
        assert_eq!(moments.end(Ino(1), ms(40)), ms(10) + MOMENT - ms(40));
        assert_eq!(moments.begin(Ino(1), ms(2_000), ms(50)), ms(0));
        assert_eq!(moments.begin(Ino(2), ms(2_000), ms(50)), MOMENT, "another directory");
        assert_eq!(moments.end(Ino(1), ms(300)), ms(0));
        assert_eq!(moments.begin(Ino(1), ms(2_000), ms(300) + REST), MOMENT);
    }

    #[test]
    fn moments_are_taken_along() {
        let mut moments = Moments::default();
        assert_eq!(moments.begin(Ino(1), ms(2_000), ms(10)), MOMENT);
        let until = moments.leave(Ino(1), ms(20));
        moments.arrive(Ino(2), until, ms(20));
        assert_eq!(moments.begin(Ino(1), ms(2_000), ms(30)), ms(0), "it is being moved");
        assert_eq!(moments.end(Ino(2), ms(30)), ms(10) + MOMENT - ms(30));
        assert_eq!(moments.begin(Ino(1), ms(2_000), ms(20) + MOVE_REST), MOMENT);
        assert_eq!(moments.leave(Ino(3), ms(20)), ms(0), "nobody was told anything");
    }

    #[test]
    fn the_number_of_directories_is_bounded() {
        let mut moments = Moments::default();
        let all = DIRECTORIES_MAX as u64;
        assert!((0..all).all(|dir| moments.begin(Ino(dir), ms(2_000), ms(1)) == MOMENT));
        assert_eq!(moments.begin(Ino(all), ms(2_000), ms(2)), ms(0));
        assert_eq!(moments.end(Ino(all), ms(2)), ms(0));
        assert_eq!(moments.begin(Ino(7), ms(2_000), ms(2)), MOMENT);
        moments.end(Ino(8), ms(3));
        assert_eq!(moments.begin(Ino(all), ms(2_000), ms(1) + MOMENT), MOMENT);
        assert_eq!(moments.directories.len(), 3, "those that go on, that rest, and the new one");
    }
}
