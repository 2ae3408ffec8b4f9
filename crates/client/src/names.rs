//! Names as the metadata server told them, also those that are missing.
//!
//! A name is believed as long as nothing was recalled of its directory since it was asked for, which is
//! for [`crate::leases`] to say; here names only wait, as many as there is room for.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use strake_types::Ino;

const SHARDS: usize = 16;
/// Most names kept per shard: 100,000 in all.
const NAMES_PER_SHARD_MAX: usize = 6_250;

/// A name that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// What it stands for; `None`: there is no such name.
    pub leads: Option<Ino>,
    /// When it was asked for.
    pub asked: Duration,
}

/// The table. Two independent keyed hashes stand for a name, so nobody can make two that meet.
#[derive(Default)]
pub(crate) struct Names {
    shards: [Mutex<HashMap<u128, Known>>; SHARDS],
    hashes: (RandomState, RandomState),
}

impl Names {
    fn key(&self, dir: Ino, name: &[u8]) -> u128 {
        let place = (dir.0, name);
        u128::from(self.hashes.0.hash_one(place)) << 64 | u128::from(self.hashes.1.hash_one(place))
    }

    fn shard(&self, key: u128) -> &Mutex<HashMap<u128, Known>> {
        &self.shards[(key >> 64) as usize % SHARDS]
    }

    /// What was told of a name.
    pub fn get(&self, dir: Ino, name: &[u8]) -> Option<Known> {
        let key = self.key(dir, name);
        self.shard(key).lock().get(&key).copied()
    }

    /// Keeps what was told of a name.
    pub fn put(&self, dir: Ino, name: &[u8], known: Known) {
        let key = self.key(dir, name);
        let mut shard = self.shard(key).lock();
        if shard.len() >= NAMES_PER_SHARD_MAX && !shard.contains_key(&key) {
            halve(&mut shard, |_| false);
        }
        shard.insert(key, known);
    }

    /// Nothing is known of a name.
    pub fn forget(&self, dir: Ino, name: &[u8]) {
        let key = self.key(dir, name);
        self.shard(key).lock().remove(&key);
    }

    /// Nothing is known of any.
    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
    }
}

/// Drops every other entry but those that stay: cheap, and what is dropped is only asked for again.
pub(crate) fn halve<K, V>(map: &mut HashMap<K, V>, stays: impl Fn(&V) -> bool) {
    let mut keep = false;
    map.retain(|_, value| {
        keep = !keep;
        keep || stays(value)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_apart_and_their_number_is_bounded() {
        let names = Names::default();
        let known = |ino: u64| Known { leads: Some(Ino(ino)), asked: Duration::ZERO };
        names.put(Ino(1), b"a", known(5));
        names.put(Ino(2), b"a", Known { leads: None, ..known(0) });
        assert_eq!(names.get(Ino(1), b"a"), Some(known(5)));
        assert_eq!(names.get(Ino(2), b"a").unwrap().leads, None);
        assert_eq!(names.get(Ino(1), b"b"), None);
        names.forget(Ino(1), b"a");
        assert_eq!(names.get(Ino(1), b"a"), None);
        for nth in 0..150_000u64 {
            names.put(Ino(3), &nth.to_le_bytes(), known(nth));
        }
        let kept: usize = names.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!((50_000..=100_000).contains(&kept), "{kept}");
        names.clear();
        assert_eq!(names.get(Ino(2), b"a"), None);
    }
}
