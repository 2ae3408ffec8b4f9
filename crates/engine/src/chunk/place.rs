//! Whether the directory of a target that is open is still where it was opened.
//!
//! All that a store does goes through what it has open, and works as ever when its directory is removed, moved or unmounted: that
//! nobody finds it any more is known at the next start, unless somebody looks.

use super::store::Store;
use std::sync::Weak;
use std::time::Duration;
use strake_base::disk::Place;

/// Why a target takes no writes whose directory is gone.
const REMOVED: &str = "its directory was removed";

/// The thread that looks, about as often as the store flushes. Nobody may wait for it: the way there may lead over other disks, one of
/// which may never answer. So it holds nothing of the store but the disk, unless there is news.
pub(super) fn watch(store: &Weak<Store>) {
    let Some(open) = store.upgrade() else { return };
    let (signal, disk, period) =
        (open.signal.clone(), open.disk.clone(), open.options.checkpoint_ms_max);
    drop(open);
    let (period, mut known) = (Duration::from_millis(period), Place::Same);
    loop {
        {
            let mut asked = signal.state.lock();
            signal.changed.wait_while_for(&mut asked, |asked| !asked.stop, period);
            if asked.stop {
                return;
            }
        }
        // Where nothing is said, it is as it was.
        match disk.place() {
            Ok(place) if place != known => known = place,
            _ => continue,
        }
        let Some(store) = store.upgrade() else { return };
        store.note_place(known);
    }
}

impl Store {
    /// Notes where the directory is now, which is new, and logs it. One that was removed takes nothing more: all of it would be gone with this
    /// process, and other copies go on. One that was moved or unmounted goes on: nothing is lost once it is back, and to refuse would
    /// stop everybody, and take copies out of their groups that have everything.
    fn note_place(&self, place: Place) {
        let target_dir = &self.target;
        match place {
            Place::Same => tracing::warn!(%target_dir, "the directory is where it was again"),
            Place::Elsewhere => tracing::error!(
                %target_dir,
                "the directory was moved, unmounted or covered by another one: what is written goes on to lie in it, and no start \
                 finds it there; put it back"
            ),
            Place::Removed => {
                tracing::error!(
                    %target_dir,
                    "the directory was removed: what is in it is gone when this server stops"
                );
                let _told = self.poisoned_by(REMOVED.to_owned());
            }
        }
        *self.place.lock() = place;
    }
}
