//! Asking a disk whether it answers, beside everything else that is asked of it.
//!
//! A file of its own is read, past all memory. It is never written again once it is made, so its reads wait for no write, no
//! journal and no lock of others: only for the disk.

use crate::aligned::{ALIGNMENT, AlignedBuffer};
use crate::random::mixed;
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
    /// Returns when the disk has answered, be it with an error. The first time it also makes what it reads, and fails if it
    /// cannot; false: past memory nothing can be read there.
    fn ask(&mut self) -> io::Result<bool>;
}

/// A thread of its own that asks a disk when it is told to, so that nobody else is waited for. It ends when this is dropped and
/// the disk has answered.
pub struct Prober {
    asks: SyncSender<()>,
    answers: Arc<AtomicU64>,
}

impl Prober {
    /// Begins with a first question. Where that cannot be asked, there will never be an answer. `shown` is the disk, for the log.
    pub fn start(mut probe: Box<dyn Probe>, shown: &str) -> io::Result<Self> {
        let (asks, asked) = sync_channel(1);
        let answers = Arc::<AtomicU64>::default();
        let (counted, shown) = (answers.clone(), shown.to_owned());
        let work = move || {
            match probe.ask() {
                Ok(true) => {}
                Ok(false) => {
                    return tracing::debug!(
                        "{shown}: nothing can be read past memory: whether its disk hangs is not known"
                    );
                }
                Err(error) => {
                    return tracing::warn!(
                        "{shown}: there is no file to probe the disk by ({error}): whether it hangs is not known"
                    );
                }
            }
            counted.fetch_add(1, Ordering::Release);
            while let Ok(()) = asked.recv() {
                // An error is an answer, too.
                let _answered = probe.ask();
                counted.fetch_add(1, Ordering::Release);
            }
        };
        std::thread::Builder::new().name("probe".to_owned()).spawn(work)?;
        Ok(Self { asks, answers })
    }

    /// How often the disk has answered; 0: it was not heard yet that it can be asked.
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
    directory: Arc<File>,
    name: String,
    /// Opened once.
    file: Option<File>,
    block: AlignedBuffer,
}

impl RealProbe {
    pub(super) fn new(directory: Arc<File>, name: &str) -> Self {
        let (name, block) = (name.to_owned(), AlignedBuffer::new(ALIGNMENT));
        Self { directory, name, file: None, block }
    }

    fn open(&self, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::openat(&*self.directory, self.name.as_str(), flags, mode).map(File::from)
    }

    /// The file, past memory, and without a time of access to be written.
    fn open_direct(&self) -> Result<File, Errno> {
        let direct = OFlags::RDONLY | OFlags::DIRECT;
        match self.open(direct | OFlags::NOATIME) {
            // It belongs to somebody else.
            Err(Errno::PERM) => self.open(direct),
            opened => opened,
        }
    }

    /// The file, made if it is not there as it should be; `None`: past memory nothing can be read there.
    fn opened(&self) -> io::Result<Option<File>> {
        let is_whole = |file: &File| Ok::<_, io::Error>(file.metadata()?.len() == ALIGNMENT as u64);
        match self.open_direct() {
            Ok(file) if is_whole(&file)? => return Ok(Some(file)),
            Ok(_) | Err(Errno::NOENT) => self.make()?,
            Err(Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        match self.open_direct() {
            Err(Errno::INVAL) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    fn make(&self) -> io::Result<()> {
        let file = self.open(OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        let made = file.write_all_at(&contents(), 0).and_then(|()| file.sync_all());
        if made.is_err() {
            // There is no room, perhaps. The next start tries again.
            let name = self.name.as_str();
            let _gone = rustix::fs::unlinkat(&*self.directory, name, AtFlags::empty());
        }
        made
    }
}

/// What no file system compresses, or knows without its disk.
fn contents() -> Vec<u8> {
    (0..ALIGNMENT as u64 / 8).flat_map(|nth| mixed(nth).to_le_bytes()).collect()
}

impl Probe for RealProbe {
    fn ask(&mut self) -> io::Result<bool> {
        if self.file.is_none() {
            self.file = self.opened()?;
        }
        let Some(file) = &self.file else { return Ok(false) };
        match file.read_at(&mut self.block, 0) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            read => read.map(|_| true),
        }
    }
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
        if !disk.probe("probe").unwrap().ask().unwrap() {
            return;
        }
        assert_eq!(std::fs::read(&path).unwrap(), contents());
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut again = disk.probe("probe").unwrap();
        assert!(again.ask().unwrap() && again.ask().unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), written);
        // Of a start that was cut off.
        std::fs::write(&path, "half").unwrap();
        assert!(disk.probe("probe").unwrap().ask().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), contents());
    }

    #[test]
    fn where_the_file_cannot_be_made_there_is_an_error_and_no_answer() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("probe")).unwrap();
        let disk = RealDisk::new(directory.path()).unwrap();
        assert!(!matches!(disk.probe("probe").unwrap().ask(), Ok(true)));
    }

    #[test]
    fn a_prober_has_an_answer_more_when_the_disk_has_answered() {
        let directory = tempfile::tempdir().unwrap();
        let disk = HeldDisk::new(Arc::new(RealDisk::new(directory.path()).unwrap()));
        let prober = Prober::start(disk.probe("probe").unwrap(), "here").unwrap();
        let until = |answers| {
            while prober.answers() < answers {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        until(1);
        disk.hold();
        assert!(prober.ask());
        disk.until_waited_for(1);
        assert_eq!(prober.answers(), 1);
        disk.go_on();
        until(2);
    }
}
