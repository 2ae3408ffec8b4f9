//! Sending and publishing what was written.

use super::Life;
use super::open::{OpenFile, TellBy};
use super::resize::has_rights;
use super::state::{Body, FileState};
use super::unpublished::Times;
use crate::metrics::Op;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{Attr, Credentials, Error, ErrorKind, Ino, Result};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};
use tokio::sync::{Mutex, MutexGuard};

/// Writes older than this are sent by the background task.
const DIRTY_AGE_MAX: Duration = Duration::from_secs(1);

/// How contents that lie inside the inode are sent.
struct Inlined {
    /// The server answers when they are on disk.
    sync: bool,
    /// The last handle is going.
    close: bool,
    /// Mode or owner that the file gets as well.
    change: Option<AttrChange>,
}

/// How the metadata server is told of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// It may answer before that is on disk.
    Lazily,
    /// It answers when that is on disk.
    Durably,
    /// The same; and it is told the time of the newest bytes, although they are on their way still.
    WithTheBytes,
}

impl Volume {
    /// Sends and publishes what was written, as at `close(2)`: other mounts that open the file from
    /// now on see it. Reports a failure of earlier writes once, and leaves it to be reported by
    /// [`Volume::fsync`] too.
    pub async fn flush(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<()> {
        let _timer = self.count(Op::Flush);
        file.heard_of();
        let written = self.write_back_at_close(file, false).await;
        let failed = file.take_failure(TellBy::Close);
        written.and(failed)
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
        self.write_back_in_order(file, close).await.map(drop)
    }

    /// The same to its end, whoever goes away: told again by somebody else, bytes occupied would count twice.
    pub(super) async fn write_back_to_the_end(
        self: &Arc<Self>,
        file: &Arc<FileState>,
    ) -> Result<()> {
        let (volume, file) = (Arc::clone(self), Arc::clone(file));
        task::to_the_end(async move { volume.write_back(&file, false).await }).await
    }

    /// The same, where consistency is not strict: nobody has asked for it.
    pub(crate) async fn tell_relaxed(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        if file.core().is_strict() {
            return Ok(());
        }
        self.write_back_to_the_end(file).await
    }

    /// As [`Volume::write_back`], of a handle that is closed. What is being changed otherwise than by writing, maybe through it,
    /// ends first: a process that was killed is gone when its files are closed, and nothing of it comes after that. A change that
    /// nobody waits for ends with what has begun of it. Who only reads waits for none.
    pub(super) async fn write_back_at_close(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        close: bool,
    ) -> Result<()> {
        let changes = file.flags().write && file.state.core().exclusive;
        match changes {
            true => self.write_back_in_order(&file.state, close).await.map(drop),
            false => self.write_back(&file.state, close).await,
        }
    }

    /// As [`Volume::write_back`], whatever there is to send, and takes the file's order.
    pub(crate) async fn write_back_in_order<'a>(
        self: &Arc<Self>,
        file: &'a Arc<FileState>,
        close: bool,
    ) -> Result<MutexGuard<'a, ()>> {
        let order = self.drain_in_order(file).await?;
        self.tell_in_order(file, close).await?;
        Ok(order)
    }

    /// Tells what is unsent but for chunks. The caller holds the file's order.
    pub(super) async fn tell_in_order(
        self: &Arc<Self>,
        file: &Arc<FileState>,
        close: bool,
    ) -> Result<()> {
        match self.write_inline(file, false, close).await? {
            true => Ok(()),
            false => self.publish(file, Tell::Lazily).await.map(drop),
        }
    }

    /// As [`Volume::drain`], and takes the file's order. While that was waited for a write may have moved out of the
    /// inode what was unsent in it: that is sent, too.
    pub(super) async fn drain_in_order<'a>(
        self: &Arc<Self>,
        file: &'a Arc<FileState>,
    ) -> Result<MutexGuard<'a, ()>> {
        let was_inline = file.core().is_inline();
        self.drain(file).await;
        let order = self.in_order(file).await?;
        if was_inline && !file.core().is_inline() {
            self.drain(file).await;
        }
        Ok(order)
    }

    /// Takes a file's order. Fails where who had it before has waited for the metadata server in vain, and this one has
    /// waited long enough for him.
    pub(super) async fn in_order<'a>(&self, file: &'a FileState) -> Result<MutexGuard<'a, ()>> {
        self.in_line(file, &file.order).await
    }

    /// The same of what else is one's at a time of those who tell of a file.
    pub(super) async fn in_line<'a>(
        &self,
        file: &FileState,
        line: &'a Mutex<()>,
    ) -> Result<MutexGuard<'a, ()>> {
        let began = self.now();
        let turn = line.lock().await;
        if self.has_waited(began) {
            file.core().told_in_vain.check(began)?;
        }
        Ok(turn)
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
        let how = Inlined { sync, close, change: None };
        let error = match self.send_inline(&self.root_cred(), file, how).await? {
            Ok(told) => return Ok(told.is_some()),
            Err(error) => error,
        };
        if error.kind == ErrorKind::FileTooBig {
            return Box::pin(self.move_and_resend(file, sync)).await;
        }
        if error.kind != ErrorKind::TimedOut {
            // Trying again would change nothing: what was written is lost, through whatever handle.
            file.core().forget_unpublished();
            self.failed(file, &error);
        }
        Err(error)
    }

    /// The same with a change of mode or owner, on behalf of whom it is. False also where that is to go by itself: it may be what
    /// is refused, or be new to a server that has taken over.
    pub(super) async fn write_inline_with(
        self: &Arc<Self>,
        cred: &Credentials,
        file: &Arc<FileState>,
        change: AttrChange,
    ) -> Result<bool> {
        let rights = [change.mode, change.uid, change.gid];
        let how = Inlined { sync: false, close: false, change: Some(change) };
        match self.send_inline(cred, file, how).await {
            Ok(Ok(Some(attr))) => Ok(has_rights(&attr, rights)),
            Ok(Err(error)) if error.kind == ErrorKind::TimedOut => Err(error),
            _ => Ok(false),
        }
    }

    /// What the server says to unsent contents of a small file; `None`: there are none. Fails where they are given up.
    async fn send_inline(
        self: &Arc<Self>,
        cred: &Credentials,
        file: &Arc<FileState>,
        Inlined { sync, close, change }: Inlined,
    ) -> Result<Result<Option<Arc<Attr>>>> {
        let (unsent, times, drop_setid, life) = {
            let core = file.core();
            let Body::Inline(inline) = &core.body else { return Ok(Ok(None)) };
            let Some(unsent) = inline.unsent() else { return Ok(Ok(None)) };
            let unpublished = &core.unpublished;
            (unsent, unpublished.times, unpublished.drop_setid, Life::of(file, &core))
        };
        let (close, incarnation) = {
            let mut core = file.core();
            // Somebody may have opened it again meanwhile, by what is counted already.
            let close = close && core.handles <= 1 && core.registered > 0;
            core.registered -= usize::from(close);
            if core.registered == 0 {
                core.awake = 0;
            }
            (close, core.incarnation)
        };
        let [mtime, ctime, atime] = times.map(Times::told).unwrap_or_default();
        let write = meta::WriteInline {
            ino: file.ino().0,
            offset: unsent.offset,
            data: unsent.data.clone(),
            mtime,
            ctime,
            atime,
            sync,
            drop_setid,
            close,
            incarnation,
            change: change.map(Box::new),
        };
        let answer = self.mutate_in(life, cred, MetaOp::WriteInline(write)).await;
        file.core().told_in_vain.note(self.now(), answer.as_ref().err());
        // Where the session was lost while the answer came, that is told already.
        life.check()?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if close {
                    file.core().register(incarnation);
                }
                return Ok(Err(error));
            }
        };
        if let Body::Inline(inline) = &mut file.core().body {
            inline.accepted(&unsent);
        }
        let attr = self.own_entry(file, answer, "write inline")?;
        self.published(life, times, drop_setid, (0, 0));
        self.inodes().learn(&attr, self.now());
        Ok(Ok(Some(attr)))
    }

    /// Another mount has moved the contents out to chunks: what was written follows them. Whoever is to make it durable syncs
    /// targets when others have the file's order again.
    async fn move_and_resend(self: &Arc<Self>, file: &Arc<FileState>, sync: bool) -> Result<bool> {
        self.move_out(file).await?;
        self.drain(file).await;
        self.publish(file, if sync { Tell::Durably } else { Tell::Lazily }).await
    }

    /// Tells the metadata server length and time of what targets have acknowledged. False if it
    /// knows all. The caller holds the file's order.
    pub(crate) async fn publish(&self, file: &Arc<FileState>, how: Tell) -> Result<bool> {
        let (publish, times, life) = {
            let mut core = file.core();
            if !core.is_unpublished() {
                return Ok(false);
            }
            let length_min = core.unpublished.begin_telling();
            let unpublished = &core.unpublished;
            // While bytes are on their way, who opens the file sees old ones: the time of the new
            // ones is not told before they are there.
            // Who opens it then waits for them, where nobody has it open yet ([`Volume::fsync`]).
            let waited_for = how == Tell::WithTheBytes && !core.shared;
            let early = core.is_unsent() && !waited_for;
            let told = unpublished.times.map(|times| if early { times.before() } else { times });
            // The server counts nothing behind the end that it knows, where bytes lie that are on their way.
            let end = length_min.max(core.attr.length).next_multiple_of(4096);
            let counted = i64::try_from(end.saturating_sub(core.attr.occupied)).unwrap_or(i64::MAX);
            let most = if core.is_unsent() { counted } else { i64::MAX };
            let [mtime, ctime, atime] = told.map(Times::told).unwrap_or_default();
            let publish = meta::Publish {
                ino: file.ino().0,
                length_min,
                mtime,
                ctime,
                atime,
                sync: how != Tell::Lazily,
                occupied_delta: unpublished.occupied.min(most),
                drop_setid: unpublished.drop_setid,
            };
            (publish, told, Life::of(file, &core))
        };
        let answer = self.mutate_in(life, &self.root_cred(), MetaOp::Publish(publish)).await;
        file.core().told_in_vain.note(self.now(), answer.as_ref().err());
        // As above.
        life.check()?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if error.kind != ErrorKind::TimedOut {
                    file.core().forget_unpublished();
                    self.failed(file, &error);
                }
                return Err(error);
            }
        };
        let attr = self.own_entry(file, answer, "publish")?;
        let told = (publish.length_min, publish.occupied_delta);
        self.published(life, times, publish.drop_setid, told);
        self.inodes().learn(&attr, self.now());
        Ok(true)
    }

    /// The server knows this much now; what was written meanwhile stays unpublished.
    fn published(
        &self,
        life: Life<'_>,
        times: Option<Times>,
        drop_setid: bool,
        (length, occupied): (u64, i64),
    ) {
        let mut core = life.file().core();
        if !life.is_that_of(&core) {
            return;
        }
        let unsent = core.is_unsent();
        let unpublished = &mut core.unpublished;
        unpublished.occupied -= occupied;
        if unpublished.telling <= length {
            // Should another mount cut the file from now on, we must not make it longer again.
            unpublished.telling = 0;
        }
        // What was acknowledged meanwhile is told next, however far it reaches: another mount may have cut the file in between.
        if unpublished.note_told(times) && !unsent && unpublished.end() == 0 {
            unpublished.times = None;
            unpublished.drop_setid &= !drop_setid;
            // Longer it can be only by what has failed to be written.
            core.length = core.attr.length;
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

    /// Sends what is old and publishes lengths, for every file that needs it.
    pub(crate) fn tick_files(self: &Arc<Self>) {
        self.metrics().dirty_bytes.set(self.memory().dirty_bytes() as f64);
        self.drop_idle();
        self.settle_left();
        let now = self.now();
        self.report_old_closes(now);
        self.memory().kept().drop_old(now);
        self.metrics().kept_bytes.set(self.memory().kept().bytes() as f64);
        self.metrics().listing_bytes.set(self.memory().listings().bytes() as f64);
        if self.memory().has_freed_much() {
            task::blocking(strake_base::process::give_memory_back);
        }
        for file in self.busy_files() {
            {
                let mut core = file.core();
                core.dirty.make_ready(now.saturating_sub(DIRTY_AGE_MAX));
                self.start_senders(&file, &mut core);
            }
            self.start_tick(file);
        }
        self.drop_read_ahead(now);
    }

    /// Tells of a file, unless that is under way.
    pub(super) fn start_tick(self: &Arc<Self>, file: Arc<FileState>) {
        if std::mem::replace(&mut file.core().ticking, true) {
            return;
        }
        let volume = Arc::clone(self);
        task::spawn(async move {
            if let Err(error) = volume.tick_file(&file).await {
                tracing::debug!("cannot publish inode {}: {error}", file.ino());
            }
            file.core().ticking = false;
        });
    }

    async fn tick_file(self: &Arc<Self>, file: &Arc<FileState>) -> Result<()> {
        let _one = self.share_of(file.ino()).tellers.acquire().await;
        // Whoever has it tells of the file.
        let Ok(_order) = file.order.try_lock() else { return Ok(()) };
        let written = self.tell_in_order(file, false).await;
        self.forget_if_closed(file);
        written
    }

    /// The last handle may have gone while something was unsent.
    pub(crate) fn forget_if_closed(&self, file: &FileState) {
        let unused = !file.core().is_used();
        if unused {
            self.drop_unused(file);
        }
    }

    /// What was written to a file has not become true, or is not any more: its handles report it.
    pub(crate) fn failed(&self, file: &FileState, error: &Error) {
        self.lost_of(file, error);
        file.fail(error);
        self.drop_lost(file.ino());
        let is_closed = file.core().handles == 0;
        if is_closed {
            self.left().note_lost(file.ino());
        }
    }

    /// As [`Volume::lost()`]: of each of many writes that fail alike nothing new is said.
    pub(crate) fn lost_of(&self, file: &FileState, error: &Error) {
        let is_said = file.core().failure.is_same(error);
        match is_said {
            true => self.memory().kept().forget(file.ino()),
            false => self.lost(file.ino(), error),
        }
    }

    pub(crate) fn lost(&self, ino: Ino, error: &Error) {
        tracing::error!("data written to inode {ino} is lost: {error}");
        self.memory().kept().forget(ino);
    }

    /// A kernel may have what is lost of a file, under the length and the time that the file has from then on: it drops that.
    /// Nobody waits for it, and who opens the file meanwhile has it dropped as well.
    pub(crate) fn drop_lost(&self, ino: Ino) {
        self.inodes().forget_seen(ino);
        self.believer().iter().for_each(|believer| believer.forget_soon(ino));
    }
}
