//! The primary: sees that all members have its changes.

use super::errand::Errand;
use super::lead::{Numbered, PAUSE_FIRST, PAUSE_MAX};
use super::sync::LOOK_WAIT;
use super::{Message, Replica};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::time::Duration;
use strake_base::is_broken;
use strake_types::{ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Forward, StorageAnswer};

/// How often damage at members that are not in sync is mended that is in the way of one change.
const MENDS_MAX: u32 = 16;
/// How much longer than members that count one is waited for that does not count yet, until it is asked whether it is there; and how
/// long it may take to say so. Where it does it may be slow: as slow as those that count.
const JOINING_WAIT: Duration = Duration::from_secs(1);
/// One that counts is asked after this part of the time that it has to answer: where it is silent, that is missed sooner.
pub(super) const COUNTED_PART: u32 = 3;
/// What somebody else has found of that is as good for so long.
const LOOK_HOLDS: Duration = Duration::from_secs(1);

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
            let words = (message, hasty.as_ref().unwrap_or(message));
            let (sent, mut again) = (self.common.clock.monotonic(), false);
            for (member, answer) in self.forward_to(missing, epoch, forward, words).await {
                let error = match answer {
                    Ok(done) => {
                        self.note_taken(member);
                        have.insert(member, done.durable);
                        continue;
                    }
                    Err(error) => error,
                };
                let errand = Errand { reign: numbered.reign, epoch, member };
                let mended = error.kind == ErrorKind::Corrupt
                    && self.mends(errand, message, &mut mends).await;
                if !mended {
                    // Not by what has failed in a repair, perhaps here.
                    self.missed(epoch, member, sent, &error).await;
                }
                again |= mended;
            }
            // Who was mended is to have it, too, also where it does not count yet: nothing else would send it to that one.
            let spread = self.is_spread(numbered, epoch, &have)?;
            if let Some(durable) = spread.filter(|_| !again) {
                return Ok(durable);
            }
            self.look_again(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Sends members a change, in the first of these words those that count, and in the second one all others; what each of them says.
    /// Who counts is waited for longer than a third of its time only if it says that it is there; who does not, only a moment longer
    /// than who does.
    async fn forward_to(
        &self,
        members: Vec<TargetId>,
        epoch: u64,
        forward: Forward,
        (message, hasty): (&Message, &Message),
    ) -> Vec<(TargetId, Result<msg::Done>)> {
        let counted = self.required();
        let mut calls = FuturesUnordered::new();
        for &member in &members {
            let message = if counted.contains(&member) { message } else { hasty };
            calls.push(async move {
                let answer = self.forward(member, epoch, forward, message).await;
                (member, answer)
            });
        }
        let (mut waited_for, mut answers) = (members, Vec::new());
        while !waited_for.is_empty() {
            let count = |member: &&TargetId| counted.contains(*member);
            let counts: Vec<TargetId> = waited_for.iter().filter(count).copied().collect();
            let falling_silent = async {
                match counts.is_empty() {
                    true => {
                        self.falling_silent(&waited_for, epoch, forward, [JOINING_WAIT; 2]).await
                    }
                    false => {
                        let waits = [self.member_wait() / COUNTED_PART, LOOK_WAIT];
                        self.falling_silent(&counts, epoch, forward, waits).await
                    }
                }
            };
            tokio::select! {
                biased;
                next = calls.next() => {
                    let Some((member, answer)) = next else { break };
                    // Whatever one says that was silent: it is late.
                    if waited_for.contains(&member) {
                        waited_for.retain(|other| *other != member);
                        answers.push((member, answer));
                    }
                }
                silent = falling_silent => {
                    waited_for.retain(|member| !silent.contains(member));
                    // What is under way to them may arrive still: before it is sent again under its number, before they are made
                    // equal anew, or not at all in a later epoch.
                    answers.extend(silent.into_iter().map(|member| {
                        let what = format!("target {member} does not answer");
                        (member, Err(self.error(ErrorKind::Unavailable, &what)))
                    }));
                }
            }
        }
        answers
    }

    /// Those of some members that do not say that they are there, as soon as there is one. They are asked after the first of these
    /// times, and have the second one to answer.
    async fn falling_silent(
        &self,
        members: &[TargetId],
        epoch: u64,
        forward: Forward,
        [after, wait]: [Duration; 2],
    ) -> Vec<TargetId> {
        loop {
            tokio::time::sleep(after).await;
            let wait = self.look_wait(wait);
            let since = self.common.clock.monotonic().saturating_sub(LOOK_HOLDS);
            let asked = members
                .iter()
                .map(|&member| self.was_silent(member, (epoch, forward), wait, since));
            let silent = members.iter().zip(join_all(asked).await).filter(|(_, silent)| *silent);
            let silent: Vec<TargetId> = silent.map(|(&member, _)| member).collect();
            if !silent.is_empty() {
                return silent;
            }
        }
    }

    /// A member has met damage that is in the way of a change. True if it was mended, and the change is to be sent again. Where that is
    /// in vain one in sync takes itself out; any other one has missed the change, as after too many `mends`.
    async fn mends(&self, errand: Errand, message: &Message, mends: &mut u32) -> bool {
        let in_sync = {
            let state = self.state.lock();
            state.reign.as_ref().is_some_and(|reign| reign.view.in_sync.contains(&errand.member))
        };
        *mends += u32::from(!in_sync);
        if !in_sync && *mends > MENDS_MAX {
            return false;
        }
        let mended = self.mend_member(errand, message).await;
        if let Err(why) = &mended {
            tracing::debug!("group {}: {} is not mended: {why}", self.group, errand.member);
        }
        mended.is_ok()
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
