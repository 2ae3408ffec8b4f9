//! Whether a file without holes has all its chunks.
//!
//! Holes are stored nowhere: of a file with holes nobody knows which chunks it should have. But an inode counts the bytes that
//! were written. Where these are all up to its end, every chunk must be there, and be as long as it can be. So what went with a
//! disk that had the only copy is told by path, until the file is restored or deleted.

use super::Findings;
use crate::contents::{Part, ask_group, is_dense};
use crate::ctx::Ctx;
use crate::recopy;
use crate::records::Inode;
use bytes::Bytes;
use std::collections::HashMap;
use strake_types::layout::Placement;
use strake_types::{ChunkIndex, Error, ErrorKind, Layout, Result};
use strake_wire::message::storage::{FileRef, StorageAnswer, StorageOp};

/// Chunks looked for in one file; of a longer one, only the first are.
const CHUNKS_MAX: u64 = 1 << 20;

/// Chunks of one kind, as a problem tells them.
#[derive(Default)]
struct Wrong {
    /// The first, and its byte in the file.
    first: Option<(u64, u64)>,
    count: u64,
}

impl Wrong {
    fn note(&mut self, index: u64, start: u64) {
        self.first.get_or_insert((index, start));
        self.count += 1;
    }

    fn tell(&self, kind: &str, what: &str, inode: &Inode, found: &mut Findings) {
        let Some((index, start)) = self.first else { return };
        let detail = format!(
            "{} of its chunks {what}, the first is {index}, at byte {start}, and all of it was written: restore it from a backup",
            self.count
        );
        found.add(kind, inode.ino, detail, false);
    }
}

/// Judges a file whose targets all live.
pub(super) async fn judge(
    ctx: &Ctx,
    inode: &Inode,
    layout: Layout,
    found: &mut Findings,
) -> Result<()> {
    // While somebody writes it, a hole that he makes is there before it is told.
    let changes = inode.cut_from.is_some() || ctx.volume.sessions.may_hold(inode.id());
    if !is_dense(inode) || changes || inode.nlink == 0 {
        return Ok(());
    }
    let placement = Placement::new(layout);
    let Some(lens) = lens(ctx, inode, &placement).await? else { return Ok(()) };
    let layout = placement.layout();
    let last = layout.chunk_at(inode.length.saturating_sub(1)).0;
    let (mut lost, mut short) = (Wrong::default(), Wrong::default());
    for index in 0..=last.min(CHUNKS_MAX) {
        let (start, bytes) = layout.chunk_bounds(ChunkIndex(index));
        let needs = bytes.min(inode.length.saturating_sub(start));
        match lens.get(&index) {
            None if needs > 0 => lost.note(index, start),
            Some(len) if *len < needs => short.note(index, start),
            _ => {}
        }
    }
    lost.tell("lost-chunk", "are not there", inode, found);
    short.tell("short-chunk", "end too early", inode, found);
    Ok(())
}

/// The lengths of the chunks that the file has where its layout puts them. `None`: its chunks are being moved.
async fn lens(
    ctx: &Ctx,
    inode: &Inode,
    placement: &Placement,
) -> Result<Option<HashMap<u64, u64>>> {
    let mut groups = placement.groups().to_vec();
    groups.sort_unstable();
    groups.dedup();
    let mut lens = HashMap::new();
    for group in groups {
        if recopy::looks_after(ctx, inode.id(), group).await? {
            return Ok(None);
        }
        let op = StorageOp::Chunks(FileRef { volume: ctx.volume.id.0, ino: inode.ino });
        let part = Part { reign: ctx.volume.reign(), ino: inode.id(), group, min_copies: 0 };
        let answer = ask_group(&ctx.core, part, op, Bytes::new()).await?;
        let Some(StorageAnswer::Chunks(list)) = answer else {
            let detail = format!("group {group} does not say which chunks it has");
            return Err(Error::with(ErrorKind::Malformed, detail));
        };
        let held = list.indices.iter().copied().zip(list.lens.iter().copied());
        lens.extend(held.filter(|(index, _)| placement.group_of(ChunkIndex(*index)) == group));
    }
    Ok(Some(lens))
}
