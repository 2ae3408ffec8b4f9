//! Attributes of an inode.

use crate::borrow::lock_here;
use crate::ctx::Ctx;
use crate::leases::Visitors;
use crate::locks::inodes::Held;
use crate::sharing::{settle_to_read, show};
use crate::view::Tx;
use crate::visit::visit;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Look, MetaAnswer};

/// Answers with what `stat` shows. Nobody needs a permission on the inode itself.
pub(crate) async fn getattr(ctx: &Ctx, op: &Look) -> Result<MetaAnswer> {
    let ino = Ino(op.ino);
    // Until it is looked up where the file lies.
    let _held = if op.to_write { Some(wake(ctx, ino).await?) } else { None };
    // Not with the lock: telling takes it.
    if op.to_read && !op.to_write {
        settle_to_read(ctx, ino, op.start..op.end).await?;
    } else if op.told && !op.to_write {
        show(ctx, ino).await?;
    }
    let _visitors = visit_directory(ctx, ino).await?;
    let leased = ctx.lease(ino);
    let mut tx = Tx::reader(ctx);
    let Some(inode) = tx.find_inode(ino).await? else {
        ctx.give_back(ino);
        return Err(Error::new(ErrorKind::Stale));
    };
    let attr = tx.attributes(&inode).await?;
    Ok(MetaAnswer::Entry(ctx.leased(attr, leased)))
}

/// Somebody may have changed names in a directory, and its times, before he tells. Of a file nobody is waited for, nor its lock:
/// somebody else may have that for long.
async fn visit_directory(ctx: &Ctx, ino: Ino) -> Result<Option<Visitors>> {
    let found = Tx::reader(ctx).find_inode(ino).await?;
    match found.is_some_and(|inode| inode.is_dir()) {
        true => visit(ctx, vec![ino]).await.map(Some),
        false => Ok(None),
    }
}

/// The caller rests no more ([`crate::recopy`]): a file that is being copied stays where it is, and one that has just been
/// switched over lies where the answer says.
async fn wake(ctx: &Ctx, ino: Ino) -> Result<Held> {
    let session = ctx.need_session()?;
    let held = lock_here(ctx, &[ino]).await?;
    // It may have waited for longer than its session lasted.
    session.check()?;
    if !ctx.volume.sessions.wakes(session, ino, ctx.incarnation) {
        let detail = format!("inode {ino} is not open in this session");
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    ctx.volume.recopies.touch(ino);
    Ok(held)
}
