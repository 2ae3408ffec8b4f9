//! Sets an extended attribute.

use super::template::{
    check_groups, keep_layout, template_to_change, with_directory_template, with_file_template,
};
use super::xattr_space::Space;
use crate::ctx::Ctx;
use crate::keys;
use crate::layout;
use crate::layout::text::{self, LayoutField};
use crate::records::{Inode, Raw};
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::Bytes;
use strake_types::access::SETGID;
use strake_types::acl::Acl;
use strake_types::limits::XATTR_VALUE_BYTES_MAX;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing, Xattr};

/// Most attributes of one inode: with the longest names they just fit into one list.
pub(crate) const XATTRS_MAX: u32 = 255;
/// Most bytes of names and values of one inode.
const XATTRS_BYTES_MAX: u32 = 1 << 20;

/// A request to set an attribute.
pub(crate) struct SetXattr<'a>(pub &'a Xattr);

impl Mutation for SetXattr<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![Ino(self.0.ino)])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let op = self.0;
        let space = Space::of(&op.name)?;
        if op.value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooBig));
        }
        let inode = tx.inode(Ino(op.ino)).await?;
        space.check_write(tx.ctx, &inode)?;
        let changed = match space {
            Space::AclAccess => with_access(tx.ctx, &inode, op)?,
            Space::AclDefault => with_default(&inode, op)?,
            Space::Layout(field) => with_layout(tx.ctx, &inode, field, &op.value)?,
            Space::User | Space::Trusted | Space::Security => store(tx, &inode, op).await?,
        };
        let ctime = tx.now.into();
        tx.put_inode(Inode { ctime, ..changed }).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }

    async fn finish(&self, ctx: &Ctx, _answer: &MetaAnswer) -> Result<()> {
        match Space::of(&self.0.name)? {
            Space::Layout(_) => keep_layout(ctx, Ino(self.0.ino)).await,
            _ => Ok(()),
        }
    }

    fn takes_room(&self) -> bool {
        true
    }
}

fn check_presence(there: bool, op: &Xattr) -> Result<()> {
    match there {
        true if op.must_create => Err(Error::new(ErrorKind::Exists)),
        false if op.must_replace => Err(Error::new(ErrorKind::NoAttribute)),
        _ => Ok(()),
    }
}

/// Mode and list go together: a list that says no more than a mode becomes the mode.
fn with_access(ctx: &Ctx, inode: &Inode, op: &Xattr) -> Result<Inode> {
    check_presence(!inode.acl_access.is_empty(), op)?;
    let mut changed = inode.clone();
    let Some(acl) = Acl::decode(&op.value)? else {
        changed.acl_access = Bytes::new();
        return Ok(changed);
    };
    changed.mode = inode.mode & 0o7000 | acl.mode();
    let keeps_setgid = match ctx.checks() {
        true => ctx.cred.uid == 0 || ctx.cred.in_group(inode.gid),
        false => !op.drop_setgid,
    };
    if !keeps_setgid {
        changed.mode &= !SETGID;
    }
    changed.acl_access = match acl.is_minimal() {
        true => Bytes::new(),
        false => acl.encode().into(),
    };
    Ok(changed)
}

fn with_default(inode: &Inode, op: &Xattr) -> Result<Inode> {
    check_presence(!inode.acl_default.is_empty(), op)?;
    let acl = Acl::decode(&op.value)?;
    if !inode.is_dir() && acl.is_some() {
        return Err(Error::new(ErrorKind::AccessDenied));
    }
    let acl_default = acl.map_or_else(Bytes::new, |acl| acl.encode().into());
    Ok(Inode { acl_default, ..inode.clone() })
}

/// A layout attribute with another value; an empty one removes it.
pub(crate) fn with_layout(
    ctx: &Ctx,
    inode: &Inode,
    field: LayoutField,
    value: &[u8],
) -> Result<Inode> {
    let mut template = template_to_change(inode)?;
    let map = &ctx.core.map;
    let in_force = || text::effective(inode, &ctx.settings, map).map(|layout| layout.copies());
    let copies = template.copies.map_or_else(in_force, Ok)?;
    text::set(&mut template, field, value, map, copies)?;
    check_groups(ctx, &template)?;
    match inode.is_dir() {
        true => {
            layout::check_inherited(inode, &template, &ctx.settings, map)?;
            Ok(with_directory_template(inode, &template))
        }
        false => with_file_template(inode, &template, ctx),
    }
}

async fn store(tx: &mut Tx<'_>, inode: &Inode, op: &Xattr) -> Result<Inode> {
    let key = keys::xattr(tx.ctx.volume.id, inode.id(), &op.name);
    let old = match inode.xattrs {
        0 => None,
        _ => tx.get::<Raw>(&key).await?,
    };
    check_presence(old.is_some(), op)?;
    let mut changed = inode.clone();
    let bytes = |value: &Bytes| (op.name.len() + value.len()) as u32;
    match &old {
        None => changed.xattrs += 1,
        Some(old) => changed.xattr_bytes -= changed.xattr_bytes.min(bytes(&old.bytes)),
    }
    changed.xattr_bytes += bytes(&op.value);
    if changed.xattrs > XATTRS_MAX || changed.xattr_bytes > XATTRS_BYTES_MAX {
        let detail = "the inode has no room for more extended attributes";
        return Err(Error::with(ErrorKind::NoSpace, detail));
    }
    tx.put(key, &Raw { bytes: op.value.clone() }).await?;
    Ok(changed)
}

#[cfg(test)]
mod tests;
