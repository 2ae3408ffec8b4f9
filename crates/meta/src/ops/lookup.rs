//! A name in a directory.

use crate::ctx::Ctx;
use crate::records::Inode;
use crate::view::Tx;
use std::sync::Arc;
use strake_types::access::EXECUTE;
use strake_types::{Error, ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{MetaAnswer, Name};

/// Answers with the attributes of what the name leads to; `.` and `..` work.
pub(crate) async fn lookup(ctx: &Ctx, op: &Name) -> Result<MetaAnswer> {
    name::check(&op.name)?;
    let mut tx = Tx::reader(ctx);
    let dir = tx.directory(Ino(op.parent)).await?;
    ctx.check(&dir, EXECUTE)?;
    let found = find(&mut tx, &dir, &op.name).await?;
    Ok(MetaAnswer::Entry(tx.attributes(&found).await?))
}

async fn find(tx: &mut Tx<'_>, dir: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
    let missing = || Error::new(ErrorKind::NotFound);
    let ino = match name {
        b"." => return Ok(dir.clone()),
        b".." => Ino(dir.parent),
        _ => Ino(tx.entry(dir.id(), name).await?.ok_or_else(missing)?.ino),
    };
    // Between the two reads the name may have been removed.
    tx.find_inode(ino).await?.ok_or_else(missing)
}

#[cfg(test)]
mod tests;
