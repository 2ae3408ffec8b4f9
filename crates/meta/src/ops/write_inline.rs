//! Writes into the contents inside the inode.

use super::open_file::check_writer;
use super::privileges::drop_privileges;
use super::publish::Written;
use crate::contents;
use crate::ctx::Ctx;
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::{Bytes, BytesMut};
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, WriteInline};

impl Mutation for WriteInline {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![Ino(self.ino)])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let inode = tx.inode(Ino(self.ino)).await?;
        check_writer(tx.ctx, &inode)?;
        let end = self.offset.saturating_add(self.data.len() as u64);
        if !inode.inline || end > tx.ctx.settings.inline_bytes_max {
            return Err(Error::with(ErrorKind::FileTooBig, "the contents do not fit the inode"));
        }
        if self.close {
            tx.closes(inode.id(), self.incarnation);
        }
        if self.data.is_empty() && self.mtime.is_none() && !self.drop_setid {
            return Ok(MetaAnswer::Entry(tx.attributes(&inode).await?));
        }
        let mut changed = (*inode).clone();
        if !self.data.is_empty() {
            let before = match self.offset == 0 && end >= inode.length {
                true => Bytes::new(),
                false => contents::inline_bytes(tx, &inode).await?,
            };
            let after = overlay(before, self.offset as usize, &self.data);
            contents::set_inline(tx, &mut changed, after).await?;
        }
        let Self { mtime, ctime, atime, .. } = *self;
        Written { mtime, ctime, atime }.mark(tx.now, &mut changed);
        if self.drop_setid {
            drop_privileges(tx, &mut changed).await?;
        }
        let changed = tx.put_inode(changed).await?;
        Ok(MetaAnswer::Entry(tx.attributes(&changed).await?))
    }

    fn wants_sync(&self) -> bool {
        self.sync
    }

    fn takes_room(&self) -> bool {
        true
    }
}

/// `before` with `data` at `offset`; a gap between them is zeros.
fn overlay(before: Bytes, offset: usize, data: &Bytes) -> Bytes {
    if before.is_empty() && offset == 0 {
        return data.clone();
    }
    let end = offset + data.len();
    let mut after = BytesMut::zeroed(before.len().max(end));
    after[..before.len()].copy_from_slice(&before);
    after[offset..end].copy_from_slice(data);
    after.freeze()
}

#[cfg(test)]
mod tests;
