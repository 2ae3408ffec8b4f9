//! The session: what makes the metadata server remember our open files, locks and mutations.

use crate::ops::{done, unexpected};
use crate::patience::Patience;
use crate::share::Share;
use crate::volume::Volume;
use futures::future::join_all;
use parking_lot::Mutex;
use strake_types::{Credentials, Result};
use strake_wire::attempts::Numbers;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, MetaRequest};

/// Seconds (ticks of the background task) between two renewals.
const RENEW_TICKS: u64 = 5;
/// Closes of one report: they take a megabyte of a message.
const CLOSED_MAX: usize = 100_000;

/// The client's side of its session. Short sections only; nothing here waits.
pub(crate) struct Session {
    state: Mutex<State>,
    /// Held by the one who opens a new session, so that all others wait for that one.
    pub(crate) reopening: tokio::sync::Mutex<()>,
}

struct State {
    /// Its id; 0 before the first.
    id: u64,
    /// Which incarnation of it the server counts our opens in; 0 before the first.
    incarnation: u64,
    /// The incarnation that was begun last: the server counts in it as soon as it has heard of it.
    begun: u64,
    /// Of mutations.
    numbers: Numbers,
    /// Files closed and not yet reported, with repeats.
    closed: Vec<u64>,
    /// The last report, with its number, until it is known to have arrived.
    report: Option<meta::RenewSession>,
    /// Reports so far.
    reports: u64,
}

/// What a request says of its session.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) session: u64,
    pub(crate) incarnation: u64,
    /// Every mutation up to this number is over.
    pub(crate) answered: u64,
}

impl Session {
    pub(crate) fn new() -> Self {
        let numbers = Numbers::default();
        let (closed, report) = (Vec::new(), None);
        let state = State { id: 0, incarnation: 0, begun: 0, numbers, closed, report, reports: 0 };
        Self { state: Mutex::new(state), reopening: tokio::sync::Mutex::new(()) }
    }

    /// Its id now.
    #[cfg(test)]
    pub(crate) fn id(&self) -> u64 {
        self.state.lock().id
    }

    /// True if an open that the server counts in this incarnation, and of which we know, will be counted in
    /// any later one: none has begun yet.
    pub(crate) fn is_newest(&self, incarnation: u64) -> bool {
        self.state.lock().begun == incarnation
    }

    /// The next incarnation begins: whatever is known to be open from now on may be missing in what the
    /// server is told.
    fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.begun += 1;
        state.begun
    }

    /// A new or resumed session takes effect. What was closed in an earlier incarnation is not told any
    /// more: the server was told everything that is open.
    fn set(&self, id: u64, incarnation: u64) {
        let mut state = self.state.lock();
        (state.id, state.incarnation) = (id, incarnation);
        state.closed.clear();
        state.report = None;
    }

    /// A number for a mutation; [`Session::end_mutation`] must follow.
    pub(crate) fn begin_mutation(&self) -> u64 {
        self.state.lock().numbers.begin()
    }

    /// The mutation is over, with whatever result.
    pub(crate) fn end_mutation(&self, seq: u64) {
        self.state.lock().numbers.end(seq);
    }

    /// Id and incarnation, and up to which number every mutation is over.
    pub(crate) fn stamp(&self) -> Stamp {
        let state = self.state.lock();
        let (session, incarnation) = (state.id, state.incarnation);
        Stamp { session, incarnation, answered: state.numbers.oldest() - 1 }
    }

    /// A file to report as closed, so many times, if its opens were counted in the incarnation in force.
    pub(crate) fn add_closed(&self, ino: u64, times: usize, incarnation: u64) {
        let mut state = self.state.lock();
        if state.incarnation == incarnation {
            state.closed.extend(std::iter::repeat_n(ino, times));
        }
    }

    /// What is to be reported as closed, if anything: first what may not have arrived, under the number it had.
    pub(crate) fn report(&self) -> Option<meta::RenewSession> {
        let state = &mut *self.state.lock();
        if state.report.is_none() && !state.closed.is_empty() {
            state.reports += 1;
            let some = state.closed.len().min(CLOSED_MAX);
            let closed = state.closed.drain(..some).collect();
            let (number, incarnation) = (state.reports, state.incarnation);
            state.report = Some(meta::RenewSession { closed, number, incarnation });
        }
        state.report.clone()
    }

    /// True if a close of this file is still to be reported.
    pub(crate) fn owes_close_of(&self, ino: u64) -> bool {
        let state = self.state.lock();
        let report = state.report.iter().flat_map(|report| &report.closed);
        state.closed.iter().chain(report).any(|closed| *closed == ino)
    }

    /// A report has arrived.
    pub(crate) fn reported(&self, number: u64) {
        self.state.lock().report.take_if(|report| report.number == number);
    }
}

impl Volume {
    /// The first session with each share of this volume: with all of them, or with none.
    pub(crate) async fn open_sessions(&self) -> Result<()> {
        let opened = join_all(self.parts().iter().map(|share| self.renew_session(share, 0))).await;
        let opened: Result<()> = opened.into_iter().collect();
        if opened.is_err()
            && let Err(error) = self.close_sessions().await
        {
            tracing::debug!("what was opened of {} ends by itself: {error}", self.name());
        }
        opened
    }

    /// The next incarnation of the session, after one that the server does not know any more; a new session
    /// if it cannot go on with the old one. Those who come while it is being opened wait for it.
    pub(crate) async fn renew_session(&self, share: &Share, outdated: u64) -> Result<()> {
        let own = &share.session;
        let _one = own.reopening.lock().await;
        let Stamp { session: old, incarnation, .. } = own.stamp();
        if incarnation != outdated {
            return Ok(());
        }
        self.end_leases(share);
        let incarnation = own.begin();
        let mut files = self.inodes().files();
        // What is unsent will be sent: until then the file counts as open.
        files.retain(|file| self.home(file.ino()) == share.id && file.core().is_used());
        let open: Vec<u64> = files.iter().map(|file| file.ino().0).collect();
        let writable = files.iter().filter(|file| !file.core().capability[1].is_empty());
        let writable = writable.map(|file| file.ino().0).collect();
        let client = self.options().client_name.clone();
        let mount = self.attempts().client();
        let request = meta::OpenSession { client, resume: old, open, incarnation, writable, mount };
        let mut patience = Patience::new(self);
        let what = || format!("a session for {}", self.called(share.id));
        let session = loop {
            let since = self.map().owned_since(share.id);
            let op = MetaOp::OpenSession(request.clone());
            let error = match self.meta_once(self.session_request(share, (0, 0), op)).await {
                Ok(MetaAnswer::Session(session)) => break session,
                Ok(_) => return Err(unexpected("open session")),
                Err(error) => error,
            };
            patience.heed_owner(what, error, false, (share.id, since)).await?;
        };
        if old != 0 {
            let how =
                if session.resumed { "goes on" } else { "was lost with its locks; a new one" };
            tracing::warn!("session {old} of {} {how}: {}", self.called(share.id), session.session);
        }
        if old != 0 && !session.resumed {
            self.end_lives(share);
        }
        // Whoever waits for the session writes to them as to files of others.
        self.are_shared(&session.shared);
        own.set(session.session, incarnation);
        // The server counts each file once now, however many handles there are.
        for file in &files {
            file.core().register(incarnation);
            self.forget_if_closed(file);
            // Or it was closed, and its state dropped, while the session was opened.
            let closes = file.core().give_up_opens();
            own.add_closed(file.ino().0, closes, incarnation);
        }
        Ok(())
    }

    /// A request of the session itself: in the name of nobody, and not to be remembered.
    pub(crate) fn session_request(
        &self,
        share: &Share,
        (session, incarnation): (u64, u64),
        op: MetaOp,
    ) -> MetaRequest {
        let cred = (&Credentials::root()).into();
        let (volume, leases) = (share.id.0, share.leases.number());
        let (seq, answered, closed, op) = (0, 0, None, Some(op));
        MetaRequest { volume, session, seq, answered, cred, leases, incarnation, closed, op }
    }

    /// Each second: reports closed files of a share, or shows that we are alive when it is time.
    pub(crate) async fn tick_session(&self, share: &Share, ticks: u64) {
        let report = share.session.report().unwrap_or_default();
        if report.closed.is_empty() && !ticks.is_multiple_of(RENEW_TICKS) {
            return;
        }
        let number = report.number;
        let answer =
            self.ask_share(share, &Credentials::root(), MetaOp::RenewSession(report)).await;
        match answer.and_then(|answer| done(&answer, "renew session")) {
            Ok(()) => share.session.reported(number),
            Err(error) => {
                tracing::debug!("cannot renew the session of {}: {error}", self.called(share.id));
            }
        }
    }

    /// Ends the sessions that were opened, each whatever becomes of the others.
    pub(crate) async fn close_sessions(&self) -> Result<()> {
        let close = async |share: &Share| {
            let op = MetaOp::CloseSession(meta::Nothing {});
            done(&self.ask_share(share, &Credentials::root(), op).await?, "close session")
        };
        let opened = self.parts().iter().filter(|share| share.session.stamp().session != 0);
        join_all(opened.map(close)).await.into_iter().collect()
    }
}
