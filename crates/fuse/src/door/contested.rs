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
pub(super) struct Contested(Mutex<Table>);

#[derive(Default)]
struct Table {
    inodes: HashMap<Ino, Known>,
    /// How often the kernel was given something.
    count: u64,
}

/// What the kernel has of an inode.
struct Known {
    /// When it was recalled last,
    recalled: u64,
    /// and that this was soon after the time before.
    by_turns: bool,
    /// Attributes and ACLs.
    attributes: Given,
    pages: Given,
}

/// What was given for a time, and taken back: the numbers of the last of each.
struct Given {
    given: u64,
    taken: u64,
}

impl Given {
    /// The number of the last, if some of it may be left.
    fn left(&self) -> Option<u64> {
        (self.given > self.taken).then_some(self.given)
    }

    /// All is taken back up to this number.
    fn take(&mut self, number: u64) {
        self.taken = self.taken.max(number);
    }
}

impl Known {
    fn is_contested(&self, now: u64) -> bool {
        now.saturating_sub(self.recalled) < CONTESTED_MS
    }
}

impl Table {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// An inode that is recalled now. `None`: there are too many.
    fn recalled(&mut self, ino: Ino, now: u64) -> Option<&mut Known> {
        if !self.inodes.contains_key(&ino) {
            if self.inodes.len() >= INODES_MAX {
                self.inodes.retain(|_, one| one.is_contested(now));
            }
            if self.inodes.len() >= INODES_MAX {
                return None;
            }
            // Numbers are of all inodes: what is taken back of an entry of before is none of this one.
            let given = self.next();
            let [attributes, pages] = [0; 2].map(|taken| Given { given, taken });
            let one = Known { recalled: now, by_turns: false, attributes, pages };
            return Some(self.inodes.entry(ino).or_insert(one));
        }
        let one = self.inodes.get_mut(&ino)?;
        (one.by_turns, one.recalled) = (one.is_contested(now), now);
        Some(one)
    }
}

impl Contested {
    /// Others use these, while no answer is sent that gives the kernel something to believe.
    pub fn recall(&self, inodes: &[Ino], now: u64) {
        let mut table = self.0.lock();
        for &ino in inodes {
            if table.recalled(ino, now).is_none() {
                break;
            }
        }
    }

    /// True if the kernel is given nothing to believe of a file.
    pub fn has(&self, ino: Ino, now: u64) -> bool {
        self.0.lock().inodes.get(&ino).is_some_and(|one| one.is_contested(now))
    }

    /// True if it is given no pages of a file that is opened, either.
    pub fn has_by_turns(&self, ino: Ino, now: u64) -> bool {
        let table = self.0.lock();
        table.inodes.get(&ino).is_some_and(|one| one.by_turns && one.is_contested(now))
    }

    /// The kernel is given attributes or an ACL that it may believe.
    pub fn note_believed(&self, ino: Ino) {
        let mut table = self.0.lock();
        let given = table.next();
        table.inodes.get_mut(&ino).iter_mut().for_each(|one| one.attributes.given = given);
    }

    /// It is given pages.
    pub fn note_pages(&self, ino: Ino) {
        let mut table = self.0.lock();
        let given = table.next();
        table.inodes.get_mut(&ino).iter_mut().for_each(|one| one.pages.given = given);
    }

    /// The number of what the kernel may believe; to be told when that is taken back.
    pub fn believed(&self, ino: Ino) -> Option<u64> {
        self.0.lock().inodes.get(&ino).map_or(Some(0), |one| one.attributes.left())
    }

    /// The number of the pages that it may have; to be told when it has dropped them.
    pub fn pages(&self, ino: Ino) -> Option<u64> {
        self.0.lock().inodes.get(&ino).map_or(Some(0), |one| one.pages.left())
    }

    /// It believes nothing any more that it had been given by then.
    pub fn note_taken_back(&self, ino: Ino, number: u64) {
        let mut table = self.0.lock();
        table.inodes.get_mut(&ino).iter_mut().for_each(|one| one.attributes.take(number));
    }

    /// It has dropped all pages that it had been given by then.
    pub fn note_dropped(&self, ino: Ino, number: u64) {
        self.0.lock().inodes.get_mut(&ino).iter_mut().for_each(|one| one.pages.take(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ino = Ino(7);

    #[test]
    fn what_was_taken_back_is_not_believed_until_more_is_given() {
        let contested = Contested::default();
        assert!(contested.believed(ONE).is_some(), "it may have anything");
        contested.recall(&[ONE], 10);
        let believed = contested.believed(ONE).unwrap();
        assert!(contested.believed(ONE).is_some(), "it was not told yet");
        contested.note_taken_back(ONE, believed);
        contested.recall(&[ONE], 90_000);
        assert_eq!(contested.believed(ONE), None);
        contested.note_believed(ONE);
        contested.note_taken_back(ONE, believed);
        assert!(contested.believed(ONE).is_some());
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

    /// Its pages counted as dropped, since more had been given, and dropped, when it was known before.
    #[test]
    fn a_drop_that_ends_late_says_nothing_of_what_was_forgotten_and_is_known_anew() {
        let contested = Contested::default();
        contested.recall(&[ONE], 10);
        (0..50).for_each(|_| contested.note_pages(ONE));
        let begun = contested.pages(ONE).unwrap();
        let many: Vec<Ino> = (100..100 + INODES_MAX as u64).map(Ino).collect();
        contested.recall(&many, 10 + CONTESTED_MS);
        assert_eq!(contested.pages(ONE), Some(0), "it was forgotten");
        contested.recall(&[ONE], 20 + 2 * CONTESTED_MS);
        contested.note_dropped(ONE, begun);
        assert!(contested.pages(ONE).is_some());
    }

    #[test]
    fn of_too_many_those_are_forgotten_that_are_contested_no_more() {
        let contested = Contested::default();
        let many: Vec<Ino> = (100..200 + INODES_MAX as u64).map(Ino).collect();
        contested.recall(&many, 10);
        contested.recall(&[ONE], 10);
        assert_eq!((contested.has(Ino(100), 10), contested.has(ONE, 10)), (true, false));
        contested.recall(&[ONE], 10 + CONTESTED_MS);
        assert!(contested.has(ONE, 10 + CONTESTED_MS));
        assert_eq!(contested.0.lock().inodes.len(), 1);
    }
}
