//! Makes what has been acknowledged durable.

use crate::ctx::Ctx;
use crate::view::Tx;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer, Nothing};

/// The store has one journal, so whatever is asked for, all of it goes to disk; those who ask at
/// the same time share one flush.
pub(crate) async fn sync(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    if !strake_base::is_broken("fsync-reaches-journal") {
        ctx.volume.sync().await?;
    }
    if op.ino != 0 {
        // It may have gone with the power after its client was told that it is there. What has no name and is open is there.
        Tx::reader(ctx).inode(Ino(op.ino)).await?;
    }
    Ok(MetaAnswer::Done(Nothing {}))
}

#[cfg(test)]
mod tests;
