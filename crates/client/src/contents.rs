//! What tells whether a file is as this mount has known it: as long as it is, what is cached of it is true.

use strake_types::{Attr, Timestamp};

/// A file's contents at some moment, as far as its attributes tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    /// One step for each change, of whatever: nobody can set it back.
    version: u64,
    length: u64,
    mtime: Timestamp,
}

impl Contents {
    /// Those of a file with these attributes.
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { version: attr.version, length: attr.length, mtime: attr.mtime }
    }

    /// True if length and mtime are the same. Somebody else may have changed the file and set them again.
    pub(crate) fn look_like(&self, attr: &Attr) -> bool {
        (self.length, self.mtime) == (attr.length, attr.mtime)
    }

    /// This mount has changed a closed file beside its contents, with this outcome: with one step nobody else was in between.
    pub(crate) fn changed(&mut self, attr: &Attr) {
        if self.version + 1 == attr.version {
            *self = Self::of(attr);
        }
    }

    /// All that has changed from one version to another is known to be ours.
    pub(crate) fn follow(&mut self, from: u64, to: u64) {
        if self.version == from {
            self.version = to;
        }
    }

    /// With length and mtime as a change of this mount has made them.
    pub(crate) fn written(self, attr: &Attr) -> Self {
        Self { version: self.version, ..Self::of(attr) }
    }
}
