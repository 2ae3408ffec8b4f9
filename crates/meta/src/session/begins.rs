//! Sessions that are begun: each once, however often that is asked for.
//!
//! A client numbers its incarnations, so a request that comes again is known by client and number. One whose answer no copy
//! has brought leaves a session of which its client never hears: the next that it begins ends that.

use super::{Session, Sessions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_types::{Error, ErrorKind, Result};

impl Session {
    /// Its client has begun it in this incarnation.
    pub fn begun_in(mut self, incarnation: u64) -> Self {
        self.begun_in = incarnation;
        self
    }

    /// True unless it is known to be that of another client.
    pub fn may_be_of(&self, mount: u64) -> bool {
        let own = self.mount();
        own == 0 || mount == 0 || own == mount
    }

    /// Something is asked for in it: its client has heard of it.
    pub fn note_use(&self) {
        // With each request: mostly it is only looked at.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// True if it goes on, and a client has begun it in this incarnation that has said both.
    fn was_begun(&self, mount: u64, incarnation: u64) -> bool {
        let said = mount != 0 && incarnation != 0;
        said && (self.mount(), self.begun_in) == (mount, incarnation) && self.check().is_ok()
    }
}

impl Sessions {
    /// The session that a client has begun in this incarnation. Fails if it has begun or gone on with one in a later: nobody
    /// waits for the answer to this any more.
    pub fn begun(&self, mount: u64, incarnation: u64) -> Result<Option<Arc<Session>>> {
        let all = self.all.read();
        if let Some(session) = all.values().find(|one| one.was_begun(mount, incarnation)) {
            return Ok(Some(session.clone()));
        }
        let own = all.values().filter(|one| mount != 0 && one.mount() == mount);
        let mut living = own.filter(|one| one.check().is_ok());
        match living.any(|one| incarnation != 0 && one.opens.lock().incarnation > incarnation) {
            true => Err(Error::with(ErrorKind::Conflict, "the client has begun a later session")),
            false => Ok(None),
        }
    }

    /// Enters a session that is begun: it, or the one of the same client and incarnation that there is by now.
    pub fn enter(&self, session: Arc<Session>) -> Arc<Session> {
        let mut all = self.all.write();
        let (mount, incarnation) = (session.mount(), session.begun_in);
        let there = all.values().find(|one| one.was_begun(mount, incarnation)).cloned();
        there.unwrap_or_else(|| {
            all.insert(session.id, session.clone());
            session
        })
    }

    /// Sessions that a client has begun before this one and never heard of: nothing was asked for in them.
    pub fn unheard_before(&self, session: &Session) -> Vec<Arc<Session>> {
        let (mount, begun_in) = (session.mount(), session.begun_in);
        let unheard = |one: &&Arc<Session>| {
            let before = one.begun_in != 0 && one.begun_in < begun_in;
            let own = mount != 0 && one.mount() == mount && one.check().is_ok();
            own && before && !one.used.load(Ordering::Relaxed)
        };
        self.all.read().values().filter(unheard).cloned().collect()
    }
}
