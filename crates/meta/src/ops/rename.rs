//! Moves a name, over another if there is one, or exchanges two.

use super::names::{check_add, check_remove, existing, peek};
use super::orphan::{REPLACED_STAYS_MS, drop_name};
use super::unlink::remove_directory;
use crate::borrow::Elsewhere;
use crate::ctx::Ctx;
use crate::keys;
use crate::merge;
use crate::merge_queue::Change;
use crate::records::{Entry, Inode, Mark, Topology};
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::access::{EXECUTE, WRITE};
use strake_types::{Error, ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{MetaAnswer, Rename, Renamed};

/// Stands for the shape of the tree among the locks: whoever moves a directory to another parent, or replaces one,
/// holds it, so the walk to the root sees no other move half done.
pub(crate) const TOPOLOGY: Ino = Ino(0);
/// Deepest directory that the walk to the root follows.
const DEPTH_MAX: usize = 1 << 20;

impl Mutation for Rename {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        if self.exchange && self.no_replace {
            return Err(Error::new(ErrorKind::Invalid));
        }
        if name::is_dot(&self.from.name) || name::is_dot(&self.to.name) {
            return Err(Error::new(ErrorKind::Invalid));
        }
        let (from, to) = (Ino(self.from.parent), Ino(self.to.parent));
        let source = peek(ctx, from, &self.from.name).await?;
        // Without a source nothing else counts, not even whether the new name is too long.
        let target = match source {
            Some(_) => peek(ctx, to, &self.to.name).await?,
            None => None,
        };
        let mut scope = vec![from, to];
        scope.extend(source);
        scope.extend(target);
        if from != to {
            let mut tx = Tx::reader(ctx);
            for inode in source.into_iter().chain(target) {
                if tx.find_inode(inode).await?.is_some_and(|inode| inode.is_dir()) {
                    scope.push(TOPOLOGY);
                }
            }
        }
        Ok(scope)
    }

    fn elsewhere(&self, _ctx: &Ctx) -> Elsewhere {
        Elsewhere { names: vec![self.to.clone()], ..Elsewhere::default() }
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let plan = Plan::read(tx, self).await?;
        plan.check_shape(tx).await?;
        let Some(other) = &plan.other else {
            plan.check_permissions(tx.ctx)?;
            let moved = plan.move_name(tx).await?;
            return plan.reply(tx, &moved, None).await;
        };
        if other.ino == plan.moved.ino {
            return plan.reply(tx, &plan.moved, Some(&plan.moved)).await;
        }
        plan.check_permissions(tx.ctx)?;
        let (moved, other) = match self.exchange {
            true => plan.exchange(tx, other).await?,
            false => plan.replace(tx, other).await?,
        };
        plan.reply(tx, &moved, Some(&other)).await
    }

    async fn merged(&self, ctx: &Ctx) -> Option<Result<MetaAnswer>> {
        merge::with_others(ctx, self.from.parent, || Change::Rename(self.clone())).await
    }
}

/// What a rename is about.
struct Plan<'a> {
    op: &'a Rename,
    from: Arc<Inode>,
    to: Arc<Inode>,
    source: Entry,
    target: Option<Entry>,
    moved: Arc<Inode>,
    other: Option<Arc<Inode>>,
}

impl<'a> Plan<'a> {
    async fn read(tx: &mut Tx<'_>, op: &'a Rename) -> Result<Self> {
        let from = tx.directory(Ino(op.from.parent)).await?;
        let to = tx.directory(Ino(op.to.parent)).await?;
        let source = existing(tx, &from, &op.from.name).await?;
        tx.ctx.check(&to, EXECUTE)?;
        let target = tx.entry(to.id(), &op.to.name).await?;
        tx.ctx.check_leads(|behind| behind.ino, source.ino)?;
        tx.ctx.check_leads(|behind| behind.other, target.map_or(0, |entry| entry.ino))?;
        tx.need_lock(Ino(source.ino))?;
        let moved = tx.inode(Ino(source.ino)).await?;
        let other = match target {
            None => None,
            Some(target) => {
                tx.need_lock(Ino(target.ino))?;
                Some(tx.inode(Ino(target.ino)).await?)
            }
        };
        match &other {
            Some(_) if op.no_replace => Err(Error::new(ErrorKind::Exists)),
            None if op.exchange => Err(Error::new(ErrorKind::NotFound)),
            _ => Ok(Plan { op, from, to, source, target, moved, other }),
        }
    }

    /// True if an inode moves to another parent and is a directory.
    fn bends_tree(&self, inode: &Inode) -> bool {
        inode.is_dir() && self.from.ino != self.to.ino
    }

    /// No directory comes to lie within itself, and none is replaced by what lies within it.
    async fn check_shape(&self, tx: &mut Tx<'_>) -> Result<()> {
        if self.bends_tree(&self.moved) {
            tx.need_lock(TOPOLOGY)?;
            if lies_within(tx, &self.to, self.moved.id()).await? {
                return Err(Error::new(ErrorKind::Invalid));
            }
        }
        match &self.other {
            Some(other) if self.bends_tree(other) => {
                tx.need_lock(TOPOLOGY)?;
                match (lies_within(tx, &self.from, other.id()).await?, self.op.exchange) {
                    (true, true) => Err(Error::new(ErrorKind::Invalid)),
                    // Before anything else about it: not what the source is counts, nor what is allowed.
                    (true, false) => Err(Error::new(ErrorKind::NotEmpty)),
                    (false, _) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn check_permissions(&self, ctx: &Ctx) -> Result<()> {
        check_remove(ctx, &self.from, &self.moved)?;
        match &self.other {
            None => check_add(ctx, &self.to)?,
            Some(other) => check_remove(ctx, &self.to, other)?,
        }
        if let Some(other) = self.other.as_ref().filter(|_| !self.op.exchange) {
            match (self.moved.is_dir(), other.is_dir()) {
                (true, false) => return Err(Error::new(ErrorKind::NotDirectory)),
                (false, true) => return Err(Error::new(ErrorKind::IsDirectory)),
                _ => {}
            }
        }
        // A directory that gets another parent is written itself: its `..` changes.
        if self.bends_tree(&self.moved) {
            ctx.check(&self.moved, WRITE)?;
        }
        match &self.other {
            Some(other) if self.op.exchange && self.bends_tree(other) => ctx.check(other, WRITE),
            _ => Ok(()),
        }
    }

    /// To a name that is free.
    async fn move_name(&self, tx: &mut Tx<'_>) -> Result<Arc<Inode>> {
        let (from, to) = (&self.op.from.name, &self.op.to.name);
        if self.from.ino == self.to.ino {
            tx.rename_entry(&self.from, from, to, self.source).await?;
        } else {
            tx.remove_entry(&self.from, from, self.source).await?;
            tx.add_entry(&self.to, to, self.moved.id(), self.moved.kind).await?;
        }
        self.settle(tx, &self.moved, (&self.from, from), (&self.to, to)).await
    }

    /// Over a name that is taken.
    async fn replace(&self, tx: &mut Tx<'_>, other: &Inode) -> Result<(Arc<Inode>, Arc<Inode>)> {
        let after = match other.is_dir() {
            true => remove_directory(tx, other).await?,
            false => {
                drop_name(tx, other, self.to.id(), &self.op.to.name, REPLACED_STAYS_MS).await?
            }
        };
        let (from, to) = (&self.op.from.name, &self.op.to.name);
        if let Some(target) = self.target {
            tx.change_entry(&self.to, to, target, self.moved.id(), self.moved.kind).await?;
        }
        tx.remove_entry(&self.from, from, self.source).await?;
        let moved = self.settle(tx, &self.moved, (&self.from, from), (&self.to, to)).await?;
        Ok((moved, Arc::new(after)))
    }

    async fn exchange(&self, tx: &mut Tx<'_>, other: &Inode) -> Result<(Arc<Inode>, Arc<Inode>)> {
        let (from, to) = (&self.op.from.name, &self.op.to.name);
        tx.change_entry(&self.from, from, self.source, other.id(), other.kind).await?;
        if let Some(target) = self.target {
            tx.change_entry(&self.to, to, target, self.moved.id(), self.moved.kind).await?;
        }
        let moved = self.settle(tx, &self.moved, (&self.from, from), (&self.to, to)).await?;
        let other = self.settle(tx, other, (&self.to, to), (&self.from, from)).await?;
        Ok((moved, other))
    }

    /// The inode learns its new name.
    async fn settle(
        &self,
        tx: &mut Tx<'_>,
        inode: &Inode,
        old: (&Inode, &Bytes),
        new: (&Inode, &Bytes),
    ) -> Result<Arc<Inode>> {
        let home = tx.ctx.home(inode.id());
        if inode.linked {
            tx.delete(keys::link(home, inode.id(), old.0.id(), old.1)).await?;
            tx.put(keys::link(home, inode.id(), new.0.id(), new.1), &Mark {}).await?;
        }
        if self.bends_tree(inode) {
            let key = keys::topology(tx.ctx.home(TOPOLOGY));
            let moves = tx.get::<Topology>(&key).await?.unwrap_or_default().moves;
            tx.put(key, &Topology { moves: moves + 1 }).await?;
        }
        let mut inode = inode.clone();
        inode.parent = new.0.ino;
        inode.name = Bytes::copy_from_slice(new.1);
        inode.ctime = tx.now.into();
        tx.put_inode(inode).await
    }

    async fn reply(
        &self,
        tx: &mut Tx<'_>,
        moved: &Inode,
        other: Option<&Inode>,
    ) -> Result<MetaAnswer> {
        let moved = tx.attributes(moved).await?;
        let other = match other {
            Some(other) => Some(tx.attributes(other).await?),
            None => None,
        };
        let parent = Some(tx.attributes(&self.from).await?);
        let new_parent = match self.from.ino == self.to.ino {
            true => None,
            false => Some(tx.attributes(&self.to).await?),
        };
        Ok(MetaAnswer::Renamed(Renamed { moved, other, parent, new_parent }))
    }
}

/// True if `dir` is `ancestor` or lies below it.
async fn lies_within(tx: &mut Tx<'_>, dir: &Arc<Inode>, ancestor: Ino) -> Result<bool> {
    let mut at = dir.clone();
    for _ in 0..DEPTH_MAX {
        if at.id() == ancestor {
            return Ok(true);
        }
        if at.id() == Ino::ROOT {
            return Ok(false);
        }
        at = tx.inode(Ino(at.parent)).await?;
    }
    let detail = format!("directory {} does not lead to the root", dir.ino);
    Err(Error::with(ErrorKind::Corrupt, detail))
}

#[cfg(test)]
mod tests;
