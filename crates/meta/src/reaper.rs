//! What is done later, by one background task: inodes without a name are deleted when nobody has
//! them open any more, cuts that were interrupted are completed, volumes that are being deleted are
//! emptied, and chunks that a file has left are deleted. All of that asks storage servers, and waits
//! for those that are away; who waits for nobody is looked after by [`crate::upkeep`].
//!
//! Nothing is lost: the work lies in the store (`G` keys, the map) and is found again after a restart.
//! What fails (a storage server is away) is tried again at the next turn.

mod deleted;

use crate::contents;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::locks::inodes::Held;
use crate::ops::orphan::{REPLACED_STAYS_MS, erase};
use crate::recopy;
use crate::stop::Stop;
use crate::stored::store_error;
use crate::txn::{Mutation, under_locks};
use crate::view::Tx;
use crate::volume::Volume;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing};

/// Entries of the queue looked at in one go.
const PAGE: usize = 256;
/// Entries worked on at the same time.
const PARALLEL: usize = 16;

/// The background task.
pub(crate) async fn run(core: Arc<Core>, stop: Arc<Stop>) {
    // Side by side: a deleted volume is dropped on all targets, of which one may say nothing.
    tokio::join!(run_queues(&core, &stop), deleted::run(&core, &stop));
}

async fn run_queues(core: &Arc<Core>, stop: &Stop) {
    let tick = Duration::from_millis(core.options.tick_ms);
    loop {
        tokio::select! {
            biased;
            () = core.work.notified() => {}
            () = tokio::time::sleep(tick) => {}
            () = stop.told() => return,
        }
        let volumes = core.volumes_held();
        // Side by side: in one of them storage servers may be away.
        let backlogs = join_all(volumes.iter().map(|volume| work_off(core, volume, stop))).await;
        core.metrics.backlog.set(backlogs.into_iter().sum::<usize>() as f64);
        if stop.is_told() {
            return;
        }
    }
}

/// Does what there is to do in a volume; how much stays.
async fn work_off(core: &Arc<Core>, volume: &Arc<Volume>, stop: &Stop) -> usize {
    let mut backlog = 0;
    for left in [reap(core, volume, stop).await, recopy::clear(core, volume).await] {
        match left {
            Ok(left) => backlog += left,
            Err(error) => tracing::warn!("volume {}: {error}; trying again", volume.id),
        }
    }
    backlog
}

/// Goes once through the queue of a volume. Returns how many entries stay.
async fn reap(core: &Arc<Core>, volume: &Arc<Volume>, stop: &Stop) -> Result<usize> {
    let prefix = keys::prefix(Kind::Queue, volume.id);
    let end = keys::end_of(&prefix);
    let to = end.as_ref().map(Vec::as_slice);
    let mut from = Bound::Included(prefix.clone());
    let mut left = 0;
    while !stop.is_told() {
        let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
        let start = from.as_ref().map(Vec::as_slice);
        let page = snapshot.scan(start, to, PAGE).await.map_err(store_error)?;
        // What is done next asks for others.
        drop(snapshot);
        let found: Vec<_> = page.iter().filter_map(|(key, _)| keys::two_ids(key)).collect();
        let now_ms = core.wall_ms();
        let (found, later): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(queued_ms, _)| is_due(*queued_ms, now_ms));
        left += later.len();
        if !found.is_empty() && !strake_base::is_broken("deletions-wait-for-journal") {
            // A name that a power loss gives back must not lead to a file without its chunks.
            volume.sync().await?;
        }
        let works = found.into_iter().map(|(queued_ms, ino)| {
            let work = Work { queued_ms, ino: Ino(ino), stop };
            async move { work.attempt(core, volume).await }
        });
        left += stream::iter(works)
            .buffer_unordered(PARALLEL)
            .filter(|done| std::future::ready(!done))
            .count()
            .await;
        match page.last() {
            Some((last, _)) if page.len() == PAGE => from = Bound::Excluded(last.to_vec()),
            _ => break,
        }
    }
    Ok(left)
}

/// True if the time of an entry has come. The wall clock may have been set back since it was made.
fn is_due(queued_ms: u64, now_ms: u64) -> bool {
    queued_ms <= now_ms || queued_ms > now_ms + REPLACED_STAYS_MS
}

/// An entry of the queue.
struct Work<'a> {
    queued_ms: u64,
    ino: Ino,
    stop: &'a Stop,
}

impl Work<'_> {
    /// Does it, if its time has come. True if it needs no more looking after.
    async fn attempt(&self, core: &Arc<Core>, volume: &Arc<Volume>) -> bool {
        match self.carry_out(core, volume).await {
            Ok(done) => done,
            Err(error) => {
                tracing::info!("volume {} inode {}: {error}; trying again", volume.id, self.ino);
                false
            }
        }
    }

    async fn carry_out(&self, core: &Arc<Core>, volume: &Arc<Volume>) -> Result<bool> {
        if self.stop.is_told() {
            return Ok(false);
        }
        let ctx = Ctx::own(core, volume);
        let _held: Held = core.locks.lock(volume.id, &[self.ino]).await;
        let inode = Tx::reader(&ctx).find_inode(self.ino).await?;
        let Some(inode) = inode.filter(|inode| inode.queued_ms == self.queued_ms) else {
            // Nothing to do: what was queued has been done, or queued anew.
            let key = keys::queue(volume.id, self.queued_ms, self.ino);
            volume.write(vec![(key, None)]).await?;
            return Ok(true);
        };
        if inode.nlink > 0 {
            let cuts = inode.cut_from.is_some();
            if cuts && contents::is_away(core, &contents::groups_to_cut(&inode)?) {
                return Ok(false);
            }
            contents::settle_queued(&ctx, &inode).await?;
            return Ok(true);
        }
        if volume.sessions.may_hold(self.ino) {
            return Ok(false);
        }
        if inode.has_chunks() && !strake_base::is_broken("chunks-are-deleted") {
            let layout = contents::layout_of(&inode)?;
            if contents::is_away(core, &layout.slots()) {
                return Ok(false);
            }
            tokio::select! {
                deleted = contents::delete_chunks(core, volume.reign(), self.ino, &layout) => deleted?,
                () = self.stop.told() => return Ok(false),
            }
        }
        under_locks(&ctx, self).await?;
        Ok(true)
    }
}

impl Mutation for Work<'_> {
    async fn scope(&self, _ctx: &Ctx) -> Result<Vec<Ino>> {
        Ok(vec![self.ino])
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let inode = tx.inode(self.ino).await?;
        erase(tx, &inode).await?;
        Ok(MetaAnswer::Done(Nothing {}))
    }
}
