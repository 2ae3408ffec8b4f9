//! Partial copies that nobody goes on with, because their source has changed.

use super::Job;
use super::partial::{is_marked, is_partial, is_partial_of};
use crate::place::{Directory, Name};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What was written within this time may be a copy that is under way.
const QUIET_S_MIN: i64 = 600;

/// The large files that were copied, by directory: its path on this machine, or its number in the one volume that all goes to.
pub(super) type Placed = BTreeMap<(PathBuf, u64), Vec<Name>>;

impl Job {
    /// Remembers that a large file has got its name.
    pub(super) fn place(&self, name: &Name) {
        let directory = match &name.directory {
            Directory::Local(path) => (path.clone(), 0),
            Directory::Remote(remote) => (PathBuf::new(), remote.ino.0),
        };
        self.placed.lock().entry(directory).or_default().push(name.clone());
    }

    /// Removes what interrupted copies of earlier sources have left beside the large files that were copied. What cannot be
    /// removed is in nobody's way.
    pub(super) async fn remove_stale(&self) {
        let placed = std::mem::take(&mut *self.placed.lock());
        for names in placed.values() {
            let Some(Name { directory, .. }) = names.first() else { continue };
            let Ok(partials) = directory.names(is_partial).await else { continue };
            for partial in partials {
                let is_ours = |name: &Name| is_partial_of(&partial.name, &name.name);
                if names.iter().any(is_ours) && is_at_rest(&partial).await {
                    let _left = partial.remove(false).await;
                }
            }
        }
    }
}

/// True if nobody writes to it.
async fn is_at_rest(partial: &Name) -> bool {
    let Ok(Some(info)) = partial.info().await else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    is_marked(&partial.name, info.mtime)
        || info.mtime.seconds.saturating_add(QUIET_S_MIN) < now.cast_signed()
}
