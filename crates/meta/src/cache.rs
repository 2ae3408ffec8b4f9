//! A bounded cache of decoded records, coherent with the store.
//!
//! Only this server writes its volumes, and each writer holds the locks of what it writes, so the
//! cache stays true by three steps around a commit: forget, commit, and then put what is so now or,
//! where nothing is or nobody knows, forget once more. Between the first step and the last nothing is
//! kept: what a reader found before the commit could be read here after somebody else
//! has seen in the store what is so now. Readers fill as well, but only if nothing in
//! their part of the cache was forgotten or put since before they took their snapshot of the store
//! ([`Cache::ticket`]); so a slow reader never puts back what a writer has replaced or removed.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts with a lock each.
const PARTS: usize = 64;

/// Keys are well mixed already: their low half is the hash.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = mix(key);
    }
}

fn mix(key: u128) -> u64 {
    let folded = (key as u64) ^ ((key >> 64) as u64).rotate_left(32);
    let mixed = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

type Map<V> = HashMap<u128, V, BuildHasherDefault<Mixed>>;

/// Two generations: what was used since the young one was last full stays, the rest goes.
struct Part<V> {
    young: Map<V>,
    old: Map<V>,
    /// Keys of which a commit is under way.
    changing: Vec<u128>,
    /// The cache's turn when something here was last forgotten or put.
    turn: u64,
}

/// The moment before a snapshot of the store.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ticket(u64);

/// Where a commit is when something is forgotten because of it.
#[derive(Clone, Copy)]
pub(crate) enum Commit {
    /// Nothing is kept until it has ended.
    Begins,
    /// It left no value, or nobody knows which.
    Ended,
}

/// The cache.
pub(crate) struct Cache<V> {
    parts: Vec<Mutex<Part<V>>>,
    /// Most values in one generation of one part.
    part_max: usize,
    /// Counts what was forgotten or put in all parts.
    turn: AtomicU64,
}

impl<V: Clone> Cache<V> {
    /// A cache of at most `max` values.
    pub fn new(max: usize) -> Self {
        let part =
            || Part { young: Map::default(), old: Map::default(), changing: Vec::new(), turn: 0 };
        let parts = (0..PARTS).map(|_| Mutex::new(part())).collect();
        Cache { parts, part_max: (max / PARTS / 2).max(1), turn: AtomicU64::new(0) }
    }

    fn part(&self, key: u128) -> &Mutex<Part<V>> {
        &self.parts[(mix(key) >> 40) as usize % PARTS]
    }

    /// The value, if it is here.
    pub fn get(&self, key: u128) -> Option<V> {
        let mut part = self.part(key).lock();
        if let Some(value) = part.young.get(&key) {
            return Some(value.clone());
        }
        let value = part.old.remove(&key)?;
        part.insert(key, value.clone(), self.part_max);
        Some(value)
    }

    /// Keys of which a commit is under way.
    #[cfg(test)]
    pub fn changing(&self) -> usize {
        self.parts.iter().map(|part| part.lock().changing.len()).sum()
    }

    /// To be taken before the snapshot that is read; good for all keys.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.turn.load(Ordering::SeqCst))
    }

    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Keeps what a reader found, unless a writer came by since the ticket was taken, or is here.
    pub fn fill(&self, key: u128, value: V, ticket: Ticket) {
        let mut part = self.part(key).lock();
        if part.turn <= ticket.0 && !part.changing.contains(&key) {
            part.insert(key, value, self.part_max);
        }
    }

    /// Forgets a value: before a commit that changes it, and after one that leaves none to put.
    pub fn forget(&self, key: u128, commit: Commit) {
        let mut part = self.part(key).lock();
        part.turn = self.next_turn();
        part.young.remove(&key);
        part.old.remove(&key);
        match commit {
            Commit::Begins => part.changing.push(key),
            Commit::Ended => part.end(key),
        }
    }

    /// After a commit: keeps what a writer, who holds the lock of it, has committed.
    pub fn put(&self, key: u128, value: V) {
        let mut part = self.part(key).lock();
        part.turn = self.next_turn();
        part.end(key);
        part.insert(key, value, self.part_max);
    }
}

impl<V> Part<V> {
    /// A commit that changed a value is over.
    fn end(&mut self, key: u128) {
        if let Some(at) = self.changing.iter().position(|changing| *changing == key) {
            self.changing.swap_remove(at);
        }
    }

    fn insert(&mut self, key: u128, value: V, max: usize) {
        if self.young.len() >= max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_began_before_a_commit_does_not_fill() {
        let cache = Cache::new(1000);
        let ticket = cache.ticket();
        cache.forget(1, Commit::Begins);
        cache.fill(1, "before", ticket);
        assert_eq!(cache.get(1), None);
        cache.put(1, "after");
        cache.fill(1, "before", ticket);
        assert_eq!(cache.get(1), Some("after"));
    }

    /// Or it could be read from here after somebody has seen the commit in the store.
    #[test]
    fn nothing_is_kept_while_a_commit_is_under_way() {
        let cache = Cache::new(1000);
        cache.forget(1, Commit::Begins);
        cache.fill(1, "before", cache.ticket());
        assert_eq!(cache.get(1), None);
        cache.forget(1, Commit::Ended);
        cache.fill(1, "after", cache.ticket());
        assert_eq!(cache.get(1), Some("after"));
    }

    #[test]
    fn a_ticket_is_as_old_as_the_snapshot_whatever_the_key() {
        let cache = Cache::new(1000);
        let ticket = cache.ticket();
        for key in 1..1000 {
            cache.forget(key, Commit::Begins);
            cache.forget(key, Commit::Ended);
        }
        for key in 1..1000 {
            cache.fill(key, "before", ticket);
            assert_eq!(cache.get(key), None);
        }
        let ticket = cache.ticket();
        cache.fill(1, "after", ticket);
        assert_eq!(cache.get(1), Some("after"));
    }

    #[test]
    fn the_number_of_values_is_bounded_and_the_used_ones_stay() {
        let cache = Cache::new(PARTS * 2 * 10);
        let put = |key| {
            cache.forget(key, Commit::Begins);
            cache.put(key, key);
        };
        put(0);
        for key in 1..100_000 {
            put(key);
            assert_eq!(cache.get(0), Some(0));
        }
        let kept = (0..100_000).filter(|&key| cache.get(key).is_some()).count();
        assert!(kept <= PARTS * 2 * 10);
    }
}
