//! What is ahead of a job: counted by a walk of its own, which reads and changes nothing.
//!
//! It takes the same places in the same order as the walk that copies, is a page ahead of it at least, and goes on
//! while files are copied: so what is met was counted before, and counting costs no time but that of one page. Where
//! names are moved meanwhile both may see other files; what is left of that difference goes at the end of the walk.

use super::pages::Found;
use crate::contents::layout_of;
use crate::ctx::Ctx;
use crate::records::{Inode, Place};
use crate::view::Tx;
use std::collections::HashSet;
use strake_types::{Ino, Result};
use strake_wire::message::recopies::RecopyAhead;

/// Files of several names that are remembered, so that each counts once. More count by each of their names.
const LINKED_MAX: usize = 1 << 20;

/// Files, and what there is to copy of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub files: u64,
    pub bytes: u64,
    /// How many of the files are directories, which wait in all shares.
    pub directories: u64,
}

impl Amount {
    /// One file of so many bytes.
    pub fn file(bytes: u64) -> Self {
        Self { files: 1, bytes, directories: 0 }
    }

    /// One directory.
    pub fn directory() -> Self {
        Self { directories: 1, ..Self::file(0) }
    }

    pub fn add(&mut self, more: Self) {
        self.files += more.files;
        self.bytes += more.bytes;
        self.directories += more.directories;
    }

    fn less(self, other: Self) -> Self {
        Self {
            files: self.files.saturating_sub(other.files),
            bytes: self.bytes.saturating_sub(other.bytes),
            directories: self.directories.saturating_sub(other.directories),
        }
    }
}

/// Bytes of a file that there are to copy, about: holes are none, and of the last block no more than the file has.
pub(super) fn bytes_of(inode: &Inode) -> u64 {
    inode.occupied.min(inode.length)
}

/// What a walk has before it.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// What was counted,
    counted: Amount,
    /// and what of that was met since.
    met: Amount,
    /// All is counted.
    whole: bool,
}

impl Ahead {
    /// What was counted, and was not met yet, if that is all.
    pub fn count(&mut self, more: Amount, whole: bool) {
        self.counted.add(more);
        self.whole = whole;
    }

    /// A file that was counted is ready, or waits.
    pub fn meet(&mut self, file: Amount) {
        self.met.add(file);
    }

    /// Everything was met; another walk is to meet so much again.
    pub fn begin_anew(&mut self, again: Amount) {
        *self = Self { counted: again, met: Amount::default(), whole: true };
    }

    /// What was counted, and was not met yet.
    pub fn rest(&self) -> Amount {
        self.counted.less(self.met)
    }

    /// What is told where so much waits, and so many bytes of what is under way are copied.
    pub fn told(&self, waiting: Amount, copied: u64) -> RecopyAhead {
        let mut ahead = self.rest();
        ahead.add(waiting);
        let copied = Amount { bytes: copied, ..Amount::default() };
        let Amount { files, bytes, .. } = ahead.less(copied);
        RecopyAhead { files, bytes, whole: self.whole }
    }
}

/// The walk that counts.
pub(super) struct Counter {
    /// Copies that files are to have.
    copies: u32,
    stack: Vec<Place>,
    linked: HashSet<Ino>,
}

impl Counter {
    /// From the places on where a walk is.
    pub fn from(stack: &[Place], copies: u32) -> Self {
        Self { copies, stack: stack.to_vec(), linked: HashSet::new() }
    }

    /// True if nothing is left to count.
    pub fn is_done(&self) -> bool {
        self.stack.is_empty()
    }

    /// What there is at its next place. It stays there if this fails.
    pub async fn page(&mut self, ctx: &Ctx) -> Result<Amount> {
        let mut amount = Amount::default();
        let Some(place) = self.stack.last().copied() else { return Ok(amount) };
        // Its snapshot is given back before anything is asked of others.
        let inode = Tx::reader(ctx).find_inode(Ino(place.dir)).await?;
        let mut found = Found::at(ctx, inode.as_deref(), place.after).await?;
        let mut linked = Vec::new();
        for ino in &found.files {
            let Some(inode) = Tx::reader(ctx).find_inode(*ino).await? else { continue };
            if !inode.is_file() || layout_of(&inode)?.copies() == self.copies {
                continue;
            }
            if inode.nlink > 1 {
                if self.linked.contains(ino) || linked.contains(ino) {
                    continue;
                }
                linked.push(*ino);
            }
            amount.add(Amount::file(bytes_of(&inode)));
        }
        let room = LINKED_MAX.saturating_sub(self.linked.len());
        self.linked.extend(linked.into_iter().take(room));
        self.stack.pop();
        found.push_next(&mut self.stack);
        Ok(amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: u64, bytes: u64) -> Amount {
        Amount { files, bytes, directories: 0 }
    }

    fn told(ahead: &Ahead, waiting: Amount, copied: u64) -> (u64, u64, bool) {
        let RecopyAhead { files, bytes, whole } = ahead.told(waiting, copied);
        (files, bytes, whole)
    }

    #[test]
    fn what_is_ahead_is_what_was_counted_and_not_met_and_what_waits() {
        let mut ahead = Ahead::default();
        assert_eq!(told(&ahead, of(0, 0), 0), (0, 0, false));
        ahead.count(of(10, 1000), false);
        assert_eq!(told(&ahead, of(0, 0), 30), (10, 970, false));
        ahead.meet(Amount::file(100));
        ahead.count(of(1, 50), true);
        assert_eq!(told(&ahead, of(0, 0), 0), (10, 950, true));
        // It is in use.
        ahead.meet(Amount::file(300));
        assert_eq!(told(&ahead, Amount::file(300), 0), (10, 950, true));
        assert_eq!(told(&ahead, Amount::file(300), 20), (10, 930, true));
    }

    #[test]
    fn what_was_moved_meanwhile_is_forgotten_when_the_walk_is_over() {
        let mut ahead = Ahead::default();
        ahead.count(of(2, 10), true);
        (0..3).for_each(|_| ahead.meet(Amount::file(100)));
        assert_eq!(told(&ahead, of(1, 7), 9), (1, 0, true));
        ahead.begin_anew(of(0, 0));
        assert_eq!(told(&ahead, of(1, 7), 0), (1, 7, true));
        ahead.begin_anew(of(3, 30));
        ahead.meet(Amount::file(10));
        assert_eq!(told(&ahead, of(1, 7), 0), (3, 27, true));
    }
}
