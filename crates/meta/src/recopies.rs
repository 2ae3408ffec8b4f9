//! Files that get another number of copies: what is under way, in memory. A restart begins each anew.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_types::{Error, ErrorKind, Ino, Result};
use tokio::sync::watch;

/// Files under way at once in a volume.
const FILES_MAX: usize = 16;
/// How long an outcome is kept for who has asked for it.
const KEPT_MS: u64 = 60_000;

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has as many copies as wanted.
    Done,
    /// It had before, or has no contents anywhere.
    Unchanged,
    /// It is as it was; why.
    Waits(String),
}

/// When it ended, and how.
type Ended = (u64, Result<Outcome>);

/// A file that is copied.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// Copies that it is to have.
    copies: u32,
    /// Somebody may have changed its contents since it was begun.
    touched: AtomicBool,
    copied: AtomicU64,
    bytes: AtomicU64,
    /// The server is being stopped.
    stopped: AtomicBool,
    ended: watch::Sender<Option<Ended>>,
}

/// What [`Recopies::begin`] has found.
pub(crate) enum Begin {
    /// Nothing was under way; the caller carries it out.
    New(Arc<UnderWay>),
    /// It is under way, or over.
    Running(Arc<UnderWay>),
    /// Too many others are.
    Full,
}

/// The files of a volume that are copied.
#[derive(Default)]
pub(crate) struct Recopies {
    files: Mutex<HashMap<Ino, Arc<UnderWay>>>,
    stopped: AtomicBool,
}

impl Recopies {
    /// The contents of a file may be changed from now on.
    pub fn touch(&self, ino: Ino) {
        if let Some(file) = self.files.lock().get(&ino) {
            file.touched.store(true, Ordering::Release);
        }
    }

    /// Files that are under way give up, and no others begin.
    pub fn stop(&self) {
        let files = self.files.lock();
        self.stopped.store(true, Ordering::Release);
        files.values().for_each(|file| file.stopped.store(true, Ordering::Release));
    }

    /// True while a file is under way.
    pub fn any(&self) -> bool {
        self.files.lock().values().any(|file| !file.is_over())
    }

    /// True while this file is under way.
    pub fn is_active(&self, ino: Ino) -> bool {
        self.files.lock().get(&ino).is_some_and(|file| !file.is_over())
    }

    /// Begins a file, unless it is under way. An outcome that is kept answers only what was asked.
    pub(crate) fn begin(&self, ino: Ino, copies: u32) -> Begin {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&ino).filter(|file| !file.is_over() || file.copies == copies)
        {
            return Begin::Running(file.clone());
        }
        let active = files.values().filter(|file| !file.is_over()).count();
        if active >= FILES_MAX || self.stopped.load(Ordering::Acquire) {
            return Begin::Full;
        }
        let file = Arc::new(UnderWay { copies, ..UnderWay::default() });
        files.insert(ino, file.clone());
        Begin::New(file)
    }

    /// Who asked has the outcome.
    pub(crate) fn forget(&self, ino: Ino, file: &Arc<UnderWay>) {
        let mut files = self.files.lock();
        if files.get(&ino).is_some_and(|known| Arc::ptr_eq(known, file)) {
            files.remove(&ino);
        }
    }

    /// Forgets outcomes that nobody has asked for.
    pub(crate) fn drop_old(&self, now_ms: u64) {
        let old = |ended: &Ended| ended.0 + KEPT_MS < now_ms;
        self.files.lock().retain(|_, file| !file.ended.borrow().as_ref().is_some_and(old));
    }
}

impl UnderWay {
    /// From here on it counts who touches the file.
    pub(crate) fn start(&self) {
        self.touched.store(false, Ordering::Release);
    }

    /// True if somebody may have changed the contents.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    /// Fails once the server is being stopped.
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

    /// It is over.
    pub(crate) fn end(&self, now_ms: u64, outcome: Result<Outcome>) {
        self.ended.send_replace(Some((now_ms, outcome)));
    }

    /// Waits until it is over.
    pub(crate) async fn ended(&self) -> Result<Outcome> {
        let mut ended = self.ended.subscribe();
        let over = ended.wait_for(|ended| ended.is_some()).await;
        let gone = || Error::with(ErrorKind::Unavailable, "the copying was given up");
        over.ok().and_then(|ended| ended.clone()).ok_or_else(gone)?.1
    }

    fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }
}
