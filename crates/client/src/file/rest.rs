//! Files that may lie elsewhere from one moment to the next although they are open (docs/design/0043).
//!
//! Where a file lies is known with its attributes: who reads makes sure before each read that these are leased, or asks. What
//! is written must not go where the file was: who may write to it is asked whether he rests. A file of which nothing is
//! unwritten or untold does, and its next write asks first. The metadata server counts nobody as resting who has asked.

use super::Life;
use super::state::{Core, FileState};
use crate::ops::{done, unexpected};
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::layout::Placement;
use strake_types::limits::OLD_PLACE_MS;
use strake_types::{Attr, Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, Look, MetaAnswer, MetaOp};

/// How often who is about to write asks where the file lies: an answer may be of an earlier session, or he rests again.
const WAKES_MAX: usize = 50;
/// The pause between that.
const PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// True if the metadata server knows that this mount may be writing to the file: it lies where it does until this mount
    /// rests.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake != 0 && self.awake == self.incarnation
    }

    /// The server knows that this mount may write to the file, as it was asked then in such an incarnation of the session.
    /// What was asked before it rested may have been answered before.
    pub(crate) fn wake(&mut self, asked: Duration, incarnation: u64) {
        let since = self.rested.is_none_or(|rested| asked > rested);
        if since && incarnation == self.incarnation {
            self.awake = incarnation;
        }
    }

    /// The next incarnation of the session counts the file. `told`: the session goes on, and the server was told that this
    /// mount may write to it. In another session it has to learn where the file lies: nobody had it open for a while.
    pub(crate) fn register_next(&mut self, incarnation: u64, told: bool) {
        let was = self.is_awake();
        self.register(incarnation);
        if told && was && self.incarnation == incarnation {
            self.awake = incarnation;
        }
    }

    /// True if this mount may write to the file, or still has to send what it has written.
    pub(crate) fn may_write(&self) -> bool {
        !self.capability[1].is_empty() || self.awake != 0 || !self.is_idle()
    }

    /// Rests from now on, if all is written and told: true then. Where a change has failed nobody knows whether it comes yet.
    fn rest(&mut self, now: Duration) -> bool {
        let busy = !self.is_idle() || self.senders > 0 || self.exclusive;
        if busy || self.change_in_doubt || self.failure.count > 0 {
            return false;
        }
        (self.awake, self.rested) = (0, Some(now));
        true
    }
}

impl Volume {
    /// True if this mount asks where a file lies before it goes by that: all that it knows is leased.
    pub(crate) fn follows_moves(&self) -> bool {
        self.keeps_leases() && !self.options().exclusive
    }

    /// These files are to lie elsewhere: says of each that rests that it does. The others are asked for again.
    pub(crate) fn rest(self: &Arc<Self>, asks: &[meta::Ask]) {
        for &meta::Ask { ino, number, .. } in asks {
            let now = self.now();
            // Under the lock of the table: it is said of the state that there is.
            if !self.inodes().rest(Ino(ino), now, |file| file.core().rest(now)) {
                continue;
            }
            let volume = Arc::clone(self);
            task::spawn(async move {
                let told = meta::Told { ino, number, rests: true, ..meta::Told::default() };
                let said = volume.ask(&volume.root_cred(), MetaOp::Told(told)).await;
                if let Err(error) = said.and_then(|said| done(&said, "told")) {
                    tracing::debug!("cannot say that inode {ino} rests: {error}");
                }
            });
        }
    }

    /// As [`Core::wake`], of a file whose state is in hand. Not where another session is just being begun: which files are
    /// open, and who may write to them, may have been listed for it before this.
    pub(crate) fn woken(
        &self,
        file: &FileState,
        core: &mut Core,
        asked: Duration,
        incarnation: u64,
    ) {
        if self.session(file.ino()).is_newest(incarnation) {
            core.wake(asked, incarnation);
        }
    }

    /// Before contents are changed where the file lies: the metadata server knows that, and has said where.
    pub(super) async fn wake(&self, file: &FileState) -> Result<()> {
        for nth in 0..WAKES_MAX {
            if file.core().is_awake() {
                return Ok(());
            }
            if nth > 1 {
                tokio::time::sleep(PAUSE).await;
            }
            let look = Look { ino: file.ino().0, to_write: true, ..Look::default() };
            let said = self.ask_about(&self.root_cred(), MetaOp::GetAttr(look)).await?;
            let MetaAnswer::Entry(attributes) = said.answer else { return Err(unexpected("look")) };
            let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
            self.inodes().learn(&attr, said.asked);
            let mut core = file.core();
            core.learn(&attr, said.asked);
            self.woken(file, &mut core, said.asked, said.incarnation);
        }
        match file.core().is_awake() {
            true => Ok(()),
            false => {
                let detail = "the metadata server does not say where the file lies";
                Err(Error::with(ErrorKind::TimedOut, detail))
            }
        }
    }

    /// Before all groups are asked in which a file lies.
    pub(super) async fn learn_place(&self, file: &FileState) -> Result<()> {
        let (ino, now) = (file.ino(), self.now());
        let known = {
            let core = file.core();
            core.is_awake() || self.leases(ino).covers(ino, core.attr.version, now)
        };
        match known || !self.follows_moves() {
            true => Ok(()),
            false => self.fetch_attr(ino, false).await.map(drop),
        }
    }

    /// True if a file may not have lain there any more when that was read which was begun then, in that life of it: what lies
    /// where it was is kept for a while, so it is only looked at after a long time. Or in another life: the clock of a machine
    /// that was held stands still, and after so long its session is over, and nothing is read before it knows. `None`: nothing
    /// was read of where it lies.
    pub(crate) async fn has_moved(
        &self,
        life: Life<'_>,
        from: Option<&Arc<Placement>>,
        began: Duration,
    ) -> Result<bool> {
        let file = life.file();
        let took = self.now().saturating_sub(began);
        let is_young = took < Duration::from_millis(OLD_PLACE_MS) && life.lasts();
        let Some(from) = from.filter(|_| !is_young) else { return Ok(false) };
        let _newest: Attr = self.fetch_attr(file.ino(), false).await?;
        let core = file.core();
        Ok(!core.placement.as_ref().is_some_and(|now| Arc::ptr_eq(now, from)))
    }
}
