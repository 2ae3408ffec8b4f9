//! Whether what several clients were told of a few directories can have happened one after the other.
//!
//! The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with the memory of
//! Lowe ("Testing for linearizability", 2017): take any operation that began before the first of the
//! others had ended, see whether plain directories would have answered so, and go on; remember which
//! sets of operations have led to which contents. An operation without an answer may have happened at
//! any time since it began, or never.

use std::collections::{BTreeMap, HashSet};
use strake_types::ErrorKind;

/// A name in one of the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The directory.
    pub within: u8,
    /// The name there.
    pub name: u8,
}

/// How a name becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It replaces the other.
    Over,
    /// The other must be free.
    ToFree,
    /// The two change places.
    Exchange,
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A new file; the name must be free.
    Create(Name),
    /// A new directory.
    Mkdir(Name),
    /// A file loses a name.
    Unlink(Name),
    /// A directory goes.
    Rmdir(Name),
    /// An inode gets a further name.
    Link(u64, Name),
    /// A name becomes another, in the same directory or another one.
    Rename(Name, Name, How),
    /// What is there?
    Lookup(Name),
    /// Everything there is in a directory.
    List(u8),
}

/// What it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done.
    Done,
    /// The inode, and how many names it has (after the operation).
    Inode(u64, u32),
    /// Names and inodes.
    Names(Vec<(Name, u64)>),
    /// It cannot be done.
    Refused(ErrorKind),
    /// Nothing, or that nobody knows.
    Unknown,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who.
    pub client: u32,
    /// What it asked for.
    pub ask: Ask,
    /// What it was told.
    pub told: Told,
    /// When it began, in events.
    pub began: u64,
    /// When it ended; `u64::MAX`: never.
    pub ended: u64,
}

/// All directories: inodes by name, and whether they are directories themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Tree {
    names: BTreeMap<Name, (u64, bool)>,
    /// Inodes that were made by operations nobody has heard of have numbers from here on.
    unknown: u64,
}

/// Numbers of inodes that nobody was told.
const UNTOLD: u64 = 1 << 63;

impl Tree {
    fn links(&self, ino: u64) -> u32 {
        self.names.values().filter(|(other, _)| *other == ino).count() as u32
    }

    /// The directories after an operation, if it can have answered so.
    fn after(&self, ask: Ask, told: &Told) -> Option<Tree> {
        let mut next = self.clone();
        let answer = next.carry_out(ask, told);
        let fits = match (told, &answer) {
            (Told::Unknown, Told::Refused(_)) => false,
            (Told::Unknown, _) => true,
            (Told::Inode(ino, links), Told::Inode(own, count)) => {
                // What a name leads to, and how many names that has, may be of two moments.
                let counted = !matches!(ask, Ask::Lookup(_));
                (links == count || !counted) && (ino == own || next.learn(*own, *ino))
            }
            (Told::Names(told), Told::Names(own)) => {
                told.len() == own.len()
                    && told.iter().zip(own).all(|((name, ino), (own_name, own_ino))| {
                        name == own_name && (ino == own_ino || next.learn(*own_ino, *ino))
                    })
            }
            (told, answer) => *told == *answer,
        };
        fits.then_some(next)
    }

    /// What an inode is called that nobody was told when it was made.
    fn learn(&mut self, own: u64, ino: u64) -> bool {
        if own < UNTOLD || self.names.values().any(|(other, _)| *other == ino) {
            return false;
        }
        for (other, _) in self.names.values_mut().filter(|(other, _)| *other == own) {
            *other = ino;
        }
        true
    }

    fn carry_out(&mut self, ask: Ask, told: &Told) -> Told {
        use ErrorKind::{Exists, IsDirectory, NotDirectory, NotFound};
        match ask {
            Ask::Create(name) | Ask::Mkdir(name) => {
                if self.names.contains_key(&name) {
                    return Told::Refused(Exists);
                }
                let ino = match told {
                    Told::Inode(ino, _) => *ino,
                    _ => {
                        self.unknown += 1;
                        UNTOLD + self.unknown
                    }
                };
                let directory = matches!(ask, Ask::Mkdir(_));
                self.names.insert(name, (ino, directory));
                Told::Inode(ino, if directory { 2 } else { 1 })
            }
            Ask::Unlink(name) => match self.names.get(&name).copied() {
                None => Told::Refused(NotFound),
                Some((_, true)) => Told::Refused(IsDirectory),
                Some((ino, false)) => {
                    self.names.remove(&name);
                    Told::Inode(ino, self.links(ino))
                }
            },
            Ask::Rmdir(name) => match self.names.get(&name).copied() {
                None => Told::Refused(NotFound),
                Some((_, false)) => Told::Refused(NotDirectory),
                Some((_, true)) => {
                    self.names.remove(&name);
                    Told::Done
                }
            },
            Ask::Link(ino, name) => self.link(ino, name),
            Ask::Rename(from, to, how) => self.rename(from, to, how),
            Ask::Lookup(name) => match self.names.get(&name) {
                None => Told::Refused(NotFound),
                Some((ino, true)) => Told::Inode(*ino, 2),
                Some((ino, false)) => Told::Inode(*ino, self.links(*ino)),
            },
            Ask::List(within) => {
                let there = self.names.iter().filter(|(name, _)| name.within == within);
                Told::Names(there.map(|(name, (ino, _))| (*name, *ino)).collect())
            }
        }
    }

    fn link(&mut self, ino: u64, name: Name) -> Told {
        let links = self.links(ino);
        match self.names.contains_key(&name) {
            true => Told::Refused(ErrorKind::Exists),
            false if links == 0 => Told::Refused(ErrorKind::NotFound),
            false => {
                self.names.insert(name, (ino, false));
                Told::Inode(ino, links + 1)
            }
        }
    }

    fn rename(&mut self, from: Name, to: Name, how: How) -> Told {
        use ErrorKind::{Exists, IsDirectory, NotDirectory, NotFound};
        let Some(moved) = self.names.get(&from).copied() else { return Told::Refused(NotFound) };
        let replaced = self.names.get(&to).copied();
        match (how, replaced) {
            (How::ToFree, Some(_)) => return Told::Refused(Exists),
            (How::Exchange, None) => return Told::Refused(NotFound),
            (How::Over, Some((ino, _))) if ino == moved.0 => return Told::Done,
            (How::Over, Some((_, true))) if !moved.1 => return Told::Refused(IsDirectory),
            (How::Over, Some((_, false))) if moved.1 => return Told::Refused(NotDirectory),
            _ => {}
        }
        self.names.remove(&from);
        if how == How::Exchange {
            self.names.extend(replaced.map(|other| (from, other)));
        }
        self.names.insert(to, moved);
        Told::Done
    }
}

/// Most steps of a search; a history that needs more is not judged.
const STEPS_MAX: u64 = 3_000_000;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can have happened so.
    Fits,
    /// It cannot: the longest beginning that can, and the operations of which none fits then.
    Impossible(String),
    /// Too much to look through.
    TooLong,
}

/// Which operations have happened.
type Set = Vec<u64>;

struct Search<'a> {
    all: &'a [Operation],
    seen: HashSet<(Set, Tree)>,
    steps: u64,
    best: (usize, String),
}

/// Whether a history of directories that are empty at first can have happened.
pub fn judge(history: &[Operation]) -> Verdict {
    let mut all = history.to_vec();
    all.sort_by_key(|operation| operation.began);
    let set = vec![0; all.len().div_ceil(64)];
    let (seen, best) = (HashSet::new(), (0, String::new()));
    let mut search = Search { all: &all, seen, steps: 0, best };
    match search.go_on(set, Tree::default()) {
        Some(true) => Verdict::Fits,
        Some(false) => Verdict::Impossible(search.best.1),
        None => Verdict::TooLong,
    }
}

fn has(set: &Set, nth: usize) -> bool {
    set[nth / 64] >> (nth % 64) & 1 == 1
}

impl Search<'_> {
    /// Searches with a stack of its own; `None`: too long.
    fn go_on(&mut self, set: Set, tree: Tree) -> Option<bool> {
        let mut stack = vec![(set, tree)];
        while let Some((set, tree)) = stack.pop() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return None;
            }
            let open = || (0..self.all.len()).filter(|&nth| !has(&set, nth));
            let end = open().map(|nth| self.all[nth].ended).min().unwrap_or(u64::MAX);
            if end == u64::MAX {
                // What is left need not have happened.
                return Some(true);
            }
            let next: Vec<usize> = open().take_while(|&nth| self.all[nth].began < end).collect();
            let mut found = Vec::new();
            for &nth in &next {
                let Operation { ask, told, .. } = &self.all[nth];
                if let Some(after) = tree.after(*ask, told) {
                    let mut with = set.clone();
                    with[nth / 64] |= 1 << (nth % 64);
                    found.push((with, after));
                }
            }
            self.remember(&set, &tree, &next);
            for step in found.into_iter().rev() {
                if self.seen.insert(step.clone()) {
                    stack.push(step);
                }
            }
        }
        Some(false)
    }

    fn remember(&mut self, set: &Set, tree: &Tree, next: &[usize]) {
        let done = set.iter().map(|word| word.count_ones() as usize).sum();
        if done >= self.best.0 {
            let open: Vec<_> = next.iter().map(|&nth| &self.all[nth]).collect();
            let text = format!("after {done} operations {:?}, none of {open:?}", tree.names);
            self.best = (done, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: u8) -> Name {
        Name { within: 0, name }
    }

    fn op(ask: Ask, told: Told, began: u64, ended: u64) -> Operation {
        Operation { client: 0, ask, told, began, ended }
    }

    #[test]
    fn what_can_have_happened_fits_whatever_its_order() {
        let history = [
            op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 5),
            op(Ask::Lookup(at(1)), Told::Refused(ErrorKind::NotFound), 1, 2),
            op(Ask::Create(at(1)), Told::Refused(ErrorKind::Exists), 3, 6),
            op(Ask::Link(7, at(2)), Told::Inode(7, 2), 7, 8),
            op(Ask::Unlink(at(1)), Told::Unknown, 9, u64::MAX),
            op(Ask::List(0), Told::Names(vec![(at(1), 7), (at(2), 7)]), 10, 11),
            op(Ask::List(0), Told::Names(vec![(at(2), 7)]), 12, 13),
            op(Ask::Mkdir(at(3)), Told::Unknown, 14, u64::MAX),
            op(Ask::Lookup(at(3)), Told::Inode(9, 2), 15, 16),
            op(Ask::Rename(at(2), at(3), How::Over), Told::Refused(ErrorKind::IsDirectory), 17, 18),
            op(Ask::Rmdir(at(3)), Told::Done, 19, 20),
        ];
        assert_eq!(judge(&history), Verdict::Fits);
    }

    #[test]
    fn what_cannot_have_happened_is_found() {
        let twice = [
            op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 5),
            op(Ask::Create(at(1)), Told::Inode(8, 1), 1, 6),
        ];
        assert!(matches!(judge(&twice), Verdict::Impossible(_)));
        let back = [
            op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
            op(Ask::Unlink(at(1)), Told::Unknown, 2, u64::MAX),
            op(Ask::Lookup(at(1)), Told::Refused(ErrorKind::NotFound), 3, 4),
            op(Ask::Lookup(at(1)), Told::Inode(7, 1), 5, 6),
        ];
        let Verdict::Impossible(why) = judge(&back) else { panic!("it came back") };
        assert!(why.contains("after 3 operations"), "{why}");
        let links = [
            op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
            op(Ask::Link(7, at(2)), Told::Inode(7, 2), 2, 3),
            op(Ask::Unlink(at(1)), Told::Inode(7, 0), 4, 5),
        ];
        assert!(matches!(judge(&links), Verdict::Impossible(_)));
    }

    #[test]
    fn a_name_that_moves_between_directories_is_in_one_of_them_at_any_time() {
        let there = Name { within: 1, name: 0 };
        let moved = |first: Told, second: Told| {
            judge(&[
                op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
                op(Ask::Create(there), Told::Inode(8, 1), 2, 3),
                op(Ask::Rename(at(1), there, How::ToFree), Told::Refused(ErrorKind::Exists), 4, 5),
                op(Ask::Rename(at(1), there, How::Over), Told::Done, 6, 11),
                op(Ask::Lookup(at(1)), first, 7, 8),
                op(Ask::Lookup(there), second, 9, 10),
            ])
        };
        let (old, new) = (Told::Inode(8, 1), Told::Inode(7, 1));
        let gone = Told::Refused(ErrorKind::NotFound);
        assert_eq!(moved(new.clone(), old.clone()), Verdict::Fits);
        assert_eq!(moved(gone.clone(), new), Verdict::Fits);
        assert!(matches!(moved(gone, old), Verdict::Impossible(_)));
    }

    #[test]
    fn an_exchange_needs_both_names() {
        let there = Name { within: 1, name: 0 };
        let exchanged = |second: Told| {
            judge(&[
                op(Ask::Create(at(1)), Told::Inode(7, 1), 0, 1),
                op(
                    Ask::Rename(at(1), there, How::Exchange),
                    Told::Refused(ErrorKind::NotFound),
                    2,
                    3,
                ),
                op(Ask::Mkdir(there), Told::Inode(8, 2), 4, 5),
                op(Ask::Rename(at(1), there, How::Exchange), Told::Done, 6, 7),
                op(Ask::List(0), Told::Names(vec![(at(1), 8)]), 8, 9),
                op(Ask::List(1), second, 10, 11),
            ])
        };
        assert_eq!(exchanged(Told::Names(vec![(there, 7)])), Verdict::Fits);
        assert!(matches!(exchanged(Told::Names(vec![(there, 8)])), Verdict::Impossible(_)));
    }
}
