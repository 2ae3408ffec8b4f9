//! Opens a regular file.

use super::open_file::{open_existing, opened};
use crate::contents;
use crate::ctx::Ctx;
use crate::locks::inodes::Held;
use crate::sharing::settle_to_cut;
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::access::WRITE;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Open};

impl Mutation for Open {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        if self.mode.truncate {
            settle_to_cut(ctx, Ino(self.ino), |inode| ctx.check(inode, WRITE)).await?;
        }
        Ok(vec![Ino(self.ino)])
    }

    /// Who only opens it tries again while a target is away: he must not keep the lock from others meanwhile.
    async fn prepare(&self, ctx: &Ctx, _held: &Held) -> Result<()> {
        match self.mode.truncate {
            true => contents::finish_cut(ctx, Ino(self.ino)).await,
            false => contents::finish_cut_at_once(ctx, Ino(self.ino)).await,
        }
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let inode = tx.inode(Ino(self.ino)).await?;
        let opened = match tx.ctx.has_opened() && !self.mode.truncate {
            // It is sent again, and was allowed.
            true => opened(tx, &inode, &self.mode).await?,
            false => open_existing(tx, &inode, &self.mode).await?,
        };
        Ok(MetaAnswer::Opened(opened))
    }

    /// Also where it does not cut the file itself: nothing was prepared for an answer that is given again, and what is to be cut
    /// by then is cut before its client writes there.
    async fn finish(&self, ctx: &Ctx, _answer: &MetaAnswer) -> Result<()> {
        match self.mode.truncate {
            true => contents::finish_own_cut(ctx, Ino(self.ino)).await,
            false => contents::finish_cut_at_once(ctx, Ino(self.ino)).await,
        }
    }
}

#[cfg(test)]
mod tests;
