//! Room kept back on the disk, so that what frees room can be carried out when there is none.
//!
//! It is a file that holds nothing. When the journal or a checkpoint meets a full disk, a piece of
//! it is given up and taken at once. While it is not whole the store calls itself full
//! ([`Kv::check_room`](super::super::Kv::check_room)): its callers then write only what frees room.

use super::journal::is_full;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_base::disk::{Disk, DiskFile};

const FILE: &str = "reserve";
/// Most bytes kept back.
const BYTES_MAX: u64 = 32 << 20;
/// Of a small disk, this part is kept back.
const PART_OF_DISK: u64 = 64;

/// Room kept back.
pub struct Reserve {
    file: Arc<dyn DiskFile>,
    /// Bytes kept back now.
    bytes: Mutex<u64>,
    wanted: u64,
    /// Fewer than wanted are kept back.
    short: AtomicBool,
}

impl Reserve {
    /// Opens the reserve on `disk` and fills it as far as there is room.
    pub fn open(disk: &dyn Disk) -> io::Result<Self> {
        let file = disk.open(FILE, true)?;
        let wanted = (disk.space()?.0 / PART_OF_DISK).min(BYTES_MAX);
        let bytes = Mutex::new(file.len()?);
        let reserve = Self { file, bytes, wanted, short: AtomicBool::new(true) };
        reserve.refill();
        Ok(reserve)
    }

    /// True if it is not whole, and the disk has no room to fill it.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) && !self.refill()
    }

    /// Fills it; false if the disk has no room for all of it.
    pub fn refill(&self) -> bool {
        let mut bytes = self.bytes.lock();
        if *bytes < self.wanted {
            match self.file.allocate(0, self.wanted) {
                Ok(()) => *bytes = self.wanted,
                Err(error) if is_full(&error) => {
                    // Some file systems keep what they had got before they found no more.
                    let _it_is_tried_again_soon = self.file.set_len(*bytes);
                    return false;
                }
                // The file system cannot keep room back.
                Err(error) => tracing::debug!(%error, "the metadata store has no reserve"),
            }
        }
        self.short.store(false, Ordering::Relaxed);
        true
    }

    /// Gives up `most` bytes of it, or what there is; false if that is nothing.
    pub fn release(&self, most: u64) -> bool {
        let mut bytes = self.bytes.lock();
        if *bytes == 0 {
            return false;
        }
        let rest = bytes.saturating_sub(most);
        let released = self.file.set_len(rest).is_ok();
        if released {
            *bytes = rest;
            self.short.store(true, Ordering::Relaxed);
        }
        released
    }
}
