//! A disk made slower than it is, to measure how a cluster fares on slow ones.
//!
//! A [`SlowDisk`] stands before another disk and lets bytes through at a rate. Reads and writes share
//! it, as they share the arm of one disk, and neither knows of the machine's page cache: a byte that
//! is read has to come from the disk, and one that is written has to reach it before the call
//! returns. What moves no bytes (names, lengths, syncs) takes the time of the disk below.

use super::{Disk, DiskFile, Place, Probe};
use crate::clock::{Clock, SystemClock};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Time that a disk which stood still may catch up on. It makes good for what a sleep lasts too long,
/// and is 1 % of a second's bytes.
const CREDIT: Duration = Duration::from_millis(10);

/// Bytes per second, shared by all who take from it, in the order in which they come.
pub struct TokenBucket {
    bytes_per_second: f64,
    /// When all that was taken so far is through.
    through: Mutex<Duration>,
}

impl TokenBucket {
    /// A bucket that has stood still until now.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1) as f64, through: Mutex::default() }
    }

    /// Takes `bytes` at the moment `now`: how long whoever takes them has to wait.
    pub fn take(&self, bytes: u64, now: Duration) -> Duration {
        let needs = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut through = self.through.lock();
        let begins = (*through).max(now.saturating_sub(CREDIT));
        *through = begins.saturating_add(needs);
        through.saturating_sub(now)
    }
}

/// What the files of one slow disk share.
struct Pace {
    bucket: TokenBucket,
    clock: Arc<dyn Clock>,
}

impl Pace {
    /// Waits until so many bytes are through. Calls of a [`Disk`] may block their thread, so this
    /// does.
    fn wait(&self, bytes: usize) {
        let wait = self.bucket.take(bytes as u64, self.clock.monotonic());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }
}

/// A disk that lets bytes through at a rate.
pub struct SlowDisk {
    inner: Arc<dyn Disk>,
    pace: Arc<Pace>,
}

impl SlowDisk {
    /// Makes `inner` as slow as `bytes_per_second`; one that is slower by itself stays so.
    pub fn new(inner: Arc<dyn Disk>, bytes_per_second: u64) -> Self {
        let clock = Arc::new(SystemClock::default());
        let bucket = TokenBucket::new(bytes_per_second);
        Self { inner, pace: Arc::new(Pace { bucket, clock }) }
    }
}

impl Disk for SlowDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.open(name, create)?;
        Ok(Arc::new(SlowFile { inner, pace: self.pace.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.inner.sync_directory()
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.inner.lock()
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        self.inner.space()
    }

    fn boot_id(&self) -> io::Result<String> {
        self.inner.boot_id()
    }

    fn knows_unmounts(&self) -> io::Result<bool> {
        self.inner.knows_unmounts()
    }

    fn birth(&self, name: &str) -> io::Result<u64> {
        self.inner.birth(name)
    }

    fn place(&self) -> io::Result<Place> {
        self.inner.place()
    }

    fn path(&self) -> String {
        self.inner.path()
    }

    /// It asks the disk below, which is no slower for it.
    fn probe(&self, name: &str) -> io::Result<Option<Box<dyn Probe>>> {
        self.inner.probe(name)
    }
}

/// An open file of a [`SlowDisk`].
struct SlowFile {
    inner: Arc<dyn DiskFile>,
    pace: Arc<Pace>,
}

impl DiskFile for SlowFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(buf, offset)?;
        self.pace.wait(buf.len());
        Ok(())
    }

    /// Never: a slow disk always has to be waited for.
    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.pace.wait(data.len());
        self.inner.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn reread(&self) -> io::Result<()> {
        self.inner.reread()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sim::SimDisk;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The moment at which the last of `bytes`, taken in pieces one after the other from `start` on,
    /// is through.
    fn taken(bucket: &TokenBucket, bytes: u64, piece: u64, start: Duration) -> Duration {
        let mut now = start;
        for _ in 0..bytes / piece {
            now += bucket.take(piece, now);
        }
        now
    }

    #[test]
    fn a_second_of_bytes_takes_a_second_in_pieces_of_any_size() {
        for piece in [512, 4096, 1 << 20] {
            let bucket = TokenBucket::new(8 << 20);
            let spent = taken(&bucket, 8 << 20, piece, MS * 5000) - MS * 5000;
            assert!((MS * 989..=MS * 1000).contains(&spent), "{piece}: {spent:?}");
        }
    }

    #[test]
    fn those_who_come_together_share_the_rate() {
        let bucket = TokenBucket::new(1000);
        let now = MS * 5000;
        let waits: Vec<_> = (0..4).map(|_| bucket.take(500, now)).collect();
        assert_eq!(waits, [MS * 490, MS * 990, MS * 1490, MS * 1990]);
    }

    #[test]
    fn a_bucket_that_stood_still_has_saved_up_very_little() {
        let bucket = TokenBucket::new(1000);
        assert_eq!(bucket.take(1000, MS * 1000), MS * 990);
        let an_hour_later = MS * 3_600_000;
        assert_eq!(bucket.take(1000, an_hour_later), MS * 990);
    }

    #[test]
    fn a_wait_that_lasted_too_long_is_made_good() {
        let bucket = TokenBucket::new(1000);
        let mut now = MS * 1000;
        for _ in 0..1000 {
            // Each sleep lasts 3 ms more than it should.
            now += bucket.take(10, now) + MS * 3;
        }
        assert!(now <= MS * 11_003, "{now:?}");
    }

    #[test]
    fn a_slow_disk_holds_the_same_bytes_and_none_of_them_are_in_memory() {
        let disk = SlowDisk::new(SimDisk::new(1, 1 << 20).process(), 1 << 30);
        let file = disk.open("a", true).unwrap();
        file.write_all_at(b"bytes", 3).unwrap();
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 3).unwrap();
        assert_eq!(&read, b"bytes");
        assert!(!file.read_cached_at(&mut read, 3).unwrap());
        assert_eq!((file.len().unwrap(), disk.list().unwrap()), (8, vec!["a".to_owned()]));
    }

    #[test]
    fn reads_and_writes_of_all_files_take_from_one_bucket() {
        let disk = SlowDisk::new(SimDisk::new(1, 1 << 20).process(), 1 << 20);
        let (a, b) = (disk.open("a", true).unwrap(), disk.open("b", true).unwrap());
        a.write_all_at(&[1; 1000], 0).unwrap();
        b.write_all_at(&[2; 2000], 0).unwrap();
        a.read_exact_at(&mut [0; 500], 0).unwrap();
        let through = *disk.pace.bucket.through.lock();
        // 3500 bytes at 1 MiB/s, and whatever the clock stood at.
        assert!(through >= Duration::from_micros(3300), "{through:?}");
    }
}
