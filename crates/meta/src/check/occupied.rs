//! What a file says that it occupies, against what its targets hold. A program that is told that a file occupies nothing
//! takes it for a hole.
//!
//! Only files that seem to have holes are looked at: others cannot hold more than they say. Less they may hold, where two
//! clients wrote the same or a target has lost what nobody had synced, and nothing comes of that.

use super::{Findings, Mend};
use crate::contents::{is_away, layout_of, occupy};
use crate::ctx::Ctx;
use crate::occupied::held;
use crate::records::Inode;
use crate::view::Tx;
use strake_types::{Ino, Result};

/// Judges a file.
pub(super) async fn judge(
    tx: &mut Tx<'_>,
    inode: &mut Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let (ctx, ino) = (tx.ctx, inode.id());
    if !inode.is_sparse() || inode.cut_from.is_some() || is_under_way(ctx, ino) {
        return Ok(());
    }
    let Ok(layout) = layout_of(inode) else { return Ok(()) };
    if is_away(&ctx.core, &layout.slots()) {
        return Ok(());
    }
    // Of targets that do not answer their chunks are told as not looked at.
    let Ok(held) = held(ctx, inode).await else { return Ok(()) };
    if held <= inode.occupied || is_under_way(ctx, ino) {
        return Ok(());
    }
    let said = inode.occupied;
    if mend.is_some() {
        occupy(tx, inode, held);
    }
    let detail = format!("it says that it occupies {said} bytes, and targets hold {held}");
    found.add("wrong-occupied", inode.ino, detail, mend.is_some());
    Ok(())
}

/// Somebody writes to it, or it is counted soon, or it is not known yet which files are to be.
fn is_under_way(ctx: &Ctx, ino: Ino) -> bool {
    let volume = &ctx.volume;
    volume.sessions.may_write(ino) || volume.uncounted.has(ino) || !volume.counts.is_exact()
}
