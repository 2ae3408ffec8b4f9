//! Attributes of an inode.

use crate::ctx::Ctx;
use crate::view::Tx;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer};

/// Answers with what `stat` shows. Nobody needs a permission on the inode itself.
pub(crate) async fn getattr(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let ino = Ino(op.ino);
    let leased = ctx.lease(ino);
    let mut tx = Tx::reader(ctx);
    let Some(inode) = tx.find_inode(ino).await? else {
        ctx.give_back(ino);
        return Err(Error::new(ErrorKind::Stale));
    };
    let attr = tx.attributes(&inode).await?;
    Ok(MetaAnswer::Entry(ctx.leased(attr, leased)))
}
