//! Locks. They lie with the metadata server, so they hold between mounts.

use super::FuseDoor;
use super::alone::{Alone, Asking};
use super::counted::Counted;
use super::unlocking::{Holder, Unlocking, Unlocks};
use crate::abi;
use crate::errno::Errno;
use crate::interrupt::Interrupt;
use crate::reply::Reply;
use crate::request::Lock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use strake_client::api::{LockKind, LockRequest};
use strake_types::{Error, ErrorKind, Ino, Result as StrakeResult};

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
    /// Who may hold a lock alone. Flocks, too.
    alone: Alone,
    /// What closes are giving back. Flocks, too.
    unlocking: Unlocking,
    /// Changes of contents that go on although their processes were killed: who gets the locks of those must not see them
    /// happen. Of which files is no matter: a lock on one may stand for others.
    outlived: Counted<u64>,
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

    /// A lock is about to be asked for: what a close gives back of the same owner, who may be another one by now, is
    /// waited for. Who shares what he had alone lets others read, as by an unlock.
    /// What is returned for others is to hear if it is refused.
    async fn begin_lock(&self, ino: Ino, lock: &Lock) -> Option<Asking<'_>> {
        let holder = (ino, owner(lock), lock.flock);
        self.unlocking.wait(holder).await;
        if !lock.flock {
            self.add(ino, lock.owner, lock.fh);
        }
        if lock.kind as i32 != libc::F_RDLCK {
            return Some(self.alone.begin(holder));
        }
        if self.alone.has(holder) {
            self.outlived.wait_for_all().await;
        }
        None
    }

    /// What these hold is to be given back.
    fn give_back(&self, holders: Vec<Holder>) -> Unlocks<'_> {
        self.alone.forget(&holders);
        self.unlocking.begin(holders)
    }

    /// A process closes a file: its POSIX locks on it are to be given back, whichever descriptor took them. To be
    /// called before anything is waited for: a process that is killed is gone before its close has ended.
    pub(super) fn begin_close(&self, ino: Ino, owner: u64) -> Unlocks<'_> {
        let holder = self.take(ino, owner).then_some((ino, owner, false));
        self.give_back(holder.into_iter().collect())
    }

    /// The last descriptor of an open file is closed: locks that belong to it are to be given back. To be called before
    /// anything is waited for: its number as an owner is free.
    pub(super) fn begin_release(&self, ino: Ino, fh: u64, flocked: bool) -> Unlocks<'_> {
        let own = self.take_through(ino, fh).into_iter().map(|owner| (ino, owner, false));
        self.give_back(own.chain(flocked.then_some((ino, fh, true))).collect())
    }

    /// A change of contents goes on although its process was killed, or (`false`) is over.
    pub(super) fn outlives(&self, unique: u64, goes_on: bool) {
        match goes_on {
            true => self.outlived.begin(&[unique]),
            false => self.outlived.end(&[unique]),
        }
    }

    /// True while somebody waits for a change of contents, by the number of its request.
    pub(super) fn is_wanted(&self, unique: u64) -> bool {
        !self.outlived.has(unique)
    }

    /// Owners whose locks were taken through a handle and not released since.
    fn take_through(&self, ino: Ino, fh: u64) -> Vec<u64> {
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

/// Who locks. An flock is that of its handle: the kernel names its owner by the address of an open file, which the next one
/// may have, and lock by, before the RELEASE of the first has come.
fn owner(lock: &Lock) -> u64 {
    if lock.flock { lock.fh } else { lock.owner }
}

fn request(lock: &Lock, wait: bool) -> Result<LockRequest, Errno> {
    let kind = match lock.kind as i32 {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    Ok(LockRequest {
        owner: owner(lock),
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
        let taking = async {
            if wanted.kind == LockKind::Unlock {
                return self.setlk_unlock(ino, wanted).await;
            }
            let asking = self.locks.begin_lock(ino, &lock).await;
            let taken = self.volume.set_lock(ino, wanted).await;
            let refused = |e: &Error| matches!(e.kind, ErrorKind::WouldBlock | ErrorKind::Deadlock);
            if let Some(asking) = asking.filter(|_| taken.as_ref().is_err_and(refused)) {
                asking.refused();
            }
            taken
        };
        if !wanted.wait {
            taking.await?;
            return Ok(Reply::Empty);
        }
        tokio::select! {
            biased;
            taken = taking => Ok(taken.map(|()| Reply::Empty)?),
            () = interrupt.requested() => Err(Errno::EINTR),
        }
    }

    /// Gives locks back that are to go before the file is closed.
    async fn setlk_unlock(&self, ino: Ino, unlock: LockRequest) -> StrakeResult<()> {
        // A child that was killed may have begun a change under the same lock.
        self.locks.outlived.wait_for_all().await;
        let (holder, all) = ((ino, unlock.owner, unlock.flock), (0, u64::MAX));
        let last = self.locks.alone.last(holder);
        self.volume.set_lock(ino, unlock).await?;
        if (unlock.start, unlock.end) == all {
            self.locks.alone.end(holder, last);
        }
        Ok(())
    }

    /// Gives back the locks that a close has begun to, all that can be, when what killed processes had begun to change, maybe
    /// under them, is over.
    pub(super) async fn end_close(&self, unlocks: Unlocks<'_>) -> Result<(), Errno> {
        let mut all_unlocked = Ok(());
        for &(ino, owner, flock) in unlocks.holders() {
            self.locks.outlived.wait_for_all().await;
            all_unlocked = all_unlocked.and(self.unlock(ino, owner, flock).await);
        }
        // Who waits for that may lock now.
        drop(unlocks);
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

    /// The kernel names an owner by an address, and gives that to another before the close is answered: the unlock of
    /// the close took what the other had locked since.
    #[tokio::test]
    async fn who_gets_the_number_of_an_owner_that_closes_locks_when_its_locks_are_given_back() {
        let held = HeldLocks::default();
        let of = |fh, flock| Lock { fh, flock, ..lock(libc::F_WRLCK) };
        // The number of a handle is free as soon as its release begins.
        for (old, new) in [(of(1, false), of(2, false)), (of(1, true), of(1, true))] {
            held.begin_lock(Ino(2), &old).await;
            let gives_back = held.begin_release(Ino(2), old.fh, old.flock);
            assert_eq!(gives_back.holders(), [(Ino(2), old.owner, old.flock)]);
            held.begin_lock(Ino(3), &new).await;
            held.begin_lock(Ino(2), &of(3, !new.flock)).await;
            let locks = held.begin_lock(Ino(2), &new);
            futures::pin_mut!(locks);
            assert!(futures::poll!(locks.as_mut()).is_pending());
            drop(gives_back);
            locks.await;
        }
    }

    /// A downgrade was granted while a change of a killed process went on: others read, and then it was made.
    #[tokio::test]
    async fn who_shares_what_it_had_alone_waits_for_changes_of_killed_processes() {
        let held = HeldLocks::default();
        held.outlives(8, true);
        for flock in [false, true] {
            let [shared, alone] =
                [libc::F_RDLCK, libc::F_WRLCK].map(|kind| Lock { flock, ..lock(kind) });
            held.begin_lock(Ino(2), &shared).await;
            held.begin_lock(Ino(2), &alone).await;
            held.begin_lock(Ino(3), &shared).await;
            {
                let shares = held.begin_lock(Ino(2), &shared);
                futures::pin_mut!(shares);
                assert!(futures::poll!(shares.as_mut()).is_pending());
                held.outlives(8, false);
                shares.await;
                held.outlives(8, true);
            }
            match flock {
                true => drop(held.begin_release(Ino(2), shared.fh, true)),
                false => drop(held.begin_close(Ino(2), shared.owner)),
            }
            held.begin_lock(Ino(2), &shared).await;
        }
    }

    /// Where much is queued the kernel hands a RELEASE on late, and its owner's number may be another handle's by then: that
    /// lost its flock.
    #[tokio::test]
    async fn a_release_that_comes_late_gives_no_flock_of_another_handle_back() {
        let (held, wants) = (HeldLocks::default(), lock(libc::F_WRLCK));
        let [old, new] = [1, 2].map(|fh| Lock { fh, flock: true, ..wants });
        for lock in [&old, &new] {
            held.begin_lock(Ino(2), lock).await;
        }
        let gives_back = held.begin_release(Ino(2), old.fh, true);
        let owners = [&old, &new].map(|lock| request(lock, false).unwrap().owner);
        assert_eq!(gives_back.holders(), [(Ino(2), owners[0], true)]);
        assert_ne!(owners[0], owners[1]);
    }

    /// A close of a killed process goes on when that is gone: the same.
    #[tokio::test]
    async fn a_close_that_outlives_its_process_takes_nothing_of_the_next_one() {
        let (held, ours) = (HeldLocks::default(), lock(libc::F_RDLCK));
        assert!(held.begin_close(Ino(2), ours.owner).holders().is_empty());
        held.begin_lock(Ino(2), &ours).await;
        let gives_back = held.begin_close(Ino(2), ours.owner);
        {
            let locks = held.begin_lock(Ino(2), &ours);
            futures::pin_mut!(locks);
            assert!(futures::poll!(locks.as_mut()).is_pending());
            assert!(held.is_empty(), "it is noted when it may be asked for");
            drop(gives_back);
            locks.await;
        }
        assert_eq!(held.begin_close(Ino(2), ours.owner).holders().len(), 1);
    }
}
