//! The operations of a volume, one file per family.

mod attrs;
mod behind;
pub(crate) mod dirs;
mod inspect;
mod layouts;
pub(crate) mod locks;
mod names;
mod paths;
pub(crate) mod space;
mod xattrs;

pub(crate) use behind::names_are_lost;
pub(crate) use names::open_mode;

use crate::file::FileState;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Attr, Error, ErrorKind, Ino, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::MetaAnswer;

/// An answer that does not fit its question.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::with(ErrorKind::Malformed, format!("the answer to {what} is of another kind"))
}

impl Volume {
    /// This mount has changed an inode without learning how it is now.
    pub(crate) fn forget_attr(&self, ino: Ino) {
        let now = self.now();
        self.inodes().forget_attr(ino, now);
        self.forget_listing(ino);
        if self.keeps_leases() {
            self.leases(ino).forget(&[ino], now);
        }
    }

    /// Takes attributes from a server into what this mount knows, and returns them with what this
    /// mount has not yet published on top.
    pub(crate) fn learn(&self, attributes: Attributes, asked: Duration) -> Result<Attr> {
        let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
        if let Some(later) = self.as_answered(attr.ino) {
            return Ok(later);
        }
        match self.inodes().learn(&attr, asked) {
            Some(file) => {
                let newest = file.learn(&attr, false, asked);
                self.drop_stale_pages(&file);
                Ok(newest)
            }
            None => Ok(Arc::unwrap_or_clone(attr)),
        }
    }

    /// What a kernel has of a file that is never recalled goes when we find that somebody else has changed it: our own
    /// times may hide his from it.
    fn drop_stale_pages(&self, file: &FileState) {
        let stale = {
            let mut core = file.core();
            std::mem::take(&mut core.stale_pages) && core.handles > 0
        };
        if let Some(believer) = self.believer().filter(|_| stale) {
            believer.forget_soon(file.ino());
        }
    }

    /// As [`Volume::learn`], of attributes that this mount has just changed, and nothing of the
    /// contents.
    pub(crate) fn learn_changed(&self, attributes: Attributes, asked: Duration) -> Result<Attr> {
        let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
        if let Some(file) = self.inodes().learn(&attr, asked) {
            return Ok(file.learn(&attr, true, asked));
        }
        self.learn_closed(&attr);
        Ok(Arc::unwrap_or_clone(attr))
    }

    /// The same of a file that is not open.
    fn learn_closed(&self, attr: &Attr) {
        self.inodes().changed(attr);
        match attr.nlink {
            0 => self.memory().kept().forget(attr.ino),
            _ => self.memory().kept().changed(attr),
        }
    }

    /// As [`Volume::entry`], of a `setattr`, with which this mount has changed something beside contents.
    pub(crate) fn changed_entry(&self, answer: MetaAnswer, asked: Duration) -> Result<Attr> {
        match answer {
            MetaAnswer::Entry(attributes) => self.learn_changed(attributes, asked),
            _ => Err(unexpected("setattr")),
        }
    }

    /// The kernel has forgotten an inode, because it is short of memory or was told to: nobody is
    /// likely to ask for its contents soon. What is known of names and attributes stays, as far as it is leased: that the
    /// kernel is short of memory shall cost no messages.
    pub fn let_go(&self, ino: Ino) {
        self.memory().kept().forget(ino);
    }

    /// The attributes of an answer to what was `asked`.
    pub(crate) fn entry(&self, answer: MetaAnswer, asked: Duration, what: &str) -> Result<Attr> {
        match answer {
            MetaAnswer::Entry(attributes) => self.learn(attributes, asked),
            _ => Err(unexpected(what)),
        }
    }
}

pub(crate) fn done(answer: &MetaAnswer, what: &str) -> Result<()> {
    match answer {
        MetaAnswer::Done(_) => Ok(()),
        _ => Err(unexpected(what)),
    }
}
