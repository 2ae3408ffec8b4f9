//! Who is heard from, and what targets said of themselves last. Never stored.

use std::collections::{HashMap, HashSet};
use std::time::Duration;
use strake_wire::message::manager::TargetSpec;

/// What is known of a server since this manager started.
#[derive(Clone)]
struct Heard {
    at: Duration,
    /// It joined or sent a heartbeat; otherwise `at` is when the manager started.
    spoke: bool,
    /// It said that it leaves.
    left: bool,
}

/// Who is heard from. Times are those of a monotonic clock.
pub(crate) struct Liveness {
    lease: Duration,
    servers: HashMap<u32, Heard>,
    targets: HashMap<u32, TargetSpec>,
    /// Servers up when somebody looked last: a difference is a new epoch of the map.
    shown_up: HashSet<u32>,
}

impl Liveness {
    /// At the start nobody has spoken, and everybody known has one lease of time to do so.
    pub fn new(lease: Duration, now: Duration, servers: impl Iterator<Item = u32>) -> Self {
        let heard = Heard { at: now, spoke: false, left: false };
        let servers: HashMap<_, _> = servers.map(|id| (id, heard.clone())).collect();
        let shown_up = servers.keys().copied().collect();
        Self { lease, servers, targets: HashMap::new(), shown_up }
    }

    /// A server speaks, with its targets.
    pub fn hear(&mut self, server: u32, now: Duration, targets: impl Iterator<Item = TargetSpec>) {
        self.servers.insert(server, Heard { at: now, spoke: true, left: false });
        self.targets.extend(targets.map(|spec| (spec.target, spec)));
    }

    /// A server leaves in good order.
    pub fn leave(&mut self, server: u32) {
        if let Some(heard) = self.servers.get_mut(&server) {
            heard.left = true;
        }
    }

    /// True while a server's lease lasts.
    pub fn is_up(&self, server: u32, now: Duration) -> bool {
        let within = |h: &Heard| !h.left && now.saturating_sub(h.at) <= self.lease;
        self.servers.get(&server).is_some_and(within)
    }

    /// True if a server has itself said, within the lease, that it lives.
    pub fn has_spoken(&self, server: u32, now: Duration) -> bool {
        self.is_up(server, now) && self.servers.get(&server).is_some_and(|h| h.spoke)
    }

    /// Milliseconds since a server was heard.
    pub fn silent_ms(&self, server: u32, now: Duration) -> u64 {
        let silent = self.servers.get(&server).map(|h| now.saturating_sub(h.at));
        silent.map_or(u64::MAX, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }

    /// What a target said of itself last.
    pub fn target(&self, target: u32) -> Option<&TargetSpec> {
        self.targets.get(&target)
    }

    /// True if the set of servers that are up is another than at the last call.
    pub fn changed(&mut self, now: Duration) -> bool {
        let up: HashSet<u32> =
            self.servers.keys().copied().filter(|&id| self.is_up(id, now)).collect();
        let changed = up != self.shown_up;
        self.shown_up = up;
        changed
    }
}
