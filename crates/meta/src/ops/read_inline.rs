//! The contents of an inline file, without opening it.

use super::open_file::{check_reader, view};
use crate::ctx::Ctx;
use crate::view::Tx;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer, OpenMode};

/// Answers as an open for reading would, but registers nothing.
pub(crate) async fn read_inline(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let leased = ctx.lease(Ino(op.ino));
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(Ino(op.ino)).await?;
    if !inode.is_file() {
        return Err(Error::with(ErrorKind::Invalid, "only regular files have contents"));
    }
    check_reader(ctx, &inode)?;
    let read = OpenMode { read: true, ..OpenMode::default() };
    let mut opened = view(&mut tx, &inode, &read).await?;
    opened.attr = ctx.leased(opened.attr, leased);
    Ok(MetaAnswer::Opened(opened))
}
