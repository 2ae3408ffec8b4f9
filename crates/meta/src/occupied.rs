//! How much a file occupies, by what its targets hold.
//!
//! Clients tell what they add behind the end of a file. What they write into a hole they do not know to be new, and what a
//! lost client has written nobody tells. So a file that seems to occupy less than it is long is counted once nobody writes
//! to it any more ([`crate::uncounted`]): it may have holes, or not. What is counted meanwhile counts at most twice, and
//! only until then.

use crate::contents::{is_away, layout_of, occupied_max, occupy};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::groups::{ask_primary, request};
use crate::locks::inodes::Held;
use crate::patience::Patience;
use crate::records::Inode;
use crate::stop::Stop;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use crate::volume::{Reign, Volume};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use std::iter;
use std::sync::Arc;
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{
    ChunkList, ChunksOf, StorageAnswer, StorageOp, StorageRequest,
};

/// Files of a volume that are looked at in one turn, and how long it begins with others: what comes then waits for its end.
const TURN_FILES: usize = 1024;
const TURN_MAX: Duration = Duration::from_secs(10);
/// Files of a volume counted at the same time: few, because nobody waits for it.
const PARALLEL: usize = 4;
/// Chunks of one answer.
const PAGE_CHUNKS: u32 = 4096;
/// How long a target may take for it: a loaded disk has a long queue.
const PAGE_WAIT: Duration = Duration::from_secs(15);
/// How long a target that took longer is not asked.
const SILENT_MS: u64 = 120_000;

/// The background task. One of its own: deletions do not wait until all is counted.
pub(crate) async fn run(core: Arc<Core>, stop: Arc<Stop>) {
    let tick = Duration::from_millis(core.options.tick_ms);
    let patience = Patience::new(PAGE_WAIT, SILENT_MS);
    loop {
        tokio::select! {
            biased;
            () = stop.told() => return,
            () = tokio::time::sleep(tick) => {}
        }
        let volumes = core.volumes_held();
        let turns = volumes.iter().map(|volume| count_waiting(&core, volume, &patience, &stop));
        join_all(turns).await;
    }
}

/// Counts files of a volume that wait for it and that nobody writes to. What cannot be counted waits on, and holds up no
/// other.
async fn count_waiting(core: &Arc<Core>, volume: &Arc<Volume>, patience: &Patience, stop: &Stop) {
    let ctx = &Ctx::own(core, volume);
    let mut files = volume.uncounted.due(core.monotonic_ms(), TURN_FILES);
    files.retain(|ino| !volume.sessions.may_write(*ino));
    if files.is_empty() {
        return;
    }
    let files = stream::iter(files).take_until(tokio::time::sleep(TURN_MAX));
    let tried = files.map(|ino| attempt(ctx, ino, patience, stop)).buffer_unordered(PARALLEL);
    let failed: Vec<(Ino, Error)> = tried.filter_map(std::future::ready).collect().await;
    if let Some((ino, error)) = failed.first() {
        tracing::info!(
            "volume {}: what inode {ino} occupies cannot be counted now ({} such files): {error}; trying again",
            volume.id,
            failed.len()
        );
    }
}

/// Why a file could not be counted, if so.
async fn attempt(ctx: &Ctx, ino: Ino, patience: &Patience, stop: &Stop) -> Option<(Ino, Error)> {
    let error = recount(ctx, ino, patience, stop).await.err()?;
    ctx.volume.uncounted.failed(ino, ctx.core.monotonic_ms());
    Some((ino, error))
}

/// Counts a file without its lock, which is for what is found.
async fn recount(ctx: &Ctx, ino: Ino, patience: &Patience, stop: &Stop) -> Result<()> {
    if stop.is_told() {
        return Ok(());
    }
    let before = Tx::reader(ctx).find_inode(ino).await?;
    let mut bytes = None;
    if let Some(inode) = before.as_deref().filter(|inode| inode.is_sparse()) {
        if inode.cut_from.is_some() || is_away(&ctx.core, &layout_of(inode)?.slots()) {
            return Ok(());
        }
        let counted = tokio::select! {
            counted = held(ctx, inode, patience) => counted?,
            () = stop.told() => return Ok(()),
        };
        bytes = Some(counted).filter(|bytes| *bytes != inode.occupied);
    }
    let Some(_lock) = lock_unchanged(ctx, ino, before.as_deref()).await? else {
        // Somebody writes again and again: it is not counted as often.
        ctx.volume.uncounted.failed(ino, ctx.core.monotonic_ms());
        return Ok(());
    };
    if let Some(bytes) = bytes {
        set(ctx, ino, bytes).await?;
    }
    ctx.volume.uncounted.forget(ino);
    Ok(())
}

/// The lock of a file, if it is as it was before it was counted, and nobody can have written since.
pub(crate) async fn lock_unchanged(
    ctx: &Ctx,
    ino: Ino,
    before: Option<&Inode>,
) -> Result<Option<Held>> {
    let lock = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
    let now = Tx::reader(ctx).find_inode(ino).await?;
    let is_unchanged = now.as_deref() == before && !ctx.volume.sessions.may_write(ino);
    Ok(is_unchanged.then_some(lock))
}

/// Notes how much a file occupies. The caller holds its lock.
pub(crate) async fn set(ctx: &Ctx, ino: Ino, bytes: u64) -> Result<()> {
    under_locks(ctx, &Occupy { ino, bytes }).await
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
pub(crate) async fn held(ctx: &Ctx, inode: &Inode, patience: &Patience) -> Result<u64> {
    let (layout, mut bytes) = (layout_of(inode)?, 0u64);
    let last = layout.chunk_at(inode.length.saturating_sub(1)).0;
    for group in Placement::new(layout.clone()).groups() {
        let mut next = Some(0);
        while let Some(from) = next {
            let (volume, ino) = (ctx.volume.id.0, inode.ino);
            let of = ChunksOf { volume, ino, from, max: PAGE_CHUNKS };
            let (target, _) = ctx.core.map.primary_of(group)?;
            let asked = chunks_in(&ctx.core, ctx.volume.reign(), group, of);
            let page = patience.ask(&ctx.core, target, asked).await?;
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
