//! Whether the directory of a store that is open is still where it was opened.
//!
//! All that a store does goes through what it has open, and works as ever when its directory is removed, moved or unmounted: that
//! nobody finds it any more is known at the next start, unless somebody looks.

use parking_lot::Mutex;
use strake_base::disk::{Disk, Place};

/// What a look said last.
#[derive(Default)]
pub(crate) struct Whereabouts(Mutex<Place>);

impl Whereabouts {
    /// Looks, and logs what has changed since the last look. May wait for the disk. Where that says nothing, it is as it was.
    pub fn look(&self, disk: &dyn Disk) -> Option<Place> {
        let place = disk.place().ok()?;
        if std::mem::replace(&mut *self.0.lock(), place) != place {
            let directory = disk.path();
            match place {
                Place::Same => tracing::warn!(%directory, "the directory is where it was again"),
                Place::Elsewhere => tracing::error!(
                    %directory,
                    "the directory was moved, unmounted or covered by another one: what is written goes on to lie in it, and no start \
                     finds it there; put it back"
                ),
                Place::Removed => tracing::error!(
                    %directory,
                    "the directory was removed: what is in it is gone when this server stops"
                ),
            }
        }
        Some(place)
    }

    /// True if it was not where it had been when it was looked at last.
    pub fn is_displaced(&self) -> bool {
        *self.0.lock() != Place::Same
    }
}
