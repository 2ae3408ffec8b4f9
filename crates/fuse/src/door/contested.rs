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

/// What a kernel has of an inode.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// Attributes and ACLs, which it may believe.
    Attributes,
    /// Pages of its contents.
    Pages,
}

/// What is known of an inode.
struct Known {
    /// When it was recalled last,
    recalled: u64,
    /// and that this was soon after the time before.
    by_turns: bool,
    attributes: Given,
    pages: Given,
}

/// What the kernel was given for a time, and what it has dropped: the numbers of the last of each.
struct Given {
    given: u64,
    dropped: u64,
}

impl Known {
    fn is_contested(&self, now: u64) -> bool {
        now.saturating_sub(self.recalled) < CONTESTED_MS
    }

    fn given(&mut self, what: What) -> &mut Given {
        match what {
            What::Attributes => &mut self.attributes,
            What::Pages => &mut self.pages,
        }
    }
}

impl Table {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// An inode is recalled. One that is new is not entered if there are too many.
    fn recall(&mut self, ino: Ino, now: u64) {
        if let Some(one) = self.inodes.get_mut(&ino) {
            (one.by_turns, one.recalled) = (one.is_contested(now), now);
        } else if self.inodes.len() < INODES_MAX {
            // Numbers are of all inodes: what is dropped of an entry of before is none of this one.
            let given = self.next();
            let [attributes, pages] = [0; 2].map(|dropped| Given { given, dropped });
            self.inodes.insert(ino, Known { recalled: now, by_turns: false, attributes, pages });
        }
    }
}

impl Contested {
    /// Others use these, while no answer is sent that gives the kernel something to believe.
    pub fn recall(&self, inodes: &[Ino], now: u64) {
        let mut table = self.0.lock();
        if table.inodes.len() + inodes.len() > INODES_MAX {
            table.inodes.retain(|_, one| one.is_contested(now));
        }
        inodes.iter().for_each(|ino| table.recall(*ino, now));
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

    /// The kernel is given something of an inode.
    pub fn note_given(&self, ino: Ino, what: What) {
        let mut table = self.0.lock();
        let given = table.next();
        table.inodes.get_mut(&ino).iter_mut().for_each(|one| one.given(what).given = given);
    }

    /// The number of the last that it was given, if it may have any of that; to be told when it has dropped it.
    pub fn left(&self, ino: Ino, what: What) -> Option<u64> {
        let mut table = self.0.lock();
        let Some(one) = table.inodes.get_mut(&ino) else { return Some(0) };
        let Given { given, dropped } = *one.given(what);
        (given > dropped).then_some(given)
    }

    /// It has dropped all that it had been given up to this number.
    pub fn note_dropped(&self, ino: Ino, what: What, number: u64) {
        let mut table = self.0.lock();
        let Some(one) = table.inodes.get_mut(&ino) else { return };
        let given = one.given(what);
        given.dropped = given.dropped.max(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ino = Ino(7);

    #[test]
    fn what_was_taken_back_is_not_believed_until_more_is_given() {
        let contested = Contested::default();
        assert!(contested.left(ONE, What::Attributes).is_some(), "it may have anything");
        contested.recall(&[ONE], 10);
        let believed = contested.left(ONE, What::Attributes).unwrap();
        assert!(contested.left(ONE, What::Attributes).is_some(), "it was not told yet");
        contested.note_dropped(ONE, What::Attributes, believed);
        contested.recall(&[ONE], 90_000);
        assert_eq!(contested.left(ONE, What::Attributes), None);
        contested.note_given(ONE, What::Attributes);
        contested.note_dropped(ONE, What::Attributes, believed);
        assert!(contested.left(ONE, What::Attributes).is_some());
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
        assert!(contested.left(ONE, What::Pages).is_some(), "it may have anything");
        contested.recall(&[ONE], 10);
        let begun = contested.left(ONE, What::Pages).unwrap();
        contested.note_given(ONE, What::Pages);
        contested.note_dropped(ONE, What::Pages, begun);
        let begun = contested.left(ONE, What::Pages).unwrap();
        contested.note_dropped(ONE, What::Pages, begun);
        assert_eq!(contested.left(ONE, What::Pages), None);
        contested.note_given(ONE, What::Pages);
        assert!(contested.left(ONE, What::Pages).is_some());
    }

    /// Its pages counted as dropped, since more had been given, and dropped, when it was known before.
    #[test]
    fn a_drop_that_ends_late_says_nothing_of_what_was_forgotten_and_is_known_anew() {
        let contested = Contested::default();
        contested.recall(&[ONE], 10);
        (0..50).for_each(|_| contested.note_given(ONE, What::Pages));
        let begun = contested.left(ONE, What::Pages).unwrap();
        let many: Vec<Ino> = (100..100 + INODES_MAX as u64).map(Ino).collect();
        contested.recall(&many, 10 + CONTESTED_MS);
        assert_eq!(contested.left(ONE, What::Pages), Some(0), "it was forgotten");
        contested.recall(&[ONE], 20 + 2 * CONTESTED_MS);
        contested.note_dropped(ONE, What::Pages, begun);
        assert!(contested.left(ONE, What::Pages).is_some());
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
