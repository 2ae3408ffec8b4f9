//! What is to be done later in a volume, as far as that is known without looking into the store, and how far its queue was
//! gone through. [`crate::reaper`] does it.
//!
//! The keys of the queue begin with the time at which an entry is due. So what is new comes behind what was looked at, and is
//! looked at with each turn; what could not be done then (a storage server is away, somebody has the file open) is tried again
//! part by part, for there may be very much of it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use strake_types::{Error, ErrorKind, Ino};

/// What is to be done later in a volume.
pub(crate) struct Chores {
    /// There may be something of which the last turn does not know.
    noted: AtomicBool,
    /// How much the last turn has left.
    left: AtomicUsize,
    place: Mutex<Place>,
    /// Why something failed in the last turn, and in how many turns in a row.
    failures: Mutex<Option<(ErrorKind, u32)>>,
}

/// How far the queue of a volume was gone through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// All up to this key was looked at; `None`: nothing yet.
    pub looked_at: Option<Vec<u8>>,
    /// Of that, what was left is tried again from behind this key on; `None`: from the first.
    pub next: Option<Vec<u8>>,
    /// How many entries up to `looked_at` are left,
    left: usize,
    /// and how many of those up to `next`.
    counted: usize,
}

/// What came of going through a part of the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walked {
    /// Entries.
    pub seen: usize,
    /// Those of them that stay in the queue,
    pub stay: usize,
    /// and up to which of them none comes any more that would have to be looked at.
    pub old: Option<Old>,
    /// The last one, where it was not gone on to the end of the part.
    pub stopped_at: Option<Vec<u8>>,
    /// Entries that were tried and failed,
    pub failed: usize,
    /// and the first of them.
    pub failure: Option<(Ino, Error)>,
}

/// The first entries of a part.
#[derive(Clone, Debug)]
pub(crate) struct Old {
    /// The last of them.
    pub key: Vec<u8>,
    /// How many of them stay.
    pub stay: usize,
}

impl Default for Chores {
    /// What an earlier server has left is not known.
    fn default() -> Self {
        let (noted, left) = (AtomicBool::new(true), AtomicUsize::new(0));
        Self { noted, left, place: Mutex::default(), failures: Mutex::default() }
    }
}

impl Chores {
    /// There may be something to do.
    pub fn note(&self) {
        self.noted.store(true, Ordering::Release);
    }

    /// True if there may be; what is noted from now on is for the next turn.
    pub fn begin(&self) -> bool {
        self.noted.swap(false, Ordering::AcqRel) || self.left() > 0
    }

    /// So much is left.
    pub fn end(&self, left: usize) {
        self.left.store(left, Ordering::Release);
    }

    /// How much the last turn has left.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    /// True if nothing is known that is to be done.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        !self.noted.load(Ordering::Acquire) && self.left() == 0
    }

    /// Something has failed in a turn for this reason, or nothing. True if that is worth saying: ever more seldom while it is the same.
    pub fn failed(&self, why: Option<ErrorKind>) -> bool {
        let mut failures = self.failures.lock();
        let before = failures.take();
        let Some(why) = why else { return false };
        let before = before.filter(|(known, _)| *known == why).map_or(0, |(_, turns)| turns);
        let turns = before.saturating_add(1);
        *failures = Some((why, turns));
        turns.is_power_of_two()
    }

    /// How far the queue was gone through.
    pub fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// It was gone through what is new, and a part of what was left. How many entries there are still, as far as is known.
    pub fn went_on(&self, new: &Walked, again: &Walked) -> usize {
        let mut place = self.place.lock();
        *place = place.after(new, again);
        let behind = new.stay - new.old.as_ref().map_or(0, |old| old.stay);
        place.left + behind
    }
}

impl Place {
    /// How far it is then.
    fn after(&self, new: &Walked, again: &Walked) -> Self {
        let done = again.seen - again.stay;
        let counted = self.counted + again.stay;
        let (left, counted) = match &again.stopped_at {
            Some(_) => (self.left.saturating_sub(done), counted),
            None => (counted, 0),
        };
        let (looked_at, more) = match &new.old {
            Some(old) => (Some(old.key.clone()), old.stay),
            None => (self.looked_at.clone(), 0),
        };
        Self { looked_at, next: again.stopped_at.clone(), left: left + more, counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_looked_at_once_and_what_is_left_with_each_turn() {
        let chores = Chores::default();
        assert!(chores.begin(), "an earlier server may have left something");
        chores.end(0);
        assert!(!chores.begin());
        chores.note();
        assert!(chores.begin());
        chores.end(2);
        assert!(chores.begin() && chores.begin());
        chores.end(0);
        assert!(!chores.begin());
    }

    /// Each of thousands of entries was said to have failed, each second.
    #[test]
    fn a_failure_that_stays_is_said_ever_more_seldom_and_another_one_at_once() {
        let chores = Chores::default();
        let said: Vec<bool> = (0..8).map(|_| chores.failed(Some(ErrorKind::Poisoned))).collect();
        assert_eq!(said, [true, true, false, true, false, false, false, true]);
        assert!(chores.failed(Some(ErrorKind::Unavailable)), "another one");
        assert!(!chores.failed(None));
        assert!(chores.failed(Some(ErrorKind::Unavailable)), "again, after it was over");
    }

    /// Entries by time, of which some can be done. One turn goes through so many of those that were left.
    struct Queue {
        entries: Vec<(u8, bool)>,
        tried: usize,
    }

    impl Queue {
        fn walk(&mut self, from: Option<&Vec<u8>>, to: u8, most: usize, now: u8) -> Walked {
            let from = from.map(|key| key[0]);
            let mut walked = Walked::default();
            let part = self.entries.iter().filter(|(time, _)| from.is_none_or(|from| *time > from));
            let part: Vec<_> = part.filter(|(time, _)| *time <= to).copied().collect();
            for (time, can) in part.iter().take(most) {
                walked.seen += 1;
                walked.stay += usize::from(!can);
                if time + 2 <= now {
                    walked.old = Some(Old { key: vec![*time], stay: walked.stay });
                }
            }
            if part.len() > most {
                walked.stopped_at = Some(vec![part[most - 1].0]);
            }
            let tried: Vec<u8> = part.iter().take(most).map(|(time, _)| *time).collect();
            self.tried += tried.len();
            self.entries.retain(|(time, can)| !can || !tried.contains(time));
            walked
        }

        fn turn(&mut self, chores: &Chores, now: u8) -> usize {
            let place = chores.place();
            let new = self.walk(place.looked_at.as_ref(), u8::MAX, usize::MAX, now);
            let again = match &place.looked_at {
                Some(to) => self.walk(place.next.as_ref(), to[0], 3, 0),
                None => Walked::default(),
            };
            chores.went_on(&new, &again)
        }
    }

    /// All that could not be done was tried again with each turn.
    #[test]
    fn what_is_left_is_tried_again_part_by_part_and_what_is_new_at_once() {
        let chores = Chores::default();
        let stuck = (1..=10).map(|time| (time, false));
        let mut queue = Queue { entries: stuck.collect(), tried: 0 };
        assert_eq!((queue.turn(&chores, 20), queue.tried), (10, 10));
        queue.tried = 0;
        queue.entries.push((19, true));
        assert_eq!(
            (queue.turn(&chores, 20), queue.tried),
            (10, 4),
            "three of them, and the new one"
        );
        // All can be done from now on.
        queue.entries.iter_mut().for_each(|(_, can)| *can = true);
        let left: Vec<_> = (0..4).map(|_| queue.turn(&chores, 20)).collect();
        assert_eq!(left, [7, 4, 3, 0]);
        assert!(queue.entries.is_empty());
    }

    /// One of the same time, or of a change that takes long, comes when others behind it have been looked at.
    #[test]
    fn what_comes_late_among_the_newest_is_new() {
        let chores = Chores::default();
        let mut queue = Queue { entries: vec![(5, false), (9, false)], tried: 0 };
        assert_eq!(queue.turn(&chores, 10), 2);
        queue.entries.insert(1, (8, true));
        assert_eq!((queue.turn(&chores, 10), queue.entries.len()), (2, 2));
        assert_eq!(chores.place().looked_at, Some(vec![8]));
    }
}
