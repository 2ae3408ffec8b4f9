//! What a manager needs to lead where there may be others.

use super::Manager;
use crate::liveness::Liveness;
use crate::state::State;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::Kv;
use strake_types::Result;
use strake_wire::lease::Lease;

/// That one of several managers leads.
pub(crate) struct Lead {
    /// While it holds, no other one does.
    pub lease: Arc<Lease>,
    /// Before, by the manager's clock, the one before may lead still: until then it answers nothing.
    pub from: Duration,
}

impl Manager {
    /// Everybody is to know that the manager of this server leads.
    pub(crate) async fn lead_as(&self, server: u32) -> Result<()> {
        let lead = |state: &mut State, _: &Liveness| {
            state.cluster.leader = server;
            Ok(())
        };
        self.change(lead).await.map(drop)
    }

    /// The store that it leads by.
    pub(crate) fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// True once another manager has opened the store.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.kv.is_taken_over()
    }

    /// True if another manager is up.
    pub(crate) fn has_others(&self) -> bool {
        let (now, inner) = (self.now(), self.inner.lock());
        let mut others =
            inner.state.servers.iter().filter(|(id, _)| **id != inner.state.cluster.leader);
        self.lead.is_some() && others.any(|(&id, other)| other.manager && inner.live.is_up(id, now))
    }

    /// False if another manager may lead, by now or still.
    pub(super) fn may_answer(&self) -> bool {
        let Some(lead) = &self.lead else { return true };
        if self.is_taken_over() || self.options.clock.monotonic() < lead.from {
            return false;
        }
        lead.lease.holds() || self.is_alone()
    }

    /// True if no other manager is stored, nor may be.
    fn is_alone(&self) -> bool {
        let managers = || self.inner.lock().state.servers.values().filter(|s| s.manager).count();
        self.coming.load(Ordering::Acquire) == 0 && managers() < 2
    }
}
