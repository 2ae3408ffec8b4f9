//! How long an operation goes on trying, and how.

use crate::route::Awaited;
use crate::volume::Volume;
use crate::waits::{SILENT_MS_MAX, Wait, Waiting};
use std::time::Duration;
use strake_types::error::Advice;
use strake_types::limits::LEASE_MS;
use strake_types::{Epoch, Error, ErrorKind, GroupId, Ino, Result, VolumeId};
use strake_wire::map::Route;

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
/// How long a target may have been at work on an attempt that fails then: just less than a call of it may take
/// ([`strake_wire::caller`]), at whose end it was only silent.
const WORK_TIME_MAX: Duration = Duration::from_secs(110);
/// Nothing is late by more, unless this process stood still.
const LATE_MAX: Duration = Duration::from_secs(2);

/// The patience of one operation. It begins with it: make one just before.
pub(crate) struct Patience<'a> {
    volume: &'a Volume,
    /// When the operation began; later where the time until then does not count.
    started: Duration,
    /// How long it waits, as what was answered last asks.
    limit: Duration,
    pause_ms: u64,
    renewals: u32,
    /// When something was refused first, and how long a capability may be.
    refused_since: Option<Duration>,
    refused_wait: Duration,
    /// A group whose target may have to work on it for long.
    works: Option<GroupId>,
    /// An attempt there has failed.
    has_failed: bool,
    /// A file that the operation is about.
    file: Option<Ino>,
    /// It has been said that it waits.
    said: Option<Waiting<'a>>,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            started: volume.clock().monotonic(),
            limit: Duration::from_millis(volume.options().operation_wait_ms),
            pause_ms: PAUSE_MS_FIRST,
            renewals: 0,
            refused_since: None,
            refused_wait: REFUSED_WAIT,
            works: None,
            has_failed: false,
            file: None,
            said: None,
        }
    }

    /// The same, of an operation on a file.
    pub(crate) fn on(self, file: Option<Ino>) -> Self {
        Self { file, ..self }
    }

    /// The target of this group may have to work on it for long: that is waited for while it is heard of.
    pub(crate) fn expect_work(&mut self, group: GroupId) {
        self.works = Some(group);
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
            _ if self.renewals <= RENEWALS_MAX => Ok(()),
            ErrorKind::NoSession => self.pause(what, error).await,
            _ if now - since < self.refused_wait => self.pause(what, error).await,
            _ => Err(error),
        }
    }

    /// The capability that is sent along to another target is not renewed here: whoever has it does that.
    pub(crate) fn expect_refusals(&mut self) {
        self.refused_wait = Duration::ZERO;
    }

    fn waited(&self) -> Duration {
        self.volume.clock().monotonic().saturating_sub(self.started)
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
            self.started = self.volume.clock().monotonic();
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

    /// Returns when an attempt that is under way is to be given up with the operation, and why. A target that may be at
    /// work is waited for as long as it is heard of.
    pub(crate) async fn over(&mut self) -> Error {
        let error = self.time_is_over().await;
        if let Some(group) = self.works {
            Box::pin(self.volume.is_lost(group)).await;
            self.has_failed = true;
        }
        error
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

    /// The time is over.
    fn end(&self, what: impl Fn() -> String, error: &Error) -> Error {
        let (what, waited_ms) = (what(), self.waited().as_millis());
        tracing::error!("gave up waiting for {what} after {waited_ms} ms: {error}");
        let detail =
            format!("waited {waited_ms} ms for {what} (last answer: {error}); see `strake status`");
        Error::with(ErrorKind::TimedOut, detail)
    }

    /// An attempt has failed so.
    fn note_failure(&mut self, error: &Error) {
        self.forget_standstill();
        let options = self.volume.options();
        self.limit = Duration::from_millis(match error.kind {
            ErrorKind::HeldBack => options.held_back_wait_ms,
            _ => options.operation_wait_ms,
        });
        // A target that was at work, and is lost or restarted then, is waited for from then on.
        let is_first = self.works.is_some() && !std::mem::replace(&mut self.has_failed, true);
        if is_first && self.waited() < WORK_TIME_MAX {
            self.started = self.volume.clock().monotonic();
        }
    }

    /// How long to pause before the next attempt; an error when the time is over. `what` is being
    /// waited for.
    fn next_pause(&mut self, what: impl Fn() -> String, error: Error) -> Result<Duration> {
        self.note_failure(&error);
        let limit_ms = self.limit.as_millis() as u64;
        let waited_ms = self.waited().as_millis() as u64;
        if waited_ms >= limit_ms {
            return Err(self.end(what, &error));
        }
        if self.said.is_none() && waited_ms >= SILENT_MS_MAX.min(limit_ms / 2) {
            let what = what();
            tracing::warn!("waiting for {what}, up to {limit_ms} ms: {error}");
            let wait = Wait {
                what: format!("{what}: {error}"),
                file: self.file,
                since: self.started,
                limit_ms,
            };
            self.said = Some(self.volume.waits.begin(wait, self.volume.clock()));
        }
        let pause_ms = self.pause_ms.min(limit_ms - waited_ms).max(1);
        self.pause_ms = (self.pause_ms * 2).min(PAUSE_MS_MAX);
        Ok(Duration::from_millis(pause_ms))
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
    /// as the group has changed.
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
        let pause = self.next_pause(what, error)?;
        if tokio::time::timeout(pause, self.volume.moved(group, route)).await.is_ok() {
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
