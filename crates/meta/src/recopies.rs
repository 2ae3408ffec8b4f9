//! Files that get another number of copies: what is under way, in memory. A restart begins each anew.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_types::{Error, ErrorKind, Ino, Result};

/// A file that is copied.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// Somebody may have changed its contents since it was begun.
    touched: AtomicBool,
    copied: AtomicU64,
    bytes: AtomicU64,
    /// The server is gone, or the volume is.
    stopped: AtomicBool,
}

/// The files of a volume that are copied.
#[derive(Default)]
pub(crate) struct Recopies {
    files: Mutex<HashMap<Ino, Arc<UnderWay>>>,
    /// Files of which chunks that no layout names are to stay for a while: until when by the wall clock, which may be set, and
    /// since when this server knows that, by the one that nobody sets. In milliseconds.
    kept: Mutex<HashMap<Ino, (u64, u64)>>,
    stopped: AtomicBool,
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
        if let Some(file) = self.files.lock().get(&ino) {
            file.touched.store(true, Ordering::Release);
        }
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

    /// Chunks of these files, and of no others, are to stay until a time.
    pub fn keep(&self, found: &[(Ino, u64)], now_ms: u64) {
        let mut kept = self.kept.lock();
        let before = std::mem::take(&mut *kept);
        kept.extend(found.iter().map(|&(ino, until_ms)| {
            let known = before.get(&ino).filter(|(until, _)| *until == until_ms);
            (ino, (until_ms, known.map_or(now_ms, |(_, since_ms)| *since_ms)))
        }));
    }

    /// True if a file's chunks that are to stay until then have stayed here for so long, or if they need not (0).
    pub fn has_kept(&self, ino: Ino, until_ms: u64, for_ms: u64, now_ms: u64) -> bool {
        let kept = self.kept.lock();
        let known = kept.get(&ino).filter(|(until, _)| *until == until_ms);
        until_ms == 0 || known.is_some_and(|(_, since_ms)| now_ms >= since_ms + for_ms)
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

impl UnderWay {
    /// From here on it counts who touches the file.
    pub(crate) fn start(&self) {
        self.touched.store(false, Ordering::Release);
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

    /// Bytes to copy in all, about.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that have been copied.
    pub(crate) fn add_copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes copied, and bytes in all, about.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let copied = self.copied.load(Ordering::Relaxed);
        (copied, self.bytes.load(Ordering::Relaxed).max(copied))
    }
}
