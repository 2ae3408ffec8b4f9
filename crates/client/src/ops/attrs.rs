//! Attributes.

use super::{done, names_are_lost};
use crate::file::OpenFile;
use crate::metrics::Op;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Attr, Consistency, Credentials, ErrorKind, FileKind, Ino, Result, SetAttr};
use strake_wire::message::meta::{self, Look, MetaOp};

fn is_stale(outcome: &Result<Attr>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::Stale)
}

impl Volume {
    /// Attributes of an inode, at most [`crate::VolumeOptions::attribute_age_ms`] old; changes made
    /// through this volume are in them at once.
    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        let _timer = self.count(Op::GetAttr);
        self.until_gone(ino).await?;
        if let Some(attr) = self.known_attr(ino) {
            self.metrics().attr_cache(true);
            return Ok(attr);
        }
        self.metrics().attr_cache(false);
        let look = Look { ino: ino.0, told: self.is_open(ino), ..Look::default() };
        let fetched = self.look(look).await;
        match self.inodes().get(ino).0 {
            // It was removed; here it may be open, or somebody's working directory. A file that is open tells by its handle.
            Some((attr, _)) if is_stale(&fetched) && attr.kind != FileKind::File => {
                Ok(Attr { nlink: 0, ..Arc::unwrap_or_clone(attr) })
            }
            _ => fetched,
        }
    }

    /// Attributes that need not be asked for.
    pub(crate) fn known_attr(&self, ino: Ino) -> Option<Attr> {
        let (known, file) = self.inodes().get(ino);
        let (attr, _) = known.filter(|known| self.is_fresh(known))?;
        Some(match file {
            Some(file) => file.merge(&attr),
            None => Arc::unwrap_or_clone(attr),
        })
    }

    /// For how long attributes that [`Volume::getattr`] has just returned may be kept: what is left
    /// of the attribute age.
    pub fn attribute_ttl(&self, ino: Ino) -> Duration {
        let full = Duration::from_millis(self.options().attribute_age_ms);
        match self.inodes().get(ino).0 {
            Some((attr, _)) if self.keeps_leases() => self.believable(ino, &attr),
            Some((_, learned)) => {
                full.saturating_sub(self.clock().monotonic().saturating_sub(learned))
            }
            None => Duration::ZERO,
        }
    }

    /// True if an inode is known to have neither extended attributes nor ACLs.
    pub(crate) fn has_no_xattrs(&self, ino: Ino) -> bool {
        let known = self.inodes().get(ino).0;
        known.is_some_and(|known| known.0.no_xattrs && self.is_fresh(&known))
    }

    /// Attributes of an open file of which nothing is ever leased, if they are not older than attributes may be: a
    /// kernel asks for them before each read.
    pub fn recent_attr(&self, file: &OpenFile) -> Option<Attr> {
        let core = file.state.core();
        let age = self.now().saturating_sub(core.learned);
        let recent = age < Duration::from_millis(self.options().attribute_age_ms);
        let parallel = core.attr.consistency() == Consistency::Parallel;
        (parallel && recent).then(|| core.merged(&core.attr))
    }

    /// True if what was learned of an inode then need not be asked for again.
    pub(crate) fn is_fresh(&self, (attr, learned): &(Arc<Attr>, Duration)) -> bool {
        // What is no file and is gone stays as it was, and the server knows nothing of it any more.
        if attr.kind != FileKind::File && attr.nlink == 0 {
            return true;
        }
        if self.keeps_leases() {
            return self.leases(attr.ino).covers(attr.ino, attr.version, self.now());
        }
        let age = self.clock().monotonic().saturating_sub(*learned);
        self.options().exclusive || age < Duration::from_millis(self.options().attribute_age_ms)
    }

    /// True if somebody has a file open here: a kernel asks how long it is before it reads, and a program before it writes
    /// at its end under a lock.
    fn is_open(&self, ino: Ino) -> bool {
        let file = self.inodes().file(ino).filter(|_| self.keeps_leases());
        file.is_some_and(|file| file.core().handles > 0)
    }

    /// Asks for attributes; `to_read`: what others hold back of the file is told first, and nothing is claimed any more.
    pub(crate) async fn fetch_attr(&self, ino: Ino, to_read: bool) -> Result<Attr> {
        self.look(Look { ino: ino.0, to_read, ..Look::default() }).await
    }

    pub(crate) async fn look(&self, look: Look) -> Result<Attr> {
        let asked = self.now();
        let answer = self.ask(&self.root_cred(), MetaOp::GetAttr(look)).await?;
        self.entry(answer, asked, "getattr")
    }

    /// Changes attributes. `handle` is the open file through which it is asked for, if any: a handle
    /// open for writing may set the length whatever the permission bits say.
    pub async fn setattr(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: Ino,
        change: SetAttr,
        handle: Option<&Arc<OpenFile>>,
    ) -> Result<Attr> {
        let _timer = self.count(Op::SetAttr);
        let file = self.inodes().file(ino);
        if let Some(held) = file.as_ref().and_then(|file| self.hold_back(cred, file, &change)) {
            return Ok(held);
        }
        let writable_handle = handle.is_some_and(|h| h.flags().write);
        let request = meta::SetAttr { ino: ino.0, change: (&change).into(), writable_handle };
        match file {
            None => {
                let attr = self.setattr_closed(cred, request).await?;
                // As where an open cuts: what this mount has told of the file meanwhile may have come after that.
                match change.length.is_some() && self.has_crossed(ino.0, attr.version) {
                    true => self.cut_again(cred, attr, &change, handle).await,
                    false => Ok(attr),
                }
            }
            Some(file) => Box::pin(self.setattr_open(cred, &file, request, handle)).await,
        }
    }

    /// Cuts a file once more that was cut by this change, with what a cut takes away. What else was changed then others may have
    /// changed since.
    pub(crate) async fn cut_again(
        self: &Arc<Self>,
        cred: &Credentials,
        cut: Attr,
        &SetAttr { length, drop_setid, .. }: &SetAttr,
        handle: Option<&Arc<OpenFile>>,
    ) -> Result<Attr> {
        let change = SetAttr { length, drop_setid, ..SetAttr::default() };
        // That it may be cut was said.
        let writable_handle = true;
        let request = meta::SetAttr { ino: cut.ino.0, change: (&change).into(), writable_handle };
        let again = match self.inodes().file(cut.ino) {
            None => self.setattr_closed(cred, request).await,
            Some(file) => Box::pin(self.setattr_open(cred, &file, request, handle)).await,
        };
        match is_stale(&again) {
            // It was removed meanwhile.
            true => Ok(cut),
            false => again,
        }
    }

    /// Changes attributes of what is not open here when it is asked for.
    async fn setattr_closed(&self, cred: &Credentials, request: meta::SetAttr) -> Result<Attr> {
        let asked = self.now();
        if request.change.length.is_some() {
            self.memory().kept().forget(Ino(request.ino));
            self.inodes().forget_seen(Ino(request.ino));
        }
        let answer = self.mutate(cred, MetaOp::SetAttr(request)).await?;
        self.changed_entry(answer, asked)
    }

    /// Makes a directory and its entry durable.
    pub async fn fsync_dir(&self, ino: Ino) -> Result<()> {
        let _timer = self.count(Op::Fsync);
        let op = MetaOp::Sync(meta::Inode { ino: ino.0 });
        match self.ask(&self.root_cred(), op).await {
            // Another mount has removed it, as in [`Volume::getattr`]: the server keeps none that is open.
            Err(error) if error.kind == ErrorKind::Stale => {}
            answer => done(&answer?, "sync")?,
        }
        match self.leases(ino).behind.take_lost(ino) {
            true => Err(names_are_lost()),
            false => Ok(()),
        }
    }
}
