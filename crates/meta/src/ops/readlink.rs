//! Target of a symbolic link.

use crate::ctx::Ctx;
use crate::keys;
use crate::records::Raw;
use crate::view::Tx;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer};

/// Answers with the target. Everybody may read it.
pub(crate) async fn readlink(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(Ino(op.ino)).await?;
    if inode.file_kind() != FileKind::Symlink {
        return Err(Error::new(ErrorKind::Invalid));
    }
    let target = tx.get::<Raw>(&keys::contents(ctx.volume.id, inode.id())).await?;
    // Between the two reads the link may have been removed.
    let target = target.ok_or(Error::new(ErrorKind::Stale))?;
    Ok(MetaAnswer::Bytes(target.bytes))
}
