//! The session: what makes the metadata server remember our open files, locks and mutations.

use crate::ops::{done, unexpected};
use crate::route::Patience;
use crate::volume::Volume;
use parking_lot::Mutex;
use strake_types::{Credentials, Result};
use strake_wire::attempts::Numbers;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, MetaRequest};

/// Seconds (ticks of the background task) between two renewals.
const RENEW_TICKS: u64 = 5;

/// The client's side of its session. Short sections only; nothing here waits.
pub(crate) struct Session {
    state: Mutex<State>,
    /// Held by the one who opens a new session, so that all others wait for that one.
    pub(crate) reopening: tokio::sync::Mutex<()>,
}

struct State {
    /// Its id; 0 before the first.
    id: u64,
    /// Of mutations.
    numbers: Numbers,
    /// Files closed and not yet reported, with repeats.
    closed: Vec<u64>,
    /// The last report, with its number, until it is known to have arrived.
    report: Option<meta::RenewSession>,
    /// Reports so far.
    reports: u64,
}

impl Session {
    pub(crate) fn new() -> Self {
        let numbers = Numbers::default();
        let state = State { id: 0, numbers, closed: Vec::new(), report: None, reports: 0 };
        Self { state: Mutex::new(state), reopening: tokio::sync::Mutex::new(()) }
    }

    /// Its id now.
    pub(crate) fn id(&self) -> u64 {
        self.state.lock().id
    }

    /// A new or resumed session takes effect.
    pub(crate) fn set(&self, id: u64) {
        self.state.lock().id = id;
    }

    /// A number for a mutation; [`Session::end_mutation`] must follow.
    pub(crate) fn begin_mutation(&self) -> u64 {
        self.state.lock().numbers.begin()
    }

    /// The mutation is over, with whatever result.
    pub(crate) fn end_mutation(&self, seq: u64) {
        self.state.lock().numbers.end(seq);
    }

    /// The id, and up to which number every mutation is over.
    pub(crate) fn stamp(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.id, state.numbers.oldest() - 1)
    }

    /// Files to report as closed.
    pub(crate) fn add_closed(&self, ino: u64, times: usize) {
        let mut state = self.state.lock();
        state.closed.extend(std::iter::repeat_n(ino, times));
    }

    /// What is to be reported as closed: first what may not have arrived, under the number it had.
    fn report(&self) -> meta::RenewSession {
        let state = &mut *self.state.lock();
        if state.report.is_none() && !state.closed.is_empty() {
            state.reports += 1;
            let closed = std::mem::take(&mut state.closed);
            state.report = Some(meta::RenewSession { closed, number: state.reports });
        }
        state.report.clone().unwrap_or_default()
    }

    /// A report has arrived.
    fn reported(&self, number: u64) {
        self.state.lock().report.take_if(|report| report.number == number);
    }

    /// The server is about to be told everything that is open: what was closed before is not told.
    fn forget_closed(&self) {
        let mut state = self.state.lock();
        state.closed.clear();
        state.report = None;
    }
}

impl Volume {
    /// The first session of this volume.
    pub(crate) async fn open_session(&self) -> Result<()> {
        self.renew_session(0).await
    }

    /// A new session in place of one that the server does not know any more; goes on with the old
    /// one if that is possible. Those who come while one is being opened wait for it.
    pub(crate) async fn renew_session(&self, old: u64) -> Result<()> {
        let _one = self.session().reopening.lock().await;
        if self.session().id() != old {
            return Ok(());
        }
        self.end_leases();
        self.session().forget_closed();
        let mut files = self.inodes().files();
        // What is unsent will be sent: until then the file counts as open.
        files.retain(|file| file.core().is_used());
        let open: Vec<u64> = files.iter().map(|file| file.ino().0).collect();
        let request =
            meta::OpenSession { client: self.options().client_name.clone(), resume: old, open };
        let mut patience = Patience::new(self);
        let what = || format!("a session for volume {}", self.name());
        let session = loop {
            let op = MetaOp::OpenSession(request.clone());
            let error = match self.meta_once(self.session_request(0, op)).await {
                Ok(MetaAnswer::Session(session)) => break session,
                Ok(_) => return Err(unexpected("open session")),
                Err(error) => error,
            };
            patience.heed(what, error, false).await?;
        };
        // The server counts each file once now, however many handles there are.
        for file in &files {
            file.core().registered = 1;
            self.forget_if_closed(file);
        }
        if old != 0 {
            let how =
                if session.resumed { "goes on" } else { "was lost with its locks; a new one" };
            tracing::warn!("session {old} of volume {} {how}: {}", self.name(), session.session);
        }
        self.session().set(session.session);
        Ok(())
    }

    pub(crate) fn session_request(&self, session: u64, op: MetaOp) -> MetaRequest {
        let cred = (&Credentials::root()).into();
        let (volume, leases) = (self.id().0, self.leases().number());
        MetaRequest { volume, session, seq: 0, answered: 0, cred, leases, op: Some(op) }
    }

    /// Each second: reports closed files, or shows that we are alive when it is time.
    pub(crate) async fn tick_session(&self, ticks: u64) {
        let report = self.session().report();
        if report.closed.is_empty() && !ticks.is_multiple_of(RENEW_TICKS) {
            return;
        }
        let number = report.number;
        let answer = self.ask(&Credentials::root(), MetaOp::RenewSession(report)).await;
        match answer.and_then(|answer| done(&answer, "renew session")) {
            Ok(()) => self.session().reported(number),
            Err(error) => {
                tracing::debug!("cannot renew the session of volume {}: {error}", self.name());
            }
        }
    }

    pub(crate) async fn close_session(&self) -> Result<()> {
        let op = MetaOp::CloseSession(meta::Nothing {});
        done(&self.ask(&Credentials::root(), op).await?, "close session")
    }
}
