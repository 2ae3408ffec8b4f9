//! Calls to groups of several members.
//!
//! Changes go to the primary. When it does not answer, the map is watched: as soon as it shows another
//! primary or epoch the call is given up and sent again, under its number, so that a dead server costs
//! its lease and not the patience of an operation.
//!
//! Reads go to the member with the least under way from here, a slow one being given less. One that cannot answer is replaced by
//! another at once, one that is silent for a moment is given company: the first answer counts. Where all others are silent, one
//! that could not answer yet is asked again and again: it can as soon as those are given up, and has that done. Who knows a newer
//! map has it fetched, whoever is asked meanwhile.

use crate::members::UnderWay;
use crate::route::{self, AGAIN, Answer, Ask, WATCH_MS, answered};
use crate::volume::Volume;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;
use strake_base::random::mixed;
use strake_types::error::Advice;
use strake_types::{Epoch, Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::map::Route;
use strake_wire::message::manager::{ClusterMap, Group};
use strake_wire::message::storage::StorageOp;
use strake_wire::waits::{SILENT_MS_MAX, Wait};
use tokio::sync::Notify;
use tokio::time::Instant;

/// In which epoch each group was when a call to it was last sent again, so that it is logged once.
#[derive(Default)]
pub(crate) struct Moves(Mutex<HashMap<GroupId, Epoch>>);

impl Moves {
    fn is_news(&self, group: GroupId, epoch: Epoch) -> bool {
        self.0.lock().insert(group, epoch) != Some(epoch)
    }
}

impl Volume {
    /// Waits until a call that was sent just now is to be given up, and says why. Where there is `news` of a newer map, that is
    /// fetched at once.
    async fn given_up(
        &self,
        group: GroupId,
        route: &Route,
        news: impl Future<Output = ()>,
    ) -> Error {
        let silent = Instant::now() + Duration::from_millis(SILENT_MS_MAX);
        let _told = tokio::time::timeout(Duration::from_millis(WATCH_MS), news).await;
        if tokio::time::timeout_at(silent, self.map().moved(group, route)).await.is_err() {
            tracing::warn!(
                "waiting for target {} of group {group}: no answer for {SILENT_MS_MAX} ms",
                route.primary
            );
            let wait = Wait {
                what: format!("{}: no answer", awaited(&self.map().current(), group)),
                file: None,
                since: self.now().saturating_sub(Duration::from_millis(SILENT_MS_MAX)),
                limit_ms: self.options().operation_wait_ms,
            };
            let _waiting = self.waits.begin(wait, self.clock());
            self.map().moved(group, route).await;
        }
        self.metrics().failovers.increment(1);
        let (before, now) = (route.epoch, self.map().route(group));
        if let Ok(now) = now
            && self.moves.is_news(group, now.epoch)
        {
            let Route { primary, epoch, .. } = now;
            tracing::warn!(
                "group {group} has changed (epoch {before} to {epoch}): going on with target \
                 {primary}, after {}",
                route.primary
            );
        }
        Error::with(ErrorKind::StaleMap, format!("group {group} has left epoch {before}"))
    }
}

impl Ask<'_> {
    /// One attempt at the primary of a group of several members, until it is `over`.
    pub(crate) async fn send_to_primary(
        &self,
        route: &Route,
        over: impl Future<Output = Error>,
    ) -> Result<Answer> {
        let request = self.request(route.primary, route.epoch)?;
        let service = self.volume.map().storage_of(route.primary)?;
        let given_up = async {
            tokio::select! {
                biased;
                error = self.volume.given_up(self.group, route, future::pending()) => error,
                error = over => error,
            }
        };
        // A call that is given up is dropped: what of it waits for its turn on a connection is not sent. A server, also one in
        // this process, comes to the end of what it has begun.
        tokio::select! {
            biased;
            reply = service.call(request, self.payload.clone()) => {
                self.check(answered(reply.map_err(as_absent)?)?)
            }
            error = given_up => Err(error),
        }
    }

    /// One attempt at the members in sync, of which there are several.
    pub(crate) async fn send_to_members(&self, route: &Route) -> Result<Answer> {
        let map = self.volume.map().current();
        let gone = || Error::with(ErrorKind::StaleMap, format!("group {} is gone", self.group));
        let group = map.group(self.group).ok_or_else(gone)?;
        let (asked, calls) = (Vec::new(), FuturesUnordered::new());
        let mut race = Race { ask: self, group, asked, again: None, calls };
        let news = Notify::new();
        let mut given_up = pin!(self.volume.given_up(self.group, route, news.notified()));
        let mut retry: Option<Error> = None;
        race.join_any();
        loop {
            let overdue = pin!(race.overdue());
            let again = pin!(race.again());
            let (target, error) = tokio::select! {
                biased;
                Some((target, result)) = race.calls.next() => match result {
                    Err(error) if is_worth_another(error.kind) => (target, error),
                    result => return result,
                },
                target = overdue => {
                    self.volume.members().shun(target);
                    self.volume.metrics().reads_hedged.increment(1);
                    race.join_any();
                    continue;
                }
                target = again => {
                    race.again = None;
                    race.join(target);
                    continue;
                }
                error = &mut given_up => return Err(error),
            };
            race.failed(target, &error);
            // Whoever knows a newer map knows better than one that says nothing.
            let is_news = error.kind == ErrorKind::StaleMap;
            let could_not = error.kind != ErrorKind::BadCapability;
            if is_news {
                // The next one that is asked may be the one that was taken out.
                news.notify_one();
            }
            if retry.as_ref().is_none_or(|known| hope(&error) > hope(known)) {
                retry = Some(error);
            }
            if race.join_next() {
                self.volume.metrics().reads_elsewhere.increment(u64::from(could_not));
            } else if (race.calls.is_empty() || is_news)
                && let Some(error) = retry
            {
                return Err(error);
            }
        }
    }
}

/// Members that are asked for the same.
struct Race<'a> {
    ask: &'a Ask<'a>,
    group: &'a Group,
    /// Who was asked, in that order.
    asked: Vec<Asked>,
    /// Who waits for the end of a change, and when it is asked again.
    again: Option<(u32, Instant)>,
    calls: FuturesUnordered<BoxFuture<'a, (u32, Result<Answer>)>>,
}

/// A member that was asked.
#[derive(Clone, Copy)]
struct Asked {
    target: u32,
    since: Instant,
    /// It has said nothing yet.
    silent: bool,
}

impl<'a> Race<'a> {
    /// Asks the one of the others that has the least under way.
    fn join_any(&mut self) {
        let others: Vec<u32> = self.others().collect();
        if let Some(target) = self.ask.choose(&others) {
            self.join(target);
        }
    }

    /// Asks the first of the others; false if there is none.
    fn join_next(&mut self) -> bool {
        let next = self.others().next();
        next.into_iter().for_each(|target| self.join(target));
        next.is_some()
    }

    fn others(&self) -> impl Iterator<Item = u32> + '_ {
        let in_sync = self.group.in_sync().iter().copied();
        in_sync.filter(|target| self.asked.iter().all(|asked| asked.target != *target))
    }

    fn join(&mut self, target: u32) {
        let (ask, epoch) = (self.ask, Epoch(self.group.epoch));
        let under_way = ask.volume.members().begin(target, length(&ask.op));
        let call = async move { (target, ask.send_to_member(target, epoch, under_way).await) };
        self.calls.push(call.boxed());
        self.asked.push(Asked { target, since: Instant::now(), silent: true });
    }

    /// Ready when the one asked last of those that say nothing does so for too long.
    fn silent(&self) -> impl Future<Output = u32> + use<'a> {
        let last = self.asked.iter().rev().find(|asked| asked.silent).copied();
        let (members, bytes) = (self.ask.volume.members(), length(&self.ask.op));
        async move {
            let Some(Asked { target, since, .. }) = last else { return future::pending().await };
            while let Some(left) = members.patience(target, bytes, since) {
                tokio::time::sleep(left).await;
            }
            target
        }
    }

    /// Ready when one is silent for too long and another can be asked.
    fn overdue(&self) -> impl Future<Output = u32> + use<'a> {
        let (silent, can_be) = (self.silent(), self.others().next().is_some());
        async move {
            match can_be {
                true => silent.await,
                false => future::pending().await,
            }
        }
    }

    /// Ready when one is silent for too long and the one that could not answer yet is to be asked again.
    fn again(&self) -> impl Future<Output = u32> + use<'a> {
        let (silent, again) = (self.silent(), self.again);
        async move {
            let Some((target, at)) = again else { return future::pending().await };
            tokio::time::sleep_until(at).await;
            silent.await;
            target
        }
    }

    fn failed(&mut self, target: u32, error: &Error) {
        let (volume, group) = (self.ask.volume, self.ask.group);
        let said = self.asked.iter_mut().filter(|asked| asked.target == target);
        said.for_each(|asked| asked.silent = false);
        match error.kind {
            // A write is under way there: no reason to think less of it.
            ErrorKind::NotCurrent => self.again = Some((target, Instant::now() + AGAIN)),
            // Nor here: as a rule what it is shown is over, and all others say the same.
            ErrorKind::BadCapability => {}
            ErrorKind::Corrupt => {
                volume.metrics().reads_corrupt.increment(1);
                volume.members().shun(target);
                tracing::warn!("target {target} of group {group}: {error}; asking another member");
            }
            _ => {
                volume.members().shun(target);
                tracing::debug!("target {target} of group {group}: {error}; asking another member");
            }
        }
    }
}

impl Ask<'_> {
    fn choose(&self, targets: &[u32]) -> Option<u32> {
        self.volume.members().choose(targets, length(&self.op), spread(&self.op))
    }

    async fn send_to_member(
        &self,
        target: u32,
        epoch: Epoch,
        under_way: UnderWay<'_>,
    ) -> Result<Answer> {
        let request = self.request(TargetId(target), epoch)?;
        let sent = self.volume.target_once(request, self.payload.clone()).await.map_err(as_absent);
        match &sent {
            Ok(_) => under_way.answered(),
            // How soon it says so is no measure of how soon it answers.
            Err(error) if is_refusal(error.kind) => under_way.refused(),
            Err(_) => drop(under_way),
        }
        self.check(sent?)
    }
}

/// Of which members of a group there is no answer, for people: those that are away, whom the primary waits for too, or else that, or
/// one that it waits for.
fn awaited(map: &ClusterMap, group: GroupId) -> String {
    let in_sync = map.group(group).map_or(&[][..], Group::in_sync);
    let is_up = |id: &u32| map.targets.iter().any(|target| target.id == *id && target.up);
    let away: Vec<u32> = in_sync.iter().copied().filter(|id| !is_up(id)).collect();
    let named = |ids: &[u32], word: &str| {
        let names: Vec<String> = ids.iter().map(|&id| route::named(map, id)).collect();
        names.join(word)
    };
    match (&away[..], in_sync) {
        ([], []) => format!("the target of group {group}"),
        ([], [primary]) => format!("{} (group {group})", route::named(map, *primary)),
        ([], [primary, others @ ..]) => {
            let (primary, others) = (route::named(map, *primary), named(others, " or "));
            format!("{primary}, or {others} behind it (group {group})")
        }
        (away, _) => format!("{} (group {group})", named(away, " and ")),
    }
}

/// A member with which no connection can be agreed on, as with one whose certificate has expired, is one that cannot be
/// reached: another may be, or will lead soon.
fn as_absent(error: Error) -> Error {
    match error.kind {
        ErrorKind::WrongPeer => Error { kind: ErrorKind::Unavailable, ..error },
        _ => error,
    }
}

/// True for what a member says that is as good as before.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BadCapability | ErrorKind::NotCurrent)
}

/// True for errors of one member that another need not have.
fn is_worth_another(kind: ErrorKind) -> bool {
    use ErrorKind::{
        BadCapability, Corrupt, Io, NotCurrent, Poisoned, StaleMap, TimedOut, Unavailable,
    };
    matches!(
        kind,
        // By its clock it may be over, and by that of another not.
        BadCapability | Corrupt | Io | NotCurrent | Poisoned | StaleMap | TimedOut | Unavailable
    )
}

/// How much is to be hoped for after an error: waiting for a member that cannot answer now is better than believing another's
/// bad news, and one that lives can answer sooner than one that is away. A capability that one refuses is renewed, unless another
/// has taken it.
fn hope(error: &Error) -> u8 {
    match error.kind {
        ErrorKind::StaleMap => 4,
        ErrorKind::NotCurrent => 3,
        ErrorKind::BadCapability => 2,
        _ => u8::from(error.advice() == Advice::Retry),
    }
}

/// A number by which the chunks of a file spread over members.
fn spread(op: &StorageOp) -> u64 {
    match op {
        StorageOp::Read(read) => mixed(read.chunk.ino ^ mixed(read.chunk.index)),
        StorageOp::Extents(chunk) => mixed(chunk.ino ^ mixed(chunk.index)),
        _ => 0,
    }
}

/// Bytes that an answer may have.
fn length(op: &StorageOp) -> u64 {
    if let StorageOp::Read(read) = op { read.len } else { 0 }
}

#[cfg(test)]
mod tests;
