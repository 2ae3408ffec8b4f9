//! What is under way, counted by what it is about, and who waits until none of it is.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// What is under way.
pub(super) struct Counted<K> {
    all: Mutex<HashMap<K, u32>>,
    /// Of such keys: who looks looks no further where there are none.
    count: AtomicUsize,
    ended: Notify,
}

impl<K> Default for Counted<K> {
    fn default() -> Self {
        Self { all: Mutex::default(), count: AtomicUsize::new(0), ended: Notify::new() }
    }
}

impl<K: Copy + Eq + Hash> Counted<K> {
    /// Something of each of these begins; [`Counted::end`] must follow.
    pub fn begin(&self, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let mut all = self.all.lock();
        keys.iter().for_each(|key| *all.entry(*key).or_default() += 1);
        self.count.store(all.len(), Ordering::Release);
    }

    /// It ends.
    pub fn end(&self, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let mut all = self.all.lock();
        for key in keys {
            if let Entry::Occupied(mut count) = all.entry(*key) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        self.count.store(all.len(), Ordering::Release);
        drop(all);
        self.ended.notify_waiters();
    }

    /// True if something of a key is under way.
    pub fn has(&self, key: K) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.all.lock().contains_key(&key)
    }

    /// Waits until nothing of a key is.
    pub async fn wait(&self, key: K) {
        loop {
            // Before the look: what ends after it is heard.
            let ended = self.ended.notified();
            if !self.has(key) {
                return;
            }
            ended.await;
        }
    }

    /// Waits until all is over that is under way now, and for nothing that begins later.
    pub async fn wait_for_all(&self) {
        let keys: Vec<K> = match self.count.load(Ordering::Acquire) {
            0 => return,
            _ => self.all.lock().keys().copied().collect(),
        };
        for key in keys {
            self.wait(key).await;
        }
    }

    /// True if nothing is under way at all.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.all.lock().is_empty() && self.count.load(Ordering::Acquire) == 0
    }
}
