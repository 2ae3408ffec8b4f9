//! Opening and releasing files.

use super::ahead::Sequence;
use super::runs::Runs;
use super::state::{Body, Core, FileState};
use crate::api::{OpenFlags, Wanted};
use crate::contents::Contents;
use crate::metrics::Op;
use crate::ops::{open_mode, unexpected};
use crate::patience::Patience;
use crate::unsynced::Unsynced;
use crate::volume::Volume;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_types::{Attr, Consistency, Credentials, Error, ErrorKind, Ino, Result, SetAttr};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, Opened};

/// A handle of a file. Release it with [`Volume::release`]; if it is only dropped, what was written
/// is still sent, but nobody learns of a failure.
pub struct OpenFile {
    pub(crate) state: Arc<FileState>,
    volume: Weak<Volume>,
    flags: OpenFlags,
    keep_cache: bool,
    opened_shared: bool,
    /// It counts in [`super::handles::Handles::paged`].
    paged: bool,
    /// It counts among those that [`super::state::Core::dropping`] speaks of.
    dropping: AtomicBool,
    /// How often the file had been given setuid or setgid, and one, when an ordinary user last wrote through it: that takes them away.
    /// [`u64::MAX`]: such a one has opened it.
    pub(super) drops_setid: AtomicU64,
    /// Number of failures of the file that were before this handle, or that it need not tell any more
    /// by each of [`TellBy`].
    failures_told: [AtomicU64; 3],
    pub(crate) sequence: Mutex<Sequence>,
    /// Where it writes while others have the file open.
    pub(crate) runs: Mutex<Runs>,
    released: AtomicBool,
}

/// What the metadata server answered to an open.
pub(crate) struct Opening {
    pub(crate) flags: OpenFlags,
    pub(crate) opened: Opened,
    /// The file was made by it.
    pub(crate) created: bool,
    /// When it was asked for.
    pub(crate) asked: Duration,
    /// The incarnation of the session in which it is counted.
    pub(crate) incarnation: u64,
    /// See [`crate::route::Said`].
    pub(crate) told_cuts: bool,
}

/// By what a handle tells of a failure. Whoever calls may not notice: an error in the middle of a long
/// `write` is a short write, and a `close` may be that of a child process. So what was told by one is
/// told again by those that come after it here.
#[derive(Clone, Copy)]
pub(crate) enum TellBy {
    Write,
    Close,
    Sync,
}

impl OpenFile {
    /// The file.
    pub fn ino(&self) -> Ino {
        self.state.ino()
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// True if the contents are as they were when this mount last had the file open, so that pages
    /// cached since are still good.
    pub fn keep_cache(&self) -> bool {
        self.keep_cache
    }

    /// True if others have it open as well, and it is written to.
    pub fn is_shared(&self) -> bool {
        self.state.core().shared
    }

    /// True if others could write to it when it was opened, or had it open where this mount may write: what is kept of
    /// it is taken back all the time.
    pub fn opened_shared(&self) -> bool {
        self.opened_shared
    }

    /// True once [`Volume::release`] was called.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Fails if it was released while somebody waited to change the file through it: his process is gone, and others may
    /// have the locks under which he meant to do that.
    pub(crate) fn check_kept(&self) -> Result<()> {
        match self.is_released() {
            true => Err(Error::with(ErrorKind::Invalid, "the handle was released meanwhile")),
            false => Ok(()),
        }
    }

    /// The same, or if the change is not wanted any more.
    pub(super) fn check_wanted(&self, is_wanted: Wanted<'_>) -> Result<()> {
        self.check_kept()?;
        match is_wanted() {
            true => Ok(()),
            false => Err(Error::with(ErrorKind::Interrupted, "nobody waits for it any more")),
        }
    }

    /// The handle is used, so its `open` has returned: what the kernel was to drop then is dropped.
    pub(crate) fn heard_of(&self) {
        if self.dropping.load(Ordering::Relaxed) && self.dropping.swap(false, Ordering::Relaxed) {
            self.state.core().dropping -= 1;
        }
    }

    /// Something leased is read through it.
    pub(crate) fn reads(&self, core: &mut Core) {
        if self.paged && !core.paged_reads {
            core.paged_reads = core.open.paged > 0;
        }
    }

    /// Attributes as this mount knows them now.
    pub fn attr(&self) -> Attr {
        let core = self.state.core();
        let newest = Arc::clone(&core.attr);
        core.merged(&newest)
    }

    /// True if the file may be mapped here to be stored into.
    pub fn may_be_mapped(&self) -> bool {
        self.state.core().open.mapping > 0
    }

    /// A failure of earlier writes that this handle has to tell.
    pub(crate) fn take_failure(&self, by: TellBy) -> Result<()> {
        let failure = &mut self.state.core().failure;
        let told = &self.failures_told[..=by as usize];
        if told[by as usize].load(Ordering::Relaxed) == failure.count {
            return Ok(());
        }
        told.iter().for_each(|told| told.store(failure.count, Ordering::Relaxed));
        failure.untold &= !matches!(by, TellBy::Sync);
        Err(failure.error.clone().unwrap_or(Error::new(ErrorKind::Io)))
    }

    pub(crate) fn check_readable(&self, volume: &Volume) -> Result<()> {
        let readable = self.flags.read || volume.options().exclusive;
        if readable { Ok(()) } else { Err(Error::with(ErrorKind::Invalid, "not open for reading")) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        let writable = self.flags.write;
        if writable { Ok(()) } else { Err(Error::with(ErrorKind::Invalid, "not open for writing")) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.is_released()
            && let Some(volume) = self.volume.upgrade()
        {
            volume.forget_handle(self, false);
        }
    }
}

impl Volume {
    /// Opens a regular file.
    pub async fn open(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: Ino,
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>> {
        let _timer = self.count(Op::Open);
        if let Some(file) = self.open_again(cred, ino, flags) {
            return Ok(file);
        }
        if self.inodes().file(ino).is_none() {
            self.check_open_files()?;
        }
        let is_open = flags.truncate && {
            // A state that nobody uses would only be in the way.
            self.report_close(ino);
            self.inodes().file(ino).is_some()
        };
        let asked_for = OpenFlags { truncate: flags.truncate && !is_open, ..flags };
        let asked = self.now();
        let op = MetaOp::Open(meta::Open { ino: ino.0, mode: open_mode(asked_for, self) });
        // Numbered: however often it is sent, it counts once.
        let said = self.mutate_as(cred, op).await?;
        let MetaAnswer::Opened(opened) = said.answer else { return Err(unexpected("open")) };
        let is_cut = !is_open && !self.has_crossed(opened.attr.ino, opened.attr.version);
        let (incarnation, told_cuts) = (said.incarnation, said.told_cuts);
        let told = Opening { flags, opened, created: false, asked, incarnation, told_cuts };
        let file = self.opened(cred, told).await?;
        if flags.truncate {
            self.cut_in_order(cred, &file, is_cut).await?;
        }
        Ok(file)
    }

    /// True if this mount may have written to a file while a request was under way that has cut it to this version. What it
    /// has told of the file meanwhile may have come after the cut.
    pub(crate) fn has_crossed(&self, ino: u64, cut_version: u64) -> bool {
        let (known, state) = self.inodes().get(Ino(ino));
        let writes = state.is_some_and(|state| state.core().may_write());
        writes || known.is_some_and(|(known, _)| known.version > cut_version)
    }

    /// Cuts a file that was opened with truncation. The server may have done so already (`is_cut`): what other handles of this
    /// mount were writing may have overtaken that, and its length would be told after it. Then it is cut once more, in order.
    pub(crate) async fn cut_in_order(
        self: &Arc<Self>,
        cred: &Credentials,
        file: &Arc<OpenFile>,
        is_cut: bool,
    ) -> Result<()> {
        let is_alone = {
            let core = file.state.core();
            core.handles == 1 && core.is_idle()
        };
        if is_cut && is_alone {
            return Ok(());
        }
        let change = SetAttr { length: Some(0), ..SetAttr::default() };
        Box::pin(self.setattr(cred, file.ino(), change, Some(file))).await.map(drop)
    }

    /// All that are open are named in one message when a session goes on.
    pub(crate) fn check_open_files(&self) -> Result<()> {
        let max = self.options().open_files_max;
        if self.inodes().count() >= max {
            // Some may be closed already, and kept for whoever opens them next.
            self.report_all_closes();
        }
        match self.inodes().count() < max {
            true => Ok(()),
            false => {
                let detail = format!("{max} files are open here, and more may not be at once");
                Err(Error::with(ErrorKind::TooManyFiles, detail))
            }
        }
    }

    /// Makes a handle of what the server answered. If the session was opened anew meanwhile, the server may
    /// not count it, and what it said of the file may be over: it is opened again.
    pub(crate) async fn opened(
        self: &Arc<Self>,
        cred: &Credentials,
        mut told: Opening,
    ) -> Result<Arc<OpenFile>> {
        loop {
            let (flags, incarnation) = (told.flags, told.incarnation);
            if told.opened.unsettled {
                Box::pin(self.settle_or_close(&mut told.opened, incarnation)).await?;
            }
            let file = self.handle(cred, told)?;
            if self.session(file.ino()).is_newest(incarnation) {
                return Ok(file);
            }
            let mode = meta::OpenMode { truncate: false, ..open_mode(flags, self) };
            let op = MetaOp::Open(meta::Open { ino: file.ino().0, mode });
            let asked = self.now();
            // Whoever may open it did so.
            let said = Box::pin(self.mutate_as(&self.root_cred(), op)).await?;
            let MetaAnswer::Opened(opened) = said.answer else { return Err(unexpected("open")) };
            let flags = OpenFlags { truncate: false, ..flags };
            let (incarnation, told_cuts) = (said.incarnation, said.told_cuts);
            told = Opening { flags, opened, created: false, asked, incarnation, told_cuts };
        }
    }

    fn handle(self: &Arc<Self>, cred: &Credentials, told: Opening) -> Result<Arc<OpenFile>> {
        let Opening { flags, opened, created, asked, incarnation, told_cuts } = told;
        let attr: Arc<Attr> = Arc::new(opened.attr.clone().try_into()?);
        let now = self.now();
        let ino = attr.ino;
        self.inodes().learn(&attr, now);
        let mut keep_cache = created || self.options().exclusive;
        if !keep_cache {
            keep_cache = self.is_unchanged(&attr);
        }
        let mode = open_mode(flags, self);
        if flags.truncate {
            self.memory().kept().forget(ino);
        }
        let state = self.inodes().file_or_new(
            ino,
            |rested| {
                let left = self.left().take(ino);
                let file = FileState::new(
                    &attr,
                    &opened,
                    created,
                    self.memory().kept(),
                    self.paces(),
                    now,
                );
                {
                    let mut core = file.core();
                    let others = (!created).then_some(attr.length);
                    (core.rested, core.unsynced) = (rested, Unsynced::new(others, left));
                }
                Arc::new(file)
            },
            |file| {
                // Before it is known as unchanged to those who open it after this.
                file.core().dropping += usize::from(!keep_cache);
                file.core().shared |= opened.shared;
                let rights = [mode.read, mode.write];
                let times = (told_cuts.then_some(asked), now);
                file.add_handle(&attr, &opened, rights, incarnation, times);
                // Also who cuts it by opening it is counted as one who reads, unless he may write.
                if mode.write {
                    self.woken(file, &mut file.core(), asked, incarnation);
                }
                file.count_direct(flags.direct);
                self.end_deferral(ino, &mut file.core());
            },
        );
        // Where it was recalled meanwhile the kernel may have been told before there was a handle.
        let leases = self.leases(ino);
        let leased = attr.consistency() != Consistency::Parallel;
        let asks = leased && leases.are_on() && !self.options().exclusive;
        if keep_cache && asks && !leases.covers(ino, attr.version, now) {
            keep_cache = false;
            state.core().dropping += 1;
        }
        if self.is_shared(&opened, asked) {
            state.core().shared = true;
        }
        Ok(self.handle_of(state, cred, flags, keep_cache, opened.others_write))
    }

    /// A handle of a file in which it is counted already, also as one that drops pages.
    pub(super) fn handle_of(
        self: &Arc<Self>,
        state: Arc<FileState>,
        cred: &Credentials,
        flags: OpenFlags,
        keep_cache: bool,
        others_write: bool,
    ) -> Arc<OpenFile> {
        let paged;
        let (failures, keep_cache, opened_shared) = {
            let mut core = state.core();
            // Who was told to drop them does so when the answer has arrived: pages of before may be there still.
            let still = keep_cache && core.dropping > 0 && !self.options().exclusive;
            core.dropping += usize::from(still);
            let shared = core.shared || others_write;
            // What is written through others a kernel does not keep; what it reads is leased.
            paged = flags.maps() && !flags.direct && !flags.append && !shared;
            core.open.paged += usize::from(paged);
            core.open.mapping += usize::from(flags.maps());
            (core.failure.count, keep_cache && !still, shared)
        };
        Arc::new(OpenFile {
            dropping: AtomicBool::new(!keep_cache),
            state,
            volume: Arc::downgrade(self),
            flags,
            keep_cache,
            opened_shared,
            paged,
            drops_setid: AtomicU64::new(if cred.uid == 0 { 0 } else { u64::MAX }),
            failures_told: std::array::from_fn(|_| AtomicU64::new(failures)),
            sequence: Mutex::default(),
            runs: Mutex::default(),
            released: AtomicBool::new(false),
        })
    }

    fn is_unchanged(&self, attr: &Attr) -> bool {
        let known = match self.inodes().file(attr.ino) {
            Some(file) => file.core().ours,
            None => self.inodes().seen(attr.ino),
        };
        known == Some(Contents::of(attr))
    }

    /// Sends and publishes what was written, then gives the handle back. An error of earlier writes
    /// that was not reported yet is reported here; the handle is gone nevertheless.
    pub async fn release(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<()> {
        let _timer = self.count(Op::Release);
        if file.is_released() {
            return Ok(());
        }
        let (last, orphan) = {
            let core = file.state.core();
            (core.handles == 1, core.attr.nlink == 0)
        };
        if last && orphan {
            file.state.discard();
        }
        let written = self.write_back_at_close(file, last).await;
        let failed = file.take_failure(TellBy::Close);
        self.forget_handle(file, true);
        written.and(failed)
    }

    /// Takes a handle out of the count, and lets the server know sooner or later.
    pub(crate) fn forget_handle(&self, file: &OpenFile, idle: bool) {
        if file.released.swap(true, Ordering::Relaxed) {
            return;
        }
        file.heard_of();
        let state = &file.state;
        let (closes, incarnation, last, deferred) = {
            let mut core = state.core();
            core.handles -= 1;
            if core.handles == 0 {
                self.dense.lock().closed(state.ino());
            }
            let deferred = self.defer_close(state.ino(), &mut core);
            // The server is to count at least one open as long as there is a handle, or
            // something is on its way.
            let keep = usize::from(core.counts_as_open());
            let closes = core.registered.saturating_sub(keep).min(match core.handles {
                0 => usize::MAX,
                _ => 1,
            });
            core.registered -= closes;
            if core.registered == 0 {
                // With the last open the server takes them back.
                core.claims.give_up();
                core.awake = 0;
            }
            core.open.direct -= usize::from(file.flags.direct);
            core.open.paged -= usize::from(file.paged);
            core.open.mapping -= usize::from(file.flags.maps());
            core.paged_reads &= core.open.paged > 0;
            if core.handles == 0 {
                core.ahead.clear();
            }
            (closes, core.incarnation, core.handles == 0, deferred)
        };
        self.session(state.ino()).add_closed(state.ino().0, closes, incarnation);
        if deferred {
            self.check_deferral(state);
        } else if last && (idle || state.is_idle()) {
            self.drop_unused(state);
        }
    }

    /// Drops the state of a file if nothing needs it, but for what is not durable yet: who opens the
    /// file again and syncs it is to learn of a loss.
    pub(crate) fn drop_unused(&self, file: &FileState) {
        let (mut closes, mut incarnation) = (0, 0);
        let unused = |file: &FileState| {
            let mut core = file.core();
            let unused = !core.counts_as_open();
            (closes, incarnation) = (core.give_up_opens(), core.incarnation);
            // Nobody can open what has no name.
            if unused && core.attr.nlink > 0 {
                self.left().put(file.ino(), std::mem::take(&mut core.unsynced), self.now());
            }
            unused
        };
        let ours = file.core().ours;
        self.inodes().drop_file(file.ino(), unused, ours);
        self.session(file.ino()).add_closed(file.ino().0, closes, incarnation);
    }

    /// Asks for a new capability in place of one that was refused. All that were refused beside it wait for the answer and go by
    /// that, if they can: where it takes long they would keep the connection of the mount busy, each with one more.
    pub(crate) async fn renew_capability(&self, file: &FileState, write: bool) -> Result<()> {
        let refused = file.core().right(write);
        let what = || format!("the right to inode {}", file.ino());
        let turn = async { Ok(file.renewing.lock().await) };
        let _turn = Patience::new(self).on(Some(file.ino())).within(what, turn).await?;
        let newest = file.core().right(write);
        if !newest.is_empty() && newest != refused {
            return Ok(());
        }
        let mode = meta::OpenMode { read: true, write, truncate: false };
        let op = MetaOp::Open(meta::Open { ino: file.ino().0, mode });
        let said = self.mutate_as(&self.root_cred(), op).await?;
        let MetaAnswer::Opened(opened) = said.answer else { return Err(unexpected("open")) };
        let told = said.told_cuts.then_some(said.asked);
        file.core().set_capability([true, write], &opened.capability, told);
        // The server counted one more open than there are handles.
        self.session(file.ino()).add_closed(file.ino().0, 1, said.incarnation);
        Ok(())
    }
}

impl FileState {
    /// Counts a handle that was opened, if with O_DIRECT.
    pub(super) fn count_direct(&self, direct: bool) {
        if direct {
            let mut core = self.core();
            core.open.direct += 1;
            core.kept.clear();
        }
    }

    /// Forgets everything unsent: nobody can ever read it.
    fn discard(&self) {
        let mut core = self.core();
        core.dirty.cut(0, u64::MAX);
        core.kept.clear();
        if let Body::Inline(inline) = &mut core.body {
            inline.forget_unsent();
        }
        if !core.is_unsent() {
            core.unpublished = Default::default();
        }
        drop(core);
        // Somebody may wait until it is sent.
        self.progress.notify_waiters();
    }
}
