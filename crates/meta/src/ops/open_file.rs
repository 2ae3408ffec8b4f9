//! Opening a regular file, as part of an open or a create.

use super::privileges::drop_capability;
use crate::contents;
use crate::ctx::Ctx;
use crate::records::Inode;
use crate::sharing::is_settled;
use crate::view::Tx;
use std::sync::Arc;
use strake_types::access::{READ, WRITE, without_setid};
use strake_types::{Error, ErrorKind, FileKind, Result, SessionId};
use strake_wire::capability::{Capability, Rights};
use strake_wire::message::meta::{OpenMode, Opened};

/// Opens a file that exists: checks the permissions, cuts it if that is asked for.
pub(crate) async fn open_existing(
    tx: &mut Tx<'_>,
    inode: &Arc<Inode>,
    mode: &OpenMode,
) -> Result<Opened> {
    match inode.file_kind() {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::new(ErrorKind::IsDirectory)),
        FileKind::Symlink => return Err(Error::new(ErrorKind::SymlinkLoop)),
        _ => return Err(Error::with(ErrorKind::Invalid, "only regular files are opened here")),
    }
    let writes = mode.write || mode.truncate;
    let want = if mode.read { READ } else { 0 } | if writes { WRITE } else { 0 };
    tx.ctx.check(inode, want)?;
    if !mode.truncate {
        return opened(tx, inode, mode).await;
    }
    // What others had written before goes as well.
    if !is_settled(tx.ctx, inode) {
        return Err(Error::new(ErrorKind::Conflict));
    }
    let mut cut = (**inode).clone();
    if cut.length > 0 || !cut.inline {
        contents::set_length(tx, &mut cut, 0).await?;
    }
    cut.mtime = tx.now.into();
    cut.ctime = cut.mtime;
    if tx.ctx.checks() && tx.ctx.cred.uid != 0 {
        cut.mode = without_setid(cut.mode, &tx.ctx.cred, cut.gid);
    }
    drop_capability(tx, &mut cut).await?;
    let cut = tx.put_inode(cut).await?;
    opened(tx, &cut, mode).await
}

/// What a client needs of a file that it opens; the open is registered with the commit.
pub(crate) async fn opened(tx: &mut Tx<'_>, inode: &Inode, mode: &OpenMode) -> Result<Opened> {
    tx.ctx.need_session()?;
    let writes = mode.write || mode.truncate;
    if writes {
        tx.ctx.volume.recopies.touch(inode.id());
    }
    tx.opens(inode.id(), writes);
    view(tx, inode, mode).await
}

/// Attributes, contents that lie inside the inode, and the right to the chunks.
pub(crate) async fn view(tx: &mut Tx<'_>, inode: &Inode, mode: &OpenMode) -> Result<Opened> {
    let inline = match inode.inline {
        true => Some(contents::inline_bytes(tx, inode).await?),
        false => None,
    };
    let core = &tx.ctx.core;
    if let Some(session) = &tx.ctx.session {
        session.will_need_fence();
        session.check()?;
    }
    let capability = core.key.mint(&Capability {
        volume: tx.ctx.volume.id,
        ino: inode.id(),
        rights: Rights::of(mode.read, mode.write),
        session: SessionId(tx.ctx.session_id()),
        expires_unix_ms: core.wall_ms() + core.options.capability_ms,
    });
    let attr = tx.attributes(inode).await?;
    Ok(Opened { attr, inline, capability, ..Opened::default() })
}

/// Fails unless the inode is a regular file that the session holds open or the caller may write.
/// An open file may be written even if its mode has changed since.
pub(crate) fn check_writer(ctx: &Ctx, inode: &Inode) -> Result<()> {
    if !inode.is_file() {
        return Err(Error::with(ErrorKind::Invalid, "only regular files have contents"));
    }
    match holds(ctx, inode) {
        true => Ok(()),
        false => ctx.check(inode, WRITE),
    }
}

/// Fails unless the session holds the file open or the caller may read it.
pub(crate) fn check_reader(ctx: &Ctx, inode: &Inode) -> Result<()> {
    match holds(ctx, inode) {
        true => Ok(()),
        false => ctx.check(inode, READ),
    }
}

fn holds(ctx: &Ctx, inode: &Inode) -> bool {
    ctx.session.as_ref().is_some_and(|session| ctx.volume.sessions.holds(session, inode.id()))
}
