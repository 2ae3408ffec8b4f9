//! Which of several processes speaks for a server: its next life, or a copy of it, may have joined since.

use super::Manager;
use crate::join;
use strake_types::Result;
use strake_wire::message::manager::{Heartbeat, Leave, ManagerAnswer};

impl Manager {
    /// Refuses what a process says whose number another one has joined under since, whoever led then. It counts as silent, and is to
    /// end. Two that run are at two addresses. Their lives would say less: a Join of an earlier one may come late, and this manager's
    /// data may be older than the life that runs. An address that is not known says nothing: another server may have taken it.
    pub(super) fn refuse_overtaken(&self, beat: &Heartbeat) -> Result<()> {
        let inner = self.inner.lock();
        let known = inner.state.servers.get(&beat.server).map_or("", |server| &server.address);
        match known != beat.address && !known.is_empty() && !beat.address.is_empty() {
            true => Err(join::overtaken(beat.server, known)),
            false => Ok(()),
        }
    }

    /// A server leaves in good order.
    pub(super) async fn leave(&self, leave: Leave) -> Result<ManagerAnswer> {
        self.note_leave(leave);
        self.tick().await?;
        Ok(self.epoch())
    }

    /// Notes that, unless it has joined in another life since: what it has now may run. The record says in which, whoever led then.
    fn note_leave(&self, leave: Leave) {
        let now = self.now();
        let mut inner = self.inner.lock();
        let life = inner.state.servers.get(&leave.server).map_or(0, |server| server.life);
        if leave.life != life && leave.life != 0 && life != 0 {
            tracing::info!(
                server = leave.server,
                "a good-bye of another process of this server is ignored"
            );
            return;
        }
        inner.live.leave(leave.server, now);
        inner.show_anew();
    }
}
