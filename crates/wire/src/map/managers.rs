//! Questions to the manager that leads, whichever that is.
//!
//! A cluster may have several managers, of which one leads. The map says which; one that does not lead says so,
//! too, and who does. Whoever does not answer soon is not waited for before the next is asked: one leads at most, and
//! the others say at once that they do not. They are asked again until one of them does.

use super::{ManagerSource, MapView};
use crate::message::manager::{
    Leader, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, Server,
};
use crate::service::ManagerService;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use tokio::time::Instant;

/// How long a manager is waited for before the next one is asked, too, in milliseconds.
const PATIENCE_MS: u64 = 300;
/// How long nobody may lead: another manager takes the lead of one that is gone in less than that.
const LEADERLESS_MS_MAX: u64 = 4_000;
/// Between two questions to one that does not lead.
const SEARCH_MS: u64 = 100;

/// A manager that may lead.
struct Candidate {
    /// Its address; empty: it is called directly.
    address: String,
    service: Arc<dyn ManagerService>,
    state: Asked,
    /// Why it will not do what was asked, however often it is asked.
    refuses: Option<Error>,
    /// It has said that it does not lead, and why the metadata store is of no use to it (empty: it is of use).
    cut_off: Option<String>,
}

impl Candidate {
    fn new(address: &str, service: Arc<dyn ManagerService>) -> Self {
        let (address, state) = (address.to_owned(), Asked::NotYet);
        Self { address, service, state, refuses: None, cut_off: None }
    }
}

/// What is known of it since the search began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    NotYet,
    UnderWay,
    /// It did not lead then, or could not be reached.
    InVain(Instant),
}

/// All candidates of one question.
struct Search {
    candidates: Vec<Candidate>,
    end: Instant,
    /// One of them has said that it does not lead, and who does.
    follows: Option<Leader>,
    /// Why one of them could not be asked: what may pass, if anything of that kind was said.
    away: Option<Error>,
}

impl Search {
    /// The next one to ask, first those that were not asked yet; `None`: not now.
    fn next(&self, now: Instant) -> Option<usize> {
        let has = |wanted: fn(Asked, Instant) -> bool| {
            self.candidates.iter().position(|candidate| wanted(candidate.state, now))
        };
        let again = |state, now| match state {
            Asked::InVain(at) => now >= at + Duration::from_millis(SEARCH_MS),
            Asked::NotYet | Asked::UnderWay => false,
        };
        let fresh = has(|state, _| state == Asked::NotYet);
        // Of a single one it is said at once that it is away.
        fresh.or_else(|| has(again).filter(|_| self.follows.is_some()))
    }

    /// Why the one that leads refuses, by the word of another.
    fn refusal(&mut self) -> Option<Error> {
        let address = &self.follows.as_ref()?.address;
        self.candidates.iter_mut().find(|c| c.address == *address)?.refuses.take()
    }

    /// One of them does not answer what was asked.
    fn note_error(&mut self, nth: usize, error: Error) {
        let lasts = is_lasting(&error);
        self.candidates[nth].refuses = lasts.then(|| error.clone());
        // Whichever is asked last: where one may be back soon, that is worth waiting for.
        if !lasts || self.away.as_ref().is_none_or(is_lasting) {
            self.away = Some(error);
        }
    }

    fn is_asked(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.state == Asked::UnderWay)
    }

    /// Why nobody has answered.
    fn failure(&self) -> Error {
        let Some(Leader { server, address, .. }) = &self.follows else { return self.why_away() };
        let mut heard = self.candidates.iter().filter(|one| one.cut_off.is_some());
        let is_away = *server != 0 && heard.clone().all(|one| one.address != *address);
        let cut_off = heard.find_map(|one| one.cut_off.as_ref().filter(|why| !why.is_empty()));
        let mut detail = match is_away {
            true => format!("the manager that leads (server {server}, {address}) is away"),
            false => "no manager leads the cluster now".to_owned(),
        };
        if let Some(why) = cut_off {
            detail += if is_away { ", and another says: " } else { ": " };
            detail += why;
        }
        Error::with(ErrorKind::Unavailable, detail)
    }

    /// Why nobody could be asked: with what may pass also what does not.
    fn why_away(&self) -> Error {
        let Some(away) = &self.away else {
            return Error::with(ErrorKind::Unavailable, "no manager address is known");
        };
        if is_lasting(away) {
            return away.clone();
        }
        let refusals = self.candidates.iter().filter_map(|candidate| candidate.refuses.as_ref());
        let said = [away].into_iter().chain(refusals).map(|error| &*error.detail);
        let said: Vec<&str> = said.filter(|detail| !detail.is_empty()).collect();
        Error::with(away.kind, said.join("; "))
    }
}

/// True if another manager may know better.
fn asks_others(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Malformed, NoManager, TimedOut, Unavailable, WrongPeer};
    matches!(error.kind, Unavailable | TimedOut | WrongPeer | NoManager | Malformed | Corrupt)
}

/// True for what the same manager would say again.
fn is_lasting(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
}

/// True for what may be carried out twice, should the answer be lost and another manager lead by then.
fn is_repeatable(op: &ManagerOp) -> bool {
    use ManagerOp::{CreateVolume, DeleteVolume, Plan, SetVolume, SteerJob};
    !matches!(op, CreateVolume(_) | SetVolume(_) | DeleteVolume(_) | Plan(_) | SteerJob(_))
}

impl MapView {
    /// Asks the manager that leads. Where nobody does for the moment, it is waited for.
    pub async fn ask_manager(&self, op: ManagerOp) -> Result<ManagerReply> {
        if is_repeatable(&op) {
            return self.search(op).await.map(|(reply, _)| reply);
        }
        let (_, leader) = self.search(ManagerOp::GetMap(self.question())).await?;
        let reply = leader.call(ManagerRequest { op: Some(op) }).await?;
        match reply.answer {
            Some(ManagerAnswer::Leader(_)) => {
                let detail = "the manager that led does so no more; nothing was done, try again";
                Err(Error::with(ErrorKind::Unavailable, detail))
            }
            _ => Ok(reply),
        }
    }

    /// As [`MapView::ask_manager`], for what is in the answer to `what`.
    pub(super) async fn ask<T>(
        &self,
        what: &str,
        op: ManagerOp,
        take: impl Fn(ManagerAnswer) -> Option<T>,
    ) -> Result<T> {
        let answer = self.ask_manager(op).await?.answer;
        let other = || {
            let detail = format!("a manager's answer to {what}");
            Error::with(ErrorKind::Malformed, detail)
        };
        answer.and_then(take).ok_or_else(other)
    }

    /// Managers in the order in which to ask them: first the one that leads, then those that are known to be up.
    fn candidates(&self) -> Vec<Candidate> {
        let map = self.current();
        let mut known: Vec<&Server> = map.servers.iter().filter(|s| s.manager).collect();
        known.sort_by_key(|s| (s.id != map.leader, !s.up));
        let of_map = |server: &&Server| self.candidate(server);
        match &self.source {
            ManagerSource::Local(manager) => {
                // Where nobody is said to lead there is but one.
                let others = known.iter().filter(|_| map.leader != 0).map(of_map);
                others.chain([Candidate::new("", manager.clone())]).collect()
            }
            ManagerSource::Addresses(addresses) => {
                let given = addresses.iter().filter(|&a| !known.iter().any(|s| s.address == *a));
                let given = given.map(|a| Candidate::new(a, self.callers.manager_at(a)));
                known.iter().map(of_map).chain(given).collect()
            }
            ManagerSource::Fixed(_) => known.iter().map(of_map).collect(),
        }
    }

    fn candidate(&self, server: &Server) -> Candidate {
        Candidate::new(&server.address, self.callers.manager(server))
    }

    /// The answer of the manager that leads, and that manager.
    async fn search(&self, op: ManagerOp) -> Result<(ManagerReply, Arc<dyn ManagerService>)> {
        let request = ManagerRequest { op: Some(op) };
        let mut search = Search {
            candidates: self.candidates(),
            end: Instant::now() + Duration::from_millis(LEADERLESS_MS_MAX),
            follows: None,
            away: None,
        };
        let mut under_way = FuturesUnordered::new();
        loop {
            let now = Instant::now();
            if search.follows.is_some() && now >= search.end {
                return Err(search.failure());
            }
            match search.next(now) {
                Some(nth) => {
                    search.candidates[nth].state = Asked::UnderWay;
                    let service = search.candidates[nth].service.clone();
                    under_way.push(call(nth, service, request.clone()));
                }
                None if search.follows.is_none() && !search.is_asked() => {
                    return Err(search.failure());
                }
                None => {}
            }
            let patience = match search.follows {
                Some(_) => SEARCH_MS,
                None => PATIENCE_MS,
            };
            let (nth, answer) = tokio::select! {
                biased;
                Some(answer) = under_way.next() => answer,
                () = tokio::time::sleep(Duration::from_millis(patience)) => continue,
            };
            search.candidates[nth].state = Asked::InVain(Instant::now());
            match answer {
                Ok(ManagerReply { answer: Some(ManagerAnswer::Leader(mut leader)), .. }) => {
                    search.candidates[nth].cut_off = Some(std::mem::take(&mut leader.cut_off));
                    let known = search.candidates.iter().any(|c| c.address == leader.address);
                    if leader.server != 0 && !known {
                        let (id, address) = (leader.server, leader.address.clone());
                        let server = Server { id, address, manager: true, ..Server::default() };
                        search.candidates.push(self.candidate(&server));
                    }
                    // One that knows of nobody does not make forgotten whom another has named.
                    if leader.server != 0 || search.follows.is_none() {
                        search.follows = Some(leader);
                    }
                }
                Ok(reply) => return Ok((reply, search.candidates[nth].service.clone())),
                Err(error) if asks_others(&error) => search.note_error(nth, error),
                Err(error) => return Err(error),
            }
            if let Some(refusal) = search.refusal() {
                return Err(refusal);
            }
        }
    }
}

async fn call(
    nth: usize,
    manager: Arc<dyn ManagerService>,
    request: ManagerRequest,
) -> (usize, Result<ManagerReply>) {
    (nth, manager.call(request).await)
}
