//! Which keys a store has in etcd. All begin with its name, so that several may share an etcd.
//!
//! | key | value |
//! |---|---|
//! | `NAME/store` | whose the store is: [`StoreRecord`](super::records::StoreRecord) |
//! | `NAME/claim/PART` | who writes a part: [`ClaimRecord`](super::records::ClaimRecord) |
//! | `NAME/receipt/PART/NONCE` | the number of his last commit, 8 bytes, big-endian |
//! | `NAME/map/KEY` | the map |

use super::super::Part;
use bytes::Bytes;
use std::ops::Bound;

/// The keys of one store.
#[derive(Clone)]
pub struct Keys {
    name: String,
    map: Vec<u8>,
}

impl Keys {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), map: format!("{name}/map/").into_bytes() }
    }

    pub fn store(&self) -> Bytes {
        format!("{}/store", self.name).into()
    }

    pub fn claim(&self, part: Part) -> Bytes {
        format!("{}/claim/{}", self.name, part_name(part)).into()
    }

    pub fn claims(&self) -> (Bytes, Bytes) {
        all_in(format!("{}/claim/", self.name).into_bytes())
    }

    pub fn receipt(&self, part: Part, nonce: &[u8]) -> Bytes {
        let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}/receipt/{}/{nonce}", self.name, part_name(part)).into()
    }

    /// The receipts of all who have written a part.
    pub fn receipts(&self, part: Part) -> (Bytes, Bytes) {
        all_in(format!("{}/receipt/{}/", self.name, part_name(part)).into_bytes())
    }

    pub fn map(&self, key: &[u8]) -> Bytes {
        [&self.map, key].concat().into()
    }

    /// The whole map.
    pub fn all(&self) -> (Bytes, Bytes) {
        all_in(self.map.clone())
    }

    /// The bounds of a range of the map: from a key to before another.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> (Bytes, Bytes) {
        let after = |key: &[u8]| self.map(&[key, &[0]].concat());
        let from = match from {
            Bound::Included(key) => self.map(key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => self.map(b""),
        };
        let to = match to {
            Bound::Included(key) => after(key),
            Bound::Excluded(key) => self.map(key),
            Bound::Unbounded => self.all().1,
        };
        (from, to)
    }

    /// A key of the map, from one of etcd's.
    pub fn of_map(&self, key: &Bytes) -> Bytes {
        key.slice(self.map.len().min(key.len())..)
    }
}

/// All keys with a prefix that ends in a slash.
fn all_in(prefix: Vec<u8>) -> (Bytes, Bytes) {
    let mut end = prefix.clone();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (prefix.into(), end.into())
}

fn part_name(part: Part) -> String {
    match part {
        Part::Whole => "whole".into(),
        Part::Control => "control".into(),
        Part::Volume(id) => id.to_string(),
    }
}
