//! Making a joining member equal to the primary.

use super::Replica;
use super::ranges::Area;
use super::recover::Errand;
use metrics::counter;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{ChunkId, ErrorKind, Result, TargetId};
use strake_wire::message::manager::{ManagerOp, ManagerRequest, Resynced};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp};

/// Pause before the manager is told again.
const PAUSE: Duration = Duration::from_millis(200);

/// The chunks of a group on one target, in order.
struct Walk {
    /// `None`: our own.
    member: Option<TargetId>,
    found: VecDeque<(ChunkId, u64)>,
    next: Option<msg::Chunk>,
    ended: bool,
}

impl Replica {
    /// Makes a joining member equal, and reports it.
    pub(super) async fn resync(self: Arc<Self>, reign: u64, epoch: u64, member: TargetId) {
        let errand = Errand { reign, epoch, member };
        tracing::info!("group {}: target {member} is being made equal", self.group);
        match self.bring_up(errand).await {
            Ok((chunks, bytes)) => {
                tracing::info!(
                    "group {}: target {member} is equal again: {chunks} of its chunks differed, {bytes} bytes sent",
                    self.group
                );
                self.report_until_heard(errand).await;
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
                }
            }
        }
    }

    /// Chunks that differed and bytes sent. After an error the member is reported as failed: it may
    /// be counted by then.
    async fn bring_up(&self, errand: Errand) -> Result<(u64, u64)> {
        let mut ours = Walk::new(None);
        let mut theirs = Walk::new(Some(errand.member));
        let (mut chunks, mut bytes) = (0, 0);
        let sent = counter!("strake_storage_resync_bytes_total");
        loop {
            let (own, other) = (ours.head(self, errand).await?, theirs.head(self, errand).await?);
            let (chunk, step) = match (own, other) {
                (None, None) => break,
                (Some((chunk, _)), None) => (chunk, Ordering::Less),
                (None, Some((chunk, _))) => (chunk, Ordering::Greater),
                (Some((own, _)), Some((other, _))) => (own.min(other), own.cmp(&other)),
            };
            if step.is_le() {
                ours.found.pop_front();
            }
            if step.is_ge() {
                theirs.found.pop_front();
            }
            let equal = step.is_eq() && own.map(|o| o.1) == other.map(|o| o.1);
            if !equal {
                let _held = self.ranges.take(Area::of_chunk(chunk), true).await;
                let some = self.equalise(errand, chunk).await?;
                (chunks, bytes) = (chunks + 1, bytes + some);
                sent.increment(some);
            }
        }
        // From here on changes and syncs wait for it: what it has now it makes durable, and what
        // comes from now on is for those who ask.
        self.count_in(errand)?;
        let table = self.shelf.target.attempts.table();
        self.ask(errand.member, errand.epoch, StorageOp::Remember(table)).await?;
        let sync = StorageOp::Sync(msg::FileRef { volume: 0, ino: 0 });
        self.ask(errand.member, errand.epoch, sync).await?;
        Ok((chunks, bytes))
    }

    /// From now on changes wait for this member as for any.
    fn count_in(&self, errand: Errand) -> Result<()> {
        let mut state = self.state.lock();
        let reign = state.reign.as_mut();
        let reign = reign.filter(|r| r.since == errand.reign && r.view.epoch == errand.epoch);
        let joiner = reign.and_then(|r| r.joiners.get_mut(&errand.member));
        match joiner {
            Some(joiner) if !joiner.failed => {
                joiner.counted = true;
                // This one has promised nothing.
                state.promises = (0, Duration::ZERO);
                Ok(())
            }
            Some(_) => Err(self.error(ErrorKind::Unavailable, "it missed a change meanwhile")),
            None => Err(self.error(ErrorKind::StaleMap, "a new epoch has begun")),
        }
    }

    /// Tells the manager, until a new epoch shows that it has heard.
    async fn report_until_heard(&self, errand: Errand) {
        loop {
            let now = self.state.lock().reign.as_ref().map(|reign| reign.view.epoch);
            if now != Some(errand.epoch) {
                return;
            }
            self.report(errand.epoch, errand.member, false).await;
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.current(0).await {
                tracing::debug!("{error}");
            }
        }
    }

    /// Tells the manager that a member is equal, or that it cannot be.
    pub(super) async fn report(&self, epoch: u64, member: TargetId, failed: bool) {
        let report = Resynced { group: self.group.0, epoch, member: member.0, failed };
        let told = async {
            let op = Some(ManagerOp::Resynced(report));
            self.common.map.manager()?.call(ManagerRequest { op }).await
        };
        match told.await {
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

    /// The next chunk, and its digest.
    async fn head(&mut self, replica: &Replica, errand: Errand) -> Result<Option<(ChunkId, u64)>> {
        while self.found.is_empty() && !self.ended {
            let op = StorageOp::Digests(msg::DigestsAfter { after: self.next });
            let answer = match self.member {
                Some(member) => replica.ask(member, errand.epoch, op).await?,
                None => replica.shelf.look(op).await?.0,
            };
            let StorageAnswer::Digests(page) = answer else {
                return Err(replica.error(ErrorKind::Malformed, "no page of digests"));
            };
            let chunks = page.chunks.into_iter().map(ChunkId::from);
            self.found.extend(chunks.zip(page.digests));
            self.next = page.next;
            self.ended = page.next.is_none();
        }
        Ok(self.found.front().copied())
    }
}
