//! How the model carries out an operation.

use crate::inode::Kind;
use crate::op::{Fallocate, Op, Outcome, Slot};
use crate::tree::{Model, Place};
use strake_types::{Credentials, ErrorKind};

impl Model {
    /// Carries out an operation.
    pub fn apply(&mut self, cred: &Credentials, op: &Op) -> Outcome {
        self.carry_out(cred, op).unwrap_or_else(Outcome::Failed)
    }

    fn carry_out(&mut self, cred: &Credentials, op: &Op) -> Result<Outcome, ErrorKind> {
        let done = |()| Outcome::Done;
        match op {
            Op::Open(slot, path, flags) => self.open(cred, *slot, path, *flags),
            Op::Close(slot) => Ok(self.close(*slot)),
            Op::Read(..) | Op::Write(..) | Op::SetLength(..) | Op::Fallocate(..) => {
                self.on_handle(cred, op)
            }
            Op::CopyRange(..) | Op::Sync(_) | Op::StatHandle(_) => self.on_handle(cred, op),
            Op::Truncate(path, length) => self.truncate(cred, path, *length).map(done),
            Op::ReadAll(path) => self.read_all(cred, path),
            Op::MakeDirectory(path, mode) => {
                self.make(cred, path, *mode, Kind::directory()).map(done)
            }
            Op::MakeFifo(path, mode) => self.make(cred, path, *mode, Kind::Fifo).map(done),
            Op::MakeSymlink(path, target) => {
                self.make(cred, path, 0o777, Kind::Symlink(target.clone())).map(done)
            }
            Op::ReadLink(path) => self.read_link(cred, path).map(Outcome::Bytes),
            Op::Link(from, to) => self.link(cred, from, to).map(done),
            Op::Unlink(path) => self.remove(cred, path, false).map(done),
            Op::RemoveDirectory(path) => self.remove(cred, path, true).map(done),
            Op::Rename(from, to, mode) => self.rename(cred, from, to, *mode).map(done),
            Op::Stat(path) => self.existing(cred, path, false).map(|at| self.stat(at)),
            Op::SameFile(a, b) => {
                let (a, b) = (self.existing(cred, a, false)?, self.existing(cred, b, false)?);
                Ok(Outcome::Truth(a == b))
            }
            Op::List(path) => self.list(cred, path).map(Outcome::Entries),
            Op::SetMode(..) | Op::SetOwner(..) | Op::SetTimes(..) => self.change(cred, op),
            Op::SetXattr(..) | Op::GetXattr(..) | Op::ListXattr(_) | Op::RemoveXattr(..) => {
                self.xattr(cred, op)
            }
        }
    }

    /// Operations through a handle. What the handle was not opened for is not tried.
    fn on_handle(&mut self, cred: &Credentials, op: &Op) -> Result<Outcome, ErrorKind> {
        let (slot, needs_read, needs_write) = match *op {
            Op::Read(slot, ..) => (slot, true, false),
            Op::Write(slot, ..) | Op::SetLength(slot, _) | Op::Fallocate(slot, ..) => {
                (slot, false, true)
            }
            Op::CopyRange(from, ..) => (from, true, false),
            Op::Sync(slot) | Op::StatHandle(slot) => (slot, false, false),
            _ => return Ok(Outcome::Skipped),
        };
        let Some(handle) = self.handle(slot) else { return Ok(Outcome::Skipped) };
        if needs_read && !handle.flags.read || needs_write && !handle.flags.write {
            return Ok(Outcome::Skipped);
        }
        let ino = handle.ino;
        // A mount writes for who opened the file; a new length is asked for by whoever asks.
        let (caller, cred) = (cred, if self.opener_writes { &handle.opener } else { cred });
        match op {
            Op::Read(_, offset, len) => {
                Ok(Outcome::Bytes(self.contents(ino).read(*offset, u64::from(*len))))
            }
            Op::Write(_, offset, data) => {
                let at = if handle.flags.append { self.contents(ino).length() } else { *offset };
                self.write(cred, ino, at, &data.bytes());
                Ok(Outcome::Count(u64::from(data.len)))
            }
            Op::SetLength(_, length) => {
                self.change_contents(caller, ino, |bytes| bytes.set_length(*length));
                Ok(Outcome::Done)
            }
            Op::Fallocate(_, mode, offset, len) => self.fallocate(cred, ino, *mode, *offset, *len),
            Op::CopyRange(_, from, to_slot, to, len) => {
                self.copy_range(cred, (ino, *from), (*to_slot, *to), *len)
            }
            Op::StatHandle(_) => Ok(self.stat(ino)),
            _ => Ok(Outcome::Done),
        }
    }

    /// Writing nothing changes nothing.
    fn write(&mut self, cred: &Credentials, ino: u64, at: u64, data: &[u8]) {
        if !data.is_empty() {
            self.change_contents(cred, ino, |bytes| bytes.write(at, data));
        }
    }

    fn fallocate(
        &mut self,
        cred: &Credentials,
        ino: u64,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<Outcome, ErrorKind> {
        if len == 0 {
            return Err(ErrorKind::Invalid);
        }
        self.change_contents(cred, ino, |bytes| {
            if !matches!(mode, Fallocate::Allocate | Fallocate::KeepSize) {
                bytes.zero(offset, len);
            }
            if matches!(mode, Fallocate::Allocate | Fallocate::Zero) {
                bytes.set_length(bytes.length().max(offset + len));
            }
        });
        Ok(Outcome::Done)
    }

    fn copy_range(
        &mut self,
        cred: &Credentials,
        (from_ino, from): (u64, u64),
        (to_slot, to): (Slot, u64),
        len: u64,
    ) -> Result<Outcome, ErrorKind> {
        let Some(handle) = self.handle(to_slot).filter(|h| h.flags.write && !h.flags.append) else {
            return Ok(Outcome::Skipped);
        };
        let to_ino = handle.ino;
        let data = self.contents(from_ino).read(from, len);
        let len = data.len() as u64;
        if from_ino == to_ino && from < to + len && to < from + len {
            return Err(ErrorKind::Invalid);
        }
        let cred = if self.opener_writes { &handle.opener } else { cred };
        self.write(cred, to_ino, to, &data);
        Ok(Outcome::Count(len))
    }

    /// The inode that a path leads to. Every symbolic link of the model leads nowhere, so following
    /// one finds nothing.
    pub(crate) fn existing(
        &self,
        cred: &Credentials,
        path: &[String],
        follow: bool,
    ) -> Result<u64, ErrorKind> {
        let Place { child, .. } = self.place(cred, path)?;
        let ino = child.ok_or(ErrorKind::NotFound)?;
        if follow && matches!(self.inode(ino).kind, Kind::Symlink(_)) {
            return Err(ErrorKind::NotFound);
        }
        Ok(ino)
    }
}
