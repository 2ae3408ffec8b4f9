//! Removes an extended attribute.

use super::setxattr::with_layout;
use super::xattr_space::Space;
use crate::ctx::Ctx;
use crate::keys;
use crate::records::{Inode, Raw};
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::Bytes;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing, Xattr};

/// A request to remove an attribute.
pub(crate) struct RemoveXattr<'a>(pub &'a Xattr);

impl Mutation for RemoveXattr<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![Ino(self.0.ino)])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let op = self.0;
        let space = Space::of(&op.name)?;
        let inode = tx.inode(Ino(op.ino)).await?;
        space.check_write(tx.ctx, &inode)?;
        let changed = match space {
            // The mode stays as it is, and a list that is not there is removed without complaint.
            Space::AclAccess => Inode { acl_access: Bytes::new(), ..(*inode).clone() },
            Space::AclDefault => Inode { acl_default: Bytes::new(), ..(*inode).clone() },
            Space::Layout(field) if inode.is_dir() => with_layout(tx.ctx, &inode, field, b"")?,
            Space::Layout(_) => return Err(Error::new(ErrorKind::NoAttribute)),
            Space::User | Space::Trusted | Space::Security => remove(tx, &inode, op).await?,
        };
        let ctime = tx.now.into();
        tx.put_inode(Inode { ctime, ..changed }).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

async fn remove(tx: &mut Tx<'_>, inode: &Inode, op: &Xattr) -> Result<Inode> {
    let mut changed = inode.clone();
    match remove_stored(tx, &mut changed, &op.name).await? {
        true => Ok(changed),
        false => Err(Error::new(ErrorKind::NoAttribute)),
    }
}

/// Removes an attribute that has a key of its own. False if it is not there.
pub(crate) async fn remove_stored(tx: &mut Tx<'_>, inode: &mut Inode, name: &[u8]) -> Result<bool> {
    let key = keys::xattr(tx.ctx.volume.id, inode.id(), name);
    let Some(old) = tx.get::<Raw>(&key).await? else { return Ok(false) };
    tx.delete(key).await?;
    let bytes = (name.len() + old.bytes.len()) as u32;
    inode.xattrs = inode.xattrs.saturating_sub(1);
    inode.xattr_bytes = inode.xattr_bytes.saturating_sub(bytes);
    Ok(true)
}
