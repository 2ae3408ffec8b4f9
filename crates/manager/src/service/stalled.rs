//! Members that others wait for, and that say nothing: they go as soon as their leases are over.

use super::{Inner, Manager};
use std::collections::BTreeSet;
use std::time::Duration;
use strake_types::Result;
use strake_wire::message::manager::{ManagerAnswer, Stalled};

impl Manager {
    /// Somebody waits at a member of a group: takes out those of the others that answer nobody any more.
    pub(super) async fn stalled(&self, said: Stalled) -> Result<ManagerAnswer> {
        if self.give_up_silent(&said, self.now()) {
            self.tick().await?;
        }
        Ok(self.epoch())
    }

    /// True if there are such.
    fn give_up_silent(&self, said: &Stalled, now: Duration) -> bool {
        let mut inner = self.inner.lock();
        let Inner { state, live } = &mut *inner;
        let server_of = |target: &u32| state.targets.get(target).map(|target| target.server);
        let group = state.groups.get(&said.group).filter(|group| group.epoch == said.epoch);
        let by = server_of(&said.target).filter(|by| live.has_spoken(*by, now));
        let (Some(group), Some(by)) = (group, by) else { return false };
        if !group.in_sync.contains(&said.target) {
            return false;
        }
        let members: BTreeSet<u32> = group.in_sync.iter().filter_map(server_of).collect();
        let others = members.into_iter().filter(|server| *server != by);
        others.filter(|server| live.stalls(*server, by, now)).count() > 0
    }
}
