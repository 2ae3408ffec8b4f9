//! Sending, publishing and making durable what was written.

use super::allocate::REQUESTS_MAX;
use super::open::OpenFile;
use super::state::{Body, FileState};
use crate::metrics::Op;
use crate::ops::done;
use crate::volume::Volume;
use bytes::Bytes;
use futures::future::{join, try_join_all};
use futures::stream::{self, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Attr, Error, ErrorKind, GroupId, Result, Timestamp};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};
use strake_wire::message::storage::{FileRef, StorageOp};

/// Writes older than this are sent by the background task.
const DIRTY_AGE_MAX: Duration = Duration::from_secs(1);

impl Volume {
    /// Sends and publishes what was written, as at `close(2)`: other mounts that open the file from
    /// now on see it. Reports a failure of earlier writes once.
    pub async fn flush(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<()> {
        let _timer = self.count(Op::Flush);
        let written = self.write_back(&file.state, false).await;
        let failed = file.take_failure();
        written.and(failed)
    }

    /// As [`Volume::flush`], and answers when everything is on disk. `datasync` would allow to leave
    /// times out; they travel with the length, so nothing is gained by that.
    pub async fn fsync(self: &Arc<Self>, file: &Arc<OpenFile>, datasync: bool) -> Result<()> {
        let _timer = self.count(Op::Fsync);
        let _ = datasync;
        let synced = self.sync_file(&file.state).await;
        let failed = file.take_failure();
        failed.and(synced)
    }

    async fn sync_file(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        self.drain(file).await;
        // Who comes while another syncs must not answer before that one is done.
        let _order = file.order.lock().await;
        // Neither waits for the other: until both are done nothing is promised, and a length may be
        // on disk before its bytes at any time, by the background task.
        let (data, attributes) = join(self.sync_targets(file), self.sync_attributes(file)).await;
        data.and(attributes)
    }

    /// Makes durable what the metadata server knows of a file, and tells it the rest before.
    async fn sync_attributes(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        if self.write_inline(file, true, false).await? || self.publish(file, true).await? {
            return Ok(());
        }
        let op = MetaOp::Sync(meta::Inode { ino: file.ino().0 });
        done(&self.ask(&self.root_cred(), op).await?, "sync")
    }

    /// Makes durable what targets have acknowledged for a file.
    async fn sync_targets(&self, file: &FileState) -> Result<()> {
        let unsynced = {
            let core = file.core();
            if matches!(core.body, Body::Inline(_)) {
                return Ok(());
            }
            match core.unsynced.all {
                true => core.unsynced.marks(core.placement()?.groups()),
                false => core.unsynced.marks(&[]),
            }
        };
        let reference = FileRef { volume: self.id().0, ino: file.ino().0 };
        let syncs = unsynced.keys().map(|&group| {
            self.storage(file, group, true, StorageOp::Sync(reference), Bytes::new())
        });
        let synced = try_join_all(syncs).await;
        let mut core = file.core();
        match &synced {
            Ok(_) => core.unsynced.forget(&unsynced),
            // Nobody knows what will be left of it.
            Err(_) => core.kept.clear(),
        }
        synced.map(drop)
    }

    /// Sends everything and tells the metadata server. `close`: the last handle is going.
    pub(crate) async fn write_back(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        close: bool,
    ) -> Result<()> {
        if file.is_idle() {
            return Ok(());
        }
        self.drain(file).await;
        let _order = file.order.lock().await;
        if !self.write_inline(file, false, close).await? {
            self.publish(file, false).await?;
        }
        Ok(())
    }

    /// Sends everything written so far to chunks and waits for the answers. Failures are kept for
    /// the handles to report.
    pub(crate) async fn drain(self: &Arc<Self>, file: &Arc<FileState>) {
        let generation = {
            let mut core = file.core();
            core.dirty.make_ready(Duration::MAX);
            core.dirty.end_generation()
        };
        loop {
            let progress = file.progress.notified();
            {
                let mut core = file.core();
                if core.dirty.is_settled(generation) {
                    return;
                }
                self.start_senders(file, &mut core);
            }
            progress.await;
        }
    }

    /// Sends the unsent contents of a small file. False if there are none. The caller holds the
    /// file's order.
    pub(crate) async fn write_inline(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        sync: bool,
        close: bool,
    ) -> Result<bool> {
        let (unsent, mtime, drop_setid) = {
            let core = file.core();
            let Body::Inline(inline) = &core.body else { return Ok(false) };
            let Some(unsent) = inline.unsent() else { return Ok(false) };
            (unsent, core.unpublished.mtime, core.unpublished.drop_setid)
        };
        let close = close && {
            let mut core = file.core();
            let close = core.registered > 0;
            core.registered -= usize::from(close);
            close
        };
        let write = meta::WriteInline {
            ino: file.ino().0,
            offset: unsent.offset,
            data: unsent.data.clone(),
            mtime: mtime.map(Into::into),
            sync,
            drop_setid,
            close,
        };
        let error = match self.mutate(&self.root_cred(), MetaOp::WriteInline(write)).await {
            Ok(answer) => {
                if let Body::Inline(inline) = &mut file.core().body {
                    inline.accepted(&unsent);
                }
                let attr = self.own_entry(file, answer, "write inline")?;
                self.published(file, mtime, drop_setid, (0, 0));
                self.inodes().learn(&attr, self.now());
                return Ok(true);
            }
            Err(error) => error,
        };
        file.core().registered += usize::from(close);
        if error.kind == ErrorKind::FileTooBig {
            return self.move_and_resend(file, sync).await;
        }
        if error.kind != ErrorKind::TimedOut {
            // Trying again would change nothing: what was written is lost.
            file.core().forget_unpublished();
        }
        Err(error)
    }

    /// Another mount has moved the contents out to chunks: what was written follows them.
    async fn move_and_resend(self: &Arc<Self>, file: &Arc<FileState>, sync: bool) -> Result<bool> {
        self.move_out(file).await?;
        self.drain(file).await;
        if sync {
            self.sync_targets(file).await?;
        }
        self.publish(file, sync).await
    }

    /// Tells the metadata server length and time of what targets have acknowledged. False if it
    /// knows all. The caller holds the file's order.
    pub(crate) async fn publish(&self, file: &Arc<FileState>, sync: bool) -> Result<bool> {
        let (publish, mtime) = {
            let core = file.core();
            if !core.is_unpublished() {
                return Ok(false);
            }
            let unpublished = &core.unpublished;
            // While bytes are on their way, who opens the file sees old ones: the time of the new
            // ones is not told before they are there.
            let early = core.is_unsent();
            let told = unpublished.mtime.map(|time| if early { time.before() } else { time });
            let publish = meta::Publish {
                ino: file.ino().0,
                length_min: unpublished.acknowledged,
                mtime: told.map(Into::into),
                sync,
                occupied_delta: unpublished.occupied,
                drop_setid: unpublished.drop_setid,
            };
            (publish, told)
        };
        let answer = match self.mutate(&self.root_cred(), MetaOp::Publish(publish)).await {
            Ok(answer) => answer,
            Err(error) => {
                if error.kind != ErrorKind::TimedOut {
                    file.core().forget_unpublished();
                }
                return Err(error);
            }
        };
        let attr = self.own_entry(file, answer, "publish")?;
        let told = (publish.length_min, publish.occupied_delta);
        self.published(file, mtime, publish.drop_setid, told);
        self.inodes().learn(&attr, self.now());
        Ok(true)
    }

    /// The server knows this much now; what was written meanwhile stays unpublished.
    fn published(
        &self,
        file: &FileState,
        mtime: Option<Timestamp>,
        drop_setid: bool,
        (length, occupied): (u64, i64),
    ) {
        let mut core = file.core();
        let unsent = core.is_unsent();
        let unpublished = &mut core.unpublished;
        unpublished.occupied -= occupied;
        if unpublished.acknowledged <= length {
            // Should another mount cut the file from now on, we must not make it longer again.
            unpublished.acknowledged = 0;
        }
        // A write that was noted before and acknowledged meanwhile has the time that was told, but
        // reaches further: its length is still ours alone.
        if unpublished.mtime == mtime && !unsent && unpublished.acknowledged == 0 {
            unpublished.mtime = None;
            unpublished.drop_setid &= !drop_setid;
        }
    }

    pub(crate) fn own_entry(
        &self,
        file: &FileState,
        answer: MetaAnswer,
        what: &str,
    ) -> Result<Arc<Attr>> {
        let MetaAnswer::Entry(attributes) = answer else {
            return Err(crate::ops::unexpected(what));
        };
        let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
        file.core().learn_own(&attr, self.now());
        Ok(attr)
    }

    /// Sends and publishes everything of every file and makes it durable, as `syncfs` asks.
    pub async fn sync_all(self: &Arc<Self>) -> Result<()> {
        let _timer = self.count(Op::Fsync);
        let mut result = Ok(());
        let files = self.busy_files();
        let mut written = stream::iter(files)
            .map(|file| async move { (self.write_back(&file, false).await, file) })
            .buffer_unordered(REQUESTS_MAX);
        while let Some((written, file)) = written.next().await {
            if let Err(error) = &written {
                tracing::warn!("cannot write back inode {}: {error}", file.ino());
            }
            result = result.and(written);
        }
        drop(written);
        self.drop_idle();
        let groups = 0..self.map().group_count();
        let targets = try_join_all(groups.map(|group| self.sync_group(GroupId(group)))).await;
        let op = MetaOp::Sync(meta::Inode { ino: 0 });
        let names = self.ask(&self.root_cred(), op).await.and_then(|a| done(&a, "sync"));
        result.and(targets.map(drop)).and(names)
    }

    /// Makes everything durable that a group has acknowledged to anyone.
    async fn sync_group(&self, group: GroupId) -> Result<()> {
        let op = StorageOp::Sync(FileRef { volume: self.id().0, ino: 0 });
        self.on_group(group, Bytes::new, op, Bytes::new(), None).await.map(drop)
    }

    /// Sends what is old and publishes lengths, for every file that needs it.
    pub(crate) fn tick_files(self: &Arc<Self>) {
        self.metrics().dirty_bytes.set(self.memory().dirty_bytes() as f64);
        self.drop_idle();
        let now = self.now();
        self.memory().kept().drop_old(now);
        self.metrics().kept_bytes.set(self.memory().kept().bytes() as f64);
        if self.memory().has_freed_much() {
            tokio::task::spawn_blocking(strake_base::process::give_memory_back);
        }
        for file in self.busy_files() {
            {
                let mut core = file.core();
                if std::mem::replace(&mut core.ticking, true) {
                    continue;
                }
                core.dirty.make_ready(now.saturating_sub(DIRTY_AGE_MAX));
                self.start_senders(&file, &mut core);
            }
            let volume = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = volume.tick_file(&file).await {
                    tracing::debug!("cannot publish inode {}: {error}", file.ino());
                }
                file.core().ticking = false;
            });
        }
        self.inodes().files().iter().for_each(|file| file.core().ahead.drop_old(now));
    }

    async fn tick_file(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        let _order = file.order.lock().await;
        let written = match self.write_inline(file, false, false).await {
            Ok(true) => Ok(()),
            Ok(false) => self.publish(file, false).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = &written
            && error.kind != ErrorKind::TimedOut
        {
            file.fail(error);
        }
        self.forget_if_closed(file);
        written
    }

    /// The last handle may have gone while something was unsent.
    fn forget_if_closed(&self, file: &FileState) {
        let ours = file.core().ours;
        let unused = |file: &FileState| file.core().handles == 0 && file.is_idle();
        if unused(file) {
            self.inodes().drop_file(file.ino(), unused, ours);
        }
    }

    pub(crate) fn failed(&self, file: &FileState, error: &Error) {
        tracing::error!("data written to inode {} is lost: {error}", file.ino());
        file.fail(error);
    }
}
