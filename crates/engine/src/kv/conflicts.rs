//! Which keys were written lately.

use super::Writes;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// The most keys remembered, about 48 bytes each. A snapshot so old that more were written since
/// can no longer be judged: its commits conflict.
const KEYS_MAX: usize = 1 << 20;

/// The version of the last write of every key written since the oldest live snapshot.
///
/// Keys are remembered by a 64-bit hash with a secret seed. Two keys of one hash would give a
/// conflict where there is none, which the contract permits.
pub struct RecentWrites {
    hasher: RandomState,
    last: HashMap<u64, u64, BuildIdentity>,
    order: VecDeque<(u64, u64)>,
    /// Nothing is known about writes up to here.
    floor: u64,
}

impl RecentWrites {
    pub fn new(floor: u64) -> Self {
        Self { hasher: RandomState::new(), last: HashMap::default(), order: VecDeque::new(), floor }
    }

    /// The hashes of the keys, to be made before the commit lock is taken.
    pub fn hashes(hasher: &RandomState, writes: &Writes) -> Vec<u64> {
        writes.keys().map(|key| hasher.hash_one(key)).collect()
    }

    /// The hasher that [`Self::hashes`] wants.
    pub fn hasher(&self) -> RandomState {
        self.hasher.clone()
    }

    /// True unless none of the keys was written after `version`.
    pub fn conflict(&self, version: u64, hashes: &[u64]) -> bool {
        version < self.floor
            || hashes.iter().any(|hash| self.last.get(hash).is_some_and(|last| *last > version))
    }

    /// Notes a commit, and forgets those that no live snapshot is older than.
    pub fn note(&mut self, version: u64, hashes: &[u64], oldest: u64) {
        for hash in hashes {
            self.last.insert(*hash, version);
            self.order.push_back((version, *hash));
        }
        while let Some((written, hash)) = self.order.front().copied() {
            if written > oldest && self.order.len() <= KEYS_MAX {
                break;
            }
            self.floor = self.floor.max(written);
            self.order.pop_front();
            if self.last.get(&hash) == Some(&written) {
                self.last.remove(&hash);
            }
        }
    }
}

/// The keys of the map are hashes already.
#[derive(Clone, Copy, Default)]
struct BuildIdentity;

impl BuildHasher for BuildIdentity {
    type Hasher = Identity;

    fn build_hasher(&self) -> Identity {
        Identity(0)
    }
}

struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_after_the_snapshot_conflicts_and_one_before_does_not() {
        let mut recent = RecentWrites::new(0);
        recent.note(5, &[1, 2], 0);
        assert!(recent.conflict(4, &[2, 3]));
        assert!(!recent.conflict(5, &[1, 2]));
        assert!(!recent.conflict(4, &[3]));
    }

    #[test]
    fn what_no_snapshot_is_older_than_is_forgotten() {
        let mut recent = RecentWrites::new(0);
        recent.note(5, &[1, 2], 0);
        recent.note(6, &[1], 5);
        assert_eq!(recent.order.len(), 1);
        assert_eq!(recent.last.len(), 1);
        assert!(recent.conflict(5, &[1]));
        assert!(recent.conflict(4, &[9]), "too old to be judged");
    }

    #[test]
    fn memory_is_bounded_when_a_snapshot_is_never_dropped() {
        let mut recent = RecentWrites::new(0);
        for version in 1..=(KEYS_MAX as u64 + 10) {
            recent.note(version, &[version], 0);
        }
        assert_eq!(recent.order.len(), KEYS_MAX);
        assert!(recent.conflict(0, &[u64::MAX]));
    }
}
