use super::empties::LOOKS;
use super::even::{GAIN_PART, SEARCHES, best_move};
use super::*;
use crate::groups::prepare;
use crate::records::Job;
use crate::testing::{add_target, all_serve, cluster};

const TWO: u32 = GroupId::of_class(2, 0).0;

/// Everything that leaves, of which nothing is planned yet.
fn empty(state: &State, facts: &Facts, wanted: &Wanted) -> Result<Vec<Item>> {
    super::empty(state, facts, wanted, Vec::new())
}

fn leaving(targets: &[u32]) -> Wanted {
    let leaving = targets.iter().copied().collect();
    Wanted { leaving, to: None, force: false, lose_data: false, stays: false }
}

fn pairs(items: &[Item]) -> Vec<(u32, u32, u32)> {
    items.iter().map(|item| (item.group, item.from, item.to)).collect()
}

/// What servers hold the copies of each group when everything is done.
fn check_apart(state: &State, items: &[Item]) {
    for (id, group) in &state.groups {
        let mut members = group.members.clone();
        for item in items.iter().filter(|item| item.group == *id) {
            assert!(!members.contains(&item.to), "group {id}");
            members.iter_mut().filter(|m| **m == item.from).for_each(|m| *m = item.to);
        }
        let servers: HashSet<_> = members.iter().map(|&m| state.server_of(m)).collect();
        assert_eq!(servers.len(), members.len(), "group {id}: {members:?}");
    }
}

#[test]
fn everything_of_a_server_goes_to_others_and_copies_stay_apart() {
    let mut state = cluster(&[2, 2, 2, 2]);
    prepare(&mut state, 2).unwrap();
    prepare(&mut state, 3).unwrap();
    let facts = all_serve(&state, 100);
    let items = empty(&state, &facts, &leaving(&[3, 4])).unwrap();
    let places = state.groups.values().flat_map(|g| &g.members).filter(|m| [3, 4].contains(*m));
    assert_eq!(items.len(), places.count());
    assert!(items.iter().all(|item| ![3, 4].contains(&item.to) && item.bytes == 100));
    check_apart(&state, &items);
    let got = |target| items.iter().filter(|item| item.to == target).count();
    let counts: Vec<usize> = [1, 2, 5, 6, 7, 8].map(got).to_vec();
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 2, "{counts:?}");
}

#[test]
fn a_replacement_gets_all_but_where_it_is_a_member_already() {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    let new = add_target(&mut state, 2);
    state.groups.insert(
        TWO + 3,
        Group { epoch: 1, members: vec![new, 2], in_sync: vec![new, 2], ..Group::default() },
    );
    let facts = all_serve(&state, 10);
    let wanted = Wanted { to: Some(new), ..leaving(&[2]) };
    let items = empty(&state, &facts, &wanted).unwrap();
    for item in &items {
        assert_eq!(item.to == new, item.group != TWO + 3, "{item:?}");
        assert_eq!(item.fixed, item.to == new);
    }
    assert!(items.iter().any(|item| item.group == TWO + 3));
}

#[test]
fn too_few_targets_or_servers_are_refused_with_the_sentence_why() {
    let mut state = cluster(&[1, 1]);
    prepare(&mut state, 2).unwrap();
    let error = empty(&state, &all_serve(&state, 1), &leaving(&[2])).unwrap_err();
    assert!(error.detail.contains("keeps 2 copies"), "{error}");
    assert!(error.detail.contains(ADD_SERVER), "{error}");
    let mut state = cluster(&[2, 1]);
    prepare(&mut state, 2).unwrap();
    let error = empty(&state, &all_serve(&state, 1), &leaving(&[3])).unwrap_err();
    assert!(error.detail.contains("on one server") && error.detail.contains("--force"), "{error}");
    let forced = Wanted { force: true, ..leaving(&[3]) };
    assert!(empty(&state, &all_serve(&state, 1), &forced).is_ok());
    let mut full = all_serve(&state, 100);
    full.free.extend([(1, 50), (2, 50)]);
    let error = empty(&state, &full, &forced).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    assert!(error.detail.contains(ADD_DISK), "{error}");
}

/// Two copies that somebody had asked for and taken back made each drain of one of two servers impossible.
#[test]
fn what_nobody_else_can_take_and_nothing_is_in_stays_with_who_is_only_drained() {
    let mut state = cluster(&[1, 1]);
    prepare(&mut state, 2).unwrap();
    let mut facts = all_serve(&state, 1);
    let drained = Wanted { stays: true, ..leaving(&[2]) };
    assert!(empty(&state, &facts, &drained).is_err());
    assert!(check_places(&state, &facts, &drained).is_err());
    facts.held.retain(|(_, group), _| *group < TWO);
    let items = empty(&state, &facts, &drained).unwrap();
    assert_eq!(pairs(&items), [(1, 2, 1)], "what is in use goes");
    check_places(&state, &facts, &drained).unwrap();
    assert!(
        empty(&state, &facts, &leaving(&[2])).is_err(),
        "who leaves the cluster can leave nothing"
    );
    facts.held.insert((2, TWO), 0);
    assert!(
        empty(&state, &facts, &drained).is_err(),
        "something may be there that was not counted"
    );
    // Nobody would answer for what comes.
    facts.held.remove(&(2, TWO));
    state.targets.get_mut(&1).unwrap().drains = true;
    assert!(check_places(&state, &facts, &drained).is_err());
}

#[test]
fn what_only_a_dead_target_has_is_given_up_by_name_alone() {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    let mut facts = all_serve(&state, 7);
    facts.lives.insert(2, Life::Gone);
    let error = empty(&state, &facts, &leaving(&[2])).unwrap_err();
    assert!(error.detail.contains("group 1:") && error.detail.contains("--lose-data"), "{error}");
    let lossy = Wanted { lose_data: true, ..leaving(&[2]) };
    let items = empty(&state, &facts, &lossy).unwrap();
    let lost: Vec<u32> = items.iter().filter(|item| item.lost).map(|item| item.group).collect();
    assert_eq!(lost, [1], "of two copies the other one lives");
    // Nobody has ever written anything there.
    state.groups.get_mut(&1).unwrap().never_used = true;
    assert!(empty(&state, &facts, &leaving(&[2])).is_ok());
}

#[test]
fn whole_groups_move_as_long_as_that_evens_out() {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    for server in 4..=6 {
        add_target(&mut state, server);
    }
    let mut facts = all_serve(&state, 0);
    for (&id, group) in state.groups.iter().filter(|(id, _)| **id < 3 || **id >= TWO) {
        facts.held.extend(group.members.iter().map(|&member| ((member, id), 100)));
    }
    let items = even_out(&state, &facts);
    check_apart(&state, &items);
    let mut loads = Loads::of(&state, &facts);
    assert_eq!((1..=6).map(|t| loads.bytes(t)).collect::<Vec<_>>(), [300, 300, 300, 0, 0, 0]);
    items.iter().for_each(|item| loads.moved(item));
    let after: Vec<u64> = (1..=6).map(|t| loads.bytes(t)).collect();
    assert!(after.iter().all(|bytes| (100..=200).contains(bytes)), "{after:?}");
    let groups: HashSet<u32> = items.iter().map(|item| item.group).collect();
    assert_eq!(groups.len(), items.len(), "{:?}", pairs(&items));
    assert!(even_out(&state, &all_serve(&state, 0)).is_empty(), "nothing is there to even out");
    facts.lives.extend([(4, Life::Gone), (5, Life::Gone), (6, Life::Quiet)]);
    assert!(even_out(&state, &facts).is_empty(), "nobody serves who could take something");
}

#[test]
fn copies_on_one_server_are_brought_onto_two_where_there_are_two_by_now() {
    let mut state = cluster(&[3]);
    prepare(&mut state, 2).unwrap();
    assert!(even_out(&state, &all_serve(&state, 0)).is_empty(), "there is nowhere else");
    for server in 2..=3 {
        add_target(&mut state, server);
    }
    let items = even_out(&state, &all_serve(&state, 0));
    assert_eq!(items.len(), 3);
    check_apart(&state, &items);
}

/// As it is meant, with all targets gone through for each group.
fn best_plainly(
    state: &State,
    facts: &Facts,
    loads: &Loads,
    taken: &HashSet<u32>,
) -> Option<(u32, u32, u32)> {
    let able = |id: &u32| facts.serves(*id) && !state.targets[id].drains;
    let mut best: Option<(u64, (u32, u32, u32))> = None;
    for (&id, group) in state.groups.iter().filter(|(id, _)| !taken.contains(id)) {
        let bytes = facts.bytes_of(id, group);
        for from in group.in_sync.iter().copied().filter(|from| bytes > 0 && able(from)) {
            let members = group.without(from);
            let place = Place { id, members: &members, from };
            let copies = GroupId(id).copies();
            let has_empty = |to: u32| {
                let mut alike =
                    state.groups.iter().filter(|(h, _)| GroupId(**h).copies() == copies);
                alike.any(|(h, g)| {
                    !taken.contains(h) && facts.is_empty(*h, g) && g.in_sync.contains(&to)
                })
            };
            let takes = |to: &u32| {
                let apart = !group.members.contains(to) && !place.brings_together(state, *to);
                let may_go = loads.places(copies, from) > 1 || !loads.fits(facts, from, 0);
                let goes = may_go || has_empty(*to);
                able(to) && apart && goes && loads.fits(facts, *to, bytes)
            };
            let to = state.targets.keys().copied().filter(takes);
            let full = |to: u32| loads.fill_with(to, bytes);
            let Some(to) = to.min_by_key(|&to| (full(to), loads.fill_now(to), to)) else {
                continue;
            };
            let left = loads.bytes(from).saturating_sub(bytes);
            let gain = loads.fill_now(from).saturating_sub(loads.fill(from, left).max(full(to)));
            let worth = gain > (full(to) - loads.fill_now(to)) / GAIN_PART;
            if worth && best.is_none_or(|(most, _)| gain > most) {
                best = Some((gain, (id, from, to)));
            }
        }
    }
    best.map(|(_, found)| found)
}

#[test]
fn the_move_that_evens_out_most_is_found_without_going_through_all_targets_for_each_group() {
    let mut moves = 0;
    for seed in 0..40_u64 {
        let mut state = cluster(&[3, 2, 4, 1]);
        prepare(&mut state, 2).unwrap();
        let mut facts = all_serve(&state, 0);
        let some = |id: u32, salt: u64| {
            strake_base::random::mixed(seed << 40 | salt << 32 | u64::from(id))
        };
        for ((target, group), bytes) in &mut facts.held {
            *bytes = some(*group, 1) % 1000;
            facts.total.insert(*target, 5_000 + some(*target, 4) % 20_000);
            if some(*target, 2) % 4 == 0 {
                facts.free.insert(*target, some(*target, 3) % 3_000);
            }
        }
        facts.held.retain(|(_, group), _| some(*group, 5) % 5 > 0);
        state.targets.values_mut().step_by(5).for_each(|target| target.drains = seed % 2 == 0);
        let (mut loads, mut taken) = (Loads::of(&state, &facts), HashSet::new());
        loop {
            let item = best_move(&state, &facts, &loads, &taken);
            let found = item.as_ref().map(|item| (item.group, item.from, item.to));
            assert_eq!(found, best_plainly(&state, &facts, &loads, &taken), "seed {seed}");
            let Some(item) = item else { break };
            loads.moved(&item);
            taken.insert(item.group);
            moves += 1;
        }
    }
    assert!(moves > 20, "{moves}");
}

/// Only one group at a time was held against what is free: all that fitted alone went to the one small disk, which was full to
/// the last byte then, while the others were at 3 %.
#[test]
fn no_more_is_planned_to_go_to_a_target_than_it_has_room_for_and_the_share_of_its_size_counts() {
    let mut state = cluster(&[6, 6]);
    let small = add_target(&mut state, 3);
    let empty = state.groups[&12].clone();
    state.groups.extend((13..15).map(|id| (id, empty.clone())));
    let mut facts = all_serve(&state, 3_000);
    facts.held.retain(|(target, _), _| *target != small);
    facts.total.values_mut().for_each(|total| *total = 100_000);
    facts.free.values_mut().for_each(|free| *free = 97_000);
    facts.total.insert(small, 10_000);
    facts.free.insert(small, 9_000);
    let moved = |facts: &Facts| {
        even_out(&state, facts).iter().filter(|item| item.to == small && item.bytes > 0).count()
    };
    assert_eq!(moved(&facts), 0, "all are as full as it would be, or less");
    // Fuller ones give it one group: a second one would leave it fuller than they are, or without room.
    for (free, wanted) in [(9_000, 1), (3_000, 0)] {
        facts.free.insert(small, free);
        facts.held.values_mut().filter(|bytes| **bytes > 0).for_each(|bytes| *bytes = 2_900);
        facts
            .total
            .iter_mut()
            .filter(|(id, _)| **id != small)
            .for_each(|(_, total)| *total = 8_000);
        assert_eq!(moved(&facts), wanted, "{free} free");
    }
}

/// It was in no group then, and no new file came there any more.
#[test]
fn a_target_gives_its_only_group_for_one_in_which_nothing_is() {
    let mut state = cluster(&[1, 1]);
    let large = add_target(&mut state, 3);
    let mut facts = all_serve(&state, 900);
    facts.held.remove(&(large, 2));
    facts.total = HashMap::from([(1, 1_000), (2, 1_000), (large, 4_000)]);
    facts.free = HashMap::from([(1, 100), (2, 100), (large, 4_000)]);
    assert_eq!(pairs(&even_out(&state, &facts)), [(0, 1, large), (2, large, 1)]);
    let mut full = facts.clone();
    full.free.extend([(1, 0), (2, 0)]);
    let items = even_out(&state, &full);
    assert_eq!(pairs(&items), [(0, 1, large), (2, large, 1), (1, 2, large)], "also without room");
    facts.held.insert((large, 2), 1);
    assert!(even_out(&state, &facts).is_empty(), "nothing comes back for it");
}

/// A target that has come when others had left: it is in no group.
fn add_bare(state: &mut State, server: u32) -> u32 {
    let id = add_target(state, server);
    state.groups.retain(|_, group| !group.members.contains(&id));
    id
}

#[test]
fn who_finds_no_group_gets_one_from_a_target_that_is_in_more_when_all_else_has_moved() {
    let mut state = cluster(&[1, 1]);
    let new = add_bare(&mut state, 3);
    let mut facts = all_serve(&state, 900);
    facts.held.insert((2, 1), 50);
    facts.total = HashMap::from([(1, 1_000), (2, 4_000), (new, 200)]);
    facts.free = HashMap::from([(1, 0), (2, 3_950), (new, 200)]);
    assert_eq!(pairs(&even_out(&state, &facts)), [(0, 1, 2), (1, 2, new)]);
}

/// After each move a group was looked for anew, among all, for each target that had found none.
#[test]
fn who_finds_no_group_is_not_asked_again_after_each_move() {
    let mut state = cluster(&[1, 1]);
    let one = state.groups[&0].clone();
    state.groups.extend((2..22).map(|id| (id, one.clone())));
    let small = [3; 10].map(|server| add_bare(&mut state, server));
    let mut facts = all_serve(&state, 100);
    facts.total = HashMap::from([(1, 10_000), (2, 10_000)]);
    for id in small {
        facts.total.insert(id, 50);
        facts.free.insert(id, 50);
    }
    SEARCHES.set(0);
    assert_eq!(even_out(&state, &facts).len(), 10);
    assert_eq!(SEARCHES.get(), 20, "at first, and when all else has moved");
}

/// Where copies lie on one server the same was counted for each group alone.
#[test]
fn copies_are_brought_apart_as_far_as_there_is_room_for_all_of_them() {
    let mut state = cluster(&[4]);
    prepare(&mut state, 2).unwrap();
    let new = add_target(&mut state, 2);
    let mut facts = all_serve(&state, 0);
    for (&id, group) in state.groups.iter().filter(|(id, _)| **id >= TWO) {
        facts.held.extend(group.members.iter().map(|&member| ((member, id), 300)));
    }
    facts.total.insert(new, 1_000);
    facts.free.insert(new, 1_000);
    assert_eq!(even_out(&state, &facts).len(), 3, "the fourth would leave nothing free");
}

/// All went to the one target with the fewest bytes, as nothing of theirs counted.
#[test]
fn what_was_not_counted_yet_goes_to_who_has_the_fewest_groups() {
    let state = cluster(&[4, 1, 1, 1]);
    let mut facts = all_serve(&state, 0);
    // Two have something else, which was counted, and the third has nothing.
    facts.held.extend([((5, 4), 1_000), ((6, 5), 1_000)]);
    let items = empty(&state, &facts, &leaving(&[1, 2, 3, 4])).unwrap();
    let got = |target| items.iter().filter(|item| item.to == target).count();
    assert_eq!(items.len(), 4);
    assert!((5..=7).all(|target| (1..=2).contains(&got(target))), "{:?}", pairs(&items));
    assert!(items.iter().all(|item| item.uncounted && item.bytes == 0));
}

/// In how many groups of so many copies some targets are when everything is done.
fn places(state: &State, facts: &Facts, items: &[Item], copies: u32, targets: &[u32]) -> Vec<u64> {
    let mut loads = Loads::of(state, facts);
    items.iter().for_each(|item| loads.moved(item));
    targets.iter().map(|&target| loads.places(copies, target)).collect()
}

/// After a server had left, all groups in which nothing was lay on the one target that had held the least, and most of each new
/// file with them.
#[test]
fn what_nothing_is_in_goes_to_who_has_the_fewest_groups_of_its_kind() {
    let mut state = cluster(&[4, 1, 1, 1]);
    let mut facts = all_serve(&state, 0);
    facts.held = HashMap::from([((5, 4), 3_000), ((6, 5), 2_000)]);
    let mut almost_full = facts.clone();
    almost_full.free.insert(7, 1 << 34);
    let items = empty(&state, &almost_full, &leaving(&[1, 2, 3, 4])).unwrap();
    assert_eq!(places(&state, &facts, &items, 1, &[5, 6, 7]), [3, 3, 1], "it takes no new files");
    prepare(&mut state, 2).unwrap();
    let items = empty(&state, &facts, &leaving(&[1, 2, 3, 4])).unwrap();
    check_apart(&state, &items);
    for copies in [1, 2] {
        let places = places(&state, &facts, &items, copies, &[5, 6, 7]);
        assert!(places.iter().max().unwrap() - places.iter().min().unwrap() <= 1, "{places:?}");
    }
}

/// Nothing that a rebalance did moved them: they made nobody fuller.
#[test]
fn what_nothing_is_in_is_spread_by_number_and_each_kind_by_itself() {
    let mut state = cluster(&[1, 1, 1]);
    let on =
        |target: u32| Group { members: vec![target], in_sync: vec![target], ..Group::default() };
    state.groups.extend((3..).zip([1, 1, 1, 1, 2]).map(|(id, target)| (id, on(target))));
    let pair = Group { members: vec![2, 3], in_sync: vec![2, 3], ..Group::default() };
    state.groups.extend((TWO..TWO + 3).map(|id| (id, pair.clone())));
    let mut facts = all_serve(&state, 0);
    assert!(even_out(&state, &facts).is_empty(), "something may be there that was not counted");
    facts.held.clear();
    let items = even_out(&state, &facts);
    check_apart(&state, &items);
    for (copies, before, after) in [(1, [5, 2, 1], [3, 3, 2]), (2, [0, 3, 3], [2, 2, 2])] {
        assert_eq!(places(&state, &facts, &[], copies, &[1, 2, 3]), before);
        assert_eq!(places(&state, &facts, &items, copies, &[1, 2, 3]), after);
    }
    facts.free.insert(1, 1 << 34);
    facts.free.insert(3, 1 << 34);
    let items = even_out(&state, &facts);
    assert!(items.iter().all(|item| item.to == 2), "the others take no new files");
    facts.lives.insert(2, Life::Quiet);
    assert!(even_out(&state, &facts).is_empty());
}

/// One that the same plan takes away counted as a copy beside which another lies, and so both went to the new server.
#[test]
fn copies_that_are_brought_apart_stay_so_where_nothing_is_in_them() {
    let mut state = cluster(&[2]);
    prepare(&mut state, 2).unwrap();
    let pair = state.groups[&TWO].clone();
    state.groups.extend((TWO + 1..TWO + 4).map(|id| (id, pair.clone())));
    for _ in 0..4 {
        add_target(&mut state, 2);
    }
    let mut facts = all_serve(&state, 0);
    facts.held.clear();
    check_apart(&state, &even_out(&state, &facts));
}

#[test]
fn what_nothing_is_in_is_spread_over_many_targets_without_a_look_at_all_of_them_for_each() {
    let mut state = cluster(&[8; 60]);
    state.groups.values_mut().for_each(|group| (group.members, group.in_sync) = (vec![1], vec![1]));
    let mut facts = all_serve(&state, 0);
    facts.held.clear();
    LOOKS.set(0);
    assert_eq!(even_out(&state, &facts).len(), 479);
    assert!(LOOKS.get() < 480 * 2, "{} looks", LOOKS.get());
    let mut state = cluster(&[8; 60]);
    prepare(&mut state, 2).unwrap();
    prepare(&mut state, 3).unwrap();
    LOOKS.set(0);
    assert!(even_out(&state, &facts).is_empty());
    assert_eq!(LOOKS.get(), 0);
}

#[test]
fn what_a_group_had_when_it_was_moved_counts_until_its_new_holder_has_counted() {
    let mut state = cluster(&[1, 1]);
    let done = Item { group: 1, from: 3, to: 2, bytes: 700, ..Item::default() };
    let item = Item { state: JobState::Done as u32, ..done };
    let job = Job { state: JobState::Done as u32, items: vec![item], ..Job::default() };
    state.jobs.insert(1, Job { ended_ms: 5_000, ..job });
    let bytes = |held: Option<u64>, now_ms| {
        let mut facts = all_serve(&state, 0);
        facts.held.remove(&(2, 1));
        facts.held.extend(held.map(|bytes| ((2, 1), bytes)));
        facts.now_ms = now_ms;
        facts.carried_over(&state).bytes_of(1, &state.groups[&1])
    };
    assert_eq!(bytes(Some(0), 5_000), 700);
    assert_eq!(bytes(Some(10), 5_000), 10, "it was counted");
    assert_eq!(bytes(None, 5_000), 0, "there is nothing");
    assert_eq!(bytes(Some(0), 5_001 + CARRIED_MS_MAX), 0, "nothing was there for long");
}

/// One server that had just started, in a cluster of many, kept a dead disk from being replaced.
#[test]
fn who_has_not_counted_yet_is_waited_for_only_where_a_plan_needs_that() {
    let state = cluster(&[1; 4]);
    let mut facts = all_serve(&state, 1);
    facts.uncounted.insert(3);
    facts.lives.insert(2, Life::Gone);
    let check = |kind: JobKind, request: Plan| {
        let request = Plan { kind: kind as u32, ..request };
        check_heard(&state, &facts, |_| true, &request)
    };
    let passes = |kind, request| check(kind, request).is_ok();
    let about = |targets: &[u32]| Plan { targets: targets.to_vec(), ..Plan::default() };
    assert!(!passes(JobKind::Rebalance, about(&[])));
    assert!(passes(JobKind::Replace, Plan { to: 4, ..about(&[1]) }));
    assert!(!passes(JobKind::Replace, Plan { to: 3, ..about(&[1]) }));
    let refused = check(JobKind::Drain, about(&[1])).unwrap_err().to_string();
    assert!(refused.contains("target 3") && refused.contains("or give --force"), "{refused}");
    assert!(!passes(JobKind::Drain, about(&[1, 2])));
    assert!(passes(JobKind::Drain, about(&[2])), "it is gone");
    assert!(passes(JobKind::Drain, Plan { servers: vec![2], ..about(&[]) }));
    assert!(passes(JobKind::Drain, Plan { force: true, ..about(&[1]) }));
    let unheard = Plan { kind: JobKind::Drain as u32, force: true, ..about(&[1]) };
    assert!(check_heard(&state, &facts, |server| server != 3, &unheard).is_err());
}
