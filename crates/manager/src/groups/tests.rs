use super::*;
use crate::testing::{at_once, cluster, enter_target};

fn of_class(state: &State, copies: u32) -> Vec<Vec<u32>> {
    let class = |id: &u32| GroupId(*id).copies() == copies;
    state.groups.iter().filter(|(id, _)| class(id)).map(|(_, g)| g.members.clone()).collect()
}

const TWO: u32 = GroupId::of_class(2, 0).0;

fn naming(copies: u32, targets: &[u32]) -> PrepareCopies {
    PrepareCopies { copies, targets: targets.to_vec() }
}

/// Groups of one copy, and of two.
fn sizes(state: &State) -> [u32; 2] {
    [1, 2].map(|copies| tables(state).size(copies))
}

/// A cluster of three servers whose first group of two copies is this one.
fn with_group(members: &[u32], in_sync: &[u32], joining: &[u32]) -> State {
    let mut state = cluster(&[1, 1, 1]);
    let [members, in_sync, joining] = [members, in_sync, joining].map(<[u32]>::to_vec);
    state.groups.insert(TWO, Group { epoch: 7, members, in_sync, joining, ..Group::default() });
    state
}

/// Epoch, members in sync, members joining, losses.
fn shown(state: &State) -> (u64, &[u32], &[u32], u64) {
    let group = &state.groups[&TWO];
    (group.epoch, &group.in_sync, &group.joining, group.losses)
}

/// What is known of targets 1, 2, 3.
fn lives(known: [Life; 3]) -> impl Fn(u32) -> Life {
    move |target| known[target as usize - 1]
}

fn back(targets: &[u32], rebooted: bool) -> Return<'_> {
    let all: HashSet<u32> = targets.iter().copied().collect();
    Return { targets, own: all.clone(), rebooted: if rebooted { all } else { HashSet::new() } }
}

#[test]
fn the_group_of_one_copy_of_target_t_is_t_less_one_whatever_else_was_made() {
    let mut state = cluster(&[1, 1]);
    prepare(&mut state, 2).unwrap();
    assert_eq!(enter_target(&mut state, 2), 3);
    for target in 1..=3 {
        assert_eq!(state.groups[&(target - 1)].members, [target]);
    }
    assert_eq!(sizes(&state), [3, 3]);
    let is_unused = |id: u32| state.groups[&id].never_used;
    assert!(is_unused(2) && !is_unused(TWO + 2), "of several copies that is not known");
}

#[test]
fn every_target_leads_one_group_and_is_partner_in_as_many_as_any_other() {
    for (servers, copies) in [(&[1, 1, 1, 1][..], 2), (&[2, 2, 2], 3), (&[3, 3], 2), (&[1; 5], 3)] {
        let mut state = cluster(servers);
        prepare(&mut state, copies).unwrap();
        let groups = of_class(&state, copies);
        let leaders: Vec<u32> = groups.iter().map(|members| members[0]).collect();
        assert_eq!(leaders, state.targets.keys().copied().collect::<Vec<_>>());
        let places = |target: &u32| groups.iter().flatten().filter(|m| *m == target).count();
        let places: Vec<usize> = state.targets.keys().map(places).collect();
        let (least, most) = (places.iter().min().unwrap(), places.iter().max().unwrap());
        assert!(most - least <= 1, "{servers:?} {groups:?}");
        for members in &groups {
            let on: HashSet<u32> = members.iter().map(|m| state.targets[m].server).collect();
            assert_eq!(on.len(), copies as usize, "{servers:?} {groups:?}");
        }
        let before = state.groups.clone();
        prepare(&mut state, copies).unwrap();
        assert!(before == state.groups, "what there is stays");
    }
}

/// The members of a new group, as one finds them who looks at all targets for each.
fn chosen_plainly(state: &State, leader: u32, copies: u32) -> Vec<u32> {
    let load = |target: u32| {
        let members = state.groups.values().flat_map(|group| &group.members);
        members.filter(|member| **member == target).count()
    };
    let mut members = vec![leader];
    while members.len() < copies as usize {
        let used: HashSet<_> = members.iter().map(|&member| state.server_of(member)).collect();
        let stays = |id: &u32| !state.targets[id].drains && !members.contains(id);
        let others = state.targets.keys().copied().filter(stays);
        let cost = |&id: &u32| (used.contains(&state.server_of(id)), load(id), id);
        let best = others.min_by_key(cost).unwrap();
        members.push(best);
    }
    members
}

/// As [`prepare`] makes groups, one after the other.
fn prepared_plainly(state: &mut State, copies: u32) {
    let staying: Vec<u32> =
        state.targets.iter().filter(|(_, t)| !t.drains).map(|(&id, _)| id).collect();
    if staying.len() < copies as usize || copies < 2 {
        return;
    }
    for leader in staying {
        if of_class(state, copies).iter().any(|members| members[0] == leader) {
            continue;
        }
        let members = chosen_plainly(state, leader, copies);
        let id = GroupId::of_class(copies, tables(state).size(copies)).0;
        let in_sync = members.clone();
        let group = Group { epoch: 1, members, in_sync, ..Group::default() };
        state.groups.insert(id, group);
    }
}

#[test]
fn new_groups_have_the_members_that_a_look_at_all_targets_would_find() {
    for seed in 0..300_u64 {
        let mut state = State::default();
        for step in 0..6 {
            let number = |of: u64| strake_base::random::mixed(seed << 16 | step << 8 | of);
            let server = (number(0) % 5) as u32 + 1;
            for _ in 0..number(1) % 4 {
                crate::testing::add_target(&mut state, server);
            }
            for (&id, target) in &mut state.targets {
                target.drains = number(16 + u64::from(id)).is_multiple_of(7);
            }
            let copies = (number(2) % 3) as u32 + 1;
            let mut plainly = state.clone();
            prepared_plainly(&mut plainly, copies);
            extend_class(&mut state, copies, usize::MAX);
            assert!(state.groups == plainly.groups, "seed {seed}, step {step}");
        }
    }
}

/// It went through all targets for each of them under the lock that heartbeats need: 4 to 7 s of 8,000.
#[test]
fn the_first_groups_of_many_targets_are_made_without_going_through_all_of_them_for_each() {
    let mut state = cluster(&[8; 60]);
    for copies in [2, 3] {
        LOOKS.set(0);
        prepare(&mut state, copies).unwrap();
        assert_eq!(of_class(&state, copies).len(), 480);
        assert!(LOOKS.get() < 480 * 40, "{copies} copies: {} looks", LOOKS.get());
    }
}

#[test]
fn copies_lie_on_the_same_server_only_where_there_are_too_few() {
    let mut state = cluster(&[3]);
    prepare(&mut state, 3).unwrap();
    assert!(of_class(&state, 3).iter().all(|m| m.iter().collect::<HashSet<_>>().len() == 3));
    let mut state = cluster(&[2, 1]);
    prepare(&mut state, 3).unwrap();
    assert!(of_class(&state, 3).iter().all(|members| members.contains(&3)));
}

#[test]
fn too_few_targets_are_an_error_that_says_what_to_do() {
    let mut state = cluster(&[1]);
    let error = prepare(&mut state, 2).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.detail.contains(ADD_SERVER), "{error}");
    for copies in [0, COPIES_MAX + 1] {
        assert_eq!(prepare(&mut state, copies).unwrap_err().kind, ErrorKind::Invalid);
    }
    assert_eq!(state.groups.len(), 1);
}

#[test]
fn who_is_gone_is_taken_out_beside_one_that_serves() {
    use Life::{Gone, Quiet, Serves};
    let cases: [([Life; 3], &[u32]); 5] = [
        ([Gone, Serves, Serves], &[2, 3]),
        ([Gone, Serves, Gone], &[2]),
        ([Gone, Gone, Gone], &[1, 2, 3]),
        // The other two may have died in the same moment.
        ([Gone, Quiet, Quiet], &[1, 2, 3]),
        ([Quiet, Serves, Quiet], &[1, 2, 3]),
    ];
    for (known, left) in cases {
        let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
        settle(&mut state, lives(known), |_, _| false, at_once);
        let changed = left.len() < 3;
        assert_eq!(shown(&state), (7 + u64::from(changed), left, &[][..], 0), "{known:?}");
        assert!(is_settled(&state, lives(known), |_, _| false, at_once));
    }
}

#[test]
fn who_is_back_joins_where_the_primary_serves_and_not_while_it_pauses() {
    use Life::{Gone, Quiet, Serves};
    let cases: [([Life; 3], bool, &[u32]); 5] = [
        ([Serves, Serves, Gone], false, &[2]),
        ([Serves, Serves, Gone], true, &[]),
        ([Serves, Quiet, Gone], false, &[]),
        ([Quiet, Serves, Gone], false, &[]),
        ([Serves, Gone, Gone], false, &[]),
    ];
    for (known, pauses, joining) in cases {
        let mut state = with_group(&[1, 2], &[1], &[]);
        let paused = |group: u32, member: u32| pauses && (group, member) == (TWO, 2);
        settle(&mut state, lives(known), paused, at_once);
        assert_eq!(shown(&state).2, joining, "{known:?} {pauses}");
    }
    let mut state = with_group(&[1, 2], &[1], &[2]);
    settle(&mut state, lives([Serves, Gone, Gone]), |_, _| false, at_once);
    assert_eq!(shown(&state), (8, &[1][..], &[][..], 0), "it is gone before it was equal");
}

#[test]
fn a_member_that_returns_is_taken_out_while_another_lives() {
    let mut state = with_group(&[1, 2], &[1, 2], &[]);
    returned(&mut state, &back(&[1], true), |_| Since::Lives).unwrap();
    assert_eq!(shown(&state), (8, &[2][..], &[][..], 0));
}

#[test]
fn a_member_returns_later_while_it_is_not_known_whether_another_lives() {
    let mut state = with_group(&[1, 2], &[1, 2], &[]);
    let error = returned(&mut state, &back(&[1], true), |_| Since::Unknown).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert_eq!(shown(&state).0, 7);
    let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
    let since = |target| if target == 2 { Since::Unknown } else { Since::Lives };
    returned(&mut state, &back(&[1], true), since).unwrap();
    assert_eq!(shown(&state).1, [2, 3], "one that lives is enough");
}

#[test]
fn a_group_of_which_nobody_lives_is_founded_again_on_who_returns_first() {
    for (rebooted, losses) in [(false, 0), (true, 1)] {
        let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
        returned(&mut state, &back(&[2, 3], rebooted), |_| Since::Gone).unwrap();
        assert_eq!(shown(&state), (8, &[2][..], &[][..], losses));
        // Alone it needs nobody, and still forgets what was under way.
        returned(&mut state, &back(&[2], rebooted), |_| Since::Gone).unwrap();
        assert_eq!(shown(&state), (9, &[2][..], &[][..], losses * 2));
        returned(&mut state, &back(&[1], rebooted), |_| Since::Gone).unwrap();
        assert_eq!(shown(&state), (9, &[2][..], &[][..], losses * 2), "it was not in sync");
    }
}

/// The group went on with what was left on the disk of the one that lost its memory, although the other one had everything.
#[test]
fn who_is_heard_and_refused_lives_for_one_that_has_lost_something() {
    for (rebooted, in_sync) in [(true, 2), (false, 1)] {
        let mut state = with_group(&[1, 2], &[1, 2], &[]);
        returned(&mut state, &back(&[1], rebooted), |_| Since::Refused).unwrap();
        assert_eq!(shown(&state), (8, &[in_sync][..], &[][..], 0), "rebooted: {rebooted}");
    }
}

#[test]
fn a_server_with_all_members_founds_its_groups_again_without_waiting() {
    let mut state = with_group(&[1, 2], &[1, 2], &[]);
    let own = HashSet::from([1, 2]);
    let one = Return { targets: &[2], own, rebooted: HashSet::new() };
    // Target 1 is on the same server, which came without it.
    returned(&mut state, &one, |_| Since::Unknown).unwrap();
    assert_eq!(shown(&state), (8, &[2][..], &[][..], 0));
}

/// It was always the first: what that one had lost was lost, although the other target of the same server had it.
#[test]
fn a_group_is_founded_again_on_a_target_that_has_lost_nothing_where_the_server_brings_one() {
    let cases: [(&[u32], u32, u64); 4] = [(&[], 1, 0), (&[1], 2, 0), (&[2], 1, 0), (&[1, 2], 1, 1)];
    for (rebooted, first, losses) in cases {
        let mut state = with_group(&[1, 2], &[1, 2], &[]);
        let own = HashSet::from([1, 2]);
        let both = Return { targets: &[1, 2], own, rebooted: rebooted.iter().copied().collect() };
        returned(&mut state, &both, |_| Since::Gone).unwrap();
        assert_eq!(shown(&state), (8, &[first][..], &[][..], losses), "{rebooted:?}");
    }
}

#[test]
fn one_that_returns_while_it_joins_begins_anew() {
    let mut state = with_group(&[1, 2], &[1], &[2]);
    returned(&mut state, &back(&[2], false), |_| Since::Unknown).unwrap();
    assert_eq!(shown(&state), (8, &[1][..], &[][..], 0));
}

#[test]
fn who_led_by_the_list_leads_again_when_no_earlier_promise_binds_it() {
    use Life::{Gone, Quiet, Serves, Steady};
    let cases: [([Life; 3], &[u32], &[u32]); 5] = [
        ([Steady, Serves, Serves], &[], &[1, 2, 3]),
        ([Serves, Steady, Steady], &[], &[3, 1, 2]),
        ([Steady, Quiet, Steady], &[], &[3, 1, 2]),
        ([Steady, Gone, Steady], &[], &[3, 1]),
        ([Steady, Steady, Steady], &[2], &[3, 1]),
    ];
    for (known, joining, led) in cases {
        let in_sync = if joining.is_empty() { &[3, 1, 2][..] } else { &[3, 1] };
        let mut state = with_group(&[1, 2, 3], in_sync, joining);
        settle(&mut state, lives(known), |_, _| false, at_once);
        assert_eq!(shown(&state).1, led, "{known:?}");
        assert_eq!(shown(&state).0, 7 + u64::from(led != in_sync), "{known:?}");
    }
}

/// What the one that led had acknowledged alone was written over, though nobody had failed.
#[test]
fn who_led_by_the_list_waits_for_the_word_of_the_one_that_leads() {
    let settled = |state: &mut State, said: Yields| {
        settle(state, lives([Life::Steady; 3]), |_, _| false, |_, _| said);
        assert!(is_settled(state, lives([Life::Steady; 3]), |_, _| false, |_, _| said));
    };
    let mut state = with_group(&[1, 2, 3], &[3, 1, 2], &[]);
    settled(&mut state, Yields::NotYet);
    assert_eq!(shown(&state), (7, &[3, 1, 2][..], &[][..], 0), "3 leads on");
    assert_eq!(state.groups[&TWO].hand_over, 7, "and is asked");
    settled(&mut state, Yields::As(5));
    assert_eq!(shown(&state), (8, &[1, 2, 3][..], &[][..], 0));
    let group = &state.groups[&TWO];
    assert_eq!((group.handed_in, group.stands_for), (8, 5), "what 3 has acknowledged 1 has");
}

#[test]
fn only_a_report_of_this_very_epoch_brings_in_sync() {
    let report = Resynced { group: TWO, epoch: 7, member: 1, failed: false, ..Resynced::default() };
    let mut state = with_group(&[1, 2], &[2], &[1]);
    for odd in [
        Resynced { epoch: 6, ..report.clone() },
        Resynced { epoch: 8, ..report.clone() },
        Resynced { member: 3, ..report.clone() },
        Resynced { member: 2, ..report.clone() },
    ] {
        resynced(&mut state, &odd).unwrap();
        assert_eq!(shown(&state), (7, &[2][..], &[1][..], 0), "{odd:?}");
    }
    resynced(&mut state, &report).unwrap();
    assert_eq!(shown(&state), (8, &[2, 1][..], &[][..], 0), "who led meanwhile leads on");
    resynced(&mut state, &report).unwrap();
    assert_eq!(shown(&state).0, 8, "said twice, heard once");
    let mut state = with_group(&[1, 2], &[2], &[1]);
    resynced(&mut state, &Resynced { failed: true, ..report.clone() }).unwrap();
    assert_eq!(shown(&state), (8, &[2][..], &[][..], 0));
    let unknown = Resynced { group: 900, ..report.clone() };
    assert_eq!(resynced(&mut state, &unknown).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn one_in_sync_that_could_not_take_a_change_is_taken_out_and_the_primary_never() {
    let report = Resynced { group: TWO, epoch: 7, member: 2, failed: true, ..Resynced::default() };
    let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
    resynced(&mut state, &Resynced { member: 1, ..report.clone() }).unwrap();
    resynced(&mut state, &Resynced { epoch: 6, ..report.clone() }).unwrap();
    assert_eq!(shown(&state), (7, &[1, 2, 3][..], &[][..], 0));
    resynced(&mut state, &report).unwrap();
    assert_eq!(shown(&state), (8, &[1, 3][..], &[][..], 0));
}

/// It stayed in its groups as long as its server spoke, and they took no writes.
#[test]
fn one_whose_disk_hangs_takes_itself_out_beside_one_that_serves_the_primary_too() {
    use Life::{Quiet, Serves};
    let hangs = Resynced {
        group: TWO,
        epoch: 7,
        member: 1,
        failed: true,
        hangs: true,
        ..Resynced::default()
    };
    let known = || lives([Quiet, Serves, Quiet]);
    let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
    let late = Resynced { epoch: 6, ..hangs.clone() };
    assert!(!keep_needed(&mut state, &late, known()));
    resynced(&mut state, &late).unwrap();
    assert_eq!(shown(&state), (7, &[1, 2, 3][..], &[][..], 0), "it may serve again");
    assert!(!keep_needed(&mut state, &hangs, known()));
    resynced(&mut state, &hangs).unwrap();
    assert_eq!(shown(&state), (8, &[2, 3][..], &[][..], 0));
    settle(&mut state, lives([Quiet, Serves, Serves]), |_, _| false, at_once);
    assert_eq!(shown(&state).0, 8, "not as long as it hangs");
    settle(&mut state, lives([Serves; 3]), |_, _| false, at_once);
    assert_eq!(shown(&state), (9, &[2, 3][..], &[1][..], 0));
    // Others may be as it is, or dead: then it goes on, in a new epoch because it has resigned from this one.
    let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
    assert!(keep_needed(&mut state, &hangs, lives([Quiet; 3])));
    assert_eq!(shown(&state), (8, &[1, 2, 3][..], &[][..], 0));
    // Never the last one.
    let mut state = with_group(&[1, 2], &[1], &[]);
    assert!(!keep_needed(&mut state, &hangs, known()));
    resynced(&mut state, &hangs).unwrap();
    assert_eq!(shown(&state), (7, &[1][..], &[][..], 0));
}

#[test]
fn groups_of_one_copy_never_change() {
    let mut state = cluster(&[1, 1]);
    let before = state.clone();
    let life = |target| if target == 1 { Life::Gone } else { Life::Serves };
    settle(&mut state, life, |_, _| false, at_once);
    returned(&mut state, &back(&[2], true), |_| Since::Gone).unwrap();
    let report = Resynced { group: 0, epoch: 1, member: 1, failed: true, ..Resynced::default() };
    resynced(&mut state, &report).unwrap();
    assert!(state == before);
}

#[test]
fn a_member_that_leaves_goes_when_as_many_others_are_in_sync_as_there_are_to_be_copies() {
    use Life::{Gone, Serves};
    let with_leaving = |members: &[u32], in_sync: &[u32]| {
        let mut state = with_group(members, in_sync, &[]);
        state.groups.get_mut(&TWO).unwrap().leaving = vec![1];
        state
    };
    let leaves = Resynced { group: TWO, epoch: 7, member: 1, failed: true, ..Resynced::default() };
    // It says itself that it answers nobody any more.
    let mut state = with_leaving(&[1, 3, 2], &[1, 3, 2]);
    settle(&mut state, lives([Serves; 3]), |_, _| false, at_once);
    assert_eq!(shown(&state).0, 7, "its lease may last");
    resynced(&mut state, &leaves).unwrap();
    assert_eq!(shown(&state), (8, &[3, 2][..], &[][..], 0));
    assert_eq!(state.groups[&TWO].members, [3, 2]);
    assert!(state.groups[&TWO].leaving.is_empty());
    // There would be one copy only.
    let mut state = with_leaving(&[1, 3, 2], &[1, 3]);
    resynced(&mut state, &leaves).unwrap();
    assert_eq!(shown(&state).1, [1, 3]);
    // It is gone, and was taken out by its lease.
    let mut state = with_leaving(&[1, 3, 2], &[1, 3, 2]);
    settle(&mut state, lives([Gone, Serves, Serves]), |_, _| false, at_once);
    assert_eq!(state.groups[&TWO].members, [3, 2]);
    let mut state = with_leaving(&[1, 3, 2], &[1, 2]);
    settle(&mut state, lives([Gone, Serves, Serves]), |_, _| false, at_once);
    assert_eq!((&state.groups[&TWO].members, shown(&state).2), (&vec![1, 3, 2], &[3][..]));
}

#[test]
fn a_group_of_one_copy_that_moves_keeps_its_word_for_who_vouches_for_it() {
    let mut state = cluster(&[1, 1]);
    let group = state.groups.get_mut(&0).unwrap();
    (group.members, group.joining, group.leaving) = (vec![1, 2], vec![2], vec![1]);
    let report = Resynced {
        group: 0,
        epoch: 1,
        member: 2,
        word: 11,
        primary_boot: 11,
        member_boot: 22,
        ..Resynced::default()
    };
    resynced(&mut state, &report).unwrap();
    let voucher = |(target, boot)| Voucher { target, boot };
    let group = &state.groups[&0];
    assert_eq!((group.in_sync.as_slice(), group.word), (&[1, 2][..], 11));
    assert_eq!(group.vouchers, [(1, 11), (2, 22)].map(voucher));
    let leaves = Resynced { epoch: 2, member: 1, failed: true, word: 0, ..report.clone() };
    resynced(&mut state, &leaves).unwrap();
    assert_eq!((&state.groups[&0].members, state.groups[&0].word), (&vec![2], 11));
}

#[test]
fn new_groups_lie_on_targets_that_stay_whatever_was_removed() {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    state.targets.get_mut(&1).unwrap().drains = true;
    for group in state.groups.values_mut() {
        group.members.retain(|member| *member != 1);
    }
    state.targets.remove(&1);
    assert_eq!(enter_target(&mut state, 1), 4, "no number is used again");
    assert_eq!(sizes(&state), [3, 3], "it gets those of target 1");
    assert_eq!(enter_target(&mut state, 1), 5);
    assert_eq!(state.groups[&3].members, [5]);
    let fifth = &state.groups[&(TWO + 3)];
    assert_eq!(fifth.members[0], 5);
    assert!(!fifth.members.contains(&1));
    prepare(&mut state, 3).unwrap();
    assert_eq!(of_class(&state, 3).len(), 4);
    for target in state.targets.values_mut().take(2) {
        target.drains = true;
    }
    assert_eq!(prepare(&mut state, 3).unwrap_err().kind, ErrorKind::Invalid);
}

/// Each target that was added led a new group of each class, however many there were.
#[test]
fn a_target_leads_a_new_group_only_where_there_are_fewer_than_targets_or_who_names_it_needs_one() {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    state.targets.get_mut(&3).unwrap().drains = true;
    let new = enter_target(&mut state, 1);
    prepare(&mut state, 1).unwrap();
    prepare(&mut state, 2).unwrap();
    assert_eq!(sizes(&state), [3, 3], "three stay");
    prepare_named(&mut state, &naming(1, &[new])).unwrap();
    assert_eq!(sizes(&state), [4, 3]);
    prepare_named(&mut state, &naming(2, &[new])).unwrap();
    assert_eq!(sizes(&state), [4, 4]);
    assert!([3, TWO + 3].iter().all(|id| state.groups[id].members[0] == new));
}

/// Each target that led none got one for good, whoever was named.
#[test]
fn who_is_named_leads_a_group_and_nobody_else_gets_one() {
    let mut state = cluster(&[1, 1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    for id in [3, 4] {
        state.targets.get_mut(&id).unwrap().drains = true;
    }
    let new = [1, 2].map(|server| enter_target(&mut state, server));
    let mut named = |copies, targets: &[u32]| {
        prepare_named(&mut state, &naming(copies, targets)).unwrap();
        sizes(&state)
    };
    assert_eq!(named(1, &[new[0], 1, 3]), [5, 4], "target 3 goes");
    assert_eq!(named(1, &[new[0]]), [5, 4], "it leads one");
    assert_eq!(named(2, &[]), [5, 6], "an earlier release means all that stay");
}

/// A target that came back once led a group of three copies with one other: the third was being emptied.
#[test]
fn no_group_is_made_with_fewer_members_than_copies() {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 3).unwrap();
    state.groups.retain(|_, group| group.members[0] != 1);
    state.targets.get_mut(&3).unwrap().drains = true;
    extend_class(&mut state, 3, usize::MAX);
    assert_eq!(of_class(&state, 3).len(), 2);
    state.targets.get_mut(&3).unwrap().drains = false;
    extend_class(&mut state, 3, usize::MAX);
    assert_eq!(of_class(&state, 3).len(), 3);
    assert!(of_class(&state, 3).iter().all(|members| members.len() == 3));
}

#[test]
fn who_leaves_goes_on_while_too_few_of_the_others_live() {
    use Life::{Gone, Quiet, Serves};
    let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
    state.groups.get_mut(&TWO).unwrap().leaving = vec![1];
    let report =
        |epoch| Resynced { group: TWO, epoch, member: 1, failed: true, ..Resynced::default() };
    assert!(keep_needed(&mut state, &report(7), lives([Serves, Serves, Quiet])));
    assert_eq!(shown(&state), (8, &[1, 2, 3][..], &[][..], 0), "3 may be dead: 1 answers again");
    assert!(!keep_needed(&mut state, &report(7), lives([Serves, Serves, Quiet])), "long over");
    settle(&mut state, lives([Serves, Serves, Gone]), |_, _| false, at_once);
    assert_eq!(shown(&state), (9, &[1, 2][..], &[][..], 0));
    let mut state = with_group(&[1, 2, 3], &[1, 2, 3], &[]);
    state.groups.get_mut(&TWO).unwrap().leaving = vec![1];
    assert!(!keep_needed(&mut state, &report(7), lives([Serves; 3])));
    // Its disk is broken: that is no question of who else lives.
    let group = state.groups.get_mut(&TWO).unwrap();
    (group.in_sync, group.leaving) = (vec![2, 1], vec![1]);
    assert!(!keep_needed(&mut state, &report(7), lives([Serves, Serves, Gone])));
}
