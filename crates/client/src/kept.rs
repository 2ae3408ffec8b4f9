//! What targets have acknowledged, kept for whoever reads it next through this mount.
//!
//! Handles that only write go around the kernel's page cache, so nobody else remembers what went
//! through them. The buffers that were sent are kept as they are, for all files together, within
//! what the volume's bound leaves; what was used longest ago goes first.
//!
//! Kept bytes are true as long as nobody else changes the file. While this mount has it open, its
//! state watches over that and clears them; over the time in which it is closed they carry the
//! inode's version, length and mtime, which an open compares.

use crate::contents::Contents;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{Attr, Ino};

/// Buffers of doors have this length.
const BUFFER_BYTES: usize = 1 << 20;
/// A shorter part of a buffer is copied out of it: a few bytes must not hold a megabyte.
const WHOLE_BYTES_MIN: usize = BUFFER_BYTES / 2;
/// What the tables take for each extent, roughly.
pub(crate) const EXTENT_BYTES: usize = 256;
/// A shorter piece is not worth a place in the tables.
const PIECE_BYTES_MIN: usize = 4 << 10;
/// What nobody has used for so long is dropped: an idle mount gives its memory back.
const AGE_MAX: Duration = Duration::from_secs(300);

struct Extent {
    data: Bytes,
    /// Bytes of memory that go when it goes.
    held: usize,
    /// Its place in the order of use.
    used: u64,
    /// When it was last used (monotonic).
    touched: Duration,
}

#[derive(Default)]
struct File {
    /// By where they start; they do not overlap.
    extents: BTreeMap<u64, Extent>,
    /// What an open must find; `None` while the file's state watches over it.
    as_of: Option<Contents>,
}

#[derive(Default)]
struct Shelf {
    files: HashMap<Ino, File>,
    /// All extents, least recently used first.
    order: BTreeMap<u64, (Ino, u64)>,
    /// Uses so far.
    uses: u64,
    bytes: usize,
}

/// The kept bytes of all files of a volume.
#[derive(Default)]
pub(crate) struct Kept {
    shelf: Mutex<Shelf>,
    /// What the shelf holds, to be looked at without its lock.
    bytes: AtomicUsize,
}

/// The kept bytes of one file.
pub(crate) struct KeptFile {
    kept: Arc<Kept>,
    ino: Ino,
    /// How often everything was forgotten.
    clears: u64,
}

impl Kept {
    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Runs with the shelf. What it takes out is freed when the lock is given back.
    fn with<T>(&self, work: impl FnOnce(&mut Shelf, &mut Vec<Bytes>) -> T) -> T {
        let mut out = Vec::new();
        let mut shelf = self.shelf.lock();
        let done = work(&mut shelf, &mut out);
        self.bytes.store(shelf.bytes, Ordering::Relaxed);
        done
    }

    /// Drops what was used longest ago until no more than `bytes` are held.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        if self.bytes() > bytes {
            self.with(|shelf, out| while shelf.bytes > bytes && shelf.drop_oldest(out) {});
        }
    }

    /// Drops what nobody has used for a while.
    pub(crate) fn drop_old(&self, now: Duration) {
        if self.bytes() > 0 {
            self.with(|shelf, out| {
                while shelf.oldest_touched().is_some_and(|at| at + AGE_MAX < now) {
                    shelf.drop_oldest(out);
                }
            });
        }
    }

    /// Drops all of a file.
    pub(crate) fn forget(&self, ino: Ino) {
        if self.bytes() > 0 {
            self.with(|shelf, out| shelf.forget(ino, out));
        }
    }

    /// The file is closed; nobody else had changed it up to these attributes.
    pub(crate) fn lay_down(&self, attr: &Attr) {
        if self.bytes() == 0 {
            return;
        }
        self.with(|shelf, _| {
            if let Some(file) = shelf.files.get_mut(&attr.ino) {
                file.as_of = Some(Contents::of(attr));
            }
        });
    }

    /// The file is opened, and these are its attributes: what is kept stays if they are those of
    /// [`Kept::lay_down`].
    pub(crate) fn take_up(self: &Arc<Self>, attr: &Attr) -> KeptFile {
        if self.bytes() > 0 {
            self.with(|shelf, out| {
                let Some(file) = shelf.files.get_mut(&attr.ino) else { return };
                if file.as_of.take() != Some(Contents::of(attr)) {
                    shelf.forget(attr.ino, out);
                }
            });
        }
        KeptFile { kept: Arc::clone(self), ino: attr.ino, clears: 0 }
    }

    /// This mount has changed a closed file in something else than its contents, with this outcome.
    pub(crate) fn changed(&self, attr: &Attr) {
        if self.bytes() == 0 {
            return;
        }
        self.with(|shelf, _| {
            let as_of = shelf.files.get_mut(&attr.ino).and_then(|file| file.as_of.as_mut());
            as_of.into_iter().for_each(|known| known.changed(attr));
        });
    }
}

impl KeptFile {
    /// To be noted when a write is sent.
    pub(crate) fn mark(&self) -> u64 {
        self.clears
    }

    /// Keeps what a target has acknowledged. If everything was forgotten since the write was sent
    /// (`mark`), somebody else may have written the same range after it: then nothing is kept.
    pub(crate) fn put(&self, start: u64, data: Bytes, mark: u64, now: Duration) {
        if mark != self.clears {
            return;
        }
        let end = start + data.len() as u64;
        self.kept.with(|shelf, out| {
            shelf.cut(self.ino, start, end, out);
            shelf.insert(self.ino, start, data, now, out);
        });
    }

    /// Forgets a range: it is about to change.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        if self.kept.bytes() > 0 {
            self.kept.with(|shelf, out| shelf.cut(self.ino, from, to, out));
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.clears += 1;
        self.kept.forget(self.ino);
    }

    /// See [`Kept::lay_down`].
    pub(crate) fn lay_down(&self, attr: &Attr) {
        self.kept.lay_down(attr);
    }

    /// The kept parts of a range, in order.
    pub(crate) fn overlay(&self, from: u64, to: u64, now: Duration) -> Vec<(u64, Bytes)> {
        match self.kept.bytes() {
            0 => Vec::new(),
            _ => self.kept.with(|shelf, _| shelf.overlay(self.ino, from, to, now)),
        }
    }

    /// True if all of a range is kept.
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        self.kept.bytes() > 0 && self.kept.with(|shelf, _| shelf.covers(self.ino, from, to))
    }
}

impl Shelf {
    fn insert(
        &mut self,
        ino: Ino,
        start: u64,
        data: Bytes,
        touched: Duration,
        out: &mut Vec<Bytes>,
    ) {
        if data.len() < PIECE_BYTES_MIN {
            return out.push(data);
        }
        let (data, held) = match data.len() < WHOLE_BYTES_MIN {
            true => (Bytes::copy_from_slice(&data), data.len()),
            false => (data.clone(), data.len().max(BUFFER_BYTES)),
        };
        self.uses += 1;
        let extent = Extent { data, held: held + EXTENT_BYTES, used: self.uses, touched };
        self.bytes += extent.held;
        self.order.insert(extent.used, (ino, start));
        self.files.entry(ino).or_default().extents.insert(start, extent);
    }

    /// Takes an extent out of the tables.
    fn remove(&mut self, ino: Ino, start: u64) -> Option<Extent> {
        let file = self.files.get_mut(&ino)?;
        let extent = file.extents.remove(&start)?;
        if file.extents.is_empty() {
            self.files.remove(&ino);
        }
        self.order.remove(&extent.used);
        self.bytes -= extent.held;
        Some(extent)
    }

    fn cut(&mut self, ino: Ino, from: u64, to: u64, out: &mut Vec<Bytes>) {
        let Some(file) = self.files.get(&ino) else { return };
        let as_of = file.as_of;
        let starts: Vec<u64> = touching(&file.extents, from, to).map(|(&at, _)| at).collect();
        for at in starts {
            let Some(extent) = self.remove(ino, at) else { continue };
            let end = at + extent.data.len() as u64;
            if at < from {
                let head = extent.data.slice(..(from - at) as usize);
                self.insert(ino, at, head, extent.touched, out);
            }
            if end > to {
                let tail = extent.data.slice((to - at) as usize..);
                self.insert(ino, to, tail, extent.touched, out);
            }
            out.push(extent.data);
        }
        // The last extent may have taken the file with it before a rest of it came back.
        if let Some(file) = self.files.get_mut(&ino) {
            file.as_of = as_of;
        }
    }

    fn forget(&mut self, ino: Ino, out: &mut Vec<Bytes>) {
        let Some(file) = self.files.remove(&ino) else { return };
        for extent in file.extents.into_values() {
            self.order.remove(&extent.used);
            self.bytes -= extent.held;
            out.push(extent.data);
        }
    }

    fn oldest_touched(&self) -> Option<Duration> {
        let (ino, start) = self.order.first_key_value()?.1;
        Some(self.files.get(ino)?.extents.get(start)?.touched)
    }

    /// False if there is nothing left.
    fn drop_oldest(&mut self, out: &mut Vec<Bytes>) -> bool {
        let Some((_, &(ino, start))) = self.order.first_key_value() else { return false };
        out.extend(self.remove(ino, start).map(|extent| extent.data));
        true
    }

    fn overlay(&mut self, ino: Ino, from: u64, to: u64, now: Duration) -> Vec<(u64, Bytes)> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let begin = first_touching(&file.extents, from);
        let mut parts = Vec::new();
        for (&at, extent) in file.extents.range_mut(begin..to) {
            let (start, end) = (at.max(from), (at + extent.data.len() as u64).min(to));
            self.uses += 1;
            self.order.remove(&extent.used);
            self.order.insert(self.uses, (ino, at));
            (extent.used, extent.touched) = (self.uses, now);
            parts.push((start, extent.data.slice((start - at) as usize..(end - at) as usize)));
        }
        parts
    }

    fn covers(&self, ino: Ino, from: u64, to: u64) -> bool {
        let Some(file) = self.files.get(&ino) else { return false };
        let mut at = from;
        for (&start, extent) in touching(&file.extents, from, to) {
            if start > at {
                return false;
            }
            at = start + extent.data.len() as u64;
        }
        at >= to
    }
}

/// Start of the first extent that reaches beyond a byte, or the byte.
fn first_touching(extents: &BTreeMap<u64, Extent>, from: u64) -> u64 {
    let before = extents.range(..from).next_back();
    before.filter(|(at, e)| *at + e.data.len() as u64 > from).map_or(from, |(&at, _)| at)
}

fn touching(
    extents: &BTreeMap<u64, Extent>,
    from: u64,
    to: u64,
) -> impl Iterator<Item = (&u64, &Extent)> {
    extents.range(first_touching(extents, from)..to.max(from))
}

#[cfg(test)]
mod tests;
