//! The replication protocol of docs/design/0040-replication.md as a model that is explored to its end.
//!
//! One group, one range of one chunk. A [`State`] is everything that the manager, the members, the
//! clients and the network hold; an [`Action`] is one step of one of them. Messages, once sent, are
//! under way for ever, so they are delayed, repeated, overtaken and lost in every possible way. The
//! checker takes every step in every state within the bounds ([`Rules`]), and holds the promises
//! ([`stateright::Property`]) in each. Leases alone are no steps: whoever may have one has it, because
//! nothing that may happen without one may not happen with it.
//!
//! * [`rules`] — bounds, and rules to leave out; [`ids`], [`state`] — what everybody holds.
//! * [`manager`], [`member`], [`primary`], [`client`] — the steps of each.
//! * [`history`] — what clients have seen, and whether it can be explained.
//! * [`symmetry`] — which states differ in the numbers of members alone.
//!
//! The words are those of the design; production code uses the same.

pub mod client;
pub mod history;
pub mod ids;
pub mod manager;
pub mod member;
pub mod primary;
pub mod rules;
pub mod state;
pub mod symmetry;

use history::Violation;
use ids::{CLIENTS, Epoch};
use member::Stop;
use rules::{Broken, Rules};
use state::{Phase, State};
use stateright::{Model, Property};

/// The protocol within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Protocol(pub Rules);

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client begins a write.
    Invoke(usize),
    /// A client receives the answer.
    Answer(usize),
    /// A primary receives a client's write.
    Request {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Whose it is.
        client: usize,
    },
    /// A primary receives a copy of a write that was answered.
    LateRequest {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Whose it is.
        client: usize,
    },
    /// A member receives a forward.
    Apply {
        /// Which member.
        member: usize,
        /// Where the forward stands in the network.
        slot: usize,
    },
    /// A member hears what is settled.
    Settle(usize),
    /// A primary has all answers to what it has under way.
    Complete(usize),
    /// A primary waits no longer for a joining member.
    GiveUp {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Which member.
        member: usize,
    },
    /// A primary receives a client's sync.
    Sync {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Whose it is.
        client: usize,
    },
    /// A member syncs for the primary.
    SyncAt {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Which member.
        member: usize,
    },
    /// All have synced.
    SyncComplete(usize),
    /// Somebody reads from a member.
    Read(usize),
    /// A member learns of an epoch from the manager.
    Learn {
        /// Which member.
        member: usize,
        /// Which epoch.
        epoch: Epoch,
    },
    /// A new primary tells a member the epoch, and asks it.
    Tell {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Which member.
        member: usize,
    },
    /// A primary copies to a joining member.
    Resync {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Which member.
        member: usize,
    },
    /// A primary reports a joining member as equal.
    Report {
        /// Who orders writes in the epoch it acts in.
        primary: usize,
        /// Which member.
        member: usize,
    },
    /// The manager takes the report.
    Accept(usize),
    /// The manager takes a member out.
    TakeOut {
        /// Which member.
        member: usize,
        /// Who leads then.
        next: usize,
    },
    /// The manager gives the lead to another member.
    HandOver(usize),
    /// The manager hears that a joining member has failed.
    DropFailed(usize),
    /// The manager puts a member among those joining.
    Admit(usize),
    /// A server stops.
    Crash {
        /// Which member.
        member: usize,
        /// How.
        stop: Stop,
    },
    /// A server that has started joins.
    Join {
        /// Which member.
        member: usize,
        /// Who leads then; nobody if the manager believes that no other in-sync member lives.
        next: Option<usize>,
    },
    /// A copy of a Join arrives.
    JoinAgain {
        /// Which member.
        member: usize,
        /// Who leads then.
        next: usize,
    },
    /// A heartbeat asks for a long lease.
    Ask(usize),
    /// The manager of this server leads from now on.
    Follow(usize),
}

impl Protocol {
    fn take(&self, state: &mut State, action: Action) -> Option<()> {
        let rules = &self.0;
        match action {
            Action::Invoke(at) => client::invoke(rules, state, at),
            Action::Answer(at) => client::answer(rules, state, at),
            Action::Request { primary, client } => {
                primary::request(rules, state, primary, client, false)
            }
            Action::LateRequest { primary, client } => {
                primary::request(rules, state, primary, client, true)
            }
            Action::Apply { member, slot } => member::apply(rules, state, member, slot),
            Action::Settle(at) => member::settle(state, at),
            Action::Complete(at) => primary::complete(rules, state, at),
            Action::GiveUp { primary, member } => primary::give_up(rules, state, primary, member),
            Action::Sync { primary, client } => primary::sync(rules, state, primary, client),
            Action::SyncAt { primary, member } => primary::sync_at(state, primary, member),
            Action::SyncComplete(at) => primary::sync_complete(rules, state, at),
            Action::Read(at) => member::read(rules, state, at),
            Action::Learn { member, epoch } => manager::learn(rules, state, member, epoch),
            Action::Tell { primary, member } => member::tell(rules, state, primary, member),
            Action::Resync { primary, member } => primary::resync(state, primary, member),
            Action::Report { primary, member } => primary::report(rules, state, primary, member),
            Action::Accept(at) => manager::accept(rules, state, at),
            Action::TakeOut { member, next } => manager::take_out(rules, state, member, next),
            Action::HandOver(at) => manager::hand_over(rules, state, at),
            Action::DropFailed(at) => manager::drop_failed(rules, state, at),
            Action::Admit(at) => manager::admit(rules, state, at),
            Action::Crash { member, stop } => member::crash(rules, state, member, stop),
            Action::Join { member, next } => manager::join(rules, state, member, next),
            Action::JoinAgain { member, next } => manager::join_again(rules, state, member, next),
            Action::Ask(at) => manager::ask(rules, state, at),
            Action::Follow(at) => manager::follow(rules, state, at),
        }
    }

    /// Every step of managers that has to do with one member.
    fn of_manager(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        if manager::may_be_followed(&self.0, state) {
            actions.push(Action::Ask(at));
        }
        // All others make an epoch.
        if state.manager.epoch == self.0.epochs {
            return;
        }
        let group = state.newest();
        if group.in_sync.has(at) {
            let next = group.leaders_without(at).iter();
            actions.extend(next.map(|next| Action::TakeOut { member: at, next }));
            actions.push(Action::HandOver(at));
        } else if group.joining.has(at) {
            actions.extend([Action::Accept(at), Action::DropFailed(at)]);
        } else {
            actions.push(Action::Admit(at));
        }
    }

    /// Every step that one member may take by itself.
    fn of_member(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let member = &state.members[at];
        let next = state.newest().leaders_without(at).iter();
        if !member.alive {
            let next = next.map(Some).chain([None]);
            actions.extend(next.map(|next| Action::Join { member: at, next }));
            return;
        }
        if member.unsettled.is_some() {
            actions.push(Action::Settle(at));
        }
        if member::serves(&self.0, state, at) {
            actions.push(Action::Read(at));
        }
        if self.0.without(Broken::JoinOnce) {
            actions.extend(next.map(|next| Action::JoinAgain { member: at, next }));
        }
        if state.crashes > 0 {
            let stops = [Stop::Process, Stop::Power, Stop::PowerAfterFlush];
            actions.extend(stops.map(|stop| Action::Crash { member: at, stop }));
        }
        for epoch in member.epoch + 1..=state.manager.epoch {
            actions.push(Action::Learn { member: at, epoch });
        }
        for (slot, forward) in state.network.forwards.iter().enumerate() {
            if forward.is_some_and(|forward| forward.to.has(at)) {
                actions.push(Action::Apply { member: at, slot });
            }
        }
    }

    /// Every step that a primary may take, with or without another member.
    fn of_primary(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let knows = &state.members[at].primary;
        let (busy, syncs) = (knows.op.is_some(), knows.sync.is_some());
        if busy {
            actions.push(Action::Complete(at));
        }
        if syncs {
            actions.push(Action::SyncComplete(at));
        }
        for client in (0..CLIENTS).filter(|_| knows.ready) {
            if !busy {
                actions.push(Action::Request { primary: at, client });
                actions.push(Action::LateRequest { primary: at, client });
            }
            if !syncs {
                actions.push(Action::Sync { primary: at, client });
            }
        }
        for member in (0..self.0.members).filter(|&member| member != at) {
            if busy || syncs {
                actions.push(Action::GiveUp { primary: at, member });
            }
            if syncs {
                actions.push(Action::SyncAt { primary: at, member });
            }
            if !busy && knows.ready {
                actions.push(Action::Resync { primary: at, member });
            }
            if !busy && !knows.ready {
                actions.push(Action::Tell { primary: at, member });
            }
            if knows.copied.has(member) {
                actions.push(Action::Report { primary: at, member });
            }
        }
    }
}

/// What an in-sync member has on its disk, or would have once it has started, may be read.
fn all_in_sync_have_it(state: &State) -> bool {
    let has = |at: usize| {
        let member = &state.members[at];
        member.rebooted || state.history.loses() || state.history.explains(member.contents.value)
    };
    state.newest().in_sync.iter().all(has)
}

/// What is older than something synced is on no in-sync member's disk.
fn synced_survives(state: &State) -> bool {
    let gone = |at: usize| state.history.gone & (1 << state.members[at].disk) != 0;
    !state.newest().in_sync.iter().any(gone)
}

fn kept(state: &State, promise: Violation) -> bool {
    !state.history.violated(promise)
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // Where one manager alone is makes no difference.
        let first = |at: usize| {
            let mut state = State::new(&self.0);
            state.manager.at = at as u8;
            manager::allow(&self.0, &mut state);
            state
        };
        (0..self.0.managers).map(first).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.history.is_sound() {
            return;
        }
        // A step that cannot be taken costs as much as one that can: so most of these are not named.
        for (client, from) in state.clients.iter().enumerate() {
            match from.phase {
                Phase::Idle => actions.push(Action::Invoke(client)),
                Phase::Writing => {}
                Phase::Answered => actions.push(Action::Answer(client)),
            }
        }
        if manager::may_be_followed(&self.0, state) {
            actions.extend((0..self.0.managers).map(Action::Follow));
        }
        for member in 0..self.0.members {
            self.of_manager(state, member, actions);
            self.of_member(state, member, actions);
            if state.leads(member) {
                self.of_primary(state, member, actions);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        self.take(&mut state, action)?;
        manager::allow(&self.0, &mut state);
        state.forget(&self.0);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("every in-sync member has every acknowledged write", |_, state| {
                all_in_sync_have_it(state)
            }),
            Property::always("what was synced is on every in-sync member's disk", |_, state| {
                synced_survives(state)
            }),
            Property::always("reads do not go back in time", |_, state| {
                kept(state, Violation::ReadBack)
            }),
            Property::always("no two primaries acknowledge in one epoch", |_, state| {
                kept(state, Violation::TwoPrimaries)
            }),
            Property::always("none acknowledges in an epoch after a later one did", |_, state| {
                kept(state, Violation::LateAcknowledgement)
            }),
            Property::sometimes("a write is acknowledged after a fail-over", |_, state: &State| {
                // Of an epoch that is over this is forgotten, but not before its primary has answered.
                state.group(state.history.last.0).failed_over
            }),
            Property::sometimes(
                "a member that is not the primary answers a read",
                |model: &Self, state: &State| {
                    let other =
                        |&at: &usize| !state.leads(at) && member::serves(&model.0, state, at);
                    (0..model.0.members).any(|at| other(&at))
                },
            ),
            Property::sometimes("a resync ends", |_, state: &State| {
                !state.manager.reports.is_empty()
            }),
            Property::sometimes("a group is refounded", |_, state: &State| {
                state.newest().founded > 0
            }),
            Property::sometimes("power takes writes away", |_, state: &State| {
                state.newest().losses > 0
            }),
            Property::sometimes("another manager leads", |_, state: &State| {
                state.manager.followed > 0
            }),
            Property::sometimes("a third manager leads", |_, state: &State| {
                state.manager.followed > 1
            }),
        ]
    }
}

#[cfg(test)]
mod tests;
