//! A disk whose calls are counted, so that it is known whether any of them still ends.

use super::{Disk, DiskFile, Place, Probe};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls to the files of one disk that may have to wait for it.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Calls {
    /// One begins.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// One has ended, be it with an error.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// How many have ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// True while one is under way.
    pub fn any_under_way(&self) -> bool {
        self.ended() != self.begun.load(Ordering::Relaxed)
    }

    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.begin();
        let result = call();
        self.end();
        result
    }
}

/// A disk that counts calls. What never waits for the disk (what the kernel has in memory, lengths, the list of names) does not count.
pub struct CountedDisk {
    inner: Arc<dyn Disk>,
    calls: Arc<Calls>,
}

impl CountedDisk {
    /// One that does what `inner` does.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self { inner, calls: Arc::default() }
    }

    /// What is counted.
    pub fn calls(&self) -> Arc<Calls> {
        self.calls.clone()
    }
}

impl Disk for CountedDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.calls.during(|| self.inner.open(name, create))?;
        Ok(Arc::new(CountedFile { inner, calls: self.calls.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.calls.during(|| self.inner.remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.calls.during(|| self.inner.rename(from, to))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.calls.during(|| self.inner.sync_directory())
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

    fn probe(&self, name: &str) -> io::Result<Option<Box<dyn Probe>>> {
        self.inner.probe(name)
    }
}

/// An open file of a [`CountedDisk`].
struct CountedFile {
    inner: Arc<dyn DiskFile>,
    calls: Arc<Calls>,
}

impl DiskFile for CountedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.calls.during(|| self.inner.read_exact_at(buf, offset))
    }

    /// Not counted: it says nothing of the disk.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        self.inner.read_cached_at(buf, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.calls.during(|| self.inner.write_all_at(data, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.calls.during(|| self.inner.sync())
    }

    fn reread(&self) -> io::Result<()> {
        self.calls.during(|| self.inner.reread())
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.calls.during(|| self.inner.start_writeback(offset, len));
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.calls.during(|| self.inner.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.calls.during(|| self.inner.allocate(offset, len))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.calls.during(|| self.inner.punch(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::HeldDisk;
    use crate::disk::sim::SimDisk;

    #[test]
    fn a_call_counts_when_it_has_ended_and_what_is_in_memory_never() {
        let held = Arc::new(HeldDisk::new(SimDisk::new(1, 1 << 20).process()));
        let disk = CountedDisk::new(held.clone());
        let calls = disk.calls();
        let file = disk.open("a", true).unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        let ended = calls.ended();
        assert!(ended >= 2 && !calls.any_under_way());
        let _answered = file.read_cached_at(&mut [0; 5], 0).unwrap();
        assert_eq!((file.len().unwrap(), calls.ended()), (5, ended));
        held.hold();
        let reader = std::thread::spawn(move || file.read_exact_at(&mut [0; 5], 0));
        held.until_waited_for(1);
        assert!(calls.any_under_way());
        assert_eq!(calls.ended(), ended);
        held.go_on();
        reader.join().unwrap().unwrap();
        assert_eq!((calls.ended(), calls.any_under_way()), (ended + 1, false));
    }
}
