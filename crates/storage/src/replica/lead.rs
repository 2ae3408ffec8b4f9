//! The primary: numbers changes, and makes them.

use super::errand::Errand;
use super::left::Counted;
use super::ranges::Area;
use super::{Joiner, Message, Reign, Replica, Stage, View};
use crate::order::Order;
use bytes::Bytes;
use futures::future::{join_all, try_join};
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::error::Advice;
use strake_types::{Ack, Error, ErrorKind, Result, Safety, TargetId};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{Attempt, Forward, StorageOp};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a client waits for a change before it is told to ask again. The change itself goes on.
const CHANGE_WAIT: Duration = Duration::from_secs(20);

/// Changes acknowledged before all members have them, at most.
const EARLY_MAX: usize = 64;

/// First pause before members that did not answer are asked again; each is twice the one before.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest such pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long members are waited for that are told what is settled: one that is silent keeps nobody from being made equal, or reported.
const TELL_WAIT: Duration = Duration::from_secs(1);

/// A change that is numbered.
pub(super) struct Numbered {
    pub reign: u64,
    pub number: u64,
}

impl Replica {
    /// Makes a change here and at all members; answers when every in-sync member has it, or, if the
    /// primary may acknowledge alone, when it is made here. True if it is durable everywhere, as it asks for.
    pub async fn change(
        self: &Arc<Self>,
        order: &Order,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<bool> {
        let view = self.current(order.epoch).await?;
        self.check_lead(&view)?;
        let bytes = payload.len() as u64;
        let area = Area::checked(&op, bytes)?;
        self.check_left()?;
        let Safety { ack, min_copies: least } = order.safety;
        // Who acknowledges alone does not wait for others, nor for their disks.
        let op = if ack == Ack::Primary { op.not_durable() } else { op };
        let message = Message { attempt: order.attempt, whose: order.whose, op, payload };
        let (early, made_here) = oneshot::channel();
        let early = Some(early).filter(|_| ack == Ack::Primary);
        // In a task of its own: once it has begun it must end everywhere, whoever waits for it.
        let replica = self.clone();
        let (open, _awaited) = (self.left.open(bytes), self.left.wait_for(bytes));
        let work = async move {
            let made = replica.change_everywhere(area, message, least, early).await;
            drop(open);
            made
        };
        let mut made = task::spawn(work);
        let answered = async {
            tokio::select! {
                biased;
                // Nobody says it where everybody is to have it first, or where it fails.
                Ok(()) = made_here => Ok(Ok(false)),
                made = &mut made => made,
                hung = self.given_up(view.epoch) => Ok(Err(hung)),
            }
        };
        let late = |_| self.error(ErrorKind::NotCurrent, "the change is still under way");
        let made = tokio::time::timeout(CHANGE_WAIT, answered).await.map_err(late)?;
        made.map_err(|e| self.error(ErrorKind::Io, &format!("the change was abandoned: {e}")))?
    }

    async fn change_everywhere(
        &self,
        area: Area,
        message: Message,
        least: u32,
        early: Option<oneshot::Sender<()>>,
    ) -> Result<bool> {
        // First: what is remembered as made is known when the reign is ready.
        let reign = self.reigning().await?;
        self.check_copies(reign, least)?;
        let Some(running) = self.shelf.target.begin(message.attempt, message.whose)? else {
            return self.check_answers(reign).await.map(|()| false);
        };
        // Reservations one after the other: several that ask at once would all be told of the same room. The range only then, so that
        // nobody has one while he waits for the reservations of others.
        let _turn = match message.op {
            StorageOp::Allocate(_) => Some(self.reserving.lock().await),
            _ => None,
        };
        // In whole blocks: one that is damaged and changed in part is mended first.
        let _held = self.ranges.take(area.in_blocks(), true).await;
        // Its client may have given it up while others had the range, or may be fenced since: whoever changes
        // the range after this one then knew.
        running.check()?;
        self.common.check_fence(message.whose)?;
        self.check_room(reign, &message).await?;
        let message = match message.op {
            StorageOp::Truncate(cut) => {
                let rest = Box::pin(self.cut_ahead(reign, cut)).await?;
                Message { op: StorageOp::Truncate(rest), ..message }
            }
            _ => message,
        };
        let numbered = match self.make(reign, area.clone(), &message).await {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                if Box::pin(self.mend_before(reign, &message)).await? == 0 {
                    return Err(error);
                }
                self.make(reign, area, &message).await?
            }
            made => made?,
        };
        let _bounded = self.answer_early(early, &numbered, message.payload.len() as u64).await;
        // Ends with the reign, whatever the disk does.
        let synced = async {
            Ok(if message.op.is_durable() { self.sync_in_passing().await } else { Ok(false) })
        };
        let (theirs, ours) = try_join(self.spread(&numbered, &message), synced).await?;
        self.settle(&numbered);
        running.succeed();
        let ours = ours.map_err(|error| self.left_to_others(error))?;
        self.check_copies(reign, least)?;
        // Everywhere it is; but in an epoch that may be over others answer.
        self.check_answers(reign).await?;
        Ok(ours && theirs)
    }

    /// Fails while too much is under way that nobody waits for any more: it is kept until all members have it.
    fn check_left(&self) -> Result<()> {
        let Some(changes) = self.left.too_many() else { return Ok(()) };
        let what = format!(
            "{changes} changes whose clients have waited in vain are still under way to members that do not answer"
        );
        Err(self.error(ErrorKind::Unavailable, &what))
    }

    /// Answers who asks for no more than that the change is made here, if that may be. Of those there is a bound
    /// of its own: as long as what is returned lives, it counts as one that is waited for.
    async fn answer_early(
        &self,
        early: Option<oneshot::Sender<()>>,
        numbered: &Numbered,
        bytes: u64,
    ) -> Option<Counted> {
        let early = early.filter(|_| self.acknowledge_early(numbered))?;
        self.check_answers(numbered.reign).await.ok()?;
        let bounded = self.left.wait_for(bytes);
        // Who does not wait any more asks again.
        let _heard = early.send(());
        Some(bounded)
    }

    /// Fails while fewer members are in sync than somebody asks for.
    pub(super) fn check_copies(&self, reign: u64, least: u32) -> Result<()> {
        let mut state = self.state.lock();
        let reign = state.reign(reign).ok_or_else(|| self.over())?;
        let copies = 1 + reign.required().count();
        if copies >= least as usize {
            return Ok(());
        }
        let what = format!("{copies} of its copies are in sync, and the file asks for {least}");
        Err(self.error(ErrorKind::Unavailable, &what))
    }

    /// Notes that a change is acknowledged before the others have it; false if so many are already
    /// that this one has to wait for them, or if another member is to lead next.
    fn acknowledge_early(&self, numbered: &Numbered) -> bool {
        let mut state = self.state.lock();
        let hands_over = state.hands_over;
        let Some(reign) = state.reign(numbered.reign) else { return false };
        let stays = hands_over != Some(reign.view.epoch);
        stays && reign.early.len() < EARLY_MAX && reign.early.insert(numbered.number)
    }

    /// Waits until the others have what was acknowledged before they had it.
    pub(super) async fn until_nothing_is_early(&self, reign: u64) -> Result<()> {
        let before = self.state.lock().reign(reign).ok_or_else(|| self.over())?.next;
        loop {
            let progress = self.settled_early.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            let first = {
                let mut state = self.state.lock();
                let reign = state.reign(reign).ok_or_else(|| self.over())?;
                reign.early.first().copied()
            };
            if first.is_none_or(|first| first >= before) {
                return Ok(());
            }
            // A reign that ends wakes nobody here.
            let _woken = tokio::time::timeout(PAUSE_MAX, progress).await;
        }
    }

    /// Which primary vouches for what it acknowledged early, until that is synced. Fails where that is another one by now, which is to
    /// be asked: the word of nobody would be that of a loss.
    pub fn vouching(&self) -> Result<u64> {
        let vouches = self.state.lock().reign.as_ref().map(|reign| reign.vouches);
        vouches.ok_or_else(|| self.error(ErrorKind::NotCurrent, "no longer the primary"))
    }

    pub(super) fn over(&self) -> Error {
        self.error(ErrorKind::StaleMap, "another reign has begun")
    }

    pub(super) fn check_lead(&self, view: &View) -> Result<()> {
        match view.in_sync.first() {
            Some(first) if *first == self.me() => Ok(()),
            _ => Err(self.error(ErrorKind::StaleMap, "another member is the primary")),
        }
    }

    /// Waits until we lead, and know which changes earlier primaries have made.
    pub async fn ready(&self, epoch: u64) -> Result<()> {
        let view = self.current(epoch).await?;
        self.check_lead(&view)?;
        self.reigning().await.map(drop)
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
    pub(super) async fn make(&self, reign: u64, area: Area, message: &Message) -> Result<Numbered> {
        let gate = self.hold_epoch().await?;
        let touched = area.clone();
        let numbered = self.number(reign, area, message.attempt)?;
        let made = match &message.op {
            StorageOp::Allocate(range) => self.shelf.reserve(*range).await,
            op => self.shelf.change(op.clone(), message.payload.clone()).await,
        };
        match made {
            Ok(()) => {
                let mut state = self.state.lock();
                if let Some(entry) = state.unsettled.get_mut(&(reign, numbered.number)) {
                    entry.stage = Stage::Applied;
                    entry.hole = Area::of_hole(&message.op);
                }
                Ok(numbered)
            }
            Err(error) => {
                drop(gate);
                if !is_refusal(&message.op, &error) {
                    let level = Box::pin(self.level(&numbered, &touched)).await;
                    level.inspect_err(|_| self.leave_failed(&numbered))?;
                }
                self.settle(&numbered);
                Err(self.left_to_others(error))
            }
        }
    }

    /// An error of our own store: where its disk has failed for good, and there are others, they may do without us what it stands for.
    pub(super) fn left_to_others(&self, error: Error) -> Error {
        let others = !self.required().is_empty();
        match error.kind {
            ErrorKind::Poisoned if others => self.error(ErrorKind::NotCurrent, &error.to_string()),
            _ => error,
        }
    }

    pub(super) fn required(&self) -> Vec<TargetId> {
        self.state.lock().reign.iter().flat_map(Reign::required).collect()
    }

    pub(super) fn number(
        &self,
        since: u64,
        area: Area,
        attempt: Option<Attempt>,
    ) -> Result<Numbered> {
        let mut state = self.state.lock();
        let reign = state.reign(since).ok_or_else(|| self.over())?;
        let number = reign.next;
        reign.next += 1;
        reign.open.insert(number);
        let epoch = reign.view.epoch;
        let entry = self.entry(area, attempt, epoch);
        state.unsettled.insert((since, number), entry);
        Ok(Numbered { reign: since, number })
    }

    /// What a change that has failed here has left is for the next primary to make equal, and to say so: nothing is being applied any more.
    /// It may have said so already.
    pub(super) fn leave_failed(&self, numbered: &Numbered) {
        let mut state = self.state.lock();
        let key = (numbered.reign, numbered.number);
        if key < state.settled {
            state.unsettled.remove(&key);
        } else if let Some(entry) = state.unsettled.get_mut(&key) {
            entry.stage = Stage::Failed;
        }
    }

    /// A change is everywhere, or nowhere.
    pub(super) fn settle(&self, numbered: &Numbered) {
        let mut state = self.state.lock();
        state.unsettled.remove(&(numbered.reign, numbered.number));
        if let Some(reign) = state.reign(numbered.reign) {
            reign.open.remove(&numbered.number);
            if reign.early.remove(&numbered.number) {
                self.settled_early.notify_waiters();
            }
        }
    }

    /// A change that goes to one member only: what it lacks.
    pub(super) async fn mend(&self, errand: Errand, op: StorageOp, payload: Bytes) -> Result<()> {
        let Errand { reign, epoch, member } = errand;
        let area = Area::checked(&op, payload.len() as u64)?;
        let numbered = self.number(reign, area, None)?;
        let message = Message { payload, ..Message::of(op) };
        let sent = self.send_until_heard(&numbered, epoch, member, &message).await;
        // Should it have failed, the whole chunk is compared again before anybody may rely on it.
        self.settle(&numbered);
        sent
    }

    /// A member in sync is told until it answers or the epoch is over: what is under way to it must
    /// not arrive later than what comes after it.
    async fn send_until_heard(
        &self,
        numbered: &Numbered,
        epoch: u64,
        member: TargetId,
        message: &Message,
    ) -> Result<()> {
        let mut pause = PAUSE_FIRST;
        loop {
            let (now, _, forward) = self.plan(numbered)?;
            if now != epoch {
                return Err(self.error(ErrorKind::StaleMap, "a new epoch has begun"));
            }
            let error = match self.forward(member, epoch, forward, message).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let silent = matches!(error.advice(), Advice::Retry | Advice::RefreshMap);
            if !silent || !self.required().contains(&member) {
                return Err(error);
            }
            self.look_again(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// What a primary does now and then.
    pub(super) async fn lead_on(self: &Arc<Self>) {
        let mut begin = Vec::new();
        let (told, failed) = {
            let mut state = self.state.lock();
            let Some(reign) = state.reign.as_mut() else { return };
            if !reign.ready {
                if !std::mem::replace(&mut reign.recovering, true) {
                    task::spawn(self.clone().recover(reign.since));
                }
                return;
            }
            for member in reign.view.joining.clone() {
                let joiner = reign.joiners.entry(member).or_default();
                if !std::mem::replace(&mut joiner.started, true) {
                    begin.push((reign.since, reign.view.epoch, member));
                }
            }
            let epoch = reign.view.epoch;
            let failed = |(member, joiner): (&TargetId, &mut Joiner)| {
                let is_new = joiner.failed && !std::mem::replace(&mut joiner.told, true);
                is_new.then(|| (epoch, *member, joiner.reason.clone()))
            };
            let failed: Vec<_> = reign.joiners.iter_mut().filter_map(failed).collect();
            (reign.tidings(), failed)
        };
        for (reign, epoch, member) in begin {
            task::spawn(self.clone().resync(reign, epoch, member));
        }
        for (epoch, member, reason) in failed {
            task::spawn(self.clone().report_failed(epoch, member, reason));
        }
        if let Some((view, forward)) = told {
            let others = view.in_sync.iter().skip(1).chain(&view.joining);
            let message = Message::of(StorageOp::Settle(msg::Settle::default()));
            let told = others.map(|&m| self.forward(m, view.epoch, forward, &message));
            let told = timeout(TELL_WAIT, join_all(told)).await;
            let all_know = told.is_ok_and(|told| told.iter().all(Result::is_ok));
            if !all_know && let Some(reign) = &mut self.state.lock().reign {
                reign.told = 0;
            }
        }
    }
}

/// True for an error that comes before anything is made of a change: what is asked for cannot be, or the disk does not answer and
/// was not asked.
fn is_refusal(op: &StorageOp, error: &Error) -> bool {
    use ErrorKind::{FileTooBig, Garbled, Invalid, Malformed, NoSpace, Unavailable};
    match error.kind {
        Malformed | Invalid | FileTooBig | Unavailable => true,
        // Of several parts others may be made.
        Garbled => matches!(op, StorageOp::Write(_)),
        NoSpace => matches!(op, StorageOp::Allocate(_) | StorageOp::Punch(_)),
        _ => false,
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
