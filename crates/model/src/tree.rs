//! Inodes, names, and what is open.

use crate::access::{self, READ, SEARCH, WRITE};
use crate::bytes::SparseBytes;
use crate::inode::{Inode, Kind, ROOT};
use crate::op::{Op, OpenFlags, Outcome, Path, RenameMode, Slot, Stat};
use std::collections::BTreeMap;
use strake_types::limits::NAME_BYTES_MAX;
use strake_types::{Credentials, ErrorKind, FileKind};

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) ino: u64,
    pub(crate) flags: OpenFlags,
    /// Who opened it.
    pub(crate) opener: Credentials,
}

/// Where a path leads: the directory, the last name, and the inode there, if any.
pub(crate) struct Place {
    parent: u64,
    name: String,
    pub(crate) child: Option<u64>,
}

/// The file system.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: BTreeMap<u64, Inode>,
    handles: BTreeMap<Slot, Handle>,
    next: u64,
    pub(crate) opener_writes: bool,
}

impl Model {
    /// An empty file system whose root has these attributes.
    pub fn new(root_mode: u32, uid: u32, gid: u32) -> Self {
        let kind = Kind::directory();
        let root = Inode {
            kind,
            mode: root_mode,
            uid,
            gid,
            links: 1,
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        let (inodes, handles) = (BTreeMap::from([(ROOT, root)]), BTreeMap::new());
        Self { inodes, handles, next: ROOT + 1, opener_writes: false }
    }

    /// Whoever opened a handle counts as the one who writes through it, as below a system call
    /// interface, where nobody else is known.
    #[must_use]
    pub fn with_writes_by_the_opener(mut self) -> Self {
        self.opener_writes = true;
        self
    }

    /// Every path below the root, for tests that walk the whole tree.
    pub fn paths(&self) -> Vec<Path> {
        let mut all = Vec::new();
        let mut queue = vec![(ROOT, Path::new())];
        while let Some((ino, path)) = queue.pop() {
            for (name, &child) in self.entries(ino).into_iter().flatten() {
                let mut below = path.clone();
                below.push(name.clone());
                queue.push((child, below.clone()));
                all.push(below);
            }
        }
        all.sort();
        all
    }

    /// Closes every handle, as the end of a process does.
    pub fn close_all(&mut self) {
        self.handles.clear();
    }

    pub(crate) fn inode(&self, ino: u64) -> &Inode {
        &self.inodes[&ino]
    }

    fn inode_mut(&mut self, ino: u64) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("numbers come from entries and handles, which keep inodes")
    }

    fn entries(&self, ino: u64) -> Option<&BTreeMap<String, u64>> {
        match &self.inodes.get(&ino)?.kind {
            Kind::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, ino: u64) -> &mut BTreeMap<String, u64> {
        match &mut self.inode_mut(ino).kind {
            Kind::Directory { entries, .. } => entries,
            _ => unreachable!("only called for the parent of a place, which is a directory"),
        }
    }

    fn is_directory(&self, ino: u64) -> bool {
        self.entries(ino).is_some()
    }

    pub(crate) fn handle(&self, slot: Slot) -> Option<Handle> {
        self.handles.get(&slot).cloned()
    }

    pub(crate) fn contents(&self, ino: u64) -> &SparseBytes {
        match &self.inode(ino).kind {
            Kind::File(bytes) => bytes,
            _ => unreachable!("only regular files are opened and truncated"),
        }
    }

    pub(crate) fn change_contents(
        &mut self,
        cred: &Credentials,
        ino: u64,
        change: impl FnOnce(&mut SparseBytes),
    ) {
        let mode = access::mode_after_write(cred, self.inode(ino));
        let inode = self.inode_mut(ino);
        (inode.mode, inode.mtime) = (mode, None);
        if let Kind::File(bytes) = &mut inode.kind {
            change(bytes);
        }
    }

    /// Where a path leads. The root itself is nobody's entry: it may be looked at, but not made,
    /// removed or renamed.
    pub(crate) fn place(&self, cred: &Credentials, path: &[String]) -> Result<Place, ErrorKind> {
        let Some(name) = path.last() else {
            return Ok(Place { parent: ROOT, name: String::new(), child: Some(ROOT) });
        };
        let parent = self.parent(cred, path)?;
        Ok(Place { parent, name: name.clone(), child: self.step(cred, parent, name)? })
    }

    /// Walks to the directory of a path's last name. Every directory on the way must be searchable.
    fn parent(&self, cred: &Credentials, path: &[String]) -> Result<u64, ErrorKind> {
        let mut at = ROOT;
        for component in &path[..path.len().saturating_sub(1)] {
            at = self.step(cred, at, component)?.ok_or(ErrorKind::NotFound)?;
            match self.inode(at).kind {
                Kind::Directory { .. } => {}
                Kind::Symlink(_) => return Err(ErrorKind::NotFound),
                _ => return Err(ErrorKind::NotDirectory),
            }
        }
        access::check(cred, self.inode(at), SEARCH)?;
        Ok(at)
    }

    fn step(&self, cred: &Credentials, at: u64, name: &str) -> Result<Option<u64>, ErrorKind> {
        access::check(cred, self.inode(at), SEARCH)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(ErrorKind::NameTooLong);
        }
        Ok(self.entries(at).and_then(|entries| entries.get(name)).copied())
    }

    /// Puts something new where nothing is.
    pub(crate) fn make(
        &mut self,
        cred: &Credentials,
        path: &[String],
        mode: u32,
        kind: Kind,
    ) -> Result<(), ErrorKind> {
        let place = self.place(cred, path)?;
        if place.child.is_some() {
            return Err(ErrorKind::Exists);
        }
        self.put_new(cred, &place, mode, kind).map(|_| ())
    }

    fn put_new(
        &mut self,
        cred: &Credentials,
        place: &Place,
        mode: u32,
        mut kind: Kind,
    ) -> Result<u64, ErrorKind> {
        let parent = self.inode(place.parent);
        access::check(cred, parent, WRITE | SEARCH)?;
        if let Kind::Directory { parent, .. } = &mut kind {
            *parent = place.parent;
        }
        let is_directory = matches!(kind, Kind::Directory { .. });
        let (mode, gid) = access::inherited(cred, parent, mode, is_directory);
        let ino = self.next;
        self.next += 1;
        let (uid, xattrs) = (cred.uid, BTreeMap::new());
        self.inodes.insert(ino, Inode { kind, mode, uid, gid, links: 1, mtime: None, xattrs });
        self.enter(place, ino);
        Ok(ino)
    }

    fn enter(&mut self, place: &Place, ino: u64) {
        self.entries_mut(place.parent).insert(place.name.clone(), ino);
        self.inode_mut(place.parent).mtime = None;
        if let Kind::Directory { parent, .. } = &mut self.inode_mut(ino).kind {
            *parent = place.parent;
        }
    }

    fn take_out(&mut self, place: &Place) {
        self.entries_mut(place.parent).remove(&place.name);
        self.inode_mut(place.parent).mtime = None;
    }

    /// Takes one name from an inode; it lives on while it is open.
    fn drop_link(&mut self, ino: u64) {
        let inode = self.inode_mut(ino);
        inode.links -= 1;
        self.forget_if_unused(ino);
    }

    fn forget_if_unused(&mut self, ino: u64) {
        if self.inode(ino).links == 0 && self.handles.values().all(|h| h.ino != ino) {
            self.inodes.remove(&ino);
        }
    }

    pub(crate) fn open(
        &mut self,
        cred: &Credentials,
        slot: Slot,
        path: &[String],
        flags: OpenFlags,
    ) -> Result<Outcome, ErrorKind> {
        self.close(slot);
        let place = self.place(cred, path)?;
        let ino = match (place.child, flags.create) {
            (Some(_), Some(_)) if flags.exclusive => return Err(ErrorKind::Exists),
            (Some(ino), _) => match self.open_existing(cred, ino, flags)? {
                Some(ino) => ino,
                None => return Ok(Outcome::Skipped),
            },
            (None, None) => return Err(ErrorKind::NotFound),
            (None, Some(mode)) => {
                self.put_new(cred, &place, mode, Kind::File(SparseBytes::default()))?
            }
        };
        self.handles.insert(slot, Handle { ino, flags, opener: cred.clone() });
        Ok(Outcome::Done)
    }

    /// `None`: a pipe or directory that could be opened, which is not tried.
    fn open_existing(
        &mut self,
        cred: &Credentials,
        ino: u64,
        flags: OpenFlags,
    ) -> Result<Option<u64>, ErrorKind> {
        match self.inode(ino).kind {
            Kind::File(_) => {}
            Kind::Symlink(_) => return Err(ErrorKind::SymlinkLoop),
            Kind::Directory { .. } if flags.write || flags.create.is_some() => {
                return Err(ErrorKind::IsDirectory);
            }
            Kind::Directory { .. } | Kind::Fifo => return Ok(None),
        }
        let wanted = if flags.read { READ } else { 0 }
            | if flags.write || flags.truncate { WRITE } else { 0 };
        access::check(cred, self.inode(ino), wanted)?;
        if flags.truncate {
            self.change_contents(cred, ino, |bytes| bytes.set_length(0));
        }
        Ok(Some(ino))
    }

    pub(crate) fn close(&mut self, slot: Slot) -> Outcome {
        let Some(handle) = self.handles.remove(&slot) else { return Outcome::Skipped };
        self.forget_if_unused(handle.ino);
        Outcome::Done
    }

    pub(crate) fn truncate(
        &mut self,
        cred: &Credentials,
        path: &[String],
        length: u64,
    ) -> Result<(), ErrorKind> {
        let ino = self.existing(cred, path, true)?;
        match self.inode(ino).kind {
            Kind::Directory { .. } => return Err(ErrorKind::IsDirectory),
            Kind::File(_) => {}
            _ => return Err(ErrorKind::Invalid),
        }
        access::check(cred, self.inode(ino), WRITE)?;
        self.change_contents(cred, ino, |bytes| bytes.set_length(length));
        Ok(())
    }

    pub(crate) fn read_all(
        &self,
        cred: &Credentials,
        path: &[String],
    ) -> Result<Outcome, ErrorKind> {
        let ino = self.existing(cred, path, false)?;
        match &self.inode(ino).kind {
            Kind::File(bytes) => {
                access::check(cred, self.inode(ino), READ)?;
                Ok(Outcome::Bytes(bytes.read(0, bytes.length())))
            }
            Kind::Symlink(_) => Err(ErrorKind::SymlinkLoop),
            Kind::Directory { .. } | Kind::Fifo => Ok(Outcome::Skipped),
        }
    }

    pub(crate) fn read_link(
        &self,
        cred: &Credentials,
        path: &[String],
    ) -> Result<Vec<u8>, ErrorKind> {
        match &self.inode(self.existing(cred, path, false)?).kind {
            Kind::Symlink(target) => Ok(target.clone().into_bytes()),
            _ => Err(ErrorKind::Invalid),
        }
    }

    pub(crate) fn link(
        &mut self,
        cred: &Credentials,
        from: &[String],
        to: &[String],
    ) -> Result<(), ErrorKind> {
        let ino = self.existing(cred, from, false)?;
        let place = self.place(cred, to)?;
        if place.child.is_some() {
            return Err(ErrorKind::Exists);
        }
        access::check(cred, self.inode(place.parent), WRITE | SEARCH)?;
        if self.is_directory(ino) {
            return Err(ErrorKind::NotPermitted);
        }
        self.enter(&place, ino);
        self.inode_mut(ino).links += 1;
        Ok(())
    }

    pub(crate) fn remove(
        &mut self,
        cred: &Credentials,
        path: &[String],
        as_directory: bool,
    ) -> Result<(), ErrorKind> {
        let place = self.place(cred, path)?;
        let ino = place.child.ok_or(ErrorKind::NotFound)?;
        access::check_removal(cred, self.inode(place.parent), self.inode(ino), as_directory)?;
        if self.entries(ino).is_some_and(|entries| !entries.is_empty()) {
            return Err(ErrorKind::NotEmpty);
        }
        self.take_out(&place);
        self.drop_link(ino);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        cred: &Credentials,
        from: &[String],
        to: &[String],
        mode: RenameMode,
    ) -> Result<(), ErrorKind> {
        self.parent(cred, from)?;
        self.parent(cred, to)?;
        let from = self.place(cred, from)?;
        let moved = from.child.ok_or(ErrorKind::NotFound)?;
        let to = self.place(cred, to)?;
        match (mode, to.child) {
            (RenameMode::NoReplace, Some(_)) => return Err(ErrorKind::Exists),
            (RenameMode::Exchange, None) => return Err(ErrorKind::NotFound),
            _ => {}
        }
        if self.is_within(to.parent, moved) {
            return Err(ErrorKind::Invalid);
        }
        if to.child.is_some_and(|target| self.is_within(from.parent, target)) {
            let exchange = mode == RenameMode::Exchange;
            return Err(if exchange { ErrorKind::Invalid } else { ErrorKind::NotEmpty });
        }
        if to.child == Some(moved) {
            return Ok(());
        }
        self.check_rename(cred, &from, &to, moved, mode)?;
        match (mode, to.child) {
            (RenameMode::Exchange, Some(other)) => {
                self.enter(&to, moved);
                self.enter(&from, other);
            }
            (_, replaced) => {
                self.take_out(&from);
                self.enter(&to, moved);
                if let Some(replaced) = replaced {
                    self.drop_link(replaced);
                }
            }
        }
        Ok(())
    }

    fn check_rename(
        &self,
        cred: &Credentials,
        from: &Place,
        to: &Place,
        moved: u64,
        mode: RenameMode,
    ) -> Result<(), ErrorKind> {
        let (from_parent, to_parent) = (self.inode(from.parent), self.inode(to.parent));
        let moves_directory = self.is_directory(moved);
        access::check_removal(cred, from_parent, self.inode(moved), moves_directory)?;
        match to.child {
            None => access::check(cred, to_parent, WRITE | SEARCH)?,
            Some(target) => {
                let exchange = mode == RenameMode::Exchange;
                let as_directory =
                    if exchange { self.is_directory(target) } else { moves_directory };
                access::check_removal(cred, to_parent, self.inode(target), as_directory)?;
            }
        }
        // A directory's `..` is written when it moves.
        if from.parent != to.parent {
            let other = to.child.filter(|_| mode == RenameMode::Exchange);
            for ino in [Some(moved), other].into_iter().flatten() {
                if self.is_directory(ino) {
                    access::check(cred, self.inode(ino), WRITE)?;
                }
            }
        }
        let replaced = to.child.filter(|_| mode != RenameMode::Exchange);
        match replaced.and_then(|ino| self.entries(ino)) {
            Some(entries) if !entries.is_empty() => Err(ErrorKind::NotEmpty),
            _ => Ok(()),
        }
    }

    /// True if `ino` is `top` or lies below it.
    fn is_within(&self, mut ino: u64, top: u64) -> bool {
        loop {
            match self.inode(ino).kind {
                _ if ino == top => return true,
                Kind::Directory { parent, .. } if ino != ROOT => ino = parent,
                _ => return false,
            }
        }
    }

    pub(crate) fn stat(&self, ino: u64) -> Outcome {
        let inode = self.inode(ino);
        let (nlink, length) = match &inode.kind {
            Kind::File(bytes) => (inode.links, bytes.length()),
            Kind::Symlink(target) => (inode.links, target.len() as u64),
            Kind::Fifo => (inode.links, 0),
            Kind::Directory { entries, .. } => {
                let below = entries.values().filter(|&&child| self.is_directory(child)).count();
                (2 + below as u32, 0)
            }
        };
        let kind = inode.kind.public();
        let (mode, uid, gid, mtime) = (inode.mode, inode.uid, inode.gid, inode.mtime);
        Outcome::Stat(Stat { kind, mode, uid, gid, nlink, length, mtime })
    }

    pub(crate) fn list(
        &self,
        cred: &Credentials,
        path: &[String],
    ) -> Result<BTreeMap<String, FileKind>, ErrorKind> {
        let ino = self.existing(cred, path, true)?;
        let entries = self.entries(ino).ok_or(ErrorKind::NotDirectory)?;
        access::check(cred, self.inode(ino), READ)?;
        let kind = |child: &u64| self.inode(*child).kind.public();
        Ok(entries.iter().map(|(name, child)| (name.clone(), kind(child))).collect())
    }

    /// Changes of mode, owner and times.
    pub(crate) fn change(&mut self, cred: &Credentials, op: &Op) -> Result<Outcome, ErrorKind> {
        match op {
            Op::SetMode(path, mode) => {
                let ino = self.existing(cred, path, true)?;
                access::check_owner(cred, self.inode(ino))?;
                self.inode_mut(ino).mode = access::changed_mode(cred, self.inode(ino), *mode);
            }
            Op::SetOwner(path, uid, gid) => {
                let ino = self.existing(cred, path, false)?;
                access::check_chown(cred, self.inode(ino), *uid, *gid)?;
                let mode = access::mode_after_chown(self.inode(ino));
                let inode = self.inode_mut(ino);
                (inode.uid, inode.gid, inode.mode) = (*uid, *gid, mode);
            }
            Op::SetTimes(path, _, mtime) => {
                let ino = self.existing(cred, path, true)?;
                access::check_owner(cred, self.inode(ino))?;
                self.inode_mut(ino).mtime = Some(*mtime);
            }
            _ => return Ok(Outcome::Skipped),
        }
        Ok(Outcome::Done)
    }

    /// Extended attributes of the `user.` name space.
    pub(crate) fn xattr(&mut self, cred: &Credentials, op: &Op) -> Result<Outcome, ErrorKind> {
        let (path, wanted) = match op {
            Op::SetXattr(path, ..) | Op::RemoveXattr(path, _) => (path, WRITE),
            Op::GetXattr(path, _) => (path, READ),
            Op::ListXattr(path) => (path, 0),
            _ => return Ok(Outcome::Skipped),
        };
        let ino = self.existing(cred, path, true)?;
        let inode = self.inode(ino);
        let holds = matches!(inode.kind, Kind::File(_) | Kind::Directory { .. });
        match (holds, wanted) {
            (false, WRITE) => return Err(ErrorKind::NotPermitted),
            (false, READ) => return Err(ErrorKind::NoAttribute),
            _ => access::check(cred, inode, wanted)?,
        }
        let xattrs = &mut self.inode_mut(ino).xattrs;
        match op {
            Op::SetXattr(_, name, value, mode) => match (mode, xattrs.contains_key(name)) {
                (Some(true), true) => return Err(ErrorKind::Exists),
                (Some(false), false) => return Err(ErrorKind::NoAttribute),
                _ => drop(xattrs.insert(name.clone(), value.clone())),
            },
            Op::RemoveXattr(_, name) => {
                xattrs.remove(name).ok_or(ErrorKind::NoAttribute)?;
            }
            Op::GetXattr(_, name) => {
                let value = xattrs.get(name).ok_or(ErrorKind::NoAttribute)?;
                return Ok(Outcome::Bytes(value.clone()));
            }
            _ => return Ok(Outcome::Names(xattrs.keys().cloned().collect())),
        }
        Ok(Outcome::Done)
    }
}
