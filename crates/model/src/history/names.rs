//! Directories, as the operations of a client on them are: each one transaction of the metadata server.

use super::{Object, Verdict};
use std::collections::BTreeMap;
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

/// An operation on directories.
pub type Operation = super::Operation<Directories>;

/// All directories: inodes by name, and whether they are directories themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directories {
    names: BTreeMap<Name, (u64, bool)>,
    /// Inodes that were made by operations nobody has heard of have numbers from here on.
    unknown: u64,
}

/// Numbers of inodes that nobody was told.
const UNTOLD: u64 = 1 << 63;

impl Directories {
    /// The inode of a name, and whether it is a directory.
    pub(super) fn get(&self, name: Name) -> Option<(u64, bool)> {
        self.names.get(&name).copied()
    }

    /// A name gets an inode.
    pub(super) fn put(&mut self, name: Name, ino: u64, directory: bool) {
        self.names.insert(name, (ino, directory));
    }

    /// A name gets a new inode, whose number nobody was told.
    pub(super) fn put_untold(&mut self, name: Name, directory: bool) {
        let ino = self.untold();
        self.put(name, ino, directory);
    }

    fn untold(&mut self) -> u64 {
        self.unknown += 1;
        UNTOLD + self.unknown
    }

    /// A name goes.
    pub(super) fn remove(&mut self, name: Name) {
        self.names.remove(&name);
    }

    /// True if there is no name in a directory.
    pub(super) fn is_empty(&self, within: u8) -> bool {
        self.names.keys().all(|name| name.within != within)
    }

    /// How many names an inode has.
    pub(super) fn links(&self, ino: u64) -> u32 {
        self.names.values().filter(|(other, _)| *other == ino).count() as u32
    }

    /// The directories after an operation, if it can have answered so.
    fn changed(&self, ask: Ask, told: &Told) -> Option<Directories> {
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
    pub(super) fn learn(&mut self, own: u64, ino: u64) -> bool {
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
                    _ => self.untold(),
                };
                let directory = matches!(ask, Ask::Mkdir(_));
                self.put(name, ino, directory);
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

    pub(super) fn rename(&mut self, from: Name, to: Name, how: How) -> Told {
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

impl Object for Directories {
    type Ask = Ask;
    type Told = Told;
    type Step = ();

    fn after(&self, ask: &Ask, told: &Told, _step: Option<&()>) -> Vec<(Self, Option<()>)> {
        self.changed(*ask, told).map(|after| (after, None)).into_iter().collect()
    }

    fn only_looks(ask: &Ask, told: &Told) -> bool {
        matches!(told, Told::Refused(_)) || matches!(ask, Ask::Lookup(_) | Ask::List(_))
    }
}

/// Whether a history of directories that are empty at first can have happened.
pub fn judge(history: &[Operation]) -> Verdict {
    super::judge(Directories::default(), history)
}

#[cfg(test)]
mod tests;
