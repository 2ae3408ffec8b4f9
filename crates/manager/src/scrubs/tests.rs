use super::*;
use crate::groups::{Life, prepare};
use crate::jobs;
use crate::testing::{all_serve, cluster, is_given_up_by_no_clock_that_is_set, pass, steer};
use std::sync::Arc;
use strake_wire::message::jobs::Plan;
use strake_wire::message::scrubs::{ScrubFate, ScrubFinding, ScrubTally};

fn request(targets: &[u32]) -> Plan {
    Plan { kind: JobKind::Scrub as u32, targets: targets.to_vec(), ..Plan::default() }
}

/// What a server is to verify.
fn orders(state: &State, server: u32) -> Vec<ScrubOrder> {
    super::orders(state).remove(&server).unwrap_or_default()
}

/// Three servers of a target each, with groups of two copies, and a job that verifies all.
fn begun(wanted: &Plan) -> (State, Facts, u32) {
    let mut state = cluster(&[1, 1, 1]);
    prepare(&mut state, 2).unwrap();
    let facts = all_serve(&state, 100);
    let (id, _) = jobs::plan(&mut state, &facts, wanted).unwrap();
    (state, facts, id)
}

fn said(facts: &mut Facts, job: u32, target: u32, change: impl FnOnce(&mut ScrubProgress)) {
    let mut progress = ScrubProgress { job: job.into(), target, ..ScrubProgress::default() };
    change(&mut progress);
    facts.scrubs.insert((job.into(), target), Arc::new(progress));
}

#[test]
fn every_target_is_verified_and_every_group_of_copies_is_compared_once() {
    let (state, _, id) = begun(&request(&[]));
    let job = &state.jobs[&id];
    let targets: Vec<u32> = job.scrubs.iter().map(|one| one.target).collect();
    assert_eq!(targets, [1, 2, 3]);
    assert!(job.scrubs.iter().all(|one| one.bytes >= 100), "{job:?}");
    let mut compared: Vec<u32> = job.scrubs.iter().flat_map(|one| one.compare.clone()).collect();
    compared.sort_unstable();
    let copied = state.groups.keys().copied().filter(|id| GroupId(*id).copies() > 1);
    assert_eq!(compared, copied.collect::<Vec<_>>());
    for one in &job.scrubs {
        let leads = |group: &u32| state.groups[group].in_sync[0] == one.target;
        assert!(one.compare.iter().all(leads), "{one:?}");
    }
}

#[test]
fn of_named_targets_all_groups_are_compared_that_they_are_members_of() {
    let (state, _, id) = begun(&request(&[2]));
    let [one] = &state.jobs[&id].scrubs[..] else { panic!("one target was named") };
    let holds = |id: &u32| GroupId(*id).copies() > 1 && state.groups[id].members.contains(&2);
    assert_eq!(one.compare, state.groups.keys().copied().filter(holds).collect::<Vec<_>>());
}

#[test]
fn a_target_is_verified_by_one_job_at_a_time_and_a_plan_changes_nothing() {
    let (mut state, facts, id) = begun(&request(&[2]));
    let busy = jobs::plan(&mut state, &facts, &request(&[])).unwrap_err();
    assert!(busy.detail.contains(&format!("strake job watch {id}")), "{busy}");
    let before = state.clone();
    let dry = Plan { dry_run: true, ..request(&[1]) };
    assert_eq!(jobs::plan(&mut state, &facts, &dry).unwrap().1.scrubs.len(), 1);
    assert!(state == before);
    jobs::plan(&mut state, &facts, &request(&[1, 3])).unwrap();
    let unknown = jobs::plan(&mut state, &facts, &request(&[9])).unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::NotFound);
}

#[test]
fn what_servers_tell_ends_the_items_and_damage_that_is_left_makes_the_job_fail() {
    let (mut state, mut facts, id) = begun(&request(&[]));
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].scrubs.iter().all(|one| one.is(JobState::Waiting)), "nobody began");
    said(&mut facts, id, 1, |said| said.ended = true);
    said(&mut facts, id, 2, |said| said.tally.bytes = 5);
    said(&mut facts, id, 3, |said| {
        said.ended = true;
        said.tally = ScrubTally { repaired: 2, left: 1, ..ScrubTally::default() };
        said.findings = vec![ScrubFinding { fate: ScrubFate::Lost as u32, ..Default::default() }];
        said.skipped = vec!["copies of group 7: gone".into()];
    });
    jobs::keep(&mut state, &facts);
    let job = &state.jobs[&id];
    assert!(job.scrubs[0].is(JobState::Done) && job.scrubs[1].is(JobState::Running) && job.lasts());
    let failed = &job.scrubs[2];
    assert!(
        failed.is(JobState::Failed) && failed.findings.len() == 1 && failed.tally.repaired == 2
    );
    assert_eq!(failed.reason, "1 chunk is damaged still; not looked at: copies of group 7: gone");
    said(&mut facts, id, 2, |said| said.ended = true);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].is(JobState::Failed));
    assert!((1..=3).all(|server| orders(&state, server).is_empty()), "servers may forget it");
}

#[test]
fn a_target_that_is_away_waits_with_its_reason_and_is_given_up_after_an_hour() {
    let (mut state, mut facts, id) = begun(&request(&[1, 2]));
    facts.lives.insert(2, Life::Gone);
    said(&mut facts, id, 1, |said| said.ended = true);
    jobs::keep(&mut state, &facts);
    let reason = state.jobs[&id].scrubs[1].reason.clone();
    assert!(reason.starts_with("target 2 (/t2 on server h2) does not answer"), "{reason}");
    assert!(state.jobs[&id].lasts());
    assert_eq!(orders(&state, 2).len(), 1, "it goes on by itself when it is back");
    let back = facts.clone();
    pass(&state, &mut facts, AWAY_MS_MAX);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].lasts(), "not yet");
    let waiting = state.clone();
    pass(&state, &mut facts, 1);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].is(JobState::Failed));
    assert!(state.jobs[&id].scrubs[1].reason.contains("does not answer"));
    // One that is back is verified.
    let (mut state, mut facts) = (waiting, back);
    facts.lives.insert(2, Life::Serves);
    said(&mut facts, id, 2, |_| {});
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].scrubs[1].is(JobState::Running));
    // While a job is paused nobody is given up, and resumed it has an hour again.
    facts.lives.insert(2, Life::Gone);
    jobs::keep(&mut state, &facts);
    steer(&mut state, &facts, id, |steer| steer.pause = true);
    pass(&state, &mut facts, 2 * AWAY_MS_MAX);
    jobs::keep(&mut state, &facts);
    steer(&mut state, &facts, id, |steer| steer.resume = true);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].lasts());
}

/// The clock of a machine that had just started was two hours behind, and was set: it was given up after a minute.
#[test]
fn a_target_that_is_away_is_not_given_up_because_the_clock_was_set() {
    let (mut state, mut facts, id) = begun(&request(&[2]));
    facts.lives.insert(2, Life::Gone);
    jobs::keep(&mut state, &facts);
    is_given_up_by_no_clock_that_is_set(&mut state, &mut facts, id);
}

/// It was taken for no rate of its own, and so for that of all jobs, while a later throttle of 0 was no limit.
#[test]
fn a_rate_of_nothing_is_no_limit_from_the_beginning_on() {
    for (rate, share) in [(None, 3), (Some(0), 0), (Some(900), 300)] {
        let (mut state, mut facts, id) = begun(&Plan { rate, ..request(&[]) });
        state.cluster.job_rate = 9;
        for target in 1..=3 {
            said(&mut facts, id, target, |said| said.tally.bytes = 7);
        }
        jobs::keep(&mut state, &facts);
        assert_eq!(orders(&state, 2)[0].rate, share, "{rate:?}");
    }
}

#[test]
fn orders_say_who_reads_what_how_fast_and_a_cancelled_job_gives_none() {
    let wanted = Plan { rate: Some(900), no_repair: true, ..request(&[]) };
    let (mut state, mut facts, id) = begun(&wanted);
    for target in 1..=3 {
        said(&mut facts, id, target, |said| said.tally.bytes = 7);
    }
    jobs::keep(&mut state, &facts);
    let of = |state: &State, server| orders(state, server).remove(0);
    let order = of(&state, 2);
    assert_eq!((order.job, order.target, order.repair), (id.into(), 2, false));
    assert_eq!((order.rate, order.paused), (300, false));
    steer(&mut state, &facts, id, |steer| (steer.pause, steer.rate) = (true, Some(0)));
    let order = of(&state, 2);
    assert_eq!((order.rate, order.paused), (0, true));
    steer(&mut state, &facts, id, |steer| steer.cancel = true);
    assert!(orders(&state, 2).is_empty() && state.jobs[&id].is(JobState::Cancelled));
    assert_eq!(state.jobs[&id].scrubs[1].tally.bytes, 7, "what was done stays known");
}

#[test]
fn a_scrub_is_in_nobodys_way_and_a_target_that_goes_is_not_waited_for() {
    let (mut state, facts, id) = begun(&request(&[]));
    let drain = Plan { kind: JobKind::Drain as u32, targets: vec![2], ..Plan::default() };
    jobs::plan(&mut state, &facts, &drain).unwrap();
    state.targets.remove(&2);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].scrubs[1].is(JobState::Cancelled));
    assert!(state.jobs[&id].scrubs[1].reason.contains("not in the cluster any more"));
}

/// The record of a job is written as a whole, and etcd takes no more than 1.5 MB: then nothing of the cluster could be
/// changed any more.
#[test]
fn of_what_a_job_has_found_so_much_is_remembered_and_what_is_damaged_still_first() {
    let found = |fate| vec![ScrubFinding { fate: fate as u32, ..ScrubFinding::default() }; 1_500];
    let mut lists = [found(ScrubFate::Repaired), found(ScrubFate::Lost)];
    bound(lists.iter_mut());
    assert_eq!([lists[0].len(), lists[1].len()], [FINDINGS_MAX - 1_500, 1_500]);
}
