//! A member whose store fails for good at what the primary needs of it: it takes itself out. By the primary's word alone it would
//! answer readers for as long as its lease runs, also with what is written over meanwhile.
//!
//! A change that cannot be made here ends that at once. A question that fails, or damage that is in the way of a change, may pass:
//! only what lasts does. As a member that leaves, it answers nobody any more in the present epoch (it *resigns*), and then says so
//! to the manager, as often as it takes. That takes it out if another one in sync serves; else it goes on in a new epoch.

use super::resync::Report;
use super::{Replica, Stage, Unsettled};
use crate::apply::Answer;
use std::collections::BTreeMap;
use std::time::Duration;
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, Ino, Result, VolumeId};
use strake_wire::message::storage::StorageOp;
use tokio::time::timeout;

/// What fails for so long lasts: as long as a server may be silent.
const LASTING: Duration = Duration::from_secs(3);
/// A question that has failed and did not come again for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Pause before the manager is told again.
const PAUSE: Duration = Duration::from_secs(5);
/// How long it is waited for.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// A file, or a chunk of it: what a question is about.
type Subject = (VolumeId, Ino, Option<ChunkIndex>);

/// Questions of the primary that have failed: since when, and when they did last.
#[derive(Default)]
pub(super) struct Failing(BTreeMap<Subject, (Duration, Duration)>);

impl Failing {
    /// A question was answered, or has failed. True if that lasts; then it counts anew.
    fn note(&mut self, subject: Subject, failed: bool, now: Duration) -> bool {
        self.0.retain(|_, (_, last)| now < *last + FORGOTTEN);
        if !failed {
            self.0.remove(&subject);
            return false;
        }
        let (first, last) = self.0.entry(subject).or_insert((now, now));
        *last = now;
        let lasts = now >= *first + LASTING;
        if lasts {
            self.0.remove(&subject);
        }
        lasts
    }
}

impl Unsettled {
    /// The change has failed here. True if it may pass, and the change is to come again: the disk was not asked, as it answers
    /// nothing, or something is damaged there, which the primary mends.
    pub(super) fn fail(&mut self, error: &Error, now: Duration) -> bool {
        // Nobody reads it before it is made.
        self.stage = Stage::Failed;
        let passes = match error.kind {
            ErrorKind::Unavailable => true,
            ErrorKind::Corrupt => now < *self.damaged.get_or_insert(now) + LASTING,
            _ => false,
        };
        if !passes {
            self.damaged = None;
        }
        passes
    }
}

impl Replica {
    /// Answers a question of the primary. Where it holds what it asks about, as after a change that has failed, it asks again for
    /// as long as the epoch lasts.
    pub(super) async fn answer_primary(&self, epoch: u64, op: StorageOp) -> Result<Answer> {
        let answer = self.shelf.look(op.clone()).await;
        self.note_answered(epoch, &op, answer.as_ref().err());
        answer
    }

    /// A question was answered, or has failed so.
    pub(super) fn note_answered(&self, epoch: u64, op: &StorageOp, failed: Option<&Error>) {
        let Some(subject) = subject_of(op) else { return };
        if failed.is_some_and(|error| !is_of_store(error)) {
            return;
        }
        let now = self.common.clock.monotonic();
        let lasts = {
            let mut state = self.state.lock();
            let lasts = state.failing.note(subject, failed.is_some(), now);
            if lasts {
                state.resign(epoch);
            }
            lasts
        };
        if let (true, Some(error)) = (lasts, failed) {
            tracing::error!("group {} at target {}: {error}", self.group, self.me());
        }
    }

    /// If this member has resigned in the present epoch, and is not taken out: tells the manager. The primary may not know it, or
    /// was not heard.
    pub(super) async fn say_resigned(&self) {
        let Some(epoch) = self.resigned_beside_others() else { return };
        let now = self.common.clock.monotonic();
        {
            let mut state = self.state.lock();
            if state.resigned_said.is_some_and(|said| now < said + PAUSE) {
                return;
            }
            state.resigned_said = Some(now);
        }
        let (group, me) = (self.group, self.me());
        tracing::warn!("group {group}: target {me} answers nobody in epoch {epoch}");
        let reason = "its store fails at what the primary needs; see the log of its server";
        let told = self.report(epoch, me, Report::hangs(reason.to_owned()));
        if timeout(REPORT_WAIT, told).await.is_err() {
            tracing::debug!("group {group}: the manager does not hear that {me} has resigned");
        }
    }

    /// The epoch, if this member has resigned in it and is in sync beside a primary. Who leaves, or has a disk that hangs, says so
    /// by itself.
    fn resigned_beside_others(&self) -> Option<u64> {
        self.state.lock().resigned?;
        let group = self.common.map.group(self.group).ok()?;
        let me = self.me().0;
        let follows = group.in_sync().iter().skip(1).any(|member| *member == me);
        let state = self.state.lock();
        let resigned = state.resigned == Some(group.epoch) && state.gave_up < Some(group.epoch);
        (follows && resigned && !group.lets_go(me)).then_some(group.epoch)
    }
}

/// What is asked about, if the primary cannot go on without an answer.
fn subject_of(op: &StorageOp) -> Option<Subject> {
    match op {
        StorageOp::Sums(chunk) => {
            let ChunkId { volume, ino, index } = ChunkId::from(*chunk);
            Some((volume, ino, Some(index)))
        }
        StorageOp::Chunks(of) => Some((VolumeId(of.volume), Ino(of.ino), None)),
        _ => None,
    }
}

/// True for what a store says of itself that cannot be read.
fn is_of_store(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::Poisoned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::ranges::Area;

    const SUBJECT: Subject = (VolumeId(1), Ino(2), None);

    #[test]
    fn a_question_that_fails_and_is_answered_then_does_not_last() {
        let mut failing = Failing::default();
        let second = Duration::from_secs;
        for nth in 0..100 {
            // Every other time.
            assert!(!failing.note(SUBJECT, nth % 2 == 0, second(2 * nth)), "{nth}");
        }
        let other = (VolumeId(1), Ino(3), None);
        assert!(!failing.note(SUBJECT, true, second(1_000)));
        assert!(!failing.note(other, true, second(1_002)), "another one");
        assert!(!failing.note(other, false, second(1_002)));
        assert!(failing.note(SUBJECT, true, second(1_003)), "all the time");
        assert!(!failing.note(SUBJECT, true, second(1_004)), "it counts anew");
        assert!(!failing.note(SUBJECT, true, second(1_004) + FORGOTTEN), "that was long ago");
    }
    #[test]
    fn damage_in_the_way_of_a_change_lasts_unless_it_is_mended() {
        let chunk = ChunkId { volume: VolumeId(1), ino: Ino(2), index: ChunkIndex(0) };
        let mut entry = Unsettled {
            area: Area::of_chunk(chunk),
            stage: Stage::Begun,
            damaged: None,
            attempt: None,
            epoch: 1,
            came: Duration::ZERO,
        };
        let second = Duration::from_secs;
        let [damaged, silent, failed] =
            [ErrorKind::Corrupt, ErrorKind::Unavailable, ErrorKind::Io].map(Error::new);
        assert!(entry.fail(&silent, second(0)));
        assert!(entry.fail(&silent, second(100)), "that is no damage");
        assert!(entry.fail(&damaged, second(100)));
        assert!(entry.fail(&damaged, second(102)));
        assert!(!entry.fail(&damaged, second(103)));
        assert!(entry.fail(&damaged, second(104)), "it counts anew");
        assert!(!entry.fail(&failed, second(104)), "that is not mended");
    }
}
