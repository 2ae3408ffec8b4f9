//! POSIX and flock locks. They belong to the session, so they hold between mounts.

use super::{done, unexpected};
use crate::api::{LockKind, LockRequest};
use crate::metrics::Op;
use crate::volume::Volume;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use strake_base::task;
use strake_types::{ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};
use tokio::sync::watch;

/// How long one request lets the server wait; then we ask again.
const SERVER_WAIT_MS: u32 = 1_000;

/// Whose locks, on which file, and whether they are flocks.
type Holder = (Ino, u64, bool);

/// Attempts to lock that were given up and are not over yet: what they are granted they give back. That must
/// not be what the same holder has asked for since.
#[derive(Default)]
pub(crate) struct GivenUp {
    open: Mutex<HashMap<Holder, Vec<watch::Receiver<()>>>>,
}

impl GivenUp {
    fn add(&self, holder: Holder, end: watch::Receiver<()>) {
        let mut open = self.open.lock();
        for ends in open.values_mut() {
            ends.retain(is_open);
        }
        open.retain(|_, ends| !ends.is_empty());
        open.entry(holder).or_default().push(end);
    }

    /// Returns when nothing is left of what a holder has given up.
    async fn are_over(&self, holder: Holder) {
        loop {
            let end = {
                let open = self.open.lock();
                open.get(&holder).and_then(|ends| ends.iter().find(|end| is_open(end)).cloned())
            };
            let Some(mut end) = end else { return };
            // Nothing is ever sent: this is its end.
            let _over = end.changed().await;
        }
    }
}

fn is_open(end: &watch::Receiver<()>) -> bool {
    end.has_changed().is_ok()
}

/// An attempt that somebody waits for; dropped, it is given up.
struct Attempt<'a> {
    given_up: &'a GivenUp,
    holder: Holder,
    end: Option<watch::Receiver<()>>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.given_up.add(self.holder, end);
        }
    }
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
    /// holds it. A wait is given up by dropping the future: a lock granted after that is given back,
    /// before the same owner gets one on the file again.
    pub async fn set_lock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        let _timer = self.count(Op::Lock);
        if lock.kind == LockKind::Unlock {
            return self.lock_once(ino, &lock, 0).await;
        }
        self.given_up.are_over((ino, lock.owner, lock.flock)).await;
        self.take_lock(ino, lock).await?;
        // Whoever held it before may have written.
        self.forget_attr(ino);
        if let Some(file) = self.inodes().file(ino) {
            file.distrust();
        }
        Ok(())
    }

    pub(crate) async fn lock_once(&self, ino: Ino, lock: &LockRequest, wait_ms: u32) -> Result<()> {
        let op = MetaOp::SetLock(to_wire(ino, lock, wait_ms));
        // Numbered: a copy that comes late must not lock, or unlock, what has changed hands since.
        let answer = self.mutate(&self.root_cred(), op).await?;
        done(&answer, "setlk")
    }

    pub(crate) async fn take_lock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        let mut wait_ms = 0;
        loop {
            // A task of its own: if the caller goes away while the server is about to grant the
            // lock, somebody must be left to give it back.
            let (reply, answer) = tokio::sync::oneshot::channel();
            let (over, end) = watch::channel(());
            let holder = (ino, lock.owner, lock.flock);
            let mut attempt = Attempt { given_up: &self.given_up, holder, end: Some(end) };
            let volume = Arc::clone(self);
            task::spawn(async move {
                let _over = over;
                let result = volume.lock_once(ino, &lock, wait_ms).await;
                if let Err(Ok(())) = reply.send(result) {
                    let unlock = LockRequest { kind: LockKind::Unlock, ..lock };
                    if let Err(error) = volume.lock_once(ino, &unlock, 0).await {
                        tracing::warn!("cannot give back a lock on inode {ino}: {error}");
                    }
                }
            });
            let answer = answer.await;
            attempt.end = None;
            match answer {
                Ok(Err(error)) if lock.wait && error.kind == ErrorKind::WouldBlock => {}
                Ok(result) => return result,
                Err(_) => return Err(ErrorKind::Interrupted.into()),
            }
            wait_ms = SERVER_WAIT_MS;
        }
    }
}
