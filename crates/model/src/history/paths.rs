//! Directories, as the operations of a kernel on paths are.
//!
//! A kernel looks up the names of a path before it asks for anything, each at a moment of its own, and refuses
//! by itself what cannot be done: so a refusal, and a `rename` of a name to another of the same inode, tell of
//! several moments. What changes something is asked for at one.

use super::names::{Directories, How, Name, Told as Answer};
use super::{Object, Verdict};
use std::collections::BTreeSet;
use strake_types::ErrorKind;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `open` with O_CREAT and O_EXCL.
    Create(Name),
    /// `open` with O_CREAT.
    Open(Name),
    /// `mkdir`.
    Mkdir(Name),
    /// `unlink`.
    Unlink(Name),
    /// `rmdir`.
    Rmdir(Name),
    /// `link` of the first name's file.
    Link(Name, Name),
    /// `renameat2`.
    Rename(Name, Name, How),
    /// `stat`.
    Stat(Name),
    /// `open` of what is there, or an entry of a listing, which is told name by name: each may be of a moment
    /// of its own (S-034).
    Find(Name),
    /// `rmdir` of the directory itself.
    Leave(u8),
    /// `mkdir` of the directory itself.
    Enter(u8),
}

/// What it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Success; of `mkdir` nobody is told the inode.
    Done,
    /// The inode.
    Inode(u64),
    /// The inode, and its link count.
    Stat(u64, u32),
    /// It cannot be done.
    Refused(ErrorKind),
}

/// What a kernel has looked up on the way: an inode, and whether it is a directory.
pub type Step = (u64, bool);

/// Directories, each of which may be gone itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Paths {
    names: Directories,
    gone: BTreeSet<u8>,
}

/// An operation on paths.
pub type Operation = super::Operation<Paths>;

/// Whether a history of directories that are there and empty at first can have happened.
pub fn judge(history: &[Operation]) -> Verdict {
    super::judge(Paths::default(), history)
}

type After = Vec<(Paths, Option<Step>)>;

impl Object for Paths {
    type Ask = Ask;
    type Told = Told;
    type Step = Step;

    fn after(&self, ask: &Ask, told: &Told, step: Option<&Step>) -> After {
        match (*ask, *told) {
            (Ask::Stat(name), Told::Stat(ino, links)) if step.is_none() => {
                self.learned(name, ino).stat(name, (ino, links), step)
            }
            (Ask::Stat(name), Told::Stat(ino, links)) => self.stat(name, (ino, links), step),
            (Ask::Link(from, to), told) => self.link(from, to, told, step),
            (Ask::Rename(from, to, how), told) => self.rename((from, to), how, told, step),
            (Ask::Find(name), Told::Inode(ino)) => {
                let known = self.learned(name, ino);
                let fits = known.get(name).is_some_and(|(own, _)| own == ino);
                fits.then_some((known, None)).into_iter().collect()
            }
            (ask, told) => {
                let mut next = self.clone();
                let fits = next.carry_out(ask, told);
                fits.then_some((next, None)).into_iter().collect()
            }
        }
    }

    fn only_looks(ask: &Ask, told: &Told) -> bool {
        matches!(told, Told::Refused(_)) || matches!(ask, Ask::Stat(_) | Ask::Find(_))
    }
}

impl Paths {
    /// The same, where a name leads to this inode if nobody was told its number yet.
    fn learned(&self, name: Name, ino: u64) -> Self {
        let mut known = self.clone();
        if let Some((own, _)) = self.get(name) {
            let _told_already = known.names.learn(own, ino);
        }
        known
    }

    /// What is at a name.
    fn get(&self, name: Name) -> Option<(u64, bool)> {
        self.names.get(name).filter(|_| self.is_there(name))
    }

    fn is_there(&self, name: Name) -> bool {
        !self.gone.contains(&name.within)
    }

    /// True if a name is free, in a directory that is there.
    fn is_free(&self, name: Name) -> bool {
        self.is_there(name) && self.names.get(name).is_none()
    }

    /// It is over, and nothing has changed.
    fn same(&self) -> (Self, Option<Step>) {
        (self.clone(), None)
    }

    /// If this was its first step it may go on, and knows where a name led to.
    fn knows(&self, found: Option<Step>, step: Option<&Step>) -> Option<(Self, Option<Step>)> {
        (step.is_none() && found.is_some()).then(|| (self.clone(), found))
    }

    /// An operation of one step; false if it would not return this.
    fn carry_out(&mut self, ask: Ask, told: Told) -> bool {
        use ErrorKind::{Exists, IsDirectory, NotDirectory, NotEmpty, NotFound};
        let there = match ask {
            Ask::Leave(within) | Ask::Enter(within) => return self.come_and_go(ask, within, told),
            Ask::Create(name) | Ask::Open(name) | Ask::Mkdir(name) | Ask::Unlink(name) => name,
            Ask::Rmdir(name) | Ask::Stat(name) | Ask::Find(name) => name,
            Ask::Link(..) | Ask::Rename(..) => return false,
        };
        let found = self.get(there);
        match (ask, told) {
            (Ask::Create(_) | Ask::Mkdir(_), Told::Refused(Exists)) => found.is_some(),
            (Ask::Create(_) | Ask::Open(_) | Ask::Mkdir(_), Told::Refused(NotFound)) => {
                !self.is_there(there)
            }
            (_, Told::Refused(NotFound)) => found.is_none(),
            (Ask::Rmdir(_), Told::Refused(NotDirectory)) => matches!(found, Some((_, false))),
            (_, Told::Refused(IsDirectory)) => matches!(found, Some((_, true))),
            (_, Told::Refused(NotEmpty)) => false,
            (Ask::Open(_), Told::Inode(ino)) if found.is_some() => found == Some((ino, false)),
            (Ask::Create(_) | Ask::Open(_), Told::Inode(ino)) if self.is_free(there) => {
                self.names.put(there, ino, false);
                true
            }
            (Ask::Mkdir(_), Told::Done) if self.is_free(there) => {
                self.names.put_untold(there, true);
                true
            }
            (Ask::Unlink(_) | Ask::Rmdir(_), Told::Done) => {
                let fits = found.is_some_and(|(_, dir)| dir == matches!(ask, Ask::Rmdir(_)));
                if fits {
                    self.names.remove(there);
                }
                fits
            }
            _ => false,
        }
    }

    /// A directory itself is removed or made.
    fn come_and_go(&mut self, ask: Ask, within: u8, told: Told) -> bool {
        let (gone, empty) = (self.gone.contains(&within), self.names.is_empty(within));
        match (ask, told) {
            (Ask::Leave(_), Told::Refused(ErrorKind::NotFound)) => gone,
            (Ask::Leave(_), Told::Refused(ErrorKind::NotEmpty)) => !gone && !empty,
            (Ask::Leave(_), Told::Done) => !gone && empty && self.gone.insert(within),
            (Ask::Enter(_), Told::Refused(ErrorKind::Exists)) => !gone,
            (Ask::Enter(_), Told::Done) => self.gone.remove(&within),
            _ => false,
        }
    }

    /// Where a name leads to, and how many links that has a moment later.
    fn stat(&self, name: Name, (ino, links): (u64, u32), step: Option<&Step>) -> After {
        let found = step.copied().or_else(|| self.get(name).filter(|(own, _)| *own == ino));
        let Some((_, directory)) = found else { return Vec::new() };
        let names = self.names.links(ino);
        let own = if directory && names > 0 { 2 } else { names };
        let over = (own == links).then(|| self.same());
        over.into_iter().chain(self.knows(found, step)).collect()
    }

    /// The file is looked up first, and may have lost all its names when it is to get another.
    fn link(&self, from: Name, to: Name, told: Told, step: Option<&Step>) -> After {
        use ErrorKind::{Exists, NotFound, NotPermitted};
        let found = step.copied().or_else(|| self.get(from));
        let missing = found.is_none() || !self.is_there(to);
        let orphan = found.is_some_and(|(ino, dir)| !dir && self.names.links(ino) == 0);
        let now = match told {
            Told::Refused(NotFound) => missing || orphan,
            Told::Refused(Exists) => found.is_some() && self.get(to).is_some(),
            Told::Refused(NotPermitted) => found.is_some_and(|(_, dir)| dir) && self.is_free(to),
            Told::Done => found.is_some_and(|(_, dir)| !dir) && !orphan && self.is_free(to),
            _ => false,
        };
        let over = now.then(|| {
            let mut next = self.clone();
            if let (Told::Done, Some((ino, _))) = (told, found) {
                next.names.put(to, ino, false);
            }
            (next, None)
        });
        over.into_iter().chain(self.knows(found, step)).collect()
    }

    /// Both names are looked up, one after the other; the rest is one moment at the server.
    fn rename(&self, (from, to): (Name, Name), how: How, told: Told, step: Option<&Step>) -> After {
        use ErrorKind::{Exists, IsDirectory, NotDirectory, NotFound};
        let found = step.copied().or_else(|| self.get(from));
        let other = self.get(to);
        let kinds = found.zip(other).map(|((_, moved), (_, replaced))| (moved, replaced));
        let refused = match told {
            Told::Refused(NotFound) => {
                let lost = step.is_none() && found.is_none();
                lost || !self.is_there(to) || how == How::Exchange && other.is_none()
            }
            Told::Refused(Exists) => how == How::ToFree && kinds.is_some(),
            Told::Refused(IsDirectory) => how == How::Over && kinds == Some((false, true)),
            Told::Refused(NotDirectory) => how == How::Over && kinds == Some((true, false)),
            // Two names of one inode: nothing is done.
            Told::Done => {
                // Of a directory the number may have been told in between.
                let same = found.zip(other).is_some_and(|(a, b)| a.0 == b.0 || a.1 && b.1);
                same && how != How::ToFree && (step.is_some() || found == other)
            }
            _ => false,
        };
        let mut next = self.clone();
        let changes = step.is_none()
            && told == Told::Done
            && self.is_there(from)
            && self.is_there(to)
            && next.names.rename(from, to, how) == Answer::Done;
        let over = refused.then(|| self.same()).into_iter();
        let over = over.chain(changes.then_some((next, None)));
        over.chain(self.knows(found, step)).collect()
    }
}
