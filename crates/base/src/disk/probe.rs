//! Asking a disk whether it answers, beside everything else that is asked of it.
//!
//! A file of its own is read, past all memory. It is never written again once it is made, so its reads wait for no write, no
//! journal and no lock of others: only for the disk.

use crate::aligned::{ALIGNMENT, AlignedBuffer};
use crate::random::mixed;
use crate::threads;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Asks a disk for something that is in no memory.
pub trait Probe: Send {
    /// Returns when the disk has answered, be it with an error.
    fn ask(&mut self);
}

/// A thread of its own that asks a disk when it is told to, so that nobody else is waited for. It ends when this is dropped and
/// the disk has answered.
pub struct Prober {
    asks: SyncSender<()>,
    answers: Arc<AtomicU64>,
}

impl Prober {
    /// Asks nothing yet.
    pub fn start(mut probe: Box<dyn Probe>) -> io::Result<Self> {
        let (asks, asked) = sync_channel(1);
        let answers = Arc::<AtomicU64>::default();
        let counted = answers.clone();
        let work = move || {
            while let Ok(()) = asked.recv() {
                probe.ask();
                counted.fetch_add(1, Ordering::Release);
            }
        };
        threads::spawn("probe", work)?;
        Ok(Self { asks, answers })
    }

    /// How often the disk has answered.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Acquire)
    }

    /// Asks, without waiting. Not to be called before the last question is answered; false if nobody asks.
    pub fn ask(&self) -> bool {
        self.asks.try_send(()).is_ok()
    }
}

/// A file of a directory of the machine's own file system.
pub(super) struct RealProbe {
    file: File,
    block: AlignedBuffer,
}

impl RealProbe {
    /// Makes the file if it is not there as it should be, and reads it; `None`: past memory nothing can be read there.
    pub(super) fn open(directory: &File, name: &str) -> io::Result<Option<Self>> {
        let is_whole = |file: &File| Ok::<_, io::Error>(file.metadata()?.len() == ALIGNMENT as u64);
        let mut opened = open_direct(directory, name);
        let is_there = match &opened {
            Ok(file) => is_whole(file)?,
            Err(error) => *error != Errno::NOENT,
        };
        if !is_there {
            make(directory, name)?;
            opened = open_direct(directory, name);
        }
        let file = match opened {
            Err(Errno::INVAL) => return Ok(None),
            opened => opened?,
        };
        let mut probe = Self { file, block: AlignedBuffer::new(ALIGNMENT) };
        match probe.read() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            read => read.map(|_| Some(probe)),
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        self.file.read_at(&mut self.block, 0)
    }
}

impl Probe for RealProbe {
    fn ask(&mut self) {
        // An error is an answer, too.
        let _answered = self.read();
    }
}

fn open(directory: &File, name: &str, flags: OFlags) -> Result<File, Errno> {
    let (flags, mode) = (flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600));
    rustix::fs::openat(directory, name, flags, mode).map(File::from)
}

/// Past memory, and without a time of access to be written.
fn open_direct(directory: &File, name: &str) -> Result<File, Errno> {
    let direct = OFlags::RDONLY | OFlags::DIRECT;
    match open(directory, name, direct | OFlags::NOATIME) {
        // It belongs to somebody else.
        Err(Errno::PERM) => open(directory, name, direct),
        opened => opened,
    }
}

fn make(directory: &File, name: &str) -> io::Result<()> {
    let file = open(directory, name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
    let made = file.write_all_at(&contents(), 0).and_then(|()| file.sync_all());
    if made.is_err() {
        // There is no room, perhaps. The next start tries again.
        let _gone = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
    made
}

/// What no file system compresses, or knows without its disk.
fn contents() -> Vec<u8> {
    (0..ALIGNMENT as u64 / 8).flat_map(|nth| mixed(nth).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, HeldDisk, RealDisk};

    /// Whether past all memory or not is for the file system to say: on some it cannot be.
    #[test]
    fn the_file_that_is_probed_is_made_where_it_is_missing_and_never_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("probe");
        let disk = RealDisk::new(directory.path()).unwrap();
        let Some(mut probe) = disk.probe("probe").unwrap() else { return };
        assert_eq!(std::fs::read(&path).unwrap(), contents());
        let written = || std::fs::metadata(&path).unwrap().modified().unwrap();
        let made = written();
        probe.ask();
        disk.probe("probe").unwrap().unwrap().ask();
        assert_eq!(written(), made);
        // Of a start that was cut off.
        std::fs::write(&path, "half").unwrap();
        assert!(disk.probe("probe").unwrap().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), contents());
    }

    #[test]
    fn where_the_file_cannot_be_made_there_is_no_probe() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("probe")).unwrap();
        let disk = RealDisk::new(directory.path()).unwrap();
        assert!(!matches!(disk.probe("probe"), Ok(Some(_))));
    }

    #[test]
    fn a_prober_has_an_answer_more_when_the_disk_has_answered() {
        let directory = tempfile::tempdir().unwrap();
        let disk = HeldDisk::new(Arc::new(RealDisk::new(directory.path()).unwrap()));
        let prober = Prober::start(disk.probe("probe").unwrap().unwrap()).unwrap();
        disk.hold();
        assert!(prober.ask());
        disk.until_waited_for(1);
        assert_eq!(prober.answers(), 0);
        disk.go_on();
        while prober.answers() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(prober.answers(), 1);
    }
}
