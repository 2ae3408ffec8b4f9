//! POSIX and flock locks. They belong to the session, so they hold between mounts.

use super::{done, unexpected};
use crate::api::{LockKind, LockRequest};
use crate::metrics::Op;
use crate::volume::Volume;
use std::sync::Arc;
use strake_base::task;
use strake_types::{ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

/// How long one request lets the server wait; then we ask again.
const SERVER_WAIT_MS: u32 = 1_000;

fn to_wire(ino: Ino, lock: &LockRequest, wait_ms: u32) -> meta::Lock {
    meta::Lock {
        ino: ino.0,
        owner: lock.owner,
        pid: lock.pid,
        start: lock.start,
        end: lock.end,
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
        end: lock.end,
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
    /// holds it. A wait is given up by dropping the future: a lock granted after that is given back.
    pub async fn set_lock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        let _timer = self.count(Op::Lock);
        if lock.kind == LockKind::Unlock {
            return self.lock_once(ino, &lock, 0).await;
        }
        match lock.wait {
            true => self.wait_for_lock(ino, lock).await?,
            false => self.lock_once(ino, &lock, 0).await?,
        }
        // Whoever held it before may have written.
        self.forget_attr(ino);
        if let Some(file) = self.inodes().file(ino) {
            file.distrust();
        }
        Ok(())
    }

    async fn lock_once(&self, ino: Ino, lock: &LockRequest, wait_ms: u32) -> Result<()> {
        let op = MetaOp::SetLock(to_wire(ino, lock, wait_ms));
        let answer = self.ask(&self.root_cred(), op).await?;
        done(&answer, "setlk")
    }

    async fn wait_for_lock(self: &Arc<Self>, ino: Ino, lock: LockRequest) -> Result<()> {
        match self.lock_once(ino, &lock, 0).await {
            Err(error) if error.kind == ErrorKind::WouldBlock => {}
            result => return result,
        }
        loop {
            // A task of its own: if the caller goes away while the server is about to grant the
            // lock, somebody must be left to give it back.
            let (reply, answer) = tokio::sync::oneshot::channel();
            let volume = Arc::clone(self);
            task::spawn(async move {
                let result = volume.lock_once(ino, &lock, SERVER_WAIT_MS).await;
                if let Err(Ok(())) = reply.send(result) {
                    let unlock = LockRequest { kind: LockKind::Unlock, ..lock };
                    if let Err(error) = volume.lock_once(ino, &unlock, 0).await {
                        tracing::warn!("cannot give back a lock on inode {ino}: {error}");
                    }
                }
            });
            match answer.await {
                Ok(Err(error)) if error.kind == ErrorKind::WouldBlock => {}
                Ok(result) => return result,
                Err(_) => return Err(ErrorKind::Interrupted.into()),
            }
        }
    }
}
