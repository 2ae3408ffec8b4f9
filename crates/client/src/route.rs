//! From an operation to the server that carries it out, with retries within a time limit.
//!
//! The kind of an error says what to do about it ([`Advice`]): try again, fetch the map, open a new
//! session or capability, or give up. All but the last are repeated with growing pauses until
//! [`crate::VolumeOptions::operation_wait_ms`] is over; what is being waited for is logged once when
//! a wait becomes long and once when it ends in vain.

use crate::file::FileState;
use crate::volume::Volume;
use bytes::Bytes;
use std::time::Duration;
use strake_types::error::Advice;
use strake_types::{Credentials, Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::message::common::Cred;
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaReply, MetaRequest};
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageRequest};

/// First pause between two attempts; each is twice the one before.
const PAUSE_MS_FIRST: u64 = 10;
/// Longest pause between two attempts.
const PAUSE_MS_MAX: u64 = 500;
/// A wait longer than this is logged.
const SILENT_MS_MAX: u64 = 2_000;
/// How often a refused capability is renewed before the refusal is believed.
const RENEWALS_MAX: u32 = 3;

/// The patience of one operation.
pub(crate) struct Patience<'a> {
    volume: &'a Volume,
    started: Option<Duration>,
    pause_ms: u64,
    renewals: u32,
    said: bool,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(volume: &'a Volume) -> Self {
        Self { volume, started: None, pause_ms: PAUSE_MS_FIRST, renewals: 0, said: false }
    }

    /// Counts a renewal of session or capability; an error when there were too many.
    fn renewal(&mut self, error: Error) -> Result<()> {
        self.renewals += 1;
        if self.renewals > RENEWALS_MAX { Err(error) } else { Ok(()) }
    }

    /// Pauses before the next attempt; an error when the time is over. `what` is being waited for.
    async fn pause(&mut self, what: impl Fn() -> String, error: Error) -> Result<()> {
        let now = self.volume.clock().monotonic();
        let started = *self.started.get_or_insert(now);
        let waited_ms = (now - started).as_millis() as u64;
        let limit_ms = self.volume.options().operation_wait_ms;
        if waited_ms >= limit_ms {
            let what = what();
            tracing::error!("gave up waiting for {what} after {waited_ms} ms: {error}");
            let detail = format!(
                "waited {waited_ms} ms for {what} (last answer: {error}); see `strake status`"
            );
            return Err(Error::with(ErrorKind::TimedOut, detail));
        }
        if !self.said && waited_ms >= SILENT_MS_MAX.min(limit_ms / 2) {
            self.said = true;
            tracing::warn!("waiting for {}, up to {limit_ms} ms: {error}", what());
        }
        let pause_ms = self.pause_ms.min(limit_ms - waited_ms).max(1);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        self.pause_ms = (self.pause_ms * 2).min(PAUSE_MS_MAX);
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
                self.renewal(error)?;
                return Ok(true);
            }
            Advice::Renew | Advice::GiveUp => return Err(error),
        }
        Ok(false)
    }

    /// Fetches the map after a pause, so that a map that stays old is not asked for in a loop.
    async fn refresh(&mut self, what: impl Fn() -> String, error: Error) -> Result<()> {
        self.pause(what, error).await?;
        if let Err(error) = self.volume.map().refresh().await {
            tracing::debug!("cannot fetch the cluster map: {error}");
        }
        Ok(())
    }
}

/// The number of a mutation, given back whatever becomes of the operation.
struct SeqGuard<'a> {
    volume: &'a Volume,
    seq: u64,
}

impl Drop for SeqGuard<'_> {
    fn drop(&mut self) {
        if self.seq != 0 {
            self.volume.session().end_mutation(self.seq);
        }
    }
}

impl Volume {
    /// Asks the metadata server something that changes nothing.
    pub(crate) async fn ask(&self, cred: &Credentials, op: MetaOp) -> Result<MetaAnswer> {
        self.meta(cred.into(), op, 0).await
    }

    /// Lets the metadata server change something, once.
    pub(crate) async fn mutate(&self, cred: &Credentials, op: MetaOp) -> Result<MetaAnswer> {
        let seq = if self.options().remember { self.session().begin_mutation() } else { 0 };
        let _guard = SeqGuard { volume: self, seq };
        self.meta(cred.into(), op, seq).await
    }

    async fn meta(&self, cred: Cred, op: MetaOp, seq: u64) -> Result<MetaAnswer> {
        let mut patience = Patience::new(self);
        let what = || format!("the metadata server of volume {}", self.name());
        let (session, answered) = self.session().stamp();
        let volume = self.id().0;
        let mut request = MetaRequest { volume, session, seq, answered, cred, op: Some(op) };
        loop {
            let error = match self.meta_once(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if patience.heed(what, error, true).await? {
                self.renew_session(request.session).await?;
                request.session = self.session().id();
            }
        }
    }

    /// One attempt, without retries.
    pub(crate) async fn meta_once(&self, request: MetaRequest) -> Result<MetaAnswer> {
        let service = self.map().meta_for(self.id())?;
        let MetaReply { answer } = service.call(request).await?;
        answer.ok_or_else(|| Error::with(ErrorKind::Malformed, "empty answer of a metadata server"))
    }

    /// One operation on a file's part in a group, at the group's primary.
    pub(crate) async fn storage(
        &self,
        file: &FileState,
        group: GroupId,
        write: bool,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<(StorageAnswer, Bytes)> {
        let capability = || file.capability(write);
        self.on_group(group, capability, op, payload, Some((file, write))).await
    }

    /// One operation at a group's primary. `renew` says whose capability is renewed if it is refused.
    pub(crate) async fn on_group(
        &self,
        group: GroupId,
        capability: impl Fn() -> Bytes,
        op: StorageOp,
        payload: Bytes,
        renew: Option<(&FileState, bool)>,
    ) -> Result<(StorageAnswer, Bytes)> {
        let mut patience = Patience::new(self);
        let what = || format!("the target of group {group}");
        loop {
            let sent = self.storage_once(group, capability(), op.clone(), payload.clone()).await;
            let error = match sent {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let renews = patience.heed(what, error, renew.is_some()).await?;
            if let Some((file, write)) = renew.filter(|_| renews) {
                self.renew_capability(file, write).await?;
            }
        }
    }

    async fn storage_once(
        &self,
        group: GroupId,
        capability: Bytes,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<(StorageAnswer, Bytes)> {
        let (target, epoch) = self.map().primary_of(group)?;
        let request = StorageRequest {
            target: target.0,
            group: group.0,
            epoch: epoch.0,
            capability,
            op: Some(op),
            ..StorageRequest::default()
        };
        self.target_once(request, payload).await
    }

    /// One attempt at a target, without retries.
    pub(crate) async fn target_once(
        &self,
        request: StorageRequest,
        payload: Bytes,
    ) -> Result<(StorageAnswer, Bytes)> {
        let service = self.map().storage_of(TargetId(request.target))?;
        let (reply, bytes) = service.call(request, payload).await?;
        let empty = || Error::with(ErrorKind::Malformed, "empty answer of a storage server");
        Ok((reply.answer.ok_or_else(empty)?, bytes))
    }
}
