//! A member whose disk does not answer: it takes itself out, because nobody else can tell it from one that is slow.
//!
//! What it said of itself in a heartbeat could come late, when the disk answers again and it serves readers. So, as a member that
//! leaves, it answers nobody any more in the present epoch, and then reports that, of this epoch: nothing else is said by a copy
//! of the report that comes later. The manager takes it out if another one in sync serves; else it goes on in a new epoch.

use super::Replica;
use super::resync::Report;
use std::time::Duration;
use strake_types::{Error, ErrorKind};
use tokio::time::{Instant, timeout};

/// How long it waits for what it has acknowledged alone, before others go on without it.
const EARLY_WAIT: Duration = Duration::from_secs(2);
/// How long for the manager.
const REPORT_WAIT: Duration = Duration::from_secs(5);
/// Pause before it offers to go again: the manager was away, or needs it.
const PAUSE: Duration = Duration::from_secs(5);

impl Replica {
    /// True if it is time to give up, or to say so again.
    pub fn must_give_up(&self) -> bool {
        if self.hangs_in().is_none() {
            return false;
        }
        let now = self.common.clock.monotonic();
        let mut state = self.state.lock();
        if state.gives_up_at.is_some_and(|before| now < before + PAUSE) {
            return false;
        }
        state.gives_up_at = Some(now);
        true
    }

    /// The epoch in which this member is in sync beside others, if its disk has not answered for so long that the manager knows of
    /// it; or if it has given up in that epoch before, and the manager may not have heard it.
    fn hangs_in(&self) -> Option<u64> {
        let hangs = self.shelf.target.watch.has_hung(Instant::now());
        let gave_up = self.state.lock().gave_up;
        if !hangs && gave_up.is_none() {
            return None;
        }
        // Whether we have adopted that epoch or not: what is under way may keep us from it.
        let view = self.view().ok()?;
        let beside_others = view.in_sync.contains(&self.me()) && view.in_sync.len() > 1;
        let unheard = gave_up >= Some(view.epoch);
        (beside_others && (hangs || unheard)).then_some(view.epoch)
    }

    /// If so it still is: from now on this member answers nobody in this epoch, and the manager is told.
    pub async fn give_up(&self) {
        // Should the manager be away, nobody would take our place before it is back.
        let known = timeout(REPORT_WAIT, self.common.map.refresh()).await;
        if !matches!(known, Ok(Ok(_))) {
            return;
        }
        let Some(epoch) = self.hangs_in() else { return };
        // Every answer is checked against this at its very end.
        let reign = {
            let mut state = self.state.lock();
            state.gave_up = state.gave_up.max(Some(epoch));
            state.resign(epoch);
            state.reign.as_ref().map(|reign| reign.since)
        };
        self.progress.notify_waiters();
        if let Some(reign) = reign {
            // Others have that in memory by now, if they answer. What they have not is told to who wrote it, as that of a primary
            // that dies.
            let early = self.until_nothing_is_early(reign);
            if !matches!(timeout(EARLY_WAIT, early).await, Ok(Ok(()))) {
                tracing::debug!("group {}: not all have what was acknowledged early", self.group);
            }
        }
        let (group, me) = (self.group, self.me());
        let silent = self.shelf.target.check_disk().err();
        let reason = silent.map_or_else(|| "its disk did not answer".to_owned(), |e| e.to_string());
        tracing::warn!("group {group}: target {me} answers nobody in epoch {epoch}: {reason}");
        let told = self.report(epoch, me, Report::hangs(reason));
        if timeout(REPORT_WAIT, told).await.is_err() {
            tracing::debug!("group {group}: the manager does not hear that {me} hangs");
        }
    }

    /// Waits until this member answers nobody any more in an epoch because its disk does not answer: an error that says so. What it has
    /// under way goes on, and who waits for that asks whoever leads next.
    pub(super) async fn given_up(&self, epoch: u64) -> Error {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.state.lock().gave_up >= Some(epoch) {
                return self.error(ErrorKind::NotCurrent, "its disk does not answer");
            }
            progress.await;
        }
    }
}
