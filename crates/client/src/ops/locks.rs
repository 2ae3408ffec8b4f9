//! POSIX and flock locks. They belong to the session, so they hold between mounts.

mod held;

use self::held::{Holder, holder};
use super::{done, unexpected};
use crate::api::{LockKind, LockRequest};
use crate::metrics::Op;
use crate::volume::Volume;
pub(crate) use held::Held;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_base::task;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

/// How long one request lets the server wait; then we ask again.
const SERVER_WAIT_MS: u32 = 1_000;
/// The same of a request that has no place there. Not nothing: that would say that a wait begins only now, and who waits
/// for whom is forgotten with it.
const LINE_WAIT_MS: u32 = 1;
/// Most requests of a mount that wait at servers at once: each takes a place among those that a server answers.
pub(crate) const SERVER_WAITS_MAX: usize = 192;
/// How long a request is at first in line for one of these places before it asks without one, and at most: that is twice as
/// long each time.
const LINE_TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(4);
/// Holders with attempts to lock, of which some may be over, from which on all of them are gone through.
const TIDIED_AT_MIN: usize = 64;
/// Between two attempts to give back what could not be given back in time.
const PAUSE: Duration = Duration::from_millis(100);

/// The end of an attempt to lock: nothing is sent any more. Before that, true: what it was granted is being given back.
type End = watch::Receiver<bool>;

/// Attempts to lock that were given up and are not over yet: what they are granted they give back. That must
/// not be what the same holder has asked for since, or beside them.
#[derive(Default)]
pub(crate) struct GivenUp {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    of: HashMap<Holder, Attempts>,
    /// All are gone through for what is over when there are so many.
    tidied_at: usize,
}

impl All {
    /// Those of a holder that are not over.
    fn lasting(&mut self, holder: Holder) -> &mut Attempts {
        if self.of.len() >= self.tidied_at {
            self.of.retain(|_, attempts| attempts.tidy());
            self.tidied_at = (2 * self.of.len()).max(TIDIED_AT_MIN);
        }
        let attempts = self.of.entry(holder).or_default();
        attempts.tidy();
        attempts
    }
}

/// Those of a holder.
#[derive(Default)]
struct Attempts {
    /// Given up and not over yet.
    open: Vec<End>,
    /// Still wanted. True: since they began another one was given up, which may take away what they are granted.
    wanted: Vec<Weak<AtomicBool>>,
}

impl Attempts {
    /// Forgets what is over. True if something is not.
    fn tidy(&mut self) -> bool {
        self.open.retain(is_open);
        self.wanted.retain(|wanted| wanted.strong_count() > 0);
        !self.open.is_empty() || !self.wanted.is_empty()
    }
}

impl GivenUp {
    fn add(&self, holder: Holder, end: End) {
        let mut all = self.all.lock();
        let attempts = all.lasting(holder);
        for beside in attempts.wanted.iter().filter_map(Weak::upgrade) {
            beside.store(true, Ordering::Relaxed);
        }
        attempts.open.push(end);
    }

    /// Returns when nothing is left of what a holder has given up: its next attempt begins.
    async fn begin(&self, holder: Holder) -> Arc<AtomicBool> {
        loop {
            self.until_none(holder, is_open).await;
            let mut all = self.all.lock();
            let attempts = all.lasting(holder);
            if attempts.open.is_empty() {
                let beside = Arc::new(AtomicBool::new(false));
                attempts.wanted.push(Arc::downgrade(&beside));
                return beside;
            }
        }
    }

    /// True if nothing was given up beside an attempt; then what it was granted is `noted`, before anything is.
    fn is_kept(&self, beside: &AtomicBool, noted: impl FnOnce()) -> bool {
        let _all = self.all.lock();
        let kept = !beside.load(Ordering::Relaxed);
        if kept {
            noted();
        }
        kept
    }

    /// Returns when nothing that a holder has given up is being given back.
    async fn are_given_back(&self, holder: Holder) {
        self.until_none(holder, |end| is_open(end) && *end.borrow()).await;
    }

    async fn until_none(&self, holder: Holder, is_such: impl Fn(&End) -> bool) {
        loop {
            let end = {
                let all = self.all.lock();
                let mut ends = all.of.get(&holder).into_iter().flat_map(|attempts| &attempts.open);
                ends.find(|end| is_such(end)).cloned()
            };
            let Some(mut end) = end else { return };
            // It has no such value: this is its end.
            drop(end.wait_for(|_| false).await);
        }
    }
}

fn is_open(end: &End) -> bool {
    end.has_changed().is_ok()
}

/// An attempt that somebody waits for; dropped before it was answered, it is given up.
struct Attempt<'a> {
    given_up: &'a GivenUp,
    holder: Holder,
    open: Option<(End, oneshot::Sender<()>)>,
}

impl Attempt<'_> {
    /// Its caller has the answer.
    fn answered(&mut self) {
        if let Some((_, taken)) = self.open.take() {
            // Who was refused does not wait for that.
            let _refused = taken.send(());
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        // It hears of that, by the other half, when it is known here.
        if let Some((end, _taken)) = self.open.take() {
            self.given_up.add(self.holder, end);
        }
    }
}

/// True where a lock was granted, or nobody knows.
fn may_be_granted(answer: &Result<()>) -> bool {
    answer.is_ok() || is_late(answer)
}

/// True where nobody knows whether it was done.
fn is_late(answer: &Result<()>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind == ErrorKind::TimedOut)
}

fn to_wire(ino: Ino, lock: &LockRequest, wait_ms: u32) -> meta::Lock {
    meta::Lock {
        ino: ino.0,
        owner: lock.owner,
        pid: lock.pid,
        start: lock.start,
        // The last byte of all stands for the end of the file, which is locked apart.
        end: if lock.start == u64::MAX { lock.end } else { lock.end.min(u64::MAX - 1) },
        kind: match lock.kind {
            LockKind::Unlock => 0,
            LockKind::Shared => 1,
            LockKind::Exclusive => 2,
        },
        flock: lock.flock,
        wait_ms,
    }
}

fn from_wire(lock: meta::Lock) -> LockRequest {
    LockRequest {
        owner: lock.owner,
        pid: lock.pid,
        start: lock.start,
        end: if lock.end == u64::MAX - 1 { u64::MAX } else { lock.end },
        kind: match lock.kind {
            0 => LockKind::Unlock,
            1 => LockKind::Shared,
            _ => LockKind::Exclusive,
        },
        flock: lock.flock,
        wait: false,
    }
}

impl Volume {
    /// The first lock that conflicts with this one, if there is any.
    pub async fn get_lock(&self, ino: Ino, lock: LockRequest) -> Result<Option<LockRequest>> {
        let _timer = self.count(Op::Lock);
        let op = MetaOp::GetLock(to_wire(ino, &lock, 0));
        match self.ask(&self.root_cred(), op).await? {
            MetaAnswer::Lock(held) => Ok(Some(from_wire(held))),
            MetaAnswer::Done(_) => Ok(None),
            _ => Err(unexpected("getlk")),
        }
    }

    /// Takes, changes or gives back a lock. Without `wait`, [`ErrorKind::WouldBlock`] if another
    /// holds it. A wait is given up by dropping the future: its owner keeps what it had (but not the flock that it waited to
    /// change), and a lock granted after that is given back, before the same owner gets one on the file again. So is one whose
    /// unlock was not answered in time.
    pub async fn set_lock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        let _timer = self.count(Op::Lock);
        if lock.kind == LockKind::Unlock {
            return self.unlock(ino, lock).await;
        }
        let alone = |own: &LockRequest| own.kind == LockKind::Exclusive;
        if lock.kind == LockKind::Shared && self.locked.instead_of(ino, &lock).iter().any(alone) {
            self.tell_locked(ino).await?;
        }
        let holder = holder(ino, &lock);
        loop {
            let beside = self.in_time(self.given_up.begin(holder)).await?;
            let at_first = self.locked.instead_of(ino, &lock);
            let taken = self.take_lock(ino, lock).await;
            let note = || self.locked.set(ino, &lock);
            if taken.is_ok() && self.given_up.is_kept(&beside, note) {
                break;
            }
            if may_be_granted(&taken) {
                self.give_up(ino, lock, at_first);
            }
            taken?;
        }
        // Whoever held it before may have written.
        self.forget_attr(ino);
        if let Some(file) = self.inodes().file(ino) {
            file.distrust();
        }
        Ok(())
    }

    /// Not answered in time it is sent again by a task of its own: its owner may be gone, and others wait.
    async fn unlock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        // In this order: what is given back from now on does not bring it back, and what was begun before is over.
        self.locked.set(ino, &lock);
        let unlocking = async {
            self.in_time(self.given_up.are_given_back(holder(ino, &lock))).await?;
            self.tell_locked(ino).await?;
            self.lock_once(ino, &lock, 0).await
        };
        let unlocked = unlocking.await;
        if is_late(&unlocked) {
            self.give_up(ino, lock, Vec::new());
        }
        unlocked
    }

    /// What was written under a lock is told before others may get that: where consistency is not strict, who gets it has nobody
    /// asked. An error where that may be done soon: what else fails keeps no lock from others.
    async fn tell_locked(self: &Arc<Self>, ino: Ino) -> Result<()> {
        let Some(file) = self.inodes().file(ino) else { return Ok(()) };
        let told = self.tell_relaxed(&file).await;
        if is_late(&told) { told } else { Ok(()) }
    }

    /// What a holder has given up is waited for no longer than an answer is.
    async fn in_time<T>(&self, over: impl Future<Output = T>) -> Result<T> {
        let limit = Duration::from_millis(self.options().operation_wait_ms);
        let late = |_| Error::with(ErrorKind::TimedOut, "earlier locks are not given back yet");
        tokio::time::timeout(limit, over).await.map_err(late)
    }

    pub(crate) async fn lock_once(&self, ino: Ino, lock: &LockRequest, wait_ms: u32) -> Result<()> {
        let op = MetaOp::SetLock(to_wire(ino, lock, wait_ms));
        // Numbered: a copy that comes late must not lock, or unlock, what has changed hands since.
        let answer = self.mutate(&self.root_cred(), op).await?;
        done(&answer, "setlk")
    }

    pub(crate) async fn take_lock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        // The first request waits for nothing.
        let (mut place, mut wait_ms, mut line_time) = (None, 0, *LINE_TIMES.start());
        loop {
            // A task of its own: if the caller goes away while the server is about to grant the
            // lock, somebody must be left to give it back.
            let (reply, answer) = oneshot::channel();
            let (taken, was_taken) = oneshot::channel();
            let (over, end) = watch::channel(false);
            let (holder, open) = (holder(ino, &lock), Some((end, taken)));
            let mut attempt = Attempt { given_up: &self.given_up, holder, open };
            let (volume, at_first) = (Arc::clone(self), self.locked.instead_of(ino, &lock));
            task::spawn(async move {
                let result = volume.lock_once(ino, &lock, wait_ms).await;
                drop(place);
                let may_be_granted = may_be_granted(&result);
                let sent = reply.send(result);
                // Its caller may go away with the answer before it has looked at it.
                if may_be_granted && (sent.is_err() || was_taken.await.is_err()) {
                    over.send_replace(true);
                    volume.give_back(ino, &lock, &at_first).await;
                }
            });
            let answer = answer.await;
            attempt.answered();
            match answer {
                Ok(Err(error)) if lock.wait && error.kind == ErrorKind::WouldBlock => {}
                Ok(result) => return result,
                Err(_) => return Err(ErrorKind::Interrupted.into()),
            }
            place = self.place_at_server(line_time).await;
            wait_ms = if place.is_some() { SERVER_WAIT_MS } else { LINE_WAIT_MS };
            line_time = (2 * line_time).min(*LINE_TIMES.end());
            if lock.flock {
                // The server takes what its owner has of it from who waits, as Linux does.
                self.locked.set(ino, &LockRequest { kind: LockKind::Unlock, ..lock });
            }
        }
    }

    /// A place among those who wait at servers; `None`: there was none in time. Nobody stands in line for longer: what he
    /// wants may have become free, and all those before him may wait for what he has.
    async fn place_at_server(&self, within: Duration) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.lock_waits).acquire_owned();
        tokio::time::timeout(within, place).await.ok()?.ok()
    }

    /// Gives back what an attempt that was answered may have been granted, or what may not be unlocked. `at_first` as for
    /// [`Volume::give_back`].
    fn give_up(self: &Arc<Self>, ino: Ino, lock: LockRequest, at_first: Vec<LockRequest>) {
        let (over, end) = watch::channel(true);
        self.given_up.add(holder(ino, &lock), end);
        let volume = Arc::clone(self);
        task::spawn(async move {
            volume.give_back(ino, &lock, &at_first).await;
            drop(over);
        });
    }

    /// The owner of a lock that was granted when nobody waited for it any more has what it had before. (But others may share
    /// by then what it had alone, and had asked to share.) However long that takes: others wait for it. Of a session that
    /// is lost meanwhile the server has nothing left, and answers. `at_first`: what would have led back to what he had before it
    /// was asked for; empty for an unlock.
    async fn give_back(
        self: &Arc<Self>,
        ino: Ino,
        granted: &LockRequest,
        at_first: &[LockRequest],
    ) {
        let mut before = self.locked.instead_of(ino, granted);
        loop {
            // Under a lock that its owner never heard of nothing was written; but under what he had, and has unlocked since.
            let told = before == at_first || self.tell_locked(ino).await.is_ok();
            let answered = told && self.lock_all(ino, &before).await;
            if !answered {
                tokio::time::sleep(PAUSE).await;
            }
            // What was lost with the session meanwhile must not be locked in the next one.
            let now = self.locked.instead_of(ino, granted);
            if answered && now == before {
                return;
            }
            before = now;
        }
    }

    /// One after the other. False: the server has not answered in time.
    async fn lock_all(&self, ino: Ino, locks: &[LockRequest]) -> bool {
        for lock in locks {
            let locked = self.lock_once(ino, lock, 0).await;
            if let Err(error) = &locked {
                tracing::warn!("cannot give back a lock on inode {ino}: {error}");
            }
            if is_late(&locked) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All were gone through for each attempt to lock.
    #[test]
    fn what_is_over_goes_in_the_end_and_what_is_not_is_seldom_gone_through() {
        let mut all = All::default();
        for owner in 0..1_000 {
            all.lasting((Ino(1), owner, false));
            assert!(all.of.len() <= TIDIED_AT_MIN, "nothing lasts");
        }
        let (mut lasting, mut times) = (Vec::new(), 0);
        for owner in 0..10_000 {
            let (before, (over, end)) = (all.tidied_at, watch::channel(false));
            all.lasting((Ino(2), owner, false)).open.push(end);
            lasting.push(over);
            times += usize::from(all.tidied_at != before);
        }
        assert!(all.of.len() >= 10_000 && times < 16, "{times}");
        drop(lasting);
        assert!(all.lasting((Ino(2), 7, false)).open.is_empty());
    }
}
