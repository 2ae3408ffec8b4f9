//! What is done later, by one background task: inodes without a name are deleted when nobody has
//! them open any more, cuts that were interrupted are completed, volumes that are being deleted are
//! emptied, and chunks that a file has left are deleted. All of that asks storage servers, and waits
//! for those that are away; who waits for nobody is looked after by [`crate::upkeep`].
//!
//! Nothing is lost: the work lies in the store (`G` keys, the map) and is found again after a restart.
//! What fails (a storage server is away) is tried again at a later turn. Which volumes have work is known
//! ([`crate::chores`]); now and then all are looked at, whatever is known.

mod deleted;

use crate::chores::{Old, Walked};
use crate::contents;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::locks::inodes::Held;
use crate::ops::orphan::{REPLACED_STAYS_MS, erase};
use crate::recopy;
use crate::records::Inode;
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
/// Pages of what was left before that are tried again in one turn.
const PAGES_AGAIN: usize = 16;
/// An entry may come so much later than the time that it is of: until then others behind it are looked at as new ones are.
const NEW_MS: u64 = 10_000;
/// The server that made an entry may have another clock, ahead by so much: who replaces a file of another share does it there.
const CLOCKS_APART_MS: u64 = 10_000;
/// After so many turns all volumes are looked at, whether there is something to do or not as far as is known.
const LOOK_TURNS: u64 = 60;

/// The background task.
pub(crate) async fn run(core: Arc<Core>, stop: Arc<Stop>) {
    // Side by side: a deleted volume is dropped on all targets, of which one may say nothing.
    tokio::join!(run_queues(&core, &stop), deleted::run(&core, &stop));
}

async fn run_queues(core: &Arc<Core>, stop: &Stop) {
    let tick = Duration::from_millis(core.options.tick_ms);
    for turn in 0u64.. {
        tokio::select! {
            biased;
            () = core.work.notified() => {}
            () = tokio::time::sleep(tick) => {}
            () = stop.told() => return,
        }
        let volumes = core.volumes_held();
        let all = turn.is_multiple_of(LOOK_TURNS);
        // Side by side: in one of them storage servers may be away.
        let due = volumes.iter().filter(|volume| volume.chores.begin() || all);
        join_all(due.map(|volume| work_off(core, volume, stop))).await;
        let backlog: usize = volumes.iter().map(|volume| volume.chores.left()).sum();
        core.metrics.backlog.set(backlog as f64);
        if stop.is_told() {
            return;
        }
    }
}

/// Does what there is to do in a volume.
async fn work_off(core: &Arc<Core>, volume: &Arc<Volume>, stop: &Stop) {
    let mut backlog = 0;
    for left in [reap(core, volume, stop).await, recopy::clear(core, volume).await] {
        match left {
            Ok(left) => backlog += left,
            Err(error) => {
                tracing::warn!("volume {}: {error}; trying again", volume.id);
                volume.chores.note();
            }
        }
    }
    volume.chores.end(backlog);
}

/// Goes through what is new in the queue of a volume, and a part of what was left. Returns how many entries stay.
async fn reap(core: &Arc<Core>, volume: &Arc<Volume>, stop: &Stop) -> Result<usize> {
    let prefix = keys::prefix(Kind::Queue, volume.id);
    let behind = |key: Option<&Vec<u8>>| match key {
        Some(key) => Bound::Excluded(key.clone()),
        None => Bound::Included(prefix.clone()),
    };
    let place = volume.chores.place();
    let to_end = (behind(place.looked_at.as_ref()), keys::end_of(&prefix));
    let new = walk(core, volume, to_end, usize::MAX, stop).await?;
    let again = match place.looked_at {
        Some(looked_at) => {
            let part = (behind(place.next.as_ref()), Bound::Included(looked_at));
            walk(core, volume, part, PAGES_AGAIN, stop).await?
        }
        None => Walked::default(),
    };
    tell_of_failures(volume, &new, &again);
    Ok(volume.chores.went_on(&new, &again))
}

/// Of many entries that fail one is named, and ever more seldom.
fn tell_of_failures(volume: &Volume, new: &Walked, again: &Walked) {
    let first = new.failure.as_ref().or(again.failure.as_ref());
    let is_news = volume.chores.failed(first.map(|(_, error)| error.kind));
    if let Some((ino, error)) = first.filter(|_| is_news) {
        let failed = new.failed + again.failed;
        tracing::info!(
            "volume {} inode {ino} ({failed} such inodes): {error}; trying again",
            volume.id
        );
    }
}

/// Goes through so many pages of a part of the queue of a volume.
async fn walk(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    (mut from, to): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    pages: usize,
    stop: &Stop,
) -> Result<Walked> {
    let mut walked = Walked::default();
    for nth in 1..=pages {
        if stop.is_told() {
            break;
        }
        let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
        let (start, end) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let page = snapshot.scan(start, end, PAGE).await.map_err(store_error)?;
        // What is done next asks for others.
        drop(snapshot);
        let found: Vec<_> = page.iter().filter_map(|(key, _)| keys::two_ids(key)).collect();
        attempt_all(core, volume, &found, &mut walked, stop).await?;
        let Some((last, _)) = page.last().filter(|_| page.len() == PAGE) else { break };
        if nth == pages {
            walked.stopped_at = Some(last.to_vec());
        }
        from = Bound::Excluded(last.to_vec());
    }
    Ok(walked)
}

/// Tries to do those entries of the queue whose time has come.
async fn attempt_all(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    found: &[(u64, u64)],
    walked: &mut Walked,
    stop: &Stop,
) -> Result<()> {
    let now_ms = core.wall_ms();
    if found.iter().any(|(queued_ms, _)| is_due(*queued_ms, now_ms))
        && !strake_base::is_broken("deletions-wait-for-journal")
    {
        // A name that a power loss gives back must not lead to a file without its chunks.
        volume.sync().await?;
    }
    let works = found.iter().copied().enumerate().map(|(nth, (queued_ms, ino))| {
        let work = Work { queued_ms, ino: Ino(ino), stop };
        async move { (nth, work.attempt(core, volume, now_ms).await) }
    });
    let mut done: Vec<(usize, Result<bool>)> =
        stream::iter(works).buffer_unordered(PARALLEL).collect().await;
    // In the order of the queue.
    done.sort_unstable_by_key(|(nth, _)| *nth);
    for (&(queued_ms, ino), (_, done)) in found.iter().zip(done) {
        walked.seen += 1;
        let done = done.unwrap_or_else(|error| {
            walked.failed += 1;
            walked.failure.get_or_insert((Ino(ino), error));
            false
        });
        walked.stay += usize::from(!done);
        if queued_ms.saturating_add(NEW_MS) <= now_ms {
            let key = keys::queue(volume.id, queued_ms, Ino(ino));
            walked.old = Some(Old { key, stay: walked.stay });
        }
    }
    Ok(())
}

/// True if the time of an entry has come. The wall clock may have been set back since it was made.
fn is_due(queued_ms: u64, now_ms: u64) -> bool {
    queued_ms <= now_ms || queued_ms > now_ms + REPLACED_STAYS_MS + CLOCKS_APART_MS
}

/// An entry of the queue.
struct Work<'a> {
    queued_ms: u64,
    ino: Ino,
    stop: &'a Stop,
}

impl Work<'_> {
    /// Does it, if its time has come. True if it needs no more looking after.
    async fn attempt(&self, core: &Arc<Core>, volume: &Arc<Volume>, now_ms: u64) -> Result<bool> {
        if !is_due(self.queued_ms, now_ms) || self.stop.is_told() {
            return Ok(false);
        }
        let ctx = Ctx::own(core, volume);
        let Some(_held) = self.lock(&ctx).await? else { return Ok(false) };
        let Some(inode) = self.find(&ctx).await? else {
            // Nothing to do.
            let key = keys::queue(volume.id, self.queued_ms, self.ino);
            volume.write(vec![(key, None)]).await?;
            return Ok(true);
        };
        if is_stuck(&ctx, &inode)? {
            return Ok(false);
        }
        if inode.nlink > 0 {
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

    /// The lock of the inode. Nothing where somebody has it beside whom a cut is undone: he may be waiting for its targets, and
    /// the rest of the queue would wait for him.
    async fn lock(&self, ctx: &Ctx) -> Result<Option<Held>> {
        let (locks, volume) = (&ctx.core.locks, ctx.volume.id);
        let mut held = Held::default();
        if locks.try_more(&mut held, volume, &[self.ino]) {
            return Ok(Some(held));
        }
        match self.find(ctx).await? {
            Some(inode) if inode.cut_from.is_some() => {
                is_stuck(ctx, &inode)?;
                Ok(None)
            }
            Some(_) => Ok(Some(locks.lock(volume, &[self.ino]).await)),
            // It was done, or queued anew, and will be found as it is then.
            None => Ok(None),
        }
    }

    /// The inode, unless what was queued has been done, or queued anew.
    async fn find(&self, ctx: &Ctx) -> Result<Option<Arc<Inode>>> {
        let inode = Tx::reader(ctx).find_inode(self.ino).await?;
        Ok(inode.filter(|inode| inode.queued_ms == self.queued_ms))
    }
}

/// True if a cut waits for a target that is known to be away. Who may write to the file is told again: he may have come back only
/// now, or an answer to him was lost.
fn is_stuck(ctx: &Ctx, inode: &Inode) -> Result<bool> {
    let cuts = inode.cut_from.is_some();
    let is_stuck = cuts && contents::is_away(&ctx.core, &contents::groups_to_cut(inode)?);
    if is_stuck {
        contents::tell_of_cut(ctx, inode, None);
    }
    Ok(is_stuck)
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
