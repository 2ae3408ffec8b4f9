//! The checker finds nothing in the protocol as it is, and something in each broken variant.

use super::*;
use stateright::{Checker, Expectation, HasDiscoveries};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Two members, two clients, one write each, one stop, two changes of the group.
const PLAIN: Rules = Rules {
    members: 2,
    joining: None,
    writes: [1, 1],
    syncs: false,
    promises: true,
    managers: 1,
    epochs: 3,
    crashes: 1,
    power_losses: 0,
    broken: None,
};
/// One client that syncs, two stops, one of them with a loss of power.
const SYNCED: Rules = Rules { writes: [1, 0], syncs: true, crashes: 2, power_losses: 1, ..PLAIN };
/// Two managers, one change of the group.
const MANAGED: Rules = Rules { managers: 2, epochs: 2, crashes: 0, ..PLAIN };
/// Three of them, one on a server without a member; one write.
const FOLLOWED: Rules = Rules { managers: 3, writes: [1, 0], ..MANAGED };

/// Of three members one joins at first; one write, three changes of the group.
const JOINED: Rules =
    Rules { members: 3, joining: Some(1), writes: [1, 0], epochs: 4, crashes: 0, ..PLAIN };

/// How long an exploration may take that is to come to its end.
const LIMIT: Duration = Duration::from_secs(1800);

/// What an exploration has found.
struct Explored {
    /// The names of all that was found.
    found: Vec<&'static str>,
    /// What must not be, and the steps to it.
    failure: Option<(&'static str, Vec<Action>)>,
    /// How many different states were seen.
    states: usize,
    /// How long it took.
    took: Duration,
}

/// Explores until there is nothing new, something is found that must not be, or the time is over.
/// Depth first: few states wait then, so memory goes to what tells known states from new ones.
fn explore(rules: Rules, limit: Duration) -> Explored {
    let until = HasDiscoveries::AnyFailures;
    // One thread alone would not look at the time.
    let checker = Protocol(rules).checker().threads(2).timeout(limit).finish_when(until);
    // Of two members half of the states are alike at most, and to see that takes time, too.
    let checker = if rules.members == ids::MEMBERS && rules.managers == 1 {
        checker.symmetry_fn(symmetry::representative)
    } else {
        checker
    };
    let began = Instant::now();
    judge(rules, &checker.spawn_dfs().join(), began)
}

/// Explores until something is found that must not be, with the fewest steps to it.
fn shortest(rules: Rules) -> Explored {
    let until = HasDiscoveries::AnyFailures;
    let began = Instant::now();
    judge(rules, &Protocol(rules).checker().finish_when(until).spawn_bfs().join(), began)
}

fn judge(rules: Rules, checker: &impl Checker<Protocol>, began: Instant) -> Explored {
    let took = began.elapsed();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    let rate = states as f64 / took.as_secs_f64();
    println!("{states} states in {took:.1?}, {rate:.0} a second, {depth} steps deep: {rules:?}");
    let found = checker.discoveries();
    let fails =
        |name: &'static str| Protocol(rules).property(name).expectation == Expectation::Always;
    let failure = found.keys().copied().find(|name| fails(name));
    let failure = failure.map(|name| (name, found[name].clone().into_actions()));
    Explored { found: found.into_keys().collect(), failure, states, took }
}

/// The protocol keeps every promise within these bounds, and everything in `seen` happens there.
fn holds(rules: Rules, seen: &[&str]) {
    if let Err(states) = holds_within(LIMIT, rules, seen) {
        panic!("{states} states are not all of them");
    }
}

/// The same, or how many states were seen when the time was over. Of the rest nothing is known then.
fn holds_within(limit: Duration, rules: Rules, seen: &[&str]) -> Result<(), usize> {
    let explored = explore(rules, limit);
    assert_eq!(explored.failure, None);
    // A checker whose time is over looks like one that has seen everything.
    if explored.took >= limit {
        return Err(explored.states);
    }
    for name in seen {
        assert!(explored.found.contains(name), "never happens: {name}");
    }
    Ok(())
}

const FAIL_OVER: &str = "a write is acknowledged after a fail-over";
const OTHER_READS: &str = "a member that is not the primary answers a read";
const RESYNC: &str = "a resync ends";
const REFOUND: &str = "a group is refounded";
const LOSS: &str = "power takes writes away";
const OTHER_LEADS: &str = "another manager leads";
const THIRD_LEADS: &str = "a third manager leads";

#[test]
fn two_members_keep_all_promises() {
    holds(PLAIN, &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND]);
}

#[test]
fn two_members_keep_what_was_synced() {
    holds(SYNCED, &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND, LOSS]);
}

#[test]
fn two_members_keep_all_promises_when_another_manager_leads() {
    holds(MANAGED, &[FAIL_OVER, OTHER_READS, OTHER_LEADS]);
}

#[test]
fn two_members_keep_all_promises_when_managers_follow_each_other() {
    holds(FOLLOWED, &[FAIL_OVER, OTHER_READS, OTHER_LEADS, THIRD_LEADS]);
}

/// Each rule that can be left out, with bounds in which that shows.
const BROKEN: &[(Broken, Rules)] = &[
    (Broken::EpochCheck, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (Broken::WaitForAllInSync, Rules { epochs: 2, ..PLAIN }),
    (Broken::UnsettledRefusesReads, Rules { epochs: 2, ..PLAIN }),
    (Broken::TakeOutAfterLease, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (Broken::JoiningServesNothing, Rules { writes: [1, 0], ..PLAIN }),
    (Broken::Recovery, Rules { writes: [1, 0], ..PLAIN }),
    (Broken::DoneRequests, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (Broken::Promises, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (
        Broken::RecoveryAfterPromises,
        Rules { members: 3, writes: [1, 0], epochs: 2, crashes: 0, ..PLAIN },
    ),
    (Broken::ReportedCounts, Rules { writes: [1, 0], ..PLAIN }),
    (Broken::RefoundOnlyAlone, Rules { epochs: 2, ..PLAIN }),
    (Broken::LeaseTellsEpoch, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (Broken::LeaseAfterReport, Rules { epochs: 4, writes: [1, 0], ..PLAIN }),
    (Broken::LeaseForAnswers, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (Broken::PromisesOutliveRestart, Rules { epochs: 2, ..PLAIN }),
    (Broken::DoneTravels, Rules { writes: [1, 0], crashes: 0, ..PLAIN }),
    (Broken::CopiesNumbered, Rules { writes: [1, 0], ..PLAIN }),
    (Broken::FailedIsNotReported, Rules { writes: [1, 0], ..PLAIN }),
    (Broken::RefoundFence, Rules { epochs: 2, ..PLAIN }),
    (Broken::SyncComparesLosses, SYNCED),
    (Broken::SyncToJoining, SYNCED),
    (Broken::ResyncSyncs, SYNCED),
    (Broken::JoinOfJoining, SYNCED),
    (Broken::JoinOnce, Rules { epochs: 2, crashes: 0, ..PLAIN }),
    (Broken::PairAlone, Rules { members: 3, joining: Some(1), writes: [1, 0], ..PLAIN }),
    (Broken::PairOfOneEpoch, Rules { members: 3, writes: [1, 0], ..PLAIN }),
    (Broken::OwnLeasesEndWithLead, MANAGED),
    (Broken::LongLeasesAreSaidFirst, MANAGED),
    (Broken::AnsweredHaveNotEnded, FOLLOWED),
];

/// Those that take longer than all others together.
const BROKEN_DEEP: &[(Broken, Rules)] = &[
    (Broken::ReportEndsPromised, JOINED),
    (Broken::ReportAfterPromises, JOINED),
    (Broken::NoPromiseAfterReport, JOINED),
    // In a resync; the shorter one is in recovery.
    (Broken::DoneTravels, Rules { joining: Some(0), epochs: 4, ..PLAIN }),
];

fn is_missed(rule: Broken, explored: Explored) {
    let (promise, steps) = explored.failure.unwrap_or_else(|| panic!("nobody missed {rule:?}"));
    println!("{rule:?}: not {promise}: {steps:?}");
}

#[test]
fn the_checker_finds_every_rule_that_is_left_out() {
    for &(rule, bounds) in BROKEN {
        is_missed(rule, shortest(bounds.breaking(rule)));
    }
}

#[test]
#[ignore = "explores for minutes: cargo test -p strake-sim -- --ignored --nocapture"]
fn the_checker_finds_the_rules_that_take_longest() {
    for &(rule, bounds) in BROKEN_DEEP {
        is_missed(rule, explore(bounds.breaking(rule), LIMIT));
    }
}

/// Whether 2 may read when 1 has become equal and in sync, and 2 and the primary were taken out: 1 leads alone.
fn reads_beside_who_joined(rules: Rules) -> bool {
    let model = Protocol(rules);
    let step = |state: State, action| model.next_state(&state, action).expect("it can be taken");
    let state = step(model.init_states()[0], Action::Resync { primary: 0, member: 1 });
    let sent = state.network.forwards.iter().position(Option::is_some);
    let slot = sent.expect("the copy is under way");
    let rest = [
        Action::Apply { member: 1, slot },
        Action::Complete(0),
        Action::Report { primary: 0, member: 1 },
        Action::Accept(1),
        Action::TakeOut { member: 2, next: 0 },
        Action::TakeOut { member: 0, next: 1 },
        Action::Learn { member: 1, epoch: 4 },
        Action::Complete(1),
    ];
    let state = rest.into_iter().fold(state, step);
    assert!(state.leads(1) && state.members[1].primary.ready);
    member::serves(&rules, &state, 2)
}

/// It read by the promise of the primary, which had promised nobody to wait for 1.
#[test]
fn nobody_reads_by_a_promise_beside_a_primary_that_has_given_none() {
    assert!(!reads_beside_who_joined(JOINED));
    for rule in [Broken::ReportAfterPromises, Broken::NoPromiseAfterReport] {
        assert!(reads_beside_who_joined(JOINED.breaking(rule)), "{rule:?}");
    }
}

/// The worlds of [`history::History`] against stateright's own tester, which keeps all that happened.
#[test]
fn worlds_judge_histories_as_the_linearizability_tester_does() {
    use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
    use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
    let mut seed = 1_u32;
    let mut draw = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % below
    };
    let mut judged = [0; 2];
    for _ in 0..3000 {
        let mut tester = LinearizabilityTester::new(Register(0_u8));
        let mut worlds = history::History::default();
        let mut pending = [None; CLIENTS];
        let mut value = 0;
        for _ in 0..8 {
            let client = draw(CLIENTS as u32) as usize;
            match (draw(2), pending[client]) {
                (0, None) => {
                    value += 1;
                    pending[client] = Some(value);
                    tester.on_invoke(client, RegisterOp::Write(value)).unwrap();
                    worlds.invoked(&pending);
                }
                (0, Some(_)) => {
                    worlds.returned(client, &pending);
                    pending[client] = None;
                    tester.on_return(client, RegisterRet::WriteOk).unwrap();
                }
                _ => {
                    let seen = draw(u32::from(value) + 1) as u8;
                    tester.on_invret(9, RegisterOp::Read, RegisterRet::ReadOk(seen)).unwrap();
                    worlds.read(seen, &pending);
                }
            }
        }
        assert_eq!(tester.is_consistent(), worlds.is_sound(), "{tester:?}");
        judged[usize::from(worlds.is_sound())] += 1;
    }
    assert!(judged.iter().all(|&count| count > 100), "too much of one kind: {judged:?}");
}

/// Two of the members serve while a third is away, comes back, or joins.
#[test]
#[ignore = "explores for minutes: cargo test -p strake-sim -- --ignored --nocapture"]
fn three_members_keep_all_promises() {
    let three = Rules { members: 3, writes: [1, 0], ..PLAIN };
    holds(three, &[FAIL_OVER, OTHER_READS, REFOUND]);
    holds(Rules { joining: Some(0), crashes: 0, ..three }, &[FAIL_OVER, OTHER_READS, RESYNC]);
    holds(Rules { epochs: 4, crashes: 0, ..three }, &[FAIL_OVER, OTHER_READS, RESYNC]);
}

/// One of the members joins, and may be the only one that is left.
#[test]
#[ignore = "explores for minutes: cargo test -p strake-sim -- --ignored --nocapture"]
fn three_members_keep_all_promises_while_one_joins_over_four_epochs() {
    holds(JOINED, &[FAIL_OVER, OTHER_READS, RESYNC]);
}

/// A group that changes once more than in the short tests.
#[test]
#[ignore = "explores for minutes: cargo test -p strake-sim -- --ignored --nocapture"]
fn two_members_keep_all_promises_over_four_epochs() {
    holds(Rules { epochs: 4, ..PLAIN }, &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND]);
}

/// Three members, two clients, one write each.
const THREE: Rules = Rules { members: 3, ..PLAIN };

/// If a state could do what the same one with other numbers cannot, one of them would not be enough.
#[test]
fn members_differ_in_nothing_but_their_numbers() {
    let model = Protocol(Rules { syncs: true, crashes: 2, power_losses: 1, ..THREE });
    let follow = |state: &State| {
        let mut actions = Vec::new();
        model.actions(state, &mut actions);
        let next = actions.into_iter().filter_map(|action| model.next_state(state, action));
        next.collect::<Vec<_>>()
    };
    let kinds =
        |states: &[State]| states.iter().map(symmetry::representative).collect::<BTreeSet<_>>();
    let mut seed = 1_u32;
    for _ in 0..100 {
        let mut state = model.init_states()[0];
        for _ in 0..40 {
            let next = follow(&state);
            let expected = kinds(&next);
            for names in &symmetry::RENAMINGS {
                let renamed = symmetry::renamed(&state, names);
                assert_eq!(kinds(&follow(&renamed)), expected, "{names:?} in {state:?}");
            }
            if next.is_empty() {
                break;
            }
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state = next[(seed >> 16) as usize % next.len()];
        }
    }
}

/// Bounds beyond those of the other tests, each with what happens there.
const LADDER: &[(Rules, &[&str])] = &[
    (Rules { epochs: 2, ..THREE }, &[FAIL_OVER, OTHER_READS, REFOUND]),
    (Rules { crashes: 0, ..THREE }, &[FAIL_OVER, OTHER_READS, RESYNC]),
    (Rules { joining: Some(2), crashes: 0, ..THREE }, &[FAIL_OVER, OTHER_READS, RESYNC]),
    (
        Rules { writes: [1, 0], syncs: true, power_losses: 1, ..THREE },
        &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND, LOSS],
    ),
    (Rules { writes: [2, 1], ..PLAIN }, &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND]),
    (Rules { writes: [1, 1], ..SYNCED }, &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND, LOSS]),
    (THREE, &[FAIL_OVER, OTHER_READS, RESYNC, REFOUND]),
];

/// How long each of them is explored.
const RUNG: Duration = Duration::from_secs(180);

/// Says of each how fast it was explored, and fails where the time was over before the end: nothing was
/// found there, which proves nothing.
#[test]
#[ignore = "explores for twenty minutes: cargo test -p strake-sim ladder -- --ignored --nocapture"]
fn the_ladder_is_climbed_to_its_end() {
    let mut unfinished = Vec::new();
    for &(rules, seen) in LADDER {
        if let Err(states) = holds_within(RUNG, rules, seen) {
            println!("not explored to the end: nothing was found in {states} states");
            unfinished.push((states, rules));
        }
    }
    assert!(unfinished.is_empty(), "not explored to the end: {unfinished:#?}");
}
