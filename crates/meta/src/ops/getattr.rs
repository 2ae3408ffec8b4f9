//! Attributes of an inode.

use crate::ctx::Ctx;
use crate::view::Tx;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer};

/// Answers with what `stat` shows. Nobody needs a permission on the inode itself.
pub(crate) async fn getattr(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(Ino(op.ino)).await?;
    Ok(MetaAnswer::Entry(tx.attributes(&inode).await?))
}
