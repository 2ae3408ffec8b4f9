//! The client over servers in one process, as a subject.
//!
//! Paths are walked the way a kernel walks them: every directory on the way by `lookup`, then the
//! operation on the directory and the last name.

use super::Subject;
use crate::local::{LocalCluster, Names, bytes};
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_client::{
    FallocateMode, NewFile, OpenFile, OpenFlags as ClientFlags, RenameFlags, Volume, VolumeOptions,
    XattrFlags,
};
use strake_model::op::{Fallocate, RenameMode, Slot};
use strake_model::{Model, Op, OpenFlags, Outcome, Stat};
use strake_types::{Attr, Credentials, Error, ErrorKind, FileKind, Ino, Result, SetAttr, SetTime};
use tokio::runtime::Runtime;

/// Bytes asked for in one read.
const READ_BYTES: u32 = 1 << 20;
/// Entries asked for in one page: few, so that cookies matter.
const PAGE_ENTRIES: u32 = 3;

/// A client and its cluster.
pub struct Client {
    runtime: Arc<Runtime>,
    cluster: LocalCluster,
    volume: Arc<Volume>,
    open: BTreeMap<Slot, Arc<OpenFile>>,
}

impl Client {
    /// A client on a new cluster.
    pub fn new(runtime: &Arc<Runtime>, names: Names, remember: bool) -> Self {
        let (cluster, volume) = runtime.block_on(async {
            let cluster = LocalCluster::start(names, super::steps::CHUNK_BYTES).await;
            let volume = cluster.volume(options(remember)).await;
            (cluster, volume)
        });
        Self { runtime: Arc::clone(runtime), cluster, volume, open: BTreeMap::new() }
    }

    fn handle(&self, slot: Slot) -> Result<&Arc<OpenFile>> {
        self.open.get(&slot).ok_or(Error::with(ErrorKind::Invalid, "no such handle"))
    }

    /// The directory of the last name, and that name. A kernel asks for leave to search a directory
    /// before it looks at the name.
    async fn parent(&self, cred: &Credentials, path: &[String]) -> Result<(Ino, Vec<u8>)> {
        let (name, above) = path.split_last().expect("only looked-at paths are empty");
        let mut at = Ino::ROOT;
        for component in above {
            self.volume.lookup(cred, at, bytes(".")).await?;
            let attr = self.volume.lookup(cred, at, bytes(component.as_str())).await?;
            match attr.kind {
                FileKind::Directory => at = attr.ino,
                // The links of the model lead nowhere.
                FileKind::Symlink => return Err(ErrorKind::NotFound.into()),
                _ => return Err(ErrorKind::NotDirectory.into()),
            }
        }
        self.volume.lookup(cred, at, bytes(".")).await?;
        Ok((at, name.clone().into_bytes()))
    }

    async fn existing(&self, cred: &Credentials, path: &[String], follow: bool) -> Result<Attr> {
        if path.is_empty() {
            return self.volume.getattr(Ino::ROOT).await;
        }
        let (parent, name) = self.parent(cred, path).await?;
        let attr = self.volume.lookup(cred, parent, bytes(name)).await?;
        if follow && attr.kind == FileKind::Symlink {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(attr)
    }

    async fn carry_out(&mut self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        match op {
            Op::Open(slot, path, flags) => {
                if let Some(file) = self.open.remove(slot) {
                    self.volume.release(&file).await?;
                }
                let file = self.open(cred, path, *flags).await?;
                self.open.insert(*slot, file);
                Ok(Outcome::Done)
            }
            Op::Close(slot) => {
                let Some(file) = self.open.remove(slot) else { return Ok(Outcome::Skipped) };
                self.volume.flush(&file).await?;
                self.volume.release(&file).await.map(|()| Outcome::Done)
            }
            Op::Read(..) | Op::Write(..) | Op::SetLength(..) | Op::Fallocate(..) => {
                self.on_handle(cred, op).await
            }
            Op::CopyRange(..) | Op::Sync(_) | Op::StatHandle(_) => self.on_handle(cred, op).await,
            Op::MakeDirectory(..) | Op::MakeFifo(..) | Op::MakeSymlink(..) | Op::Link(..) => {
                self.make(cred, op).await
            }
            Op::Unlink(_) | Op::RemoveDirectory(_) | Op::Rename(..) => {
                self.take_out(cred, op).await
            }
            Op::Truncate(..) | Op::SetMode(..) | Op::SetOwner(..) | Op::SetTimes(..) => {
                self.change(cred, op).await
            }
            Op::SetXattr(..) | Op::GetXattr(..) | Op::ListXattr(_) | Op::RemoveXattr(..) => {
                self.xattr(cred, op).await
            }
            Op::ReadAll(_) | Op::ReadLink(_) | Op::Stat(_) | Op::SameFile(..) | Op::List(_) => {
                self.look(cred, op).await
            }
        }
    }

    async fn open(
        &self,
        cred: &Credentials,
        path: &[String],
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>> {
        let (parent, name) = self.parent(cred, path).await?;
        let wanted = ClientFlags {
            read: flags.read,
            write: flags.write,
            append: flags.append,
            truncate: flags.truncate,
            exclusive: flags.exclusive,
            direct: false,
        };
        match (self.volume.lookup(cred, parent, bytes(name.as_slice())).await, flags.create) {
            (Ok(_), Some(_)) if flags.exclusive => Err(ErrorKind::Exists.into()),
            (Ok(attr), _) => match attr.kind {
                FileKind::File => self.volume.open(cred, attr.ino, wanted).await,
                FileKind::Directory => Err(ErrorKind::IsDirectory.into()),
                _ => Err(ErrorKind::SymlinkLoop.into()),
            },
            (Err(error), Some(mode)) if error.kind == ErrorKind::NotFound => {
                let made = self.volume.create(cred, parent, bytes(name), mode, 0, wanted).await?;
                Ok(made.1)
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn on_handle(&self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        match op {
            Op::Read(slot, offset, len) => {
                let data = self.read(self.handle(*slot)?, *offset, u64::from(*len)).await?;
                Ok(Outcome::Bytes(data))
            }
            Op::Write(slot, offset, data) => {
                let file = self.handle(*slot)?;
                let written = self.volume.write(file, *offset, bytes(data.bytes())).await?;
                Ok(Outcome::Count(written.len))
            }
            Op::SetLength(slot, length) => {
                let file = self.handle(*slot)?;
                let change = SetAttr { length: Some(*length), ..SetAttr::default() };
                self.volume.setattr(cred, file.ino(), change, Some(file)).await?;
                Ok(Outcome::Done)
            }
            Op::Fallocate(slot, mode, offset, len) => {
                let mode = match mode {
                    Fallocate::Allocate => FallocateMode::Allocate,
                    Fallocate::KeepSize => FallocateMode::KeepSize,
                    Fallocate::Punch => FallocateMode::Punch,
                    Fallocate::Zero => FallocateMode::Zero,
                    Fallocate::ZeroKeepSize => FallocateMode::ZeroKeepSize,
                };
                let file = self.handle(*slot)?;
                self.volume.fallocate(file, mode, *offset, *len).await?;
                Ok(Outcome::Done)
            }
            Op::CopyRange(from, from_offset, to, to_offset, len) => {
                let (from, to) = (self.handle(*from)?, self.handle(*to)?);
                self.copy_range(from, *from_offset, to, *to_offset, *len).await
            }
            Op::Sync(slot) => {
                self.volume.fsync(self.handle(*slot)?, false).await?;
                Ok(Outcome::Done)
            }
            Op::StatHandle(slot) => {
                let attr = self.volume.getattr(self.handle(*slot)?.ino()).await?;
                Ok(Outcome::Stat(stat(&attr)))
            }
            _ => Ok(Outcome::Skipped),
        }
    }

    async fn read(&self, file: &Arc<OpenFile>, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        while (all.len() as u64) < len {
            let left = (len - all.len() as u64).min(u64::from(READ_BYTES)) as u32;
            let part = self.volume.read(file, offset + all.len() as u64, left).await?;
            if part.is_empty() {
                break;
            }
            all.extend_from_slice(&part.into_bytes());
        }
        Ok(all)
    }

    async fn copy_range(
        &self,
        from: &Arc<OpenFile>,
        at: u64,
        to: &Arc<OpenFile>,
        to_at: u64,
        len: u64,
    ) -> Result<Outcome> {
        // What the kernel checks before it asks a file system.
        let length = self.volume.getattr(from.ino()).await?.length;
        let len = len.min(length.saturating_sub(at));
        if from.ino() == to.ino() && at < to_at + len && to_at < at + len {
            return Err(ErrorKind::Invalid.into());
        }
        let mut done = 0;
        while done < len {
            match self.volume.copy_range(from, at + done, to, to_at + done, len - done).await? {
                0 => break,
                n => done += n,
            }
        }
        Ok(Outcome::Count(done))
    }

    async fn make(&self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        let (path, new) = match op {
            Op::MakeDirectory(path, mode) => (path, NewFile::directory(*mode, 0)),
            Op::MakeFifo(path, mode) => (path, NewFile::node(FileKind::Fifo, *mode, 0, 0)),
            Op::MakeSymlink(path, target) => (path, NewFile::symlink(bytes(target.as_str()))),
            Op::Link(from, to) => {
                let file = self.existing(cred, from, false).await?;
                let (parent, name) = self.parent(cred, to).await?;
                self.volume.link(cred, file.ino, parent, bytes(name)).await?;
                return Ok(Outcome::Done);
            }
            _ => return Ok(Outcome::Skipped),
        };
        let (parent, name) = self.parent(cred, path).await?;
        self.volume.make(cred, parent, bytes(name), new).await?;
        Ok(Outcome::Done)
    }

    async fn take_out(&self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        match op {
            Op::Unlink(path) => {
                let (parent, name) = self.parent(cred, path).await?;
                self.volume.unlink(cred, parent, bytes(name)).await?;
            }
            Op::RemoveDirectory(path) => {
                let (parent, name) = self.parent(cred, path).await?;
                self.volume.rmdir(cred, parent, bytes(name)).await?;
            }
            Op::Rename(from, to, mode) => {
                let flags = RenameFlags {
                    no_replace: *mode == RenameMode::NoReplace,
                    exchange: *mode == RenameMode::Exchange,
                };
                let (from, name) = self.parent(cred, from).await?;
                let (to, new) = self.parent(cred, to).await?;
                self.volume.rename(cred, from, bytes(name), to, bytes(new), flags).await?;
            }
            _ => return Ok(Outcome::Skipped),
        }
        Ok(Outcome::Done)
    }

    async fn change(&self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        let mut change = SetAttr::default();
        let ino = match op {
            Op::Truncate(path, length) => {
                change.length = Some(*length);
                let attr = self.existing(cred, path, true).await?;
                match attr.kind {
                    FileKind::File => attr.ino,
                    FileKind::Directory => return Err(ErrorKind::IsDirectory.into()),
                    _ => return Err(ErrorKind::Invalid.into()),
                }
            }
            Op::SetMode(path, mode) => {
                change.mode = Some(*mode);
                self.existing(cred, path, true).await?.ino
            }
            Op::SetOwner(path, uid, gid) => {
                (change.uid, change.gid) = (Some(*uid), Some(*gid));
                self.existing(cred, path, false).await?.ino
            }
            Op::SetTimes(path, atime, mtime) => {
                (change.atime, change.mtime) =
                    (Some(SetTime::At(*atime)), Some(SetTime::At(*mtime)));
                self.existing(cred, path, true).await?.ino
            }
            _ => return Ok(Outcome::Skipped),
        };
        self.volume.setattr(cred, ino, change, None).await?;
        Ok(Outcome::Done)
    }

    async fn xattr(&self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        let path = match op {
            Op::SetXattr(path, ..) | Op::RemoveXattr(path, _) => path,
            Op::GetXattr(path, _) | Op::ListXattr(path) => path,
            _ => return Ok(Outcome::Skipped),
        };
        let ino = self.existing(cred, path, true).await?.ino;
        match op {
            Op::SetXattr(_, name, value, must) => {
                let (create, replace) = (*must == Some(true), *must == Some(false));
                let flags = XattrFlags { create, replace, ..XattrFlags::default() };
                let (name, value) = (bytes(name.as_str()), bytes(value.as_slice()));
                self.volume.setxattr(cred, ino, name, value, flags).await?;
            }
            Op::RemoveXattr(_, name) => {
                self.volume.removexattr(cred, ino, bytes(name.as_str())).await?;
            }
            Op::GetXattr(_, name) => {
                let value = self.volume.getxattr(cred, ino, bytes(name.as_str())).await?;
                return Ok(Outcome::Bytes(value.to_vec()));
            }
            _ => {
                let list = self.volume.listxattr(cred, ino).await?;
                let names = list.split(|&b| b == 0).map(String::from_utf8_lossy);
                let mut names: Vec<_> =
                    names.filter(|n| n.starts_with("user.")).map(|n| n.into_owned()).collect();
                names.sort();
                return Ok(Outcome::Names(names));
            }
        }
        Ok(Outcome::Done)
    }

    async fn look(&self, cred: &Credentials, op: &Op) -> Result<Outcome> {
        match op {
            Op::ReadAll(path) => {
                let flags = OpenFlags { read: true, ..OpenFlags::default() };
                let file = self.open(cred, path, flags).await?;
                let data = self.read(&file, 0, 1 << 40).await;
                self.volume.release(&file).await?;
                data.map(Outcome::Bytes)
            }
            Op::ReadLink(path) => {
                let attr = self.existing(cred, path, false).await?;
                if attr.kind != FileKind::Symlink {
                    return Err(ErrorKind::Invalid.into());
                }
                let target = self.volume.readlink(cred, attr.ino).await?;
                Ok(Outcome::Bytes(target.to_vec()))
            }
            Op::Stat(path) => Ok(Outcome::Stat(stat(&self.existing(cred, path, false).await?))),
            Op::SameFile(a, b) => {
                let a = self.existing(cred, a, false).await?;
                let b = self.existing(cred, b, false).await?;
                Ok(Outcome::Truth(a.ino == b.ino))
            }
            Op::List(path) => self.list(cred, path).await,
            _ => Ok(Outcome::Skipped),
        }
    }

    async fn list(&self, cred: &Credentials, path: &[String]) -> Result<Outcome> {
        let directory = self.existing(cred, path, true).await?;
        if directory.kind != FileKind::Directory {
            return Err(ErrorKind::NotDirectory.into());
        }
        let mut entries = BTreeMap::new();
        let mut after = 0;
        loop {
            let page = self.volume.readdir(cred, directory.ino, after, PAGE_ENTRIES, true).await?;
            for entry in page.entries {
                assert!(entry.cookie > after, "cookies ascend");
                after = entry.cookie;
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                assert!(entries.insert(name, entry.kind).is_none(), "{:?} twice", entry.name);
            }
            if page.end {
                return Ok(Outcome::Entries(entries));
            }
        }
    }
}

impl Subject for Client {
    fn apply(&mut self, cred: &Credentials, op: &Op) -> Outcome {
        let runtime = Arc::clone(&self.runtime);
        let outcome = runtime.block_on(self.carry_out(cred, op));
        outcome.unwrap_or_else(|error| Outcome::Failed(error.kind))
    }

    fn restart(&mut self) {
        self.runtime.block_on(self.cluster.restart());
    }

    fn remount(&mut self) {
        let open = std::mem::take(&mut self.open);
        let options = self.volume.options().clone();
        self.volume = self.runtime.block_on(async {
            for file in open.into_values() {
                self.volume.release(&file).await.expect("releasing an open file");
            }
            self.volume.close().await.expect("closing the volume");
            self.cluster.volume(options).await
        });
    }

    fn model(&self) -> Model {
        Model::new(0o755, 0, 0).with_writes_by_the_opener()
    }
}

fn options(remember: bool) -> VolumeOptions {
    VolumeOptions {
        // Little enough that write-behind meets its bound.
        memory_bytes: 2 << 20,
        client_name: "property test".into(),
        remember,
        ..VolumeOptions::default()
    }
}

fn stat(attr: &Attr) -> Stat {
    let is_directory = attr.kind == FileKind::Directory;
    Stat {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        length: if is_directory { 0 } else { attr.length },
        mtime: Some(attr.mtime),
    }
}
