//! How much a file occupies, by what its targets hold.
//!
//! Clients tell what they add behind the end of a file. What they write into a hole they do not know to be new, and what a
//! lost client has written nobody tells. So a file that seems to occupy less than it is long is counted once nobody writes
//! to it any more ([`crate::uncounted`]): it may have holes, or not. What is counted meanwhile counts at most twice, and
//! only until then.

use crate::contents::{ask_primary, is_away, layout_of, occupied_max, occupy, request};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::records::Inode;
use crate::stop::Stop;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use crate::volume::{Reign, Volume};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::iter;
use std::sync::Arc;
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{
    ChunkList, ChunksOf, StorageAnswer, StorageOp, StorageRequest,
};
use tokio::time::timeout;

/// Files counted at the same time.
const PARALLEL: usize = 16;
/// Chunks of one answer.
const PAGE_CHUNKS: u32 = 4096;
/// How long a group may take for it.
const PAGE_WAIT: Duration = Duration::from_secs(5);

/// Counts the files of a volume that wait for it and that nobody writes to. What cannot be counted waits on.
pub(crate) async fn count_waiting(core: &Arc<Core>, volume: &Arc<Volume>, stop: &Stop) {
    let ctx = &Ctx::own(core, volume);
    let mut files = volume.uncounted.all();
    files.retain(|ino| !volume.sessions.may_write(*ino));
    let files = stream::iter(files).map(Ok::<Ino, Error>);
    // One group that does not answer is not asked for each of them.
    let counted = files.try_for_each_concurrent(PARALLEL, |ino| async move {
        let about = |e: Error| Error::with(e.kind, format!("inode {ino}: {e}"));
        recount(ctx, ino, stop).await.map_err(about)
    });
    if let Err(error) = counted.await {
        tracing::info!("counting what files of volume {} occupy: {error}; trying again", volume.id);
    }
}

/// Counts a file without its lock, which is for what is found: if it is as it was, and nobody can have written.
async fn recount(ctx: &Ctx, ino: Ino, stop: &Stop) -> Result<()> {
    let (core, volume) = (&ctx.core, &ctx.volume);
    let before = Tx::reader(ctx).find_inode(ino).await?;
    let mut bytes = None;
    if let Some(inode) = before.as_deref().filter(|inode| inode.is_sparse()) {
        if inode.cut_from.is_some() || is_away(core, &layout_of(inode)?.slots()) {
            return Ok(());
        }
        let counted = tokio::select! {
            counted = held(ctx, inode) => counted?,
            () = stop.told() => return Ok(()),
        };
        bytes = Some(counted).filter(|bytes| *bytes != inode.occupied);
    }
    let _held = core.locks.lock(volume.id, &[ino]).await;
    let now = Tx::reader(ctx).find_inode(ino).await?;
    if now != before || volume.sessions.may_write(ino) {
        return Ok(());
    }
    if let Some(bytes) = bytes {
        under_locks(ctx, &Occupy { ino, bytes }).await?;
    }
    volume.uncounted.forget(ino);
    Ok(())
}

/// A file turns out to occupy so much.
struct Occupy {
    ino: Ino,
    bytes: u64,
}

impl Mutation for Occupy {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        occupy(tx, &mut inode, self.bytes);
        tx.put_inode(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}

/// Bytes that the targets hold of a file up to its end.
pub(crate) async fn held(ctx: &Ctx, inode: &Inode) -> Result<u64> {
    let (layout, mut bytes) = (layout_of(inode)?, 0u64);
    let last = layout.chunk_at(inode.length.saturating_sub(1)).0;
    for group in Placement::new(layout.clone()).groups() {
        let mut next = Some(0);
        while let Some(from) = next {
            let (volume, ino) = (ctx.volume.id.0, inode.ino);
            let of = ChunksOf { volume, ino, from, max: PAGE_CHUNKS };
            let asked = chunks_in(&ctx.core, ctx.volume.reign(), group, of);
            let late = |_| Error::with(ErrorKind::TimedOut, format!("group {group} is silent"));
            let page = timeout(PAGE_WAIT, asked).await.map_err(late)??;
            let more = bytes_between(&page, &layout, 0, inode.length);
            bytes = bytes.saturating_add(more);
            // One that leads back would never end.
            next = page.next.filter(|next| *next > from && *next <= last);
        }
    }
    Ok(bytes)
}

/// Which chunks whoever leads a group has of a file.
pub(crate) async fn chunks_in(
    core: &Core,
    reign: Reign,
    group: GroupId,
    of: ChunksOf,
) -> Result<ChunkList> {
    let asked = request(core, reign, Ino(of.ino), StorageOp::Chunks(of));
    let asked = StorageRequest { group: group.0, ..asked };
    let primary = core.map.primary_of(group)?;
    match ask_primary(core, primary, asked, Bytes::new()).await? {
        Some(StorageAnswer::Chunks(page)) => Ok(page),
        _ => {
            let detail = format!("group {group} does not say which chunks it has");
            Err(Error::with(ErrorKind::Malformed, detail))
        }
    }
}

/// Bytes that these chunks hold of a file of this length behind `from`, before which all is there. Of the last block that a
/// chunk has those count that were written, as clients count them.
pub(crate) fn bytes_between(list: &ChunkList, layout: &Layout, from: u64, length: u64) -> u64 {
    let to = occupied_max(length);
    let chunks = list.indices.iter().zip(&list.lens).zip(&list.occupied);
    // An earlier release does not say what is reserved.
    let chunks = chunks.zip(list.reserved.iter().copied().chain(iter::repeat(0)));
    let in_chunk = |(((index, len), occupied), reserved): (((&u64, &u64), &u64), u64)| {
        let (start, _) = layout.chunk_bounds(ChunkIndex(*index));
        let (from, to) = (from.saturating_sub(start), to.saturating_sub(start));
        let written = occupied.saturating_sub(reserved).min(*len);
        written.saturating_add(reserved).min(to).saturating_sub(from)
    };
    chunks.map(in_chunk).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
