//! Clusters for the tests of what is decided, a clock, and what is logged.

#[path = "../../../tests/src/lines.rs"]
pub(crate) mod lines;

use crate::groups::{Life, Yields, tables};
use crate::jobs;
use crate::join;
use crate::liveness::waiting;
use crate::plan::Facts;
use crate::records::{Group, Server, Target};
use crate::scrubs::AWAY_MS_MAX;
use crate::state::State;
use parking_lot::Mutex;
use std::time::Duration;
use strake_base::clock::Clock;
use strake_types::GroupId;
use strake_wire::message::jobs::{JobState, SteerJob};
use strake_wire::message::manager::{AddTarget, TargetSpec};

/// A clock that only moves when told to.
#[derive(Default)]
pub(crate) struct TestClock(Mutex<Duration>);

impl TestClock {
    pub fn pass(&self, ms: u64) {
        *self.0.lock() += Duration::from_millis(ms);
    }
}

impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        *self.0.lock()
    }

    fn wall(&self) -> Duration {
        self.monotonic()
    }
}

/// No primary is asked whether another member may lead.
pub(crate) fn at_once(_: u32, _: &Group) -> Yields {
    Yields::AtOnce
}

/// Servers with so many targets each, and their groups of one copy.
pub(crate) fn cluster(targets: &[u32]) -> State {
    let mut state = State::default();
    for (server, count) in (1..).zip(targets) {
        let name = format!("h{server}");
        state.servers.insert(server, Server { name, ..Server::default() });
        for _ in 0..*count {
            add_target(&mut state, server);
        }
    }
    state
}

/// A new target of a server, with a group of one copy.
pub(crate) fn add_target(state: &mut State, server: u32) -> u32 {
    let id = state.cluster.next_target.max(1);
    state.cluster.next_target = id + 1;
    let group = GroupId::of_class(1, tables(state).size(1)).0;
    let (members, in_sync) = (vec![id], vec![id]);
    let single = Group { epoch: 1, members, in_sync, ..Group::default() };
    state.groups.insert(group, single);
    let path = format!("/t{id}");
    state.targets.insert(id, Target { server, path, ..Target::default() });
    id
}

/// A new target of a server, as one that runs gets it.
pub(crate) fn enter_target(state: &mut State, server: u32) -> u32 {
    let uuid = format!("{:032x}", state.cluster.next_target);
    let ask = |state: &mut State, target| {
        let spec = TargetSpec { target, uuid: uuid.clone(), ..TargetSpec::default() };
        join::add_target(state, &AddTarget { server, spec, boot: String::new() }).unwrap()
    };
    let number = ask(state, 0);
    ask(state, number)
}

/// Steers a job in this way.
pub(crate) fn steer(state: &mut State, facts: &Facts, id: u32, change: impl FnOnce(&mut SteerJob)) {
    let mut request = SteerJob { id: id.into(), ..SteerJob::default() };
    change(&mut request);
    crate::steer::steer(state, facts, &request).unwrap();
}

/// So much time passes, by the clock that people set and by the one that nobody does.
pub(crate) fn pass(state: &State, facts: &mut Facts, ms: u64) {
    facts.now_ms += ms;
    for wait in waiting(state) {
        *facts.waited.entry(wait).or_default() += ms;
    }
}

/// A job one item of which has just begun to wait goes on when the clock is set, and has failed when an hour has passed.
pub(crate) fn is_given_up_by_no_clock_that_is_set(state: &mut State, facts: &mut Facts, id: u32) {
    pass(state, facts, 60_000);
    facts.now_ms += 2 * AWAY_MS_MAX;
    jobs::keep(state, facts);
    assert!(state.jobs[&id].lasts());
    pass(state, facts, AWAY_MS_MAX);
    jobs::keep(state, facts);
    assert!(state.jobs[&id].is(JobState::Failed));
}

/// All targets serve, and each group of one copy has so many bytes.
pub(crate) fn all_serve(state: &State, bytes: u64) -> Facts {
    let mut facts = Facts { now_ms: 1_000, ..Facts::default() };
    facts.up = state.servers.keys().copied().collect();
    for &id in state.targets.keys() {
        facts.lives.insert(id, Life::Serves);
        facts.free.insert(id, 1 << 40);
        facts.total.insert(id, 1 << 40);
    }
    for (&id, group) in &state.groups {
        facts.held.extend(group.members.iter().map(|&member| ((member, id), bytes)));
    }
    facts
}
