//! What a file says that it occupies, against what its targets hold. A program that is told that a file occupies nothing
//! takes it for a hole.
//!
//! Only files that say so are looked at. What others say may be less than the truth, too: what was written into holes is
//! counted in the background, and where very many files wait for that some are not. Nothing comes of that but a wrong `du`.
//!
//! Targets may take long to answer: they are asked with no lock held and no snapshot kept, and what they hold counts if
//! the file is then as it was before.

use super::{Findings, Mend, inodes};
use crate::contents::{is_away, layout_of};
use crate::ctx::Ctx;
use crate::occupied::{held, lock_unchanged, set};
use crate::patience::Patience;
use crate::view::Tx;
use strake_types::{Ino, Result};

/// Judges a file, and counts what it occupies.
pub(super) async fn judge(
    ctx: &Ctx,
    ino: Ino,
    mend: Option<Mend>,
    patience: &Patience,
) -> Result<Findings> {
    let mut found = Findings::default();
    let before = Tx::reader(ctx).find_inode(ino).await?;
    let Some(inode) = before.filter(|inode| inode.seems_empty()) else { return Ok(found) };
    // A file without a layout is found by itself.
    let Ok(layout) = layout_of(&inode) else { return Ok(found) };
    let waits = inode.cut_from.is_some() || is_under_way(ctx, ino);
    if waits || is_away(&ctx.core, &layout.slots()) {
        return Ok(found);
    }
    // Of targets that do not answer their chunks are told as not looked at.
    let Ok(held) = held(ctx, &inode, patience).await else {
        if patience.is_over(&ctx.core) {
            let detail = "what it occupies is not known: targets have taken too long for others";
            found.add(inodes::AWAY, ino.0, detail.to_owned(), false);
        }
        return Ok(found);
    };
    if held == 0 {
        return Ok(found);
    }
    let lock = lock_unchanged(ctx, ino, Some(&inode)).await?;
    if lock.is_none() || is_under_way(ctx, ino) {
        return Ok(found);
    }
    if mend.is_some() {
        set(ctx, ino, held).await?;
    }
    let detail = format!("it says that it occupies nothing, and targets hold {held} bytes");
    found.add("wrong-occupied", ino.0, detail, mend.is_some());
    Ok(found)
}

/// Somebody writes to it, or it is counted soon, or it is not known yet which files are to be.
fn is_under_way(ctx: &Ctx, ino: Ino) -> bool {
    let volume = &ctx.volume;
    volume.sessions.may_write(ino) || volume.uncounted.has(ino) || !volume.counts.is_exact()
}
