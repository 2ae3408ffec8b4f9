//! Files that get another number of copies: what is under way, in memory. A restart begins each anew.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_types::{Error, ErrorKind, Ino, Result};
use tokio::sync::{Notify, watch};

/// A file that is copied.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// Somebody may have changed its contents since this was last set back.
    touched: AtomicBool,
    /// Somebody has opened it since.
    opened: AtomicBool,
    /// While those who have it open are to hold it still.
    hold: Mutex<Option<Arc<Hold>>>,
    copied: AtomicU64,
    bytes: AtomicU64,
    /// The server is gone, or the volume is.
    stopped: AtomicBool,
}

/// A time in which the clients that have a file open neither read nor write it.
pub(crate) struct Hold {
    /// Its number, of no other one.
    number: u64,
    /// Sessions that have said that they hold still.
    said: Mutex<HashSet<u64>>,
    /// One more has.
    pub heard: Notify,
    /// Closed when it is over.
    over: watch::Sender<()>,
}

/// The files of a volume that are copied.
#[derive(Default)]
pub(crate) struct Recopies {
    files: Mutex<HashMap<Ino, Arc<UnderWay>>>,
    stopped: AtomicBool,
    /// Times in which files were to be held still.
    holds: AtomicU64,
    /// Held by the one job that may copy files of the volume.
    pub turn: tokio::sync::Mutex<()>,
}

/// A file is under way as long as it lasts.
pub(crate) struct Running<'a> {
    all: &'a Recopies,
    ino: Ino,
    /// How far it is.
    pub file: Arc<UnderWay>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.all.files.lock().remove(&self.ino);
    }
}

impl Recopies {
    /// The contents of a file may be changed from now on.
    pub fn touch(&self, ino: Ino) {
        self.open(ino, true);
    }

    /// Somebody opens a file, and may change its contents if he `writes`.
    pub fn open(&self, ino: Ino, writes: bool) {
        if let Some(file) = self.files.lock().get(&ino) {
            file.opened.store(true, Ordering::Release);
            file.touched.fetch_or(writes, Ordering::AcqRel);
        }
    }

    /// A number for a time in which a file is to be held still; they begin anew after 65,536.
    pub(crate) fn next_number(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed) & 0xffff
    }

    /// A client holds a file still. What ends when it need not any more; `None`: it need not.
    pub fn held(&self, ino: Ino, number: u64, session: u64) -> Option<watch::Receiver<()>> {
        let file = self.files.lock().get(&ino)?.clone();
        let hold = file.hold.lock().clone().filter(|hold| hold.number == number)?;
        hold.said.lock().insert(session);
        hold.heard.notify_waiters();
        Some(hold.over.subscribe())
    }

    /// Files that are under way are left as they are, and no others begin.
    pub fn stop(&self) {
        let files = self.files.lock();
        self.stopped.store(true, Ordering::Release);
        files.values().for_each(|file| file.stopped.store(true, Ordering::Release));
    }

    /// True while this file is under way.
    pub fn is_active(&self, ino: Ino) -> bool {
        self.files.lock().contains_key(&ino)
    }

    /// Begins a file; `None`: it is under way already.
    pub(crate) fn begin(&self, ino: Ino) -> Option<Running<'_>> {
        let mut files = self.files.lock();
        if files.contains_key(&ino) {
            return None;
        }
        let stopped = AtomicBool::new(self.stopped.load(Ordering::Acquire));
        let file = Arc::new(UnderWay { stopped, ..UnderWay::default() });
        files.insert(ino, file.clone());
        Some(Running { all: self, ino, file })
    }
}

impl Hold {
    /// True if a session has said that it holds still.
    pub(crate) fn has(&self, session: u64) -> bool {
        self.said.lock().contains(&session)
    }
}

impl UnderWay {
    /// From here on it counts who touches or opens the file.
    pub(crate) fn start(&self) {
        self.touched.store(false, Ordering::Release);
        self.opened.store(false, Ordering::Release);
    }

    /// True if somebody has opened it.
    pub(crate) fn is_opened(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    /// Its clients are to hold it still, under this number, from now on.
    pub(crate) fn hold(&self, number: u64) -> Arc<Hold> {
        let (said, heard, over) = Default::default();
        let hold = Arc::new(Hold { number, said, heard, over });
        *self.hold.lock() = Some(hold.clone());
        hold
    }

    /// They need not any more.
    pub(crate) fn release(&self) {
        *self.hold.lock() = None;
    }

    /// True if somebody may have changed the contents.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    /// Fails once nothing may be changed here any more.
    pub(crate) fn check(&self) -> Result<()> {
        match self.stopped.load(Ordering::Acquire) {
            true => Err(Error::with(ErrorKind::Unavailable, "the metadata server is stopping")),
            false => Ok(()),
        }
    }

    /// Bytes to copy in all.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that have been copied.
    pub(crate) fn add_copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes copied, and bytes in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.copied.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
