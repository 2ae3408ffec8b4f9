//! Sessions with the fake metadata server: what it forgets when it restarts, and what it loses with its power.

use super::{Fake, FakeState};
use strake_types::Ino;
use strake_wire::message::meta::{self, MetaOp};

/// True for what is answered when all is on disk.
pub(super) fn syncs(op: &MetaOp) -> bool {
    match op {
        MetaOp::Sync(_) => true,
        MetaOp::Publish(publish) => publish.sync,
        MetaOp::WriteInline(write) => write.sync,
        _ => false,
    }
}

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
        let (lease_ms, losses, claims) = (30_000, self.losses, self.claims.is_some());
        meta::Session { session, lease_ms, resumed, shared, losses, claims }
    }

    /// All is on disk, if so.
    pub(super) fn note_synced(&mut self, all: bool) {
        if let Some(synced) = self.synced.as_mut().filter(|_| all) {
            synced.clone_from(&self.files);
        }
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

    /// All that there is now is on disk; what comes is when it is synced.
    pub(crate) fn keep_synced_apart(&self) {
        let state = &mut *self.state.lock();
        state.synced = Some(state.files.clone());
    }

    /// The server restarts after a loss of power: of its files there is what was synced, and it says so.
    pub(crate) fn lose_power(&self) {
        {
            let state = &mut *self.state.lock();
            state.files = state.synced.clone().unwrap_or_default();
            state.losses += 1;
            // As the real server does: they are later than all that was told before.
            state.files.values_mut().for_each(|file| file.attr.version += 1 << 40);
            state.synced = Some(state.files.clone());
        }
        self.restart();
    }

    /// The server goes back to an earlier version of a file without saying so.
    pub(crate) fn go_back(&self, ino: Ino) {
        let mut state = self.state.lock();
        state.files.get_mut(&ino.0).expect("a test names a file that is there").attr.version = 1;
    }
}
