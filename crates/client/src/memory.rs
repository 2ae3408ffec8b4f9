//! The bound on what a volume holds in memory.
//!
//! Half is for data that is written and not yet acknowledged by a target, half for data read ahead.
//! A writer that finds its half full waits in line (first come, first served) until a target has
//! acknowledged enough; a reader that finds its half full reads no further ahead.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a volume holds at most, where nothing else is said.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// The least that makes progress possible: one large chunk in either direction.
const HALF_BYTES_MIN: usize = 16 << 20;

/// Room that is taken; given back when dropped.
pub(crate) type Room = OwnedSemaphorePermit;

/// The bound of one volume.
pub(crate) struct Memory {
    dirty: Arc<Semaphore>,
    ahead: Arc<Semaphore>,
    half_bytes: usize,
}

impl Memory {
    /// A bound of `bytes` in all.
    pub(crate) fn new(bytes: u64) -> Self {
        let half_bytes = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        let half_bytes = half_bytes.clamp(HALF_BYTES_MIN, Semaphore::MAX_PERMITS);
        Self {
            dirty: Arc::new(Semaphore::new(half_bytes)),
            ahead: Arc::new(Semaphore::new(half_bytes)),
            half_bytes,
        }
    }

    /// Room for a write, if there is some at once.
    pub(crate) fn try_dirty(&self, bytes: usize) -> Option<Room> {
        Arc::clone(&self.dirty).try_acquire_many_owned(self.share(bytes)).ok()
    }

    /// Room for a write; waits in line.
    pub(crate) async fn dirty(&self, bytes: usize) -> Option<Room> {
        Arc::clone(&self.dirty).acquire_many_owned(self.share(bytes)).await.ok()
    }

    /// Room for reading ahead, if there is some.
    pub(crate) fn try_ahead(&self, bytes: usize) -> Option<Room> {
        Arc::clone(&self.ahead).try_acquire_many_owned(self.share(bytes)).ok()
    }

    /// Unsent and unacknowledged bytes now.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.half_bytes.saturating_sub(self.dirty.available_permits())
    }

    /// No request may ask for more than there is, or it would wait for ever.
    fn share(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.half_bytes / 2)).unwrap_or(u32::MAX)
    }
}
