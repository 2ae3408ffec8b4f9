//! A member that is to leave: it stops answering by itself, so that nobody has to wait for its lease.

use super::resync::Report;
use super::{Replica, State};
use std::time::Duration;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;

/// How long it waits for what it has acknowledged alone, before it looks at the map again.
const EARLY_WAIT: Duration = Duration::from_secs(2);

/// Pause before it offers to go again: the manager needed it.
const PAUSE: Duration = Duration::from_secs(1);

/// True if a member may offer to go from an epoch: of the same one that it last said so of it may not have been heard.
fn may_offer(last: Option<(u64, Duration)>, epoch: u64, now: Duration) -> bool {
    last.is_none_or(|(said, at)| said == epoch || now.saturating_sub(at) >= PAUSE)
}

impl State {
    /// True for a primary that is not ready: what it has acknowledged alone in a reign before, of which this one knows nothing, the
    /// others have only then.
    fn begins_to_lead(&self) -> bool {
        self.reign.as_ref().is_some_and(|reign| !reign.ready)
    }
}

impl Replica {
    /// If this member is in sync, is to leave and is not needed: from now on it answers nobody in this
    /// epoch, and the manager is told so. What it has under way goes on in the next epoch.
    pub(super) async fn let_go(&self) {
        let me = self.me();
        let may_go = || {
            let group = self.common.map.group(self.group).ok();
            let group = group.filter(|g| g.in_sync().contains(&me.0) && g.lets_go(me.0));
            group.map(|group| group.epoch)
        };
        let Some(epoch) = may_go() else { return };
        let now = self.common.clock.monotonic();
        let offers = {
            let state = self.state.lock();
            !state.begins_to_lead() && may_offer(state.let_go_at, epoch, now)
        };
        // Should the manager be away, nobody would take our place before it is back.
        if !offers || self.common.map.refresh().await.is_err() {
            return;
        }
        let Some(epoch) = may_go() else { return };
        if !self.hold_epoch().await.is_ok_and(|adopted| *adopted == epoch) {
            return;
        }
        let reign = {
            let mut state = self.state.lock();
            // Another one may have begun since.
            if state.begins_to_lead() {
                return;
            }
            // Every answer is checked against this at its very end.
            state.resign(epoch);
            state.let_go_at = Some((epoch, now));
            state.reign.as_ref().map(|reign| reign.since)
        };
        if let Some(reign) = reign {
            // What it has acknowledged alone, the others are to have first.
            let early = self.until_nothing_is_early(reign);
            if !matches!(tokio::time::timeout(EARLY_WAIT, early).await, Ok(Ok(()))) {
                return tracing::debug!("group {}: target {me} cannot leave yet", self.group);
            }
        }
        tracing::info!("group {}: target {me} leaves, others have everything", self.group);
        self.report(epoch, me, Report::failed("it leaves".into())).await;
        // Those who go on learn it at once and not with their next heartbeat.
        let Ok(group) = self.common.map.group(self.group) else { return };
        if group.epoch > epoch {
            let news = group.in_sync().iter().map(|&member| {
                self.ask(member.into(), group.epoch, StorageOp::Settle(msg::Settle::default()))
            });
            futures::future::join_all(news).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose store fails has resigned in each epoch before it offers to go: it was told of ten epochs a second.
    #[test]
    fn a_member_that_is_needed_rests_before_it_offers_to_go_from_the_next_epoch() {
        let at = Duration::from_millis;
        assert!(may_offer(None, 7, at(0)), "the first time");
        let last = Some((7, at(500)));
        assert!(may_offer(last, 7, at(600)), "it may not have been heard");
        assert!(!may_offer(last, 8, at(600)));
        assert!(may_offer(last, 8, at(500) + PAUSE));
    }
}
