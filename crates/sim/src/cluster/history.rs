//! Whether what several clients were told of one directory can have happened one after the other.
//!
//! The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with the memory of
//! Lowe ("Testing for linearizability", 2017): take any operation that began before the first of the
//! others had ended, see whether a plain directory would have answered so, and go on; remember which
//! sets of operations have led to which directory. An operation without an answer may have happened at
//! any time since it began, or never.

use std::collections::{BTreeMap, HashSet};
use strake_types::ErrorKind;

/// A name in the directory.
pub type Name = u8;

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
    /// A name becomes another, which it replaces.
    Rename(Name, Name),
    /// What is there?
    Lookup(Name),
    /// Everything there is.
    List,
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

/// A directory: inodes by name, and whether they are directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Directory {
    names: BTreeMap<Name, (u64, bool)>,
    /// Inodes that were made by operations nobody has heard of have numbers from here on.
    unknown: u64,
}

/// Numbers of inodes that nobody was told.
const UNTOLD: u64 = 1 << 63;

impl Directory {
    fn links(&self, ino: u64) -> u32 {
        self.names.values().filter(|(other, _)| *other == ino).count() as u32
    }

    /// The directory after an operation, if it can have answered so.
    fn after(&self, ask: Ask, told: &Told) -> Option<Directory> {
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
            Ask::Rename(from, to) => self.rename(from, to),
            Ask::Lookup(name) => match self.names.get(&name) {
                None => Told::Refused(NotFound),
                Some((ino, true)) => Told::Inode(*ino, 2),
                Some((ino, false)) => Told::Inode(*ino, self.links(*ino)),
            },
            Ask::List => {
                Told::Names(self.names.iter().map(|(name, (ino, _))| (*name, *ino)).collect())
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

    fn rename(&mut self, from: Name, to: Name) -> Told {
        use ErrorKind::{IsDirectory, NotDirectory, NotFound};
        let Some(moved) = self.names.get(&from).copied() else { return Told::Refused(NotFound) };
        match self.names.get(&to).copied() {
            Some((ino, _)) if ino == moved.0 => return Told::Done,
            Some((_, true)) if !moved.1 => return Told::Refused(IsDirectory),
            Some((_, false)) if moved.1 => return Told::Refused(NotDirectory),
            _ => {}
        }
        self.names.remove(&from);
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
    seen: HashSet<(Set, Directory)>,
    steps: u64,
    best: (usize, String),
}

/// Whether a history of a directory that is empty at first can have happened.
pub fn judge(history: &[Operation]) -> Verdict {
    let mut all = history.to_vec();
    all.sort_by_key(|operation| operation.began);
    let set = vec![0; all.len().div_ceil(64)];
    let (seen, best) = (HashSet::new(), (0, String::new()));
    let mut search = Search { all: &all, seen, steps: 0, best };
    match search.go_on(set, Directory::default()) {
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
    fn go_on(&mut self, set: Set, directory: Directory) -> Option<bool> {
        let mut stack = vec![(set, directory)];
        while let Some((set, directory)) = stack.pop() {
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
                if let Some(after) = directory.after(*ask, told) {
                    let mut with = set.clone();
                    with[nth / 64] |= 1 << (nth % 64);
                    found.push((with, after));
                }
            }
            self.remember(&set, &directory, &next);
            for step in found.into_iter().rev() {
                if self.seen.insert(step.clone()) {
                    stack.push(step);
                }
            }
        }
        Some(false)
    }

    fn remember(&mut self, set: &Set, directory: &Directory, next: &[usize]) {
        let done = set.iter().map(|word| word.count_ones() as usize).sum();
        if done >= self.best.0 {
            let open: Vec<_> = next.iter().map(|&nth| &self.all[nth]).collect();
            let text = format!("after {done} operations {:?}, none of {open:?}", directory.names);
            self.best = (done, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(ask: Ask, told: Told, began: u64, ended: u64) -> Operation {
        Operation { client: 0, ask, told, began, ended }
    }

    #[test]
    fn what_can_have_happened_fits_whatever_its_order() {
        let history = [
            op(Ask::Create(1), Told::Inode(7, 1), 0, 5),
            op(Ask::Lookup(1), Told::Refused(ErrorKind::NotFound), 1, 2),
            op(Ask::Create(1), Told::Refused(ErrorKind::Exists), 3, 6),
            op(Ask::Link(7, 2), Told::Inode(7, 2), 7, 8),
            op(Ask::Unlink(1), Told::Unknown, 9, u64::MAX),
            op(Ask::List, Told::Names(vec![(1, 7), (2, 7)]), 10, 11),
            op(Ask::List, Told::Names(vec![(2, 7)]), 12, 13),
            op(Ask::Mkdir(3), Told::Unknown, 14, u64::MAX),
            op(Ask::Lookup(3), Told::Inode(9, 2), 15, 16),
            op(Ask::Rename(2, 3), Told::Refused(ErrorKind::IsDirectory), 17, 18),
            op(Ask::Rmdir(3), Told::Done, 19, 20),
        ];
        assert_eq!(judge(&history), Verdict::Fits);
    }

    #[test]
    fn what_cannot_have_happened_is_found() {
        let twice = [
            op(Ask::Create(1), Told::Inode(7, 1), 0, 5),
            op(Ask::Create(1), Told::Inode(8, 1), 1, 6),
        ];
        assert!(matches!(judge(&twice), Verdict::Impossible(_)));
        let back = [
            op(Ask::Create(1), Told::Inode(7, 1), 0, 1),
            op(Ask::Unlink(1), Told::Unknown, 2, u64::MAX),
            op(Ask::Lookup(1), Told::Refused(ErrorKind::NotFound), 3, 4),
            op(Ask::Lookup(1), Told::Inode(7, 1), 5, 6),
        ];
        let Verdict::Impossible(why) = judge(&back) else { panic!("it came back") };
        assert!(why.contains("after 3 operations"), "{why}");
        let links = [
            op(Ask::Create(1), Told::Inode(7, 1), 0, 1),
            op(Ask::Link(7, 2), Told::Inode(7, 2), 2, 3),
            op(Ask::Unlink(1), Told::Inode(7, 0), 4, 5),
        ];
        assert!(matches!(judge(&links), Verdict::Impossible(_)));
    }
}
