//! What operations on names have in common.

use crate::ctx::Ctx;
use crate::records::{Entry, Inode};
use crate::view::Tx;
use strake_types::access::{EXECUTE, WRITE};
use strake_types::{Error, ErrorKind, Ino, Result, name};

use crate::ctx::with_subject;

/// The inode that a name leads to now: what to lock besides the directory. The name is checked; the
/// directory may still turn out not to be one.
pub(crate) async fn peek(ctx: &Ctx, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
    name::check(name)?;
    Ok(Tx::reader(ctx).entry(dir, name).await?.map(|entry| Ino(entry.ino)))
}

/// An entry that must exist, in a directory that the caller may search.
pub(crate) async fn existing(tx: &mut Tx<'_>, dir: &Inode, name: &[u8]) -> Result<Entry> {
    tx.ctx.check(dir, EXECUTE)?;
    let entry = tx.entry(dir.id(), name).await?;
    entry.ok_or(Error::new(ErrorKind::NotFound))
}

/// Fails unless the caller may add entries to the directory.
pub(crate) fn check_add(ctx: &Ctx, dir: &Inode) -> Result<()> {
    ctx.check(dir, WRITE | EXECUTE)
}

/// Fails unless the caller may take the name of `child` out of the directory.
pub(crate) fn check_remove(ctx: &Ctx, dir: &Inode, child: &Inode) -> Result<()> {
    ctx.check(dir, WRITE | EXECUTE)?;
    match ctx.checks() {
        true => with_subject(dir, |subject| subject.check_sticky(&ctx.cred, child.uid)),
        false => Ok(()),
    }
}
