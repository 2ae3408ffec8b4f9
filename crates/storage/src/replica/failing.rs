//! A member whose store fails for good at what the primary needs of it: it takes itself out. By the primary's word alone it would
//! answer readers for as long as its lease runs, also with what is written over meanwhile.
//!
//! A change that cannot be made here ends that at once. A question that fails, or damage that is in the way of a change, may pass:
//! only what lasts does. As a member that leaves, it answers nobody any more in the present epoch (it *resigns*), and then says so
//! to the manager, as often as it takes. That takes it out if another one in sync serves; else it goes on in a new epoch.
//!
//! The primary asks its own store the same. Where that fails for good, it goes as one whose disk does not answer: see `hung`.

use super::errand::Errand;
use super::ranges::Area;
use super::resync::Report;
use super::{Replica, Stage, State};
use crate::apply::Answer;
use std::collections::BTreeMap;
use std::time::Duration;
use strake_types::{ChunkId, ChunkIndex, Error, ErrorKind, Ino, Result, VolumeId};
use strake_wire::message::storage::StorageOp;
use tokio::time::timeout;

/// What fails for so long lasts: as long as a server may be silent,
const LASTING: Duration = Duration::from_secs(3);
/// and what fails so often.
const TIMES_MIN: u32 = 3;
/// When nothing was asked for so long, what has failed before is forgotten. Who waits for an answer asks something sooner, also
/// where it waits for a silent member in between.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Pause before the manager is told again.
const PAUSE: Duration = Duration::from_secs(5);
/// How long it is waited for.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// What the manager is told.
pub(super) const STORE_FAILS: &str =
    "its store fails at what the primary needs; see the log of its server";

/// What a question is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Which blocks a chunk has.
    Sums(ChunkIndex),
    /// Its bytes from an offset on.
    Bytes(ChunkIndex, u64),
    /// The chunks of a file from an index on: a page of them.
    Chunks(u64),
}

/// The part of a file that a question is about.
pub(super) type Subject = (VolumeId, Ino, Part);

/// A question about a chunk.
pub(super) fn about(chunk: ChunkId, part: impl FnOnce(ChunkIndex) -> Part) -> Subject {
    (chunk.volume, chunk.ino, part(chunk.index))
}

/// Questions of the primary that have failed, and were not answered since.
#[derive(Default)]
pub(super) struct Failing {
    /// Since when, and how often.
    of: BTreeMap<Subject, (Duration, u32)>,
    /// When the last one came, whatever became of it.
    asked: Duration,
    /// How our own store fails as the primary's: for tests.
    #[cfg(test)]
    pub(super) broken: Option<ErrorKind>,
}

impl Failing {
    /// A question was answered, or has failed. True if that lasts; then it counts anew.
    fn note(&mut self, subject: Subject, failed: bool, now: Duration) -> bool {
        if now >= self.asked + FORGOTTEN {
            self.of.clear();
        }
        self.asked = now;
        if !failed {
            self.of.remove(&subject);
            return false;
        }
        let (first, times) = self.of.entry(subject).or_insert((now, 0));
        *times += 1;
        let lasts = *times >= TIMES_MIN && now >= *first + LASTING;
        if lasts {
            self.of.remove(&subject);
        }
        lasts
    }
}

impl State {
    /// A change has failed here. True if it may pass, and the change is to come again: the disk was not asked, as it answers
    /// nothing, or something is damaged there, which the primary mends.
    pub(super) fn fail(&mut self, key: &(u64, u64), error: &Error, now: Duration) -> bool {
        let Some(entry) = self.unsettled.get_mut(key) else { return false };
        // Nobody reads it before it is made.
        entry.stage = Stage::Failed;
        match error.kind {
            ErrorKind::Unavailable => true,
            // Where the way there damages all that is large nobody waits for it either.
            ErrorKind::Corrupt | ErrorKind::Garbled => self.meet_damage(key, now),
            _ => false,
        }
    }

    /// Damage is in the way of a change. True unless that lasts, whatever numbers the changes have that meet it: what a member lacks
    /// is sent under a new one each time. Then it counts anew.
    fn meet_damage(&mut self, key: &(u64, u64), now: Duration) -> bool {
        let Some(entry) = self.unsettled.get(key) else { return false };
        let (area, known) = (entry.area.clone(), entry.damaged);
        let first = known.or_else(|| self.damaged_since(key.0, &area)).unwrap_or(now);
        let passes = now < first + LASTING;
        for (other, entry) in self.unsettled.range_mut((key.0, 0)..) {
            if other == key {
                entry.damaged = passes.then_some(first);
            } else if !passes && entry.area.overlaps(&area) {
                entry.damaged = None;
            }
        }
        passes
    }

    /// Since when changes of a reign have met damage in an area, unless one was made there after that.
    fn damaged_since(&self, reign: u64, area: &Area) -> Option<Duration> {
        let of_reign = self.unsettled.range((reign, 0)..).map(|(_, entry)| entry);
        let there = of_reign.filter(|entry| entry.area.overlaps(area));
        there.fold(None, |since, entry| match entry.stage {
            Stage::Applied => None,
            Stage::Begun | Stage::Failed => since.or(entry.damaged),
        })
    }

    /// Our own store fails for good at what we need as the primary of an epoch. The manager may need us: then we go from fewer and fewer
    /// epochs.
    fn own_store_fails(&mut self, epoch: u64, now: Duration) {
        let known = self.own_failed.is_some_and(|(failed, _)| failed == epoch);
        if known || self.own_offers.is_due_anew(now) {
            self.own_failed = Some((epoch, now));
        }
    }

    /// True if it has a moment ago, in this epoch.
    pub(super) fn own_store_has_failed(&self, epoch: u64, now: Duration) -> bool {
        self.own_failed.is_some_and(|(failed, last)| failed == epoch && now < last + FORGOTTEN)
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

    /// What the primary of an epoch is about to be told. If it has this member taken out for that, this answers nobody any more before.
    pub(super) fn or_resign<T>(&self, epoch: u64, told: Result<T>) -> Result<T> {
        if let Err(error) = &told
            && takes_out(error)
        {
            self.state.lock().resign(epoch);
            tracing::error!("group {} at target {}: {error}", self.group, self.me());
        }
        told
    }

    /// The same of what ends in a panic while this lives: its primary is told of an I/O error.
    pub(super) fn resigns_in_panic(&self, epoch: u64) -> ResignsInPanic<'_> {
        ResignsInPanic { replica: self, epoch }
    }

    /// A question was answered, or has failed so.
    pub(super) fn note_answered(&self, epoch: u64, op: &StorageOp, failed: Option<&Error>) {
        let Some(subject) = subject_of(op) else { return };
        self.note(subject, failed, |state, _| state.resign(epoch));
    }

    /// The same; what follows if it fails for good.
    fn note(
        &self,
        subject: Subject,
        failed: Option<&Error>,
        follows: impl FnOnce(&mut State, Duration),
    ) {
        if failed.is_some_and(|error| !is_of_store(error)) {
            return;
        }
        let now = self.common.clock.monotonic();
        {
            let mut state = self.state.lock();
            if !state.failing.note(subject, failed.is_some(), now) {
                return;
            }
            follows(&mut state, now);
        }
        if let Some(error) = failed {
            tracing::error!("group {} at target {}: {error}", self.group, self.me());
        }
    }

    /// What the primary asks its own store, and cannot go on without.
    pub(super) async fn ask_own<T>(
        &self,
        epoch: u64,
        subject: Subject,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answer = asked.await;
        #[cfg(test)]
        let answer = self.break_own(answer);
        let failed = answer.as_ref().err();
        // Damage is repaired by whoever has met it.
        if failed.is_none_or(|error| error.kind != ErrorKind::Corrupt) {
            self.note(subject, failed, |state, now| state.own_store_fails(epoch, now));
        }
        answer
    }

    /// The same, for a member that is to be made equal: one that does not count begins anew, and nothing is held for it.
    pub(super) async fn ask_own_for<T>(
        &self,
        errand: Errand,
        subject: Subject,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.required().contains(&errand.member) {
            true => self.ask_own(errand.epoch, subject, asked).await,
            false => asked.await,
        }
    }

    #[cfg(test)]
    fn break_own<T>(&self, answer: Result<T>) -> Result<T> {
        let broken = self.state.lock().failing.broken;
        broken.map_or(answer, |kind| Err(kind.into()))
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
        let told = self.report(epoch, me, Report::hangs(STORE_FAILS.to_owned()));
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

/// See [`Replica::resigns_in_panic`].
pub(super) struct ResignsInPanic<'a> {
    replica: &'a Replica,
    epoch: u64,
}

impl Drop for ResignsInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.replica.state.lock().resign(self.epoch);
        }
    }
}

/// True if the primary has a member taken out that says this of a change or a sync.
pub(super) fn takes_out(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Io | ErrorKind::Poisoned)
}

/// What is asked about, if the primary cannot go on without an answer.
fn subject_of(op: &StorageOp) -> Option<Subject> {
    match op {
        StorageOp::Sums(chunk) => Some(about(ChunkId::from(*chunk), Part::Sums)),
        StorageOp::Chunks(of) => Some((VolumeId(of.volume), Ino(of.ino), Part::Chunks(of.from))),
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
    use crate::replica::Unsettled;
    use strake_wire::message::storage as msg;

    const SUBJECT: Subject = (VolumeId(1), Ino(2), Part::Sums(ChunkIndex(0)));

    #[test]
    fn a_question_that_fails_and_is_answered_then_does_not_last() {
        let mut failing = Failing::default();
        let second = Duration::from_secs;
        for nth in 0..100 {
            // Every other time.
            assert!(!failing.note(SUBJECT, nth % 2 == 0, second(2 * nth)), "{nth}");
        }
        let other = (VolumeId(1), Ino(3), Part::Chunks(0));
        assert!(!failing.note(SUBJECT, true, second(1_000)));
        assert!(!failing.note(other, true, second(1_002)), "another one");
        assert!(!failing.note(other, false, second(1_002)));
        assert!(!failing.note(SUBJECT, true, second(1_002)));
        assert!(failing.note(SUBJECT, true, second(1_003)), "all the time");
        assert!(!failing.note(SUBJECT, true, second(1_004)), "it counts anew");
    }

    /// Two failures with minutes in between, of questions that nobody waited for, took a member out.
    #[test]
    fn questions_that_fail_now_and_then_do_not_last() {
        let mut failing = Failing::default();
        for nth in 0..100 {
            assert!(!failing.note(SUBJECT, true, FORGOTTEN * nth), "{nth}");
        }
        let last = FORGOTTEN * 99;
        assert!(!failing.note(SUBJECT, true, last + LASTING * 2), "twice");
        // Others are asked about meanwhile: a round of them may take long.
        let other = (VolumeId(1), Ino(3), Part::Chunks(0));
        assert!(!failing.note(other, false, last + FORGOTTEN));
        assert!(failing.note(SUBJECT, true, last + FORGOTTEN + LASTING * 2), "and again");
    }

    /// The first page of a file was answered in each round, and what was known of the next one was forgotten.
    #[test]
    fn a_page_of_chunks_that_fails_lasts_although_those_before_it_are_answered() {
        let mut failing = Failing::default();
        let page = |from| {
            let of = msg::ChunksOf { volume: 1, ino: 2, from, max: 0 };
            subject_of(&StorageOp::Chunks(of)).unwrap()
        };
        let mut round = |at: u64| {
            let now = Duration::from_secs(at);
            assert!(!failing.note(page(0), false, now));
            failing.note(page(65_536), true, now)
        };
        let lasting: Vec<u64> = (0..5).filter(|&at| round(at)).collect();
        assert_eq!(lasting, [3]);
    }

    /// A change that comes now, and its number.
    fn come(state: &mut State, number: u64, stage: Stage) -> (u64, u64) {
        let chunk = ChunkId { volume: VolumeId(1), ino: Ino(2), index: ChunkIndex(0) };
        let key = (1, number);
        let entry = Unsettled {
            area: Area::of_chunk(chunk),
            hole: None,
            stage,
            damaged: state.unsettled.get(&key).and_then(|known| known.damaged),
            attempt: None,
            epoch: 1,
            came: Duration::ZERO,
        };
        state.unsettled.insert(key, entry);
        key
    }

    #[test]
    fn damage_in_the_way_of_a_change_lasts_unless_it_is_mended() {
        let mut state = State::default();
        let mut fail = |kind, at| {
            let key = come(&mut state, 1, Stage::Begun);
            state.fail(&key, &Error::new(kind), Duration::from_secs(at))
        };
        let (damaged, silent, failed) = (ErrorKind::Corrupt, ErrorKind::Unavailable, ErrorKind::Io);
        assert!(fail(silent, 0));
        assert!(fail(silent, 100), "that is no damage");
        assert!(fail(damaged, 100));
        assert!(fail(damaged, 102));
        assert!(!fail(damaged, 103));
        assert!(fail(damaged, 104), "it counts anew");
        assert!(!fail(failed, 104), "that is not mended");
    }

    /// Each time it was new damage, and what the primary held for it stayed held.
    #[test]
    fn damage_that_is_met_under_a_new_number_each_time_lasts() {
        let mut state = State::default();
        let damaged = Error::new(ErrorKind::Corrupt);
        let mut fail = |number, at| {
            let key = come(&mut state, number, Stage::Begun);
            state.fail(&key, &damaged, Duration::from_secs(at))
        };
        let passed = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)].map(|(number, at)| fail(number, at));
        assert_eq!(passed, [true, true, true, false, true]);
        come(&mut state, 6, Stage::Applied);
        let key = come(&mut state, 7, Stage::Begun);
        assert!(state.fail(&key, &damaged, Duration::from_secs(9)), "one was made in between");
    }

    /// Where nobody else serves, the manager lets it go on: an epoch every few seconds, for ever.
    #[test]
    fn a_primary_whose_store_fails_and_that_is_needed_goes_from_fewer_and_fewer_epochs() {
        let mut state = State::default();
        let mut epoch = 1;
        for at in 0..3_600 {
            let now = Duration::from_secs(at);
            state.own_store_fails(epoch, now);
            epoch += u64::from(state.own_store_has_failed(epoch, now));
        }
        assert!((10..50).contains(&epoch), "{epoch}");
        let later = Duration::from_secs(4_000);
        state.own_store_fails(epoch, later);
        assert!(state.own_store_has_failed(epoch, later), "long ago it is as for the first time");
        assert!(!state.own_store_has_failed(epoch, later + FORGOTTEN), "it does no more");
    }
}
