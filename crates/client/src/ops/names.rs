//! Operations on names: lookup, make, create, link, unlink, rename, readlink.

use super::unexpected;
use crate::api::{NewFile, OpenFlags, RenameFlags};
use crate::file::{OpenFile, Opening};
use crate::metrics::Op;
use crate::volume::Volume;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use strake_types::limits::NAME_BYTES_MAX;
use strake_types::{Attr, Credentials, Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

fn at(parent: Ino, name: Bytes) -> Result<meta::Name> {
    match name.len() {
        0 => Err(Error::new(ErrorKind::NotFound)),
        len if len > NAME_BYTES_MAX => Err(Error::new(ErrorKind::NameTooLong)),
        _ => Ok(meta::Name { parent: parent.0, name }),
    }
}

pub(crate) fn open_mode(flags: OpenFlags, volume: &Volume) -> meta::OpenMode {
    // The kernel's write-back cache reads pages through handles opened for writing only.
    let read = flags.read || (volume.options().exclusive && flags.write);
    meta::OpenMode { read, write: flags.write, truncate: flags.truncate }
}

/// How often a file is made that has gone from another share since its name was found.
const GONE_TRIES: u32 = 8;

fn gone_elsewhere() -> Error {
    Error::with(ErrorKind::Stale, "the file that the name led to is gone from another share")
}

/// Attributes by an inode's own share; none if it is gone by now.
fn still_there(asked: Result<Attr>) -> Result<Option<Attr>> {
    match asked {
        Err(error) if error.kind.is_gone() => Ok(None),
        asked => asked.map(Some),
    }
}

impl Volume {
    /// The inode that a name in a directory stands for. `.` and `..` work.
    pub async fn lookup(&self, cred: &Credentials, parent: Ino, name: Bytes) -> Result<Attr> {
        let _timer = self.count(Op::Lookup);
        let (at, asked) = (at(parent, name)?, self.now());
        // Where the server checks permissions it is asked each time.
        if cred.checked && self.keeps_leases() {
            match self.leases(parent).name(parent, &at.name, asked) {
                Some(None) => return Err(Error::new(ErrorKind::NotFound)),
                Some(Some(ino)) => {
                    self.until_gone(ino).await?;
                    if let Some(attr) = self.known_attr(ino) {
                        return Ok(attr);
                    }
                    // The share of the name would only say that it is in another one.
                    if !self.are_together(parent, ino)
                        && let Some(attr) =
                            still_there(Box::pin(self.fetch_attr(ino, false)).await)?
                    {
                        return Ok(attr);
                    }
                }
                None => {}
            }
        }
        match self.ask(cred, MetaOp::Lookup(at)).await? {
            MetaAnswer::Missing(_) => Err(Error::new(ErrorKind::NotFound)),
            answer => {
                let attr = self.entry(answer, asked, "lookup")?;
                let leased = !self.keeps_leases() || self.are_together(parent, attr.ino);
                // Only its own share leases it. If it is gone by now, it was there when it was looked up.
                match leased {
                    true => Ok(attr),
                    false => {
                        let told = Box::pin(self.fetch_attr(attr.ino, false)).await;
                        Ok(still_there(told)?.unwrap_or(attr))
                    }
                }
            }
        }
    }

    /// As [`Volume::lookup`], by the server, which has just said something else of the name than was known here.
    pub async fn lookup_anew(&self, cred: &Credentials, parent: Ino, name: Bytes) -> Result<Attr> {
        self.forget_attr(parent);
        self.lookup(cred, parent, name).await
    }

    /// Makes a file of any kind under a new name.
    pub async fn make(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        new: NewFile,
    ) -> Result<Attr> {
        let _timer = self.count(Op::Make);
        let create = meta::Create {
            at: at(parent, name)?,
            kind: new.kind as u32,
            mode: new.mode,
            umask: new.umask,
            rdev: new.rdev,
            target: new.target,
            open: None,
            exclusive: true,
            template: None,
        };
        let asked = self.now();
        match self.mutate(cred, MetaOp::Create(create)).await? {
            MetaAnswer::Created(created) => {
                self.learn_time(parent, &created.attr, asked);
                self.learn_directory(parent, created.parent, asked);
                self.learn(created.attr, asked)
            }
            _ => Err(unexpected("create")),
        }
    }

    /// Opens a regular file by its name, making it if it is missing. The last value is true if it
    /// was made.
    pub async fn create(
        self: &Arc<Self>,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        mode: u32,
        umask: u32,
        flags: OpenFlags,
    ) -> Result<(Attr, Arc<OpenFile>, bool)> {
        let _timer = self.count(Op::Create);
        let at = at(parent, name)?;
        for _ in 0..GONE_TRIES {
            let created = self.create_at(cred, at.clone(), mode, umask, flags).await?;
            if let Some(created) = created {
                return Ok(created);
            }
        }
        Err(gone_elsewhere())
    }

    /// Opens a new regular file that has no name (O_TMPFILE).
    pub async fn tmpfile(
        self: &Arc<Self>,
        cred: &Credentials,
        directory: Ino,
        mode: u32,
        umask: u32,
        flags: OpenFlags,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        let _timer = self.count(Op::Create);
        let at = meta::Name { parent: directory.0, name: Bytes::new() };
        let created = self.create_at(cred, at, mode, umask, flags).await?;
        created.map(|(attr, file, _)| (attr, file)).ok_or_else(gone_elsewhere)
    }

    /// `None`: the name led to a file of another share, which is gone by now, and with it the name.
    async fn create_at(
        self: &Arc<Self>,
        cred: &Credentials,
        at: meta::Name,
        mode: u32,
        umask: u32,
        flags: OpenFlags,
    ) -> Result<Option<(Attr, Arc<OpenFile>, bool)>> {
        self.check_open_files()?;
        let parent = Ino(at.parent);
        let create = meta::Create {
            at,
            kind: FileKind::File as u32,
            mode,
            umask,
            rdev: 0,
            target: Bytes::new(),
            open: Some(open_mode(flags, self)),
            exclusive: flags.exclusive,
            template: None,
        };
        let asked = self.now();
        let said = self.mutate_as(cred, MetaOp::Create(create)).await?;
        let MetaAnswer::Created(created) = said.answer else { return Err(unexpected("create")) };
        if created.created {
            self.learn_time(parent, &created.attr, asked);
        }
        self.learn_directory(parent, created.parent, asked);
        let ino = Ino(created.attr.ino);
        if created.opened.is_none() && !self.are_together(parent, ino) {
            // Its name is here and the file is in another share.
            return match Box::pin(self.open(cred, ino, flags)).await {
                Err(error) if error.kind == ErrorKind::Stale => Ok(None),
                file => file.map(|file| Some((file.attr(), file, false))),
            };
        }
        let opened = created.opened.ok_or_else(|| unexpected("create with open"))?;
        let (incarnation, told_cuts) = (said.incarnation, said.told_cuts);
        let created = created.created;
        let is_cut = !self.has_crossed(opened.attr.ino, opened.attr.version);
        let told = Opening { flags, opened, created, asked, incarnation, told_cuts };
        let file = self.opened(cred, told).await?;
        if flags.truncate && !created {
            self.cut_in_order(cred, &file, is_cut).await?;
        }
        Ok(Some((file.attr(), file, created)))
    }

    /// Gives a file a further name.
    pub async fn link(
        &self,
        cred: &Credentials,
        ino: Ino,
        parent: Ino,
        name: Bytes,
    ) -> Result<Attr> {
        let _timer = self.count(Op::Link);
        let link = meta::Link { ino: ino.0, to: at(parent, name)? };
        let asked = self.now();
        let answer = self.mutate(cred, MetaOp::Link(link)).await?;
        self.named(answer, parent, asked, "link")
    }

    /// Removes a name of anything but a directory. The inode as it is after it: with nlink 0 it is
    /// gone, or lives on until its last handle is released.
    pub async fn unlink(&self, cred: &Credentials, parent: Ino, name: Bytes) -> Result<Attr> {
        let _timer = self.count(Op::Unlink);
        self.remove(cred, parent, name, false).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, cred: &Credentials, parent: Ino, name: Bytes) -> Result<Attr> {
        let _timer = self.count(Op::Rmdir);
        self.remove(cred, parent, name, true).await
    }

    async fn remove(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        directory: bool,
    ) -> Result<Attr> {
        self.report_close_of(parent, &name);
        let unlink = meta::Unlink { at: at(parent, name)?, directory };
        if let Some(attr) = self.remove_behind(cred, &unlink) {
            return Ok(attr);
        }
        let asked = self.now();
        let answer = self.mutate(cred, MetaOp::Unlink(unlink)).await?;
        let attr = self.named(answer, parent, asked, "unlink")?;
        self.forget_nameless(&attr);
        Ok(attr)
    }

    /// Moves a name. What was moved, and what was replaced or exchanged if anything.
    pub async fn rename(
        &self,
        cred: &Credentials,
        parent: Ino,
        name: Bytes,
        new_parent: Ino,
        new_name: Bytes,
        flags: RenameFlags,
    ) -> Result<(Attr, Option<Attr>)> {
        let _timer = self.count(Op::Rename);
        if !flags.exchange {
            self.report_close_of(new_parent, &new_name);
        }
        let rename = meta::Rename {
            from: at(parent, name)?,
            // Checked by the server, which first looks whether there is anything to rename.
            to: meta::Name { parent: new_parent.0, name: new_name },
            no_replace: flags.no_replace,
            exchange: flags.exchange,
        };
        let carry = || {
            self.carry_moments(parent, new_parent);
            if flags.exchange {
                self.carry_moments(new_parent, parent);
            }
        };
        // Before anybody else can change it there; and what was still told while it was under way.
        carry();
        if let Some(renamed) = self.rename_behind(cred, &rename) {
            carry();
            return Ok(renamed);
        }
        let asked = self.now();
        let answer = self.mutate(cred, MetaOp::Rename(rename)).await;
        carry();
        let MetaAnswer::Renamed(renamed) = answer? else { return Err(unexpected("rename")) };
        // Two names of one file: nothing was changed.
        if renamed.other.as_ref().is_none_or(|other| other.ino != renamed.moved.ino) {
            self.learn_time(parent, &renamed.moved, asked);
        }
        self.learn_directory(parent, renamed.parent, asked);
        if new_parent != parent {
            self.learn_directory(new_parent, renamed.new_parent, asked);
        }
        let other = renamed.other.map(|other| self.learn_changed(other, asked)).transpose()?;
        other.iter().for_each(|other| self.forget_nameless(other));
        Ok((self.learn_changed(renamed.moved, asked)?, other))
    }

    /// Nobody can open a file again whose last name is gone.
    pub(super) fn forget_nameless(&self, attr: &Attr) {
        if attr.nlink == 0 {
            self.report_close(attr.ino);
        }
    }

    /// The answer to a change of a name in `parent`: the inode.
    fn named(&self, answer: MetaAnswer, parent: Ino, asked: Duration, what: &str) -> Result<Attr> {
        let MetaAnswer::Named(named) = answer else { return Err(unexpected(what)) };
        self.learn_time(parent, &named.attr, asked);
        self.learn_directory(parent, named.parent, asked);
        self.learn_changed(named.attr, asked)
    }

    /// Remembers a directory as an answer shows it after a change of its names. What comes next in
    /// it asks for its attributes, and mostly soon.
    fn learn_directory(&self, directory: Ino, after: Option<Attributes>, asked: Duration) {
        if after.and_then(|after| self.learn(after, asked).ok()).is_none() {
            self.forget_attr(directory);
        }
    }

    /// An inode was changed in its server's time. Not that of the directory: it may be of a change before.
    fn learn_time(&self, directory: Ino, changed: &Attributes, asked: Duration) {
        self.leases(directory).behind.learn_time(changed.ctime.into(), asked, self.now());
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, cred: &Credentials, ino: Ino) -> Result<Bytes> {
        let _timer = self.count(Op::ReadLink);
        match self.ask(cred, MetaOp::ReadLink(meta::Inode { ino: ino.0 })).await? {
            MetaAnswer::Bytes(target) => Ok(target),
            _ => Err(unexpected("readlink")),
        }
    }
}
