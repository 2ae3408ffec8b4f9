//! The primary: numbers changes, makes them, and sees that all members have them.

use super::ranges::{Area, checked};
use super::{Joiner, MEMBER_WAIT, Reign, Replica, Unsettled, View};
use bytes::Bytes;
use futures::future::join_all;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Attempt, Forward, StorageOp, StorageRequest};

/// How long a client waits for a change before it is told to ask again. The change itself goes on.
const CHANGE_WAIT: Duration = Duration::from_secs(20);
/// How long all members may take to sync.
const SYNC_WAIT: Duration = Duration::from_secs(100);
/// First pause before members that did not answer are asked again; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A change that is numbered.
struct Numbered {
    reign: u64,
    number: u64,
}

/// What is sent to members.
#[derive(Clone)]
struct Message {
    attempt: Option<Attempt>,
    op: StorageOp,
    payload: Bytes,
}

impl Replica {
    /// Makes a change here and at all members; answers when every in-sync member has it.
    pub async fn change(
        self: &Arc<Self>,
        epoch: u64,
        attempt: Option<Attempt>,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<()> {
        let view = self.current(epoch).await?;
        self.check_lead(&view)?;
        let Some(area) = checked(&op, payload.len() as u64)? else {
            return Err(Error::with(ErrorKind::Malformed, "a change of nothing"));
        };
        let message = Message { attempt, op, payload };
        // In a task of its own: once it has begun it must end everywhere, whoever waits for it.
        let replica = self.clone();
        let made = tokio::spawn(async move { replica.change_everywhere(area, message).await });
        let late = |_| self.error(ErrorKind::NotCurrent, "the change is still under way");
        let made = tokio::time::timeout(CHANGE_WAIT, made).await.map_err(late)?;
        made.map_err(|e| self.error(ErrorKind::Io, &format!("the change was abandoned: {e}")))?
    }

    async fn change_everywhere(&self, area: Area, message: Message) -> Result<()> {
        // First: what is remembered as made is known when the reign is ready.
        let reign = self.reigning().await?;
        let attempts = &self.shelf.target.attempts;
        let running = match message.attempt.map(|attempt| attempts.begin(attempt)).transpose()? {
            Some(None) => return self.check_answers(reign).await,
            running => running.flatten(),
        };
        let _held = self.ranges.take(area.clone(), true).await;
        if let Some(running) = &running {
            // Its client may have given it up while others had the range.
            running.check()?;
        }
        let numbered = self.make(reign, area, &message).await?;
        self.spread(&numbered, &message).await?;
        self.settle(&numbered);
        running.into_iter().for_each(|running| running.succeed());
        // Everywhere it is; but in an epoch that may be over others answer.
        self.check_answers(reign).await
    }

    fn check_lead(&self, view: &View) -> Result<()> {
        match view.in_sync.first() {
            Some(first) if *first == self.me() => Ok(()),
            _ => Err(self.error(ErrorKind::StaleMap, "another member is the primary")),
        }
    }

    /// Waits until this reign is ready, and names it.
    pub(super) async fn reigning(&self) -> Result<u64> {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            match &self.state.lock().reign {
                Some(reign) if reign.ready => return Ok(reign.since),
                Some(_) => {}
                None => return Err(self.error(ErrorKind::StaleMap, "no longer the primary")),
            }
            if tokio::time::timeout(CHANGE_WAIT, progress).await.is_err() {
                let what = "the new primary cannot reach all members yet";
                return Err(self.error(ErrorKind::NotCurrent, what));
            }
        }
    }

    /// Numbers a change and makes it here. What fails here goes to no member; what was made of it
    /// before it failed goes to all.
    async fn make(&self, reign: u64, area: Area, message: &Message) -> Result<Numbered> {
        let gate = self.adopted.read().await;
        let touched = area.clone();
        let numbered = self.number(reign, area, message.attempt)?;
        match self.shelf.change(message.op.clone(), message.payload.clone()).await {
            Ok(()) => {
                let mut state = self.state.lock();
                if let Some(entry) = state.unsettled.get_mut(&(reign, numbered.number)) {
                    entry.applied = true;
                }
                Ok(numbered)
            }
            Err(error) => {
                drop(gate);
                self.level(&numbered, &touched).await?;
                self.settle(&numbered);
                // Without us the others may do it.
                let others = !self.required().is_empty();
                match error.kind {
                    ErrorKind::Poisoned if others => {
                        Err(self.error(ErrorKind::NotCurrent, &error.to_string()))
                    }
                    _ => Err(error),
                }
            }
        }
    }

    fn required(&self) -> Vec<TargetId> {
        self.state.lock().reign.iter().flat_map(Reign::required).collect()
    }

    /// A change has failed, perhaps half-way: whatever our copy is now, all copies become. Waits for
    /// as long as the reign lasts; the caller holds the area.
    async fn level(&self, numbered: &Numbered, area: &Area) -> Result<()> {
        let mut pause = PAUSE_FIRST;
        loop {
            let (epoch, _, _) = self.plan(numbered)?;
            let members = self.required();
            match self.make_area_equal(numbered.reign, epoch, &members, area).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::debug!("group {}: {error}", self.group),
            }
            let _woken = tokio::time::timeout(pause, self.progress.notified()).await;
            pause = (pause * 2).min(PAUSE_MAX);
            if let Err(error) = self.current(0).await {
                tracing::debug!("{error}");
            }
        }
    }

    fn number(&self, since: u64, area: Area, attempt: Option<Attempt>) -> Result<Numbered> {
        let mut state = self.state.lock();
        let reign = state.reign.as_mut().filter(|reign| reign.since == since);
        let Some(reign) = reign else {
            return Err(self.error(ErrorKind::StaleMap, "another reign has begun"));
        };
        let number = reign.next;
        reign.next += 1;
        reign.open.insert(number);
        state.unsettled.insert((since, number), Unsettled { area, applied: false, attempt });
        Ok(Numbered { reign: since, number })
    }

    /// A change is everywhere, or nowhere.
    fn settle(&self, numbered: &Numbered) {
        let mut state = self.state.lock();
        state.unsettled.remove(&(numbered.reign, numbered.number));
        if let Some(reign) = state.reign.as_mut().filter(|r| r.since == numbered.reign) {
            reign.open.remove(&numbered.number);
        }
    }

    /// Sends a change to all members until all that must have it do.
    async fn spread(&self, numbered: &Numbered, message: &Message) -> Result<()> {
        let mut have = HashSet::new();
        let mut epoch = 0;
        let mut pause = PAUSE_FIRST;
        loop {
            let (now, members, forward) = self.plan(numbered)?;
            if now != epoch {
                // A member that went and came back may have lost it.
                (epoch, have) = (now, HashSet::new());
            }
            let missing: Vec<TargetId> =
                members.into_iter().filter(|member| !have.contains(member)).collect();
            let answers = join_all(
                missing.iter().map(|&member| self.forward(member, epoch, forward, message)),
            );
            for (member, answer) in missing.iter().zip(answers.await) {
                match answer {
                    Ok(()) => drop(have.insert(*member)),
                    Err(error) => self.missed(epoch, *member, &error).await,
                }
            }
            if self.is_spread(numbered, epoch, &have)? {
                return Ok(());
            }
            let _woken = tokio::time::timeout(pause, self.progress.notified()).await;
            pause = (pause * 2).min(PAUSE_MAX);
            if let Err(error) = self.current(0).await {
                tracing::debug!("{error}");
            }
        }
    }

    /// The epoch now, who else is told, and what goes with it.
    fn plan(&self, numbered: &Numbered) -> Result<(u64, Vec<TargetId>, Forward)> {
        let state = self.state.lock();
        let reign = state.reign.as_ref().filter(|reign| reign.since == numbered.reign);
        let Some(reign) = reign else {
            let what = "another reign has begun while the change was under way";
            return Err(self.error(ErrorKind::StaleMap, what));
        };
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

    async fn forward(
        &self,
        member: TargetId,
        epoch: u64,
        forward: Forward,
        message: &Message,
    ) -> Result<()> {
        let file = Area::of_op(&message.op, 0).map(|area| area.file());
        let request = StorageRequest {
            capability: self.capability(file.unwrap_or_default()),
            attempt: message.attempt,
            forward: Some(forward),
            op: Some(message.op.clone()),
            ..self.request(member, epoch)
        };
        let limit = match message.op {
            StorageOp::Sync(_) => SYNC_WAIT,
            _ => MEMBER_WAIT,
        };
        let told = self.tell(member, request, message.payload.clone(), limit);
        tokio::select! {
            answer = told => answer.map(drop),
            () = self.epoch_after(epoch) => {
                Err(self.error(ErrorKind::StaleMap, "a new epoch has begun"))
            }
        }
    }

    /// Waits for another epoch to be adopted.
    async fn epoch_after(&self, epoch: u64) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            let now = self.state.lock().reign.as_ref().map(|reign| reign.view.epoch);
            if now != Some(epoch) {
                return;
            }
            progress.await;
        }
    }

    /// A member has not taken a change.
    async fn missed(&self, epoch: u64, member: TargetId, error: &Error) {
        let in_sync = {
            let mut state = self.state.lock();
            let Some(reign) = state.reign.as_mut().filter(|r| r.view.epoch == epoch) else {
                return;
            };
            let joining = reign.view.joining.contains(&member) && !reign.is_counted(member);
            if joining {
                reign.joiners.entry(member).or_default().failed = true;
            }
            !joining
        };
        tracing::debug!("group {}: target {member} has missed a change: {error}", self.group);
        let resigned = matches!(
            error.kind,
            ErrorKind::NoSpace | ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::Corrupt
        );
        if in_sync && resigned {
            // It answers nobody any more in this epoch; the manager takes it out by its own word.
            tracing::warn!("group {}: target {member} cannot take changes: {error}", self.group);
            self.report(epoch, member, true).await;
        }
    }

    /// True if everybody who must have a change does.
    fn is_spread(&self, numbered: &Numbered, epoch: u64, have: &HashSet<TargetId>) -> Result<bool> {
        let mut state = self.state.lock();
        let reign = state.reign.as_mut().filter(|reign| reign.since == numbered.reign);
        let Some(reign) = reign else {
            let what = "another reign has begun while the change was under way";
            return Err(self.error(ErrorKind::StaleMap, what));
        };
        Ok(reign.view.epoch == epoch && reign.required().all(|member| have.contains(&member)))
    }

    /// Makes durable what all in-sync members have.
    pub async fn sync(&self, epoch: u64, op: StorageOp) -> Result<()> {
        let view = self.current(epoch).await?;
        self.check_lead(&view)?;
        let numbered = Numbered { reign: self.reigning().await?, number: 0 };
        let message = Message { attempt: None, op, payload: Bytes::new() };
        let others = self.spread(&numbered, &message);
        let here = self.shelf.target.run(|s| s.sync());
        let both = futures::future::try_join(others, here);
        let late = |_| self.error(ErrorKind::NotCurrent, "not all members have synced yet");
        tokio::time::timeout(SYNC_WAIT, both).await.map_err(late)??;
        self.check_answers(numbered.reign).await
    }

    /// A change that goes to one member only: what it lacks.
    pub(super) async fn mend(
        &self,
        reign: u64,
        epoch: u64,
        member: TargetId,
        (op, payload): (StorageOp, Bytes),
    ) -> Result<()> {
        let Some(area) = Area::of_op(&op, payload.len() as u64) else {
            return Err(Error::with(ErrorKind::Malformed, "a change of nothing"));
        };
        let numbered = self.number(reign, area, None)?;
        let sent = match self.plan(&numbered) {
            Ok((_, _, forward)) => {
                let message = Message { attempt: None, op, payload };
                self.forward(member, epoch, forward, &message).await
            }
            Err(error) => Err(error),
        };
        // Should it have failed, the whole chunk is compared again before anybody may rely on it.
        self.settle(&numbered);
        sent
    }

    /// What a primary does now and then.
    pub(super) async fn lead_on(self: &Arc<Self>) {
        let mut begin = Vec::new();
        let (told, failed) = {
            let mut state = self.state.lock();
            let Some(reign) = state.reign.as_mut() else { return };
            if !reign.ready {
                if !std::mem::replace(&mut reign.recovering, true) {
                    tokio::spawn(self.clone().recover(reign.since));
                }
                return;
            }
            for member in reign.view.joining.clone() {
                let joiner = reign.joiners.entry(member).or_default();
                if !std::mem::replace(&mut joiner.started, true) {
                    begin.push((reign.since, reign.view.epoch, member));
                }
            }
            let failed = |(member, joiner): (&TargetId, &Joiner)| {
                joiner.failed.then_some((reign.view.epoch, *member))
            };
            let failed: Vec<_> = reign.joiners.iter().filter_map(failed).collect();
            (reign.tidings(), failed)
        };
        for (reign, epoch, member) in begin {
            tokio::spawn(self.clone().resync(reign, epoch, member));
        }
        for (epoch, member) in failed {
            self.report(epoch, member, true).await;
        }
        if let Some((view, forward)) = told {
            let others = view.in_sync.iter().skip(1).chain(&view.joining);
            let message = Message {
                attempt: None,
                op: StorageOp::Settle(msg::Settle {}),
                payload: Bytes::new(),
            };
            let told = others.map(|&m| self.forward(m, view.epoch, forward, &message));
            if join_all(told).await.iter().any(Result::is_err)
                && let Some(reign) = &mut self.state.lock().reign
            {
                reign.told = 0;
            }
        }
    }
}

impl Reign {
    /// What members should be told of what is settled, if they were not told yet.
    fn tidings(&mut self) -> Option<(View, Forward)> {
        let settled = self.settled();
        (std::mem::replace(&mut self.told, settled) < settled)
            .then(|| (self.view.clone(), Forward { number: 0, settled, reign: self.since }))
    }
}
