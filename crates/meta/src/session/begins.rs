//! Sessions that are begun: each once, however often that is asked for.
//!
//! A client numbers its incarnations, so a request that comes again is known by client and number. One whose answer no copy
//! has brought leaves a session of which its client never hears: the next that it begins ends that.

use super::{Session, Sessions};
use std::collections::HashMap;
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

    /// In which incarnation its client has begun it, or gone on with it last.
    fn last_incarnation(&self) -> u64 {
        self.begun_in.max(self.opens.lock().incarnation)
    }

    /// False for a request of an incarnation before the last one: nobody waits for the answer any more.
    pub fn may_go_on_in(&self, incarnation: u64) -> bool {
        incarnation == 0 || incarnation >= self.last_incarnation()
    }

    /// True if it goes on, and a client has begun it in this incarnation that has said both.
    fn was_begun(&self, mount: u64, incarnation: u64) -> bool {
        let said = mount != 0 && incarnation != 0;
        said && (self.mount(), self.begun_in) == (mount, incarnation) && self.check().is_ok()
    }
}

/// As [`Sessions::begun`], of all that there are.
fn begun_among(
    all: &HashMap<u64, Arc<Session>>,
    mount: u64,
    incarnation: u64,
) -> Result<Option<Arc<Session>>> {
    if let Some(session) = all.values().find(|one| one.was_begun(mount, incarnation)) {
        return Ok(Some(session.clone()));
    }
    let own = all.values().filter(|one| mount != 0 && one.mount() == mount);
    match own.filter(|one| one.check().is_ok()).all(|one| one.may_go_on_in(incarnation)) {
        true => Ok(None),
        false => Err(Error::with(ErrorKind::Conflict, "the client has begun a later session")),
    }
}

impl Sessions {
    /// The session that a client has begun in this incarnation. Fails if it has begun or gone on with one in a later: nobody
    /// waits for the answer to this any more.
    pub fn begun(&self, mount: u64, incarnation: u64) -> Result<Option<Arc<Session>>> {
        begun_among(&self.all.read(), mount, incarnation)
    }

    /// Enters a session that is begun: it, or the one that there is by now, as [`Sessions::begun`] has it. Fails as that does: a
    /// later one may have been begun while this was stored.
    pub fn enter(&self, session: Arc<Session>) -> Result<Arc<Session>> {
        let mut all = self.all.write();
        if let Some(there) = begun_among(&all, session.mount(), session.begun_in)? {
            return Ok(there);
        }
        all.insert(session.id, session.clone());
        Ok(session)
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
