//! What a manager needs to lead where there may be others.

use super::Manager;
use crate::beats::{Beats, Bequest};
use crate::liveness::Liveness;
use crate::state::State;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::Kv;
use strake_types::Result;
use strake_wire::lease::Lease;
use strake_wire::message::manager::Join;

/// That one of several managers leads.
pub(crate) struct Lead {
    /// While it holds, no other one does.
    pub lease: Arc<Lease>,
    /// Before, by the manager's clock, the one before may lead still: until then it answers nothing.
    pub from: Duration,
    /// That of its first beat. A later lead has a greater one.
    pub number: u64,
    /// What the one before may have given.
    pub left: Bequest,
    /// What it gives itself.
    pub beats: Arc<Beats>,
}

/// Longest that the answer to a heartbeat waits for a beat: servers wait little longer for it.
const GRANT_MAX: Duration = Duration::from_secs(1);

impl Manager {
    /// Everybody is to know that the manager of this server leads, and by which store: who asks before the server has joined
    /// must not be told the one that it was in before it was moved.
    pub(crate) async fn lead_as(&self, server: u32, store: &str) -> Result<()> {
        let lead = |state: &mut State, _: &Liveness| {
            state.cluster.leader = server;
            if let Some(own) = state.servers.get_mut(&server) {
                store.clone_into(&mut own.store);
            }
            Ok(())
        };
        self.change(lead).await.map(drop)
    }

    /// The same by a store that others do not reach. Where there never were other managers nobody is said to lead; but from a
    /// store that was shared it may have come with the word that another one does.
    pub(crate) async fn lead_alone(&self, server: u32) -> Result<()> {
        if server == 0 || self.inner.lock().state.cluster.leader == 0 {
            return Ok(());
        }
        self.lead_as(server, "").await
    }

    /// The store that it leads by.
    pub(crate) fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// From now on it can be heard, so that silence counts.
    pub(crate) fn begin_to_hear(&self) {
        let now = self.options.clock.monotonic();
        self.inner.lock().live.begin(now);
        self.beats().iter().for_each(|beats| beats.begin_to_hear(now));
    }

    /// What leases it may give, if another manager may follow.
    pub(crate) fn beats(&self) -> Option<&Arc<Beats>> {
        self.lead.as_ref().map(|lead| &lead.beats)
    }

    /// True unless the manager before it may lead still.
    pub(crate) fn has_begun(&self) -> bool {
        self.lead.as_ref().is_none_or(|lead| self.options.clock.monotonic() >= lead.from)
    }

    /// Number of its lead, while it may answer in it; else 0.
    pub(crate) fn lead_number(&self) -> u64 {
        self.lead.as_ref().filter(|_| self.may_answer()).map_or(0, |lead| lead.number)
    }

    /// A heartbeat is about to be answered, which renews a lease of so many ms (0: a whole one). Returns with what the
    /// answer is to say as `lead` when whoever follows would know of the lease.
    pub(super) async fn grant(&self, server: u32, lease_ms: u64) -> Result<u64> {
        let Some(lead) = &self.lead else { return Ok(0) };
        if lead.left.led.last().is_some_and(|(last, _)| *last == server)
            && self.inner.lock().live.is_new(self.options.clock.monotonic())
        {
            lead.beats.note_stall();
        }
        if server == self.inner.lock().state.cluster.leader {
            return Ok(lead.number);
        }
        // Nobody follows one that is alone. So it allows the longest, as long as it can say so.
        let asked_ms = if self.is_alone() { 0 } else { lease_ms };
        lead.beats.lend(server, asked_ms, GRANT_MAX).await?;
        Ok(0)
    }

    /// True once another manager has opened the store.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.kv.is_taken_over()
    }

    /// The own server, where it may be the one that asks to join. Others that this manager has not heard yet may be alive for a
    /// lease; but where no other one leads, its own server is alive nowhere else when it starts in the same process. That one comes
    /// with the role of the manager, as no copy of it does that asks here, and perhaps without its number, if it died before it wrote
    /// that down.
    pub(super) fn own_that_starts(&self, state: &State, request: &Join) -> Option<u32> {
        let may_be_own = self.lead.is_none() && request.manager;
        let may_be = |id: u32, said: u32| said == 0 || said == id;
        let mut managers = state.servers.iter().filter(|(_, server)| server.manager);
        let own = managers.find(|(id, _)| {
            may_be_own && may_be(**id, request.server) && may_be(**id, state.cluster.leader)
        });
        own.map(|(&id, _)| id)
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
        if self.is_taken_over() || !self.has_begun() {
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
