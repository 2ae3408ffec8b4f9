//! Files that others have open as well: each write is told before it returns, so that nobody holds back what
//! somebody else may ask for (SPRITE's rule, as the metadata server's `sharing.rs` has it).
//!
//! The metadata server says of a file that it is shared when it is opened, or later by what is fetched with
//! recalls. It stays so until the last handle of this mount is gone. An append locks the end of the file first.
//!
//! What lies in ranges that this mount has [claimed](super::claims) is held back all the same. A write to anything else
//! asks for a claim, or learns that nobody has one for a while, before it is taken: what others hold back would come after it.

use super::Life;
use super::claims::{CLAIMS_MAX, no_claim};
use super::open::{OpenFile, TellBy};
use super::runs::Wish;
use super::state::{Core, FileState};
use super::write::At;
use crate::api::{LockKind, LockRequest, Written};
use crate::ops::{done, unexpected};
use crate::share::Share;
use crate::volume::Volume;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strake_base::{is_broken, task};
use strake_types::{Attr, Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, Opened};
use tokio::sync::{MutexGuard, oneshot};

/// For how long an answer to an open may be on its way that does not know yet that the file is shared.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(120);
/// So many files that were said to be shared are remembered without looking whether they still need be.
const NOTED_MIN: usize = 64;
/// Between two attempts to tell what could not be told.
const PAUSE: Duration = Duration::from_millis(100);

/// What the metadata server has asked for.
#[derive(Default)]
pub(crate) struct Asked {
    /// When files were last said to be shared.
    at: Mutex<Noted>,
    /// Files of which what was written is being told.
    telling: Mutex<HashSet<Ino>>,
    /// The same where it is told once, for those who look: with the number of the last question.
    showing: Mutex<HashMap<Ino, u64>>,
}

/// Files with a time each.
#[derive(Default)]
struct Noted {
    times: HashMap<Ino, Duration>,
    /// With so many the next one has those forgotten that are too old: to look at all for each would cost more with each.
    full_at: usize,
}

impl Noted {
    fn note(&mut self, ino: Ino, now: Duration) {
        if self.times.len() >= self.full_at {
            self.times.retain(|_, noted| now.saturating_sub(*noted) < ANSWER_AGE_MAX);
            self.full_at = 2 * self.times.len() + NOTED_MIN;
        }
        self.times.insert(ino, now);
    }
}

impl Asked {
    fn note(&self, ino: Ino, now: Duration) {
        self.at.lock().note(ino, now);
    }

    /// True if a file is known to be shared since something was `asked`.
    fn is_since(&self, ino: Ino, asked: Duration) -> bool {
        self.telling.lock().contains(&ino)
            || self.at.lock().times.get(&ino).is_some_and(|noted| *noted >= asked)
    }
}

/// Opens that the server counts and nobody has yet; dropped, they are closed.
struct Counted<'a> {
    volume: &'a Volume,
    ino: u64,
    incarnation: u64,
    times: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.volume.session(Ino(self.ino)).add_closed(self.ino, self.times, self.incarnation);
    }
}

/// An append that is to give back the end of a file, until it is dropped.
struct Ending {
    volume: Arc<Volume>,
    file: Arc<FileState>,
}

impl Ending {
    fn of(volume: &Arc<Volume>, file: &Arc<FileState>) -> Self {
        file.core().ending += 1;
        Self { volume: Arc::clone(volume), file: Arc::clone(file) }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.file.core().ending -= 1;
        self.volume.forget_if_closed(&self.file);
    }
}

/// No application locks this byte ([`crate::ops::locks`]).
fn end_lock(ino: Ino, kind: LockKind) -> LockRequest {
    let (start, end) = (u64::MAX, u64::MAX);
    // One for each file: they wait for each other in no circle.
    let owner = u64::MAX - ino.0;
    LockRequest { owner, pid: 0, start, end, kind, flock: false, wait: true }
}

impl Volume {
    /// Others have opened these files. What was written to them is told by tasks of their own, then the
    /// metadata server is.
    pub(crate) fn share(self: &Arc<Self>, asks: &[meta::Ask]) {
        for &meta::Ask { ino, number, keep } in asks {
            let ino = Ino(ino);
            if keep {
                self.show(ino, number);
                continue;
            }
            self.asked.note(ino, self.now());
            let closed = self.report_close(ino);
            let file = self.inodes().file(ino);
            if let Some(file) = &file {
                let mut core = file.core();
                core.shared = true;
                // What was taken before is told now; what is taken from now on is not held back.
                if !is_broken("claims-end-when-called") {
                    core.claims.give_up();
                }
            }
            if self.asked.telling.lock().insert(ino) {
                let volume = Arc::clone(self);
                task::spawn(async move {
                    if let Some(file) = file {
                        volume.tell(&file).await;
                    }
                    if closed {
                        volume.tick_session(volume.share_of(ino), 0).await;
                    }
                    let told = volume.say_told(ino, number, false).await;
                    // An open that was asked for meanwhile may have been counted before.
                    volume.asked.note(ino, volume.now());
                    volume.asked.telling.lock().remove(&ino);
                    if let Err(error) = told {
                        tracing::debug!("cannot say that inode {ino} is told: {error}");
                    }
                });
            }
        }
    }

    /// Somebody else looks at a file, or gives it a time: what was written to it is told by a task of its own, and the claims stay. A question that
    /// comes meanwhile is of what is written meanwhile, too.
    fn show(self: &Arc<Self>, ino: Ino, number: u64) {
        if self.asked.showing.lock().insert(ino, number).is_some() {
            return;
        }
        let volume = Arc::clone(self);
        task::spawn(async move {
            loop {
                let number = volume.asked.showing.lock().get(&ino).copied().unwrap_or(0);
                let file = volume.inodes().file(ino);
                if let Some(file) = &file {
                    volume.tell(file).await;
                }
                if let Err(error) = volume.say_told(ino, number, true).await {
                    tracing::debug!("cannot say that inode {ino} is told: {error}");
                }
                let mut showing = volume.asked.showing.lock();
                if showing.get(&ino) == Some(&number) {
                    showing.remove(&ino);
                    return;
                }
            }
        });
    }

    /// Others opened these files while the metadata server did not hear of us. What is held back is told as ever,
    /// what is written from now on before that is answered.
    pub(crate) fn are_shared(&self, inos: &[u64]) {
        for ino in inos.iter().copied().map(Ino) {
            self.asked.note(ino, self.now());
            self.inodes().file(ino).iter().for_each(|file| file.core().shared = true);
        }
    }

    /// A session with a share begins anew: its server may be another one, which knows of no claims.
    pub(crate) fn forget_claims(&self, share: &Share) {
        let files = self.inodes().files().into_iter();
        let of_share = files.filter(|file| self.home(file.ino()) == share.id);
        of_share.for_each(|file| file.core().claims.forget());
    }

    /// How a range of a file may be written now: true if it may be held back, false if it is to be told before the write is
    /// answered. `None`: [`Volume::claim`] comes first.
    pub(super) fn may_hold_back(&self, ino: Ino, core: &Core, range: &Range<u64>) -> Option<bool> {
        // Who is not told that others have it open when this is answered tells nothing.
        if !core.shared || !self.session(ino).grants_claims() {
            return Some(false);
        }
        let now = self.now();
        // Who is cut off is not waited for any more when another metadata server has begun: he holds back nothing new then.
        let claimed = core.claims.cover(range) && self.leases(ino).last(now);
        (claimed || core.claims.let_through(now)).then_some(claimed)
    }

    /// Asks for a claim on a range of a shared file, or (no wish) that nobody has any. Whether that was granted, or all may write
    /// through for a while, [`Volume::may_hold_back`] says. True if the write for which it is asked may go through to the range,
    /// and no other: nobody held anything back there since it began.
    pub(super) async fn claim(&self, file: &FileState, wish: Option<Wish>) -> Result<bool> {
        let (claim, turn, life) = {
            let core = file.core();
            // What a kernel keeps is recalled with leases, and nobody is leased a file of which something is claimed.
            let pages = core.paged_reads;
            let through = wish.is_none() || pages || !self.leases(file.ino()).last(self.now());
            let (ino, once) = (file.ino().0, wish.is_some());
            let Wish { start, end, wanted_end } = wish.unwrap_or_default();
            let claim = meta::Claim { ino, start, end, wanted_end, through, once };
            (claim, core.claims.turn(), Life::of(file, &core))
        };
        let said = match self.ask_about(&self.root_cred(), MetaOp::Claim(claim)).await {
            Err(error) if error.kind == ErrorKind::Malformed => {
                return self.without_claims(file.ino(), error).await.map(|()| false);
            }
            said => said?,
        };
        let MetaAnswer::Claimed(claimed) = said.answer else { return Err(unexpected("claim")) };
        let mut core = file.core();
        if claimed.end > claim.start {
            // Called back, it may have been granted before that.
            if core.claims.turn() == turn && life.is_that_of(&core) {
                core.claims.granted(claim.start..claimed.end);
            }
            return Ok(false);
        }
        if !self.session(file.ino()).is_newest(said.incarnation) {
            return Ok(false);
        }
        core.claims.refused(said.asked + Duration::from_millis(claimed.through_ms));
        Ok(claimed.once)
    }

    /// The server does not know what a claim is: one of an earlier release has taken over, and says of a question that it does
    /// not know nothing of the session either. It is asked one that it knows, with which the session begins anew.
    async fn without_claims(&self, ino: Ino, error: Error) -> Result<()> {
        let _known: Attr = self.fetch_attr(ino, false).await?;
        match self.session(ino).grants_claims() {
            true => Err(error),
            false => Ok(()),
        }
    }

    /// Before contents are changed otherwise than by writing: nobody has a claim on the file then.
    pub(super) async fn claim_nothing(&self, file: &FileState) -> Result<()> {
        for _ in 0..CLAIMS_MAX {
            let asks = {
                let core = file.core();
                let through = core.claims.let_through(self.now());
                core.shared && !through && self.session(file.ino()).grants_claims()
            };
            if !asks {
                return Ok(());
            }
            self.claim(file, None).await?;
        }
        Err(no_claim())
    }

    /// Tells what has been written so far. What fails is reported by the handles, and held back no more.
    async fn tell(self: &Arc<Self>, file: &Arc<FileState>) {
        while let Err(error) = self.write_back(file, false).await {
            if error.kind != ErrorKind::TimedOut {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn say_told(&self, ino: Ino, number: u64, kept: bool) -> Result<()> {
        let paged = |file: Arc<FileState>| file.core().open.paged > 0;
        let keeps_pages = self.inodes().file(ino).is_some_and(paged);
        let told = meta::Told { ino: ino.0, number, keeps_pages, kept, ..meta::Told::default() };
        let op = MetaOp::Told(told);
        done(&self.ask(&self.root_cred(), op).await?, "told")
    }

    /// True if a file that was asked to be opened then is to be written to as one that others have open.
    pub(super) fn is_shared(&self, opened: &Opened, asked: Duration) -> bool {
        let ino = Ino(opened.attr.ino);
        opened.shared || self.asked.is_since(ino, asked)
    }

    /// As [`Volume::settle`], of a file that is closed again unless that succeeds.
    pub(super) async fn settle_or_close(
        &self,
        opened: &mut Opened,
        incarnation: u64,
    ) -> Result<()> {
        let mut counted = Counted { volume: self, ino: opened.attr.ino, incarnation, times: 1 };
        self.settle(opened).await?;
        counted.times = 0;
        Ok(())
    }

    /// Waits until nobody else holds back what he has written to a file that was opened, and learns what is in
    /// it then.
    async fn settle(&self, opened: &mut Opened) -> Result<()> {
        let settled = self.settled(Ino(opened.attr.ino)).await?;
        (opened.attr, opened.inline) = (settled.attr, settled.inline);
        (opened.shared, opened.unsettled) = (settled.shared, false);
        opened.others_write = settled.others_write;
        Ok(())
    }

    async fn settled(&self, ino: Ino) -> Result<Opened> {
        let op = MetaOp::Settle(meta::Inode { ino: ino.0 });
        match self.ask(&self.root_cred(), op).await? {
            MetaAnswer::Opened(settled) => Ok(settled),
            _ => Err(unexpected("settle")),
        }
    }

    /// Before a change of contents is answered: tells it, where others have the file open.
    pub(crate) async fn tell_shared(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<()> {
        if !file.state.core().shared || is_broken("shared-writes-are-told") {
            return Ok(());
        }
        self.write_back_to_the_end(&file.state).await?;
        file.take_failure(TellBy::Write)
    }

    /// Appends where others may append as well. The end of the file is locked and given back by a task of its own: if the
    /// caller goes away, somebody must be left to do that. He himself appends: when he is gone nothing more is taken, for
    /// others may have the locks under which he meant to write.
    pub(super) async fn append_shared(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        life: Life<'_>,
        data: Bytes,
    ) -> Result<Written> {
        life.check()?;
        let (volume, state) = (Arc::clone(self), Arc::clone(&file.state));
        let ending = Ending::of(self, &file.state);
        let (reply, locked) = oneshot::channel();
        let (over, is_over) = oneshot::channel();
        task::spawn(async move {
            let end = state.appending.lock().await;
            if reply.is_closed() {
                // Its caller went away while it stood in line.
                return;
            }
            let lock = end_lock(state.ino(), LockKind::Exclusive);
            // It may have been granted also where this is an error.
            let heard = reply.send(volume.take_lock(state.ino(), lock).await).is_ok();
            if heard && is_over.await.is_err() {
                // Its caller went away meanwhile: others append behind what was taken by then. A failure is told by the handles.
                let _failed = volume.write_back(&state, false).await;
            }
            // Its caller need not wait until others may append.
            volume.unlock_end(&state, end).await;
            drop(ending);
        });
        let appended = async {
            locked.await.unwrap_or_else(|_| Err(ErrorKind::Interrupted.into()))?;
            self.append_locked(file, life, data).await
        };
        let appended = Box::pin(appended).await;
        // Dropped instead, it says that he went away.
        let _ended = over.send(());
        appended
    }

    /// Gives the end of a file back, however long that takes: others wait for it. With the session it is free, but it may
    /// have been locked in a later one than that in which the append began.
    async fn unlock_end<'a>(&self, file: &'a FileState, mut end: MutexGuard<'a, Option<u64>>) {
        let ino = file.ino();
        let session = || self.session(ino).stamp().session;
        if end.replace(session()).is_some() {
            // Somebody is at it since an earlier append, and next in line.
            return;
        }
        loop {
            let error = match self.lock_once(ino, &end_lock(ino, LockKind::Unlock), 0).await {
                Ok(()) => break,
                Err(error) => error,
            };
            tracing::warn!("cannot give back the end of inode {ino}: {error}");
            if error.kind != ErrorKind::TimedOut || *end != Some(session()) {
                break;
            }
            // Whoever is in line is told that the metadata server is away, too.
            drop(end);
            tokio::time::sleep(PAUSE).await;
            end = file.appending.lock().await;
        }
        *end = None;
    }

    /// After the session was lost, before a file is used again: as when it is opened.
    pub(super) async fn settle_again(&self, file: &FileState) -> Result<()> {
        let life = {
            let core = file.core();
            if !core.unsettled {
                return Ok(());
            }
            Life::of(file, &core)
        };
        let asked = self.now();
        let settled = Box::pin(self.settled(file.ino())).await?;
        let attr = Arc::new(settled.attr.clone().try_into()?);
        file.refresh_body(&attr, &settled, asked);
        let mut core = file.core();
        core.unsettled &= !life.is_that_of(&core);
        Ok(())
    }

    async fn append_locked(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        life: Life<'_>,
        data: Bytes,
    ) -> Result<Written> {
        // First: what others hold back may be behind the end that is known.
        self.claim_nothing(&file.state).await?;
        let _newest: Attr = self.fetch_attr(file.ino(), self.keeps_leases()).await?;
        let written = self.write_parts(file, life, At::LockedEnd, data).await;
        // Also what was taken before it failed: others append behind that.
        let told = self.tell_shared(file).await;
        let (written, _) = written?.ok_or_else(|| unexpected("append"))?;
        told.map(|()| written)
    }
}
