//! Whose heartbeats are refused of those that are heard and unreached.
//!
//! That the manager does not arrive at a server does not say that others do not. So it refuses one only where that helps, and
//! costs no group its last copy: the server is in sync in groups of several copies, and each of them has another one in sync that
//! goes on and is reached. Of others it only says that they are unreached. When the lease that one got last that is refused is over
//! it is *cut*, which is to be gone as who is silent. It stays refused until it is reached, or is needed after all.

use super::looks::Looked;
use super::{Liveness, Pause};
use crate::groups::Life;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Liveness {
    /// Decides who is refused from now on.
    pub fn decide_refused(&mut self, state: &State, now: Duration) {
        let refused = self.to_refuse(state, now);
        for ended in self.looks.refused.difference(&refused).copied().collect::<Vec<_>>() {
            self.end_refusal(ended, now);
        }
        self.looks.refused = refused;
    }

    /// One that is refused, if it is, is heard again, and not refused again at once.
    pub(super) fn end_refusal(&mut self, server: u32, now: Duration) {
        if self.looks.refused.remove(&server)
            && let Some(looked) = self.looks.servers.get_mut(&server)
        {
            looked.pause = Some(Pause::after(looked.pause.as_ref(), now));
        }
    }

    /// Looks at groups only where somebody may be refused.
    fn to_refuse(&self, state: &State, now: Duration) -> BTreeSet<u32> {
        let unreached = self.heard_where(|looked| looked.unreached, now);
        if unreached.is_empty() {
            return unreached;
        }
        let doubtful = self.heard_where(Looked::is_doubtful, now);
        let heard = self.servers.keys().filter(|id| self.is_heard(**id, now)).count();
        // Else the manager suspects its own network.
        let are_few = |missed: &BTreeSet<u32>| 2 * missed.len() < heard;
        let is_paused = |id: &u32| {
            let pause = self.looks.servers.get(id).and_then(|looked| looked.pause.as_ref());
            pause.is_some_and(|pause| pause.lasts(now))
        };
        let (mut refused, others): (BTreeSet<u32>, BTreeSet<u32>) =
            unreached.iter().partition(|id| self.looks.refused.contains(id));
        if !are_few(&unreached) {
            refused.clear();
        } else if !refused.is_empty() {
            let still = self.replaceable(state, &unreached, now);
            refused.retain(|id| still.get(id) != Some(&false));
        }
        if !others.is_empty() && are_few(&doubtful) {
            let at_first = self.replaceable(state, &doubtful, now);
            let begins = |id: &u32| at_first.get(id) == Some(&true) && !is_paused(id);
            refused.extend(others.into_iter().filter(begins));
        }
        refused
    }

    /// Servers that are heard and of which looks have shown that.
    fn heard_where(&self, is: impl Fn(&Looked) -> bool, now: Duration) -> BTreeSet<u32> {
        let looked = self.looks.servers.iter().filter(|(_, looked)| is(looked));
        looked.map(|(&id, _)| id).filter(|id| self.is_heard(*id, now)).collect()
    }

    /// Those of the missed servers that are in sync in groups of several copies: whether in each of these another one goes on.
    fn replaceable(
        &self,
        state: &State,
        missed: &BTreeSet<u32>,
        now: Duration,
    ) -> BTreeMap<u32, bool> {
        let mut found = BTreeMap::new();
        for group in state.groups.values().filter(|group| group.members.len() > 1) {
            let server = |target: &u32| state.server_of(*target);
            let is_other = |id: &u32| !missed.contains(id);
            let goes_on = |target: &u32| {
                server(target).filter(is_other).is_some_and(|id| self.goes_on(*target, id, now))
            };
            let servers = group.in_sync.iter().filter_map(server);
            for id in servers.filter(|id| missed.contains(id)) {
                *found.entry(id).or_insert(true) &= group.in_sync.iter().any(goes_on);
            }
        }
        found
    }

    /// True if a target can go on with a group without another one: its server serves, and nothing is known against it.
    fn goes_on(&self, target: u32, server: u32, now: Duration) -> bool {
        let lives = self.life_in_groups(target, server, now) != Life::Gone;
        lives && self.has_beaten(server) && !self.is_silent(target)
    }

    /// A heartbeat has come. If its server is refused it counts for nothing; answers why that one is.
    pub fn refuse(&mut self, server: u32, now: Duration) -> Option<String> {
        let refused = &self.looks.refused;
        let looked = self.looks.servers.get_mut(&server).filter(|_| refused.contains(&server))?;
        looked.refused_at = Some(now);
        Some(looked.why.clone())
    }

    /// True for one that is refused, and was given up for that.
    pub(super) fn is_cut(&self, server: u32) -> bool {
        let given_up = self.servers.get(&server).is_some_and(|heard| heard.given_up);
        given_up && self.looks.refused.contains(&server)
    }

    /// Gives those up that are refused, when their leases are over.
    pub fn cut_refused(&mut self, now: Duration) {
        for server in self.looks.refused.clone() {
            if self.let_go(server, now) {
                strake_base::count_case("heard-and-unreached");
                tracing::warn!(server, "it is heard, and cannot be reached: it counts as silent");
            }
        }
    }
}
