//! How long an operation goes on trying, and how.

use crate::route::{AGAIN, Awaited};
use crate::volume::Volume;
use crate::works::Worker;
use std::time::Duration;
use strake_types::error::Advice;
use strake_types::limits::LEASE_MS;
use strake_types::{Epoch, Error, ErrorKind, GroupId, Ino, Result, VolumeId};
use strake_wire::map::Route;
use strake_wire::waits::{SILENT_MS_MAX, Wait, Waiting};

/// First pause between two attempts; each is twice the one before.
const PAUSE_MS_FIRST: u64 = 10;
/// Longest pause between two attempts.
const PAUSE_MS_MAX: u64 = 500;
/// How long targets may know before the metadata server that a session is over: that one hears of a new map
/// with its next heartbeat, or serves nothing.
const REFUSED_WAIT: Duration = Duration::from_millis(LEASE_MS);
/// How often session or capability are renewed without a pause.
const RENEWALS_MAX: u32 = 3;
/// An attempt may take so long however short the patience is: servers wait for others, as for a lock, or until leases are
/// over.
const ATTEMPT_TIME_MIN: Duration = Duration::from_secs(5);
/// How long a server that is heard of may be at work on an operation in all, however often it has to be asked for that:
/// just less than a sync may take ([`strake_wire::caller`]), at whose end it was only silent.
const WORK_TIME_MAX: Duration = Duration::from_secs(110);
/// How long it may be at work on a sync in all. It has to say every [`WORK_TIME_MAX`] that it still is.
const SYNC_TIME_MAX: Duration = Duration::from_secs(20 * 60);
/// Who says only after so long that this is not done yet is at work on it: what is not ready says so sooner.
const WORK_SAID_AFTER: Duration = Duration::from_secs(60);
/// Only then it is looked whether a server that works is heard of.
const LOOK_AFTER: Duration = Duration::from_millis(SILENT_MS_MAX);
/// Nothing is late by more, unless this process stood still.
const LATE_MAX: Duration = Duration::from_secs(2);

/// The patience of one operation. It begins with it: make one just before.
pub(crate) struct Patience<'a> {
    volume: &'a Volume,
    /// When the operation began,
    began: Duration,
    /// and the same, later where the time until then does not count.
    started: Duration,
    /// When the last attempt failed, or it was asked last whether to stand in line; before that, when the operation began.
    failed: Duration,
    /// When it was said last that it is at work on a sync, or was lost; before that, when the operation began.
    worked: Duration,
    /// It was said, so that it is waited for by the longer limit.
    works_long: bool,
    /// How long it waits, as what was answered last asks.
    limit: Duration,
    /// That was that somebody else is to tell first what he has written.
    held_back: bool,
    pause_ms: u64,
    renewals: u32,
    /// When something was refused first, and how long a capability may be.
    refused_since: Option<Duration>,
    refused_wait: Duration,
    /// Who may have to work on it for long.
    works: Option<Worker>,
    /// A file that the operation is about.
    file: Option<Ino>,
    /// It has been said that it waits.
    said: Option<Waiting<'a>>,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(volume: &'a Volume) -> Self {
        let now = volume.clock().monotonic();
        Self {
            volume,
            began: now,
            started: now,
            failed: now,
            worked: now,
            works_long: false,
            limit: Duration::from_millis(volume.options().operation_wait_ms),
            held_back: false,
            pause_ms: PAUSE_MS_FIRST,
            renewals: 0,
            refused_since: None,
            refused_wait: REFUSED_WAIT,
            works: None,
            file: None,
            said: None,
        }
    }

    /// The same, of an operation on a file.
    pub(crate) fn on(self, file: Option<Ino>) -> Self {
        Self { file, ..self }
    }

    /// The same, of an operation on which somebody may have to work for long: that is waited for while he is heard of.
    pub(crate) fn with(self, works: Option<Worker>) -> Self {
        Self { works, ..self }
    }

    /// The session is another one since: what was refused before says nothing of it.
    pub(crate) fn begin_anew(&mut self) {
        (self.renewals, self.refused_since) = (0, None);
    }

    /// Before session or capability are renewed. A session is opened again as often as its server restarts while there is
    /// time. A capability that is refused for longer than targets may know before the metadata server that a session is
    /// over is believed to be.
    async fn renewal(&mut self, what: impl Fn() -> String, error: Error) -> Result<()> {
        self.renewals += 1;
        let now = self.volume.clock().monotonic();
        let since = *self.refused_since.get_or_insert(now);
        match error.kind {
            _ if self.renewals <= RENEWALS_MAX => {
                self.note_failure(&error);
                Ok(())
            }
            ErrorKind::NoSession => self.pause(what, error).await,
            _ if now - since < self.refused_wait => self.pause(what, error).await,
            _ => Err(error),
        }
    }

    /// The capability that is sent along to another target is not renewed here: whoever has it does that.
    pub(crate) fn expect_refusals(&mut self) {
        self.refused_wait = Duration::ZERO;
    }

    fn now(&self) -> Duration {
        self.volume.clock().monotonic()
    }

    fn waited(&self) -> Duration {
        self.now().saturating_sub(self.started)
    }

    /// How long somebody may be at work on it yet.
    fn work_left(&self) -> Duration {
        let in_all = if self.syncs() { SYNC_TIME_MAX } else { WORK_TIME_MAX };
        let until = (self.worked + WORK_TIME_MAX).min(self.began + in_all);
        until.saturating_sub(self.now())
    }

    /// It is a sync of a target.
    fn syncs(&self) -> bool {
        matches!(self.works, Some(Worker::Syncs(_)))
    }

    /// How long an attempt may last yet.
    fn left(&self) -> Duration {
        self.limit.max(ATTEMPT_TIME_MIN).saturating_sub(self.waited())
    }

    /// Every wait ends with the patience, unless this process stood still, or the machine slept: what was answered
    /// meanwhile nobody has heard, and it is waited for anew.
    fn forget_standstill(&mut self) {
        let work = self.works.map_or(Duration::ZERO, |_| 2 * WORK_TIME_MAX);
        if self.waited() > self.limit.max(ATTEMPT_TIME_MIN) + work + LATE_MAX {
            self.started = self.now();
            (self.began, self.failed, self.worked) = (self.started, self.started, self.started);
            self.works_long = false;
        }
    }

    /// Returns when the time is over.
    async fn time_is_over(&mut self) -> Error {
        loop {
            let left = self.left();
            if left.is_zero() {
                return Error::with(ErrorKind::Unavailable, "no answer");
            }
            tokio::time::sleep(left).await;
            self.forget_standstill();
        }
    }

    /// Returns when an attempt that is under way is to be given up, and why: with the operation, or to make the next one.
    pub(crate) async fn over(&mut self) -> Error {
        if let Some(worker) = self.works {
            tokio::time::sleep(LOOK_AFTER.min(self.left())).await;
            return Box::pin(self.work_is_over(worker)).await;
        }
        self.time_is_over().await
    }

    /// Somebody who may be at work is waited for as long as he is heard of. If he is lost then, the time counts from that on,
    /// and he is asked anew as soon as he is heard of again: what he was asked before may be lost with him.
    async fn work_is_over(&mut self, worker: Worker) -> Error {
        if worker.is_heard_of(self.volume.map()) && !self.work_left().is_zero() {
            let lost = worker.until_heard_of(self.volume.map(), false);
            if tokio::time::timeout(self.work_left(), lost).await.is_err() {
                return self.time_is_over().await;
            }
            self.started = self.now();
            self.worked = self.started;
        }
        let volume = self.volume;
        let is_back = async {
            match worker.is_heard_of(volume.map()) {
                // For too long.
                true => std::future::pending().await,
                false => worker.until_heard_of(volume.map(), true).await,
            }
        };
        tokio::select! {
            biased;
            error = self.time_is_over() => error,
            () = is_back => Error::with(ErrorKind::Unavailable, "it was not heard of meanwhile"),
        }
    }

    /// Does what is needed before the next attempt, as long as there is time.
    pub(crate) async fn within<T>(
        &mut self,
        what: impl Fn() -> String,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            error = self.time_is_over() => Err(self.end(what, &error)),
        }
    }

    /// While it stands in line for something of this mount that others hold until servers have answered them; to be asked all
    /// the time. Said where nobody in line has got any for a while, an error where nobody has for as long as those may be waited
    /// for. `moves`: somebody has, since this was asked last.
    pub(crate) fn stand_in_line(&mut self, what: impl Fn() -> String, moves: bool) -> Result<()> {
        let now = self.now();
        let late = now.saturating_sub(std::mem::replace(&mut self.failed, now));
        if moves || late > LATE_MAX {
            // What was said was of another wait.
            (self.started, self.said) = (now, None);
        }
        let limit = self.limit.max(ATTEMPT_TIME_MIN) + WORK_TIME_MAX;
        let error = Error::with(ErrorKind::Unavailable, "nobody gives any back");
        if self.waited() >= limit {
            return Err(self.end(what, &error));
        }
        if self.waited() >= LOOK_AFTER {
            self.say(what, &error, self.started, limit.as_millis() as u64);
        }
        Ok(())
    }

    /// The time is over.
    fn end(&self, what: impl Fn() -> String, error: &Error) -> Error {
        let since = if self.works_long { self.began } else { self.started };
        let (what, waited_ms) = (what(), self.now().saturating_sub(since).as_millis());
        tracing::error!("gave up waiting for {what} after {waited_ms} ms: {error}");
        let detail =
            format!("waited {waited_ms} ms for {what} (last answer: {error}); see `strake status`");
        Error::with(ErrorKind::TimedOut, detail)
    }

    /// An attempt has failed so. Returns how long it has lasted, with the pause before it.
    fn note_failure(&mut self, error: &Error) -> Duration {
        self.forget_standstill();
        let options = self.volume.options();
        let held_back_wait = Duration::from_millis(options.held_back_wait_ms);
        let is_held_back = error.kind == ErrorKind::HeldBack;
        let now = self.now();
        let was_held_back = std::mem::replace(&mut self.held_back, is_held_back);
        if is_held_back {
            self.started = self.began;
        } else if was_held_back && now < self.began + held_back_wait {
            // A server that has answered until now is waited for anew.
            (self.started, self.said) = (now, None);
        }
        self.limit = match is_held_back {
            true => held_back_wait,
            false => Duration::from_millis(options.operation_wait_ms),
        };
        let lasted = now.saturating_sub(std::mem::replace(&mut self.failed, now));
        if error.kind == ErrorKind::NotCurrent && self.syncs() && lasted >= WORK_SAID_AFTER {
            if !std::mem::replace(&mut self.works_long, true) {
                // What was said was of a shorter wait.
                self.said = None;
            }
            self.worked = now;
        }
        // It says that it is not ready, or an attempt has lasted for long: it may be at work.
        let may_work = error.kind == ErrorKind::NotCurrent || lasted >= ATTEMPT_TIME_MIN;
        if may_work
            && !self.work_left().is_zero()
            && self.works.is_some_and(|worker| worker.is_heard_of(self.volume.map()))
        {
            self.started = now;
        }
        lasted
    }

    /// How long to pause before the next attempt; an error when the time is over. `what` is being
    /// waited for.
    fn next_pause(&mut self, what: impl Fn() -> String, error: Error) -> Result<Duration> {
        let lasted = self.note_failure(&error);
        // What was said late is followed, however short the patience is.
        let limit = match lasted >= self.limit {
            true => self.limit.max(ATTEMPT_TIME_MIN),
            false => self.limit,
        };
        let limit_ms = limit.as_millis() as u64;
        let waited_ms = self.waited().as_millis() as u64;
        if waited_ms >= limit_ms {
            return Err(self.end(what, &error));
        }
        if self.works_long {
            self.say(what, &error, self.began, SYNC_TIME_MAX.as_millis() as u64);
        } else if waited_ms >= SILENT_MS_MAX.min(limit_ms / 2) {
            self.say(what, &error, self.started, limit_ms);
        } else if self.works.is_some() && self.now() >= self.began + LOOK_AFTER {
            // It is asked again and again, and at work.
            let in_all_ms = WORK_TIME_MAX.as_millis() as u64 + limit_ms;
            self.say(what, &error, self.began, in_all_ms);
        }
        let pause_ms = self.pause_ms.min(limit_ms - waited_ms).max(1);
        self.pause_ms = (self.pause_ms * 2).min(PAUSE_MS_MAX);
        Ok(Duration::from_millis(pause_ms))
    }

    /// Says in the log, and whoever asks, that it waits.
    fn say(&mut self, what: impl Fn() -> String, error: &Error, since: Duration, limit_ms: u64) {
        if self.said.is_some() {
            return;
        }
        let what = what();
        tracing::warn!("waiting for {what}, up to {limit_ms} ms: {error}");
        let wait = Wait { what: format!("{what}: {error}"), file: self.file, since, limit_ms };
        self.said = Some(self.volume.waits.begin(wait, self.volume.clock()));
    }

    async fn pause(&mut self, what: impl Fn() -> String, error: Error) -> Result<()> {
        tokio::time::sleep(self.next_pause(what, error)?).await;
        Ok(())
    }

    /// Does what an error advises before the next attempt; an error when that is over. True: the
    /// caller has to renew session or capability first, if there is one (`renewable`).
    pub(crate) async fn heed(
        &mut self,
        what: impl Fn() -> String,
        error: Error,
        renewable: bool,
    ) -> Result<bool> {
        match error.advice() {
            Advice::Retry => self.pause(what, error).await?,
            Advice::RefreshMap => self.refresh(what, error).await?,
            Advice::Renew if renewable => {
                self.renewal(what, error).await?;
                return Ok(true);
            }
            Advice::Renew | Advice::GiveUp => return Err(error),
        }
        Ok(false)
    }

    /// As [`Patience::heed`], of an attempt at a group of several members: the next one is made as soon
    /// as the group has changed, and soon where a member that lives cannot answer yet.
    pub(crate) async fn heed_group(
        &mut self,
        what: impl Fn() -> String,
        error: Error,
        renewable: bool,
        (group, route): (GroupId, &Route),
    ) -> Result<bool> {
        if matches!(error.advice(), Advice::Renew | Advice::GiveUp) {
            return self.heed(what, error, renewable).await;
        }
        // But not of a change: all that is written would be sent so often.
        let is_soon = error.kind == ErrorKind::NotCurrent && self.works.is_none();
        let pause = self.next_pause(what, error)?;
        let pause = if is_soon { pause.min(AGAIN) } else { pause };
        if tokio::time::timeout(pause, self.volume.map().moved(group, route)).await.is_ok() {
            self.pause_ms = PAUSE_MS_FIRST;
        }
        Ok(false)
    }

    /// As [`Patience::heed`], of an attempt at the metadata server that a share has had since this epoch: the next one is
    /// made as soon as it has another.
    pub(crate) async fn heed_owner(
        &mut self,
        what: impl Fn() -> String,
        error: Error,
        renewable: bool,
        (share, since): (VolumeId, Option<Epoch>),
    ) -> Result<bool> {
        if error.advice() != Advice::Retry {
            return self.heed(what, error, renewable).await;
        }
        let awaited = match error.kind {
            ErrorKind::Unavailable => Awaited::InVain,
            _ => Awaited::Busily,
        };
        let pause = self.next_pause(what, error)?;
        let moved = self.volume.owner_moved(share, since, awaited);
        if tokio::time::timeout(pause, moved).await.is_ok() {
            self.pause_ms = PAUSE_MS_FIRST;
        }
        Ok(false)
    }

    /// Fetches the map after a pause, so that a map that stays old is not asked for in a loop.
    async fn refresh(&mut self, what: impl Fn() -> String, error: Error) -> Result<()> {
        self.pause(what, error).await?;
        let refresh = tokio::time::timeout(self.left(), self.volume.map().refresh());
        if let Ok(Err(error)) = refresh.await {
            tracing::debug!("cannot fetch the cluster map: {error}");
        }
        Ok(())
    }
}
