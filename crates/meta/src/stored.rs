//! What the store holds, read for everybody: records, ranges of them, and its errors.

use crate::{keys, records};
use bytes::Bytes;
use std::ops::Bound;
use strake_engine::kv::{KvError, Snapshot};
use strake_types::{Error, ErrorKind, Result};

/// Pairs read at a time.
const SCAN_PAGE: usize = 1000;

/// A value of the store, decoded.
pub(crate) async fn get<T: prost::Message + Default>(
    snapshot: &dyn Snapshot,
    key: &[u8],
) -> Result<Option<T>> {
    decoded(key, snapshot.get(key).await.map_err(store_error)?)
}

/// What was found under a key, decoded.
pub(crate) fn decoded<T: prost::Message + Default>(
    key: &[u8],
    value: Option<Bytes>,
) -> Result<Option<T>> {
    value.map(|value| records::decode(key, &value)).transpose()
}

/// Visits all pairs whose keys begin with `prefix`.
pub(crate) async fn scan(
    snapshot: &dyn Snapshot,
    prefix: &[u8],
    mut visit: impl FnMut(&Bytes, &Bytes) -> Result<()> + Send,
) -> Result<()> {
    let end = keys::end_of(prefix);
    let end = end.as_ref().map(Vec::as_slice);
    let mut from = Bound::Included(prefix.to_vec());
    loop {
        let start = from.as_ref().map(Vec::as_slice);
        let page = snapshot.scan(start, end, SCAN_PAGE).await.map_err(store_error)?;
        for (key, value) in &page {
            visit(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == SCAN_PAGE => from = Bound::Excluded(last.to_vec()),
            _ => return Ok(()),
        }
    }
}

/// True if no key begins with `prefix`.
pub(crate) async fn is_empty(snapshot: &dyn Snapshot, prefix: &[u8]) -> Result<bool> {
    let end = keys::end_of(prefix);
    let end = end.as_ref().map(Vec::as_slice);
    let page = snapshot.scan(Bound::Included(prefix), end, 1).await.map_err(store_error)?;
    Ok(page.is_empty())
}

/// An error of the store in the words of the file system.
pub(crate) fn store_error(error: KvError) -> Error {
    let kind = match &error {
        KvError::Corrupt { .. } => ErrorKind::Corrupt,
        KvError::Full { .. } => ErrorKind::NoSpace,
        KvError::Poisoned { .. } | KvError::Io { .. } => ErrorKind::Io,
        KvError::InUse { .. }
        | KvError::Unreachable { .. }
        | KvError::Refused { .. }
        | KvError::Expired { .. }
        | KvError::OtherOwner { .. }
        | KvError::TakenOver { .. }
        | KvError::Moved { .. }
        | KvError::Newer { .. }
        | KvError::Older { .. }
        | KvError::OtherEngine { .. } => ErrorKind::Unavailable,
    };
    Error::with(kind, error.to_string())
}
