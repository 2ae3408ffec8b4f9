//! Names of the extended attributes.

use super::setxattr::XATTRS_MAX;
use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::stored::store_error;
use crate::view::Tx;
use bytes::{BufMut, BytesMut};
use std::ops::Bound;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{Inode, MetaAnswer};

/// Answers with the names, each ended by a NUL. `trusted.` is shown to root only; the virtual
/// attributes of the layout are not listed, so that copying tools do not carry them along.
pub(crate) async fn listxattr(ctx: &Ctx, op: &Inode) -> Result<MetaAnswer> {
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(Ino(op.ino)).await?;
    let mut names = BytesMut::new();
    let mut add = |name: &[u8]| {
        names.put_slice(name);
        names.put_u8(0);
    };
    if !inode.acl_access.is_empty() {
        add(b"system.posix_acl_access");
    }
    if !inode.acl_default.is_empty() {
        add(b"system.posix_acl_default");
    }
    if inode.xattrs > 0 {
        let prefix = keys::prefix_of(Kind::Xattr, ctx.volume.id, inode.ino);
        let end = keys::end_of(&prefix);
        let end = end.as_ref().map(Vec::as_slice);
        let limit = XATTRS_MAX as usize * 2;
        let found = tx.kv().await?.scan(Bound::Included(&prefix), end, limit).await;
        for (key, _) in found.map_err(store_error)? {
            let name = keys::name_after_id(&key);
            if ctx.cred.uid == 0 || !name.starts_with(b"trusted.") {
                add(name);
            }
        }
    }
    Ok(MetaAnswer::Bytes(names.freeze()))
}
