//! Sessions with the fake metadata server: what it forgets when it restarts, and what it loses with its power.

use super::{Fake, FakeState};
use strake_types::Ino;
use strake_wire::message::meta;

impl FakeState {
    pub(super) fn open_session(&mut self, open: meta::OpenSession) -> meta::Session {
        let resumed = self.sessions.contains_key(&open.resume);
        self.session += u64::from(!resumed);
        let session = if resumed { open.resume } else { self.session };
        self.sessions.insert(session, open.incarnation);
        for file in self.files.values_mut() {
            file.opens = i64::from(open.open.contains(&file.attr.ino));
        }
        let shared = open.writable.into_iter().filter(|_| self.shared).collect();
        let (lease_ms, claims) = (30_000, self.claims.is_some());
        let (with_writes, behind) = (self.with_writes, self.behind.on);
        meta::Session { session, lease_ms, resumed, shared, claims, with_writes, behind }
    }
}

impl Fake {
    /// The server restarts without its sessions.
    pub(crate) fn forget_session(&self) {
        self.state.lock().sessions.clear();
    }

    /// The server restarts, and asks who goes on with a session what it has open.
    pub(crate) fn restart(&self) {
        let state = &mut *self.state.lock();
        state.sessions.values_mut().for_each(|incarnation| *incarnation = 0);
        state.reports.clear();
    }

    /// The server restarts after a loss of power: nothing of this file was on disk.
    pub(crate) fn restart_without(&self, ino: Ino) {
        self.state.lock().files.remove(&ino.0);
        self.restart();
    }
}
