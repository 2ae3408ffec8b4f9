//! Room on the disk for the extent map: data takes all else.
//!
//! What the next checkpoint may write to the map is counted with each edit, as about the most that it can be, and so much is
//! kept back on the disk, more while more has changed. Where the disk has no more, a checkpoint comes before the edit.
//! The map of a full disk may still become larger, by clones, or by writes that leave its runs in pieces, and takes what is kept back;
//! so what is new is refused when half of that is gone, and the rest is for what was promised, for what other copies have already, and
//! for what frees room.

use super::map::Map;
use super::record::Edit;
use crate::reserve::Reserve;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_base::disk::Disk;

/// Eighths of what is always kept back that must be left: for the target to say that it has room. Others then have time
/// to hear of it before what they have under way is refused.
pub(super) const OFFERED: u64 = 6;
/// For an edit that makes the map larger,
pub(super) const FOR_GROWTH: u64 = 4;
/// for one that does so little, or for which room was reserved: so much more for it to be promised to others,
pub(super) const PROMISED: u64 = 3;
/// and so much when it is made;
pub(super) const FOR_PROMISED: u64 = 2;
/// and for a punch, which frees room but may make two runs of one, or for what other copies have already, without which this one
/// would have to leave, or could not be made equal.
pub(super) const FOR_LITTLE: u64 = 1;

/// What an edit is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Something new.
    New,
    /// What other copies have already.
    Copy,
    /// To free room.
    Cut,
}

/// Bytes that a checkpoint writes to the map, about at most, for a chunk that has changed: the pages above its leaves,
const CHUNK_BYTES: u64 = 12 << 10;
/// and for each of its leaves: the page that it is in, which it may divide.
const LEAF_BYTES: u64 = 8 << 10;

/// Given up at once, as one part in so many of what is always kept back,
const RELEASE_PART: u64 = 32;
/// and at least so much.
const RELEASE_BYTES_MIN: u64 = 64 << 10;

/// Bytes that an edit adds, about at most, to what the next checkpoint writes to the map.
pub(super) fn bytes_of(map: &Map, edit: &Edit) -> u64 {
    let chunk = if map.queued { 0 } else { CHUNK_BYTES };
    chunk + map.newly_dirty(edit) * LEAF_BYTES
}

/// Room kept back for the extent map.
pub(super) struct Room {
    reserve: Reserve,
    /// Bytes that are always kept back.
    wanted: u64,
    /// The fewest eighths for which the disk had no room, since there may be more last: it is not asked for each write that is refused.
    refused: AtomicU64,
    /// Something was refused since all was kept back last.
    refuses: AtomicBool,
}

impl Room {
    /// Keeps so many bytes back, as far as the disk has them.
    pub(super) fn open(disk: &dyn Disk, wanted: u64) -> io::Result<Self> {
        let (reserve, refused) = (Reserve::open(disk, wanted)?, AtomicU64::new(u64::MAX));
        Ok(Self { reserve, wanted, refused, refuses: AtomicBool::new(false) })
    }

    /// Keeps back what a checkpoint needs that writes so many bytes; false if the disk has not so much.
    pub(super) fn keep(&self, map_bytes: u64) -> bool {
        let kept = self.reserve.bytes();
        // The rest is for the next checkpoints: what this one writes may stay. It falls by little at a time: others hear that the
        // target is short before it refuses.
        let usable = match self.reserve.is_marked_short() {
            true => (kept / 2).min(self.wanted / 8),
            false => kept.saturating_sub(self.spared()),
        };
        map_bytes <= usable || self.reserve.fill(self.needed(map_bytes))
    }

    /// Gives back what no checkpoint needs that writes so many bytes, or gets what is missing. Nobody relies on more.
    pub(super) fn settle(&self, map_bytes: u64) {
        self.refused.store(u64::MAX, Ordering::Relaxed);
        self.reserve.shrink(self.needed(map_bytes));
        if self.reserve.is_marked_short() {
            self.refill();
        }
    }

    /// Bytes kept back for a checkpoint that writes so many.
    fn needed(&self, map_bytes: u64) -> u64 {
        let piece = self.wanted.max(1);
        (map_bytes + self.spared()).next_multiple_of(piece).max(self.wanted)
    }

    /// Bytes that no checkpoint may need while all is kept back.
    fn spared(&self) -> u64 {
        self.wanted - self.wanted / 4
    }

    /// True if more is kept back than always is: a checkpoint gives it to the disk.
    pub(super) fn keeps_more(&self) -> bool {
        self.reserve.bytes() > self.wanted
    }

    /// True if so many eighths of what is always kept back are left. Waits for no disk.
    pub(super) fn has_left(&self, eighths: u64) -> bool {
        !self.reserve.is_marked_short() || self.reserve.bytes() >= self.wanted * eighths / 8
    }

    /// True if nothing of it is left. Waits for no disk.
    pub(super) fn is_used_up(&self) -> bool {
        self.reserve.bytes() == 0
    }

    /// As [`Room::has_left`], after a try to get them: `anew`, or once between two checkpoints.
    pub(super) fn may_grow(&self, eighths: u64, anew: bool) -> bool {
        if self.has_left(eighths) {
            return true;
        }
        if !anew && eighths >= self.refused.load(Ordering::Relaxed) {
            return false;
        }
        let filled = self.reserve.fill(self.wanted * eighths / 8);
        if !filled {
            self.refused.fetch_min(eighths, Ordering::Relaxed);
        }
        filled
    }

    /// Keeps room back again that was used up, as far as the disk has it; false if that is not all.
    pub(super) fn refill(&self) -> bool {
        let piece = |_| {
            let upto = self.reserve.bytes() + self.piece();
            self.reserve.fill(upto.min(self.wanted))
        };
        // Pieces, too: what comes back a little at a time would go to others.
        let is_whole = self.reserve.refill() || (0..RELEASE_PART).all(piece);
        if is_whole {
            self.refuses.store(false, Ordering::Relaxed);
        }
        is_whole
    }

    /// Something is refused: true if it is the first since all was kept back.
    pub(super) fn begins_to_refuse(&self) -> bool {
        !self.refuses.swap(true, Ordering::Relaxed)
    }

    /// Gives a piece up to what is written now; false if nothing is left.
    pub(super) fn release(&self) -> bool {
        self.reserve.release(self.piece())
    }

    fn piece(&self) -> u64 {
        (self.wanted / RELEASE_PART).max(RELEASE_BYTES_MIN)
    }
}
