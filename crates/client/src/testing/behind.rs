//! Changes of names at the fake metadata server, also those that were answered before it has heard of them. It has the names
//! of all directories in one table.

use super::{Fake, FakeState};
use std::collections::HashMap;
use strake_types::{ErrorKind, FileKind, Result};
use strake_wire::message::common::{Attributes, Time};
use strake_wire::message::meta::{
    self, Ask, ChangeBehind, Made, MetaAnswer, NameChange, Named, Nothing, Renamed,
};

/// The time at this server, always.
const NOW: Time = Time { seconds: 1_000, nanos: 0 };
/// What the length of a directory grows by with each entry.
const ENTRY_BYTES: i64 = 64;

/// What it knows of changes of names; nothing, unless [`Fake::lease_exclusively`].
#[derive(Default)]
pub(super) struct Behind {
    pub(super) on: bool,
    /// What the number of an exclusive lease is greater by than that of its directory.
    base: u64,
    /// What was made of a list, by numbers.
    made: HashMap<u64, Renamed>,
    /// What it asks back with its next answer about recalls,
    pub(super) asked_back: Vec<Ask>,
    /// and what it was told is given back.
    pub(super) given_back: Vec<u64>,
}

impl Fake {
    /// From now on it changes names, and leases each directory exclusively in which that is done: under its number and this.
    pub(crate) fn lease_exclusively(&self, base: u64) {
        let behind = &mut self.state.lock().behind;
        (behind.on, behind.base) = (true, base);
    }

    /// Asks for an exclusive lease with its next answer about recalls.
    pub(crate) fn ask_back(&self, ask: Ask) {
        self.state.lock().behind.asked_back.push(ask);
    }

    /// The exclusive leases that it was told are given back.
    pub(crate) fn given_back(&self) -> Vec<u64> {
        self.state.lock().behind.given_back.clone()
    }

    /// What a name leads to.
    pub(crate) fn leads(&self, name: &str) -> Option<u64> {
        self.state.lock().names.get(name.as_bytes()).copied()
    }

    /// Somebody else removes a name.
    pub(crate) fn lose_name(&self, name: &str) {
        self.state.lock().names.remove(name.as_bytes());
    }
}

impl Behind {
    /// The number of the exclusive lease on a directory.
    pub(super) fn number(&self, dir: u64) -> u64 {
        self.base + dir
    }
}

impl FakeState {
    /// A directory, after it was changed by so many entries and directories among them.
    fn directory(&mut self, dir: u64, entries: i64, subdirs: i64, at: Time) -> Result<Attributes> {
        let exclusive = self.behind.number(dir);
        let attr = &mut self.file(dir)?.attr;
        attr.kind = FileKind::Directory as u32;
        attr.version += 1;
        attr.length = attr.length.saturating_add_signed(entries * ENTRY_BYTES);
        attr.nlink = attr.nlink.max(2).saturating_add_signed(subdirs as i32);
        (attr.mtime, attr.ctime) = (at, at);
        Ok(Attributes { exclusive, ..attr.clone() })
    }

    /// It was changed by a name of its own.
    fn touched(&mut self, ino: u64, links: i32, at: Time) -> Result<Attributes> {
        let attr = &mut self.file(ino)?.attr;
        attr.version += 1;
        attr.nlink = match attr.kind == FileKind::Directory as u32 && links < 0 {
            true => 0,
            false => attr.nlink.saturating_add_signed(links),
        };
        attr.leased = attr.nlink > 0;
        attr.ctime = at;
        Ok(attr.clone())
    }

    /// Something was found or made under a name in a directory. That, afterwards.
    pub(super) fn made_in(
        &mut self,
        dir: u64,
        ino: u64,
        kind: u32,
        is_new: bool,
    ) -> Result<Attributes> {
        let is_dir = kind == FileKind::Directory as u32;
        if is_new {
            let attr = &mut self.file(ino)?.attr;
            (attr.kind, attr.ctime) = (kind, NOW);
            attr.nlink = if is_dir { 2 } else { 1 };
        }
        self.directory(dir, is_new.into(), (is_new && is_dir).into(), NOW)
    }

    pub(super) fn lookup(&mut self, at: &meta::Name) -> Result<MetaAnswer> {
        match self.names.get(&at.name[..]).copied() {
            Some(ino) => {
                let attr = self.file(ino)?.attr.clone();
                Ok(MetaAnswer::Entry(Attributes { name_leased: true, ..attr }))
            }
            None => Ok(MetaAnswer::Missing(Nothing {})),
        }
    }

    pub(super) fn link(&mut self, op: &meta::Link) -> Result<MetaAnswer> {
        self.names.insert(op.to.name.to_vec(), op.ino);
        let attr = self.touched(op.ino, 1, NOW)?;
        let parent = Some(self.directory(op.to.parent, 1, 0, NOW)?);
        Ok(MetaAnswer::Named(Named { attr, parent }))
    }

    pub(super) fn unlink(&mut self, op: &meta::Unlink) -> Result<MetaAnswer> {
        let Renamed { moved: attr, parent, .. } = self.removed(op, NOW)?;
        Ok(MetaAnswer::Named(Named { attr, parent }))
    }

    pub(super) fn rename(&mut self, op: &meta::Rename) -> Result<MetaAnswer> {
        self.renamed(op, NOW).map(MetaAnswer::Renamed)
    }

    fn removed(&mut self, op: &meta::Unlink, at: Time) -> Result<Renamed> {
        let ino = self.names.remove(&op.at.name[..]).ok_or(ErrorKind::NotFound)?;
        let moved = self.touched(ino, -1, at)?;
        let subdirs = -i64::from(moved.kind == FileKind::Directory as u32);
        let parent = Some(self.directory(op.at.parent, -1, subdirs, at)?);
        Ok(Renamed { moved, parent, ..Renamed::default() })
    }

    fn renamed(&mut self, op: &meta::Rename, at: Time) -> Result<Renamed> {
        let (from, to) = (&op.from, &op.to);
        if op.no_replace && self.names.contains_key(&to.name[..]) {
            return Err(ErrorKind::Exists.into());
        }
        let ino = self.names.remove(&from.name[..]).ok_or(ErrorKind::NotFound)?;
        let other = self.names.insert(to.name.to_vec(), ino);
        let other = other.map(|other| self.touched(other, -1, at)).transpose()?;
        let added = i64::from(other.is_none());
        let moved = self.touched(ino, 0, at)?;
        let (parent, new_parent) = match from.parent == to.parent {
            true => (self.directory(from.parent, added - 1, 0, at)?, None),
            false => {
                let parent = self.directory(from.parent, -1, 0, at)?;
                (parent, Some(self.directory(to.parent, added, 0, at)?))
            }
        };
        Ok(Renamed { moved, other, parent: Some(parent), new_parent })
    }

    /// As the server does: each once, up to the first that it refuses.
    pub(super) fn make_behind(&mut self, op: &meta::Behind) -> MetaAnswer {
        let mut made = Made::default();
        for change in &op.changes {
            match self.make_one(change) {
                Ok(changed) => made.changes.push(changed),
                Err(error) => {
                    (made.refused, made.why) = (error.kind as u32, error.to_string());
                    break;
                }
            }
        }
        MetaAnswer::Made(made)
    }

    fn make_one(&mut self, change: &ChangeBehind) -> Result<Renamed> {
        if let Some(made) = self.behind.made.get(&change.seq) {
            return Ok(made.clone());
        }
        let leads = |name: &meta::Name| self.names.get(&name.name[..]).copied().unwrap_or(0);
        let (ino, other) = match &change.change {
            Some(NameChange::Unlink(op)) => (leads(&op.at), 0),
            Some(NameChange::Rename(op)) => (leads(&op.from), leads(&op.to)),
            None => return Err(ErrorKind::Malformed.into()),
        };
        if (ino, other) != (change.ino, change.other) {
            return Err(ErrorKind::Stale.into());
        }
        let made = match &change.change {
            Some(NameChange::Unlink(op)) => self.removed(op, change.at)?,
            Some(NameChange::Rename(op)) => self.renamed(op, change.at)?,
            None => return Err(ErrorKind::Malformed.into()),
        };
        self.behind.made.insert(change.seq, made.clone());
        Ok(made)
    }
}
