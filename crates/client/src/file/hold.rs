//! Files that are held still: open as they are, they are about to lie elsewhere.
//!
//! The metadata server asks for that with what is fetched with recalls. What was written is sent to where the file lies,
//! and made durable there; then nothing is read there any more, nor written, until the server has answered that the time is
//! over, and this mount has asked where the file lies now (docs/design/0043).

use super::flush::Tell;
use super::resize::Exclusive;
use super::state::{Core, FileState};
use crate::ops::done;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_base::{is_broken, task};
use strake_types::layout::Placement;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaOp};
use tokio::time::{Instant, timeout_at};

/// Between two attempts to learn where a file lies.
const PAUSE: Duration = Duration::from_millis(100);

/// A file is held still until this is dropped.
struct Held<'a>(&'a FileState);

impl<'a> Held<'a> {
    fn new(file: &'a FileState) -> Self {
        file.core().held = true;
        Self(file)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.core().held = false;
        self.0.progress.notify_waiters();
    }
}

impl Core {
    /// True if what was read of the file at a place may be shown: the file lies there, and has all the time.
    pub(super) fn lies_at(&self, place: &Arc<Placement>) -> bool {
        !self.held && self.placement.as_ref().is_some_and(|now| Arc::ptr_eq(now, place))
    }
}

impl Volume {
    /// These files are to be held still, each by a task of its own.
    pub(crate) fn hold_still(self: &Arc<Self>, asks: &[meta::Ask]) {
        for &ask in asks {
            let ino = Ino(ask.ino);
            if !self.holding.lock().insert(ino) {
                continue;
            }
            let volume = Arc::clone(self);
            task::spawn(async move {
                if let Err(error) = volume.hold(ask).await {
                    tracing::debug!("cannot hold inode {ino} still: {error}");
                }
                volume.holding.lock().remove(&ino);
            });
        }
    }

    async fn hold(self: &Arc<Self>, ask: meta::Ask) -> Result<()> {
        // One that was closed is reported to be so with what is asked next.
        let Some(file) = self.inodes().file(Ino(ask.ino)) else { return Ok(()) };
        let ended = self.hold_file(&file, ask).await;
        // The last handle may have gone meanwhile.
        self.forget_if_closed(&file);
        ended
    }

    async fn hold_file(self: &Arc<Self>, file: &Arc<FileState>, ask: meta::Ask) -> Result<()> {
        let still = !is_broken("moving-files-are-held-still");
        let _order = self.drain_in_order(file).await;
        let _exclusive = still.then(|| Exclusive::new(file));
        self.drain(file).await;
        if !self.write_inline(file, false, false).await? {
            self.sync_targets(file).await?;
            self.publish(file, Tell::Lazily).await?;
        }
        let _held = still.then(|| Held::new(file));
        // The server may have the file lie elsewhere at any time from the first of these on.
        while let Err(error) = self.learn_place(file.ino(), ask).await {
            if matches!(error.kind, ErrorKind::Stale | ErrorKind::NotFound) {
                return Err(error);
            }
            tracing::info!("inode {} is about to move, and held still: {error}", file.ino());
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Says that a file is held still, and learns where it lies when it need not be any more.
    async fn learn_place(&self, ino: Ino, ask: meta::Ask) -> Result<()> {
        done(&self.ask(&self.root_cred(), MetaOp::Held(ask)).await?, "held")?;
        match is_broken("moving-files-are-held-still") {
            true => Ok(()),
            false => self.fetch_attr(ino).await.map(drop),
        }
    }

    /// Waits until a file is not held still, for as long as an operation may wait.
    pub(super) async fn while_held(&self, file: &FileState) -> Result<()> {
        if !file.core().held {
            return Ok(());
        }
        let until = Instant::now() + Duration::from_millis(self.options().operation_wait_ms);
        loop {
            let progress = file.progress.notified();
            if !file.core().held {
                return Ok(());
            }
            if timeout_at(until, progress).await.is_err() {
                let detail = "the metadata server does not say where the file lies now";
                return Err(Error::with(ErrorKind::TimedOut, detail));
            }
        }
    }
}
