//! A new inode of any kind, mostly with a name; or the opening of the file that has the name.

use super::names::{check_add, peek};
use super::open_file::{open_existing, opened};
use crate::borrow::{Elsewhere, home_of};
use crate::contents;
use crate::ctx::{Ctx, with_subject};
use crate::keys;
use crate::layout;
use crate::locks::inodes::Held;
use crate::merge;
use crate::merge_queue::Change;
use crate::records::{Entry, Inode, Raw};
use crate::sharing::settle_to_cut;
use crate::txn::Mutation;
use crate::view::Tx;
use bytes::Bytes;
use strake_types::access::{self, EXECUTE, WRITE};
use strake_types::acl::Acl;
use strake_types::limits::PATH_BYTES_MAX;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result, name};
use strake_wire::message::meta::{Create, Created, MetaAnswer, OpenMode};

impl Mutation for Create {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        let dir = Ino(self.at.parent);
        if self.at.name.is_empty() {
            return Ok(vec![dir]);
        }
        let child = peek(ctx, dir, &self.at.name).await?.filter(|child| ctx.is_here(*child));
        if let (Some(child), Some(OpenMode { truncate: true, .. }), false) =
            (child, &self.open, self.exclusive)
        {
            settle_to_cut(ctx, child, |inode| ctx.check(inode, WRITE)).await?;
        }
        if let Some(child) = child.filter(|_| !self.exclusive) {
            contents::finish_cut_first(ctx, child).await?;
        }
        Ok([dir].into_iter().chain(child).collect())
    }

    fn elsewhere(&self, ctx: &Ctx) -> Elsewhere {
        let home = home_of(ctx, self);
        let child = (home != ctx.volume.id).then_some((home, Ino(self.at.parent)));
        Elsewhere { child, ..Elsewhere::default() }
    }

    async fn prepare(&self, ctx: &Ctx, held: &Held) -> Result<()> {
        let found = match self.at.name.is_empty() || self.exclusive {
            true => None,
            false => peek(ctx, Ino(self.at.parent), &self.at.name).await?,
        };
        match found {
            Some(child) if !ctx.is_here(child) => Ok(()),
            Some(child) if held.has(child) => contents::finish_cut(ctx, child).await,
            Some(_) => Err(Error::new(ErrorKind::Conflict)),
            None if home_of(ctx, self) == ctx.volume.id => ctx.volume.have_inos(1).await,
            // The other share gives it a number.
            None => Ok(()),
        }
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let dir = tx.directory(Ino(self.at.parent)).await?;
        tx.ctx.check(&dir, EXECUTE)?;
        let kind = FileKind::of_message(self.kind)?;
        if self.at.name.is_empty() {
            return make_nameless(tx, self, &dir, kind).await;
        }
        if name::is_dot(&self.at.name) {
            return Err(Error::new(ErrorKind::Exists));
        }
        match tx.entry(dir.id(), &self.at.name).await? {
            Some(entry) => use_existing(tx, self, &dir, entry).await,
            None => make_named(tx, self, &dir, kind).await,
        }
    }

    async fn merged(&self, ctx: &Ctx) -> Option<Result<MetaAnswer>> {
        if self.at.name.is_empty() {
            return None;
        }
        merge::with_others(ctx, self.at.parent, || Change::Create(self.clone())).await
    }

    async fn finish(&self, ctx: &Ctx, answer: &MetaAnswer) -> Result<()> {
        match answer {
            MetaAnswer::Created(existing)
                if !existing.created && ctx.is_here(Ino(existing.attr.ino)) =>
            {
                contents::finish_cut(ctx, Ino(existing.attr.ino)).await
            }
            _ => Ok(()),
        }
    }

    fn takes_room(&self) -> bool {
        true
    }
}

async fn use_existing(
    tx: &mut Tx<'_>,
    op: &Create,
    dir: &Inode,
    entry: Entry,
) -> Result<MetaAnswer> {
    if op.exclusive || op.kind != FileKind::File as u32 {
        return Err(Error::new(ErrorKind::Exists));
    }
    let here = tx.ctx.is_here(Ino(entry.ino));
    if here {
        tx.need_lock(Ino(entry.ino))?;
    }
    let inode = tx.inode(Ino(entry.ino)).await?;
    if inode.is_dir() {
        return Err(Error::new(ErrorKind::IsDirectory));
    }
    let opened = match &op.open {
        // Of one in another share the caller learns where it is, and opens it there.
        Some(mode) if inode.is_file() && here => Some(open_existing(tx, &inode, mode).await?),
        _ => None,
    };
    let attr = match &opened {
        Some(opened) => opened.attr.clone(),
        None => tx.attributes(&inode).await?,
    };
    let parent = Some(tx.attributes(dir).await?);
    Ok(MetaAnswer::Created(Created { attr, created: false, opened, parent }))
}

async fn make_named(
    tx: &mut Tx<'_>,
    op: &Create,
    dir: &Inode,
    kind: FileKind,
) -> Result<MetaAnswer> {
    check_add(tx.ctx, dir)?;
    let mut inode = new_inode(tx, op, dir, kind).await?;
    inode.nlink = if kind == FileKind::Directory { 2 } else { 1 };
    // A copy: what was received may be part of a large buffer.
    inode.name = Bytes::copy_from_slice(&op.at.name);
    if kind == FileKind::Symlink {
        put_target(tx, &mut inode, &op.target).await?;
    }
    if kind == FileKind::Directory {
        tx.make_shards(&inode).await?;
    }
    tx.add_entry(dir, &op.at.name, inode.id(), inode.kind).await?;
    answer(tx, op, dir, inode).await
}

/// O_TMPFILE: the inode is an orphan from the start, kept by the session's open.
async fn make_nameless(
    tx: &mut Tx<'_>,
    op: &Create,
    dir: &Inode,
    kind: FileKind,
) -> Result<MetaAnswer> {
    if kind != FileKind::File || op.open.is_none() {
        let detail = "a file without a name is a regular one and is opened as it is made";
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    check_add(tx.ctx, dir)?;
    let mut inode = new_inode(tx, op, dir, kind).await?;
    inode.nameless = true;
    // The queue shows it as soon as the store does: who deletes what nobody has open waits for this lock until the open counts.
    if !tx.lock_more(&[inode.id()]) {
        return Err(Error::new(ErrorKind::Conflict));
    }
    tx.enqueue(&mut inode).await?;
    answer(tx, op, dir, inode).await
}

async fn answer(tx: &mut Tx<'_>, op: &Create, dir: &Inode, inode: Inode) -> Result<MetaAnswer> {
    tx.count(inode.id(), 1, inode.occupied as i64);
    let inode = tx.put_inode(inode).await?;
    let opened = match &op.open {
        Some(mode) if inode.is_file() => Some(opened(tx, &inode, mode).await?),
        _ => None,
    };
    let attr = tx.attributes(&inode).await?;
    let parent = Some(tx.attributes(dir).await?);
    Ok(MetaAnswer::Created(Created { attr, created: true, opened, parent }))
}

/// Why a file gets no layout: what its directory hands down may need groups that are younger than the map which this
/// server knows, where the server of another share has set it. For good it is refused only by the newest map.
async fn unless_behind(ctx: &Ctx, error: Error) -> Error {
    match ctx.core.map.refresh().await {
        Ok(epoch) if epoch > ctx.settings.epoch => {
            Error::with(ErrorKind::StaleMap, error.to_string())
        }
        Err(away) if error.kind == ErrorKind::Invalid => {
            let detail = format!("by a map that may be old: {error}; {away}");
            Error::with(ErrorKind::Unavailable, detail)
        }
        _ => error,
    }
}

/// The record of a new inode, without a name yet.
async fn new_inode(tx: &mut Tx<'_>, op: &Create, dir: &Inode, kind: FileKind) -> Result<Inode> {
    let ctx = tx.ctx;
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    if device && ctx.checks() && ctx.cred.uid != 0 {
        return Err(Error::new(ErrorKind::NotPermitted));
    }
    let ino = tx.new_ino(dir.id()).await?;
    let now = tx.now.into();
    let directory = kind == FileKind::Directory;
    let rights = Rights::of(op, dir, kind)?;
    let (gid, mode) = with_subject(dir, |subject| {
        Ok(access::inherit_group(subject, &ctx.cred, directory, rights.mode))
    })?;
    let layout = match kind {
        FileKind::File => {
            let (own, map) = (op.template.as_ref(), &ctx.core.map);
            match layout::for_new_file(dir, own, ino, &ctx.settings, map) {
                Ok(layout) => Some((&ctx.core.around_full(layout)).into()),
                Err(error) => return Err(unless_behind(ctx, error).await),
            }
        }
        _ => None,
    };
    Ok(Inode {
        ino: ino.0,
        kind: kind as u32,
        mode,
        uid: ctx.cred.uid,
        gid,
        rdev: if device { op.rdev } else { 0 },
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        inline: kind == FileKind::File && ctx.settings.inline_bytes_max > 0,
        layout,
        parent: dir.ino,
        template: dir.template.clone().filter(|_| directory),
        acl_access: rights.acl_access,
        acl_default: rights.acl_default,
        ..Inode::default()
    })
}

/// Permissions of a new inode.
struct Rights {
    mode: u32,
    acl_access: Bytes,
    acl_default: Bytes,
}

impl Rights {
    /// A default ACL of the directory takes the place of the umask.
    fn of(op: &Create, dir: &Inode, kind: FileKind) -> Result<Self> {
        let none = Bytes::new;
        if kind == FileKind::Symlink {
            return Ok(Rights { mode: 0o777, acl_access: none(), acl_default: none() });
        }
        let mode = op.mode & 0o7777;
        let Some(default) = decode_default(dir)? else {
            let mode = mode & !(op.umask & 0o777);
            return Ok(Rights { mode, acl_access: none(), acl_default: none() });
        };
        let acl = default.for_new_file(mode);
        let inherits = kind == FileKind::Directory;
        Ok(Rights {
            mode: mode & 0o7000 | acl.mode(),
            acl_access: if acl.is_minimal() { none() } else { acl.encode().into() },
            acl_default: if inherits { dir.acl_default.clone() } else { none() },
        })
    }
}

fn decode_default(dir: &Inode) -> Result<Option<Acl>> {
    match dir.acl_default.is_empty() {
        true => Ok(None),
        false => Acl::decode(&dir.acl_default),
    }
}

async fn put_target(tx: &mut Tx<'_>, inode: &mut Inode, target: &Bytes) -> Result<()> {
    if target.is_empty() {
        return Err(Error::new(ErrorKind::NotFound));
    }
    if target.len() >= PATH_BYTES_MAX {
        return Err(Error::new(ErrorKind::NameTooLong));
    }
    inode.length = target.len() as u64;
    inode.occupied = inode.length;
    let key = keys::contents(tx.ctx.volume.id, inode.id());
    tx.put(key, &Raw { bytes: target.clone() }).await
}

#[cfg(test)]
mod tests;
