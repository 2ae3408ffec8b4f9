//! Changes attributes: mode, owner, length, times.

use super::privileges::drop_capability;
use crate::contents;
use crate::ctx::{Ctx, with_subject};
use crate::lengths::check_length;
use crate::locks::inodes::Held;
use crate::records::Inode;
use crate::sharing::{is_settled, settle_to_cut, show_to_set_time};
use crate::txn::Mutation;
use crate::view::Tx;
use strake_types::access::{self, WRITE, without_setid};
use strake_types::acl::Acl;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result, SetTime, Timestamp};
use strake_wire::message::common::{AttrChange, TimeSet};
use strake_wire::message::meta::{MetaAnswer, SetAttr};

impl Mutation for SetAttr {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        let may = |inode: &Inode| check(ctx, inode, self);
        if self.change.length.is_some() {
            settle_to_cut(ctx, Ino(self.ino), may).await?;
        } else if self.change.mtime.is_some() || self.change.atime.is_some() {
            show_to_set_time(ctx, Ino(self.ino), may).await?;
        }
        Ok(vec![Ino(self.ino)])
    }

    async fn prepare(&self, ctx: &Ctx, _held: &Held) -> Result<()> {
        let Some(length) = self.change.length else { return Ok(()) };
        let inode = Tx::reader(ctx).inode(Ino(self.ino)).await?;
        check(ctx, &inode, self)?;
        // What others had written before is cut off as well.
        if !is_settled(ctx, &inode) {
            return Err(Error::new(ErrorKind::Conflict));
        }
        contents::make_room(ctx, inode.id(), length).await
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let (ctx, now) = (tx.ctx, tx.now);
        let inode = tx.inode(Ino(self.ino)).await?;
        check(ctx, &inode, self)?;
        let mut changed = (*inode).clone();
        change_rights(tx, &mut changed, &self.change).await?;
        if let Some(length) = self.change.length {
            drop_capability(tx, &mut changed).await?;
            contents::set_length(tx, &mut changed, length).await?;
            changed.mtime = now.into();
            let by_user = match ctx.checks() {
                true => ctx.cred.uid != 0,
                false => self.change.drop_setid,
            };
            if by_user {
                changed.mode = without_setid(changed.mode, &ctx.cred, changed.gid);
            }
        }
        if let Some(atime) = self.change.atime {
            changed.atime = time(atime, now).into();
        }
        if let Some(mtime) = self.change.mtime {
            changed.mtime = time(mtime, now).into();
            if changed.is_dir() {
                tx.set_dir_mtime(&changed, time(mtime, now)).await?;
            }
        }
        // A change time comes from a kernel that keeps the times of what it has cached.
        let ctime = self.change.ctime.filter(|_| ctx.cred.checked);
        changed.ctime = ctime.unwrap_or(now.into());
        let changed = tx.put_inode(changed).await?;
        Ok(MetaAnswer::Entry(tx.attributes(&changed).await?))
    }

    async fn finish(&self, ctx: &Ctx, _answer: &MetaAnswer) -> Result<()> {
        match self.change.length {
            Some(_) => {
                contents::keep_moved(ctx, Ino(self.ino)).await?;
                contents::finish_own_cut(ctx, Ino(self.ino)).await
            }
            None => Ok(()),
        }
    }
}

fn time(set: TimeSet, now: Timestamp) -> Timestamp {
    match set.into() {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}

fn is_now(set: Option<TimeSet>) -> bool {
    set.is_some_and(|set| SetTime::from(set) == SetTime::Now)
}

/// Whether the caller may do all that, and whether it can be done to such an inode at all.
pub(super) fn check(ctx: &Ctx, inode: &Inode, op: &SetAttr) -> Result<()> {
    let change = &op.change;
    if let Some(length) = change.length {
        match inode.file_kind() {
            FileKind::File => check_length(inode, length)?,
            FileKind::Directory => return Err(Error::new(ErrorKind::IsDirectory)),
            _ => return Err(Error::new(ErrorKind::Invalid)),
        }
        if !op.writable_handle {
            ctx.check(inode, WRITE)?;
        }
    }
    if change.mode.is_some() {
        if inode.file_kind() == FileKind::Symlink {
            return Err(Error::new(ErrorKind::NotSupported));
        }
        ctx.check_owner(inode)?;
    }
    if ctx.checks() && (change.uid.is_some() || change.gid.is_some()) {
        with_subject(inode, |s| s.check_chown(&ctx.cred, change.uid, change.gid))?;
    }
    check_times(ctx, inode, op)
}

/// Whoever may write may set both times to the present; only the owner may do more.
fn check_times(ctx: &Ctx, inode: &Inode, op: &SetAttr) -> Result<()> {
    let (atime, mtime) = (op.change.atime, op.change.mtime);
    let some = atime.is_some() || mtime.is_some();
    // A truncate brings the present along.
    let with_length = op.change.length.is_some() && atime.is_none() && is_now(mtime);
    if !some || with_length || ctx.check_owner(inode).is_ok() {
        return Ok(());
    }
    match is_now(atime) && is_now(mtime) {
        true => ctx.check(inode, WRITE),
        false => Err(Error::new(ErrorKind::NotPermitted)),
    }
}

/// Changes owner and mode. The caller may do that ([`check`]).
pub(super) async fn change_rights(
    tx: &mut Tx<'_>,
    inode: &mut Inode,
    change: &AttrChange,
) -> Result<()> {
    change_owner(tx.ctx, inode, change);
    change_mode(tx.ctx, inode, change)?;
    let chown = change.uid.is_some() || change.gid.is_some();
    if chown && !inode.is_dir() {
        drop_capability(tx, inode).await?;
    }
    Ok(())
}

fn change_owner(ctx: &Ctx, inode: &mut Inode, change: &AttrChange) {
    let (uid, gid) = (change.uid, change.gid);
    if uid.is_none() && gid.is_none() {
        return;
    }
    if !inode.is_dir() {
        inode.mode = without_setid(inode.mode, &ctx.cred, inode.gid);
    }
    inode.uid = uid.unwrap_or(inode.uid);
    inode.gid = gid.unwrap_or(inode.gid);
}

/// The owner, mask (or group) and others of an ACL follow the mode.
fn change_mode(ctx: &Ctx, inode: &mut Inode, change: &AttrChange) -> Result<()> {
    let Some(mode) = change.mode else { return Ok(()) };
    inode.mode = access::chmod_mode(mode, &ctx.cred, inode.gid);
    if !inode.acl_access.is_empty()
        && let Some(acl) = Acl::decode(&inode.acl_access)?
    {
        inode.acl_access = acl.with_mode(inode.mode).encode().into();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
