//! The primary: members that do not take what they are sent. They are named in the log, and to the manager: if that hears them, nobody
//! else would say why everything waits. Where they are silent, too, it takes one side out.

use super::failing::takes_out;
use super::lead::PAUSE_MAX;
use super::resync::Report;
use super::sync::LOOK_WAIT;
use super::{MEMBER_WAIT, Reign, Replica};
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::message::manager::Missed;
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Forward, StorageAnswer, StorageOp};

/// Who takes no change for so long is named: one that is dead is taken out in about as long. Who does not say that he takes none is
/// named as soon as his answer is late.
const LASTING: Duration = Duration::from_secs(3);
/// What was missed so long ago has nothing to do with what is missed now: a sync that waits for it is tried more often.
const FORGOTTEN: Duration = Duration::from_secs(100);
/// Where nothing was missed for longer than a call and a pause take, nothing is sent any more.
const SENT_WITHIN: Duration = Duration::from_secs(MEMBER_WAIT.as_secs() + 5);

/// A member that takes no change.
pub(super) struct Missing {
    /// When it was sent the first one,
    since: Duration,
    /// and when the last one was missed.
    last: Duration,
    /// It was named.
    is_told: bool,
    /// It has said nothing at least once, or that it cannot, and not only that it is not current.
    is_late: bool,
    /// When it was asked last whether it is there.
    asked: Option<Duration>,
    /// It did not say so.
    silent: bool,
}

impl Replica {
    /// A member has not taken a change, which it was sent at this moment.
    pub(super) async fn missed(&self, epoch: u64, member: TargetId, sent: Duration, error: &Error) {
        let (counts, in_sync) = {
            let mut state = self.state.lock();
            let Some(reign) = state.reign.as_mut().filter(|r| r.view.epoch == epoch) else {
                return;
            };
            let joining = reign.view.joining.contains(&member) && !reign.is_counted(member);
            if joining {
                let joiner = reign.joiners.entry(member).or_default();
                joiner.failed = true;
                joiner.reason = error.to_string();
            }
            (!joining, reign.view.in_sync.contains(&member))
        };
        tracing::debug!("group {}: target {member} has missed a change: {error}", self.group);
        if counts {
            self.note_missed(epoch, member, sent, error);
        }
        // Who is in sync and meets damage may answer readers, until that lasts and it takes itself out. Any other one answers nobody.
        let is_damaged = !in_sync && matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Garbled);
        if counts && (takes_out(error) || is_damaged) {
            // It answers nobody any more in this epoch; the manager takes it out by its own word.
            tracing::warn!("group {}: target {member} cannot take changes: {error}", self.group);
            self.report(epoch, member, Report::failed(error.to_string())).await;
        }
    }

    /// A member that counts was sent something at this moment that everybody waits for, and has not taken it.
    fn note_missed(&self, epoch: u64, member: TargetId, sent: Duration, error: &Error) {
        let now = self.common.clock.monotonic();
        let missing = {
            let mut state = self.state.lock();
            let reign = state.reign.as_mut().filter(|reign| reign.view.epoch == epoch);
            reign.and_then(|reign| reign.misses(member, sent, now, error.kind))
        };
        if let Some(missing) = missing {
            tracing::warn!(
                "group {}: writes wait for target {member}, which has taken none for {} s: {error}",
                self.group,
                missing.as_secs()
            );
        }
    }

    /// A member that counts has taken what it was sent.
    pub(super) fn note_taken(&self, member: TargetId) {
        if let Some(reign) = &mut self.state.lock().reign {
            reign.missing.remove(&member);
        }
    }

    /// Has a member follow into a reign that is not ready; what may be at it only. Everybody waits for that as for a change.
    pub(super) async fn have_adopted(&self, member: TargetId, epoch: u64) -> Result<StorageAnswer> {
        let sent = self.common.clock.monotonic();
        let answer = self.ask(member, epoch, StorageOp::Adopt(msg::Adopt {})).await;
        match &answer {
            Ok(_) => self.note_taken(member),
            Err(error) => self.note_missed(epoch, member, sent, error),
        }
        answer
    }

    /// Asks members that the manager is told of whether they are there: one that is slow says so.
    pub(super) fn look_at_missing(self: &Arc<Self>) {
        let now = self.common.clock.monotonic();
        let (epoch, due) = {
            let mut state = self.state.lock();
            let Some(reign) = state.reign.as_mut() else { return };
            (reign.view.epoch, reign.due_looks(now))
        };
        for member in due {
            let replica = self.clone();
            task::spawn(async move {
                let silent = replica.silent_member(Some(member)).await.is_some();
                let mut state = replica.state.lock();
                let reign = state.reign.as_mut().filter(|reign| reign.view.epoch == epoch);
                if let Some(missing) = reign.and_then(|reign| reign.missing.get_mut(&member)) {
                    missing.silent = silent;
                }
            });
        }
    }

    /// Asks a member that counts whether it is there, as the manager doubts it, and has it told if not: nothing that is sent to it need wait
    /// first until that is found out.
    pub fn doubt(self: &Arc<Self>, epoch: u64, member: TargetId) {
        let replica = self.clone();
        task::spawn(async move {
            let is_meant = |reign: &&mut Reign| {
                reign.view.epoch == epoch && reign.required().any(|one| one == member)
            };
            if replica.state.lock().reign.as_mut().filter(is_meant).is_none() {
                return;
            }
            // Every heartbeat says so.
            let since = replica.common.clock.monotonic().saturating_sub(LOOK_WAIT);
            let wait = replica.look_wait(LOOK_WAIT);
            let asked = (epoch, Forward::default());
            if !replica.was_silent(member, asked, wait, since).await {
                return;
            }
            let now = replica.common.clock.monotonic();
            if let Some(reign) = replica.state.lock().reign.as_mut().filter(is_meant) {
                reign.missing.entry(member).or_insert_with(|| Missing::silent(now)).last = now;
            }
        });
    }

    /// Tells the manager, until a new epoch shows that it has heard, that a member is not equal, and whether that is silent. It is asked once
    /// more then: what is thought of its server follows from it.
    pub(super) async fn report_failed(
        self: Arc<Self>,
        epoch: u64,
        member: TargetId,
        reason: String,
    ) {
        let (wait, asked) = (self.look_wait(LOOK_WAIT), Forward::default());
        loop {
            let now = self.state.lock().reign.as_ref().map(|reign| reign.view.epoch);
            if now != Some(epoch) {
                return;
            }
            let silent = self.is_silent(member, epoch, asked, wait).await
                && self.is_silent(member, epoch, asked, wait).await;
            self.report(epoch, member, Report::not_joined(reason.clone(), silent)).await;
            self.look_again(PAUSE_MAX).await;
        }
    }

    /// What the manager is told.
    pub fn missing(&self) -> Vec<Missed> {
        let now = self.common.clock.monotonic();
        let state = self.state.lock();
        let Some(reign) = &state.reign else { return Vec::new() };
        let (group, epoch, early) = (self.group.0, reign.view.epoch, reign.may_have_more());
        let named = reign.missing.iter().filter(|(_, missing)| missing.lasts(now));
        let told = |(member, missing): (&TargetId, &Missing)| {
            let lasts = now.saturating_sub(missing.since).as_millis();
            let for_ms = u64::try_from(lasts).unwrap_or(u64::MAX);
            Missed { group, epoch, member: member.0, for_ms, silent: missing.silent, early }
        };
        named.map(told).collect()
    }
}

impl Missing {
    fn new(sent: Duration, now: Duration) -> Self {
        Self { since: sent, last: now, is_told: false, is_late: false, asked: None, silent: false }
    }

    /// One that did not say that it is there. It is asked again at once: that may have been for a moment.
    fn silent(now: Duration) -> Self {
        let (is_told, is_late, silent) = (true, true, true);
        Self { is_told, is_late, silent, ..Self::new(now, now) }
    }

    /// The manager is told of it, as long as what it was sent is sent again and again.
    fn lasts(&self, now: Duration) -> bool {
        self.is_told && self.is_late && now.saturating_sub(self.last) <= SENT_WITHIN
    }
}

impl Reign {
    /// A member that counts has missed a change, which it was `sent` at this moment, with an error of this kind. For how long it has
    /// taken none, if that lasts and was not told yet.
    fn misses(
        &mut self,
        member: TargetId,
        sent: Duration,
        now: Duration,
        kind: ErrorKind,
    ) -> Option<Duration> {
        let missing = self.missing.entry(member).or_insert_with(|| Missing::new(sent, now));
        if sent >= missing.last + FORGOTTEN {
            *missing = Missing::new(sent, now);
        }
        missing.last = now;
        // Also who is slow says that, as soon as he gets a change again that is under way.
        missing.is_late |= kind != ErrorKind::NotCurrent;
        let lasts = now.saturating_sub(missing.since);
        (lasts >= LASTING && !std::mem::replace(&mut missing.is_told, true)).then_some(lasts)
    }

    /// Members that are to be asked now whether they are there.
    fn due_looks(&mut self, now: Duration) -> Vec<TargetId> {
        let is_due = |missing: &Missing| {
            missing.lasts(now) && missing.asked.is_none_or(|asked| now >= asked + LOOK_WAIT)
        };
        let due = self.missing.iter_mut().filter(|(_, missing)| is_due(missing));
        let noted = due.map(|(member, missing)| {
            missing.asked = Some(now);
            *member
        });
        noted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::View;

    const SILENT: ErrorKind = ErrorKind::Unavailable;

    /// The manager heard it, so it was waited for without end, and the log said nothing of that.
    #[test]
    fn a_member_that_takes_no_change_for_long_is_named_once_until_it_takes_one() {
        let (mut reign, member) = (Reign::new(View::default()), TargetId(3));
        let second = Duration::from_secs;
        let named = |reign: &mut Reign, seconds: std::ops::Range<u64>| {
            let misses = |at| reign.misses(member, second(at), second(at), SILENT);
            seconds.filter_map(misses).collect::<Vec<_>>()
        };
        assert_eq!(named(&mut reign, 10..60), [LASTING]);
        assert_eq!(reign.misses(TargetId(2), second(60), second(60), SILENT), None, "another one");
        reign.missing.remove(&member);
        assert!(named(&mut reign, 60..63).is_empty(), "it may pass");
        assert_eq!(named(&mut reign, 63..90), [LASTING]);
        // Nobody has tried since.
        assert!(named(&mut reign, 500..503).is_empty());
    }

    /// It counted from when its first answer was late, and was named after the second one.
    #[test]
    fn a_member_that_says_nothing_is_named_as_soon_as_its_answer_is_late() {
        let mut reign = Reign::new(View::default());
        let (sent, late) = (Duration::from_secs(10), Duration::from_secs(20));
        assert_eq!(reign.misses(TargetId(3), sent, late, SILENT), Some(late - sent));
    }

    #[test]
    fn a_member_that_is_named_is_asked_now_and_then_whether_it_is_there_while_changes_wait_for_it()
    {
        let (mut reign, member) = (Reign::new(View::default()), TargetId(3));
        let second = Duration::from_secs;
        assert!(reign.due_looks(second(10)).is_empty());
        reign.misses(member, second(0), second(2), SILENT);
        assert!(reign.due_looks(second(10)).is_empty(), "it is not named yet");
        reign.misses(member, second(2), second(10), SILENT);
        let asked: Vec<u64> =
            (10..60).filter(|&at| reign.due_looks(second(at)) == [member]).collect();
        assert_eq!(asked, [10, 13, 16, 19, 22, 25]);
    }

    /// One look had failed, and it was told for 3 s.
    #[test]
    fn a_member_that_was_silent_when_it_was_doubted_is_asked_again_at_once() {
        let (mut reign, member) = (Reign::new(View::default()), TargetId(3));
        let now = Duration::from_secs(10);
        reign.missing.insert(member, Missing::silent(now));
        assert_eq!(reign.due_looks(now), [member]);
        assert!(reign.due_looks(now).is_empty());
    }

    /// What keeps it from taking changes is neither the network nor its disk, unless it was late before.
    #[test]
    fn a_member_that_only_says_that_it_is_not_current_is_named_in_the_log_alone() {
        let (mut reign, member) = (Reign::new(View::default()), TargetId(3));
        let second = Duration::from_secs;
        let named = reign.misses(member, second(0), second(10), ErrorKind::NotCurrent);
        assert_eq!(named, Some(second(10)));
        assert!(!reign.missing[&member].lasts(second(10)));
        for (at, kind) in [(20, SILENT), (30, ErrorKind::NotCurrent)] {
            reign.misses(member, second(at), second(at), kind);
            assert!(reign.missing[&member].lasts(second(at)), "{kind:?}");
        }
    }
}
