//! A further name for a file, or the first one for a file made without.

use super::names::{check_add, peek};
use crate::ctx::Ctx;
use crate::keys;
use crate::merge;
use crate::merge_queue::Change;
use crate::records::{Inode, Mark};
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::Bytes;
use strake_types::access::EXECUTE;
use strake_types::limits::LINKS_MAX;
use strake_types::{Error, ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{Link, MetaAnswer, Named};

impl Mutation for Link {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        peek(ctx, Ino(self.to.parent), &self.to.name).await?;
        Ok(vec![Ino(self.ino), Ino(self.to.parent)])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let dir = tx.directory(Ino(self.to.parent)).await?;
        tx.ctx.check(&dir, EXECUTE)?;
        let taken =
            name::is_dot(&self.to.name) || tx.entry(dir.id(), &self.to.name).await?.is_some();
        if taken {
            return Err(Error::new(ErrorKind::Exists));
        }
        let found = tx.find_inode(Ino(self.ino)).await?;
        let inode = found.ok_or(Error::new(ErrorKind::NotFound))?;
        check_add(tx.ctx, &dir)?;
        check(&inode)?;
        let mut inode = (*inode).clone();
        match inode.nlink {
            0 => name_it(tx, &mut inode, &dir, self).await?,
            _ => add_name(tx, &mut inode, &dir, self).await?,
        }
        inode.nlink += 1;
        inode.ctime = tx.now.into();
        tx.add_entry(&dir, &self.to.name, inode.id(), inode.kind).await?;
        let inode = tx.put_inode(inode).await?;
        let (attr, parent) = (tx.attributes(&inode).await?, tx.attributes(&dir).await?);
        Ok(MetaAnswer::Named(Named { attr, parent: Some(parent) }))
    }

    async fn merged(&self, ctx: &Ctx) -> Option<Result<MetaAnswer>> {
        merge::with_others(ctx, self.to.parent, || Change::Link(self.clone())).await
    }

    fn takes_room(&self) -> bool {
        true
    }
}

fn check(inode: &Inode) -> Result<()> {
    let refused = match () {
        () if inode.is_dir() => ErrorKind::NotPermitted,
        () if inode.nlink == 0 && !inode.nameless => ErrorKind::NotFound,
        () if inode.nlink >= LINKS_MAX => ErrorKind::TooManyLinks,
        () => return Ok(()),
    };
    Err(Error::new(refused))
}

/// A file made without a name gets its first.
async fn name_it(tx: &mut Tx<'_>, inode: &mut Inode, dir: &Inode, op: &Link) -> Result<()> {
    inode.nameless = false;
    inode.parent = dir.ino;
    inode.name = Bytes::copy_from_slice(&op.to.name);
    match inode.cut_from {
        None => tx.dequeue(inode).await,
        Some(_) => Ok(()),
    }
}

/// From the second name on each has a key of its own under the inode.
async fn add_name(tx: &mut Tx<'_>, inode: &mut Inode, dir: &Inode, op: &Link) -> Result<()> {
    let volume = tx.ctx.home(inode.id());
    if !inode.linked {
        inode.linked = true;
        let first = keys::link(volume, inode.id(), Ino(inode.parent), &inode.name);
        tx.put(first, &Mark {}).await?;
    }
    tx.put(keys::link(volume, inode.id(), dir.id(), &op.to.name), &Mark {}).await
}

#[cfg(test)]
mod tests;
