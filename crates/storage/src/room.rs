//! When a target is short of room: what it has left is kept for what primaries have under way to it,
//! which are told so with every answer and send nothing new.

use parking_lot::Mutex;
use std::time::Duration;
use strake_engine::chunk::ChunkStore;
use tokio::time::Instant;

/// Most bytes kept.
const MARGIN_MAX: u64 = 64 << 20;
/// Of a small target, this part is kept.
const MARGIN_PART: u64 = 16;
/// What reserves nobody's bytes, as a comparison does, leaves so often what is kept.
const SPARE_MARGINS: u64 = 4;
/// Longest time for which the store is not asked, for others share its disk.
const LOOK: Duration = Duration::from_secs(1);

/// How much room a target has, as far as it has looked.
#[derive(Default)]
pub(crate) struct Room(Mutex<Option<Look>>);

/// What the store said, and what was written since.
struct Look {
    at: Instant,
    free: u64,
    margin: u64,
    written: u64,
}

impl Look {
    fn at(store: &ChunkStore) -> Self {
        let stat = store.stat();
        let margin = (stat.total_bytes / MARGIN_PART).min(MARGIN_MAX);
        Self { at: Instant::now(), free: stat.free_bytes, margin, written: 0 }
    }

    /// True while what it said must still be right: room was far more than has been written since.
    fn holds(&self) -> bool {
        self.at.elapsed() < LOOK && self.free.saturating_sub(self.written) > 2 * self.margin
    }

    /// True if more than what is kept, so many times, is left when so many bytes are gone.
    fn spares(&self, bytes: u64, margins: u64) -> bool {
        let left = self.free.saturating_sub(self.written);
        left > bytes.saturating_add(margins * self.margin)
    }
}

impl Room {
    /// So many bytes were written, or reserved.
    pub fn note(&self, bytes: u64) {
        if let Some(look) = self.0.lock().as_mut() {
            look.written += bytes;
        }
    }

    /// True while the target takes nothing new from primaries.
    pub fn is_short(&self, store: &ChunkStore) -> bool {
        // Where little is left for its extent map, however much it had a moment ago.
        if !store.offers_room() {
            return true;
        }
        let mut look = self.0.lock();
        if !look.as_ref().is_some_and(Look::holds) {
            *look = Some(Look::at(store));
        }
        look.as_ref().is_some_and(|look| look.free <= look.margin)
    }

    /// True unless far more than is kept is left when so many bytes are gone.
    pub fn is_tight(&self, store: &ChunkStore, bytes: u64) -> bool {
        !self.spares(store, bytes, SPARE_MARGINS)
    }

    /// True if what is kept is left when so many bytes are gone.
    pub fn has_beside_margin(&self, store: &ChunkStore, bytes: u64) -> bool {
        self.spares(store, bytes, 1)
    }

    fn spares(&self, store: &ChunkStore, bytes: u64, margins: u64) -> bool {
        let mut look = self.0.lock();
        if !look.as_ref().is_some_and(|look| look.holds() && look.spares(bytes, margins)) {
            *look = Some(Look::at(store));
        }
        look.as_ref().is_some_and(|look| look.spares(bytes, margins))
    }
}
