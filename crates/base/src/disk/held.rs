//! A disk that stops answering when it is told to, as one whose cable is loose. For tests.

use super::{Disk, DiskFile, Place, Probe};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;

/// What the files of one such disk share.
#[derive(Default)]
struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Nothing is answered.
    held: bool,
    /// Calls that wait.
    waiting: usize,
}

impl Hold {
    /// Waits as long as the disk answers nothing.
    fn pass(&self) {
        let mut state = self.state.lock();
        if !state.held {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        while state.held {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
    }

    fn set(&self, held: bool) {
        self.state.lock().held = held;
        self.changed.notify_all();
    }

    /// Returns when so many calls wait.
    fn until_waited_for(&self, calls: usize) {
        let mut state = self.state.lock();
        while state.waiting < calls {
            self.changed.wait(&mut state);
        }
    }
}

/// A disk before which everything that would move the arm of a real one waits while it is held. What the kernel would say from
/// memory (names, lengths, room) is answered all the same.
pub struct HeldDisk {
    inner: Arc<dyn Disk>,
    hold: Arc<Hold>,
    /// Of the disks on the way to its directory.
    way: Hold,
}

impl HeldDisk {
    /// One that answers as `inner` does, until it is held.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self { inner, hold: Arc::default(), way: Hold::default() }
    }

    /// From now on nothing is answered.
    pub fn hold(&self) {
        self.hold.set(true);
    }

    /// From now on who looks where its directory is gets no answer, and everybody else does.
    pub fn hold_way(&self) {
        self.way.set(true);
    }

    /// What has waited is answered, and all that comes.
    pub fn go_on(&self) {
        self.hold.set(false);
        self.way.set(false);
    }

    /// Returns when so many calls wait. Blocks its thread.
    pub fn until_waited_for(&self, calls: usize) {
        self.hold.until_waited_for(calls);
    }

    /// Returns when somebody looks where its directory is, and waits. Blocks its thread.
    pub fn until_looked_for(&self) {
        self.way.until_waited_for(1);
    }
}

impl Drop for HeldDisk {
    /// Nobody could let it go on any more.
    fn drop(&mut self) {
        self.go_on();
    }
}

impl Disk for HeldDisk {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.hold.pass();
        let inner = self.inner.open(name, create)?;
        Ok(Arc::new(HeldFile { inner, hold: self.hold.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.hold.pass();
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.hold.pass();
        self.inner.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.hold.pass();
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
        self.way.pass();
        self.inner.place()
    }

    fn path(&self) -> String {
        self.inner.path()
    }

    fn probe(&self, name: &str) -> io::Result<Option<Box<dyn Probe>>> {
        self.hold.pass();
        let (inner, hold) = (self.inner.probe(name)?, self.hold.clone());
        Ok(Some(Box::new(HeldProbe { inner, hold })))
    }
}

/// What asks a [`HeldDisk`], as if it were a real one, whatever it is.
struct HeldProbe {
    inner: Option<Box<dyn Probe>>,
    hold: Arc<Hold>,
}

impl Probe for HeldProbe {
    fn ask(&mut self) {
        self.hold.pass();
        if let Some(inner) = &mut self.inner {
            inner.ask();
        }
    }
}

/// An open file of a [`HeldDisk`].
struct HeldFile {
    inner: Arc<dyn DiskFile>,
    hold: Arc<Hold>,
}

impl DiskFile for HeldFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.hold.pass();
        self.inner.read_exact_at(buf, offset)
    }

    /// While the disk is held, nothing of it is in memory.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        if self.hold.state.lock().held {
            return Ok(false);
        }
        self.inner.read_cached_at(buf, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.hold.pass();
        self.inner.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.hold.pass();
        self.inner.sync()
    }

    fn reread(&self) -> io::Result<()> {
        self.hold.pass();
        self.inner.reread()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.hold.pass();
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.hold.pass();
        self.inner.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.hold.pass();
        self.inner.punch(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;

    #[test]
    fn what_is_asked_of_a_held_disk_is_answered_when_it_goes_on() {
        let disk = HeldDisk::new(SimDisk::new(1, 1 << 20).process());
        let file = disk.open("a", true).unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        disk.hold();
        assert_eq!((file.len().unwrap(), disk.list().unwrap()), (5, vec!["a".to_owned()]));
        assert!(!file.read_cached_at(&mut [0; 5], 0).unwrap());
        let reader = std::thread::spawn(move || {
            let mut read = [0; 5];
            file.read_exact_at(&mut read, 0).map(|()| read)
        });
        disk.until_waited_for(1);
        assert!(!reader.is_finished());
        disk.go_on();
        assert_eq!(&reader.join().unwrap().unwrap(), b"bytes");
    }
}
