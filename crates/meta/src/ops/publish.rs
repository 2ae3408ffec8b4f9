//! What a client has written to chunks: length, times, bytes occupied.

use super::open_file::check_writer;
use super::privileges::drop_privileges;
use crate::contents;
use crate::ctx::Ctx;
use crate::lengths::check_length;
use crate::locks::inodes::Held;
use crate::records::{Inode, later};
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::{Error, ErrorKind, Ino, Result, Timestamp};
use strake_wire::message::common::Time;
use strake_wire::message::meta::{MetaAnswer, Publish};

impl Mutation for Publish {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![Ino(self.ino)])
    }

    async fn prepare(&self, ctx: &Ctx, _held: &Held) -> Result<()> {
        contents::finish_cut(ctx, Ino(self.ino)).await
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let inode = tx.inode(Ino(self.ino)).await?;
        check_writer(tx.ctx, &inode)?;
        let grows = self.length_min > inode.length;
        if grows {
            check_length(&inode, self.length_min)?;
        }
        // Or nobody would speak of a length, or of bytes that are occupied.
        let in_chunks = self.length_min > 0 || self.occupied_delta != 0;
        if in_chunks && contents::has_inline(tx, &inode).await? {
            let detail = "the contents lie inside the inode: move them out first";
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
        let mut changed = (*inode).clone();
        if self.drop_setid {
            drop_privileges(tx, &mut changed).await?;
        }
        if !grows && self.mtime.is_none() && self.occupied_delta == 0 {
            if changed == *inode {
                return Ok(MetaAnswer::Entry(tx.attributes(&inode).await?));
            }
            // Before anything is written: only that is changed.
            changed.ctime = later(changed.ctime, tx.now.into());
            let changed = tx.put_inode(changed).await?;
            return Ok(MetaAnswer::Entry(tx.attributes(&changed).await?));
        }
        changed.length = inode.length.max(self.length_min);
        // That it had moved out, when it was just made, may have gone with the power; whoever has written to its chunks goes on.
        changed.inline &= !in_chunks;
        if !changed.inline {
            let occupied = changed.occupied.saturating_add_signed(self.occupied_delta);
            let occupied = occupied.min(contents::occupied_max(changed.length));
            // What was written into holes clients do not count, also where they have given back more. A program that sees no
            // block at all takes all for zeros.
            let least = u64::from(self.mtime.is_some() && changed.length > 0);
            contents::occupy(tx, &mut changed, occupied.max(least));
            contents::note_sparse(tx.ctx, &changed);
        }
        let Self { mtime, ctime, atime, .. } = *self;
        Written { mtime, ctime, atime }.mark(tx.now, &mut changed);
        let changed = tx.put_inode(changed).await?;
        Ok(MetaAnswer::Entry(tx.attributes(&changed).await?))
    }

    fn wants_sync(&self) -> bool {
        self.sync
    }

    fn takes_room(&self) -> bool {
        self.occupied_delta > 0
    }
}

/// What a write does to an inode besides its contents: the times of [`Publish`].
pub(crate) struct Written {
    pub mtime: Option<Time>,
    pub ctime: Option<Time>,
    pub atime: Option<Time>,
}

impl Written {
    /// Notes it.
    pub(crate) fn mark(self, now: Timestamp, inode: &mut Inode) {
        let written = self.mtime.unwrap_or(now.into());
        inode.mtime = written;
        // Not the present: a write that is told of later did not change the inode later, and a program
        // that has looked in between must not see it change again.
        inode.ctime = later(inode.ctime, self.ctime.unwrap_or(written));
        inode.atime = self.atime.unwrap_or(inode.atime);
    }
}

#[cfg(test)]
mod tests;
