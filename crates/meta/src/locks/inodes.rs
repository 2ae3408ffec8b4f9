//! One lock per inode, held by an operation from its first read to its commit.
//!
//! With them two operations on one inode never conflict in the store. They are taken in ascending
//! order, so nobody waits in a circle. An operation mostly lasts some tens of microseconds, so who
//! finds a lock taken first spins a little; only then it waits as a future, in order of arrival.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use strake_types::{Ino, VolumeId};
use tokio::sync::oneshot;

/// Parts of the table with a lock each.
const PARTS: usize = 32;
/// How often a taken lock is tried again before the operation waits.
const SPINS_MAX: u32 = 200;

/// Names a lock. Inode 0 stands for the topology of the volume's tree.
type Name = (VolumeId, Ino);

/// A lock that is held.
#[derive(Default)]
struct Lock {
    /// How often: by an operation, and by what goes on for it.
    holders: u32,
    /// Those who wait for it.
    queue: VecDeque<oneshot::Sender<Guard>>,
}

/// The locks that are held.
#[derive(Default)]
struct Table {
    parts: [Mutex<HashMap<Name, Lock>>; PARTS],
}

/// The locks of all inodes.
#[derive(Clone, Default)]
pub(crate) struct InodeLocks(Arc<Table>);

/// A held lock; dropping the last one of it passes it on.
struct Guard {
    /// `None` once the lock is somebody else's.
    table: Option<Arc<Table>>,
    name: Name,
}

/// The locks of one operation.
#[derive(Default)]
pub(crate) struct Held {
    guards: Vec<Guard>,
}

impl Held {
    /// True if the inode's lock is among them.
    pub fn has(&self, ino: Ino) -> bool {
        self.guards.iter().any(|guard| guard.name.1 == ino)
    }

    /// Gives all others back.
    pub fn keep_only(&mut self, ino: Ino) {
        self.guards.retain(|guard| guard.name.1 == ino);
    }
}

impl InodeLocks {
    /// Takes the locks of some inodes of a volume; repeats are fine.
    pub async fn lock(&self, volume: VolumeId, inodes: &[Ino]) -> Held {
        let mut wanted = [Ino(u64::MAX); 8];
        let wanted = match wanted.get_mut(..inodes.len()) {
            Some(few) => {
                few.copy_from_slice(inodes);
                few
            }
            None => &mut inodes.to_vec()[..],
        };
        wanted.sort_unstable();
        let mut held = Held { guards: Vec::with_capacity(wanted.len()) };
        for &ino in wanted.iter() {
            if held.guards.last().is_none_or(|last: &Guard| last.name.1 != ino) {
                held.guards.push(self.lock_one((volume, ino)).await);
            }
        }
        held
    }

    /// Takes further locks without waiting for them. False: somebody has one of them, and none was taken.
    pub fn try_more(&self, held: &mut Held, volume: VolumeId, inodes: &[Ino]) -> bool {
        let before = held.guards.len();
        for &ino in inodes {
            if !held.has(ino) {
                match self.try_lock((volume, ino)) {
                    Some(guard) => held.guards.push(guard),
                    None => {
                        held.guards.truncate(before);
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Holds locks on that the caller has, for what may outlive him: they are free when both have given them back.
    pub fn hold_on(&self, volume: VolumeId, inodes: &[Ino]) -> Held {
        let guards = inodes.iter().map(|&ino| {
            let name = (volume, ino);
            self.0.part(name).lock().entry(name).or_default().holders += 1;
            Guard { table: Some(self.0.clone()), name }
        });
        Held { guards: guards.collect() }
    }

    /// True if somebody holds the lock of an inode.
    pub fn is_taken(&self, volume: VolumeId, ino: Ino) -> bool {
        self.0.part((volume, ino)).lock().contains_key(&(volume, ino))
    }

    async fn lock_one(&self, name: Name) -> Guard {
        for _ in 0..SPINS_MAX {
            if let Some(guard) = self.try_lock(name) {
                return guard;
            }
            std::hint::spin_loop();
        }
        loop {
            let turn = {
                let mut part = self.0.part(name).lock();
                match part.get_mut(&name) {
                    None => {
                        part.insert(name, Lock::held());
                        return Guard { table: Some(self.0.clone()), name };
                    }
                    Some(lock) => {
                        let (sender, turn) = oneshot::channel();
                        lock.queue.push_back(sender);
                        turn
                    }
                }
            };
            if let Ok(guard) = turn.await {
                return guard;
            }
        }
    }

    fn try_lock(&self, name: Name) -> Option<Guard> {
        let mut part = self.0.part(name).lock();
        if part.contains_key(&name) {
            return None;
        }
        part.insert(name, Lock::held());
        Some(Guard { table: Some(self.0.clone()), name })
    }
}

impl Lock {
    /// Once.
    fn held() -> Self {
        Lock { holders: 1, queue: VecDeque::new() }
    }
}

impl Table {
    fn part(&self, name: Name) -> &Mutex<HashMap<Name, Lock>> {
        let mixed = (name.1.0 ^ u64::from(name.0.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 50) as usize % PARTS]
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(table) = self.table.take() else { return };
        loop {
            let next = {
                let mut part = table.part(self.name).lock();
                let Some(lock) = part.get_mut(&self.name) else { return };
                if lock.holders > 1 {
                    lock.holders -= 1;
                    return;
                }
                let next = lock.queue.pop_front();
                if next.is_none() {
                    part.remove(&self.name);
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Guard { table: Some(table.clone()), name: self.name }) {
                Ok(()) => return,
                // Who waited has given up; what came back must not release the lock once more.
                Err(mut back) => back.table = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use strake_base::task;

    const V: VolumeId = VolumeId(1);

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_holder_at_a_time_and_no_circle() {
        let locks = InodeLocks::default();
        let inside = Arc::new(AtomicU64::new(0));
        let tasks = (0..8u64).map(|task| {
            let (locks, inside) = (locks.clone(), inside.clone());
            task::spawn(async move {
                for round in 0..500 {
                    let other = Ino(2 + (task + round) % 3);
                    let both = if round % 2 == 0 { [Ino(1), other] } else { [other, Ino(1)] };
                    let _held = locks.lock(V, &both).await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    if round % 50 == 0 {
                        tokio::task::yield_now().await;
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert!(locks.0.parts.iter().all(|part| part.lock().is_empty()));
    }

    #[tokio::test]
    async fn further_locks_are_had_at_once_or_none_of_them() {
        let locks = InodeLocks::default();
        let _other = locks.lock(V, &[Ino(7)]).await;
        let mut held = locks.lock(V, &[Ino(9)]).await;
        assert!(!locks.try_more(&mut held, V, &[Ino(5), Ino(7)]));
        assert!(!locks.is_taken(V, Ino(5)) && !held.has(Ino(5)));
        assert!(locks.try_more(&mut held, V, &[Ino(5), Ino(9), Ino(5)]));
        assert!(held.has(Ino(5)));
        drop(held);
        assert!(!locks.is_taken(V, Ino(5)) && !locks.is_taken(V, Ino(9)));
    }

    #[tokio::test]
    async fn a_lock_that_is_held_on_is_free_when_both_have_given_it_back() {
        let locks = InodeLocks::default();
        for first_goes_first in [true, false] {
            let held = locks.lock(V, &[Ino(5)]).await;
            let on = locks.hold_on(V, &[Ino(5)]);
            let waiting = locks.lock(V, &[Ino(5)]);
            futures::pin_mut!(waiting);
            assert!(on.has(Ino(5)) && futures::poll!(waiting.as_mut()).is_pending());
            let (first, last) = if first_goes_first { (held, on) } else { (on, held) };
            drop(first);
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            drop(last);
            drop(waiting.await);
            assert!(!locks.is_taken(V, Ino(5)));
        }
    }

    #[tokio::test]
    async fn one_who_gives_up_passes_the_lock_on() {
        let locks = InodeLocks::default();
        let held = locks.lock(V, &[Ino(5), Ino(5)]).await;
        assert!(held.has(Ino(5)) && !held.has(Ino(6)));
        {
            let waiting = locks.lock(V, &[Ino(5)]);
            futures::pin_mut!(waiting);
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            drop(held);
        }
        let _again = locks.lock(V, &[Ino(5)]).await;
    }
}
