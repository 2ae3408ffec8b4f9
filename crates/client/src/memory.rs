//! The bound on what a volume holds in memory.
//!
//! Half is for data that is written and not yet acknowledged by a target, half for data read ahead.
//! A writer that finds its half full waits in line (first come, first served) until a target has
//! acknowledged enough; a reader that finds its half full reads no further ahead. What neither needs
//! holds [`Kept`] bytes, which give way at once.

use crate::kept::Kept;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a volume holds at most, where nothing else is said.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// On a small machine it is the machine's memory divided by this.
const MACHINE_SHARE: u64 = 8;
/// The least that makes progress possible: one large chunk in either direction.
const HALF_BYTES_MIN: usize = 16 << 20;

/// What a volume holds at most where nothing else is said: 256 MiB, or an eighth of the machine's
/// memory if that is less.
pub fn default_bytes() -> u64 {
    MEMORY_BYTES_DEFAULT.min(strake_base::process::machine_memory_bytes() / MACHINE_SHARE)
}

/// When so much has been freed, it is worth while to give it back to the machine.
const FREED_BYTES_MIN: usize = 32 << 20;

/// It must have stayed free for so many looks: what is freed between two files is soon needed again.
const FREED_LOOKS_MIN: usize = 5;

/// Room that is taken; given back when dropped.
pub(crate) type Room = OwnedSemaphorePermit;

/// The bound of one volume.
pub(crate) struct Memory {
    dirty: Arc<Semaphore>,
    ahead: Arc<Semaphore>,
    kept: Arc<Kept>,
    half_bytes: usize,
    /// The most that was held since memory was last given back to the machine.
    most_held: AtomicUsize,
    /// Looks in a row that found much less held.
    low_looks: AtomicUsize,
}

impl Memory {
    /// A bound of `bytes` in all.
    pub(crate) fn new(bytes: u64) -> Self {
        let half_bytes = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        let half_bytes = half_bytes.clamp(HALF_BYTES_MIN, Semaphore::MAX_PERMITS);
        Self {
            dirty: Arc::new(Semaphore::new(half_bytes)),
            ahead: Arc::new(Semaphore::new(half_bytes)),
            kept: Arc::default(),
            half_bytes,
            most_held: AtomicUsize::new(0),
            low_looks: AtomicUsize::new(0),
        }
    }

    /// Room for a write, if there is some at once.
    pub(crate) fn try_dirty(&self, bytes: usize) -> Option<Room> {
        self.made_way(Arc::clone(&self.dirty).try_acquire_many_owned(self.share(bytes)).ok())
    }

    /// Room for a write; waits in line.
    pub(crate) async fn dirty(&self, bytes: usize) -> Option<Room> {
        self.made_way(Arc::clone(&self.dirty).acquire_many_owned(self.share(bytes)).await.ok())
    }

    /// Room for reading ahead, if there is some.
    pub(crate) fn try_ahead(&self, bytes: usize) -> Option<Room> {
        self.made_way(Arc::clone(&self.ahead).try_acquire_many_owned(self.share(bytes)).ok())
    }

    /// Acknowledged bytes of all files.
    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Kept bytes shrink to what is left of the bound.
    pub(crate) fn make_way(&self) {
        let free = self.dirty.available_permits() + self.ahead.available_permits();
        self.kept.shrink_to(free);
    }

    /// True if much less has been held for a while than before: what was freed is to be given back.
    /// To be asked at regular times.
    pub(crate) fn has_freed_much(&self) -> bool {
        let free = self.dirty.available_permits() + self.ahead.available_permits();
        let held = (2 * self.half_bytes).saturating_sub(free) + self.kept.bytes();
        let most = self.most_held.fetch_max(held, Ordering::Relaxed);
        if most < held + FREED_BYTES_MIN {
            self.low_looks.store(0, Ordering::Relaxed);
            return false;
        }
        let much = self.low_looks.fetch_add(1, Ordering::Relaxed) + 1 >= FREED_LOOKS_MIN;
        if much {
            self.low_looks.store(0, Ordering::Relaxed);
            self.most_held.store(held, Ordering::Relaxed);
        }
        much
    }

    fn made_way(&self, room: Option<Room>) -> Option<Room> {
        self.make_way();
        room
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_when_much_of_it_has_been_free_for_a_while() {
        let memory = Memory::new(256 << 20);
        let looks = |count: usize| (0..count).filter(|_| memory.has_freed_much()).count();
        let room = memory.try_dirty(40 << 20);
        assert_eq!(looks(10), 0, "nothing is free");
        drop(room);
        assert_eq!(looks(FREED_LOOKS_MIN - 1), 0, "not long enough");
        let room = memory.try_dirty(40 << 20);
        assert_eq!(looks(1), 0);
        drop(room);
        assert_eq!(looks(FREED_LOOKS_MIN), 1);
        assert_eq!(looks(10), 0, "given back already");
        drop(memory.try_dirty(1 << 20));
        assert_eq!(looks(10), 0, "too little");
    }
}
