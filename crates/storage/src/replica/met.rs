//! Damage that was met, and who sees to it: the primary is asked for a repair, once for all who want it, and that ends.

use super::Replica;
use super::errand::{MetBy, Outcome};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{ChunkId, ErrorKind, Result};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageRequest};
use tokio::sync::watch;

/// Chunks of a group seen to at once; damage beyond that waits for who meets it next.
const MET_MAX: usize = 64;
/// A chunk that could not be repaired is not tried again sooner, however often it is read.
const MET_PAUSE: Duration = Duration::from_secs(10);
/// How often a member asks the primary for a repair.
const ASKS_MAX: u32 = 3;
/// Pause between that.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long a repair may take.
pub(super) const REPAIR_WAIT: Duration = Duration::from_secs(30);
/// How often what a disk does not read is tried before it counts as lost: as often as a client reads it.
pub(super) const READS_MAX: u32 = 4;
/// Pause before it is tried once more.
pub(super) const READ_PAUSE: Duration = Duration::from_millis(50);
/// It is not tried once more after so long: a disk may take seconds each time, and whoever wants the chunk waits. A member whose
/// damage is in the way of a change resigns a little later.
const READS_WAIT: Duration = Duration::from_secs(1);

/// Chunks in which damage was met and that are being seen to, or could not be repaired; until when.
#[derive(Default)]
pub(super) struct Met(Mutex<HashMap<ChunkId, Option<Duration>>>);

/// What is done about damage that was met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenTo {
    /// Whoever met it sees to it.
    FromNow,
    /// Somebody does already.
    Already,
    /// Nobody does: it was tried in vain a moment ago, or there is too much damage.
    Not,
}

impl Met {
    pub fn begin(&self, chunk: ChunkId, now: Duration) -> SeenTo {
        let mut met = self.0.lock();
        met.retain(|_, until| until.is_none_or(|until| now < until));
        match met.get(&chunk) {
            Some(None) => SeenTo::Already,
            Some(Some(_)) => SeenTo::Not,
            None if met.len() >= MET_MAX => SeenTo::Not,
            None => {
                met.insert(chunk, None);
                SeenTo::FromNow
            }
        }
    }

    /// It was seen to; it rests for a while where that was in vain.
    pub fn end(&self, chunk: ChunkId, rests_until: Option<Duration>) {
        let mut met = self.0.lock();
        match rests_until {
            Some(until) => drop(met.insert(chunk, Some(until))),
            None => drop(met.remove(&chunk)),
        }
    }
}

/// Tells how a repair has ended.
type End = watch::Sender<Option<Result<Outcome>>>;
/// Hears it.
type Ending = watch::Receiver<Option<Result<Outcome>>>;

/// Repairs of whole chunks that are under way. They go on if nobody waits for them any more.
#[derive(Default)]
pub(super) struct Repairs(Mutex<HashMap<ChunkId, Ending>>);

impl Repairs {
    /// The end of the repair of a chunk that is under way; else of the one that whoever asks is to make, and tell the end of.
    pub fn join(&self, chunk: ChunkId) -> (Ending, Option<End>) {
        let mut repairs = self.0.lock();
        // One that nobody can tell the end of was abandoned.
        repairs.retain(|_, ending| ending.borrow().is_none() && ending.has_changed().is_ok());
        if let Some(ending) = repairs.get(&chunk) {
            return (ending.clone(), None);
        }
        let (end, ending) = watch::channel(None);
        repairs.insert(chunk, ending.clone());
        (ending, Some(end))
    }
}

/// How often what a disk does not read may be tried yet, and until when.
pub(super) struct Tries {
    left: u32,
    until: Duration,
}

impl Tries {
    pub fn since(now: Duration) -> Self {
        Self { left: READS_MAX, until: now + READS_WAIT }
    }

    /// It was tried. True if it may be once more.
    pub fn once_more(&mut self, now: Duration) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0 && now < self.until
    }
}

impl Replica {
    /// A chunk of ours has damage. Sees to it in the background.
    pub(super) fn met_damage(self: &Arc<Self>, chunk: ChunkId, met_by: MetBy) -> SeenTo {
        let seen_to = self.met.begin(chunk, self.common.clock.monotonic());
        if seen_to != SeenTo::FromNow {
            return seen_to;
        }
        let replica = self.clone();
        task::spawn(async move {
            let outcome = replica.have_repaired(chunk, met_by).await;
            if let Err(error) = &outcome {
                tracing::warn!("group {}: {chunk} is not repaired: {error}", replica.group);
            }
            // Who has a sound copy, and was silent, may answer the next time.
            let in_vain = match outcome {
                Ok(outcome) => !outcome.lost.is_empty(),
                Err(error) => !error.is_passing(),
            };
            let rests = replica.common.clock.monotonic() + MET_PAUSE;
            replica.met.end(chunk, in_vain.then_some(rests));
        });
        seen_to
    }

    /// Has the primary, which may be ourselves, repair a chunk.
    pub async fn have_repaired(self: &Arc<Self>, chunk: ChunkId, met_by: MetBy) -> Result<Outcome> {
        let mut asked = 0;
        loop {
            asked += 1;
            let error = match self.ask_for_repair(chunk, met_by).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) if asked == ASKS_MAX => return Err(error),
                Err(error) => error,
            };
            tracing::debug!("group {}: {chunk}: {error}", self.group);
            tokio::time::sleep(ASK_PAUSE).await;
        }
    }

    async fn ask_for_repair(self: &Arc<Self>, chunk: ChunkId, met_by: MetBy) -> Result<Outcome> {
        let view = self.current(0).await?;
        let nobody = || self.error(ErrorKind::StaleMap, "the group has no primary");
        let primary = *view.in_sync.first().ok_or_else(nobody)?;
        if primary == self.me() {
            return self.repair(view.epoch, chunk, met_by).await;
        }
        let op = msg::Repair { chunk: chunk.into(), met_by: met_by.number() };
        let request = StorageRequest {
            target: primary.0,
            group: self.group.0,
            epoch: view.epoch,
            op: Some(StorageOp::Repair(op)),
            ..StorageRequest::default()
        };
        let service = self.common.map.storage_of(primary)?;
        let called = tokio::time::timeout(REPAIR_WAIT, service.call(request, Bytes::new())).await;
        let late = |_| self.error(ErrorKind::Unavailable, "the primary is silent");
        match called.map_err(late)??.0.answer {
            Some(StorageAnswer::Repaired(msg::Repaired { blocks, lost })) => {
                Ok(Outcome { repaired: blocks, lost, unseen: None })
            }
            _ => Err(self.error(ErrorKind::Malformed, "the primary answered something else")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(index: u64) -> ChunkId {
        ChunkId { volume: 1.into(), ino: 2.into(), index: index.into() }
    }

    /// Each call began one more, and all of them waited for the chunk one after the other.
    #[test]
    fn who_asks_for_a_repair_that_is_under_way_waits_for_that() {
        let repairs = Repairs::default();
        let (first, end) = repairs.join(chunk(1));
        let end = end.unwrap();
        let (second, none) = repairs.join(chunk(1));
        assert!(none.is_none());
        assert!(repairs.join(chunk(2)).1.is_some(), "another chunk");
        let outcome = Outcome { repaired: 3, lost: vec![7], unseen: None };
        end.send_replace(Some(Ok(outcome.clone())));
        for ending in [first, second] {
            assert_eq!(*ending.borrow(), Some(Ok(outcome.clone())));
        }
        assert!(repairs.join(chunk(1)).1.is_some(), "that one has ended");
    }

    #[test]
    fn a_repair_that_was_abandoned_keeps_nobody_from_the_next_one() {
        let repairs = Repairs::default();
        let (ending, end) = repairs.join(chunk(1));
        drop(end);
        assert!(ending.has_changed().is_err());
        assert!(repairs.join(chunk(1)).1.is_some());
    }

    /// Of a disk that took five seconds to say so a block was read 16 times, and nobody had the chunk meanwhile.
    #[test]
    fn what_takes_long_to_fail_is_not_tried_as_often_as_what_fails_at_once() {
        let began = Duration::from_secs(100);
        let tries = |each: Duration| {
            let (mut tries, mut count) = (Tries::since(began), 1);
            while tries.once_more(began + each * count) {
                count += 1;
            }
            count
        };
        assert_eq!(tries(Duration::from_millis(1)), READS_MAX);
        assert_eq!(tries(READS_WAIT / 2), 2);
        assert_eq!(tries(READS_WAIT * 5), 1);
    }
}
