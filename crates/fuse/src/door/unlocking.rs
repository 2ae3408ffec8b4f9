//! Locks that closes are giving back.
//!
//! The kernel names who locks by an address, and that is free before the close of the file is answered: whoever
//! gets it next must not lose what it locks to that close. So it waits for it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use strake_types::Ino;
use tokio::sync::Notify;

/// Whose locks, on which file, and whether they are flocks.
pub(super) type Holder = (Ino, u64, bool);

/// Holders whose locks are being given back.
#[derive(Default)]
pub(super) struct Unlocking {
    holders: Mutex<HashMap<Holder, u32>>,
    /// Of such holders: who locks looks no further where there are none.
    count: AtomicUsize,
    ended: Notify,
}

impl Unlocking {
    /// It begins; until what is returned is dropped.
    pub fn begin(&self, holders: Vec<Holder>) -> Unlocks<'_> {
        if !holders.is_empty() {
            let mut all = self.holders.lock();
            holders.iter().for_each(|holder| *all.entry(*holder).or_default() += 1);
            self.count.store(all.len(), Ordering::Release);
        }
        Unlocks { of: self, holders }
    }

    /// Waits until no locks of a holder are being given back.
    pub async fn wait(&self, holder: Holder) {
        while self.has(holder) {
            let ended = self.ended.notified();
            // It may have ended before that.
            if self.has(holder) {
                ended.await;
            }
        }
    }

    fn has(&self, holder: Holder) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.holders.lock().contains_key(&holder)
    }

    fn end(&self, holder: Holder) {
        let mut all = self.holders.lock();
        if let Entry::Occupied(mut count) = all.entry(holder) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.count.store(all.len(), Ordering::Release);
    }
}

/// Locks of these holders are being given back.
pub(super) struct Unlocks<'a> {
    of: &'a Unlocking,
    holders: Vec<Holder>,
}

impl Unlocks<'_> {
    /// Whose they are.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }
}

impl Drop for Unlocks<'_> {
    fn drop(&mut self) {
        if !self.holders.is_empty() {
            self.holders.iter().for_each(|holder| self.of.end(*holder));
            self.of.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_locks_waits_for_all_that_the_same_holder_gives_back() {
        let (unlocking, ours) = (Unlocking::default(), (Ino(7), 1, false));
        let one = unlocking.begin(vec![ours]);
        let two = unlocking.begin(vec![(Ino(8), 1, true), ours]);
        for other in [(Ino(7), 2, false), (Ino(7), 1, true), (Ino(8), 1, false)] {
            unlocking.wait(other).await;
        }
        let waits = unlocking.wait(ours);
        futures::pin_mut!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(one);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(two);
        waits.await;
        assert!(unlocking.holders.lock().is_empty());
        assert_eq!(unlocking.count.load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_close_without_locks_leaves_no_trace() {
        let unlocking = Unlocking::default();
        let none = unlocking.begin(Vec::new());
        assert!(none.holders().is_empty() && unlocking.holders.lock().is_empty());
    }
}
