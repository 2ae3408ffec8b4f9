//! The end of a store that was moved elsewhere: from then on nobody leads or serves by it.

use super::{DumpError, EXPORTED, IMPORTED, IMPORTING, Result, TRIES_MAX, mark, step};
use crate::kv::{self, Kv, KvError, Moved, Transaction};
use bytes::Bytes;

/// Where the store was moved to. Whoever is about to use a store looks at it ([`check_mark`]).
pub const MOVED: &[u8] = b"!moved";

/// Closes a store of which everything was exported and is somewhere else: servers refuse it from now on. False, and
/// nothing is done, if somebody has used it since. Fails if it was moved to another place.
pub async fn close(kv: &dyn Kv, moved: &Moved) -> Result<bool> {
    for _ in 0..TRIES_MAX {
        let mut tx = Transaction::begin(kv).await?;
        match read(kv.name(), tx.get(MOVED).await?.as_ref())? {
            Some(before) if before.is_same(moved) => {
                kv.sync().await?;
                return Ok(true);
            }
            Some(before) => return Err(closed(kv.name(), before).into()),
            None => {}
        }
        let marks = [tx.guard(EXPORTED).await?, tx.guard(IMPORTED).await?];
        if !marks.iter().flatten().any(|mark| mark[..] == moved.export[..]) {
            return Ok(false);
        }
        tx.put(MOVED.to_vec(), moved.encode());
        // However it ends, the next look tells what became of it.
        let _seen_next = tx.commit(kv).await?;
    }
    Err(DumpError::InUse { store: kv.name() })
}

/// Where the store was moved to, if it was.
pub async fn moved(kv: &dyn Kv) -> Result<Option<Moved>> {
    Ok(read(kv.name(), mark(kv, MOVED).await?.as_ref())?)
}

/// Gives the move up: servers may use the store again.
pub async fn reopen(kv: &dyn Kv) -> Result<()> {
    if let Some(value) = mark(kv, MOVED).await? {
        step(kv, MOVED, Some(&value), None, &[]).await?;
        kv.sync().await?;
    }
    Ok(())
}

/// Fails if the store was moved elsewhere.
pub async fn check_open(kv: &dyn Kv) -> kv::Result<()> {
    check_mark(kv.name(), kv.snapshot().await?.get(MOVED).await?.as_ref())
}

/// The same, and fails from an export or an import on until somebody leads by the store ([`super::forget`]): what a server
/// that was not stopped wrote meanwhile would be missing where the file is imported.
pub async fn check_led(kv: &dyn Kv) -> kv::Result<()> {
    let keys = [MOVED, EXPORTED, IMPORTING, IMPORTED].map(<[u8]>::to_vec);
    let found = kv.snapshot().await?.multi_get(&keys).await?;
    check_mark(kv.name(), found.first().and_then(Option::as_ref))?;
    if found.iter().skip(1).all(Option::is_none) {
        return Ok(());
    }
    Err(KvError::Refused {
        store: kv.name().to_owned(),
        cause: "it was exported or imported, and no manager has led by it since".into(),
        next: "start the manager where the metadata is to be".into(),
    })
}

/// As [`check_open`], where the value of [`MOVED`] was looked at.
pub fn check_mark(store: &str, value: Option<&Bytes>) -> kv::Result<()> {
    match read(store, value)? {
        Some(moved) => Err(closed(store, moved)),
        None => Ok(()),
    }
}

fn closed(store: &str, moved: Moved) -> KvError {
    KvError::Moved { store: store.to_owned(), moved: Box::new(moved) }
}

fn read(store: &str, value: Option<&Bytes>) -> kv::Result<Option<Moved>> {
    let Some(value) = value else { return Ok(None) };
    match Moved::decode(value) {
        Some(moved) => Ok(Some(moved)),
        None => Err(KvError::Refused {
            store: store.to_owned(),
            cause: "it was moved, and where to is written as this release cannot read it".into(),
            next: "install the release that has moved it".into(),
        }),
    }
}
