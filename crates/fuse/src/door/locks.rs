//! Locks. They lie with the metadata server, so they hold between mounts.

use super::FuseDoor;
use crate::abi;
use crate::errno::Errno;
use crate::interrupt::Interrupt;
use crate::reply::Reply;
use crate::request::Lock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use strake_client::api::{LockKind, LockRequest};
use strake_types::Ino;

/// The kernel's last byte of a lock on a whole file, however long.
const WHOLE_FILE: u64 = i64::MAX as u64;

/// Who may hold POSIX locks, and through which handle they were taken: each close of a file releases
/// those of its process, the last close those that belong to the open file itself (F_OFD_SETLK). A
/// close should cost no message where there are none.
#[derive(Default)]
pub(super) struct HeldLocks {
    files: Mutex<HashMap<Ino, Owners>>,
    /// Of such files: a close looks no further where there are none.
    count: AtomicUsize,
}

/// Owners of locks on one file, each with the handle through which it took them.
type Owners = HashMap<u64, u64>;

impl HeldLocks {
    fn add(&self, ino: Ino, owner: u64, fh: u64) {
        let mut files = self.files.lock();
        files.entry(ino).or_default().insert(owner, fh);
        self.count.store(files.len(), Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn take(&self, ino: Ino, owner: u64) -> bool {
        self.with(ino, |owners| owners.remove(&owner)).is_some()
    }

    /// Owners whose locks were taken through a handle and not released since.
    pub(super) fn take_through(&self, ino: Ino, fh: u64) -> Vec<u64> {
        let through =
            |owners: &mut Owners| owners.extract_if(|_, through| *through == fh).collect();
        let left: Option<Owners> = self.with(ino, |owners| Some(through(owners)));
        left.unwrap_or_default().into_keys().collect()
    }

    /// Takes something from the owners of locks on a file, where there are any.
    fn with<T>(&self, ino: Ino, take: impl FnOnce(&mut Owners) -> Option<T>) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut files = self.files.lock();
        let owners = files.get_mut(&ino)?;
        let taken = take(owners);
        if owners.is_empty() {
            files.remove(&ino);
            self.count.store(files.len(), Ordering::Release);
        }
        taken
    }
}

fn request(lock: &Lock, wait: bool) -> Result<LockRequest, Errno> {
    let kind = match lock.kind as i32 {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    Ok(LockRequest {
        owner: lock.owner,
        pid: lock.pid,
        start: lock.start,
        end: if lock.end >= WHOLE_FILE { u64::MAX } else { lock.end },
        kind,
        flock: lock.flock,
        // Programs that may wait also unlock so. That is never given up: others would wait until the file is closed.
        wait: wait && kind != LockKind::Unlock,
    })
}

impl FuseDoor {
    pub(super) async fn getlk(&self, ino: Ino, lock: Lock) -> Result<Reply, Errno> {
        let out = match self.volume.get_lock(ino, request(&lock, false)?).await? {
            None => abi::LkOut { kind: libc::F_UNLCK as u32, ..abi::LkOut::default() },
            Some(held) => abi::LkOut {
                start: held.start,
                end: held.end.min(WHOLE_FILE),
                kind: match held.kind {
                    LockKind::Shared => libc::F_RDLCK as u32,
                    _ => libc::F_WRLCK as u32,
                },
                pid: held.pid,
            },
        };
        Ok(Reply::Lock(out))
    }

    /// A wait ends with EINTR when a signal arrives, and whatever does not return before its process is killed is dropped;
    /// a lock granted too late is given back by the client.
    pub(super) async fn setlk(
        &self,
        ino: Ino,
        lock: Lock,
        wait: bool,
        interrupt: Interrupt,
    ) -> Result<Reply, Errno> {
        let wanted = request(&lock, wait)?;
        if !lock.flock && wanted.kind != LockKind::Unlock {
            self.locks.add(ino, lock.owner, lock.fh);
        }
        if !wanted.wait {
            self.volume.set_lock(ino, wanted).await?;
            return Ok(Reply::Empty);
        }
        tokio::select! {
            biased;
            taken = self.volume.set_lock(ino, wanted) => Ok(taken.map(|()| Reply::Empty)?),
            () = interrupt.requested() => Err(Errno::EINTR),
        }
    }

    /// A process has closed a file: its POSIX locks on it go, whichever descriptor took them.
    pub(super) async fn release_posix_locks(&self, ino: Ino, owner: u64) -> Result<(), Errno> {
        if self.locks.take(ino, owner) {
            self.unlock(ino, owner, false).await?;
        }
        Ok(())
    }

    /// The last descriptor of an open file is closed: locks that belong to it go, all that can.
    pub(super) async fn release_open_file_locks(
        &self,
        ino: Ino,
        owners: Vec<u64>,
        flock_owner: Option<u64>,
    ) -> Result<(), Errno> {
        let mut all_unlocked = Ok(());
        for owner in owners {
            all_unlocked = all_unlocked.and(self.unlock(ino, owner, false).await);
        }
        if let Some(owner) = flock_owner {
            all_unlocked = all_unlocked.and(self.unlock(ino, owner, true).await);
        }
        all_unlocked
    }

    /// Gives every lock of an owner on a file back.
    async fn unlock(&self, ino: Ino, owner: u64, flock: bool) -> Result<(), Errno> {
        let all = LockRequest {
            owner,
            pid: 0,
            start: 0,
            end: u64::MAX,
            kind: LockKind::Unlock,
            flock,
            wait: false,
        };
        Ok(self.volume.set_lock(ino, all).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(kind: i32) -> Lock {
        let (kind, end) = (kind as u32, i64::MAX as u64);
        Lock { fh: 0, owner: 1, start: 5, end, kind, pid: 1, flock: false }
    }

    #[test]
    fn no_signal_ends_an_unlock() {
        assert!(!request(&lock(libc::F_UNLCK), true).unwrap().wait);
        assert!(request(&lock(libc::F_RDLCK), true).unwrap().wait);
        assert!(!request(&lock(libc::F_RDLCK), false).unwrap().wait);
    }

    #[test]
    fn a_lock_to_the_end_of_the_file_has_no_end() {
        let mut lock = lock(libc::F_WRLCK);
        let wanted = request(&lock, true).unwrap();
        assert_eq!((wanted.end, wanted.kind, wanted.wait), (u64::MAX, LockKind::Exclusive, true));
        lock.end = 9;
        assert_eq!(request(&lock, false).unwrap().end, 9);
        lock.kind = 77;
        assert_eq!(request(&lock, false).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn only_owners_of_locks_cost_a_message_at_close() {
        let held = HeldLocks::default();
        assert!(!held.take(Ino(2), 7));
        held.add(Ino(2), 7, 1);
        assert!(!held.take(Ino(2), 8) && !held.take(Ino(3), 7));
        assert!(held.take(Ino(2), 7) && !held.take(Ino(2), 7));
        assert!(held.is_empty());
    }

    #[test]
    fn the_last_close_finds_the_locks_of_the_open_file() {
        let held = HeldLocks::default();
        held.add(Ino(2), 7, 1);
        held.add(Ino(2), 8, 9);
        held.add(Ino(3), 7, 1);
        assert_eq!(held.take_through(Ino(2), 1), [7]);
        assert!(held.take_through(Ino(2), 1).is_empty() && !held.is_empty());
    }
}
