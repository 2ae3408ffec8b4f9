use super::*;
use crate::ended::ENDED_MAX;
use crate::groups::{prepare, resynced, settle};
use crate::steer::steer;
use crate::testing::{add_target, all_serve, at_once, cluster, enter_target};
use crate::turns::{COLLECTED, TARGET_MOVES_MAX};
use strake_types::{GroupId, Shares, VolumeId};
use strake_wire::message::jobs::SteerJob;
use strake_wire::message::recopies::RecopyWish;

const TWO: u32 = GroupId::of_class(2, 0).0;

fn request(kind: JobKind, targets: &[u32]) -> Plan {
    Plan { kind: kind as u32, targets: targets.to_vec(), ..Plan::default() }
}

/// What a cluster does in a moment in which everybody does their part.
fn pass(state: &mut State, facts: &Facts) {
    let life = |target| facts.lives.get(&target).copied().unwrap_or(Life::Gone);
    settle(state, life, |_, _| false, at_once);
    keep(state, facts);
    check_copies(state);
    let groups: Vec<(u32, Group)> = state.groups.iter().map(|(&id, g)| (id, g.clone())).collect();
    for (group, before) in groups {
        let report = |member, failed| Resynced {
            group,
            epoch: before.epoch,
            member,
            failed,
            sent: if failed { 0 } else { 5 },
            ..Resynced::default()
        };
        let stays = before.in_sync.iter().filter(|m| !before.leaving.contains(m)).count();
        let leaves = before.leaving.first().filter(|m| before.in_sync.contains(m));
        let enough = stays >= GroupId(group).copies() as usize;
        let said = match (before.joining.first(), leaves) {
            (Some(&member), _) if facts.serves(member) => report(member, false),
            (None, Some(&member)) if enough => report(member, true),
            _ => continue,
        };
        reported(state, &said, 0);
        resynced(state, &said).unwrap();
        check_copies(state);
    }
    keep(state, facts);
}

/// No step leaves a group with fewer in sync than it keeps copies.
fn check_copies(state: &State) {
    for (&id, group) in &state.groups {
        assert!(group.in_sync.len() >= GroupId(id).copies() as usize, "group {id}: {group:?}");
    }
}

/// A cluster that keeps two copies on so many servers.
fn pairs(servers: usize) -> State {
    let mut state = cluster(&vec![1; servers]);
    prepare(&mut state, 2).unwrap();
    state
}

fn is_free_of(state: &State, target: u32) -> bool {
    state.groups.values().all(|group| !group.members.contains(&target))
}

#[test]
fn a_drain_moves_everything_and_never_has_fewer_copies() {
    let mut state = pairs(4);
    let facts = all_serve(&state, 100);
    let (id, job) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    assert_eq!(job.items.len(), 3);
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    assert!(is_free_of(&state, 2));
    let job = &state.jobs[&id];
    assert!(job.is(JobState::Done) && job.items.iter().all(|item| item.is(JobState::Done)));
    assert!(job.items.iter().all(|item| item.sent == 5), "{job:?}");
    assert!(state.targets[&2].drains, "it gets no new groups");
    let undone = Plan { undo: true, ..request(JobKind::Drain, &[2]) };
    plan(&mut state, &facts, &undone).unwrap();
    assert!(!state.targets[&2].drains);
}

#[test]
fn few_groups_move_at_a_time_and_each_by_one_move() {
    let mut state = pairs(12);
    let facts = all_serve(&state, 1);
    plan(&mut state, &facts, &request(JobKind::Drain, &[1, 2, 3])).unwrap();
    for _ in 0..60 {
        keep(&mut state, &facts);
        let is_equal = |item: &Item| state.groups[&item.group].in_sync.contains(&item.to);
        let running: Vec<&Item> = state
            .jobs
            .values()
            .flat_map(|job| &job.items)
            .filter(|item| item.is(JobState::Running) && !is_equal(item))
            .collect();
        for target in state.targets.keys() {
            let of = running.iter().filter(|item| item.from == *target || item.to == *target);
            assert!(of.count() <= TARGET_MOVES_MAX);
        }
        assert!(state.groups.values().all(|group| group.leaving.len() <= 1));
        pass(&mut state, &facts);
    }
    assert!((1..=3).all(|target| is_free_of(&state, target)));
}

#[test]
fn what_was_emptied_leaves_the_cluster_if_that_is_wanted() {
    let mut state = pairs(4);
    let facts = all_serve(&state, 1);
    let wanted = Plan { servers: vec![3], remove: true, ..request(JobKind::Drain, &[]) };
    plan(&mut state, &facts, &wanted).unwrap();
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    assert!(!state.targets.contains_key(&3) && !state.servers.contains_key(&3));
}

#[test]
fn a_plan_changes_nothing() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    let before = state.clone();
    let dry = Plan { dry_run: true, ..request(JobKind::Drain, &[2]) };
    let (id, job) = plan(&mut state, &facts, &dry).unwrap();
    assert_eq!((id, job.items.len()), (0, 3));
    assert!(state == before);
}

#[test]
fn a_destination_that_dies_is_replaced_by_another() {
    let mut state = pairs(4);
    let mut facts = all_serve(&state, 1);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    keep(&mut state, &facts);
    let to = state.jobs[&id].items.iter().find(|item| item.is(JobState::Running)).unwrap().to;
    facts.lives.insert(to, Life::Gone);
    keep(&mut state, &facts);
    let joins = |group: &Group| group.joining.contains(&to) || group.leaving.contains(&to);
    assert!(!state.groups.values().any(joins), "it is taken back");
    let chosen = |state: &State| state.jobs[&id].items.iter().all(|item| item.to != to);
    keep(&mut state, &facts);
    let running = state.jobs[&id].items.iter().filter(|item| item.is(JobState::Running));
    assert!(running.clone().count() > 0 && running.clone().all(|item| item.to != to));
    facts.lives.insert(to, Life::Serves);
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    assert!(state.jobs[&id].is(JobState::Done) && is_free_of(&state, 2), "{}", chosen(&state));
}

#[test]
fn what_fails_again_and_again_is_given_up_with_its_reason() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    for _ in 0..100 {
        settle(&mut state, |_| Life::Serves, |_, _| false, at_once);
        keep(&mut state, &facts);
        let joining = state.groups.iter().find(|(_, group)| !group.joining.is_empty());
        let Some((&group, found)) = joining else { continue };
        let (epoch, member) = (found.epoch, found.joining[0]);
        let reason = "no space left".to_owned();
        let failed = true;
        let said = Resynced { group, epoch, member, failed, reason, ..Resynced::default() };
        reported(&mut state, &said, 0);
        resynced(&mut state, &said).unwrap();
    }
    let job = &state.jobs[&id];
    assert!(job.is(JobState::Failed), "{job:?}");
    assert!(job.items.iter().all(|i| i.is(JobState::Failed) && i.reason == "no space left"));
    assert!(state.groups.values().all(|g| g.leaving.is_empty() && g.joining.is_empty()));
    check_copies(&state);
}

#[test]
fn a_job_that_is_cancelled_takes_back_what_is_not_in_sync() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    let members = |state: &State| -> Vec<Vec<u32>> {
        state.groups.values().map(|group| group.members.clone()).collect()
    };
    let before = members(&state);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    keep(&mut state, &facts);
    assert_ne!(members(&state), before);
    let busy = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap_err();
    assert!(busy.detail.contains(&format!("strake job watch {id}")), "{busy}");
    let cancel = SteerJob { id: id.into(), cancel: true, ..SteerJob::default() };
    steer(&mut state, &facts, &cancel).unwrap();
    assert_eq!(members(&state), before);
    assert!(state.jobs[&id].is(JobState::Cancelled) && !state.targets[&2].drains);
    assert!(steer(&mut state, &facts, &cancel).unwrap_err().detail.contains("has ended"));
}

/// A target that had been drained for good got new groups when its replacement was called off.
#[test]
fn what_was_drained_before_a_job_stays_so_when_that_is_cancelled() {
    let mut state = pairs(5);
    let facts = all_serve(&state, 1);
    plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    let wanted = Plan { to: 4, ..request(JobKind::Replace, &[2]) };
    for wanted in [request(JobKind::Drain, &[2, 3]), wanted] {
        let (id, job) = plan(&mut state, &facts, &wanted).unwrap();
        assert_eq!(job.drained_before, [2]);
        let cancel = SteerJob { id: id.into(), cancel: true, ..SteerJob::default() };
        steer(&mut state, &facts, &cancel).unwrap();
        assert!(state.jobs[&id].is(JobState::Cancelled), "{wanted:?}");
        assert!(state.targets[&2].drains && !state.targets[&3].drains, "{wanted:?}");
    }
}

#[test]
fn a_paused_job_begins_nothing_until_it_is_resumed() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    let id = u64::from(id);
    steer(&mut state, &facts, &SteerJob { id, pause: true, ..SteerJob::default() }).unwrap();
    pass(&mut state, &facts);
    assert!(state.groups.values().all(|group| group.leaving.is_empty()));
    steer(&mut state, &facts, &SteerJob { id, resume: true, ..SteerJob::default() }).unwrap();
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    assert!(is_free_of(&state, 2));
}

#[test]
fn a_heal_is_a_job_that_ends_when_all_is_in_sync() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    for group in state.groups.values_mut().filter(|group| group.members.contains(&2)) {
        if group.members.len() > 1 {
            group.in_sync.retain(|member| *member != 2);
            group.joining = vec![2];
        }
    }
    keep(&mut state, &facts);
    assert_eq!(state.jobs.len(), 1);
    let (&id, job) = state.jobs.first_key_value().unwrap();
    assert_eq!((job.kind, job.items.len()), (JobKind::Heal as u32, 2));
    let cancel = SteerJob { id: id.into(), cancel: true, ..SteerJob::default() };
    let refused = steer(&mut state, &facts, &cancel).unwrap_err();
    for word in ["a copy is missing", "strake job pause 1", "strake job throttle 1 "] {
        assert!(refused.detail.contains(word), "{refused}");
    }
    for group in state.groups.values_mut() {
        group.joining.clear();
        group.in_sync = group.members.clone();
    }
    keep(&mut state, &facts);
    assert!(state.jobs[&id].is(JobState::Done) && state.jobs[&id].ended_ms == 1_000);
}

/// It had no bytes, neither between its attempts nor when it was done, where they were counted after it had begun.
#[test]
fn a_heal_has_the_bytes_that_were_counted_since_it_began() {
    let mut state = with_pair(&[2], &[3]);
    let mut facts = all_serve(&state, 1);
    facts.held.insert((2, TWO), 0);
    keep(&mut state, &facts);
    let item = item_of(&state, 1, TWO);
    assert!(item.bytes == 0 && item.uncounted, "{item:?}");
    let said = Resynced { group: TWO, epoch: 7, member: 3, failed: true, ..Resynced::default() };
    reported(&mut state, &said, 9);
    reported(&mut state, &said, 0);
    assert_eq!(item_of(&state, 1, TWO).bytes, 9);
}

/// The lowest numbers were forgotten: a job that ran while a hundred later ones ended went in the moment in which it ended, and
/// who watched it was told that it does not exist.
#[test]
fn the_end_of_a_long_job_is_remembered_although_a_hundred_later_ones_have_ended() {
    let mut state = pairs(4);
    let mut facts = all_serve(&state, 100);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    let ended = |kind: JobKind, ended_ms| {
        let (kind, state) = (kind as u32, JobState::Done as u32);
        Job { kind, state, ended_ms, ..Job::default() }
    };
    for at in 0..ENDED_MAX as u64 {
        enter(&mut state, ended(JobKind::Scrub, 2_000 + at));
    }
    for at in 0..2 * ENDED_MAX as u64 {
        enter(&mut state, ended(JobKind::Heal, 3_000 + at));
    }
    // The clock was ahead for a while.
    let ahead = enter(&mut state, ended(JobKind::Scrub, 1 << 40));
    facts.now_ms = 100_000;
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    assert!(state.jobs[&id].is(JobState::Done), "it has ended last");
    assert!(!state.jobs.contains_key(&ahead) && !state.jobs.contains_key(&(id + 1)));
    assert!(state.jobs.contains_key(&(id + 2)), "heals drive no other job out");
    assert_eq!(state.jobs.len(), 2 * ENDED_MAX);
}

#[test]
fn what_a_dead_target_alone_had_is_given_up_and_no_answer_covers_it() {
    let mut state = pairs(3);
    let mut facts = all_serve(&state, 1);
    let wanted = Plan { to: 3, ..request(JobKind::Replace, &[2]) };
    facts.lives.insert(2, Life::Gone);
    assert!(plan(&mut state, &facts, &wanted).is_err());
    state.groups.get_mut(&1).unwrap().word = 9;
    let lossy = Plan { lose_data: true, ..wanted };
    plan(&mut state, &facts, &lossy).unwrap();
    keep(&mut state, &facts);
    let group = &state.groups[&1];
    assert_eq!((group.members.as_slice(), group.in_sync.as_slice()), (&[3][..], &[3][..]));
    assert_eq!(group.losses, 1);
    assert_eq!(
        state.groups[&TWO].in_sync,
        [1, 2],
        "there is another copy, and a lease to wait for"
    );
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    let mut state = pairs(3);
    state.servers.get_mut(&1).unwrap().manager = true;
    let mut facts = all_serve(&state, 1);
    facts.lives.insert(3, Life::Gone);
    let remove =
        |server| Plan { servers: vec![server], remove: true, ..request(JobKind::Drain, &[]) };
    let cases = [
        (request(JobKind::Drain, &[9]), "target 9 is not in the cluster"),
        (Plan { servers: vec![7], ..request(JobKind::Drain, &[]) }, "server 7 is not"),
        (remove(1), "is the manager that leads the cluster, the only one; drain it"),
        (request(JobKind::Replace, &[2]), "name the target"),
        (Plan { to: 3, ..request(JobKind::Replace, &[2]) }, "does not answer"),
        (request(JobKind::Heal, &[2]), "no job of kind"),
    ];
    for (wanted, said) in cases {
        let error = plan(&mut state, &facts, &wanted).unwrap_err();
        assert!(error.detail.contains(said), "{error}");
    }
    let missing = SteerJob { id: 77, pause: true, ..SteerJob::default() };
    assert_eq!(steer(&mut state, &facts, &missing).unwrap_err().kind, ErrorKind::NotFound);
}

/// The second and third target have a group of two copies; who is in sync, and who joins.
fn with_pair(in_sync: &[u32], joining: &[u32]) -> State {
    let mut state = cluster(&[1; 5]);
    let [in_sync, joining] = [in_sync, joining].map(<[u32]>::to_vec);
    let group = Group { epoch: 7, members: vec![2, 3], in_sync, joining, ..Group::default() };
    state.groups.insert(TWO, group);
    state
}

fn gone(state: &State, targets: &[u32]) -> Facts {
    let mut facts = all_serve(state, 1);
    facts.lives.extend(targets.iter().map(|&target| (target, Life::Gone)));
    facts
}

/// Begins a replacement; its number.
fn replace(state: &mut State, facts: &Facts, from: u32, to: u32, lose_data: bool) -> u32 {
    let wanted = Plan { to, lose_data, ..request(JobKind::Replace, &[from]) };
    let (id, _) = plan(state, facts, &wanted).unwrap();
    keep(state, facts);
    id
}

fn item_of(state: &State, job: u32, group: u32) -> &Item {
    state.jobs[&job].items.iter().find(|item| item.group == group).unwrap()
}

/// Each left a group of each class behind, and new files were laid over all of them: eight on two targets.
#[test]
fn disks_that_are_replaced_again_and_again_leave_no_groups_behind() {
    replaced_again_and_again(&mut pairs(2));
}

/// Who had got the lead of a group of one copy, and not yet that of one of two, began one of two for good.
#[test]
fn disks_that_are_replaced_while_files_get_other_copies_leave_no_groups_behind() {
    let mut state = pairs(2);
    let volume = crate::records::Volume { meta_server: 2, ..Default::default() };
    state.volumes.insert(5, volume);
    let wish = RecopyWish { volume: 5, copies: 2, ..RecopyWish::default() };
    let wanted = Plan { recopy: Some(wish), ..request(JobKind::Recopy, &[]) };
    let facts = all_serve(&state, 1);
    let (id, _) = plan(&mut state, &facts, &wanted).unwrap();
    replaced_again_and_again(&mut state);
    assert!(state.jobs[&id].lasts());
}

fn replaced_again_and_again(state: &mut State) {
    for old in 1..=6 {
        let server = state.targets[&old].server;
        let to = enter_target(state, server);
        let facts = all_serve(state, 1);
        let wanted = Plan { to, remove: true, ..request(JobKind::Replace, &[old]) };
        plan(state, &facts, &wanted).unwrap();
        (0..40).for_each(|_| pass(state, &facts));
        assert!(!state.targets.contains_key(&old));
        for copies in [1, 2] {
            let class = state.groups.iter().filter(|(id, _)| GroupId(**id).copies() == copies);
            let leaders: Vec<u32> = class.map(|(_, group)| group.members[0]).collect();
            assert_eq!(leaders.len(), 3, "as many as there were targets at one time");
            assert!(state.targets.keys().all(|target| leaders.contains(target)), "{leaders:?}");
        }
    }
}

/// True if a target is in a group of so many copies.
fn is_in_one_of(state: &State, copies: u32, target: u32) -> bool {
    let class = |id: &u32| GroupId(*id).copies() == copies;
    let mut groups = state.groups.iter().filter(|(id, _)| class(id));
    groups.any(|(_, group)| group.members.contains(&target))
}

/// Moves were chosen by the bytes of all classes together: the new target got groups of one of them, and another one lost its last.
#[test]
fn after_a_rebalance_each_target_is_in_a_group_of_each_class_also_where_others_have_left() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    let remove = Plan { remove: true, ..request(JobKind::Drain, &[3]) };
    plan(&mut state, &facts, &remove).unwrap();
    (0..40).for_each(|_| pass(&mut state, &facts));
    assert!(!state.targets.contains_key(&3));
    let new = enter_target(&mut state, 3);
    assert!(is_free_of(&state, new));
    let groups = state.groups.len();
    let rebalance = |state: &mut State| {
        let mut facts = all_serve(state, 1);
        for ((_, group), bytes) in facts.held.iter_mut().filter(|((_, id), _)| *id >= TWO) {
            *bytes = if *group == TWO { 100 } else { 60 };
        }
        let (_, job) = plan(state, &facts, &request(JobKind::Rebalance, &[])).unwrap();
        (0..40).for_each(|_| pass(state, &facts));
        job.items.len()
    };
    assert!(rebalance(&mut state) > 0);
    for target in [1, 2, new] {
        assert!([1, 2].iter().all(|copies| is_in_one_of(&state, *copies, target)), "{target}");
    }
    assert_eq!(rebalance(&mut state), 0);
    assert_eq!(state.groups.len(), groups, "there were enough");
}

/// It was in no group for good, and its room was counted all the same.
#[test]
fn a_new_target_for_which_no_group_fits_gets_one_of_its_own_by_a_rebalance() {
    let mut state = cluster(&[1; 4]);
    let remove = Plan { remove: true, ..request(JobKind::Drain, &[4]) };
    let facts = all_serve(&state, 300);
    plan(&mut state, &facts, &remove).unwrap();
    let new = enter_target(&mut state, 4);
    let small = |state: &State| {
        let mut facts = all_serve(state, 300);
        facts.held.retain(|(target, _), _| *target != new);
        facts.free.insert(new, 250);
        facts.total.insert(new, 250);
        facts
    };
    let facts = small(&state);
    let wanted = request(JobKind::Rebalance, &[]);
    plan(&mut state, &facts, &wanted).unwrap();
    assert!(is_free_of(&state, new), "not before the others have what is to go");
    (0..40).for_each(|_| pass(&mut state, &facts));
    let facts = small(&state);
    let dry_run = Plan { dry_run: true, ..wanted.clone() };
    let (_, job) = plan(&mut state, &facts, &dry_run).unwrap();
    assert!(is_free_of(&state, new) && job.about == "all targets, with 1 new group");
    for about in [job.about.as_str(), "all targets"] {
        let (_, job) = plan(&mut state, &facts, &wanted).unwrap();
        assert!(job.items.iter().all(|item| item.to != new) && job.about == about);
        assert_eq!((state.groups.len(), state.groups[&4].members.as_slice()), (5, &[new][..]));
    }
}

/// One was begun for good, although who was down for a moment had one to give, or got one to give a moment later.
#[test]
fn a_rebalance_begins_no_group_while_who_could_give_one_is_away_or_a_group_moves() {
    let mut state = cluster(&[1, 1]);
    let second = state.groups[&1].clone();
    state.groups.insert(2, second.clone());
    let new = enter_target(&mut state, 2);
    assert!(is_free_of(&state, new));
    let mut facts = all_serve(&state, 1);
    facts.held.insert((1, 0), 300);
    facts.free.insert(new, 250);
    facts.total.insert(new, 250);
    let rebalance = |state: &mut State, facts: &Facts| {
        let (_, job) = plan(state, facts, &request(JobKind::Rebalance, &[])).unwrap();
        state.jobs.clear();
        assert_eq!(state.groups.len(), 3);
        job.items.iter().filter(|item| item.to == new).count()
    };
    for life in [Life::Quiet, Life::Gone] {
        facts.lives.insert(2, life);
        assert_eq!(rebalance(&mut state, &facts), 0, "{life:?}");
    }
    facts.lives.insert(2, Life::Serves);
    let moves = Group { members: vec![2, 1], joining: vec![1], leaving: vec![2], ..second.clone() };
    let moved = Group { in_sync: vec![2, 1], joining: Vec::new(), ..moves.clone() };
    for group in [moves, moved] {
        state.groups.insert(2, group);
        assert_eq!(rebalance(&mut state, &facts), 0);
    }
    state.groups.insert(2, second);
    assert_eq!(rebalance(&mut state, &facts), 1);
}

/// One had come back a moment ago, and could give none before it was equal.
#[test]
fn a_rebalance_begins_no_group_while_who_could_give_one_is_made_equal() {
    let mut state = cluster(&[1; 5]);
    let behind = |first: u32| Group {
        members: vec![first, 2],
        in_sync: vec![first],
        joining: vec![2],
        ..Group::default()
    };
    state.groups.extend((TWO..).zip([1, 3, 4].map(behind)));
    let facts = all_serve(&state, 1);
    let rebalance = |state: &mut State| {
        let (_, job) = plan(state, &facts, &request(JobKind::Rebalance, &[])).unwrap();
        (job.items.len(), state.groups.len())
    };
    assert_eq!(rebalance(&mut state), (0, 8));
    for group in state.groups.values_mut() {
        (group.in_sync, group.joining) = (group.members.clone(), Vec::new());
    }
    assert_eq!(rebalance(&mut state), (1, 8));
}

/// It kept what it had for good, at 96 %: there was no group in which nothing is to be given for it.
#[test]
fn a_full_disk_gives_its_only_group_and_is_in_another_one_by_the_next_rebalance() {
    let mut state = cluster(&[1; 3]);
    let large = add_target(&mut state, 4);
    let facts_now = |state: &State| {
        let mut facts = all_serve(state, 960);
        facts.held.retain(|(_, group), _| *group < 3);
        let held = facts.held_by_target();
        for &id in state.targets.keys() {
            let total = if id == large { 4_000 } else { 1_000 };
            facts.total.insert(id, total);
            facts.free.insert(id, total - held.get(&id).copied().unwrap_or(0));
        }
        facts
    };
    let rebalance = |state: &mut State| {
        let facts = facts_now(state);
        let (_, job) = plan(state, &facts, &request(JobKind::Rebalance, &[])).unwrap();
        for _ in 0..40 {
            let facts = facts_now(state);
            pass(state, &facts);
        }
        (job.items.len(), state.groups.len())
    };
    assert_eq!(rebalance(&mut state), (4, 4));
    assert!((0..3).all(|group| state.groups[&group].members == [large]));
    assert_eq!(rebalance(&mut state), (1, 6), "for two of them no group fits");
    assert!((1..=3).all(|target| is_in_one_of(&state, 1, target)));
    assert_eq!(rebalance(&mut state), (0, 6));
}

/// One of four targets was in no group, and a rebalance of three groups could bring none there.
#[test]
fn where_a_drain_is_taken_back_there_are_groups_for_all_targets_that_stay() {
    for cancels in [false, true] {
        let mut state = pairs(3);
        let facts = all_serve(&state, 1);
        let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[3])).unwrap();
        let new = enter_target(&mut state, 1);
        assert!(is_free_of(&state, new), "three stay");
        if cancels {
            let one = SteerJob { id: id.into(), cancel: true, ..SteerJob::default() };
            steer(&mut state, &facts, &one).unwrap();
        } else {
            state.jobs.clear();
            let undone = Plan { undo: true, ..request(JobKind::Drain, &[3]) };
            plan(&mut state, &facts, &undone).unwrap();
        }
        let led = state.groups.values().filter(|group| group.members[0] == new);
        assert_eq!(led.count(), 2, "one of each class");
    }
}

#[test]
fn a_dead_member_is_replaced_while_another_one_cannot_leave_without_it() {
    let mut state = with_pair(&[2, 4], &[]);
    let group = state.groups.get_mut(&TWO).unwrap();
    (group.members, group.leaving) = (vec![2, 4, 3], vec![2]);
    let facts = gone(&state, &[3]);
    replace(&mut state, &facts, 3, 5, true);
    let group = &state.groups[&TWO];
    assert_eq!((group.joining.as_slice(), group.leaving.as_slice()), (&[5][..], &[2, 3][..]));
    for _ in 0..5 {
        pass(&mut state, &facts);
    }
    let group = &state.groups[&TWO];
    assert_eq!((group.in_sync.as_slice(), group.leaving.as_slice()), (&[4, 5][..], &[][..]));
    assert_eq!(group.members, [4, 5]);
}

/// It was under way without a word, and with all its bytes left, until somebody thought of the server that was away.
#[test]
fn a_move_that_has_sent_everything_says_for_whom_it_waits() {
    const THREE: u32 = GroupId::of_class(3, 0).0;
    let mut state = cluster(&[1; 4]);
    let group = Group { epoch: 7, members: vec![1, 2, 3], in_sync: vec![2], ..Group::default() };
    state.groups.insert(THREE, group);
    let facts = gone(&state, &[1, 3]);
    let id = replace(&mut state, &facts, 3, 4, true);
    assert_eq!(state.groups[&THREE].joining, [4]);
    assert_eq!(item_of(&state, id, THREE).reason, "");
    let report = |state: &State, member| {
        let epoch = state.groups[&THREE].epoch;
        Resynced { group: THREE, epoch, member, ..Resynced::default() }
    };
    let said = report(&state, 4);
    reported(&mut state, &said, 9);
    resynced(&mut state, &said).unwrap();
    keep(&mut state, &facts);
    let item = item_of(&state, id, THREE);
    let why = "target 4 has everything, and target 3 leaves when 3 copies are in sync without it: target 1 (/t1 on \
               server h1) is away; start its server";
    assert!(item.is(JobState::Running) && item.reason == why && item.bytes == 9, "{item:?}");
    let facts = all_serve(&state, 1);
    state.groups.get_mut(&THREE).unwrap().joining = vec![1];
    keep(&mut state, &facts);
    assert!(item_of(&state, id, THREE).reason.ends_with("is not in sync yet"));
    let said = report(&state, 1);
    resynced(&mut state, &said).unwrap();
    keep(&mut state, &facts);
    let item = item_of(&state, id, THREE);
    assert!(item.is(JobState::Done) && item.reason.is_empty(), "{item:?}");
}

/// It ended with a colon, and nothing behind that.
#[test]
fn a_move_that_waits_for_copies_that_nobody_is_to_have_names_none() {
    const THREE: u32 = GroupId::of_class(3, 0).0;
    let mut state = cluster(&[1; 4]);
    let (members, in_sync, leaving) = (vec![2, 3], vec![2, 3], vec![3]);
    let group = Group { epoch: 7, members, in_sync, leaving, ..Group::default() };
    state.groups.insert(THREE, group);
    let item = Item { group: THREE, from: 3, to: 2, ..Item::default() };
    let told = awaited(&state, &all_serve(&state, 1), &item).unwrap();
    assert!(told.ends_with("leaves when 3 copies are in sync without it"), "{told}");
}

/// Enters a rebalancing that is to move the second target's part of the pair to the fourth; its number.
fn rebalance(state: &mut State) -> u32 {
    let item =
        Item { group: TWO, from: 2, to: 4, state: JobState::Waiting as u32, ..Item::default() };
    let job = Job {
        kind: JobKind::Rebalance as u32,
        state: JobState::Running as u32,
        items: vec![item],
        ..Job::default()
    };
    enter(state, job)
}

/// The second target's part of the pair is being moved to the fourth, and the second dies.
fn dies_while_it_moves() -> (State, Facts) {
    let mut state = with_pair(&[2, 3], &[]);
    let facts = all_serve(&state, 1);
    rebalance(&mut state);
    keep(&mut state, &facts);
    assert_eq!(state.groups[&TWO].joining, [4]);
    let facts = gone(&state, &[2]);
    settle(&mut state, |target| facts.lives[&target], |_, _| false, at_once);
    (state, facts)
}

/// The pair's primary makes one that joins equal, if it has to.
fn equal_again(state: &mut State, facts: &Facts) {
    settle(state, |target| facts.lives[&target], |_, _| false, at_once);
    keep(state, facts);
    let group = &state.groups[&TWO];
    if let Some(&member) = group.joining.first() {
        let said = Resynced { group: TWO, epoch: group.epoch, member, ..Resynced::default() };
        resynced(state, &said).unwrap();
    }
    keep(state, facts);
}

/// Two jobs brought somebody in for the same member, and both stayed. Found by simulation (seed
/// 795346250754).
#[test]
fn a_member_that_another_job_replaces_is_not_replaced_twice() {
    let (mut state, facts) = dies_while_it_moves();
    let id = replace(&mut state, &facts, 2, 5, true);
    assert_eq!(item_of(&state, id, TWO).reason, "waits for job 1");
    (0..5).for_each(|_| equal_again(&mut state, &facts));
    assert_eq!(state.groups[&TWO].members, [4, 3]);
    assert!(state.jobs.values().all(|job| job.is(JobState::Done)), "{:?}", state.jobs);
}

#[test]
fn who_was_brought_in_for_a_lost_member_takes_its_place() {
    let (mut state, _) = dies_while_it_moves();
    let facts = gone(&state, &[2, 3]);
    let lossy = Plan { lose_data: true, ..request(JobKind::Drain, &[2, 3]) };
    plan(&mut state, &facts, &lossy).unwrap();
    (0..10).for_each(|_| equal_again(&mut state, &facts));
    let group = &state.groups[&TWO];
    assert_eq!((group.members.len(), group.members.contains(&4)), (2, true), "{group:?}");
    assert_eq!((group.in_sync.len(), group.leaving.len()), (2, 0), "{group:?}");
}

/// A server once left the cluster while another one was to be replaced by it: the rest of that waited for ever.
#[test]
fn who_takes_the_place_of_another_is_not_emptied_meanwhile() {
    let mut state = pairs(4);
    let facts = all_serve(&state, 1);
    replace(&mut state, &facts, 2, 4, false);
    let leaves = Plan { servers: vec![4], remove: true, ..request(JobKind::Drain, &[]) };
    let error = plan(&mut state, &facts, &leaves).unwrap_err();
    assert!(
        error.detail.contains("by target 4") && error.detail.contains("job cancel 1"),
        "{error}"
    );
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    plan(&mut state, &facts, &leaves).unwrap();
}

/// A server once left the cluster that another job needed for what it moved: each of the two had found a place for
/// its own.
#[test]
fn who_is_needed_for_what_another_job_moves_is_not_emptied_meanwhile() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    plan(&mut state, &facts, &request(JobKind::Drain, &[1])).unwrap();
    for second in [2, 3] {
        let error = plan(&mut state, &facts, &request(JobKind::Drain, &[second])).unwrap_err();
        assert!(error.detail.contains("2 copies") && error.detail.contains("1 "), "{error}");
    }
    assert!(!state.targets[&2].drains && !state.targets[&3].drains);
}

/// Both jobs once waited for ever: the one that had moved it away took it for one that was still to leave.
#[test]
fn who_has_left_a_group_may_be_brought_in_again_by_another_job() {
    let mut state = with_pair(&[4, 3], &[]);
    state.groups.get_mut(&TWO).unwrap().members = vec![4, 3];
    let facts = all_serve(&state, 1);
    let item = |from, to, state: JobState| Item {
        group: TWO,
        from,
        to,
        state: state as u32,
        ..Item::default()
    };
    let job = |kind: JobKind, item| Job {
        kind: kind as u32,
        state: JobState::Running as u32,
        items: vec![item],
        ..Job::default()
    };
    state.jobs.insert(7, job(JobKind::Drain, item(3, 2, JobState::Waiting)));
    state.jobs.insert(10, job(JobKind::Rebalance, item(2, 4, JobState::Running)));
    for _ in 0..3 {
        pass(&mut state, &facts);
    }
    assert_eq!(state.groups[&TWO].members, [4, 2]);
    assert!(state.jobs.values().all(|job| job.is(JobState::Done)), "{:?}", state.jobs);
}

/// Drains had left both copies of all groups on two targets, and a rebalance left them there.
#[test]
fn a_rebalance_spreads_what_nothing_is_in_and_a_second_one_has_nothing_to_do() {
    let mut state = cluster(&[1; 6]);
    let pair = Group { epoch: 1, members: vec![1, 2], in_sync: vec![1, 2], ..Group::default() };
    state.groups.extend((TWO..TWO + 12).map(|id| (id, pair.clone())));
    let mut facts = all_serve(&state, 0);
    facts.held.clear();
    let (id, job) = plan(&mut state, &facts, &request(JobKind::Rebalance, &[])).unwrap();
    let groups: BTreeSet<u32> = job.items.iter().map(|item| item.group).collect();
    assert!(groups.len() < job.items.len(), "some move with both copies");
    for _ in 0..60 {
        pass(&mut state, &facts);
    }
    let done = &state.jobs[&id];
    assert!(done.is(JobState::Done) && done.items.iter().all(|item| item.is(JobState::Done)));
    let planned = |items: &[Item]| items.iter().map(|i| (i.group, i.to)).collect::<Vec<_>>();
    assert_eq!(planned(&done.items), planned(&job.items), "as it was predicted");
    for target in 1..=6 {
        let pairs = state.groups.range(TWO..).filter(|(_, g)| g.members.contains(&target));
        assert_eq!(pairs.count(), 4, "target {target}");
    }
    let (_, again) = plan(&mut state, &facts, &request(JobKind::Rebalance, &[])).unwrap();
    assert!(again.items.is_empty(), "{:?}", again.items);
}

#[test]
fn a_group_of_which_both_ends_of_a_move_die_goes_on_with_a_member() {
    let mut state = cluster(&[1; 4]);
    let group = state.groups.get_mut(&0).unwrap();
    (group.members, group.joining, group.leaving) = (vec![1, 2], vec![2], vec![1]);
    let facts = gone(&state, &[1, 2]);
    let lossy = Plan { lose_data: true, ..request(JobKind::Drain, &[1, 2]) };
    let (id, _) = plan(&mut state, &facts, &lossy).unwrap();
    (0..2).for_each(|_| keep(&mut state, &facts));
    let group = &state.groups[&0];
    assert_eq!((group.members.len(), &group.members), (1, &group.in_sync), "{group:?}");
    assert!([3, 4].contains(&group.members[0]), "{group:?}");
    assert!(state.jobs[&id].is(JobState::Done), "{:?}", state.jobs[&id].items);
}

#[test]
fn a_paused_job_holds_no_place_and_what_waits_says_for_which_job() {
    let mut state = pairs(6);
    let facts = all_serve(&state, 1);
    let (first, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[1])).unwrap();
    keep(&mut state, &facts);
    let running = |state: &State, job: u32| {
        state.jobs[&job].items.iter().filter(|item| item.is(JobState::Running)).count()
    };
    assert_eq!(running(&state, first), TARGET_MOVES_MAX);
    let busy = state.jobs[&first].items.iter().find(|item| item.is(JobState::Running)).unwrap();
    let second_item = |group, to| Item { group, from: busy.to, to, ..Item::default() };
    let own = state.groups.iter().find(|(_, g)| g.members == [busy.to]).map(|(&id, _)| id).unwrap();
    let mut second = Job { state: JobState::Running as u32, ..Job::default() };
    second.items = vec![second_item(own, 6), second_item(busy.group, 6)];
    let twin = Item { state: JobState::Running as u32, group: u32::MAX, ..second_item(0, busy.to) };
    state.jobs.get_mut(&first).unwrap().items.extend([twin.clone(), twin]);
    let why = |state: &State, at: usize| {
        Turns::of(state, &second).hindrance(state, &facts, &second, &second.items[at])
    };
    let reason = Some(format!("waits for job {first}"));
    assert_eq!((why(&state, 0), why(&state, 1)), (reason.clone(), reason.clone()));
    state.jobs.get_mut(&first).unwrap().state = JobState::Paused as u32;
    assert_eq!((why(&state, 0), why(&state, 1)), (None, reason), "the group itself is under way");
}

/// All of them were gone through for each that waited.
#[test]
fn what_is_under_way_is_collected_once_for_all_that_wait_and_for_each_that_begins() {
    let mut state = pairs(6);
    prepare(&mut state, 3).unwrap();
    let facts = all_serve(&state, 1);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[1])).unwrap();
    let collected = |state: &mut State| {
        let before = COLLECTED.get();
        keep(state, &facts);
        COLLECTED.get() - before
    };
    let items = state.jobs[&id].items.len();
    assert!(items > TARGET_MOVES_MAX + 1, "{items}");
    assert_eq!(collected(&mut state), TARGET_MOVES_MAX as u32 + 1);
    assert_eq!(collected(&mut state), 1, "none of them begins");
}

/// A drain of a dead server waited for moves that waited for it: theirs could not leave as long as it had not.
#[test]
fn a_move_whose_newcomer_is_equal_holds_no_place() {
    let mut state = pairs(6);
    let facts = all_serve(&state, 1);
    let (first, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[1])).unwrap();
    keep(&mut state, &facts);
    let running = |state: &State| {
        let items = state.jobs[&first].items.iter();
        items.filter(|item| item.is(JobState::Running)).cloned().collect::<Vec<_>>()
    };
    let busy = running(&state);
    assert_eq!(busy.len(), TARGET_MOVES_MAX);
    let own = Job { state: JobState::Running as u32, ..Job::default() };
    let at_rest = state.groups.iter().find(|(_, group)| group.members == [2]).unwrap().0;
    let item = Item { group: *at_rest, from: 1, to: 6, ..Item::default() };
    let why = |state: &State| Turns::of(state, &own).hindrance(state, &facts, &own, &item);
    assert_eq!(why(&state), Some(format!("waits for job {first}")));
    for item in &busy {
        let group = state.groups.get_mut(&item.group).unwrap();
        group.joining.retain(|member| *member != item.to);
        group.in_sync.push(item.to);
    }
    assert_eq!(why(&state), None);
}

/// A rebalancing waited for ever for a place that drains had taken away since. Found by simulation.
#[test]
fn what_would_only_lie_more_evenly_does_not_wait_for_a_place() {
    let mut state = with_pair(&[2, 3], &[]);
    let facts = all_serve(&state, 1);
    let id = rebalance(&mut state);
    for target in [1, 4, 5] {
        state.targets.get_mut(&target).unwrap().drains = true;
    }
    keep(&mut state, &facts);
    let (job, item) = (&state.jobs[&id], item_of(&state, id, TWO));
    assert!(item.is(JobState::Cancelled) && item.reason.contains("target 2"), "{item:?}");
    assert!(job.is(JobState::Done));
    assert_eq!(state.groups[&TWO].members, [2, 3]);
}

/// It filled the target to the last byte.
#[test]
fn what_would_only_lie_more_evenly_stays_where_there_is_no_room_any_more() {
    let mut state = with_pair(&[2, 3], &[]);
    let mut facts = all_serve(&state, 100);
    let id = rebalance(&mut state);
    facts.total.insert(4, 1_000);
    facts.free.insert(4, 149);
    keep(&mut state, &facts);
    assert!(item_of(&state, id, TWO).is(JobState::Cancelled));
    assert_eq!(state.groups[&TWO].members, [2, 3]);
    facts.free.insert(4, 150);
    let id = rebalance(&mut state);
    keep(&mut state, &facts);
    assert!(item_of(&state, id, TWO).is(JobState::Running));
}

/// A replacement waited for ever, for a target that was there. Found by simulation (seed 795350998003).
#[test]
fn a_replacement_that_has_got_a_part_of_the_group_leaves_the_other_one_to_others() {
    let mut state = with_pair(&[2, 3], &[]);
    let facts = all_serve(&state, 1);
    let id = replace(&mut state, &facts, 2, 4, false);
    let item = Item { state: JobState::Waiting as u32, ..item_of(&state, id, TWO).clone() };
    let group = Group { epoch: 9, members: vec![2, 4], in_sync: vec![2, 4], ..Group::default() };
    state.groups.insert(TWO, group);
    state.jobs.get_mut(&id).unwrap().items = vec![item];
    for _ in 0..5 {
        pass(&mut state, &facts);
    }
    let members = &state.groups[&TWO].members;
    assert!(members.len() == 2 && members.contains(&4) && !members.contains(&2), "{members:?}");
    assert!(state.jobs[&id].is(JobState::Done));
}

#[test]
fn what_waits_for_room_changes_nothing_while_free_bytes_do() {
    let mut state = pairs(3);
    let mut facts = all_serve(&state, 100);
    let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[2])).unwrap();
    for item in &mut state.jobs.get_mut(&id).unwrap().items {
        item.to = 2;
    }
    facts.free.extend([(1, 50), (3, 51)]);
    keep(&mut state, &facts);
    let before = state.clone();
    assert!(state.jobs[&id].items.iter().all(|item| item.reason == NO_ROOM));
    facts.free.extend([(1, 49), (3, 48)]);
    keep(&mut state, &facts);
    assert!(state == before, "each difference would be a new epoch of the map");
}

#[test]
fn a_server_that_has_got_a_volume_since_stays_and_none_is_made_on_one_that_goes() {
    let mut state = pairs(4);
    let facts = all_serve(&state, 1);
    state.servers.get_mut(&2).unwrap().meta = true;
    state.servers.get_mut(&3).unwrap().meta = true;
    let remove = Plan { servers: vec![2], remove: true, ..request(JobKind::Drain, &[]) };
    let (id, _) = plan(&mut state, &facts, &remove).unwrap();
    assert_eq!(
        crate::owners::choose(&state, Shares::one(VolumeId(5)), 5, |_| true, |_| true),
        Some(3)
    );
    let volume = crate::records::Volume { meta_server: 2, ..Default::default() };
    state.volumes.insert(5, volume);
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    let job = &state.jobs[&id];
    assert!(job.is(JobState::Failed) && job.reason.contains("keeps the names"), "{job:?}");
    assert!(state.servers.contains_key(&2) && state.targets.contains_key(&2));
}

/// It was started with one more disk: the job was done, and the server stayed with that.
#[test]
fn a_server_that_has_got_a_target_since_stays_and_the_job_says_so() {
    let mut state = pairs(4);
    let facts = all_serve(&state, 1);
    let remove = Plan { servers: vec![2], remove: true, ..request(JobKind::Drain, &[]) };
    let (id, _) = plan(&mut state, &facts, &remove).unwrap();
    let added = add_target(&mut state, 2);
    let facts = all_serve(&state, 1);
    (0..20).for_each(|_| pass(&mut state, &facts));
    let job = &state.jobs[&id];
    assert!(job.is(JobState::Failed) && job.reason.contains("was added meanwhile"), "{job:?}");
    assert!(state.targets.contains_key(&2) && state.targets.contains_key(&added));
    let (id, _) = plan(&mut state, &facts, &remove).unwrap();
    (0..20).for_each(|_| pass(&mut state, &facts));
    assert!(state.jobs[&id].is(JobState::Done) && !state.servers.contains_key(&2));
    assert!(!state.targets.contains_key(&2) && !state.targets.contains_key(&added));
}

/// A job that removes server 2, which has the names of volume 5, perhaps a deleted one, and can hand them over to server 3.
fn removing_a_server_with_names(deleting: bool) -> (State, Facts, u32) {
    let mut state = pairs(4);
    let facts = all_serve(&state, 1);
    for id in [2, 3] {
        let server = state.servers.get_mut(&id).unwrap();
        (server.meta, server.store) = (true, "db".into());
    }
    let volume = crate::records::Volume { meta_server: 2, deleting, ..Default::default() };
    state.volumes.insert(5, volume);
    let remove = Plan { servers: vec![2], remove: true, ..request(JobKind::Drain, &[]) };
    let (id, _) = plan(&mut state, &facts, &remove).unwrap();
    (state, facts, id)
}

/// One that had only deleted ones was removed at once, and nobody emptied them any more.
#[test]
fn a_server_leaves_when_its_volumes_are_handed_over() {
    [false, true].into_iter().for_each(leaves_when_its_volume_is_handed_over);
}

fn leaves_when_its_volume_is_handed_over(deleting: bool) {
    let (mut state, facts, id) = removing_a_server_with_names(deleting);
    for (meta_server, leaving) in [(2, 0), (3, 2)] {
        let volume = state.volumes.get_mut(&5).unwrap();
        (volume.meta_server, volume.leaving) = (meta_server, leaving);
        for _ in 0..20 {
            pass(&mut state, &facts);
        }
        assert!(state.jobs[&id].is(JobState::Running) && state.servers.contains_key(&2));
    }
    state.volumes.get_mut(&5).unwrap().leaving = 0;
    for _ in 0..20 {
        pass(&mut state, &facts);
    }
    assert!(state.jobs[&id].is(JobState::Done) && !state.servers.contains_key(&2));
}

/// It was removed at once, and its volumes had nobody any more.
#[test]
fn a_server_that_hands_over_is_not_removed_by_a_pause() {
    let (mut state, facts, id) = removing_a_server_with_names(false);
    let steer_it = |state: &mut State, pause| {
        let one = SteerJob { id: id.into(), pause, resume: !pause, ..SteerJob::default() };
        steer(state, &facts, &one).unwrap();
    };
    (0..20).for_each(|_| pass(&mut state, &facts));
    steer_it(&mut state, true);
    (0..20).for_each(|_| pass(&mut state, &facts));
    assert!(state.jobs[&id].is(JobState::Paused) && state.servers.contains_key(&2));
    state.volumes.get_mut(&5).unwrap().meta_server = 3;
    (0..20).for_each(|_| pass(&mut state, &facts));
    assert!(state.jobs[&id].is(JobState::Paused) && state.servers.contains_key(&2));
    steer_it(&mut state, false);
    (0..20).for_each(|_| pass(&mut state, &facts));
    assert!(state.jobs[&id].is(JobState::Done) && !state.servers.contains_key(&2));
}

/// Two drains that were planned at the same time may have chosen the same server for both copies of a group.
#[test]
fn two_drains_do_not_bring_both_copies_to_one_server() {
    let mut state = cluster(&[1, 1, 2, 1]);
    prepare(&mut state, 2).unwrap();
    let facts = all_serve(&state, 1);
    let group = *state.groups.iter().find(|(_, group)| group.members == [1, 2]).unwrap().0;
    for (from, to) in [(1, 3), (2, 4)] {
        let (id, _) = plan(&mut state, &facts, &request(JobKind::Drain, &[from])).unwrap();
        let items = &mut state.jobs.get_mut(&id).unwrap().items;
        items.iter_mut().filter(|item| item.group == group).for_each(|item| item.to = to);
    }
    assert_eq!(state.server_of(3), state.server_of(4));
    (0..60).for_each(|_| pass(&mut state, &facts));
    let members = &state.groups[&group].members;
    assert!(!members.contains(&1) && !members.contains(&2), "{members:?}");
    assert_ne!(state.server_of(members[0]), state.server_of(members[1]), "{members:?}");
}

#[test]
fn no_job_is_no_job_to_steer_and_undoing_takes_no_flags() {
    let mut state = pairs(3);
    let facts = all_serve(&state, 1);
    let none = SteerJob::default();
    let wrong = [
        SteerJob { cancel: true, ..none },
        SteerJob { pause: true, rate: Some(5), ..none },
        SteerJob { resume: true, ..none },
        none,
    ];
    for request in wrong {
        assert!(steer(&mut state, &facts, &request).unwrap_err().detail.contains("job list"));
    }
    steer(&mut state, &facts, &SteerJob { rate: Some(5), ..none }).unwrap();
    assert_eq!(state.cluster.job_rate, 5);
    state.targets.get_mut(&2).unwrap().drains = true;
    let undo = Plan { undo: true, dry_run: true, ..request(JobKind::Drain, &[2]) };
    assert!(plan(&mut state, &facts, &undo).is_err() && state.targets[&2].drains);
}

mod losses {
    use super::*;

    #[test]
    fn a_copy_that_lives_is_the_heir_and_not_the_empty_newcomer() {
        let mut state = with_pair(&[2], &[]);
        let facts = gone(&state, &[2]);
        replace(&mut state, &facts, 2, 4, true);
        let group = &state.groups[&TWO];
        assert_eq!((group.members.as_slice(), group.in_sync.as_slice()), (&[4, 3][..], &[3][..]));
        assert_eq!(group.losses, 1);
        let mut state = with_pair(&[2], &[]);
        let facts = gone(&state, &[2, 3]);
        replace(&mut state, &facts, 2, 4, true);
        assert_eq!(state.groups[&TWO].in_sync, [4], "who is dead too inherits nothing");
    }

    #[test]
    fn what_a_member_has_that_stays_and_restarts_is_not_given_up() {
        let mut state = with_pair(&[3], &[]);
        let facts = gone(&state, &[2, 3]);
        let id = replace(&mut state, &facts, 2, 4, true);
        let group = &state.groups[&TWO];
        assert_eq!((group.in_sync.as_slice(), group.losses), (&[3][..], 0));
        let item = item_of(&state, id, TWO);
        assert!(item.is(JobState::Waiting) && item.reason.contains("target 3"), "{item:?}");
        let facts = gone(&state, &[2]);
        keep(&mut state, &facts);
        let group = &state.groups[&TWO];
        assert_eq!((group.joining.as_slice(), group.losses), (&[4][..], 0));
    }

    #[test]
    fn who_restarts_while_it_is_emptied_is_waited_for_in_spite_of_the_flag() {
        let mut state = cluster(&[1; 3]);
        let facts = all_serve(&state, 1);
        let lossy = Plan { lose_data: true, ..request(JobKind::Drain, &[2]) };
        plan(&mut state, &facts, &lossy).unwrap();
        let facts = gone(&state, &[2]);
        keep(&mut state, &facts);
        assert_eq!((state.groups[&1].members.as_slice(), state.groups[&1].losses), (&[2][..], 0));
    }

    #[test]
    fn what_was_never_used_when_it_was_planned_is_looked_at_again() {
        let mut state = cluster(&[1; 3]);
        state.groups.get_mut(&1).unwrap().never_used = true;
        let facts = gone(&state, &[2]);
        let wanted = Plan { to: 3, ..request(JobKind::Replace, &[2]) };
        let (id, _) = plan(&mut state, &facts, &wanted).unwrap();
        state.groups.get_mut(&1).unwrap().never_used = false;
        keep(&mut state, &facts);
        assert_eq!(state.groups[&1].in_sync, [2]);
        assert!(item_of(&state, id, 1).reason.contains("--lose-data"));
        state.groups.get_mut(&1).unwrap().never_used = true;
        keep(&mut state, &facts);
        assert_eq!(state.groups[&1].in_sync, [3]);
    }

    #[test]
    fn after_a_loss_by_order_no_boot_is_taken_for_an_older_word() {
        let mut state = cluster(&[1; 3]);
        let facts = gone(&state, &[3]);
        let group = state.groups.get_mut(&2).unwrap();
        group.word = 9;
        replace(&mut state, &facts, 3, 2, true);
        let group = &state.groups[&2];
        assert_eq!((group.members.as_slice(), group.losses), (&[2][..], 1));
        assert!(![0, 9].contains(&group.word) && group.vouchers.is_empty(), "{group:?}");
    }

    /// A target that has so many bytes of a lost group is to get it: not before it has none.
    fn waits_until_it_has_deleted(bytes: u64) {
        let mut state = cluster(&[1; 3]);
        let mut facts = gone(&state, &[3]);
        facts.held.insert((2, 2), bytes);
        let id = replace(&mut state, &facts, 3, 2, true);
        assert_eq!(state.groups[&2].members, [3]);
        assert!(item_of(&state, id, 2).reason.contains("still deletes"));
        facts.held.remove(&(2, 2));
        keep(&mut state, &facts);
        assert_eq!(state.groups[&2].members, [2]);
    }

    #[test]
    fn who_still_deletes_what_it_had_long_ago_is_not_put_in_its_place() {
        waits_until_it_has_deleted(4096);
    }

    /// Who had joined and left since its server last counted was taken for one that holds nothing.
    #[test]
    fn who_may_still_have_what_nobody_has_counted_is_not_put_in_its_place() {
        waits_until_it_has_deleted(0);
    }

    #[test]
    fn a_member_that_was_being_made_equal_inherits_and_is_not_waited_for() {
        let mut state = with_pair(&[2], &[3]);
        let facts = gone(&state, &[2]);
        replace(&mut state, &facts, 2, 4, true);
        let group = &state.groups[&TWO];
        assert_eq!((group.in_sync.as_slice(), group.joining.as_slice()), (&[3][..], &[][..]));
        for _ in 0..3 {
            let life = |target| facts.lives[&target];
            settle(&mut state, life, |_, _| false, at_once);
            keep(&mut state, &facts);
        }
        assert_eq!(state.groups[&TWO].joining, [4]);
    }
}
