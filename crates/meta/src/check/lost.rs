//! Chunks that went with a disk that had the only copy.
//!
//! A chunk that is missing everywhere cannot be told from a hole: neither is stored. But a group knows when it last lost
//! something for good. What it has not of a file that is older was there then, or was a hole.

use super::{Findings, chunks};
use crate::ctx::Ctx;
use crate::recopy;
use crate::records::Inode;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Result};

/// Chunks of a file that are looked for: of a longer one, those at its beginning.
const CHUNKS_MAX: u64 = 1 << 20;
/// How long a group may take to say which chunks it has.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Judges a file whose targets all live.
pub(super) async fn judge(
    ctx: &Ctx,
    inode: &Inode,
    placement: &Placement,
    found: &mut Findings,
) -> Result<()> {
    let birth_ms = inode.btime.seconds.saturating_mul(1000);
    let is_older = |lost_ms: u64| i64::try_from(lost_ms).is_ok_and(|lost| birth_ms < lost);
    let map = ctx.core.map.current();
    let lost = map.groups.iter().filter(|group| is_older(group.lost_ms)).map(|group| group.id);
    let lost: HashSet<u32> = lost.collect();
    if lost.is_empty() || inode.cut_from.is_some() || inode.nlink == 0 {
        return Ok(());
    }
    let last = placement.layout().chunk_at(inode.length.saturating_sub(1)).0;
    let mut expected: BTreeMap<GroupId, Vec<u64>> = BTreeMap::new();
    for index in 0..=last.min(CHUNKS_MAX) {
        let group = placement.group_of(ChunkIndex(index));
        if lost.contains(&group.0) {
            expected.entry(group).or_default().push(index);
        }
    }
    for (group, indices) in expected {
        if recopy::looks_after(ctx, inode.id(), group).await? {
            continue;
        }
        let held: HashSet<u64> = match held_in(ctx, inode, group).await {
            Ok(held) => held.into_iter().collect(),
            Err(error) => {
                let detail =
                    format!("whether its chunks in group {group} are there is not known: {error}");
                found.add("chunks-away", inode.ino, detail, false);
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
    Ok(())
}

/// The chunks of a file that whoever leads a group has.
async fn held_in(ctx: &Ctx, inode: &Inode, group: GroupId) -> Result<Vec<u64>> {
    let (primary, _) = ctx.core.map.primary_of(group)?;
    let listed = chunks::listed(ctx, primary.0, group, inode.id());
    let late = |_| Error::with(ErrorKind::TimedOut, format!("group {group} does not answer"));
    tokio::time::timeout(LOOK_MAX, listed).await.map_err(late)?
}
