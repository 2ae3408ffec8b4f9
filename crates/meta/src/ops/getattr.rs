//! Attributes of an inode.

use crate::ctx::Ctx;
use crate::sharing::{settle_to_read, show};
use crate::view::Tx;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Look, MetaAnswer};

/// Answers with what `stat` shows. Nobody needs a permission on the inode itself.
pub(crate) async fn getattr(ctx: &Ctx, op: &Look) -> Result<MetaAnswer> {
    let ino = Ino(op.ino);
    if op.to_read {
        settle_to_read(ctx, ino, op.start..op.end).await?;
    } else if op.told {
        show(ctx, ino).await?;
    }
    let leased = ctx.lease(ino);
    let mut tx = Tx::reader(ctx);
    let Some(inode) = tx.find_inode(ino).await? else {
        ctx.give_back(ino);
        return Err(Error::new(ErrorKind::Stale));
    };
    let attr = tx.attributes(&inode).await?;
    Ok(MetaAnswer::Entry(ctx.leased(attr, leased)))
}
