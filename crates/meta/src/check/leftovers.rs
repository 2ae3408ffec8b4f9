//! Records that belong to something that is not there.

use super::{Findings, Mend};
use crate::keys::{self, Kind};
use crate::records::{Order, SessionRecord};
use crate::view::Tx;
use bytes::Bytes;
use strake_types::{Ino, Result};

/// Kinds of records that belong to something else, in the order of their letters. The queue is not
/// among them: whoever works it off drops what is left there.
pub(super) const KINDS: &[Kind] = &[
    Kind::Contents,
    Kind::Order,
    Kind::Flock,
    Kind::Link,
    Kind::Posix,
    Kind::Result,
    Kind::Shard,
    Kind::Xattr,
];

/// Judges a key.
pub(crate) async fn judge(
    tx: &mut Tx<'_>,
    key: &Bytes,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let (Some(&letter), Some(id)) = (key.first(), keys::first_id(key)) else { return Ok(()) };
    let Some(kind) = KINDS.iter().copied().find(|kind| *kind as u8 == letter) else {
        return Ok(());
    };
    let owner = Ino(id);
    let reason = match kind {
        Kind::Flock | Kind::Posix => {
            let session = keys::two_ids(key).map_or(0, |(_, session)| session);
            match has_session(tx, session).await? {
                true => None,
                false => Some(format!("a lock of session {session}, which is over")),
            }
        }
        Kind::Result => match has_session(tx, id).await? {
            true => None,
            false => Some(format!("a reply to session {id}, which is over")),
        },
        Kind::Order => unnamed_order(tx, owner, key).await?,
        _ => of_inode(tx, kind, owner, key).await?,
    };
    let Some(reason) = reason else { return Ok(()) };
    // It may have gone meanwhile with what it belonged to.
    if tx.kv().await?.get(key).await.map_err(crate::stored::store_error)?.is_none() {
        return Ok(());
    }
    if mend.is_some() {
        tx.delete(key.to_vec()).await?;
    }
    let about = if matches!(kind, Kind::Result) { 0 } else { id };
    found.add("leftover-record", about, reason, mend.is_some());
    Ok(())
}

async fn has_session(tx: &mut Tx<'_>, session: u64) -> Result<bool> {
    let key = keys::session(tx.ctx.volume.id, session);
    Ok(tx.get::<SessionRecord>(&key).await?.is_some())
}

/// A place in a directory at which no name is.
async fn unnamed_order(tx: &mut Tx<'_>, dir: Ino, key: &Bytes) -> Result<Option<String>> {
    let Some(order) = tx.get::<Order>(key).await? else { return Ok(None) };
    let entry = tx.entry(dir, &order.name).await?;
    let cookie = keys::last_id(key);
    if entry.is_some_and(|entry| Some(entry.cookie) == cookie) {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(&order.name).into_owned();
    Ok(Some(format!("a listing of directory {dir} shows {name:?}, which is not there")))
}

async fn of_inode(tx: &mut Tx<'_>, kind: Kind, ino: Ino, key: &Bytes) -> Result<Option<String>> {
    let inode = tx.find_inode(ino).await?;
    let what = match kind {
        Kind::Contents => "contents",
        Kind::Link => "a name",
        Kind::Shard => "counts",
        _ => "an extended attribute",
    };
    Ok(match inode {
        None => Some(format!("{what} of inode {ino}, which does not exist")),
        Some(inode) => {
            let fits = match kind {
                Kind::Contents => inode.inline || !inode.is_file(),
                Kind::Link => inode.linked && !inode.is_dir(),
                Kind::Shard => inode.is_dir() && keys::shard_index(key) < inode.shards(),
                _ => true,
            };
            (!fits).then(|| format!("{what} of inode {ino}, which has none such"))
        }
    })
}
