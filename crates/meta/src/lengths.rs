//! How long a file is whose client is lost: as long as what its storage servers have of it.

use crate::contents::{ask_primary, finish_cut_of, layout_of, request};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::records::Inode;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use crate::volume::Reign;
use bytes::Bytes;
use strake_types::layout::Placement;
use strake_types::limits::FILE_BYTES_MAX;
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{ChunkPages, StorageAnswer, StorageOp, StorageRequest};

/// A client that had the file open is lost: what its storage servers have of the file counts, even
/// if the client could not tell the length any more. Fails if a group does not say what it has; what others say
/// counts all the same.
pub(crate) async fn settle(ctx: &Ctx, ino: Ino) -> Result<()> {
    let (core, volume) = (&ctx.core, ctx.volume.id);
    let _held = core.locks.lock(volume, &[ino]).await;
    let Some(inode) = Tx::reader(ctx).find_inode(ino).await? else { return Ok(()) };
    if inode.inline || !inode.is_file() || inode.nlink == 0 {
        return Ok(());
    }
    finish_cut_of(ctx, &inode).await?;
    let (layout, mut length, mut settled) = (layout_of(&inode)?, inode.length, Ok(()));
    for group in Placement::new(layout.clone()).groups() {
        match length_in(core, ctx.volume.reign(), &inode, &layout, group).await {
            Ok(found) => length = length.max(found.min(FILE_BYTES_MAX)),
            Err(error) => settled = settled.and(Err(error)),
        }
    }
    if length > inode.length {
        under_locks(ctx, &Extend { ino, length }).await?;
    }
    settled
}

/// How long a file is by what one of its groups has.
async fn length_in(
    core: &Core,
    reign: Reign,
    inode: &Inode,
    layout: &Layout,
    group: GroupId,
) -> Result<u64> {
    // Those before make it no longer than it is.
    let from = layout.chunk_at(inode.length).0;
    let mut pages = ChunkPages::of(reign.volume.0, inode.ino, from..=u64::MAX);
    while let Some(of) = pages.wanted() {
        let asked = request(core, reign, inode.id(), StorageOp::Chunks(of));
        let asked = StorageRequest { group: group.0, ..asked };
        let primary = core.map.primary_of(group)?;
        let answer = ask_primary(core, primary, asked, Bytes::new()).await?;
        let Some(StorageAnswer::Chunks(page)) = answer else {
            let detail = format!("group {group} does not say which chunks it has");
            return Err(Error::with(ErrorKind::Malformed, detail));
        };
        pages.add(page);
    }
    let list = pages.found();
    let ends = list.indices.iter().zip(&list.lens).map(|(index, len)| {
        let (start, _) = layout.chunk_bounds(ChunkIndex(*index));
        start.saturating_add(*len)
    });
    Ok(ends.max().unwrap_or(0))
}

/// A file turns out to be longer.
struct Extend {
    ino: Ino,
    length: u64,
}

impl Mutation for Extend {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        inode.length = inode.length.max(self.length);
        inode.mtime = tx.ctx.now.into();
        inode.ctime = inode.mtime;
        tx.put_inode(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}
