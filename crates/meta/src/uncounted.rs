//! Files of which clients' words do not say how much they occupy: they wait to be counted on their targets.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use strake_types::Ino;

/// Files that wait, at most. What is wrong of others `strake fsck` finds.
const FILES_MAX: usize = 65_536;

/// The files of a volume that wait.
#[derive(Default)]
pub(crate) struct Uncounted(Mutex<BTreeSet<Ino>>);

impl Uncounted {
    /// A file is to be counted.
    pub fn note(&self, ino: Ino) {
        let mut files = self.0.lock();
        if files.len() < FILES_MAX {
            files.insert(ino);
        }
    }

    /// It is counted. The caller holds its lock, under which others note it.
    pub fn forget(&self, ino: Ino) {
        self.0.lock().remove(&ino);
    }

    /// True if a file waits.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.lock().contains(&ino)
    }

    /// All that wait.
    pub fn all(&self) -> Vec<Ino> {
        self.0.lock().iter().copied().collect()
    }
}
