//! Writes into the contents inside the inode.

use super::open_file::check_writer;
use super::privileges::drop_privileges;
use super::publish::Written;
use super::setattr::{self, change_rights};
use crate::contents;
use crate::ctx::Ctx;
use crate::records::{Inode, later};
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::{Bytes, BytesMut};
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{MetaAnswer, SetAttr, WriteInline};

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
        if let Some(change) = &self.change {
            check_change(tx.ctx, &inode, change)?;
        }
        if self.close {
            tx.closes(inode.id(), self.incarnation);
        }
        let is_written = !self.data.is_empty() || self.mtime.is_some() || self.drop_setid;
        if !is_written && self.change.is_none() {
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
        if is_written {
            let Self { mtime, ctime, atime, .. } = *self;
            Written { mtime, ctime, atime }.mark(tx.now, &mut changed);
        }
        if self.drop_setid {
            drop_privileges(tx, &mut changed).await?;
        }
        if let Some(change) = &self.change {
            change_rights(tx, &mut changed, change).await?;
            changed.ctime = later(changed.ctime, tx.now.into());
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

/// Whether the caller may change mode and owner so; nothing else goes with a write.
fn check_change(ctx: &Ctx, inode: &Inode, change: &AttrChange) -> Result<()> {
    let more = AttrChange { mode: None, uid: None, gid: None, ..change.clone() };
    if more != AttrChange::default() {
        return Err(Error::with(ErrorKind::Invalid, "more than mode and owner with a write"));
    }
    let change = change.clone();
    setattr::check(ctx, inode, &SetAttr { ino: inode.ino, change, writable_handle: true })
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
