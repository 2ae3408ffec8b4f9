//! From an operation to the server that carries it out, with retries within a time limit.
//!
//! The kind of an error says what to do about it ([`Advice`](strake_types::error::Advice)): try again, fetch the map, open a new
//! session or capability, or give up. All but the last are repeated with growing pauses until
//! [`crate::VolumeOptions::operation_wait_ms`] is over; what is being waited for is logged once when
//! a wait becomes long and once when it ends in vain. Changes on targets carry a number, the same
//! each time they are sent.

use crate::file::{FileState, Life, Rights};
use crate::ops::unexpected;
use crate::patience::Patience;
use crate::session::{Session, Stamp};
use crate::share::Share;
use crate::told;
use crate::volume::Volume;
use crate::works::Worker;
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use std::pin::pin;
use std::time::Duration;
use strake_types::limits::LEASE_MS;
use strake_types::{
    Ack, ChunkId, Credentials, Epoch, Error, ErrorKind, GroupId, Ino, Result, Safety, TargetId,
    VolumeId,
};
use strake_wire::attempts::OpenAttempt;
use strake_wire::frame::crc32c;
use strake_wire::map::Route;
use strake_wire::message::common::Cred;
use strake_wire::message::manager::ClusterMap;
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaReply, MetaRequest};
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageReply, StorageRequest};

/// A call that has waited so long makes the client look at the map,
pub(crate) const WATCH_MS: u64 = 300;
/// and fetch it so often.
const FETCH_MS: u64 = 500;
/// The same while a metadata server that says nothing is likely to be replaced: nothing is read without that others write.
const SILENT_FETCH_MS: u64 = 200;
/// Fetches that follow each other so soon.
const SILENT_FETCHES: u32 = 10;
/// A member of a group that could not answer yet is asked again after this time, if none of the others answers: it can as soon as
/// those are given up, and they are because it is asked.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// A target's answer and its payload.
pub(crate) type Answer = (StorageAnswer, Bytes);

/// How a metadata server is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// It answers when there is something to say.
    Idly,
    /// It has work to do first, or somebody else has.
    Busily,
    /// It may be gone: the manager hears that somebody waits for it.
    InVain,
}

impl Awaited {
    /// By an operation that is not answered soon.
    fn by(op: Option<&MetaOp>) -> Self {
        match op {
            Some(MetaOp::Recalls(_)) => Self::Idly,
            // Mostly nobody is waited for, and a reader may be the only one who notices that a server is gone.
            Some(MetaOp::GetAttr(_)) => Self::InVain,
            Some(op) if op.waits_for_others() => Self::Busily,
            _ => Self::InVain,
        }
    }
}

/// How something is asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sending<'a> {
    /// The number of a mutation; 0: it has none.
    pub(crate) seq: u64,
    /// The life of a file in which it was begun: it is not sent after that.
    pub(crate) life: Option<Life<'a>>,
    /// The session in which all of it was answered already: it is sent in no other; 0: it was not.
    pub(crate) answered_in: u64,
}

impl Sending<'_> {
    /// Fails if it may not be sent any more. To be asked after the session was looked up: files end their lives before the next
    /// one is used.
    fn check(&self, session: &Session) -> Result<()> {
        self.life.map_or(Ok(()), |life| life.check())?;
        match self.answered_in {
            0 => Ok(()),
            of => session.check_answered_in(of),
        }
    }
}

/// What the metadata server has said.
pub(crate) struct Said {
    pub(crate) answer: MetaAnswer,
    /// When the question was sent that was answered.
    pub(crate) asked: Duration,
    /// In which incarnation of the session.
    pub(crate) incarnation: u64,
    /// The server was told of all that may cut a file and had been given up.
    pub(crate) told_cuts: bool,
}

impl Volume {
    /// Asks the metadata server something that changes nothing.
    pub(crate) async fn ask(&self, cred: &Credentials, op: MetaOp) -> Result<MetaAnswer> {
        self.ask_about(cred, op).await.map(|said| said.answer)
    }

    /// As [`Volume::ask`]; also when and in which session it was asked.
    pub(crate) async fn ask_about(&self, cred: &Credentials, op: MetaOp) -> Result<Said> {
        self.meta(self.share_for(&op), cred.into(), op, Sending::default()).await
    }

    /// As [`Volume::ask`], of what is about a whole share.
    pub(crate) async fn ask_share(
        &self,
        share: &Share,
        cred: &Credentials,
        op: MetaOp,
    ) -> Result<MetaAnswer> {
        self.meta(share, cred.into(), op, Sending::default()).await.map(|said| said.answer)
    }

    /// Asks all shares the same, also where one does not answer.
    pub(crate) async fn ask_all(&self, cred: &Credentials, op: &MetaOp) -> Result<Vec<MetaAnswer>> {
        let asked = self.parts().iter().map(|share| self.ask_share(share, cred, op.clone()));
        join_all(asked).await.into_iter().collect()
    }

    /// The share that carries out an operation.
    pub(crate) fn share_for(&self, op: &MetaOp) -> &Share {
        self.share_of(op.place().unwrap_or(Ino::ROOT))
    }

    /// Asks until there is an answer or the patience is over, in a box: what is needed for a message is not to make each
    /// operation larger that is answered from memory.
    pub(crate) fn meta<'a>(
        &'a self,
        share: &'a Share,
        cred: Cred,
        op: MetaOp,
        how: Sending<'a>,
    ) -> BoxFuture<'a, Result<Said>> {
        Box::pin(self.ask_until_answered(share, cred, op, how))
    }

    async fn ask_until_answered(
        &self,
        share: &Share,
        cred: Cred,
        op: MetaOp,
        how: Sending<'_>,
    ) -> Result<Said> {
        let works = Worker::of_share(share.id, &op);
        let mut patience = Patience::new(self).on(told::inode(&op)).with(works);
        let what = || format!("the metadata server of {}", self.called(share.id));
        let Share { id, session: own, leases: leased, .. } = share;
        let Stamp { session, incarnation, .. } = own.stamp();
        let closed = own.report_with(&op);
        // What only opens a file counts for nothing when its session is lost: in the next one it is asked for again.
        let is_once = how.seq != 0 && told::only_opens(&op).is_none();
        let request = self.session_request(share, (session, incarnation), op);
        let mut request = MetaRequest { seq: how.seq, cred, closed, ..request };
        // It may have been carried out, and its answer be lost: only its session knows.
        let mut in_doubt = false;
        loop {
            how.check(own)?;
            let (asked, since) = (self.now(), self.map().owned_since(*id));
            // After the time: what begins later knows that this was asked before.
            if let Some(op) = request.op.as_ref().filter(|_| leased.behind.is_busy()) {
                let after = told::comes_after(op, self.touched(op));
                Box::pin(self.until_made(share, &after, &mut patience)).await?;
            }
            // After the time: whatever is believed of the answer was asked under this number.
            request.leases = leased.number();
            // After the time, too: the server hears of all that was given up before.
            let Stamp { answered, given_up, tells_cuts: told_cuts, .. } = own.stamp();
            (request.answered, request.given_up) = (answered, given_up);
            let answer = tokio::select! {
                biased;
                answer = self.meta_once(request.clone()) => answer,
                error = patience.over() => Err(error),
                error = self.doubt_unanswered(request.op.as_ref()) => Err(error),
            };
            let was_taken = answer.as_ref().err().is_none_or(told::is_refusal);
            if let Some(report) = request.closed.as_ref().filter(|_| was_taken) {
                own.reported(report.number);
            }
            let error = match answer {
                Ok(answer) => {
                    if let Some(op) = request.op.as_ref().filter(|_| self.keeps_leases()) {
                        self.learn_leases(share, op, &answer, asked);
                    }
                    let incarnation = request.incarnation;
                    return Ok(Said { answer, asked, incarnation, told_cuts });
                }
                Err(error) => error,
            };
            if is_once && matches!(error.kind, ErrorKind::Unavailable) {
                in_doubt = true;
                self.doubt_parts(request.op.as_ref());
            }
            if Box::pin(patience.heed_owner(what, error, true, (*id, since))).await? {
                let renewed = Box::pin(self.renew_session(share, request.incarnation));
                patience.within(what, renewed).await?;
                let Stamp { session, incarnation, .. } = own.stamp();
                if in_doubt && session != request.session {
                    let detail = "the session was lost, and nobody knows whether this was done";
                    return Err(Error::with(ErrorKind::Io, detail));
                }
                (request.session, request.incarnation) = (session, incarnation);
            }
        }
    }

    /// Nobody knows whether a change was made, until it is sent again. Shares that lent what it touches recall nothing from
    /// us, and go on to serve others, who see it; a volume of one share serves nobody until then.
    fn doubt_parts(&self, op: Option<&MetaOp>) {
        let lent = |op: &&MetaOp| self.parts().len() > 1 && told::is_change(op);
        if let Some(op) = op.filter(lent).filter(|_| self.keeps_leases()) {
            self.doubt(&self.touched(op));
        }
    }

    /// The same of a change that is not answered for as long as leases last: those of a share of which nothing is heard are over
    /// then, and those of others are not. Never returns.
    async fn doubt_unanswered(&self, op: Option<&MetaOp>) -> Error {
        let lent = |op: &&MetaOp| self.parts().len() > 1 && told::may_span_shares(op);
        if let Some(op) = op.filter(lent).filter(|_| self.keeps_leases()) {
            // Before another change is doubted: what names lead to is forgotten with it.
            let touched = self.touched(op);
            tokio::time::sleep(Duration::from_millis(LEASE_MS)).await;
            self.doubt(&touched);
        }
        std::future::pending().await
    }

    /// Waits until the map shows that a share has got another metadata server, or the same one anew. Unless that is waited
    /// for idly, the map is fetched meanwhile more often than it is anyway.
    pub(crate) async fn owner_moved(
        &self,
        share: VolumeId,
        since: Option<Epoch>,
        awaited: Awaited,
    ) {
        let mut maps = self.map().watch();
        let mut fetches = 0;
        while self.map().owned_since(share) == since {
            let soon = awaited == Awaited::InVain && fetches < SILENT_FETCHES;
            let pause_ms = if soon { SILENT_FETCH_MS } else { FETCH_MS };
            match awaited {
                Awaited::Idly => {}
                Awaited::Busily => self.map().hurry(),
                Awaited::InVain => self.map().miss(share, since),
            }
            let fetched = tokio::time::timeout(Duration::from_millis(pause_ms), maps.changed());
            let fetched = fetched.await;
            debug_assert!(!matches!(fetched, Ok(Err(_))), "the map is there as long as the volume");
            fetches += u32::from(fetched.is_err());
        }
    }

    /// Waits until a call that was sent just now is to be given up, and says why.
    async fn is_replaced(&self, share: VolumeId, since: Option<Epoch>, awaited: Awaited) -> Error {
        tokio::time::sleep(Duration::from_millis(WATCH_MS)).await;
        self.owner_moved(share, since, awaited).await;
        let detail = format!("{} has got another metadata server", self.called(share));
        Error::with(ErrorKind::Unavailable, detail)
    }

    /// One attempt, without retries.
    pub(crate) async fn meta_once(&self, request: MetaRequest) -> Result<MetaAnswer> {
        let share = VolumeId(request.volume);
        let since = self.map().owned_since(share);
        let awaited = Awaited::by(request.op.as_ref());
        let service = self.map().meta_for(share)?;
        let MetaReply { answer, fenced } = tokio::select! {
            biased;
            reply = service.call(request) => reply?,
            // One that has stopped without a word, or cannot be reached, does not say so.
            error = self.is_replaced(share, since, awaited) => return Err(error),
        };
        self.learn_fenced(fenced);
        answer.ok_or_else(|| Error::with(ErrorKind::Malformed, "empty answer of a metadata server"))
    }

    /// One operation on a file's part in a group that changes nothing.
    pub(crate) async fn storage(
        &self,
        file: &FileState,
        group: GroupId,
        write: bool,
        op: StorageOp,
    ) -> Result<Answer> {
        self.on_group(group, op, Bytes::new(), Some(Rights::of(file, write))).await
    }

    /// Changes a file's part in a group, in one of its lives and in no other.
    pub(crate) async fn change(
        &self,
        life: Life<'_>,
        group: GroupId,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<Answer> {
        self.on_group(group, op, payload, Some(Rights::in_life(life))).await
    }

    /// One operation on a group, with the rights to a file if it needs any, in a box as [`Volume::meta`].
    pub(crate) fn on_group<'a>(
        &'a self,
        group: GroupId,
        op: StorageOp,
        payload: Bytes,
        rights: Option<Rights<'a>>,
    ) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.ask_group_until_answered(group, op, payload, rights))
    }

    async fn ask_group_until_answered(
        &self,
        group: GroupId,
        op: StorageOp,
        payload: Bytes,
        rights: Option<Rights<'_>>,
    ) -> Result<Answer> {
        let attempt = op.is_numbered().then(|| self.attempts().begin());
        let ask = Ask { volume: self, group, op, payload, rights, attempt };
        let works = Worker::of_group(group, &ask.op);
        let file = rights.map(|rights| rights.file().ino());
        let mut patience = Patience::new(self).on(file).with(works);
        if let StorageOp::Copy(_) = &ask.op {
            patience.expect_refusals();
        }
        let what = || self.target_of(group);
        let life = || rights.map(|rights| rights.file().life());
        let mut renewed_in = life();
        loop {
            let route = self.map().route(group);
            let sent = match &route {
                Ok(route) => {
                    // Not in the call itself, where it would be copied about.
                    let over = pin!(patience.over());
                    ask.send(route, over).await
                }
                Err(error) => Err(error.clone()),
            };
            let error = match sent {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let renews = match &route {
                Ok(route) if route.members > 1 => {
                    let renewable = rights.is_some();
                    Box::pin(patience.heed_group(what, error, renewable, (group, route))).await?
                }
                _ => Box::pin(patience.heed(what, error, rights.is_some())).await?,
            };
            if let Some(rights) = rights.filter(|_| renews) {
                // What was refused was none: whether a cut is made is in doubt, however often.
                let doubted = rights.file().core().right(rights.write).is_empty();
                let renewed = Box::pin(self.renew_capability(rights.file(), rights.write));
                patience.within(what, renewed).await?;
                if doubted || renewed_in.is_some_and(|life| !life.lasts()) {
                    renewed_in = life();
                    patience.begin_anew();
                }
            }
        }
    }

    /// The target of a group, for people.
    pub(crate) fn target_of(&self, group: GroupId) -> String {
        match self.map().primary_of(group) {
            Ok((target, _)) => {
                format!("{} (group {group})", named(&self.map().current(), target.0))
            }
            Err(_) => format!("the target of group {group}"),
        }
    }

    /// An error of a target; one that is full is called as people know it, and not by its path on a server that nobody names.
    fn placed(&self, error: Error, target: TargetId) -> Error {
        if error.kind != ErrorKind::NoSpace {
            return error;
        }
        let target = named(&self.map().current(), target.0);
        Error::with(error.kind, format!("{target} is full; delete files or add targets"))
    }

    /// One attempt at a target, without retries.
    pub(crate) async fn target_once(
        &self,
        request: StorageRequest,
        payload: Bytes,
    ) -> Result<Answer> {
        let service = self.map().storage_of(TargetId(request.target))?;
        answered(service.call(request, payload).await?)
    }
}

/// A target, for people.
pub(crate) fn named(map: &ClusterMap, target: u32) -> String {
    let found = map.targets.iter().find(|one| one.id == target);
    let server = found.and_then(|one| map.servers.iter().find(|server| server.id == one.server));
    match server {
        Some(server) if !server.name.is_empty() => format!("target {target} on {}", server.name),
        _ => format!("target {target}"),
    }
}

/// The answer in a target's reply.
pub(crate) fn answered((reply, bytes): (StorageReply, Bytes)) -> Result<Answer> {
    let empty = || Error::with(ErrorKind::Malformed, "empty answer of a storage server");
    Ok((reply.answer.ok_or_else(empty)?, bytes))
}

/// One operation on a group, however often it is sent.
pub(crate) struct Ask<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) group: GroupId,
    pub(crate) op: StorageOp,
    pub(crate) payload: Bytes,
    /// The rights to a file, if it needs any.
    pub(crate) rights: Option<Rights<'a>>,
    /// Its number, if it changes something.
    pub(crate) attempt: Option<OpenAttempt<'a>>,
}

impl Ask<'_> {
    /// One attempt, until it is `over`.
    async fn send(&self, route: &Route, over: impl Future<Output = Error>) -> Result<Answer> {
        if route.members == 1 {
            let request = self.request(route.primary, route.epoch)?;
            let answer = tokio::select! {
                biased;
                answer = self.volume.target_once(request, self.payload.clone()) => answer,
                error = over => Err(error),
            };
            self.check(answer.map_err(|error| self.volume.placed(error, route.primary))?)
        } else if self.attempt.is_some() || route.in_sync == 1 || self.safety().ack == Ack::Primary
        {
            // In boxes: what is needed for several members is not to make each call larger.
            Box::pin(self.send_to_primary(route, over)).await
        } else {
            tokio::select! {
                biased;
                answer = Box::pin(self.send_to_members(route)) => answer,
                error = over => Err(error),
            }
        }
    }

    /// What the file's layout asks of the copies.
    fn safety(&self) -> Safety {
        let placement = self.rights.and_then(|rights| rights.file().core().placement().ok());
        placement.map(|placement| placement.layout().safety).unwrap_or_default()
    }

    /// What is sent to a target.
    pub(crate) fn request(&self, target: TargetId, epoch: Epoch) -> Result<StorageRequest> {
        let mut op = self.op.clone();
        if let StorageOp::Copy(copy) = &mut op {
            copy.from_target = self.volume.map().primary_of(GroupId(copy.from_group))?.0.0;
        }
        let safety = self.safety();
        let changes = self.attempt.is_some();
        let of = |rights: Rights<'_>| match self.op.is_change() {
            true => rights.capability_to_change(),
            false => rights.capability(),
        };
        let capability = self.rights.map_or(Ok(Bytes::new()), of)?;
        Ok(StorageRequest {
            target: target.0,
            group: self.group.0,
            epoch: epoch.0,
            capability,
            fenced: self.volume.fenced(),
            attempt: self.attempt.as_ref().map(OpenAttempt::stamp),
            ack_primary: changes && safety.ack == Ack::Primary,
            min_copies: if changes { safety.min_copies } else { 0 },
            op: Some(op),
            ..StorageRequest::default()
        })
    }

    /// Fails unless an answer holds what was asked for, unharmed.
    pub(crate) fn check(&self, (answer, bytes): Answer) -> Result<Answer> {
        let StorageOp::Read(read) = &self.op else { return Ok((answer, bytes)) };
        let StorageAnswer::Data(data) = &answer else { return Err(unexpected("read")) };
        if bytes.len() as u64 > read.len {
            return Err(Error::with(ErrorKind::Malformed, "more bytes than asked for"));
        }
        if crc32c(&bytes) != data.crc {
            let detail = format!("{}, bytes from {} on", ChunkId::from(read.chunk), read.offset);
            return Err(Error::with(ErrorKind::Corrupt, detail));
        }
        Ok((answer, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::meta::{Claim, Inode, Look};

    /// The manager heard that the server may be gone, whenever another client took longer than 0.3 s to tell what it held back.
    #[test]
    fn a_server_that_waits_for_other_clients_is_not_waited_for_in_vain() {
        let look =
            |to_read, told| MetaOp::GetAttr(Look { ino: 7, to_read, told, ..Look::default() });
        let settle = MetaOp::Settle(Inode { ino: 7 });
        for op in [settle, MetaOp::Claim(Claim::default())] {
            assert!(Awaited::by(Some(&op)) == Awaited::Busily, "{op:?}");
        }
        for op in [look(true, false), look(false, true), look(false, false)] {
            assert!(Awaited::by(Some(&op)) == Awaited::InVain, "who reads may notice it alone");
        }
    }
}
