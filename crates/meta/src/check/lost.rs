//! Chunks that went with a disk that had the only copy.
//!
//! A chunk that is missing everywhere cannot be told from a hole: neither is stored. But a group knows when it last lost
//! something for good. What it has not of a file that is older was there then, or was a hole.

use super::{Findings, chunks, inodes};
use crate::borrow::lock_here;
use crate::contents::layout_of;
use crate::ctx::Ctx;
use crate::patience::Patience;
use crate::recopy;
use crate::records::Inode;
use crate::view::Tx;
use std::collections::{BTreeMap, HashSet};
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, GroupId, Ino, Result};

/// Chunks of a file that are looked for: of a longer one, those at its beginning.
const CHUNKS_MAX: u64 = 1 << 20;
/// How often a file that lacks chunks is looked at anew if it has changed meanwhile.
const TRIES_MAX: u32 = 4;

/// True for a file that has chunks in a group which has lost something since the file was made.
pub(super) fn may_lack(ctx: &Ctx, inode: &Inode) -> bool {
    if !inode.is_file() || inode.inline || inode.length == 0 || inode.nlink == 0 {
        return false;
    }
    let lost = lost_since(ctx, inode);
    // What waits to be cut need not be there.
    if lost.is_empty() || inode.cut_from.is_some() {
        return false;
    }
    // A file without a layout is found by itself.
    layout_of(inode).is_ok_and(|layout| layout.slots().iter().any(|group| lost.contains(group)))
}

/// The groups that have lost something since a file was made.
fn lost_since(ctx: &Ctx, inode: &Inode) -> HashSet<GroupId> {
    let birth_ms = inode.btime.seconds.saturating_mul(1000);
    let is_older = |lost_ms: u64| i64::try_from(lost_ms).is_ok_and(|lost| birth_ms < lost);
    let map = ctx.core.map.current();
    let lost = map.groups.iter().filter(|group| is_older(group.lost_ms));
    lost.map(|group| GroupId(group.id)).collect()
}

/// Judges a file without its lock: what it lacks counts if it is then as it was before. With its lock only if it has changed
/// each time.
pub(super) async fn judge(ctx: &Ctx, ino: Ino, patience: &Patience) -> Result<Findings> {
    for turn in 1..=TRIES_MAX {
        // Somebody may change it again and again, but not the last time.
        let _lock = match turn == TRIES_MAX {
            true => Some(lock_here(ctx, &[ino]).await?),
            false => None,
        };
        let before = Tx::reader(ctx).find_inode(ino).await?;
        let Some(before) = before.filter(|inode| may_lack(ctx, inode)) else { break };
        let found = look(ctx, &before, patience).await?;
        if found.problems.is_empty() || Tx::reader(ctx).find_inode(ino).await? == Some(before) {
            return Ok(found);
        }
    }
    Ok(Findings::default())
}

/// Looks for the chunks of a file in the groups that have lost something.
async fn look(ctx: &Ctx, inode: &Inode, patience: &Patience) -> Result<Findings> {
    let mut found = Findings::default();
    let (lost, placement) = (lost_since(ctx, inode), Placement::new(layout_of(inode)?));
    let last = placement.layout().chunk_at(inode.length.saturating_sub(1)).0;
    let mut expected: BTreeMap<GroupId, Vec<u64>> = BTreeMap::new();
    for index in 0..=last.min(CHUNKS_MAX) {
        let group = placement.group_of(ChunkIndex(index));
        if lost.contains(&group) {
            expected.entry(group).or_default().push(index);
        }
    }
    for (group, indices) in expected {
        if recopy::looks_after(ctx, inode.id(), group).await? {
            continue;
        }
        let held: HashSet<u64> = match held_in(ctx, inode, group, patience).await {
            Ok(held) => held.into_iter().collect(),
            Err(error) => {
                let detail =
                    format!("whether its chunks in group {group} are there is not known: {error}");
                found.add(inodes::AWAY, inode.ino, detail, false);
                continue;
            }
        };
        let missing: Vec<u64> = indices.into_iter().filter(|nth| !held.contains(nth)).collect();
        if let Some(first) = missing.first() {
            let (start, _) = placement.layout().chunk_bounds(ChunkIndex(*first));
            let detail = format!(
                "group {group} has lost what it had, and {} of its chunks are not there, the first is {first}, at byte \
                 {start}: restore it from a backup, or, if it has holes there, copy it",
                missing.len()
            );
            found.add("lost-chunk", inode.ino, detail, false);
        }
    }
    Ok(found)
}

/// The chunks of a file that whoever leads a group has.
async fn held_in(
    ctx: &Ctx,
    inode: &Inode,
    group: GroupId,
    patience: &Patience,
) -> Result<Vec<u64>> {
    let (primary, _) = ctx.core.map.primary_of(group)?;
    chunks::listed(ctx, primary, group, inode.id(), patience).await
}
