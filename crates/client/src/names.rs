//! Names as the metadata server told them, also those that are missing.
//!
//! A name is believed as long as nothing was recalled of its directory since it was asked for, which is
//! for [`crate::leases`] to say; here names only wait, as many as there is room for.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
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

impl Known {
    /// Nobody knows, although all other names of the directory are known. It looks as if it were missing, and was asked for
    /// before anything is believed.
    pub const UNSURE: Known = Known { leads: None, asked: Duration::ZERO };
}

/// The table. Two independent keyed hashes stand for a name, so nobody can make two that meet.
#[derive(Default)]
pub(crate) struct Names {
    shards: [Mutex<HashMap<u128, Known>>; SHARDS],
    /// How often some were dropped that may have been true still.
    thinned: AtomicU64,
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
            thin(&mut shard, |known| Some(known.asked));
            self.thinned.fetch_add(1, Ordering::AcqRel);
        }
        shard.insert(key, known);
    }

    /// Nothing is known of a name.
    pub fn forget(&self, dir: Ino, name: &[u8]) {
        let key = self.key(dir, name);
        self.shard(key).lock().remove(&key);
    }

    /// How often names were dropped that may have been true still. As long as it stays the same all are here that were told.
    pub fn thinned(&self) -> u64 {
        self.thinned.load(Ordering::Acquire)
    }

    /// Nothing is known of any.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.clear();
            // Others may learn and look at names meanwhile.
            self.thinned.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Drops every other entry of a table. One of which `asked` does not say when it was asked for stays; of the others so does
/// the quarter that was asked for last: a listing has brought it, and it is looked at next. (Of more that were asked for at
/// the same time none is preferred.) What is dropped is only asked for again.
pub(crate) fn thin<K, V>(map: &mut HashMap<K, V>, asked: impl Fn(&V) -> Option<Duration>) {
    let mut times: Vec<Duration> = map.values().filter_map(&asked).collect();
    let quarter = times.len() / 4;
    let Some(newest) = times.len().checked_sub(quarter + 1) else { return };
    let (_, &mut before_it, _) = times.select_nth_unstable(newest);
    let mut keep = false;
    map.retain(|_, value| {
        let stays = asked(value).is_none_or(|asked| asked > before_it);
        keep ^= !stays;
        stays || keep
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
        let thinned = names.thinned();
        names.clear();
        assert_eq!(names.get(Ino(2), b"a"), None);
        assert!(thinned > 0 && names.thinned() > thinned);
    }

    #[test]
    fn what_was_asked_for_last_stays() {
        let all = |times: &[u64]| -> HashMap<usize, Duration> {
            times.iter().map(|ms| Duration::from_millis(*ms)).enumerate().collect()
        };
        let kept = |times: &[u64]| {
            let mut map = all(times);
            thin(&mut map, |asked| Some(*asked));
            map
        };
        assert_eq!(kept(&[7; 100]).len(), 50, "all at once");
        assert_eq!(kept(&[7]).len(), 1);
        assert!(kept(&[]).is_empty());
        let times: Vec<u64> = (0..100).collect();
        let some = kept(&times);
        assert_eq!(some.len(), 25 + 38);
        assert!((75..100).all(|nth| some.contains_key(&nth)), "the last quarter");
        let mut map = all(&times);
        thin(&mut map, |asked| (*asked >= Duration::from_millis(20)).then_some(*asked));
        assert!((0..20).all(|nth| map.contains_key(&nth)), "nobody says when");
        assert_eq!(map.len(), 20 + 20 + 30);
    }
}
