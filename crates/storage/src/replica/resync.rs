//! Making a joining member equal to the primary.

use super::Replica;
use super::digest::{Found, found_on};
use super::errand::Errand;
use super::healing::{Pace, yield_after};
use super::ranges::Area;
use crate::gate::word_of;
use metrics::counter;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use strake_base::is_broken;
use strake_types::{ChunkId, ErrorKind, Result, TargetId};
use strake_wire::message::manager::{ManagerOp, Resynced};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};
use tokio::time::Instant;

/// Pause before the manager is told again, or it is looked again whether a member may count.
const PAUSE: Duration = Duration::from_millis(200);
/// A member that may not count for so long after it has synced syncs again before it does.
const SYNCED_FOR: Duration = Duration::from_secs(10);

/// The chunks of a group on one target, in order.
struct Walk {
    /// `None`: our own.
    member: Option<TargetId>,
    found: VecDeque<Found>,
    next: Option<msg::Chunk>,
    ended: bool,
}

/// What a member was made equal with.
#[derive(Clone, Copy, Default)]
struct Made {
    /// Chunks that differed.
    chunks: u64,
    /// Bytes sent.
    sent: u64,
    /// The boot from which the member says that it is durable.
    boot: u64,
}

/// What the manager is told of a member.
#[derive(Default)]
pub(super) struct Report {
    failed: bool,
    reason: String,
    sent: u64,
    boot: u64,
    hangs: bool,
    hands_over: bool,
    vouches: u64,
    silent: bool,
}

impl Report {
    /// It is not equal, or answers nobody any more.
    pub(super) fn failed(reason: String) -> Self {
        Self { failed: true, reason, ..Self::default() }
    }

    /// A member that joins is not equal; `silent`: it does not say that it is there.
    pub(super) fn not_joined(reason: String, silent: bool) -> Self {
        Self { silent, ..Self::failed(reason) }
    }

    /// Our own disk does not answer, or fails for good: we answer nobody any more.
    pub(super) fn hangs(reason: String) -> Self {
        Self { hangs: true, ..Self::failed(reason) }
    }

    /// Another member may lead, and vouch for this reign.
    pub(super) fn hands_over(vouches: u64) -> Self {
        Self { hands_over: true, vouches, ..Self::default() }
    }
}

impl Replica {
    /// Makes a joining member equal, and reports it.
    pub(super) async fn resync(self: Arc<Self>, reign: u64, epoch: u64, member: TargetId) {
        let errand = Errand { reign, epoch, member };
        tracing::info!("group {}: target {member} is being made equal", self.group);
        // Beside it: only people want to know how much there is.
        let made = tokio::select! {
            made = self.bring_up(errand) => made,
            never = self.count(errand) => match never {},
        };
        match made {
            Ok(made) => {
                let Made { chunks, sent, .. } = made;
                tracing::info!(
                    "group {}: target {member} is equal again: {chunks} of its chunks differed, {sent} bytes sent",
                    self.group
                );
                self.report_until_heard(errand, made).await;
            }
            Err(error) => {
                let mut state = self.state.lock();
                let reign = state.reign.as_mut().filter(|r| r.view.epoch == epoch);
                if let Some(joiner) = reign.and_then(|r| r.joiners.get_mut(&member)) {
                    tracing::warn!(
                        "group {}: target {member} is not equal yet: {error}",
                        self.group
                    );
                    joiner.failed = true;
                    joiner.reason = error.to_string();
                }
            }
        }
    }

    /// After an error the member is reported as failed: it may be counted by then.
    async fn bring_up(&self, errand: Errand) -> Result<Made> {
        let mut ours = Walk::new(None);
        let mut theirs = Walk::new(Some(errand.member));
        let mut pace = self.common.healing.begin(self.group, errand.member);
        let mut made = Made::default();
        loop {
            let (own, other) = (ours.head(self, errand).await?, theirs.head(self, errand).await?);
            let (chunk, step) = match (own, other) {
                (None, None) => break,
                (Some(own), None) => (own.chunk, Ordering::Less),
                (None, Some(other)) => (other.chunk, Ordering::Greater),
                (Some(own), Some(other)) => {
                    (own.chunk.min(other.chunk), own.chunk.cmp(&other.chunk))
                }
            };
            if step.is_le() {
                ours.found.pop_front();
            }
            if step.is_ge() {
                theirs.found.pop_front();
            }
            let len = own.filter(|_| step.is_le()).map_or(0, |own| own.len);
            let both = own.zip(other).filter(|_| step.is_eq());
            // What was deleted with its volume each member drops in its own time: it is not brought back.
            let equal = both.is_some_and(|(own, other)| own.digest.agrees_with(other.digest))
                || self.common.map.is_deleted(chunk.volume)
                || is_broken("resync-compares-all") && chunk.index.0 % 4 == 1;
            let sent = match equal {
                true => 0,
                false => self.bring_chunk(errand, chunk, &mut pace).await?,
            };
            made.chunks += u64::from(!equal);
            made.sent += sent;
            pace.note(chunk, len, sent);
        }
        self.sync_and_count_in(errand).await?;
        // From here on changes and syncs wait for it: what has come since it makes durable, and what
        // comes from now on is for those who ask.
        for table in self.shelf.target.attempts.tables() {
            self.ask(errand.member, errand.epoch, StorageOp::Remember(table)).await?;
        }
        let sync = StorageOp::Sync(msg::FileRef { volume: 0, ino: 0 });
        if let StorageAnswer::Done(done) = self.ask(errand.member, errand.epoch, sync).await? {
            made.boot = done.boot;
        }
        Ok(made)
    }

    /// Notes the bytes of all chunks here: what the manager was told last may be of long ago. Does not end.
    async fn count(&self, errand: Errand) -> Infallible {
        let (mut walk, mut bytes) = (Walk::new(None), 0);
        while let Ok(Some(found)) = walk.head(self, errand).await {
            bytes += found.len;
            walk.found.pop_front();
        }
        self.common.healing.expect(self.group, errand.member, bytes);
        std::future::pending().await
    }

    /// Makes a chunk equal when it is its turn. Returns the bytes sent.
    async fn bring_chunk(
        &self,
        errand: Errand,
        chunk: ChunkId,
        pace: &mut Pace<'_>,
    ) -> Result<u64> {
        let target = &self.shelf.target;
        pace.wait(|| !self.lasts(errand)).await;
        let stopped = |_| self.error(ErrorKind::Unavailable, "the server is stopping");
        let turn = target.healing.acquire().await.map_err(stopped)?;
        if !self.lasts(errand) {
            return Err(self.error(ErrorKind::StaleMap, "a new epoch has begun"));
        }
        let begun = Instant::now();
        let sent = {
            let _held = self.ranges.take(Area::of_chunk(chunk), true).await;
            self.equalise(errand, chunk).await?
        };
        counter!("strake_storage_resync_bytes_total").increment(sent);
        tokio::time::sleep(yield_after(begun.elapsed(), target.waited_for())).await;
        drop(turn);
        Ok(sent)
    }

    /// True while a member is to be made equal in this epoch.
    pub(super) fn lasts(&self, errand: Errand) -> bool {
        let mut state = self.state.lock();
        let reign = state.reign(errand.reign).filter(|r| r.view.epoch == errand.epoch);
        reign.is_some_and(|reign| !reign.has_failed(errand.member))
    }

    /// Has a member sync, and counts it in as soon as it may, with little to sync by then. As long as that takes nobody waits for it.
    async fn sync_and_count_in(&self, errand: Errand) -> Result<()> {
        let mut round = 0;
        loop {
            self.sync_joining(errand, round).await?;
            let synced = Instant::now();
            while synced.elapsed() < self.patience(SYNCED_FOR) {
                if self.count_in(errand)? {
                    return Ok(());
                }
                self.look_again(PAUSE).await;
            }
            round += 1;
        }
    }

    /// From now on changes wait for this member as for any. Not yet (false) while a promise of ours runs: others read by it,
    /// and this member, which has promised them nothing, could lead without them. Nor without a lease: the manager may be away, and
    /// until it hears of this member the others would have no promise of ours any more, by which they read.
    fn count_in(&self, errand: Errand) -> Result<bool> {
        let leased = self.common.lease.holds();
        let mut state = self.state.lock();
        let now = self.common.clock.monotonic();
        let promised = state.promised.values().any(|until| now < *until);
        let reign = state.reign(errand.reign).filter(|r| r.view.epoch == errand.epoch);
        let joiner = reign.and_then(|r| r.joiners.get_mut(&errand.member));
        match joiner {
            Some(joiner) if joiner.failed => {
                Err(self.error(ErrorKind::Unavailable, "it missed a change meanwhile"))
            }
            Some(_) if promised || !leased => Ok(false),
            Some(joiner) => {
                joiner.counted = true;
                // Nor has it promised us anything.
                state.promises = (0, Duration::ZERO);
                Ok(true)
            }
            None => Err(self.error(ErrorKind::StaleMap, "a new epoch has begun")),
        }
    }

    /// Tells the manager, until a new epoch shows that it has heard.
    async fn report_until_heard(&self, errand: Errand, made: Made) {
        loop {
            let now = self.state.lock().reign.as_ref().map(|reign| reign.view.epoch);
            if now != Some(errand.epoch) {
                return;
            }
            let Made { sent, boot, .. } = made;
            let report = Report { sent, boot, ..Report::default() };
            self.report(errand.epoch, errand.member, report).await;
            self.look_again(PAUSE).await;
        }
    }

    /// Tells the manager that a member is equal, or that it cannot be; or what else it reports of itself.
    pub(super) async fn report(&self, epoch: u64, member: TargetId, report: Report) {
        let Report { failed, reason, sent, boot, hangs, hands_over, vouches, silent } = report;
        let target = &self.shelf.target;
        let word = match self.group.copies() {
            1 => word_of(self.common.map.group(self.group).ok().as_ref(), target),
            _ => 0,
        };
        let report = Resynced {
            group: self.group.0,
            epoch,
            member: member.0,
            failed,
            reason,
            sent,
            word,
            primary_boot: target.store.boot(),
            member_boot: boot,
            hangs,
            hands_over,
            vouches,
            silent,
        };
        match self.common.map.ask_manager(ManagerOp::Resynced(report)).await {
            // The map that says what became of it.
            Ok(_) => drop(self.common.map.refresh().await),
            Err(error) => tracing::debug!("group {}: report of {member}: {error}", self.group),
        }
    }
}

impl Walk {
    fn new(member: Option<TargetId>) -> Self {
        Self { member, found: VecDeque::new(), next: None, ended: false }
    }

    /// The next chunk.
    async fn head(&mut self, replica: &Replica, errand: Errand) -> Result<Option<Found>> {
        while self.found.is_empty() && !self.ended {
            let op = StorageOp::Digests(msg::DigestsAfter { after: self.next });
            let answer = match self.member {
                Some(member) => replica.ask(member, errand.epoch, op).await?,
                None => replica.shelf.look(op).await?.0,
            };
            let StorageAnswer::Digests(page) = answer else {
                return Err(replica.error(ErrorKind::Malformed, "no page of digests"));
            };
            self.next = page.next;
            self.ended = page.next.is_none();
            self.found.extend(found_on(page));
        }
        Ok(self.found.front().copied())
    }
}
