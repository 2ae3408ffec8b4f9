//! A name in a directory.

use crate::borrow::look_again;
use crate::ctx::Ctx;
use crate::records::Inode;
use crate::view::{Tx, as_directory};
use crate::visit::visit;
use std::sync::Arc;
use strake_types::access::EXECUTE;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result, name};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{MetaAnswer, Name, Nothing};

/// How often a name is looked at anew that was given to another inode meanwhile, before nobody may do that.
const TRIES_MAX: u32 = 8;

/// Answers with the attributes of what the name leads to; `.` and `..` work.
pub(crate) async fn lookup(ctx: &Ctx, op: &Name) -> Result<MetaAnswer> {
    name::check(&op.name)?;
    let found = look_again(ctx, Ino(op.parent), TRIES_MAX, || look(ctx, op)).await?;
    found.ok_or(Error::new(ErrorKind::NotFound))
}

/// `None`: what was read does not fit together.
async fn look(ctx: &Ctx, op: &Name) -> Result<Option<MetaAnswer>> {
    // Before the directory is read, as any lease.
    let dir_leased = ctx.lease(Ino(op.parent));
    let mut tx = Tx::reader(ctx);
    let Some(dir) = tx.find_inode(Ino(op.parent)).await? else {
        ctx.give_back(Ino(op.parent));
        return Err(Error::new(ErrorKind::NotFound));
    };
    let dir = match &op.name[..] {
        // A kernel that exports its mount asks so for whatever it has forgotten.
        b"." => dir,
        _ => as_directory(dir)?,
    };
    if dir.is_dir() {
        ctx.check(&dir, EXECUTE)?;
    }
    match find(tx, &dir, &op.name).await? {
        Found::Inode(attr) => {
            let attr = Attributes { name_leased: dir_leased, ..attr };
            Ok(Some(MetaAnswer::Entry(attr)))
        }
        Found::Nothing if dir_leased => Ok(Some(MetaAnswer::Missing(Nothing {}))),
        Found::Nothing => Err(Error::new(ErrorKind::NotFound)),
        Found::Change => Ok(None),
    }
}

/// What a name leads to.
#[allow(clippy::large_enum_variant, reason = "one lives per call, and a box would cost more")]
enum Found {
    Inode(Attributes),
    Nothing,
    /// Between the two reads the name was removed, or given to another inode: what was read does not
    /// fit together.
    Change,
}

async fn find(mut tx: Tx<'_>, dir: &Arc<Inode>, name: &[u8]) -> Result<Found> {
    let ctx = tx.ctx;
    let (ino, is_dir) = match name {
        b"." => (dir.id(), false),
        b".." => (Ino(dir.parent), true),
        _ => match tx.entry(dir.id(), name).await? {
            Some(entry) => (Ino(entry.ino), entry.kind == FileKind::Directory as u32),
            None => return Ok(Found::Nothing),
        },
    };
    // Who holds a snapshot and asks for another waits for others that do the same: a store gives so many and no more.
    drop(tx);
    // Somebody may have changed names in it, and its times, before he tells.
    let _visitors = if is_dir { Some(visit(ctx, vec![ino]).await?) } else { None };
    let leased = ctx.lease(ino);
    // Another view: this one may have begun before the lease, and may read the entry in a snapshot, and
    // the inode in a cache, later.
    let mut now = Tx::reader(ctx);
    let Some(inode) = now.find_inode(ino).await? else {
        ctx.give_back(ino);
        return Ok(Found::Change);
    };
    let attr = now.attributes(&inode).await?;
    drop(now);
    let still = match name {
        b"." | b".." => true,
        _ => {
            let entry = Tx::reader(ctx).entry(dir.id(), name).await?;
            inode.nlink > 0 && entry.is_some_and(|entry| entry.ino == ino.0)
        }
    };
    match still {
        true => Ok(Found::Inode(ctx.leased(attr, leased))),
        false => Ok(Found::Change),
    }
}

#[cfg(test)]
mod tests;
