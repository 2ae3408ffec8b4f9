//! What targets have behind the ends of files because the metadata store was full. Their writers were told so (ENOSPC): it is no
//! part of the file, and is cut.
//!
//! Who else writes to a file may have bytes there that he is about to tell. So that is done only by a background task where nobody
//! may have the file open, and where its length is set and nobody else may write to it ([`crate::contents::set_length`]). Which
//! files these are is known in memory only ([`crate::refused`]): what a server that stops forgets `strake fsck` finds (S-053).

use crate::contents::{MarkCut, finish_cut, is_away, layout_of};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::lengths::has_past_end;
use crate::locks::inodes::Held;
use crate::patience::Patience;
use crate::stop::Stop;
use crate::stored::store_error;
use crate::txn::{mutate, under_locks};
use crate::view::Tx;
use crate::volume::Volume;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Publish};

/// Files of a volume that are looked at in one turn.
const TURN_FILES: usize = 256;
/// How long an answer of a target may take.
const TARGET_WAIT: Duration = Duration::from_secs(1);
/// How long all that targets say of a file may take, and whoever opens it waits: longer than one answer, or one that says nothing
/// would never be noted as such.
const FILE_WAIT: Duration = Duration::from_secs(2);
/// How long one that took longer is not asked: it is waited for with one file, and not with each.
const SILENT_MS: u64 = 60_000;

/// A client tells what it has written to chunks.
pub(crate) async fn publish(ctx: &Ctx, op: &Publish) -> Result<MetaAnswer> {
    let told = mutate(ctx, op).await;
    let is_refused = told.as_ref().is_err_and(|error| error.kind == ErrorKind::NoSpace);
    if is_refused && ctx.volume.refused.note(Ino(op.ino)) {
        tracing::warn!(
            "volume {}: very many writes have failed for want of room for metadata; what others leave behind the ends of \
             files is not remembered: strake fsck --repair cuts it",
            ctx.volume.id
        );
    }
    told
}

/// The background task. One of its own: it waits for what others do in the background as little as they for it.
pub(crate) async fn run(core: Arc<Core>, stop: Arc<Stop>) {
    let tick = Duration::from_millis(core.options.tick_ms);
    let patience = Patience::new(TARGET_WAIT, SILENT_MS);
    loop {
        tokio::select! {
            biased;
            () = stop.told() => return,
            () = tokio::time::sleep(tick) => {}
        }
        let volumes = core.volumes_held();
        join_all(volumes.iter().map(|volume| cut_some(&core, volume, &patience, &stop))).await;
    }
}

/// Cuts some files of a volume. Where one is marked in vain the others come later: the store would refuse them as well.
async fn cut_some(core: &Arc<Core>, volume: &Arc<Volume>, patience: &Patience, stop: &Stop) {
    let ctx = &Ctx::own(core, volume);
    for ino in volume.refused.next(TURN_FILES) {
        // One that is marked by then is cut after the next start.
        let cut = tokio::select! {
            biased;
            () = stop.told() => return,
            cut = cut_unused(ctx, ino, patience) => cut,
        };
        if let Err(error) = cut {
            tracing::debug!("volume {} inode {ino}: cannot be cut at its end: {error}", volume.id);
            return;
        }
    }
}

/// Cuts a file, unless somebody uses it, or a target of it is away or says nothing.
async fn cut_unused(ctx: &Ctx, ino: Ino, patience: &Patience) -> Result<()> {
    let volume = &ctx.volume;
    let mut held = Held::default();
    // Whoever has its lock may wait for storage servers.
    let is_free = ctx.core.locks.try_more(&mut held, volume.id, &[ino]);
    // What a recopy takes along would be there again.
    let is_used = || volume.sessions.may_hold(ino) || volume.recopies.is_active(ino);
    if !is_free || !volume.refused.has(ino) || is_used() {
        return Ok(());
    }
    let inode = Tx::reader(ctx).find_inode(ino).await?;
    // There is nothing where a file has gone.
    let Some(inode) = inode.filter(|inode| inode.nlink > 0 && !inode.inline) else {
        volume.refused.forget(ino);
        return Ok(());
    };
    // What is to be cut already comes first.
    if inode.cut_from.is_some() || is_away(&ctx.core, &layout_of(&inode)?.slots()) {
        return Ok(());
    }
    // Whoever opens a file that is marked waits until all its targets have cut it: before that they show that they answer, if not
    // that their disks take a change.
    match has_past_end(ctx, &inode, patience, FILE_WAIT).await {
        Ok(true) => {
            volume.kv.check_room().map_err(store_error)?;
            under_locks(ctx, &MarkCut { ino, from: inode.length }).await?;
            finish_cut(ctx, ino).await?;
        }
        Ok(false) => {}
        Err(error) => {
            tracing::debug!("volume {} inode {ino}: is not cut at its end: {error}", volume.id);
            return Ok(());
        }
    }
    volume.refused.forget(ino);
    Ok(())
}

#[cfg(test)]
mod tests;
