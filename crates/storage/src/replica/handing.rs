//! A primary that leads in the place of another member, which is back: it lets that one lead when all have what it has acknowledged.
//!
//! Whoever leads next writes its own contents over whatever is in doubt. So what a primary has acknowledged alone (`--ack primary`)
//! would be gone, although nobody has failed. As the manager asks for it in the map, the primary acknowledges nothing alone any more for
//! the rest of the epoch, and says so when the last of what it has is at all members. Nobody waits for that: should a member not
//! answer, it leads on until that one does, or is taken out.

use super::resync::Report;
use super::{Reign, Replica};
use std::time::Duration;

/// Pause before it says the same again, which the manager may not have heard.
const PAUSE: Duration = Duration::from_secs(1);

impl Replica {
    /// If another member is to lead after this epoch, and may: the manager is told so.
    pub(super) async fn hand_over(&self) {
        let me = self.me();
        let group = self.common.map.group(self.group).ok();
        let asked = group.filter(|g| g.hand_over == g.epoch && g.in_sync().first() == Some(&me.0));
        let Some(group) = asked else { return };
        let now = self.common.clock.monotonic();
        let vouches = {
            let mut state = self.state.lock();
            state.hands_over = Some(group.epoch);
            let just_now = |(epoch, at): (u64, Duration)| {
                epoch == group.epoch && now.saturating_sub(at) < PAUSE
            };
            // Of this very epoch: in an earlier one that it is still in something may be acknowledged yet. And ready: what was
            // acknowledged in a reign before, of which this one knows nothing, the others have only then.
            let all_have = |reign: &&Reign| {
                reign.ready && reign.view.epoch == group.epoch && reign.early.is_empty()
            };
            let vouches = state.reign.as_ref().filter(all_have).map(|reign| reign.vouches);
            let said = state.handed_at.is_some_and(just_now);
            let Some(vouches) = vouches.filter(|_| !said) else { return };
            state.handed_at = Some((group.epoch, now));
            vouches
        };
        tracing::debug!("group {}: another member than target {me} may lead", self.group);
        // Should the reign have ended since, so has the epoch, and nobody takes note of this.
        self.report(group.epoch, me, Report::hands_over(vouches)).await;
    }
}
