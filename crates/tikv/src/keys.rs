//! What keys the store has in TiKV. docs/FORMATS.md draws them.

use std::ops::Bound;
use strake_engine::kv::Part;
use tikv_client::BoundRange;

/// What every key of ours begins with, whatever the name.
pub const ROOT: &str = "strake/";
/// The first key after all that begin so.
pub const AFTER_ROOT: &str = "strake0";

const STORE: u8 = b's';
const CLAIM: u8 = b'c';
const OWNER: u8 = b'o';
const DATA: u8 = b'd';

/// The keys of one store.
pub struct Keys {
    /// `strake/NAME`, and a zero: so no name is the beginning of another.
    prefix: Vec<u8>,
}

impl Keys {
    pub fn new(name: &str) -> Self {
        Self { prefix: format!("{ROOT}{name}\0").into_bytes() }
    }

    fn of(&self, kind: u8, rest: &[u8]) -> Vec<u8> {
        [&self.prefix, &[kind][..], rest].concat()
    }

    /// Whose the store is.
    pub fn store(&self) -> Vec<u8> {
        self.of(STORE, b"")
    }

    /// What every commit of a part writes.
    pub fn claim(&self, part: Part) -> Vec<u8> {
        self.of(CLAIM, &name(part))
    }

    /// Who writes a part.
    pub fn owner(&self, part: Part) -> Vec<u8> {
        self.of(OWNER, &name(part))
    }

    /// All claims, or all that says who writes a part.
    pub fn all_claims(&self) -> [BoundRange; 2] {
        [CLAIM, OWNER].map(|kind| (self.of(kind, b"")..self.of(kind + 1, b"")).into())
    }

    /// A key of the map.
    pub fn data(&self, key: &[u8]) -> Vec<u8> {
        self.of(DATA, key)
    }

    /// A key of the map again.
    pub fn plain<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        data.get(self.prefix.len() + 1..).unwrap_or_default()
    }

    /// The first key of a range of the map, and the first one after it.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> (Vec<u8>, Vec<u8>) {
        let after = |key: &[u8]| [&self.data(key), &[0][..]].concat();
        let first = match from {
            Bound::Included(key) => self.data(key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => self.data(b""),
        };
        let end = match to {
            Bound::Included(key) => after(key),
            Bound::Excluded(key) => self.data(key),
            Bound::Unbounded => self.of(DATA + 1, b""),
        };
        (first, end)
    }
}

fn name(part: Part) -> Vec<u8> {
    match part {
        Part::Whole => b"w".to_vec(),
        Part::Control => b"c".to_vec(),
        Part::Volume(id) => [b"v", &id.to_be_bytes()[..]].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_of_a_store_is_in_a_range_of_another() {
        let [one, two] = ["a", "a.b"].map(Keys::new);
        let all = |keys: &Keys| keys.range(Bound::Unbounded, Bound::Unbounded);
        for (own, other) in [(&one, &two), (&two, &one)] {
            let (first, end) = all(own);
            for key in [other.store(), other.claim(Part::Volume(1)), other.data(b"\xff\xff")] {
                assert!(key < first || key >= end);
            }
            assert!(own.data(b"") >= first && own.data(b"\xff\xff\xff") < end);
            assert!(own.store() >= end && own.claim(Part::Whole) < first);
            assert_eq!(own.plain(&own.data(b"key")), b"key");
        }
    }

    #[test]
    fn bounds_are_kept() {
        let keys = Keys::new("a");
        let (first, end) = keys.range(Bound::Excluded(b"k"), Bound::Included(b"m"));
        assert!(keys.data(b"k") < first && keys.data(b"k\0") >= first);
        assert!(keys.data(b"m") < end && keys.data(b"m\0") >= end);
    }
}
