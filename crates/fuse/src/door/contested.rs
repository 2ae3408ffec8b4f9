//! Files that other mounts open or change by turns with this one, and what the kernel has of them.
//!
//! A kernel that is told to take back what it believes of an inode ignores the answers about it that are on their way, and goes on
//! with the length and the mode of before: who asked for the end of a file, under its lock, wrote over what others had appended.
//! So of a file that was recalled a moment ago it is given nothing to believe, and is not told where it has nothing.

use parking_lot::Mutex;
use std::collections::HashMap;
use strake_types::Ino;

/// For how long a file is contested after it was recalled.
const CONTESTED_MS: u64 = 3_000;
/// So many are known at most. Of all others the kernel may have anything.
const INODES_MAX: usize = 4096;

/// What is known of inodes that were recalled lately. Times are in ms.
#[derive(Default)]
pub(super) struct Contested {
    inodes: Mutex<HashMap<Ino, Known>>,
}

/// What the kernel has of an inode.
struct Known {
    /// When it was recalled last,
    recalled: u64,
    /// and that this was soon after the time before.
    by_turns: bool,
    /// It may believe attributes or an ACL.
    believed: bool,
    /// How often it was given pages,
    given: u64,
    /// and how often it had been when it had dropped them all.
    dropped: u64,
}

impl Known {
    fn is_contested(&self, now: u64) -> bool {
        now.saturating_sub(self.recalled) < CONTESTED_MS
    }
}

impl Contested {
    /// These are recalled, while no answer is sent that gives the kernel something to believe. Those of which it may believe
    /// something.
    pub fn recall(&self, inodes: &[Ino], now: u64) -> Vec<Ino> {
        let mut known = self.inodes.lock();
        let mut believed = Vec::new();
        for &ino in inodes {
            let Some(one) = known.get_mut(&ino) else {
                let (by_turns, given, dropped) = (false, 1, 0);
                known.insert(
                    ino,
                    Known { recalled: now, by_turns, believed: false, given, dropped },
                );
                believed.push(ino);
                continue;
            };
            (one.by_turns, one.recalled) = (one.is_contested(now), now);
            if std::mem::take(&mut one.believed) {
                believed.push(ino);
            }
        }
        if known.len() > INODES_MAX {
            known.retain(|_, one| one.is_contested(now));
        }
        if known.len() > INODES_MAX {
            known.clear();
        }
        believed
    }

    /// True if the kernel is given nothing to believe of a file.
    pub fn has(&self, ino: Ino, now: u64) -> bool {
        self.inodes.lock().get(&ino).is_some_and(|one| one.is_contested(now))
    }

    /// True if it is given no pages of a file that is opened, either.
    pub fn has_by_turns(&self, ino: Ino, now: u64) -> bool {
        self.inodes.lock().get(&ino).is_some_and(|one| one.by_turns && one.is_contested(now))
    }

    /// The kernel is given attributes or an ACL that it may believe.
    pub fn note_believed(&self, ino: Ino) {
        self.inodes.lock().get_mut(&ino).iter_mut().for_each(|one| one.believed = true);
    }

    /// It is given pages.
    pub fn note_pages(&self, ino: Ino) {
        self.inodes.lock().get_mut(&ino).iter_mut().for_each(|one| one.given += 1);
    }

    /// How often it was given pages, if it may have any; to be told when it has dropped them.
    pub fn pages(&self, ino: Ino) -> Option<u64> {
        match self.inodes.lock().get(&ino) {
            Some(one) => (one.given > one.dropped).then_some(one.given),
            None => Some(0),
        }
    }

    /// It has dropped all that it had been given by then.
    pub fn note_dropped(&self, ino: Ino, given: u64) {
        let mut known = self.inodes.lock();
        known.get_mut(&ino).iter_mut().for_each(|one| one.dropped = one.dropped.max(given));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ino = Ino(7);

    #[test]
    fn who_was_given_nothing_to_believe_is_told_nothing() {
        let contested = Contested::default();
        assert_eq!(contested.recall(&[ONE, Ino(8)], 10), [ONE, Ino(8)], "it may have anything");
        contested.note_believed(ONE);
        contested.note_believed(Ino(9));
        assert_eq!(contested.recall(&[ONE, Ino(8)], 20), [ONE]);
        assert_eq!(contested.recall(&[ONE, Ino(8)], 90_000), []);
        assert_eq!(contested.recall(&[Ino(9)], 90_000), [Ino(9)]);
    }

    #[test]
    fn a_file_is_contested_for_a_while_after_it_was_recalled_and_by_turns_when_that_comes_again() {
        let contested = Contested::default();
        let has = |now| (contested.has(ONE, now), contested.has_by_turns(ONE, now));
        assert_eq!(has(0), (false, false));
        contested.recall(&[ONE], 10);
        assert_eq!((has(10), has(9 + CONTESTED_MS)), ((true, false), (true, false)));
        contested.recall(&[ONE], 20);
        assert_eq!((has(20), has(20 + CONTESTED_MS)), ((true, true), (false, false)));
        contested.recall(&[ONE], 20 + CONTESTED_MS);
        assert_eq!(has(20 + CONTESTED_MS), (true, false));
    }

    /// A read whose pages come while others are dropped may have come too late for that.
    #[test]
    fn pages_are_dropped_when_none_were_given_since_that_began() {
        let contested = Contested::default();
        assert!(contested.pages(ONE).is_some(), "it may have anything");
        contested.recall(&[ONE], 10);
        let begun = contested.pages(ONE).unwrap();
        contested.note_pages(ONE);
        contested.note_dropped(ONE, begun);
        let begun = contested.pages(ONE).unwrap();
        contested.note_dropped(ONE, begun);
        assert_eq!(contested.pages(ONE), None);
        contested.note_pages(ONE);
        assert!(contested.pages(ONE).is_some());
    }

    #[test]
    fn of_too_many_those_are_forgotten_that_are_contested_no_more() {
        let contested = Contested::default();
        let many: Vec<Ino> = (100..100 + INODES_MAX as u64).map(Ino).collect();
        contested.recall(&[ONE], 10);
        contested.recall(&many, 10 + CONTESTED_MS);
        assert_eq!((contested.pages(ONE), contested.inodes.lock().len()), (Some(0), INODES_MAX));
        contested.recall(&[ONE], 10 + CONTESTED_MS);
        assert!(contested.inodes.lock().is_empty());
        assert_eq!(contested.recall(&[ONE], 20 + CONTESTED_MS), [ONE]);
    }
}
