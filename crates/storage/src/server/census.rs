//! What each target holds of each group, found by walking over its chunks now and then. What belongs to
//! groups that have moved elsewhere is deleted on the way, once the map says so.
//!
//! A walk over a large target takes long, and the next one is far: a group may come and go in between. So a target tells
//! of every group of which something may have come, counted or not, until a walk that began after it went has ended.

use super::StorageServer;
use crate::gate::Gate;
use crate::tag::Tag;
use crate::target::Target;
use metrics::counter;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
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

/// A group on a target.
type Place = (TargetId, GroupId);

/// Chunks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    chunks: u64,
    bytes: u64,
}

/// What was found at the last walk over each target.
#[derive(Default)]
pub(crate) struct Census {
    held: Mutex<BTreeMap<Place, Count>>,
    /// What had moved away when the walk that is under way began: it may not have come to it yet.
    leaving: Mutex<BTreeSet<Place>>,
    /// When the next one over each target begins, but for what is to be cleared away.
    due: Mutex<BTreeMap<TargetId, Instant>>,
    /// When the last one over each target ended.
    looked: Mutex<BTreeMap<TargetId, Instant>>,
    /// Targets over all of which one has gone.
    walked: Mutex<BTreeSet<TargetId>>,
    /// Targets over which one is under way: that of a disk that hangs holds up no other.
    walks: Mutex<BTreeSet<TargetId>>,
    /// Targets whose last walk has failed: when, and for how long each is left alone.
    failed: Mutex<BTreeMap<TargetId, (Instant, Duration)>>,
}

impl Census {
    /// True while a target is left alone whose walk has failed.
    fn rests(&self, target: TargetId) -> bool {
        self.failed.lock().get(&target).is_some_and(|(since, rest)| since.elapsed() < *rest)
    }

    /// True if it is time to walk over a target for its own sake.
    fn is_due(&self, target: TargetId) -> bool {
        self.due.lock().get(&target).is_none_or(|due| Instant::now() >= *due)
    }

    /// True if something was cleared away, or looked for, a moment ago.
    fn has_just_looked(&self, target: TargetId) -> bool {
        self.looked.lock().get(&target).is_some_and(|at| at.elapsed() < CLEAR_PAUSE)
    }

    /// A walk over a target has ended, which has taken so long. One that was not for its own sake puts off no other.
    fn ended(&self, target: TargetId, was_due: bool, took: Duration) {
        let now = Instant::now();
        if was_due {
            self.due.lock().insert(target, now + (took * PERIOD_FACTOR).max(PERIOD_MIN));
        }
        self.looked.lock().insert(target, now);
        self.walks.lock().remove(&target);
    }

    /// A walk over a target has ended: after one that failed it is left alone, each time longer, so that what is to be
    /// cleared away from it does not have all others walked over again and again.
    fn walked(&self, target: TargetId, complete: bool) {
        let mut failed = self.failed.lock();
        let last = failed.remove(&target);
        if complete {
            self.walked.lock().insert(target);
        } else {
            let rest = last.map_or(CLEAR_PAUSE, |(_, rest)| (2 * rest).min(PERIOD_MIN));
            failed.insert(target, (Instant::now(), rest));
        }
    }
}

/// A walk over a target that is under way. It has ended when this is gone, also by a panic: no other one begins before.
struct Walk<'a> {
    census: &'a Census,
    target: TargetId,
    /// It is one for its own sake.
    due: bool,
    begun: Instant,
    /// It has come to the end.
    complete: bool,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.census.walked(self.target, self.complete);
        self.census.ended(self.target, self.due, self.begun.elapsed());
    }
}

impl StorageServer {
    /// What the targets hold, for the manager; with no chunks what may be there and was not counted.
    pub fn held(&self) -> Vec<Held> {
        let show = |((target, group), count): (Place, Count)| {
            let Count { chunks, bytes } = count;
            Held { target: target.0, group: group.0, chunks, bytes }
        };
        self.may_hold().into_iter().map(show).collect()
    }

    /// True if a walk over a target has ended since this server started: before, what it holds is not known. One that has failed
    /// counts: what is told then is all that can be found out, and a disk that fails must not keep anything from being moved.
    pub fn has_counted(&self, target: TargetId) -> bool {
        self.census.looked.lock().contains_key(&target)
    }

    /// True if one has gone over all of it: what was left there long ago is known. What only one that has failed has not found may
    /// be there still.
    pub fn has_walked(&self, target: TargetId) -> bool {
        self.census.walked.lock().contains(&target)
    }

    fn may_hold(&self) -> BTreeMap<Place, Count> {
        let mut places = {
            let leaving = self.census.leaving.lock();
            let mut places = self.gates.filled();
            places.extend(leaving.iter().copied());
            places
        };
        // Last: a walk that ends tells what it has found before it forgets what it was to look for.
        let held = self.census.held.lock();
        places.extend(held.keys().copied());
        // What was found on one that has left is nobody's.
        let served = self.targets.read();
        places.retain(|(target, _)| served.contains_key(target));
        let count = |place: Place| (place, held.get(&place).copied().unwrap_or_default());
        places.into_iter().map(count).collect()
    }

    /// Walks over each target if it is time to, or before that if something is to be cleared away from it. Call it now
    /// and then.
    pub fn wake_census(self: &Arc<Self>) {
        let to_clear: BTreeSet<TargetId> = self.to_clear().iter().map(|target| target.id).collect();
        for target in self.targets() {
            let due = self.census.is_due(target.id) && !self.census.rests(target.id);
            if (due || to_clear.contains(&target.id)) && self.census.walks.lock().insert(target.id)
            {
                let server = self.clone();
                task::spawn(async move { server.walk_and_note(&target, due).await });
            }
        }
    }

    async fn walk_and_note(&self, target: &Arc<Target>, due: bool) {
        let (census, begun) = (&self.census, Instant::now());
        let mut walk = Walk { census, target: target.id, due, begun, complete: false };
        let walked = self.walk(target).await;
        walk.complete = walked.is_ok();
        if let Err(error) = walked {
            tracing::warn!("target {}: cannot look what it holds: {error}", target.id);
        }
    }

    /// The targets from which something may be to be cleared away, where that can be tried; none soon after a walk.
    pub(super) fn to_clear(&self) -> Vec<Arc<Target>> {
        let mut targets = self.targets();
        targets.retain(|target| !self.census.has_just_looked(target.id));
        if targets.is_empty() {
            return targets;
        }
        let held = self.may_hold().into_keys();
        let foreign = held.filter(|&(target, group)| {
            !self.census.rests(target) && self.is_foreign(target, group)
        });
        let foreign: BTreeSet<TargetId> = foreign.map(|(target, _)| target).collect();
        targets.retain(|target| foreign.contains(&target.id));
        targets
    }

    /// Counts what a target holds, and deletes what is not its own any more.
    pub(crate) async fn walk(&self, target: &Arc<Target>) -> Result<()> {
        self.begin_walk(target.id).await;
        let walked = self.walk_through(target).await;
        self.end_walk(target.id, walked.is_ok());
        walked
    }

    /// What has moved away by now the walk finds, all that is left of it.
    async fn begin_walk(&self, target: TargetId) {
        for (at, group) in self.gates.filled() {
            if at == target && self.is_foreign(target, group) {
                let gate = self.gates.of(target, group);
                // Who came in before has ended, and who comes later looks at the map.
                let inside = gate.close().await;
                self.begin_leaving(&gate, (target, group));
                drop(inside);
            }
        }
    }

    fn begin_leaving(&self, gate: &Gate, place: Place) {
        let mut leaving = self.census.leaving.lock();
        // In this order: a replica that begins says so before it can be found.
        gate.empty();
        if self.is_foreign(place.0, place.1) {
            leaving.insert(place);
        } else {
            gate.fill();
        }
    }

    /// What a walk has not come to another one is to look for.
    fn end_walk(&self, target: TargetId, complete: bool) {
        let mut leaving = self.census.leaving.lock();
        if !complete {
            let left = leaving.iter().filter(|(at, _)| *at == target);
            left.for_each(|&(at, group)| self.gates.of(at, group).fill());
        }
        leaving.retain(|(at, _)| *at != target);
    }

    async fn walk_through(&self, target: &Arc<Target>) -> Result<()> {
        let mut found: BTreeMap<GroupId, Count> = BTreeMap::new();
        let mut after = None;
        loop {
            // One that has left the cluster is to be closed as it is.
            if self.local(target.id).is_none() {
                return Ok(());
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// It was the last one over its target: nothing was cleared away from that any more.
    #[test]
    fn after_a_walk_that_has_panicked_another_one_begins() {
        let (census, target) = (Census::default(), TargetId(1));
        assert!(census.walks.lock().insert(target));
        let (due, begun) = (true, Instant::now());
        let walk = Walk { census: &census, target, due, begun, complete: false };
        let panics = || {
            let _under_way = walk;
            panic!("no thread could be started");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(census.walks.lock().insert(target), "another one may begin,");
        assert!(census.rests(target) && !census.is_due(target), "a while later");
    }

    /// What was to be cleared away from it had all targets of its server walked over every second.
    #[test]
    fn a_target_whose_walk_fails_is_left_alone_each_time_longer_and_no_other_is() {
        let (census, bad, good) = (Census::default(), TargetId(1), TargetId(2));
        let mut rests = Vec::new();
        for _ in 0..7 {
            census.walked(bad, false);
            census.walked(good, true);
            assert!(census.rests(bad) && !census.rests(good));
            rests.push(census.failed.lock()[&bad].1.as_secs());
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 20, 20]);
        assert_eq!(*census.walked.lock(), [good].into(), "what it has is not known");
        census.walked(bad, true);
        assert!(!census.rests(bad) && census.failed.lock().is_empty());
        assert!(census.walked.lock().contains(&bad));
    }
}
