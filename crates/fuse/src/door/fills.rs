//! Pages that the kernel is given without having asked for them.
//!
//! Where a file is read here and there so often that all of a part of it costs no more, the client has the part, and
//! the kernel gets it (`FUSE_NOTIFY_STORE`): from then on it asks for nothing of it. A program finds there what is true when
//! it looks, as with pages that were asked for; but the kernel holds no lock of them while they are on their way. So what
//! is fetched is stored only if nothing of the file has changed, or may have, since before it was fetched: no
//! recall has come, and nobody here has the file open for writing. Who begins to write, and who follows a recall, waits
//! until what is being stored at that moment is stored.

use super::{FuseDoor, OpenHandle};
use crate::abi;
use crate::device::Device;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_client::WholePart;
use strake_types::Ino;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Parts that are fetched and stored at once.
const FILLS_MAX: usize = 4;
/// Longest wait for what is being stored: the kernel may hold a page of it locked until it is answered.
const STORE_WAIT: Duration = Duration::from_millis(200);

/// The fills of one mount.
pub(super) struct Fills {
    files: Mutex<HashMap<Ino, File>>,
    /// Something was stored.
    stored: Notify,
    places: Arc<Semaphore>,
}

/// A file that is written to or of which something is on its way to the kernel.
#[derive(Default)]
struct File {
    /// Handles that may write, and changes of the length.
    writers: u32,
    /// Parts that are fetched or stored.
    fills: u32,
    /// Those of them that are being stored.
    storing: u32,
    /// How often it may have changed since there has been an entry for it.
    changes: u64,
}

impl File {
    fn is_unused(&self) -> bool {
        self.writers == 0 && self.fills == 0
    }
}

impl Default for Fills {
    fn default() -> Self {
        let (files, stored) = Default::default();
        Self { files, stored, places: Arc::new(Semaphore::new(FILLS_MAX)) }
    }
}

impl Fills {
    /// A part of a file is going to be fetched. `None` if somebody may write to it, or enough is under way.
    pub fn begin(self: &Arc<Self>, ino: Ino) -> Option<Fill> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let mut files = self.files.lock();
        let file = files.entry(ino).or_default();
        if file.writers > 0 {
            return None;
        }
        file.fills += 1;
        Some(Fill { of: self.clone(), ino, changes: file.changes, _place: place })
    }

    /// A file may be changed from here until what is given back is dropped.
    pub async fn writer(self: &Arc<Self>, ino: Ino) -> Writer {
        let writer = {
            let mut files = self.files.lock();
            let file = files.entry(ino).or_default();
            file.writers += 1;
            file.changes += 1;
            Writer { of: self.clone(), ino }
        };
        self.wait(&[ino]).await;
        writer
    }

    /// Files may have changed: nothing that was fetched before is stored any more.
    pub fn changed(&self, inodes: &[Ino]) {
        let mut files = self.files.lock();
        for ino in inodes {
            files.entry(*ino).and_modify(|file| file.changes += 1);
        }
    }

    /// Waits until nothing of these files is being stored, or for as long as that is waited for. What is then still being
    /// stored is dropped when it is ([`Fill::store`]).
    pub async fn wait(&self, inodes: &[Ino]) {
        let end = Instant::now() + STORE_WAIT;
        loop {
            let stored = self.stored.notified();
            let storing = {
                let files = self.files.lock();
                inodes.iter().any(|ino| files.get(ino).is_some_and(|file| file.storing > 0))
            };
            if !storing || timeout_at(end, stored).await.is_err() {
                return;
            }
        }
    }

    fn with(&self, ino: Ino, change: impl FnOnce(&mut File)) {
        if let Entry::Occupied(mut file) = self.files.lock().entry(ino) {
            change(file.get_mut());
            if file.get().is_unused() {
                file.remove();
            }
        }
    }
}

/// A file may be changed by who has this.
pub(super) struct Writer {
    of: Arc<Fills>,
    ino: Ino,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.of.with(self.ino, |file| file.writers -= 1);
    }
}

/// A part of a file is on its way to the kernel.
pub(super) struct Fill {
    of: Arc<Fills>,
    ino: Ino,
    /// Of the file, when this began.
    changes: u64,
    _place: OwnedSemaphorePermit,
}

impl Fill {
    /// Stores unless the file may have changed since this began. If it did while it was being stored, it is taken `back`.
    pub fn store(&self, store: impl FnOnce(), back: impl FnOnce()) {
        let unchanged = |file: &File| file.changes == self.changes;
        {
            let mut files = self.of.files.lock();
            let file = files.get_mut(&self.ino).filter(|file| unchanged(file));
            let Some(file) = file else { return };
            file.storing += 1;
        }
        store();
        let mut still = true;
        self.of.with(self.ino, |file| {
            file.storing -= 1;
            still = unchanged(file);
        });
        self.of.stored.notify_waiters();
        if !still {
            back();
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.of.with(self.ino, |file| file.fills -= 1);
    }
}

impl FuseDoor {
    /// After a read: has the kernel given what it is worth to have by now.
    pub(super) fn fill(&self, handle: &OpenHandle) {
        let Some(range) = self.volume.take_worth_having(&handle.file) else { return };
        // With a write-back cache the kernel has what nobody else has.
        if handle.direct || self.view.writeback || !self.volume.keeps_leases() {
            return;
        }
        let Some(fill) = self.fills.begin(handle.file.ino()) else { return };
        let (volume, file) = (self.volume.clone(), handle.file.clone());
        let (node, recalls) = (self.node(file.ino()), self.recalls.clone());
        self.runtime.spawn(async move {
            let part = match volume.read_part(&file, range.clone()).await {
                Ok(Some(part)) if part.leased && volume.is_leased(&file) => part,
                Ok(_) => return,
                // Who reads it next is told.
                Err(error) => return tracing::debug!("a part of {}: {error}", file.ino()),
            };
            let store = move || {
                if let Some(device) = recalls.device() {
                    fill.store_part(device, node, range, &part);
                }
            };
            // The kernel waits for pages that are locked.
            let _stored = tokio::task::spawn_blocking(store).await;
        });
    }
}

impl Fill {
    fn store_part(&self, device: &Device, node: u64, range: Range<u64>, part: &WholePart) {
        let mut at = range.start;
        metrics::counter!("strake_fuse_filled_bytes_total").increment(range.end - at);
        for bytes in &part.data.parts {
            let len = bytes.len() as u64;
            let head =
                abi::NotifyStoreOut { nodeid: node, offset: at, size: len as u32, padding: 0 };
            let store = || device.notify_with(abi::NOTIFY_STORE, &head, bytes);
            self.store(store, || device.forget_contents(node, at, len));
            at += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::cell::Cell;

    const INO: Ino = Ino(7);

    /// What became of a part: it was stored, and taken back.
    fn fate(fill: &Fill, meanwhile: impl FnOnce()) -> (bool, bool) {
        let (stored, back) = (Cell::new(false), Cell::new(false));
        let store = || {
            stored.set(true);
            meanwhile();
        };
        fill.store(store, || back.set(true));
        (stored.get(), back.get())
    }

    #[tokio::test]
    async fn what_may_have_changed_since_it_was_fetched_is_not_stored() {
        let fills = Arc::new(Fills::default());
        let fill = fills.begin(INO).unwrap();
        assert_eq!(fate(&fill, || {}), (true, false));
        fills.changed(&[Ino(8), INO]);
        assert_eq!(fate(&fill, || {}), (false, false), "a recall came");
        drop(fill);
        let fill = fills.begin(INO).unwrap();
        let writer = fills.writer(INO).await;
        assert!(fills.begin(INO).is_none() && fills.begin(Ino(8)).is_some());
        drop(writer);
        assert_eq!(fate(&fill, || {}), (false, false), "somebody has written");
        drop(fill);
        assert_eq!(fate(&fills.begin(INO).unwrap(), || {}), (true, false));
        assert!(fills.files.lock().is_empty(), "nothing is remembered of files at rest");
    }

    #[tokio::test]
    async fn who_writes_waits_for_what_is_being_stored_and_takes_it_back_after_that() {
        let fills = Arc::new(Fills::default());
        let fill = fills.begin(INO).unwrap();
        let writer = fills.writer(INO);
        futures::pin_mut!(writer);
        let began = || assert!(writer.as_mut().now_or_never().is_none());
        assert_eq!(fate(&fill, began), (true, true));
        let _writer = writer.await;
        drop(fill);
        let fill = fills.begin(Ino(8)).unwrap();
        assert_eq!(fate(&fill, || fills.changed(&[Ino(8)])), (true, true));
    }

    #[test]
    fn so_much_and_no_more_is_under_way() {
        let fills = Arc::new(Fills::default());
        let all: Vec<_> = (0..FILLS_MAX as u64).filter_map(|ino| fills.begin(Ino(ino))).collect();
        assert_eq!(all.len(), FILLS_MAX);
        assert!(fills.begin(INO).is_none());
        drop(all);
        assert!(fills.begin(INO).is_some());
    }
}
