//! Removes a name: of a file, or of an empty directory.

use super::names::{check_remove, existing, peek};
use super::orphan::{drop_name, erase};
use crate::ctx::Ctx;
use crate::merge;
use crate::merge_queue::Change;
use crate::records::Inode;
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::{Error, ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{MetaAnswer, Named, Unlink};

impl Mutation for Unlink {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        if name::is_dot(&self.at.name) {
            return Err(Error::new(match (self.directory, self.at.name.len()) {
                (true, 1) => ErrorKind::Invalid,
                (true, _) => ErrorKind::NotEmpty,
                (false, _) => ErrorKind::IsDirectory,
            }));
        }
        let dir = Ino(self.at.parent);
        let child = peek(ctx, dir, &self.at.name).await?;
        Ok([dir].into_iter().chain(child).collect())
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let dir = tx.directory(Ino(self.at.parent)).await?;
        let entry = existing(tx, &dir, &self.at.name).await?;
        tx.need_lock(Ino(entry.ino))?;
        tx.ctx.check_leads(|behind| behind.ino, entry.ino)?;
        let child = tx.inode(Ino(entry.ino)).await?;
        check_remove(tx.ctx, &dir, &child)?;
        let after = match (child.is_dir(), self.directory) {
            (true, false) => return Err(Error::new(ErrorKind::IsDirectory)),
            (false, true) => return Err(Error::new(ErrorKind::NotDirectory)),
            (true, true) => remove_directory(tx, &child).await?,
            (false, false) => drop_name(tx, &child, dir.id(), &self.at.name, 0).await?,
        };
        tx.remove_entry(&dir, &self.at.name, entry).await?;
        let (attr, parent) = (tx.attributes(&after).await?, tx.attributes(&dir).await?);
        Ok(MetaAnswer::Named(Named { attr, parent: Some(parent) }))
    }

    async fn merged(&self, ctx: &Ctx) -> Option<Result<MetaAnswer>> {
        merge::with_others(ctx, self.at.parent, || Change::Unlink(self.clone())).await
    }
}

/// Removes the records of an empty directory.
pub(crate) async fn remove_directory(tx: &mut Tx<'_>, dir: &Inode) -> Result<Inode> {
    if tx.shard_total(dir).await?.entries > 0 {
        return Err(Error::new(ErrorKind::NotEmpty));
    }
    tx.delete_shards(dir).await?;
    erase(tx, dir).await?;
    let now = tx.now.into();
    Ok(Inode { nlink: 0, ctime: now, version: dir.version + 1, ..dir.clone() })
}

#[cfg(test)]
mod tests;
