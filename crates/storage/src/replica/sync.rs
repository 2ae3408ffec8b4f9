//! The primary: makes durable what all members have.

use super::lead::Numbered;
use super::{Message, Replica};
use crate::order::Order;
use crate::syncs::Asked;
use futures::future::{join_all, try_join};
use std::time::Duration;
use strake_base::is_broken;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::StorageOp;
use tokio::time::timeout;

/// How long a member may take to say that it is there.
const LOOK_WAIT: Duration = Duration::from_secs(3);
/// Pause before one that did not is asked again: who is dead is taken out in less.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

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
        tokio::select! {
            synced = try_join(others, ours) => { synced?; }
            hung = self.given_up(view.epoch) => return Err(hung),
        }
        self.check_copies(numbered.reign, least)?;
        self.check_answers(numbered.reign).await
    }

    /// Of a sync that takes long: the error of a member that does not answer, if there is one. One that restarts, or is lost, is
    /// back or out of the group by the second look.
    pub async fn silent_for_long(&self) -> Option<Error> {
        let (first, _) = self.silent_member().await?;
        tokio::time::sleep(LOOK_AGAIN).await;
        let (second, error) = self.silent_member().await?;
        (first == second).then_some(error)
    }

    /// A member that does not answer, and the error. What a disk is at work on keeps none from saying that it is there.
    pub(super) async fn silent_member(&self) -> Option<(TargetId, Error)> {
        let reign = self.state.lock().reign.as_ref().map(|reign| reign.since)?;
        let (epoch, members, forward) = self.plan(&Numbered { reign, number: 0 }).ok()?;
        let message = Message::of(StorageOp::Settle(msg::Settle::default()));
        let asked = members.iter().map(|&member| {
            let asked = self.forward(member, epoch, forward, &message);
            timeout(LOOK_WAIT, asked)
        });
        for (member, answer) in members.iter().zip(join_all(asked).await) {
            let is_silent = match answer {
                Ok(answer) => answer.is_err_and(|error| error.kind == ErrorKind::Unavailable),
                Err(_late) => true,
            };
            if is_silent {
                let what = format!("target {member} is to sync, and does not answer");
                return Some((*member, self.error(ErrorKind::Unavailable, &what)));
            }
        }
        None
    }
}
