//! The primary: sees that all members have its changes.

use super::errand::Errand;
use super::failing::takes_out;
use super::lead::{Numbered, PAUSE_FIRST, PAUSE_MAX};
use super::resync::Report;
use super::{Message, Replica};
use futures::future::join_all;
use std::collections::HashMap;
use strake_base::is_broken;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Forward, StorageAnswer};

/// How often damage at members that are not in sync is mended that is in the way of one change.
const MENDS_MAX: u32 = 16;

impl Replica {
    /// Sends a change to all members until all that must have it do. True if each of them says that it is durable.
    pub(super) async fn spread(&self, numbered: &Numbered, message: &Message) -> Result<bool> {
        let mut have = HashMap::new();
        // For members that do not count yet: nobody waits for their disks.
        let hasty = message.op.is_durable().then(|| message.hasty());
        let (mut epoch, mut mends) = (0, 0);
        let mut pause = PAUSE_FIRST;
        loop {
            let (now, members, forward) = self.plan(numbered)?;
            if now != epoch {
                // A member that went and came back may have lost it.
                (epoch, have) = (now, HashMap::new());
            }
            let missing: Vec<TargetId> =
                members.into_iter().filter(|member| !have.contains_key(member)).collect();
            let required = hasty.as_ref().map(|_| self.required()).unwrap_or_default();
            let answers = join_all(missing.iter().map(|&member| {
                let hasty = hasty.as_ref().filter(|_| !required.contains(&member));
                self.forward(member, epoch, forward, hasty.unwrap_or(message))
            }));
            for (member, answer) in missing.iter().zip(answers.await) {
                match answer {
                    Ok(done) => drop(have.insert(*member, done.durable)),
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        let errand = Errand { reign: numbered.reign, epoch, member: *member };
                        self.mend_or_miss(errand, message, &error, &mut mends).await;
                    }
                    Err(error) => self.missed(epoch, *member, &error).await,
                }
            }
            if let Some(durable) = self.is_spread(numbered, epoch, &have)? {
                return Ok(durable);
            }
            self.look_again(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// A member has met damage that is in the way of a change: it is mended. Where that is in vain one in sync takes itself out; any
    /// other one has missed the change, as after too many `mends`.
    async fn mend_or_miss(
        &self,
        errand: Errand,
        message: &Message,
        error: &Error,
        mends: &mut u32,
    ) {
        let Errand { epoch, member, .. } = errand;
        let in_sync = {
            let state = self.state.lock();
            state.reign.as_ref().is_some_and(|reign| reign.view.in_sync.contains(&member))
        };
        *mends += u32::from(!in_sync);
        if in_sync || *mends <= MENDS_MAX {
            match self.mend_member(errand, message).await {
                Ok(()) => return,
                Err(why) => tracing::debug!("group {}: {member} is not mended: {why}", self.group),
            }
        }
        // Not by what has failed then, perhaps here.
        self.missed(epoch, member, error).await;
    }

    /// The epoch now, who else is told, and what goes with it.
    pub(super) fn plan(&self, numbered: &Numbered) -> Result<(u64, Vec<TargetId>, Forward)> {
        let mut state = self.state.lock();
        let reign = state.reign(numbered.reign).ok_or_else(|| self.over())?;
        let members = match numbered.number {
            // What is no change is for those who must have all changes.
            0 => reign.required().collect(),
            _ => {
                let joining = reign.view.joining.iter().filter(|&&m| !reign.has_failed(m));
                reign.view.in_sync.iter().skip(1).chain(joining).copied().collect()
            }
        };
        let settled = reign.settled();
        let forward = Forward { number: numbered.number, settled, reign: reign.since };
        Ok((reign.view.epoch, members, forward))
    }

    /// Sends a change, or a question, to a member while an epoch lasts.
    pub(super) async fn forward(
        &self,
        member: TargetId,
        epoch: u64,
        forward: Forward,
        message: &Message,
    ) -> Result<msg::Done> {
        match self.tell(member, epoch, forward, message).await? {
            StorageAnswer::Done(done) => Ok(done),
            _ => Ok(msg::Done::default()),
        }
    }

    /// A member has not taken a change.
    pub(super) async fn missed(&self, epoch: u64, member: TargetId, error: &Error) {
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
        // Who is in sync and meets damage may answer readers, until that lasts and it takes itself out. Any other one answers nobody.
        let is_damaged = !in_sync && error.kind == ErrorKind::Corrupt;
        if counts && (takes_out(error) || is_damaged) {
            // It answers nobody any more in this epoch; the manager takes it out by its own word.
            tracing::warn!("group {}: target {member} cannot take changes: {error}", self.group);
            self.report(epoch, member, Report::failed(error.to_string())).await;
        }
    }

    /// Whether it is durable at everybody who must have a change, as soon as all of these do.
    fn is_spread(
        &self,
        numbered: &Numbered,
        epoch: u64,
        have: &HashMap<TargetId, bool>,
    ) -> Result<Option<bool>> {
        let mut state = self.state.lock();
        let reign = state.reign(numbered.reign).ok_or_else(|| self.over())?;
        let mut said = reign.required().map(|member| have.get(&member).copied());
        let durable = match is_broken("all-members-acknowledge") {
            true => Some(said.flatten().all(|durable| durable)),
            false => said.try_fold(true, |all, durable| Some(all & durable?)),
        };
        Ok(durable.filter(|_| reign.view.epoch == epoch))
    }
}
