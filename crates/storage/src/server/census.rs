//! What each target holds of each group, found by walking over its chunks now and then. What belongs to
//! groups that have moved elsewhere is deleted on the way, once the map says so.

use super::StorageServer;
use crate::tag::Tag;
use crate::target::Target;
use metrics::counter;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::task;
use strake_types::{ChunkId, GroupId, Result, TargetId};
use strake_wire::message::jobs::Held;
use tokio::time::Instant;

/// Chunks looked at before others have a turn.
const PAGE_CHUNKS: usize = 256;
/// Pause after each page.
const PAGE_PAUSE: Duration = Duration::from_millis(20);
/// Shortest time between two walks of which the second is to clear something away.
const CLEAR_PAUSE: Duration = Duration::from_secs(1);
/// Shortest time between two walks for their own sake.
const PERIOD_MIN: Duration = Duration::from_secs(20);
/// A walk takes at most one part in so many of the time.
const PERIOD_FACTOR: u32 = 50;

/// Chunks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    chunks: u64,
    bytes: u64,
}

/// What was found at the last walk over each target.
#[derive(Default)]
pub(crate) struct Census {
    held: Mutex<BTreeMap<(TargetId, GroupId), Count>>,
    /// When the next one begins.
    due: Mutex<Option<Instant>>,
    /// When the last one ended.
    looked: Mutex<Option<Instant>>,
    /// One is under way.
    walks: AtomicBool,
}

impl StorageServer {
    /// What the targets hold, for the manager.
    pub fn held(&self) -> Vec<Held> {
        let show = |(&(target, group), count): (&(TargetId, GroupId), &Count)| {
            let Count { chunks, bytes } = *count;
            Held { target: target.0, group: group.0, chunks, bytes }
        };
        self.census.held.lock().iter().map(show).collect()
    }

    /// Walks over the targets if it is time to. Call it now and then.
    pub fn wake_census(self: &Arc<Self>) {
        let due = self.census.due.lock().is_none_or(|due| Instant::now() >= due);
        let foreign = || self.census.looked.lock().is_none_or(|at| at.elapsed() >= CLEAR_PAUSE);
        let due = due || foreign() && self.holds_foreign();
        if !due || self.census.walks.swap(true, Ordering::Relaxed) {
            return;
        }
        let server = self.clone();
        task::spawn(async move {
            let begun = Instant::now();
            for target in server.targets() {
                if let Err(error) = server.walk(&target).await {
                    tracing::warn!("target {}: cannot look what it holds: {error}", target.id);
                }
            }
            let pause = (begun.elapsed() * PERIOD_FACTOR).max(PERIOD_MIN);
            *server.census.due.lock() = Some(Instant::now() + pause);
            *server.census.looked.lock() = Some(Instant::now());
            server.census.walks.store(false, Ordering::Relaxed);
        });
    }

    /// True if something is to be cleared away, as far as the last walk has shown.
    fn holds_foreign(&self) -> bool {
        let held: Vec<_> = self.census.held.lock().keys().copied().collect();
        held.into_iter().any(|(target, group)| self.is_foreign(target, group))
    }

    /// Counts what a target holds, and deletes what is not its own any more.
    pub(crate) async fn walk(&self, target: &Arc<Target>) -> Result<()> {
        let mut found: BTreeMap<GroupId, Count> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = target.run(move |s| s.chunks_after(after, |_| true, PAGE_CHUNKS)).await?;
            let mut foreign: BTreeMap<GroupId, Vec<(ChunkId, u64)>> = BTreeMap::new();
            for chunk in page.chunks {
                let group = Tag::group_at(target.id, chunk.id.index);
                match self.is_foreign(target.id, group) {
                    true => foreign.entry(group).or_default().push((chunk.id, chunk.len)),
                    false => {
                        let count = found.entry(group).or_default();
                        *count = Count { chunks: count.chunks + 1, bytes: count.bytes + chunk.len };
                    }
                }
            }
            for (group, chunks) in foreign {
                self.clear(target, group, chunks).await?;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
        let mut held = self.census.held.lock();
        held.retain(|(at, _), _| *at != target.id);
        held.extend(found.into_iter().map(|(group, count)| ((target.id, group), count)));
        Ok(())
    }

    /// Deletes chunks of a group that has moved away. Nobody uses them, and no replica of the group can
    /// begin meanwhile.
    async fn clear(
        &self,
        target: &Arc<Target>,
        group: GroupId,
        chunks: Vec<(ChunkId, u64)>,
    ) -> Result<()> {
        let inside = self.gates.of(target.id, group).close().await;
        if !self.is_foreign(target.id, group) {
            return Ok(());
        }
        let bytes = chunks.iter().map(|(_, len)| len).sum();
        tracing::debug!(
            "target {}: deleting {} chunks of group {group}, which has moved away",
            target.id,
            chunks.len()
        );
        target
            .run(move |s| {
                let mut chunks = chunks.iter().map(|(id, _)| id);
                let cleared = chunks
                    .try_for_each(|id| s.delete_range(id.volume, id.ino, id.index..=id.index));
                drop(inside);
                cleared
            })
            .await?;
        counter!("strake_storage_cleared_bytes_total").increment(bytes);
        Ok(())
    }
}
