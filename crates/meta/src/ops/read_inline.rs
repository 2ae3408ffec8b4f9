//! The contents of an inline file, without opening it.

use super::open_file::{check_reader, view};
use crate::borrow::look_again;
use crate::ctx::Ctx;
use crate::view::Tx;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer, OpenMode, Opened};

/// How often a file is looked at anew that was changed meanwhile, before nobody may change it.
const TRIES_MAX: u32 = 4;

/// Answers as an open for reading would, but registers nothing.
pub(crate) async fn read_inline(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let ino = Ino(op.ino);
    let opened = look_again(ctx, ino, TRIES_MAX, || look(ctx, ino)).await?;
    opened.map(MetaAnswer::Opened).ok_or(Error::new(ErrorKind::Conflict))
}

/// `None`: it was changed meanwhile. The inode may have come from a cache, and its contents from a snapshot of later: of a
/// file that was cut or moved out in between they would be zeros.
async fn look(ctx: &Ctx, ino: Ino) -> Result<Option<Opened>> {
    // Before it is read, as any lease.
    let leased = ctx.lease(ino);
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(ino).await?;
    if !inode.is_file() {
        return Err(Error::with(ErrorKind::Invalid, "only regular files have contents"));
    }
    check_reader(ctx, &inode)?;
    let read = OpenMode { read: true, ..OpenMode::default() };
    let mut opened = view(&mut tx, &inode, &read).await?;
    // Whoever holds a snapshot asks for no other one.
    drop(tx);
    if opened.inline.is_some() && Tx::reader(ctx).inode(ino).await?.version != inode.version {
        return Ok(None);
    }
    opened.attr = ctx.leased(opened.attr, leased);
    Ok(Some(opened))
}

#[cfg(test)]
mod tests;
