//! What targets hold, against the inodes.
//!
//! Whether chunks are missing is for [`super::lost`]; that copies differ in having one, for their comparison.

use super::{Findings, Mend, PAGE_DEFAULT, PAGE_MS_MAX, PARALLEL, inodes};
use crate::contents::{delete_chunk, is_away, layout_of};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::patience::Patience;
use crate::recopy;
use crate::records::Inode;
use crate::txn::{Mutation, mutate};
use crate::view::Tx;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_types::layout::Placement;
use strake_types::{ChunkId, Error, ErrorKind, GroupId, Ino, Result, TargetId, VolumeId};
use strake_wire::message::meta::{Check, Checked, MetaAnswer, Problem};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageRequest};

/// A chunk on a target.
#[derive(Clone, Copy)]
struct Held {
    group: GroupId,
    chunk: ChunkId,
    len: u64,
}

/// What is wrong with a chunk.
enum Wrong {
    /// Its inode does not exist, or is of a kind that has no chunks.
    Orphan,
    /// The layout puts it into another group.
    Misplaced(GroupId),
    /// The file has nothing there: it ends before that, or all of it is inside the inode. As people are told.
    PastEnd(&'static str),
    /// All that the file has is inside its inode, and its layout has nothing in the group.
    Outside,
}

/// As people are told.
const INLINE: &str = "what the file has is inside its inode";

/// Looks through a page of the chunks of a target that are of this volume.
pub(super) async fn page(ctx: &Ctx, op: &Check, mend: Option<Mend>) -> Result<Checked> {
    let volume = ctx.volume.id;
    let before = ChunkId {
        volume: VolumeId(volume.0.saturating_sub(1)),
        ino: Ino(u64::MAX),
        index: u64::MAX.into(),
    };
    let after = match op.after.is_empty() {
        true => before.into(),
        false => msg::Chunk::decode(op.after.clone())
            .map_err(|_| Error::with(ErrorKind::Malformed, "a cursor that is none"))?,
    };
    let list = StorageOp::Census(msg::DigestsAfter { after: Some(after) });
    let StorageAnswer::Census(census) = ask(ctx, op.target, GroupId(0), volume, list).await? else {
        return Err(nonsense(op.target));
    };
    let next = census.next.filter(|next| next.volume <= volume.0);
    let next: Bytes = next.map(|next| next.encode_to_vec().into()).unwrap_or_default();
    let held = census.chunks.iter().zip(&census.groups).zip(&census.lens);
    let held = held.filter(|((chunk, _), _)| chunk.volume == volume.0);
    let held = held.map(|((chunk, group), len)| Held {
        group: GroupId(*group),
        chunk: (*chunk).into(),
        len: *len,
    });
    let held: Vec<Held> = held.collect();
    let until_ms = ctx.core.monotonic_ms() + PAGE_MS_MAX;
    let (first, suspects) = (held.first(), suspects(ctx, op.target, &held).await?);
    let first = first.map_or(Ino(0), |first| first.chunk.ino);
    let (problems, last) = settle_all(ctx, op.target, (first, suspects), mend, until_ms).await?;
    let mut checked = Checked { next, looked_at: held.len() as u64, problems };
    if let Some(ino) = last {
        let after = ChunkId { volume, ino, index: u64::MAX.into() };
        checked.next = msg::Chunk::from(after).encode_to_vec().into();
        checked.looked_at = held.iter().filter(|held| held.chunk.ino <= ino).count() as u64;
    }
    Ok(checked)
}

/// Settles chunks of a page that seem wrong, some at the same time; `first`: the first file of the page. With the last file
/// that was looked at, if time was up before all were. Where one fails no other is begun: what was settled is told, and what was
/// not; if there is nothing to tell, it fails. Where that may pass the page ends before its file, unless it is the first.
async fn settle_all(
    ctx: &Ctx,
    target: u32,
    (first, suspects): (Ino, Vec<Held>),
    mend: Option<Mend>,
    until_ms: u64,
) -> Result<(Vec<Problem>, Option<Ino>)> {
    let (all, mut last) = (suspects.len(), suspects.first().map(|first| first.chunk.ino));
    let failed = &AtomicBool::new(false);
    // What was begun is ended, also when another one fails: what is mended is told, and nothing is left half-way.
    let begun = suspects.into_iter().map_while(|suspect| {
        let ino = Some(suspect.chunk.ino);
        // A cursor of the store within a file is not known here.
        let is_late = ino != last && ctx.core.monotonic_ms() >= until_ms;
        if is_late || failed.load(Ordering::Relaxed) {
            return None;
        }
        last = ino;
        Some(suspect)
    });
    let settled = stream::iter(begun).map(|suspect| async move {
        let settled = settle(ctx, target, suspect, mend).await;
        failed.fetch_or(settled.is_err(), Ordering::Relaxed);
        (suspect, settled)
    });
    let settled: Vec<_> = settled.buffered(PARALLEL).collect().await;
    let is_cut_short = settled.len() < all;
    let failure = settled.iter().find_map(|(suspect, settled)| {
        let error = settled.as_ref().err()?;
        Some((*suspect, error.clone()))
    });
    let again = failure.as_ref().and_then(|(suspect, error)| {
        (error.is_passing() && suspect.chunk.ino > first).then_some(suspect.chunk.ino)
    });
    let mut problems = Vec::new();
    for (suspect, found) in settled {
        // What stays as it is the next page finds once more.
        let is_last = again.is_none_or(|again| suspect.chunk.ino < again);
        let found = found.unwrap_or_default().into_iter();
        problems.extend(found.filter(|problem| is_last || problem.mended));
    }
    match failure {
        Some((_, error)) if problems.is_empty() => return Err(error),
        Some((suspect, error)) if again.is_none() => {
            problems.extend(not_settled(target, suspect, last, &error));
        }
        _ => {}
    }
    let before = again.map(|Ino(again)| Ino(again - 1));
    Ok((problems, before.or(last.filter(|_| is_cut_short))))
}

/// Says that chunks from one on were not settled, up to those of the last file that was looked at.
fn not_settled(target: u32, from: Held, last: Option<Ino>, error: &Error) -> Vec<Problem> {
    let Held { group, chunk, .. } = from;
    let detail = format!(
        "chunks on target {target}, from chunk {} of it in group {group} to those of inode {}, were not all \
         looked at: {error}",
        chunk.index,
        last.unwrap_or(chunk.ino)
    );
    let mut found = Findings::default();
    found.add(inodes::AWAY, chunk.ino.0, detail, false);
    found.problems
}

/// Chunks that seem wrong, all by one view of the inodes.
async fn suspects(ctx: &Ctx, target: u32, held: &[Held]) -> Result<Vec<Held>> {
    let (mut reader, mut suspects) = (Tx::reader(ctx), Vec::new());
    let mut inodes: Vec<Ino> = held.iter().map(|held| held.chunk.ino).collect();
    inodes.dedup();
    for inodes in inodes.chunks(PAGE_DEFAULT) {
        // What fails here does so once more where it is asked for by itself.
        let _ = reader.look_for_inodes(inodes).await;
    }
    for &held in held {
        if is_current(&ctx.core, target, held.group) && wrong(&mut reader, held).await?.is_some() {
            suspects.push(held);
        }
    }
    Ok(suspects)
}

/// Judges a chunk that seems wrong by how all is now, and tells and mends what is.
async fn settle(ctx: &Ctx, target: u32, held: Held, mend: Option<Mend>) -> Result<Vec<Problem>> {
    let mut found = Findings::default();
    if let Some(wrong) = judge(ctx, held).await?
        // It may have been deleted with its file.
        && has(ctx, target, held.group, held.chunk).await?
        && judge(ctx, held).await?.is_some()
    {
        tell(ctx, target, held, wrong, mend, &mut found).await?;
    }
    Ok(found.problems)
}

fn nonsense(target: u32) -> Error {
    Error::with(ErrorKind::Malformed, format!("target {target} answers something else"))
}

async fn ask(
    ctx: &Ctx,
    target: u32,
    group: GroupId,
    volume: VolumeId,
    op: StorageOp,
) -> Result<StorageAnswer> {
    let core = &ctx.core;
    let volume = if let StorageOp::Census(_) = op { VolumeId(0) } else { volume };
    let request = StorageRequest {
        target,
        group: group.0,
        capability: core.key.mint_own(volume, Ino(0)),
        op: Some(op),
        ..StorageRequest::default()
    };
    let (reply, _) = core.map.storage_of(TargetId(target))?.call(request, Bytes::new()).await?;
    reply.answer.ok_or_else(|| nonsense(target))
}

/// True if the target answers for the group now. What another one has of it is made equal or dropped
/// by the group itself.
fn is_current(core: &Arc<Core>, target: u32, group: GroupId) -> bool {
    let map = core.map.current();
    map.group(group).is_some_and(|group| group.in_sync().contains(&target))
}

async fn judge(ctx: &Ctx, held: Held) -> Result<Option<Wrong>> {
    // What is copied, or is left after that, is looked after. This is asked first: whoever ends it
    // meanwhile has written the inode before.
    if recopy::looks_after(ctx, held.chunk.ino, held.group).await? {
        return Ok(None);
    }
    wrong(&mut Tx::reader(ctx), held).await
}

/// What is wrong with a chunk by its inode, unless it is looked after.
async fn wrong(tx: &mut Tx<'_>, held: Held) -> Result<Option<Wrong>> {
    let volume = &tx.ctx.volume;
    // Before the inode: who cuts it has marked that before he forgets this.
    let is_refused = volume.refused.has(held.chunk.ino);
    let inode = match tx.find_inode(held.chunk.ino).await {
        Ok(Some(inode)) => inode,
        Ok(None) => return Ok(Some(Wrong::Orphan)),
        // Found by itself; whatever it was, it may have had this chunk.
        Err(error) if error.kind == ErrorKind::Corrupt => return Ok(None),
        Err(error) => return Err(error),
    };
    if !inode.is_file() {
        return Ok(Some(Wrong::Orphan));
    }
    if inode.nlink == 0 {
        return Ok(None);
    }
    // Who has it open may go on with chunks, although a loss of power has taken that back. What was refused is cut then.
    let used = || is_refused || volume.sessions.may_hold(inode.id());
    let has_group = || layout_of(&inode).is_ok_and(|layout| layout.slots().contains(&held.group));
    if inode.inline && !has_group() {
        return Ok((!used()).then_some(Wrong::Outside));
    }
    // While its contents move out of the inode, or wait to be cut there, chunks may be ahead of it.
    if inode.is_to_be_cut_in(held.group) {
        return Ok(None);
    }
    if inode.inline {
        return Ok((!used()).then_some(Wrong::PastEnd(INLINE)));
    }
    // An inode without a layout is found by itself.
    let Ok(layout) = layout_of(&inode) else { return Ok(None) };
    let (start, _) = layout.chunk_bounds(held.chunk.index);
    let right = Placement::new(layout).group_of(held.chunk.index);
    if right != held.group {
        return Ok(Some(Wrong::Misplaced(right)));
    }
    let is_past = start >= inode.length;
    let why = "the file ends before it";
    Ok((held.len > 0 && is_past && !used()).then_some(Wrong::PastEnd(why)))
}

/// True if a target has a chunk in a group.
async fn has(ctx: &Ctx, target: u32, group: GroupId, chunk: ChunkId) -> Result<bool> {
    let (volume, index) = (ctx.volume.id, chunk.index.0);
    let of = msg::ChunksOf { volume: volume.0, ino: chunk.ino.0, from: index, max: 1 };
    match ask(ctx, target, group, volume, StorageOp::Chunks(of)).await {
        Ok(StorageAnswer::Chunks(page)) => Ok(page.indices.first() == Some(&index)),
        Ok(_) => Err(nonsense(target)),
        // This copy may not answer just now; the group's others will.
        Err(error) if error.advice() != strake_types::error::Advice::GiveUp => Ok(false),
        Err(error) => Err(error),
    }
}

/// The chunks that a target has of a file in a group, by their indices. Each page is waited for by itself.
pub(super) async fn listed(
    ctx: &Ctx,
    target: TargetId,
    group: GroupId,
    ino: Ino,
    patience: &Patience,
) -> Result<Vec<u64>> {
    let volume = ctx.volume.id;
    let mut pages = msg::ChunkPages::of(volume.0, ino.0, 0..=u64::MAX);
    while let Some(of) = pages.wanted() {
        let asked = ask(ctx, target.0, group, volume, StorageOp::Chunks(of));
        match patience.ask(&ctx.core, target, asked).await? {
            StorageAnswer::Chunks(page) => pages.add(page),
            _ => return Err(nonsense(target.0)),
        }
    }
    Ok(pages.found().indices)
}

/// Tells what is wrong, and mends it.
async fn tell(
    ctx: &Ctx,
    target: u32,
    held: Held,
    wrong: Wrong,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let (ino, index) = (held.chunk.ino, held.chunk.index);
    let place = format!("chunk {index} in group {} on target {target}", held.group);
    // Whoever leads the group, which may be another target than the one asked, is to take the changes. Else each would be
    // waited for in vain; and a file that is to be cut is opened by nobody before that.
    let mend = mend.filter(|_| !is_away(&ctx.core, &[held.group]));
    match wrong {
        Wrong::Orphan => {
            if mend.is_some() {
                delete_chunk(&ctx.core, ctx.volume.reign().since, held.chunk, held.group).await?;
            }
            let detail = format!("{place}: no file has it");
            found.add("orphaned-chunk", ino.0, detail, mend.is_some());
        }
        Wrong::Misplaced(right) => {
            // Nothing begins to copy the file while its lock is held.
            let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
            if judge(ctx, held).await?.is_none() {
                return Ok(());
            }
            let primary = ctx.core.map.primary_of(right)?.0;
            let twice = has(ctx, primary.0, right, held.chunk).await?;
            if mend.is_some() && twice {
                delete_chunk(&ctx.core, ctx.volume.reign().since, held.chunk, held.group).await?;
            }
            let other = if twice { "which has it, too" } else { "which does not have it" };
            let detail = format!("{place}: the layout puts it into group {right}, {other}");
            found.add("misplaced-chunk", ino.0, detail, mend.is_some() && twice);
        }
        Wrong::PastEnd(why) => {
            // Nobody writes there before it is done: a server that stood still would cut what was written meanwhile.
            let is_cut = mend.is_some() && cut_again(ctx, ino, held.group).await?;
            let detail = format!("{place}: {why}");
            found.add("chunk-past-end", ino.0, detail, is_cut);
        }
        Wrong::Outside => {
            // Its layout stays while its lock is held.
            let _held = ctx.core.locks.lock(ctx.volume.id, &[ino]).await;
            if !matches!(judge(ctx, held).await?, Some(Wrong::Outside)) {
                return Ok(());
            }
            // A cut would not come here, nor would what is written to the file later.
            if mend.is_some() {
                delete_chunk(&ctx.core, ctx.volume.reign().since, held.chunk, held.group).await?;
            }
            let detail = format!("{place}: {INLINE}");
            found.add("chunk-past-end", ino.0, detail, mend.is_some());
        }
    }
    Ok(())
}

/// Has what a file has in a group cut at its end once more. False: somebody has come to use it.
pub(super) async fn cut_again(ctx: &Ctx, ino: Ino, group: GroupId) -> Result<bool> {
    let answer = mutate(&ctx.system(), &CutAgain { ino, group }).await?;
    Ok(matches!(answer, MetaAnswer::Checked(Checked { looked_at: 1, .. })))
}

/// The same, as a change: it has looked at 1 file, or at none that is in use. Whoever opens the file waits for no other group.
struct CutAgain {
    ino: Ino,
    group: GroupId,
}

impl Mutation for CutAgain {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let of = |looked_at| Ok(MetaAnswer::Checked(Checked { looked_at, ..Checked::default() }));
        if tx.ctx.volume.sessions.may_hold(self.ino) {
            return of(0);
        }
        // What has gone meanwhile takes its chunks along.
        let Some(inode) = tx.find_inode(self.ino).await? else { return of(1) };
        if inode.is_to_be_cut_in(self.group) {
            // It is about to be cut by itself.
            return of(1);
        }
        let mut inode: Inode = (*inode).clone();
        inode.cut_from = inode.cut_from.or(Some(inode.length));
        inode.cut_groups.push(self.group.0);
        tx.enqueue(&mut inode).await?;
        tx.put_unseen(inode).await?;
        of(1)
    }
}
