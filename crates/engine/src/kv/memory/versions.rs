//! A map that remembers its past as long as somebody looks at it.

use super::super::{Pair, Part, Writes};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Every key with its values, each from the version that wrote it; `None` is a deletion.
#[derive(Default)]
pub struct Versions {
    newest: u64,
    keys: BTreeMap<Vec<u8>, Vec<(u64, Option<Bytes>)>>,
    /// Which versions were made by the writer of a part.
    writers: BTreeMap<u64, Part>,
    /// How many hold each version.
    held: BTreeMap<u64, usize>,
    /// Keys whose older values can go once no version below is held, by version.
    stale: VecDeque<(u64, Vec<u8>)>,
}

impl Versions {
    /// Holds the newest version.
    pub fn hold(&mut self) -> u64 {
        self.hold_at(self.newest);
        self.newest
    }

    /// Holds a version that is already held once more.
    pub fn hold_at(&mut self, version: u64) {
        *self.held.entry(version).or_default() += 1;
    }

    /// Gives a version back.
    pub fn release(&mut self, version: u64) {
        if let Some(count) = self.held.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&version);
            }
        }
        self.forget();
    }

    /// True if any of the keys was written after `version`.
    pub fn conflicts(&self, version: u64, writes: &Writes) -> bool {
        writes.keys().any(|key| {
            self.keys
                .get(key)
                .and_then(|values| values.last())
                .is_some_and(|(written, _)| *written > version)
        })
    }

    /// The same as the writer of a part finds it out who knows only what he has written, and asks about `contended` keys.
    pub fn conflicts_for(
        &self,
        part: Part,
        version: u64,
        writes: &Writes,
        contended: &[Vec<u8>],
    ) -> bool {
        writes.keys().any(|key| {
            let mut since = self.keys.get(key).into_iter().flatten();
            since.any(|(written, _)| {
                let is_own = || self.writers.get(written) == Some(&part);
                *written > version && (contended.contains(key) || is_own())
            })
        })
    }

    /// Makes the next version, as the writer of a part.
    pub fn apply_by(&mut self, part: Part, writes: Writes) {
        self.writers.insert(self.newest + 1, part);
        self.apply(writes);
    }

    /// Makes the next version.
    pub fn apply(&mut self, writes: Writes) {
        self.newest += 1;
        for (key, value) in writes {
            self.stale.push_back((self.newest, key.clone()));
            self.keys.entry(key).or_default().push((self.newest, value));
        }
        self.forget();
    }

    pub fn get(&self, version: u64, key: &[u8]) -> Option<Bytes> {
        self.keys.get(key).and_then(|values| seen(values, version))
    }

    pub fn scan(
        &self,
        version: u64,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Vec<Pair> {
        if super::super::is_empty_range(from, to) {
            return Vec::new();
        }
        self.keys
            .range::<[u8], _>((from, to))
            .filter_map(|(key, values)| Some((Bytes::copy_from_slice(key), seen(values, version)?)))
            .take(limit)
            .collect()
    }

    /// Keys and values kept.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.keys.len(), self.keys.values().map(Vec::len).sum())
    }

    /// Drops what no holder can see.
    fn forget(&mut self) {
        let oldest = self.held.keys().next().copied().unwrap_or(self.newest);
        self.writers.retain(|version, _| *version > oldest);
        while self.stale.front().is_some_and(|(version, _)| *version <= oldest) {
            let Some((_, key)) = self.stale.pop_front() else { return };
            let Some(values) = self.keys.get_mut(&key) else { continue };
            let current = values.partition_point(|(written, _)| *written <= oldest);
            values.drain(..current.saturating_sub(1));
            if matches!(values.as_slice(), [(written, None)] if *written <= oldest) {
                self.keys.remove(&key);
            }
        }
    }
}

fn seen(values: &[(u64, Option<Bytes>)], version: u64) -> Option<Bytes> {
    values.iter().rev().find(|(written, _)| *written <= version)?.1.clone()
}
