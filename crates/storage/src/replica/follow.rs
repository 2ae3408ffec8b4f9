//! A member: what comes from the primary, and what readers may see.

use super::errand::MetBy;
use super::met::SeenTo;
use super::ranges::Area;
use super::{Replica, Stage, State, Unsettled, View};
use crate::apply::{Answer, done, durable, plain_answer};
use crate::syncs::Asked;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use strake_base::{is_broken, task};
use strake_types::{ChunkId, ErrorKind, Ino, Result, TargetId, VolumeId};
use strake_wire::lease::{given_ms, relied_on};
use strake_wire::message::manager::{ManagerAnswer, ManagerOp, ManagerReply, Stalled};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Forward, StorageAnswer, StorageOp, StorageRequest};
use tokio::sync::RwLockReadGuard;
use tokio::time::timeout;

/// How long a reader waits for changes under way.
const READ_WAIT: Duration = Duration::from_secs(10);
/// How long at the primary of a pair, whose other member answers in any case: what it has not applied
/// nobody has read.
const PAIR_READ_WAIT: Duration = Duration::from_millis(20);
/// How long a promise holds at most.
pub(super) const PROMISE: Duration = Duration::from_millis(PROMISE_MS);
const PROMISE_MS: u64 = 3_000;
/// Most chunks that are named one by one where copies may differ.
const CHUNKS_NAMED_MAX: usize = 50_000;
/// How long a reader waits for members until the manager is told, and told again.
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks whether the lease holds again.
const LEASE_LOOK: Duration = Duration::from_millis(20);
/// How long a member that says that it is there waits for the epoch that it is asked in: less than it is waited for.
const ADOPT_WAIT: Duration = Duration::from_millis(300);
/// How long readers of a range and later changes wait for a disk because one change is to be durable.
const SYNC_PATIENCE: Duration = Duration::from_millis(250);

/// Who a replica is in its group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The primary, of this reign.
    Leads(u64),
    /// In this epoch.
    InSync(u64),
    Out,
}

/// What is to be done with a forwarded change.
enum Fate {
    Apply,
    Known,
}

impl Unsettled {
    /// True if a member that is not the primary knows that all that count have the change: the primary
    /// of this epoch made it before it sent it, and there is nobody else.
    fn is_everywhere(&self, view: &View) -> bool {
        view.is_pair() && self.epoch == view.epoch && matches!(self.stage, Stage::Applied)
    }
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
        let _told = self.resigns_in_panic(request.epoch);
        let asks_nothing = matches!(&op, StorageOp::Settle(wanted) if wanted.parts.is_empty());
        if forward.number == 0 && asks_nothing {
            return self.is_there(request.epoch, &forward).await;
        }
        let adopted = *self.hold_epoch().await?;
        match op {
            // The new primary may know its epoch before we do.
            StorageOp::Adopt(_) => {
                let followed = self.follow_into(request.epoch);
                self.shelf.target.while_disk_answers(followed).await?;
            }
            _ if adopted < request.epoch => {
                self.current(request.epoch).await?;
            }
            _ => {}
        }
        let gate = self.hold_epoch().await?;
        if *gate != request.epoch && !is_broken("members-check-epochs") {
            let what = format!("epoch {} is over, it is {}", request.epoch, *gate);
            return Err(self.error(ErrorKind::StaleMap, &what));
        }
        if forward.number == 0 {
            self.learn(&mut self.state.lock(), &forward);
            if let StorageOp::Promise(promise) = op {
                return self.promise(promise);
            }
            drop(gate);
            return match op {
                StorageOp::Sync(_) => {
                    let asked = Asked::of(forward.reign, request.attempt);
                    self.or_resign(request.epoch, self.shelf.sync_asked(asked).await)?;
                    Ok(self.shelf.done_at(self.shelf.target.store.boot()))
                }
                StorageOp::Settle(wanted) => self.tell_room(wanted).await,
                StorageOp::Adopt(_) => self.doubts(),
                StorageOp::Remember(table) => {
                    self.shelf.target.attempts.take_over(&table).map(|()| done())
                }
                op => self.answer_primary(request.epoch, op).await,
            };
        }
        let area = Area::checked(&op, payload.len() as u64)?;
        let key = (forward.reign, forward.number);
        let hole = Area::of_hole(&op);
        let entry = Unsettled { hole, ..self.entry(area, request.attempt, request.epoch) };
        let is_durable = op.is_durable();
        // It changes no byte.
        let undoes_nothing = matches!(op, StorageOp::Allocate(_));
        if let Fate::Apply = self.receive(&forward, entry, !undoes_nothing)? {
            let made = match op {
                StorageOp::Allocate(range) => self.reserve_or_go_without(&key, range).await,
                op => self.shelf.following().change(op, payload).await,
            };
            self.note_made(&key, *gate, made)?;
        }
        // A new primary does not wait for a disk.
        drop(gate);
        self.or_resign(request.epoch, self.made(is_durable).await)
    }

    /// Who is asked whether it is there says so soon, and hears what is settled: an epoch that is to be adopted waits for changes under
    /// way, and these for the disk, which may be slow.
    async fn is_there(&self, epoch: u64, forward: &Forward) -> Result<Answer> {
        let is_behind = self.adopted.try_read().is_ok_and(|adopted| *adopted < epoch);
        if is_behind {
            // Whether it comes to that is seen below.
            let _followed = timeout(ADOPT_WAIT, self.current(epoch)).await;
        }
        let is_current = |adopted: &RwLockReadGuard<'_, u64>| {
            **adopted == epoch || is_broken("members-check-epochs")
        };
        let Some(_gate) = self.adopted.try_read().ok().filter(is_current) else {
            return Err(self.error(ErrorKind::NotCurrent, "it is there, and not in that epoch"));
        };
        self.learn(&mut self.state.lock(), forward);
        Ok(self.shelf.done_at(0))
    }

    /// A change that the primary of this epoch has numbered was made here, or has failed.
    fn note_made(&self, key: &(u64, u64), epoch: u64, made: Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        if let Err(error) = made {
            let now = self.common.clock.monotonic();
            // It stays, also where it is not waited for: should the manager need this member, nobody reads half of it.
            if state.fail(key, &error, now) {
                return Err(error);
            }
            state.resign(epoch);
            drop(state);
            tracing::error!("group {} at target {}: {error}", self.group, self.me());
            return Err(error);
        }
        if let Some(entry) = state.unsettled.get_mut(key) {
            entry.stage = Stage::Applied;
        }
        Ok(())
    }

    /// The answer to a change that is made here, and durable if it asks for that.
    async fn made(&self, is_durable: bool) -> Result<Answer> {
        let synced = is_durable && !is_broken("syncs-go-to-all") && self.sync_in_passing().await?;
        let answer = self.shelf.done_at(0);
        Ok(if synced { durable(answer) } else { answer })
    }

    /// Syncs while others wait for a change to end. False if that takes long: they go on, and it is synced by itself.
    pub(super) async fn sync_in_passing(&self) -> Result<bool> {
        match timeout(SYNC_PATIENCE, self.shelf.sync()).await {
            Ok(synced) => synced.map(|()| true),
            Err(_late) => Ok(false),
        }
    }

    /// Whether a change that arrives is to be made; `writes_over`: it undoes what others have made there.
    fn receive(&self, forward: &Forward, entry: Unsettled, writes_over: bool) -> Result<Fate> {
        let mut state = self.state.lock();
        self.learn(&mut state, forward);
        let key = (forward.reign, forward.number);
        if is_broken("forwards-apply-once") {
            state.unsettled.remove(&key);
        } else if key < state.settled {
            return Ok(Fate::Known);
        }
        match state.unsettled.get(&key).map(|known| known.stage) {
            Some(Stage::Applied) => Ok(Fate::Known),
            Some(Stage::Begun) => {
                Err(self.error(ErrorKind::NotCurrent, "the change is still under way"))
            }
            Some(Stage::Failed) | None => {
                if writes_over {
                    state.forget_overwritten(&key, &entry.area);
                }
                let damaged = state.unsettled.get(&key).and_then(|known| known.damaged);
                state.unsettled.insert(key, Unsettled { damaged, ..entry });
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
        let (holes, (mut chunks, mut files)) = {
            let state = self.state.lock();
            (state.holes(), state.doubtful())
        };
        if chunks.len() > CHUNKS_NAMED_MAX {
            // More than a message holds: then their files are compared as a whole.
            files.extend(chunks.drain(..).map(|chunk| (chunk.volume, chunk.ino)));
            files.sort_unstable();
            files.dedup();
        }
        let file = |(volume, ino): (VolumeId, Ino)| msg::FileRef { volume: volume.0, ino: ino.0 };
        plain_answer(StorageAnswer::Unsettled(msg::UnsettledList {
            chunks: chunks.into_iter().map(Into::into).collect(),
            files: files.into_iter().map(file).collect(),
            holes,
        }))
    }

    /// Answers what asks for contents.
    pub async fn look(self: &Arc<Self>, epoch: u64, op: StorageOp) -> Result<Answer> {
        let chunk = if let StorageOp::Read(read) = &op { Some(read.chunk) } else { None };
        let answer = self.look_now(epoch, op).await;
        if let (Some(chunk), Err(error)) = (chunk, &answer)
            && error.kind == ErrorKind::Corrupt
        {
            // The reader asks another member; whoever comes next need not, unless there is none whom he may ask: he
            // waits for what is being mended.
            if self.met_damage(chunk.into(), MetBy::Read) == SeenTo::Already {
                let what = format!("it is being mended: {error}");
                return Err(self.error(ErrorKind::NotCurrent, &what));
            }
        }
        answer
    }

    async fn look_now(self: &Arc<Self>, epoch: u64, op: StorageOp) -> Result<Answer> {
        let view = self.current(epoch).await?;
        let area = Area::checked(&op, 0)?;
        match self.in_time(&view, self.standing(&view)).await?? {
            Standing::Leads(reign) => {
                let _held = self.in_time(&view, self.ranges.take(area, false)).await?;
                let answer = self.shelf.look(op).await?;
                // Only now: what was true when the disk was asked may be over.
                self.check_reads(Standing::Leads(reign)).await?;
                Ok(answer)
            }
            standing @ Standing::InSync(_) => {
                if let Err(error) = self.check_settled(&view, &area) {
                    if self.is_long_unsettled(&area) {
                        self.tell_stalled(view.epoch);
                    }
                    return Err(error);
                }
                let answer = self.shelf.look(op).await?;
                // A change that came meanwhile is in the answer, or is not; it may be read only
                // when it is everywhere.
                self.check_settled(&view, &area)?;
                self.check_reads(standing).await?;
                Ok(answer)
            }
            Standing::Out => Err(self.error(ErrorKind::NotCurrent, "this copy is not in sync")),
        }
    }

    /// What a reader waits for, if it comes in time. Where members are in its way, the manager hears of it meanwhile.
    async fn in_time<T>(
        self: &Arc<Self>,
        view: &View,
        awaited: impl Future<Output = T>,
    ) -> Result<T> {
        let wait = if view.is_pair() { PAIR_READ_WAIT } else { READ_WAIT };
        let mut awaited = std::pin::pin!(awaited);
        let end = tokio::time::Instant::now() + wait;
        while tokio::time::Instant::now() < end {
            if let Ok(done) = timeout(wait.min(PATIENCE), &mut awaited).await {
                return Ok(done);
            }
            self.tell_stalled(view.epoch);
        }
        Err(self.error(ErrorKind::NotCurrent, "a change there does not end"))
    }

    /// Somebody waits here for what other members do not answer: whichever of them is silent for so long that its lease is
    /// over need not be waited for. The manager is told in the background, and not more often than it is of use.
    fn tell_stalled(self: &Arc<Self>, epoch: u64) {
        let now = self.common.clock.monotonic();
        {
            let mut state = self.state.lock();
            if state.stalled_at.is_some_and(|before| now < before + PATIENCE) {
                return;
            }
            state.stalled_at = Some(now);
        }
        let replica = self.clone();
        task::spawn(async move {
            let (group, target) = (replica.group.0, replica.me().0);
            let map = &replica.common.map;
            let told = map.ask_manager(ManagerOp::Stalled(Stalled { group, epoch, target }));
            match timeout(PROMISE, told).await {
                Ok(Ok(ManagerReply { answer: Some(ManagerAnswer::Epoch(epoch)), .. }))
                    if epoch > map.current().epoch =>
                {
                    drop(map.refresh().await);
                    replica.look_again(Duration::ZERO).await;
                }
                Ok(Err(error)) => tracing::debug!("group {group}: {error}"),
                _ => {}
            }
        });
    }

    async fn standing(&self, view: &View) -> Result<Standing> {
        if view.in_sync.first() == Some(&self.me()) {
            return Ok(Standing::Leads(self.reigning().await?));
        }
        match view.in_sync.contains(&self.me()) {
            true => Ok(Standing::InSync(view.epoch)),
            false if is_broken("only-in-sync-serve") => Ok(Standing::InSync(view.epoch)),
            false => Ok(Standing::Out),
        }
    }

    /// True if what a reader may not see yet has come long ago: the primary tells much sooner what is settled.
    fn is_long_unsettled(&self, area: &Area) -> bool {
        let now = self.common.clock.monotonic();
        let old = |entry: &&Unsettled| now.saturating_sub(entry.came) > 2 * PATIENCE;
        let state = self.state.lock();
        state.unsettled.values().filter(old).any(|entry| entry.area.overlaps(area))
    }

    /// What a reader may not see yet.
    fn check_settled(&self, view: &View, area: &Area) -> Result<()> {
        let state = self.state.lock();
        let mut hidden = state.unsettled.values().filter(|entry| !entry.is_everywhere(view));
        match hidden.any(|entry| entry.area.overlaps(area)) {
            true if is_broken("unsettled-is-not-read") => Ok(()),
            true => Err(self.error(ErrorKind::NotCurrent, "a change is under way there")),
            false => Ok(()),
        }
    }

    /// Fails unless we are still in sync, by a lease where somebody else could be without us.
    async fn check_reads(&self, standing: Standing) -> Result<()> {
        let (view, leased) = self.check_standing(standing)?;
        if leased {
            return Ok(());
        }
        let promised = tokio::select! {
            biased;
            promised = self.lease_by_members(&view) => promised,
            // Members may be silent, and another manager may lead by now.
            () = self.leased_again() => Err(self.error(ErrorKind::NotCurrent, "its lease was over")),
        };
        if promised.is_ok() {
            return Ok(());
        }
        // In the same epoch we were in sync all the time.
        match self.check_standing(standing)? {
            (now, true) if now == view => Ok(()),
            _ => promised,
        }
    }

    /// Waits until the manager's lease holds.
    async fn leased_again(&self) {
        while !self.common.lease.holds() {
            tokio::time::sleep(LEASE_LOOK).await;
        }
    }

    /// Fails unless we are in sync, as far as we know; by which view, and whether a lease says so where somebody else could
    /// be without us.
    fn check_standing(&self, standing: Standing) -> Result<(View, bool)> {
        // First: a newer map comes before a newer lease.
        let leased = self.common.lease.holds();
        let view = self.view()?;
        let alone = {
            let state = self.state.lock();
            if state.resigned >= Some(view.epoch) {
                let what = "a change is missing here, or the disk does not answer";
                return Err(self.error(ErrorKind::NotCurrent, what));
            }
            match (standing, &state.reign) {
                (Standing::Leads(since), Some(reign)) if reign.since == since => {
                    reign.required().next().is_none()
                }
                (Standing::Leads(_), _) => {
                    return Err(self.error(ErrorKind::NotCurrent, "another reign has begun"));
                }
                (Standing::InSync(epoch), _)
                    if epoch != view.epoch && !is_broken("only-in-sync-serve") =>
                {
                    return Err(self.error(ErrorKind::NotCurrent, "another epoch has begun"));
                }
                _ => false,
            }
        };
        if !view.in_sync.contains(&self.me()) && !is_broken("only-in-sync-serve") {
            return Err(self.error(ErrorKind::NotCurrent, "this copy is not in sync"));
        }
        if !alone && self.shelf.target.store.is_poisoned() {
            return Err(self.error(ErrorKind::NotCurrent, "its disk has failed"));
        }
        Ok((view, alone || leased || is_broken("answers-need-lease")))
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
        let lease_ms = self.state.lock().promise_term.ms(PROMISE_MS);
        let op = StorageOp::Promise(msg::Promise { member: self.me().0, lease_ms });
        let counted = self.state.lock().reign.as_ref().map(|r| r.required().collect::<Vec<_>>());
        let mut others = counted.unwrap_or_default();
        others.extend(view.in_sync.iter().filter(|&&member| member != self.me()));
        let told = others.iter().map(|&member| self.ask(member, view.epoch, op.clone()));
        let told = futures::future::try_join_all(told).await;
        let took = self.common.clock.monotonic().saturating_sub(asked);
        self.state.lock().promise_term.note(took);
        if let Err(error) = told {
            let what = format!("neither manager nor all members answer ({error})");
            return Err(self.error(ErrorKind::NotCurrent, &what));
        }
        let mut state = self.state.lock();
        if state.reign.iter().flat_map(|reign| reign.required()).any(|m| !others.contains(&m)) {
            return Err(self.error(ErrorKind::NotCurrent, "another member counts since"));
        }
        state.promises = (view.epoch, asked + relied_on(Duration::from_millis(lease_ms)));
        Ok(())
    }

    /// Promises a member not to act in a later epoch without it for a while. The epoch was checked.
    fn promise(&self, promise: msg::Promise) -> Result<Answer> {
        let length = Duration::from_millis(given_ms(promise.lease_ms, PROMISE_MS));
        let until = self.common.clock.monotonic() + length;
        let mut state = self.state.lock();
        // Of whom it does not know, and does not ask: the next epoch may be that one's alone.
        if state.counts_joining() {
            return Err(self.error(ErrorKind::NotCurrent, "another member counts since"));
        }
        let promised = state.promised.entry(TargetId(promise.member)).or_default();
        *promised = until.max(*promised);
        Ok(done())
    }

    /// Takes note of what is settled.
    fn learn(&self, state: &mut State, forward: &Forward) {
        if forward.settled == 0 {
            return;
        }
        state.settled = state.settled.max((forward.reign, forward.settled));
        let settled = state.settled;
        // What is still being applied stays: it ends by itself.
        let over = |_: &_, entry: &mut Unsettled| entry.stage != Stage::Begun;
        for (key, entry) in state.unsettled.extract_if(..settled, over) {
            let applied = entry.stage == Stage::Applied;
            // What is left of earlier reigns was made so by the primary, which knows whether it is made.
            if let Some(attempt) = entry.attempt.filter(|_| applied && key.0 == forward.reign) {
                self.shelf.target.attempts.note(attempt);
            }
        }
    }
}

impl State {
    /// True for a primary for which a member counts that is not in sync yet.
    pub(super) fn counts_joining(&self) -> bool {
        self.reign.as_ref().is_some_and(|reign| reign.joiners.values().any(|one| one.counted))
    }

    /// What an earlier primary's changes left in an area is being written over by the one that recovers:
    /// should that one not come to its end, nobody may say that those changes are made.
    pub(super) fn forget_overwritten(&mut self, (reign, _): &(u64, u64), area: &Area) {
        let earlier = self.unsettled.range_mut(..(*reign, 0)).map(|(_, entry)| entry);
        earlier.filter(|entry| entry.area.overlaps(area)).for_each(|entry| entry.attempt = None);
    }

    /// Chunks, and files as a whole, that may differ from other members'.
    pub(super) fn doubtful(&self) -> (Vec<ChunkId>, Vec<(VolumeId, Ino)>) {
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
