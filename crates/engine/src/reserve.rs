//! Room kept back on the disk, so that what frees room can be carried out when there is none.
//!
//! It is a file that holds nothing. When what must be written meets a full disk, a piece of it is given up and taken at
//! once. While that of the embedded map is not whole, the map calls itself full
//! ([`Kv::check_room`](crate::kv::Kv::check_room)): its callers then write only what frees room. A target refuses what makes
//! its extent map larger when half of its own is gone.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_base::disk::{Disk, DiskFile};

/// The file's name.
pub(crate) const FILE: &str = "reserve";

/// True if an error of the disk says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Room kept back.
pub(crate) struct Reserve {
    file: Arc<dyn DiskFile>,
    /// Bytes kept back now; they change under the lock.
    bytes: AtomicU64,
    lock: Mutex<()>,
    wanted: u64,
    /// Fewer than wanted are kept back.
    short: AtomicBool,
    /// The file system keeps no room back.
    unable: AtomicBool,
}

impl Reserve {
    /// Opens the reserve on `disk` and fills it up to `wanted` bytes, as far as there is room.
    pub fn open(disk: &dyn Disk, wanted: u64) -> io::Result<Self> {
        let file = disk.open(FILE, true)?;
        let (bytes, short) = (AtomicU64::new(file.len()?), AtomicBool::new(true));
        let unable = AtomicBool::new(false);
        let reserve = Self { file, bytes, lock: Mutex::default(), wanted, short, unable };
        reserve.refill();
        Ok(reserve)
    }

    /// True if it is not whole, and the disk has no room to fill it.
    pub fn is_short(&self) -> bool {
        self.is_marked_short() && !self.refill()
    }

    /// True if it was not whole when it was last looked at. Waits for no disk.
    pub fn is_marked_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Bytes kept back now. Waits for no disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Fills it; false if the disk has no room for all of it.
    pub fn refill(&self) -> bool {
        self.fill(self.wanted)
    }

    /// Fills it up to so many bytes; false if the disk has no room for all of them.
    pub fn fill(&self, upto: u64) -> bool {
        let _one_at_a_time = self.lock.lock();
        if self.bytes() < upto && !self.unable.load(Ordering::Relaxed) {
            match self.file.allocate(0, upto) {
                Ok(()) => self.bytes.store(upto, Ordering::Relaxed),
                Err(error) if is_full(&error) => {
                    // Some file systems keep what they had got before they found no more.
                    let _it_is_tried_again_soon = self.file.set_len(self.bytes());
                    return false;
                }
                Err(error) => {
                    tracing::debug!(%error, "no room can be kept back");
                    // It never will: nobody asks again.
                    let never = error.kind() == io::ErrorKind::Unsupported;
                    self.unable.store(never, Ordering::Relaxed);
                }
            }
        }
        if upto >= self.wanted {
            self.short.store(false, Ordering::Relaxed);
        }
        true
    }

    /// Gives up all of it but an eighth, which stays for deletions; false if that is nothing.
    pub fn lend(&self) -> bool {
        let bytes = self.bytes();
        self.release(bytes - bytes / 8)
    }

    /// Gives up `most` bytes of it, or what there is; false if that is nothing.
    pub fn release(&self, most: u64) -> bool {
        let _one_at_a_time = self.lock.lock();
        let bytes = self.bytes();
        if bytes == 0 {
            return false;
        }
        let rest = bytes.saturating_sub(most);
        let released = self.file.set_len(rest).is_ok();
        if released {
            self.bytes.store(rest, Ordering::Relaxed);
            if rest < self.wanted {
                self.short.store(true, Ordering::Relaxed);
            }
        }
        released
    }

    /// Gives up what is more than so many bytes.
    pub fn shrink(&self, upto: u64) {
        let _one_at_a_time = self.lock.lock();
        if self.bytes() > upto && self.file.set_len(upto).is_ok() {
            self.bytes.store(upto, Ordering::Relaxed);
        }
    }
}
