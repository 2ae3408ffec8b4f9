//! The operations of a volume, one file per family.

mod attrs;
mod dirs;
mod layouts;
mod locks;
mod names;
mod paths;
pub(crate) mod space;
mod xattrs;

pub(crate) use names::open_mode;

use crate::volume::Volume;
use std::sync::Arc;
use strake_types::{Attr, Error, ErrorKind, Result};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::MetaAnswer;

/// An answer that does not fit its question.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::with(ErrorKind::Malformed, format!("the answer to {what} is of another kind"))
}

impl Volume {
    /// Takes attributes from a server into what this mount knows, and returns them with what this
    /// mount has not yet published on top.
    pub(crate) fn learn(&self, attributes: Attributes) -> Result<Attr> {
        let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
        let now = self.clock().monotonic();
        match self.inodes().learn(&attr, now) {
            Some(file) => Ok(file.learn(&attr, now)),
            None => Ok(Arc::unwrap_or_clone(attr)),
        }
    }

    pub(crate) fn entry(&self, answer: MetaAnswer, what: &str) -> Result<Attr> {
        match answer {
            MetaAnswer::Entry(attributes) => self.learn(attributes),
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
