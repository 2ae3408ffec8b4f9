//! How long a file may be, and how long one is whose client is lost: as long as what its storage servers have of it.

use crate::contents::{finish_cut_of, layout_of, occupied_max, occupy};
use crate::ctx::Ctx;
use crate::occupied::{bytes_between, chunks_in, set};
use crate::patience::Patience;
use crate::records::Inode;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use futures::future::{join_all, try_join_all};
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::limits::{FILE_CHUNKS_MAX, STRIP_BYTES_MIN};
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Ino, Layout, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};
use strake_wire::message::storage::{ChunkList, ChunkPages};
use tokio::time::timeout;

/// How long a target may take to say what it has of a file. Whoever settles lengths waits longer, so that what the others
/// have said counts before that.
const TARGET_WAIT: Duration = Duration::from_secs(4);
/// How long all of it may take that a group says of a file.
const GROUP_WAIT: Duration = Duration::from_secs(8);
/// How long one that took longer is not asked, by who settles lengths as long as that: with many files it is waited for once.
const SILENT_MS: u64 = 60_000;

/// Fails where no file of such a layout has such a length. One of any layout may have as many of the shortest strips.
pub(crate) fn check_length(file: &Inode, length: u64) -> Result<()> {
    match length <= FILE_CHUNKS_MAX * STRIP_BYTES_MIN || length <= layout_of(file)?.length_max() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::FileTooBig)),
    }
}

/// How long targets are waited for by who settles the lengths of many files.
pub(crate) fn patience() -> Patience {
    Patience::new(TARGET_WAIT, SILENT_MS)
}

/// A client that had the file open is lost: what its storage servers have of the file counts, even
/// if the client could not tell the length any more. Fails if a group does not say what it has; what others say
/// counts all the same. If the client `may_write`, it may have told nobody of what it has written over: the file has another
/// version then, also where it is as long as it was.
pub(crate) async fn settle(
    ctx: &Ctx,
    ino: Ino,
    may_write: bool,
    patience: &Patience,
) -> Result<()> {
    let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
    let Some(inode) = Tx::reader(ctx).find_inode(ino).await?.filter(|inode| matters(inode)) else {
        return Ok(());
    };
    finish_cut_of(ctx, &inode).await?;
    // Its writer may have told of some bytes only. What it occupies is counted when no other one writes to it.
    ctx.volume.uncounted.note(ino);
    let (layout, mut length, mut settled) = (layout_of(&inode)?, inode.length, Ok(()));
    let mut lists = Vec::new();
    let groups = Placement::new(layout.clone()).groups().into_iter();
    // All at once: one that says nothing does not hold up what others have.
    let late = |_| Error::with(ErrorKind::TimedOut, "a group has much to say of a file");
    let asked = groups.map(|group| {
        let found = found_in(ctx, group, &inode, &layout, patience);
        async move { timeout(GROUP_WAIT, found).await.map_err(late)? }
    });
    for found in join_all(asked).await {
        match found {
            Ok(list) => {
                length = length.max(end_of(&list, &layout).min(layout.length_max()));
                lists.push(list);
            }
            Err(error) => settled = settled.and(Err(error)),
        }
    }
    if length > inode.length {
        // With blocks at once: a program that sees none takes all for zeros.
        let added = lists.iter().map(|list| bytes_between(list, &layout, inode.length, length));
        let added = added.fold(0, u64::saturating_add);
        under_locks(ctx, &Extend { ino, length, added }).await?;
    } else if inode.seems_empty() || may_write && settled.is_ok() && inode.length > 0 {
        // With one block at least: what it wrote into holes is not known to be there until it is counted, and no server need
        // live so long. Every group has said what it has, and takes nothing of this client any more: who asks for the new
        // version reads what stays.
        set(ctx, ino, inode.occupied.max(1)).await?;
    }
    settled
}

/// As [`settle`], of a file to which the client may have written, and of which a group does not say in the end what it has: it
/// has another version all the same. Who asks for that knows that the client is fenced, and so does whoever he reads from before
/// he is answered. The primary need not, if that is another member (docs/design/0051-fencing.md, "What is left open").
pub(crate) async fn give_up(ctx: &Ctx, ino: Ino) -> Result<()> {
    let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
    let Some(inode) = Tx::reader(ctx).find_inode(ino).await?.filter(|inode| matters(inode)) else {
        return Ok(());
    };
    // As there, where nobody need have come to it.
    ctx.volume.uncounted.note(ino);
    match inode.length {
        0 => Ok(()),
        _ => set(ctx, ino, inode.occupied.max(1)).await,
    }
}

/// True if a file has contents on targets that somebody may open.
fn matters(inode: &Inode) -> bool {
    inode.is_file() && !inode.inline && inode.nlink > 0
}

/// What one of its groups has of a file at its end and behind it, if its primary says so in time: chunks before that make it no
/// longer than it is.
async fn found_in(
    ctx: &Ctx,
    group: GroupId,
    inode: &Inode,
    layout: &Layout,
    patience: &Patience,
) -> Result<ChunkList> {
    let from = layout.chunk_at(inode.length).0;
    let mut pages = ChunkPages::of(ctx.volume.id.0, inode.ino, from..=u64::MAX);
    while let Some(of) = pages.wanted() {
        let (target, _) = ctx.core.map.primary_of(group)?;
        let page = chunks_in(&ctx.core, ctx.volume.reign(), group, of);
        pages.add(patience.ask(&ctx.core, target, page).await?);
    }
    Ok(pages.found())
}

/// True if targets have something of a file behind its end. Fails if one does not say so within `at_most`.
pub(crate) async fn has_past_end(
    ctx: &Ctx,
    inode: &Inode,
    patience: &Patience,
    at_most: Duration,
) -> Result<bool> {
    let layout = layout_of(inode)?;
    let groups = Placement::new(layout.clone()).groups().into_iter();
    let asked = groups.map(|group| found_in(ctx, group, inode, &layout, patience));
    let late = |_| Error::with(ErrorKind::TimedOut, "its groups have much to say of it");
    let lists = timeout(at_most, try_join_all(asked)).await.map_err(late)??;
    Ok(lists.iter().any(|list| end_of(list, &layout) > inode.length))
}

/// How long a file is by these chunks. In one of no length there is only room, which says nothing of that.
fn end_of(list: &ChunkList, layout: &Layout) -> u64 {
    let written = list.indices.iter().zip(&list.lens).filter(|(_, len)| **len > 0);
    let ends = written.map(|(index, len)| {
        let (start, _) = layout.chunk_bounds(ChunkIndex(*index));
        start.saturating_add(*len)
    });
    ends.max().unwrap_or(0)
}

/// A file turns out to be longer.
struct Extend {
    ino: Ino,
    length: u64,
    /// Bytes that are there behind its end.
    added: u64,
}

impl Mutation for Extend {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut inode = (*tx.inode(self.ino).await?).clone();
        inode.length = inode.length.max(self.length);
        let occupied = inode.occupied.saturating_add(self.added);
        occupy(tx, &mut inode, occupied.min(occupied_max(self.length)).max(1));
        inode.mtime = tx.now.into();
        inode.ctime = inode.mtime;
        tx.put_inode(inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}
