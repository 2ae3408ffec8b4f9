//! An extended attribute.

use super::xattr_space::Space;
use crate::ctx::Ctx;
use crate::keys;
use crate::layout::text;
use crate::records::{Inode, Raw};
use crate::view::Tx;
use bytes::Bytes;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Xattr};

/// Answers with the value. An ACL that says no more than the mode counts as absent.
pub(crate) async fn getxattr(ctx: &Ctx, op: &Xattr) -> Result<MetaAnswer> {
    let space = Space::of(&op.name)?;
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(Ino(op.ino)).await?;
    space.check_read(ctx, &inode)?;
    let value = match space {
        Space::AclAccess => present(&inode.acl_access),
        Space::AclDefault => present(&inode.acl_default),
        Space::Layout(field) => {
            let layout = text::effective(&inode, &ctx.settings, &ctx.core.map)?;
            Some(text::show(&layout, field, &ctx.core.map.current())?.into())
        }
        Space::User | Space::Trusted | Space::Security => stored(&mut tx, &inode, op).await?,
    };
    value.map(MetaAnswer::Bytes).ok_or(Error::new(ErrorKind::NoAttribute))
}

fn present(acl: &Bytes) -> Option<Bytes> {
    (!acl.is_empty()).then(|| acl.clone())
}

async fn stored(tx: &mut Tx<'_>, inode: &Inode, op: &Xattr) -> Result<Option<Bytes>> {
    if inode.xattrs == 0 {
        return Ok(None);
    }
    let key = keys::xattr(tx.ctx.volume.id, inode.id(), &op.name);
    Ok(tx.get::<Raw>(&key).await?.map(|raw| raw.bytes))
}
