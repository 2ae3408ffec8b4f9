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
}

impl Session {
    pub(crate) fn new() -> Self {
        let state = State { id: 0, numbers: Numbers::default(), closed: Vec::new() };
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

    /// Takes what is to be reported as closed.
    pub(crate) fn take_closed(&self) -> Vec<u64> {
        std::mem::take(&mut self.state.lock().closed)
    }

    /// A report did not arrive: keep it for the next.
    pub(crate) fn put_back_closed(&self, mut closed: Vec<u64>) {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.closed, &mut closed);
        state.closed.append(&mut closed);
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
        let mut files = self.inodes().files();
        files.retain(|file| file.core().handles > 0);
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
        files.iter().for_each(|file| file.core().registered = 1);
        if old != 0 {
            let how =
                if session.resumed { "goes on" } else { "was lost with its locks; a new one" };
            tracing::warn!("session {old} of volume {} {how}: {}", self.name(), session.session);
        }
        self.session().set(session.session);
        Ok(())
    }

    fn session_request(&self, session: u64, op: MetaOp) -> MetaRequest {
        let cred = (&Credentials::root()).into();
        MetaRequest { volume: self.id().0, session, seq: 0, answered: 0, cred, op: Some(op) }
    }

    /// Each second: reports closed files, or shows that we are alive when it is time.
    pub(crate) async fn tick_session(&self, ticks: u64) {
        let closed = self.session().take_closed();
        if closed.is_empty() && !ticks.is_multiple_of(RENEW_TICKS) {
            return;
        }
        if let Err(error) = self.report_closed(closed).await {
            tracing::debug!("cannot renew the session of volume {}: {error}", self.name());
        }
    }

    async fn report_closed(&self, closed: Vec<u64>) -> Result<()> {
        let op = MetaOp::RenewSession(meta::RenewSession { closed: closed.clone() });
        let result = self.ask(&Credentials::root(), op).await;
        match result {
            Ok(answer) => done(&answer, "renew session"),
            Err(error) => {
                self.session().put_back_closed(closed);
                Err(error)
            }
        }
    }

    pub(crate) async fn close_session(&self) -> Result<()> {
        let op = MetaOp::CloseSession(meta::Nothing {});
        done(&self.ask(&Credentials::root(), op).await?, "close session")
    }
}
