//! A name in a directory.

use crate::core::backoff;
use crate::ctx::Ctx;
use crate::records::Inode;
use crate::view::Tx;
use std::sync::Arc;
use strake_types::access::EXECUTE;
use strake_types::{Error, ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{MetaAnswer, Name};

/// How often a name is looked at anew that was given to another inode meanwhile.
const TRIES_MAX: u32 = 8;

/// Answers with the attributes of what the name leads to; `.` and `..` work.
pub(crate) async fn lookup(ctx: &Ctx, op: &Name) -> Result<MetaAnswer> {
    name::check(&op.name)?;
    for turn in 0..TRIES_MAX {
        let mut tx = Tx::reader(ctx);
        let dir = tx.directory(Ino(op.parent)).await?;
        ctx.check(&dir, EXECUTE)?;
        if let Some(found) = find(&mut tx, &dir, &op.name).await? {
            return Ok(MetaAnswer::Entry(tx.attributes(&found).await?));
        }
        backoff(turn).await;
    }
    Err(Error::new(ErrorKind::NotFound))
}

/// What a name leads to. `None`: between the two reads the name was removed, or given to another
/// inode; what was read does not fit together.
async fn find(tx: &mut Tx<'_>, dir: &Arc<Inode>, name: &[u8]) -> Result<Option<Arc<Inode>>> {
    let missing = || Error::new(ErrorKind::NotFound);
    let ino = match name {
        b"." => return Ok(Some(dir.clone())),
        b".." => Ino(dir.parent),
        _ => Ino(tx.entry(dir.id(), name).await?.ok_or_else(missing)?.ino),
    };
    let found = tx.find_inode(ino).await?;
    if name == b".." {
        return Ok(found);
    }
    // Another view: this one may have read the entry in a snapshot, and the inode in a cache, later.
    let now = Tx::reader(tx.ctx).entry(dir.id(), name).await?;
    let still = now.is_some_and(|entry| entry.ino == ino.0);
    Ok(found.filter(|inode| still && inode.nlink > 0))
}

#[cfg(test)]
mod tests;
