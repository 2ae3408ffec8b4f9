//! The primary: makes durable what all members have.

use super::errand::Errand;
use super::lead::Numbered;
use super::{Message, Replica, SYNC_WAIT};
use crate::order::Order;
use crate::syncs::Asked;
use futures::future::{join_all, try_join};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strake_base::is_broken;
use strake_base::random::mixed;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Attempt, Forward, StorageOp};
use tokio::time::{Instant, timeout};

/// How long a member may take to say that it is there.
pub(super) const LOOK_WAIT: Duration = Duration::from_secs(3);
/// Pause before one that did not is asked again: who is dead is taken out in less.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long a member that joins may be at work on its syncs in all: as long as clients wait for one.
const JOIN_WAIT: Duration = Duration::from_secs(20 * 60);
/// A sync that takes no longer leaves little for the next one.
const BRIEF: Duration = Duration::from_secs(10);
/// Syncs of a member that joins, at most, in one round.
const JOIN_SYNCS_MAX: u64 = 3;

/// What came of it when a member was asked last whether it is there.
#[derive(Default)]
pub(super) struct Look {
    epoch: u64,
    /// It had so long to say so.
    wait: Duration,
    ended: Duration,
    silent: bool,
}

/// The same of all members. Each is asked by one at a time.
pub(super) type Looks = Mutex<HashMap<TargetId, Arc<tokio::sync::Mutex<Look>>>>;

impl Replica {
    /// Makes durable what all in-sync members have. Members that have done so are done with it also if this ends before the others
    /// have, and its client asks again.
    pub async fn sync(&self, order: &Order, op: StorageOp) -> Result<()> {
        let view = self.current(order.epoch).await?;
        self.check_lead(&view)?;
        let numbered = Numbered { reign: self.reigning().await?, number: 0 };
        let least = order.safety.min_copies;
        self.check_copies(numbered.reign, least)?;
        let message = Message { attempt: order.attempt, ..Message::of(op) };
        let others = async {
            self.until_nothing_is_early(numbered.reign).await?;
            match is_broken("syncs-go-to-all") {
                true => Ok(()),
                false => self.spread(&numbered, &message).await.map(drop),
            }
        };
        let ours = self.shelf.sync_asked(Asked::of(numbered.reign, order.attempt));
        let ours = async { ours.await.map_err(|error| self.left_to_others(error)) };
        tokio::select! {
            synced = try_join(others, ours) => { synced?; }
            hung = self.given_up(view.epoch) => return Err(hung),
        }
        self.check_copies(numbered.reign, least)?;
        self.check_answers(numbered.reign).await
    }

    /// Has a member that joins, and does not count yet, make durable what it was sent, and what has come while it did so. When it
    /// counts, clients wait for its sync as for that of any: by then little is left. In each round, of which the first is 0, these are
    /// other syncs.
    pub(super) async fn sync_joining(&self, errand: Errand, round: u32) -> Result<()> {
        let until = Instant::now() + JOIN_WAIT;
        let first = u64::from(round) * JOIN_SYNCS_MAX;
        for nth in first..first + JOIN_SYNCS_MAX {
            let began = Instant::now();
            self.sync_patiently(errand, nth, until).await?;
            if began.elapsed() < BRIEF {
                break;
            }
        }
        Ok(())
    }

    /// One of these syncs, however long it takes, as long as the member says that it is there. Nobody else waits for it.
    async fn sync_patiently(&self, errand: Errand, nth: u64, until: Instant) -> Result<()> {
        let Errand { reign, epoch, member } = errand;
        let numbered = Numbered { reign, number: 0 };
        // In one epoch it is made equal once: what is begun for this number first has all that it was sent before.
        let (client, seq) = (mixed(u64::from(self.group.0)), (epoch << 32) + nth);
        let attempt = Some(Attempt { client, seq, settled: 0 });
        let sync = StorageOp::Sync(msg::FileRef { volume: 0, ino: 0 });
        let message = Message { attempt, ..Message::of(sync) };
        let patience = self.patience(SYNC_WAIT);
        loop {
            let (_, _, forward) = self.plan(&numbered)?;
            if !self.lasts(errand) {
                let what = "a new epoch has begun, or it missed a change meanwhile";
                return Err(self.error(ErrorKind::StaleMap, what));
            }
            let asked = Instant::now();
            let Err(error) = self.forward(member, epoch, forward, &message).await else {
                return Ok(());
            };
            // Who says anything is not at work on it.
            if asked.elapsed() < patience || Instant::now() >= until {
                return Err(error);
            }
            if let Some(silent) = self.silent_for_long(Some(member)).await {
                return Err(silent);
            }
            tracing::debug!("group {}: target {member} is still at work on a sync", self.group);
        }
    }

    /// Of a sync that takes long: the error of a member that does not answer, if there is one, or `of` this one. One that
    /// restarts, or is lost, is back or out of the group by the second look.
    pub async fn silent_for_long(&self, of: Option<TargetId>) -> Option<Error> {
        let (first, _) = self.silent_member(of).await?;
        tokio::time::sleep(self.patience(LOOK_AGAIN)).await;
        let (second, error) = self.silent_member(of).await?;
        (first == second).then_some(error)
    }

    /// A member that does not answer, and the error.
    pub(super) async fn silent_member(&self, of: Option<TargetId>) -> Option<(TargetId, Error)> {
        let reign = self.state.lock().reign.as_ref().map(|reign| reign.since)?;
        let (epoch, waited_for, forward) = self.plan(&Numbered { reign, number: 0 }).ok()?;
        let members = of.map_or(waited_for, |of| vec![of]);
        let wait = self.look_wait(LOOK_WAIT);
        let asked = members.iter().map(|&member| self.is_silent(member, epoch, forward, wait));
        let silent = join_all(asked).await;
        let (member, _) = members.into_iter().zip(silent).find(|(_, is_silent)| *is_silent)?;
        let what = format!("target {member} is to sync, and does not answer");
        Some((member, self.error(ErrorKind::Unavailable, &what)))
    }

    /// How long a member may take to say that it is there: no less in tests, as one that is may be slow.
    pub(super) fn look_wait(&self, usual: Duration) -> Duration {
        self.patience(usual).max(usual)
    }

    /// True if a member does not say in time that it is there. What a disk is at work on keeps none from that.
    pub(super) async fn is_silent(
        &self,
        member: TargetId,
        epoch: u64,
        forward: Forward,
        wait: Duration,
    ) -> bool {
        let now = self.common.clock.monotonic();
        self.was_silent(member, (epoch, forward), wait, now).await
    }

    /// The same, or what came of it since then when somebody else asked: very many changes may want to know it.
    pub(super) async fn was_silent(
        &self,
        member: TargetId,
        (epoch, forward): (u64, Forward),
        wait: Duration,
        since: Duration,
    ) -> bool {
        let last = self.looks.lock().entry(member).or_default().clone();
        let mut last = last.lock().await;
        if last.epoch == epoch && last.wait >= wait && last.ended >= since {
            return last.silent;
        }
        let message = Message::of(StorageOp::Settle(msg::Settle::default()));
        let forward = Forward { number: 0, ..forward };
        let silent = match timeout(wait, self.forward(member, epoch, forward, &message)).await {
            Ok(answer) => answer.is_err_and(|error| error.kind == ErrorKind::Unavailable),
            Err(_late) => true,
        };
        *last = Look { epoch, wait, ended: self.common.clock.monotonic(), silent };
        silent
    }
}
