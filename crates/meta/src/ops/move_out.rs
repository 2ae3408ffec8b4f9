//! Moves contents from the inode to chunks.

use super::open_file::check_writer;
use crate::contents;
use crate::ctx::Ctx;
use crate::locks::inodes::Held;
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::{Ino, Result};
use strake_wire::message::meta::MetaAnswer;

/// See [`MetaOp::MoveOut`](strake_wire::message::meta::MetaOp::MoveOut).
pub(crate) struct MoveOut {
    /// The file.
    pub ino: Ino,
}

impl Mutation for MoveOut {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn prepare(&self, ctx: &Ctx, _held: &Held) -> Result<()> {
        let inode = Tx::reader(ctx).inode(self.ino).await?;
        check_writer(ctx, &inode)?;
        contents::finish_cut(ctx, self.ino).await?;
        contents::move_out(ctx, self.ino).await
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let inode = tx.inode(self.ino).await?;
        Ok(MetaAnswer::Entry(tx.attributes(&inode).await?))
    }

    fn takes_room(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
