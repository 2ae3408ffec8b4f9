//! What the fake metadata server forgets when it restarts, and what it loses with its power.

use super::Fake;
use strake_types::Ino;

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
