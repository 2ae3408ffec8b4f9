//! Where records are in the caches, for who changes them and may be outlived by the change.

use crate::cache::Commit;
use crate::core::Core;
use std::sync::Arc;

/// Places in the caches.
pub(crate) struct Places {
    /// Whose caches.
    pub core: Arc<Core>,
    /// Of inodes,
    pub inodes: Vec<u128>,
    /// of guard shards,
    pub shards: Vec<u128>,
    /// and of entries.
    pub entries: Vec<u128>,
}

impl Places {
    /// The caches know nothing of what is there.
    pub fn forget(&self, commit: Commit) {
        self.inodes.iter().for_each(|place| self.core.inodes.forget(*place, commit));
        self.shards.iter().for_each(|place| self.core.shards.forget(*place, commit));
        self.entries.iter().for_each(|place| self.core.entries.forget(*place, commit));
    }
}
