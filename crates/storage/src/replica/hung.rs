//! A member whose disk does not answer: it takes itself out, because nobody else can tell it from one that is slow.
//!
//! What it said of itself in a heartbeat could come late, when the disk answers again and it serves readers. So, as a member that
//! leaves, it answers nobody any more in the present epoch, and then reports that, of this epoch: nothing else is said by a copy
//! of the report that comes later. The manager takes it out if another one in sync serves; else it goes on in a new epoch, and
//! offers to go again after a pause that becomes longer each time: each offer costs an epoch.
//!
//! So does a primary whose own store fails for good at what it needs to go on (`failing`), whom nobody else would take out; and a
//! member that the manager asks to go, because its server and that of another member do not reach each other.

use super::failing::STORE_FAILS;
use super::resync::Report;
use super::{Reign, Replica, State, View};
use std::time::Duration;
use strake_types::{Error, ErrorKind, TargetId};
use strake_wire::message::manager::ManagerOp;
use tokio::time::{Instant, timeout};

/// How long it waits for what it has acknowledged alone, before others go on without it.
const EARLY_WAIT: Duration = Duration::from_secs(2);
/// How long for the manager.
const REPORT_WAIT: Duration = Duration::from_secs(5);
/// Pause before it says the same again, which the manager may not have heard; and the first one before it offers to go in another
/// epoch, as the manager needed it.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest of these.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// What the manager is told of a member that it has asked to go.
const NOT_REACHED: &str = "its server and that of another member do not reach each other";

/// When a member has offered to go.
#[derive(Default)]
pub(super) struct Offers {
    last: Option<Duration>,
    /// Until it does so in another epoch.
    pause: Duration,
    /// The epoch from which the manager asks it to go.
    asked: Option<u64>,
}

impl Offers {
    /// True if it is time to, `again` in the same epoch.
    fn is_due(&mut self, again: bool, now: Duration) -> bool {
        let pause = if again { PAUSE } else { self.pause };
        if self.last.is_some_and(|last| now < last + pause) {
            return false;
        }
        self.last = Some(now);
        if !again {
            self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        }
        true
    }

    /// None is made at present.
    fn rest(&mut self) {
        *self = Self { asked: self.asked, ..Self::default() };
    }

    /// True if it is time to in another epoch; as for the first time if the last one was long ago.
    pub(super) fn is_due_anew(&mut self, now: Duration) -> bool {
        if self.last.is_some_and(|last| now >= last + 2 * PAUSE_MAX) {
            *self = Self::default();
        }
        self.is_due(false, now)
    }

    /// The last one was not made, for the manager is away: the next one need not wait for longer.
    fn not_made(&mut self) {
        self.pause = PAUSE;
    }
}

impl State {
    /// True for a primary that may have acknowledged what others do not have. One that leads by the map, and does not know it yet, may.
    fn may_have_more(&self, view: &View, me: TargetId) -> bool {
        let leads = view.in_sync.first() == Some(&me);
        let reign = self.reign.as_ref().filter(|reign| !leads || reign.view.epoch == view.epoch);
        reign.map_or(leads, Reign::may_have_more)
    }
}

impl Reign {
    /// True if what it, or an earlier reign that it knows nothing of yet, has acknowledged may be nowhere else.
    pub(super) fn may_have_more(&self) -> bool {
        !self.ready || !self.early.is_empty()
    }
}

impl Replica {
    /// True if it is time to give up, or to say so again.
    pub fn must_give_up(&self) -> bool {
        let epoch = self.hangs_in();
        let mut state = self.state.lock();
        let Some(epoch) = epoch else {
            state.offers.rest();
            return false;
        };
        let again = state.gave_up >= Some(epoch);
        state.offers.is_due(again, self.common.clock.monotonic())
    }

    /// The epoch in which this member is in sync beside others, if its disk has not answered for so long that the manager knows of
    /// it; or if it leads in that epoch and its store fails; or if the manager asks it to go; or if it has given up in that epoch
    /// before, and the manager may not have heard it.
    fn hangs_in(&self) -> Option<u64> {
        let hangs = self.shelf.target.watch.has_hung(Instant::now());
        let (gave_up, own_failed, asked) = {
            let state = self.state.lock();
            (state.gave_up, state.own_failed, state.offers.asked)
        };
        if !hangs && gave_up.is_none() && own_failed.is_none() && asked.is_none() {
            return None;
        }
        // Whether we have adopted that epoch or not: what is under way may keep us from it.
        let view = self.view().ok()?;
        let beside_others = view.in_sync.contains(&self.me()) && view.in_sync.len() > 1;
        let unheard = gave_up >= Some(view.epoch);
        let now = self.common.clock.monotonic();
        let (fails, goes) = {
            let state = self.state.lock();
            let goes = asked == Some(view.epoch) && !state.may_have_more(&view, self.me());
            (state.own_store_has_failed(view.epoch, now), goes)
        };
        (beside_others && (hangs || unheard || fails || goes)).then_some(view.epoch)
    }

    /// The manager asks this member to go from an epoch; `None`: not, or not any more.
    pub fn ask_to_resign(&self, epoch: Option<u64>) {
        self.state.lock().offers.asked = epoch;
    }

    /// If so it still is: from now on this member answers nobody in this epoch, and the manager is told.
    pub async fn give_up(&self) {
        // Should the manager be away, nobody would take our place before it is back.
        let known = timeout(REPORT_WAIT, self.common.map.refresh()).await;
        if !matches!(known, Ok(Ok(_))) {
            return self.state.lock().offers.not_made();
        }
        let heard = self.is_heard_as_primary().await;
        let (Some(epoch), Ok(view)) = (self.hangs_in(), self.view()) else { return };
        if !heard && view.in_sync.first() == Some(&self.me()) {
            let (group, me) = (self.group, self.me());
            return tracing::debug!("group {group}: the manager would not let {me} go");
        }
        let silent = self.shelf.target.check_disk().err();
        // Every answer is checked against this at its very end.
        let (reign, fails, is_asked) = {
            let mut state = self.state.lock();
            let fails = state.own_failed.is_some_and(|(failed, _)| failed == epoch);
            let is_asked = state.offers.asked == Some(epoch);
            let is_sound = silent.is_none() && !fails && state.gave_up < Some(epoch);
            if is_asked && is_sound && state.may_have_more(&view, self.me()) {
                // It has acknowledged something since. The manager hears of that, and asks another one.
                return;
            }
            state.gave_up = state.gave_up.max(Some(epoch));
            state.resign(epoch);
            (state.reign.as_ref().map(|reign| reign.since), fails, is_asked)
        };
        self.progress.notify_waiters();
        if let Some(reign) = reign {
            // Others have that in memory by now, if they answer. What they have not is told to who wrote it, as that of a primary
            // that dies. A reign that is not ready is not waited for: it may wait for this very disk.
            let early = self.until_nothing_is_early(reign);
            if !matches!(timeout(EARLY_WAIT, early).await, Ok(Ok(()))) {
                tracing::debug!("group {}: not all have what was acknowledged early", self.group);
                if fails && silent.is_none() {
                    // It is sent still: this is said again, and nobody loses it meanwhile.
                    return;
                }
            }
        }
        let (group, me) = (self.group, self.me());
        let reason = match silent {
            Some(silent) => silent.to_string(),
            None if fails => STORE_FAILS.to_owned(),
            None if is_asked => NOT_REACHED.to_owned(),
            None => "its disk did not answer".to_owned(),
        };
        tracing::warn!("group {group}: target {me} answers nobody in epoch {epoch}: {reason}");
        let told = self.report(epoch, me, Report::hangs(reason));
        if timeout(REPORT_WAIT, told).await.is_err() {
            tracing::debug!("group {group}: the manager does not hear that {me} hangs");
        }
    }

    /// True if the manager says that it takes out a primary by its own word. One of an earlier release would let the group keep one
    /// that answers nobody.
    async fn is_heard_as_primary(&self) -> bool {
        let asked = ManagerOp::GetMap(self.common.map.question());
        let said = timeout(REPORT_WAIT, self.common.map.ask_manager(asked)).await;
        said.is_ok_and(|said| said.is_ok_and(|reply| reply.hears_hangs))
    }

    /// Waits until this member answers nobody any more in an epoch, because it has given up: an error that says so.
    /// What it has under way goes on, and who waits for that asks whoever leads next.
    pub(super) async fn given_up(&self, epoch: u64) -> Error {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.state.lock().gave_up >= Some(epoch) {
                return self.error(ErrorKind::NotCurrent, "it answers nobody in this epoch");
            }
            progress.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the disks of all members hang, the manager needs each that offers to go: a new epoch every five seconds, for each member.
    #[test]
    fn members_that_are_needed_begin_fewer_and_fewer_epochs() {
        let mut offers = Offers::default();
        let second = Duration::from_secs;
        let made = |offers: &mut Offers, seconds: std::ops::Range<u64>| {
            seconds.filter(|&nth| offers.is_due(false, second(nth))).count()
        };
        assert_eq!(made(&mut offers, 0..1), 1, "the first one at once");
        assert_eq!(made(&mut offers, 1..300), 6);
        assert_eq!(made(&mut offers, 300..3_900), 30);
        // What the manager may not have heard is said again soon: that begins no epoch.
        assert!(!offers.is_due(false, second(3_901)));
        assert!(offers.is_due(true, second(3_910)));
    }

    #[test]
    fn an_offer_that_the_manager_was_not_there_for_is_made_again_soon() {
        let mut offers = Offers::default();
        for nth in 0..100 {
            assert!(offers.is_due(false, PAUSE * nth), "{nth}");
            offers.not_made();
        }
    }
}
