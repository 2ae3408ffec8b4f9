//! Chunks that no layout names, until they are deleted, and what lost clients may still use.

use crate::contents::{delete_chunks, is_away};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::records::{self, Inode, LostUse, Spare};
use crate::session::Session;
use crate::stored::{scan, store_error};
use crate::view::Tx;
use crate::volume::Volume;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_types::limits::OLD_PLACE_MS;
use strake_types::{Consistency, GroupId, Ino, Layout, Result};

/// After a copying of which nobody knows the end, chunks are deleted a second time so much later:
/// longer than a request to a storage server can be under way.
pub(super) const QUIET_MS: u64 = 600_000;
// And than anybody reads by where a file was.
const _: () = assert!(QUIET_MS >= 5 * OLD_PLACE_MS);

/// So much time is between two looks whether what lost clients may still use is over.
const FORGET_MS: u64 = 600_000;
/// Files whose chunks are deleted at the same time.
const PARALLEL: usize = 16;
/// Stands for every file of the volume.
const ANY: Ino = Ino(0);

/// The chunks of a file that are to go, if there are any.
pub(super) async fn find(ctx: &Ctx, ino: Ino) -> Result<Option<Spare>> {
    Tx::reader(ctx).get(&keys::spare(ctx.volume.id, ino)).await
}

/// True if chunks of a file in a group are being copied, or on their way out.
pub(crate) async fn looks_after(ctx: &Ctx, ino: Ino, group: GroupId) -> Result<bool> {
    let Some(spare) = find(ctx, ino).await? else { return Ok(false) };
    Ok(Layout::try_from(spare.layout)?.slots().contains(&group))
}

/// Before a session that was not heard of any more is ended: its client may live, and use what it
/// had open as long as its capabilities last. What a client had open that did not come back after a
/// restart is not known.
pub(crate) async fn note_lost(core: &Core, volume: &Volume, session: &Session) -> Result<()> {
    let used = match session.is_absent() {
        true => vec![ANY],
        false => volume.sessions.held(session),
    };
    let until_ms = core.wall_ms() + core.options.capability_ms;
    let value = records::encode(&LostUse { until_ms });
    let writes = used.into_iter().map(|ino| (keys::lost(volume.id, ino), Some(value.clone())));
    volume.write_many(writes.collect()).await
}

/// Why a file must stay where it is, if it must: somebody has it open, or may have, who would go on by what he knows.
pub(super) async fn in_use(ctx: &Ctx, inode: &Inode) -> Result<Option<String>> {
    let (ino, sessions) = (inode.id(), &ctx.volume.sessions);
    let unleased = inode.consistency() == Consistency::Parallel;
    // Before those who are here: who has just come back is among them. And these before what is remembered of lost clients:
    // one that is just being ended is in one of the two.
    let is_unknown = sessions.is_unknown(ino);
    let staying = sessions.staying(ino, unleased);
    if !staying.is_empty() {
        let mut names: Vec<&str> = staying.iter().map(|session| &*session.client).collect();
        names.sort_unstable();
        names.dedup();
        ctx.volume.leases.recall(ino, &*ctx.core.clock);
        return Ok(Some(format!("open by {}", names.join(", "))));
    }
    if is_unknown {
        let why = "clients have not come back since the metadata server started";
        return Ok(Some(why.to_owned()));
    }
    let now_ms = ctx.core.wall_ms();
    let mut tx = Tx::reader(ctx);
    for about in [ino, ANY] {
        let lost: Option<LostUse> = tx.get(&keys::lost(ctx.volume.id, about)).await?;
        if let Some(left_ms) = lost.and_then(|lost| lost.until_ms.checked_sub(now_ms)) {
            let minutes = left_ms / 60_000 + 1;
            return Ok(Some(format!(
                "a client that was lost may still use it, for {minutes} minutes at most"
            )));
        }
    }
    Ok(None)
}

/// Deletes chunks that are to go. Returns how many files have some left.
pub(crate) async fn clear(core: &Arc<Core>, volume: &Arc<Volume>) -> Result<usize> {
    forget_lost(core, volume).await?;
    let now_ms = core.wall_ms();
    let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
    let (mut due, mut left, mut ahead, mut kept) = (Vec::new(), 0, Vec::new(), Vec::new());
    scan(&*snapshot, &keys::prefix(Kind::Spare, volume.id), |key, value| {
        let ino = Ino(keys::last_id(key).ok_or_else(|| records::corrupt(key, "has no id"))?);
        let spare: Spare = records::decode(key, value)?;
        left += 1;
        kept.extend((spare.again_ms > 0).then_some((ino, spare.again_ms)));
        if spare.again_ms <= now_ms {
            due.push((ino, spare.again_ms));
        } else if spare.again_ms > now_ms + QUIET_MS {
            // The clock was put back since: the time begins anew.
            let again = Spare { again_ms: now_ms + QUIET_MS, ..spare };
            ahead.push((key.to_vec(), Some(records::encode(&again))));
        }
        Ok(())
    })
    .await?;
    drop(snapshot);
    if !ahead.is_empty() {
        volume.write_many(ahead).await?;
    }
    volume.recopies.keep(&kept, core.monotonic_ms());
    due.retain(|(ino, again_ms)| may_go(core, volume, *ino, *again_ms));
    if due.is_empty() {
        return Ok(left);
    }
    // What a power loss may still take back must not be believed: the layout that was left would be
    // in force again, without chunks.
    volume.sync().await?;
    // Another one is first each time: a group that is away holds up nobody for ever.
    let first = now_ms as usize % due.len();
    due.rotate_left(first);
    for some in due.chunks(PARALLEL) {
        let deleted = join_all(some.iter().map(|(ino, _)| attempt(core, volume, *ino))).await;
        left -= deleted.iter().filter(|done| **done == Some(true)).count();
        // Each failure may have taken its time, and others wait for this task.
        if deleted.contains(&None) {
            break;
        }
    }
    Ok(left)
}

/// True if chunks of a file need not stay any more: the time is over that is stored, and it was not only the clock that was set.
/// After a restart it begins anew here.
fn may_go(core: &Core, volume: &Volume, ino: Ino, again_ms: u64) -> bool {
    let recopies = &volume.recopies;
    again_ms <= core.wall_ms()
        && recopies.has_kept(ino, again_ms, QUIET_MS, core.monotonic_ms())
        && !recopies.is_active(ino)
}

/// Now and then: there may be many, and most last for a day.
async fn forget_lost(core: &Core, volume: &Volume) -> Result<()> {
    if core.monotonic_ms() < volume.lost_due_ms.load(Ordering::Relaxed) {
        return Ok(());
    }
    let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
    let now_ms = core.wall_ms();
    let mut over = Vec::new();
    scan(&*snapshot, &keys::prefix(Kind::Lost, volume.id), |key, value| {
        if records::decode::<LostUse>(key, value)?.until_ms < now_ms {
            over.push((key.to_vec(), None));
        }
        Ok(())
    })
    .await?;
    drop(snapshot);
    volume.write_many(over).await?;
    volume.lost_due_ms.store(core.monotonic_ms() + FORGET_MS, Ordering::Relaxed);
    Ok(())
}

/// As [`delete`]; `None`: it has failed.
async fn attempt(core: &Arc<Core>, volume: &Arc<Volume>, ino: Ino) -> Option<bool> {
    match delete(core, volume, ino).await {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::info!("volume {} inode {ino}: {error}; trying again", volume.id);
            None
        }
    }
}

/// Deletes the chunks of one file that are to go. True if that is done for good.
async fn delete(core: &Arc<Core>, volume: &Arc<Volume>, ino: Ino) -> Result<bool> {
    let ctx = Ctx::own(core, volume);
    let key = keys::spare(volume.id, ino);
    let (spare, layout) = {
        // As long as the record is there nothing begins to copy the file, so what is found now stays
        // true without the lock.
        let _held = core.locks.lock(volume.id, &[ino]).await;
        // The file may have been switched over since it was looked at.
        let found = find(&ctx, ino).await?;
        let found = found.filter(|spare| may_go(core, volume, ino, spare.again_ms));
        let Some(spare) = found else { return Ok(false) };
        let layout = Layout::try_from(spare.layout.clone())?;
        let inode = Tx::reader(&ctx).find_inode(ino).await?;
        let used =
            inode.and_then(|inode| inode.layout.clone()).map(Layout::try_from).transpose()?;
        let (used, going) = (used.map(|used| used.slots()).unwrap_or_default(), layout.slots());
        if going.iter().any(|group| used.contains(group)) {
            return Err(records::corrupt(&key, "names groups that the file lies in"));
        }
        (spare, layout)
    };
    if is_away(core, &layout.slots()) {
        return Ok(false);
    }
    delete_chunks(core, volume.reign(), ino, &layout).await?;
    if spare.settled || spare.again_ms > 0 {
        volume.write(vec![(key, None)]).await?;
        return Ok(true);
    }
    let again = Spare { again_ms: core.wall_ms() + QUIET_MS, ..spare };
    volume.put(key, records::encode(&again)).await?;
    Ok(false)
}
