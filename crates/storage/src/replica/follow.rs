//! A member: what comes from the primary, and what readers may see.

use super::ranges::{Area, checked, message_of};
use super::{Replica, State, Unsettled, View};
use crate::apply::{Answer, done, plain_answer};
use bytes::Bytes;
use std::time::Duration;
use strake_types::{ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Attempt, Forward, StorageAnswer, StorageOp, StorageRequest};

/// How long a reader waits for changes under way.
const READ_WAIT: Duration = Duration::from_secs(10);
/// How long a promise holds; who relies on it counts a tenth less, for clocks that drift.
pub(super) const PROMISE: Duration = Duration::from_secs(3);

/// Who a replica is in its group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The primary, of this reign.
    Leads(u64),
    InSync,
    Out,
}

/// What is to be done with a forwarded change.
enum Fate {
    Apply,
    Known,
}

impl Replica {
    /// Takes what the primary forwards.
    pub async fn forwarded(
        &self,
        request: StorageRequest,
        forward: Forward,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<Answer> {
        match op {
            // The new primary may know its epoch before we do.
            StorageOp::Adopt(_) => self.follow_into(request.epoch).await,
            _ if *self.adopted.read().await < request.epoch => {
                self.current(request.epoch).await?;
            }
            _ => {}
        }
        let gate = self.adopted.read().await;
        if *gate != request.epoch {
            let what = format!("epoch {} is over, it is {}", request.epoch, *gate);
            return Err(self.error(ErrorKind::StaleMap, &what));
        }
        if forward.number == 0 {
            self.learn(&mut self.state.lock(), &forward);
            if let StorageOp::Promise(promise) = op {
                return self.promise(TargetId(promise.member));
            }
            drop(gate);
            return match op {
                StorageOp::Sync(_) => self.shelf.target.run(|s| s.sync()).await.map(|()| done()),
                StorageOp::Settle(_) => Ok(done()),
                StorageOp::Adopt(_) => self.doubts(),
                StorageOp::Remember(table) => {
                    self.shelf.target.attempts.take_over(&table).map(|()| done())
                }
                op => self.shelf.look(op).await,
            };
        }
        let Some(area) = checked(&op, payload.len() as u64)? else {
            return Err(self.error(ErrorKind::Malformed, "a change of nothing"));
        };
        let key = (forward.reign, forward.number);
        if let Fate::Known = self.receive(&forward, area, request.attempt)? {
            return Ok(done());
        }
        let made = self.shelf.change(op, payload).await;
        let mut state = self.state.lock();
        if let Err(error) = made {
            state.unsettled.remove(&key);
            state.resigned = Some(*gate);
            drop(state);
            tracing::error!("group {} at target {}: {error}", self.group, self.me());
            return Err(error);
        }
        if let Some(entry) = state.unsettled.get_mut(&key) {
            entry.applied = true;
        }
        Ok(done())
    }

    fn receive(&self, forward: &Forward, area: Area, attempt: Option<Attempt>) -> Result<Fate> {
        let mut state = self.state.lock();
        self.learn(&mut state, forward);
        let key = (forward.reign, forward.number);
        if key < state.settled {
            return Ok(Fate::Known);
        }
        match state.unsettled.get(&key) {
            Some(known) if known.applied => Ok(Fate::Known),
            Some(_) => Err(self.error(ErrorKind::NotCurrent, "the change is still under way")),
            None => {
                state.unsettled.insert(key, Unsettled { area, applied: false, attempt });
                Ok(Fate::Apply)
            }
        }
    }

    /// A new primary tells its epoch: from now on nothing of an earlier one is taken.
    async fn follow_into(&self, epoch: u64) {
        let mut adopted = self.adopted.write().await;
        if *adopted < epoch {
            *adopted = epoch;
            self.state.lock().reign = None;
            self.progress.notify_waiters();
        }
    }

    /// What may be here only.
    fn doubts(&self) -> Result<Answer> {
        let (chunks, files) = self.state.lock().doubtful();
        let files =
            files.into_iter().map(|(volume, ino)| msg::FileRef { volume: volume.0, ino: ino.0 });
        plain_answer(StorageAnswer::Unsettled(msg::UnsettledList {
            chunks: message_of(chunks),
            files: files.collect(),
        }))
    }

    /// Answers what asks for contents.
    pub async fn look(&self, epoch: u64, op: StorageOp) -> Result<Answer> {
        let view = self.current(epoch).await?;
        let Some(area) = checked(&op, 0)? else {
            return Err(self.error(ErrorKind::Malformed, "a question about nothing"));
        };
        match self.standing(&view).await? {
            Standing::Leads(reign) => {
                let held = tokio::time::timeout(READ_WAIT, self.ranges.take(area, false)).await;
                let late = |_| self.error(ErrorKind::NotCurrent, "a change there does not end");
                let _held = held.map_err(late)?;
                let answer = self.shelf.look(op).await?;
                // Only now: what was true when the disk was asked may be over.
                self.check_reads(Standing::Leads(reign)).await?;
                Ok(answer)
            }
            Standing::InSync => {
                self.check_settled(&area)?;
                let answer = self.shelf.look(op).await?;
                // A change that came meanwhile is in the answer, or is not; it may be read only
                // when it is everywhere.
                self.check_settled(&area)?;
                self.check_reads(Standing::InSync).await?;
                Ok(answer)
            }
            Standing::Out => Err(self.error(ErrorKind::NotCurrent, "this copy is not in sync")),
        }
    }

    async fn standing(&self, view: &View) -> Result<Standing> {
        if view.in_sync.first() == Some(&self.me()) {
            return Ok(Standing::Leads(self.reigning().await?));
        }
        match view.in_sync.contains(&self.me()) {
            true => Ok(Standing::InSync),
            false => Ok(Standing::Out),
        }
    }

    /// What a reader may not see yet.
    fn check_settled(&self, area: &Area) -> Result<()> {
        let state = self.state.lock();
        match state.unsettled.values().any(|entry| entry.area.overlaps(area)) {
            true => Err(self.error(ErrorKind::NotCurrent, "a change is under way there")),
            false => Ok(()),
        }
    }

    /// Fails unless we are still in sync, by a lease where somebody else could be without us.
    async fn check_reads(&self, standing: Standing) -> Result<()> {
        let view = self.view()?;
        let alone = {
            let state = self.state.lock();
            if state.resigned == Some(view.epoch) {
                return Err(self.error(ErrorKind::NotCurrent, "a change is missing here"));
            }
            match (standing, &state.reign) {
                (Standing::Leads(since), Some(reign)) if reign.since == since => {
                    reign.required().next().is_none()
                }
                (Standing::Leads(_), _) => {
                    return Err(self.error(ErrorKind::NotCurrent, "another reign has begun"));
                }
                _ => false,
            }
        };
        if !view.in_sync.contains(&self.me()) {
            return Err(self.error(ErrorKind::NotCurrent, "this copy is not in sync"));
        }
        if !alone && self.shelf.target.store.is_poisoned() {
            return Err(self.error(ErrorKind::NotCurrent, "its disk has failed"));
        }
        match alone || self.common.lease.holds() {
            true => Ok(()),
            false => self.lease_by_members(&view).await,
        }
    }

    /// Fails unless a primary may answer a change.
    pub(super) async fn check_answers(&self, reign: u64) -> Result<()> {
        self.check_reads(Standing::Leads(reign)).await
    }

    /// While the manager is away, the others may do what it does: promise that nothing happens
    /// without us.
    async fn lease_by_members(&self, view: &View) -> Result<()> {
        if self.common.lease.is_given_up() {
            return Err(self.error(ErrorKind::NotCurrent, "this server is leaving"));
        }
        let asked = self.common.clock.monotonic();
        let (epoch, until) = self.state.lock().promises;
        if epoch == view.epoch && asked < until {
            return Ok(());
        }
        let op = StorageOp::Promise(msg::Promise { member: self.me().0 });
        let counted = self.state.lock().reign.as_ref().map(|r| r.required().collect::<Vec<_>>());
        let mut others = counted.unwrap_or_default();
        others.extend(view.in_sync.iter().filter(|&&member| member != self.me()));
        let told = others.iter().map(|&member| self.ask(member, view.epoch, op.clone()));
        if let Err(error) = futures::future::try_join_all(told).await {
            let what = format!("neither manager nor all members answer ({error})");
            return Err(self.error(ErrorKind::NotCurrent, &what));
        }
        let mut state = self.state.lock();
        if state.reign.iter().flat_map(|reign| reign.required()).any(|m| !others.contains(&m)) {
            return Err(self.error(ErrorKind::NotCurrent, "another member counts since"));
        }
        state.promises = (view.epoch, asked + PROMISE / 10 * 9);
        Ok(())
    }

    /// Promises a member not to act in a later epoch without it for a while. The epoch was checked.
    fn promise(&self, member: TargetId) -> Result<Answer> {
        let until = self.common.clock.monotonic() + PROMISE;
        self.state.lock().promised.insert(member, until);
        Ok(done())
    }
}

impl Replica {
    /// Takes note of what is settled.
    fn learn(&self, state: &mut State, forward: &Forward) {
        if forward.settled == 0 {
            return;
        }
        state.settled = state.settled.max((forward.reign, forward.settled));
        let settled = state.settled;
        state.unsettled.retain(|key, entry| {
            // What is still being applied stays: it ends by itself.
            let over = *key < settled && entry.applied;
            // What is left of earlier reigns was made so by the primary, which knows whether it is made.
            if let Some(attempt) = entry.attempt.filter(|_| over && key.0 == forward.reign) {
                self.shelf.target.attempts.note(attempt);
            }
            !over
        });
    }
}

impl State {
    /// Chunks, and files as a whole, that may differ from other members'.
    pub(super) fn doubtful(
        &self,
    ) -> (Vec<strake_types::ChunkId>, Vec<(strake_types::VolumeId, strake_types::Ino)>) {
        let (mut chunks, mut files) = (Vec::new(), Vec::new());
        for entry in self.unsettled.values() {
            match entry.area.chunks() {
                Some(some) => chunks.extend(some),
                None => files.push(entry.area.file()),
            }
        }
        chunks.sort_unstable();
        chunks.dedup();
        files.sort_unstable();
        files.dedup();
        (chunks, files)
    }
}
