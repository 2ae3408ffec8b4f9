use super::*;
use crate::testing::cluster;
use std::collections::BTreeSet;

const DEAD: Tenure = Tenure { lasts: false, well: false, steady: false, cut_off: false };
const QUIET: Tenure = Tenure { lasts: true, well: false, steady: false, cut_off: false };
const WELL: Tenure = Tenure { lasts: true, well: true, steady: false, cut_off: false };
const STEADY: Tenure = Tenure { lasts: true, well: true, steady: true, cut_off: false };

const CUT_OFF: Tenure = Tenure { lasts: true, well: false, steady: false, cut_off: true };

/// So many metadata servers on one database, and as many volumes as are asked for, where they belong.
fn on_one_database(servers: usize, volumes: u32) -> State {
    let mut state = cluster(&vec![0; servers]);
    for server in state.servers.values_mut() {
        (server.meta, server.store) = (true, "db".into());
    }
    for id in 1..=volumes {
        let shares = Shares::one(VolumeId(id));
        let meta_server = choose(&state, shares, id, |_| true, |_| true).unwrap();
        state.volumes.insert(id, Volume { meta_server, ..Volume::default() });
    }
    state
}

/// Lets the volumes settle; `true` if something has changed. What is said to be settled does not change.
fn step(state: &mut State, known: &[Tenure], released: impl Fn(u32, u32, u64) -> bool) -> bool {
    let tenure = |server: u32| known[server as usize - 1];
    let (before, is_settled) = (state.volumes.clone(), is_settled(state, tenure, &released));
    settle(state, tenure, &released);
    assert_eq!(is_settled, state.volumes == before);
    state.cluster.epoch += u64::from(!is_settled);
    !is_settled
}

fn none(_: u32, _: u32, _: u64) -> bool {
    false
}

fn owners(state: &State) -> Vec<u32> {
    state.volumes.values().map(|volume| volume.meta_server).collect()
}

#[test]
fn volumes_are_spread_and_only_those_of_a_dead_server_move() {
    let mut state = on_one_database(3, 60);
    let before = owners(&state);
    for server in 1..=3 {
        let own = before.iter().filter(|owner| **owner == server).count();
        assert!((10..=30).contains(&own), "server {server} has {own} of 60");
    }
    assert!(!step(&mut state, &[STEADY, STEADY, STEADY], none));
    assert!(!step(&mut state, &[STEADY, QUIET, STEADY], none), "its tenure lasts");
    assert!(step(&mut state, &[STEADY, DEAD, STEADY], none));
    let after = owners(&state);
    let heirs: BTreeSet<_> =
        before.iter().zip(&after).filter(|(b, _)| **b == 2).map(|(_, a)| *a).collect();
    assert_eq!(heirs, [1, 3].into(), "both take some");
    assert!(before.iter().zip(&after).all(|(b, a)| *b == 2 || a == b));
    let moved = state.volumes.values().filter(|v| v.owned_since == 1);
    assert!(moved.clone().all(|v| v.leaving == 0) && moved.count() > 9);
    assert!(!step(&mut state, &[DEAD, DEAD, DEAD], none), "there is nobody to take them");
}

#[test]
fn a_server_that_is_back_gets_its_volumes_when_the_others_let_go_of_them() {
    let mut state = on_one_database(2, 20);
    let before = owners(&state);
    assert!(step(&mut state, &[STEADY, DEAD], none));
    assert!(!step(&mut state, &[STEADY, WELL], none), "it may fall over again");
    assert!(step(&mut state, &[STEADY, STEADY], none));
    assert_eq!(owners(&state), before);
    let since = state.cluster.epoch;
    let waits = |state: &State| state.volumes.values().filter(|v| v.leaving == 1).count();
    let moved = waits(&state);
    assert!(moved > 0 && state.volumes.values().all(|v| v.leaving != 1 || v.owned_since == since));
    assert!(!step(&mut state, &[STEADY, STEADY], none), "what it may serve it keeps");
    let one = *state.volumes.iter().find(|(_, v)| v.leaving == 1).unwrap().0;
    assert!(step(&mut state, &[STEADY, STEADY], |server, volume, epoch| {
        (server, volume) == (1, one) && epoch == since
    }));
    assert_eq!(waits(&state), moved - 1);
    assert!(step(&mut state, &[DEAD, STEADY], none), "it is dead");
    assert_eq!(waits(&state), 0);
}

#[test]
fn a_volume_that_is_handed_over_to_one_who_dies_goes_back_or_on() {
    let mut state = on_one_database(3, 30);
    step(&mut state, &[STEADY, STEADY, DEAD], none);
    step(&mut state, &[STEADY, STEADY, STEADY], none);
    let under_way: Vec<u32> =
        state.volumes.iter().filter(|(_, v)| v.leaving != 0).map(|(&id, _)| id).collect();
    assert!(under_way.iter().all(|id| state.volumes[id].meta_server == 3) && under_way.len() > 3);
    step(&mut state, &[STEADY, STEADY, DEAD], none);
    for id in under_way {
        let volume = &state.volumes[&id];
        assert!([0, 3 - volume.meta_server].contains(&volume.leaving), "{volume:?}");
    }
}

#[test]
fn a_volume_in_a_store_of_its_own_stays_where_that_is() {
    let mut state = on_one_database(3, 6);
    for (id, server) in &mut state.servers {
        server.store = if *id == 3 { String::new() } else { format!("db{id}") };
    }
    let before = owners(&state);
    assert!(!step(&mut state, &[DEAD, STEADY, STEADY], none));
    assert!(!step(&mut state, &[STEADY, DEAD, DEAD], none));
    assert_eq!(owners(&state), before);
    assert!(state.volumes.values().all(|volume| !can_move(&state, volume)));
}

#[test]
fn a_server_that_is_about_to_go_hands_its_volumes_over() {
    let mut state = on_one_database(2, 8);
    let job = crate::records::Job {
        state: strake_wire::message::jobs::JobState::Running as u32,
        remove: true,
        servers: vec![1],
        ..Default::default()
    };
    state.jobs.insert(1, job);
    assert!(state.volumes.values().all(|v| can_move(&state, v) == (v.meta_server == 1)));
    assert!(step(&mut state, &[STEADY, WELL], none));
    assert!(state.volumes.values().all(|v| v.meta_server == 2 && [0, 1].contains(&v.leaving)));
    assert!(step(&mut state, &[STEADY, STEADY], |_, _, _| true));
    assert!(!step(&mut state, &[STEADY, STEADY], none), "it stays gone");
}

#[test]
fn who_does_not_reach_the_database_hands_its_volumes_over_to_one_that_does() {
    let mut state = on_one_database(2, 6);
    let own =
        |state: &State, server| state.volumes.values().filter(|v| v.meta_server == server).count();
    let before = owners(&state);
    assert!(own(&state, 1) > 0 && own(&state, 2) > 0);
    assert!(!step(&mut state, &[CUT_OFF, CUT_OFF], none), "it is the database that is away");
    assert!(!step(&mut state, &[CUT_OFF, WELL], none), "the other has come back just before it");
    assert!(step(&mut state, &[CUT_OFF, STEADY], none));
    assert_eq!(own(&state, 2), 6);
    // The other waits for it to let go, as long as its tenure lasts.
    let leaving = |state: &State| state.volumes.values().filter(|v| v.leaving == 1).count();
    assert_eq!(leaving(&state), before.iter().filter(|owner| **owner == 1).count());
    assert!(step(&mut state, &[CUT_OFF, STEADY], |server, _, _| server == 1));
    assert_eq!(leaving(&state), 0);
    assert!(!step(&mut state, &[CUT_OFF, STEADY], none));
    assert!(step(&mut state, &[STEADY, STEADY], none), "it gets them back");
    assert_eq!(owners(&state), before);
}

/// So many metadata servers on one database, and a volume of so many shares, which is made.
fn of_shares(servers: usize, shares: u32) -> State {
    let mut state = on_one_database(servers, 0);
    state.servers.values_mut().for_each(|server| server.shares = true);
    let spec = strake_wire::message::manager::VolumeSpec {
        name: "wide".into(),
        shares: Some(shares),
        ..Default::default()
    };
    crate::volumes::create(&mut state, &spec, |_| true).expect("all can serve it");
    state
}

/// How many each of so many servers has, the fewest first.
fn dealt(state: &State, servers: u32) -> Vec<usize> {
    let own = |server| owners(state).iter().filter(|owner| **owner == server).count();
    let mut counts: Vec<usize> = (1..=servers).map(own).collect();
    counts.sort_unstable();
    counts
}

/// Lets all that are asked let go, until nothing moves any more.
fn settle_all(state: &mut State, known: &[Tenure]) {
    for _ in 0..100 {
        if !step(state, known, |_, _, _| true) {
            return;
        }
    }
    panic!("it does not settle: {:?}", owners(state));
}

#[test]
fn shares_of_a_volume_are_dealt_out_evenly() {
    for (servers, shares) in [(2, 2), (2, 5), (3, 2), (3, 8), (5, 64)] {
        let mut state = of_shares(servers as usize, shares);
        let mut known = vec![STEADY; servers as usize];
        let (few, many) = (shares / servers, shares.div_ceil(servers));
        let is_even = |state: &State| {
            let counts = dealt(state, servers);
            let even = |count: &usize| (few..=many).contains(&(*count as u32));
            assert!(counts.iter().all(even), "{shares} on {servers}: {counts:?}");
        };
        is_even(&state);
        settle_all(&mut state, &known);
        is_even(&state);

        known[0] = DEAD;
        settle_all(&mut state, &known);
        let counts = &dealt(&state, servers)[1..];
        assert!(counts[counts.len() - 1] - counts[0] <= 1, "{shares} less one: {counts:?}");

        known[0] = STEADY;
        settle_all(&mut state, &known);
        is_even(&state);
    }
}

/// A server that was back, or new, got nothing where each other one had one share of each volume.
#[test]
fn a_server_that_is_back_gets_shares_also_of_volumes_with_fewer_shares_than_servers() {
    let mut state = of_shares(3, 2);
    for nth in 1..40 {
        let spec = strake_wire::message::manager::VolumeSpec {
            name: format!("wide{nth}"),
            shares: Some(2),
            ..Default::default()
        };
        crate::volumes::create(&mut state, &spec, |_| true).expect("all can serve it");
    }
    settle_all(&mut state, &[DEAD, STEADY, STEADY]);
    assert_eq!(dealt(&state, 3), [0, 40, 40]);
    settle_all(&mut state, &[STEADY, STEADY, STEADY]);
    assert!(dealt(&state, 3)[0] > 10, "{:?}", dealt(&state, 3));
}

/// [`Peers::next`], for one volume by itself.
fn next_plainly(state: &State, id: u32, tenure: impl Fn(u32) -> Tenure) -> Option<u32> {
    let volume = &state.volumes[&id];
    let owner = state.servers.get(&volume.meta_server)?;
    if owner.store.is_empty() || volume.leaving != 0 && tenure(volume.meta_server).lasts {
        return None;
    }
    let goes = |id: u32| {
        state.jobs.values().any(|job| job.lasts() && job.remove && job.servers.contains(&id))
    };
    let lasts = tenure(volume.meta_server).lasts && !goes(volume.meta_server);
    let may_stay = lasts && !tenure(volume.meta_server).cut_off;
    let can = |&(&other, server): &(&u32, &Server)| {
        let is_well = if lasts { tenure(other).steady } else { tenure(other).well };
        let fits = if other == volume.meta_server { may_stay } else { is_well };
        fits && could_serve(volume, owner, server) && !goes(other)
    };
    let shares = volume.shares(id);
    let served = |server: u32| {
        let others = shares.all().filter(|share| share.0 != id);
        others.filter(|share| state.volumes[&share.0].meta_server == server).count()
    };
    let best = state.servers.iter().filter(can).map(|(&other, _)| other);
    let best = best.min_by_key(|&other| (served(other), Reverse(weight(id, other))))?;
    (best != volume.meta_server).then_some(best)
}

#[test]
fn what_is_found_for_all_volumes_at_once_is_what_each_would_find() {
    let known = [DEAD, QUIET, WELL, STEADY, STEADY, CUT_OFF];
    let mut moved = 0;
    for seed in 0..300_u64 {
        let number = |of: u64| mixed(seed << 16 | of) as usize;
        let mut state = cluster(&vec![0; number(0) % 5 + 1]);
        let servers = state.servers.len() as u32;
        for (&id, server) in &mut state.servers {
            let of = u64::from(id) * 8;
            server.store = ["", "db", "db", "db", "other"][number(of) % 5].into();
            (server.meta, server.shares) =
                (!number(of + 1).is_multiple_of(5), !number(of + 2).is_multiple_of(3));
        }
        let job = Job {
            state: strake_wire::message::jobs::JobState::Running as u32,
            remove: seed.is_multiple_of(3),
            servers: vec![1],
            ..Default::default()
        };
        state.jobs.insert(1, job);
        for first in [1, 2, 5] {
            let count = [1, 3, 2][first as usize / 2];
            for share in 0..count {
                let of = u64::from(first + share) * 8 + 64;
                let mut volume = Volume { share, ..Volume::default() };
                volume.meta_server = number(of) as u32 % (servers + 1);
                volume.leaving = (number(of + 1) as u32 % (2 * servers)).saturating_sub(servers);
                volume.deleting = number(of + 2).is_multiple_of(4);
                volume.spec.shares = (count > 1).then_some(count);
                state.volumes.insert(first + share, volume);
            }
        }
        let tenure = |server: u32| known[number(u64::from(server) + 1_000) % known.len()];
        let peers = Peers::of(&state, &tenure);
        for (&id, volume) in &state.volumes {
            let next = peers.next(&state, id, volume, volume.leaving);
            assert_eq!(next, next_plainly(&state, id, tenure), "seed {seed}, volume {id}");
            moved += u32::from(next.is_some());
        }
    }
    assert!(moved > 20, "{moved}");
}

#[test]
fn who_may_let_go_of_a_volume_is_looked_at_each_time() {
    let mut state = on_one_database(2, 20);
    let mut look = Look::default();
    let mut is_settled = |state: &State, tenures: [Tenure; 2], has_released: bool| {
        let before = LOOKS.get();
        let tenure = |server: u32| tenures[server as usize - 1];
        let settled = look.is_settled(state, tenure, |_, _, _| has_released);
        (settled, LOOKS.get() - before)
    };
    assert_eq!(is_settled(&state, [STEADY, STEADY], false), (true, 1));
    assert_eq!(is_settled(&state, [STEADY, STEADY], false), (true, 0));
    assert_eq!(is_settled(&state, [STEADY, QUIET], false), (true, 1));
    assert_eq!(is_settled(&state, [STEADY, DEAD], false), (false, 1));
    assert_eq!(is_settled(&state, [STEADY, DEAD], false), (false, 1), "until it is done");
    let volume = state.volumes.values_mut().next().unwrap();
    volume.leaving = 3 - volume.meta_server;
    assert_eq!(is_settled(&state, [STEADY, STEADY], false), (true, 1));
    assert_eq!(is_settled(&state, [STEADY, STEADY], true), (false, 1));
}
