use super::*;
use crate::jobs;
use crate::records::Group;
use crate::testing::{
    all_serve, cluster, enter_target, is_given_up_by_no_clock_that_is_set, pass, steer,
};
use std::sync::Arc;
use strake_types::GroupId;
use strake_wire::message::manager::{PrepareCopies, VolumeSpec};
use strake_wire::message::recopies::{RecopyLeft, RecopyTally};

const VOLUME: u32 = 1;
/// The server that keeps the names of the volume.
const META: u32 = 2;

fn request(copies: u32) -> Plan {
    let path = "main:/dir".to_owned();
    let wish = RecopyWish { volume: VOLUME, ino: 77, copies, path };
    Plan { kind: JobKind::Recopy as u32, recopy: Some(wish), ..Plan::default() }
}

/// Three servers of a target each, of which one keeps the names of a volume.
fn state() -> State {
    let mut state = cluster(&[1, 1, 1]);
    let spec = VolumeSpec { name: "main".into(), ..VolumeSpec::default() };
    let volume = Volume { spec, meta_server: META, ..Volume::default() };
    state.volumes.insert(VOLUME, volume.clone());
    state.volumes.insert(VOLUME + 1, volume);
    state
}

fn begun(wanted: &Plan) -> (State, Facts, u32) {
    let mut state = state();
    let facts = all_serve(&state, 100);
    let (id, _) = jobs::plan(&mut state, &facts, wanted).unwrap();
    (state, facts, id)
}

fn said(facts: &mut Facts, job: u32, change: impl FnOnce(&mut RecopyProgress)) {
    said_of(facts, job, VOLUME, change);
}

fn said_of(facts: &mut Facts, job: u32, volume: u32, change: impl FnOnce(&mut RecopyProgress)) {
    let mut progress = RecopyProgress { job: job.into(), volume, ..RecopyProgress::default() };
    change(&mut progress);
    facts.recopies.insert((job.into(), volume), Arc::new(progress));
}

/// As long as no share is ready.
fn orders_of(state: &State, server: u32) -> Vec<RecopyOrder> {
    orders(state, server, |_, _| false)
}

fn reason(state: &State, id: u32) -> &str {
    &state.jobs[&id].recopy.as_ref().unwrap().reason
}

#[test]
fn a_job_makes_the_groups_it_needs_and_its_order_goes_to_the_server_of_the_names() {
    let (state, _, id) = begun(&Plan { rate: Some(900), ..request(2) });
    let led = state.groups.keys().filter(|id| GroupId(**id).copies() == 2).count();
    assert_eq!(led, 3);
    assert_eq!(state.jobs[&id].about, "main:/dir, 2 copies");
    assert!(orders_of(&state, 1).is_empty() && orders_of(&state, 3).is_empty());
    let [order] = &orders_of(&state, META)[..] else { panic!("one job, one order") };
    assert_eq!((order.job, order.volume, order.ino, order.copies), (id.into(), VOLUME, 77, 2));
    assert_eq!((order.rate, order.paused), (900, false));
}

/// A file that lists a target which leads none of so many was waited for for an hour, and then the job had failed.
#[test]
fn who_comes_to_lead_a_group_while_files_get_copies_leads_one_of_so_many() {
    let (mut state, facts, _) = begun(&request(2));
    state.targets.get_mut(&3).unwrap().drains = true;
    let new = enter_target(&mut state, 1);
    let leads = |state: &State| {
        let leads = |(id, group): (&u32, &Group)| {
            (group.members[0] == new).then_some(GroupId(*id).copies())
        };
        state.groups.iter().filter_map(leads).collect::<Vec<u32>>()
    };
    jobs::keep(&mut state, &facts);
    assert!(leads(&state).is_empty(), "no file can list it");
    let wanted = PrepareCopies { copies: 1, targets: vec![new] };
    groups::prepare_named(&mut state, &wanted).unwrap();
    jobs::keep(&mut state, &facts);
    assert_eq!(leads(&state), [1, 2]);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut state = state();
    let facts = all_serve(&state, 100);
    for (copies, word) in [(0, "1 to 3 are possible"), (4, "1 to 3 are possible")] {
        let error = jobs::plan(&mut state, &facts, &request(copies)).unwrap_err();
        assert!(error.detail.contains(word), "{error}");
    }
    let nothing = Plan { recopy: None, ..request(2) };
    assert_eq!(jobs::plan(&mut state, &facts, &nothing).unwrap_err().kind, ErrorKind::Invalid);
    state.volumes.entry(VOLUME).and_modify(|volume| volume.deleting = true);
    let gone = jobs::plan(&mut state, &facts, &request(2)).unwrap_err();
    assert!(gone.kind == ErrorKind::NotFound && gone.detail.contains("strake volume list"));
    assert!(state.jobs.is_empty());
}

#[test]
fn a_volume_has_one_such_job_at_a_time() {
    let (mut state, facts, id) = begun(&request(2));
    let busy = jobs::plan(&mut state, &facts, &request(3)).unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Busy);
    assert!(busy.detail.contains(&format!("strake job watch {id}")), "{busy}");
    let mut other = request(2);
    other.recopy.as_mut().unwrap().volume = VOLUME + 1;
    jobs::plan(&mut state, &facts, &other).unwrap();
    steer(&mut state, &facts, id, |steer| steer.cancel = true);
    jobs::plan(&mut state, &facts, &request(3)).unwrap();
}

#[test]
fn it_ends_with_the_word_of_its_server_and_files_that_are_left_make_it_fail() {
    for left in [0, 2] {
        let (mut state, mut facts, id) = begun(&request(2));
        assert_eq!(reason(&state, id), NOT_BEGUN);
        jobs::keep(&mut state, &facts);
        assert_eq!(reason(&state, id), "metadata server 2 (h2) has not begun yet");
        said(&mut facts, id, |_| {});
        jobs::keep(&mut state, &facts);
        assert_eq!(reason(&state, id), "");
        let tally = RecopyTally { looked: 9, files: 7, bytes: 1 << 30 };
        let open = RecopyLeft { path: "main:/dir/f".into(), reason: "open by host".into() };
        said(&mut facts, id, |said| {
            (said.ended, said.tally, said.left) = (true, tally, left);
            said.waiting = vec![open; left as usize];
        });
        jobs::keep(&mut state, &facts);
        let job = &state.jobs[&id];
        let one = job.recopy.as_ref().unwrap();
        assert_eq!((one.tally, one.left, one.waiting.len()), (tally, left, left as usize));
        assert_eq!(job.is(JobState::Done), left == 0);
        assert_eq!(job.is(JobState::Failed), left > 0);
        assert_eq!(job.reason.starts_with("2 files are as they were"), left > 0, "{job:?}");
        assert!(orders_of(&state, META).is_empty(), "the server may forget it");
    }
}

#[test]
fn a_server_that_is_away_is_waited_for_and_given_up_after_an_hour_that_was_not_a_pause() {
    let (mut state, mut facts, id) = begun(&request(2));
    said(&mut facts, id, |said| said.tally.files = 3);
    facts.up.remove(&META);
    jobs::keep(&mut state, &facts);
    assert!(reason(&state, id).starts_with("metadata server 2 (h2) does not answer"));
    assert_eq!(orders_of(&state, META).len(), 1, "it goes on by itself when it is back");
    let (away, then) = (state.clone(), facts.clone());
    pass(&state, &mut facts, AWAY_MS_MAX);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].lasts(), "not yet");
    pass(&state, &mut facts, 1);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].is(JobState::Failed));
    assert!(state.jobs[&id].reason.starts_with("given up after an hour: metadata server 2"));
    let (mut state, mut facts) = (away, then);
    steer(&mut state, &facts, id, |steer| steer.pause = true);
    pass(&state, &mut facts, 2 * AWAY_MS_MAX);
    jobs::keep(&mut state, &facts);
    steer(&mut state, &facts, id, |steer| steer.resume = true);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].lasts(), "it has an hour again");
    facts.up.insert(META);
    jobs::keep(&mut state, &facts);
    assert_eq!(reason(&state, id), "");
}

/// The clock was set two hours ahead: the job failed at once.
#[test]
fn a_server_that_is_away_is_not_given_up_because_the_clock_was_set() {
    let (mut state, mut facts, id) = begun(&request(2));
    facts.up.remove(&META);
    jobs::keep(&mut state, &facts);
    is_given_up_by_no_clock_that_is_set(&mut state, &mut facts, id);
}

#[test]
fn steered_jobs_say_so_in_their_orders_and_what_a_cancelled_one_has_done_stays_known() {
    let (mut state, mut facts, id) = begun(&request(2));
    said(&mut facts, id, |said| (said.tally.files, said.left) = (3, 1));
    steer(&mut state, &facts, id, |steer| (steer.pause, steer.rate) = (true, Some(7)));
    let order = orders_of(&state, META).remove(0);
    assert_eq!((order.rate, order.paused), (7, true));
    steer(&mut state, &facts, id, |steer| steer.cancel = true);
    let job = &state.jobs[&id];
    let one = job.recopy.as_ref().unwrap();
    assert!(job.is(JobState::Cancelled) && one.tally.files == 3 && one.left == 1);
    assert!(orders_of(&state, META).is_empty());
}

#[test]
fn a_volume_that_is_deleted_ends_its_job() {
    let (mut state, facts, id) = begun(&request(2));
    state.volumes.entry(VOLUME).and_modify(|volume| volume.deleting = true);
    jobs::keep(&mut state, &facts);
    assert!(state.jobs[&id].is(JobState::Cancelled));
    assert_eq!(state.jobs[&id].reason, "the volume is deleted");
}

/// A volume of two shares, the second of which another server has.
fn wide() -> (State, Facts, u32) {
    let mut state = state();
    for (share, server) in [(0, META), (1, META + 1)] {
        let volume = state.volumes.get_mut(&(VOLUME + share)).unwrap();
        (volume.share, volume.meta_server, volume.spec.shares) = (share, server, Some(2));
    }
    let facts = all_serve(&state, 100);
    let mut part = request(2);
    part.recopy.as_mut().unwrap().volume = VOLUME + 1;
    let refused = jobs::plan(&mut state, &facts, &part).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound, "a share alone is no volume");
    let (id, _) = jobs::plan(&mut state, &facts, &Plan { rate: Some(900), ..request(2) }).unwrap();
    (state, facts, id)
}

#[test]
fn of_several_shares_each_server_copies_its_own_and_they_have_the_rate_among_them() {
    let (state, _, id) = wide();
    for (share, server) in [(0, META), (1, META + 1)] {
        let [order] = &orders_of(&state, server)[..] else { panic!("one share, one order") };
        let RecopyOrder { job, volume, ino, rate, .. } = *order;
        assert_eq!((job, volume, ino, rate), (id.into(), VOLUME + share, 77, 450));
    }
    let first_is_ready = |_, share| share == VOLUME;
    assert_eq!(orders(&state, META + 1, first_is_ready)[0].rate, 900);
    let words = |server, volume| {
        let said = RecopyProgress { job: id.into(), volume, ..RecopyProgress::default() };
        own_words(&state, server, vec![said]).len()
    };
    assert_eq!([words(META, VOLUME), words(META + 1, VOLUME + 1)], [1, 1]);
    assert_eq!([words(META, VOLUME + 1), words(META, VOLUME + 7)], [0, 0], "not its business");
    assert_eq!(words(META, 0), 0, "a server that knows of no shares has passed over most of it");
}

#[test]
fn what_is_ahead_is_the_sum_of_all_shares_and_no_more_than_a_part_until_all_have_told() {
    let (state, mut facts, id) = wide();
    let wish = state.jobs[&id].recopy.as_ref().unwrap().wish.clone();
    let shown = |facts: &Facts| {
        let sum = together(told(facts, id)).and_then(|said| said.ahead);
        ahead(&state, &wish, told(facts, id).count(), sum)
    };
    let of = |files, bytes, whole| Some(RecopyAhead { files, bytes, whole });
    assert_eq!(shown(&facts), None);
    said_of(&mut facts, id, VOLUME, |said| said.ahead = of(3, 100, true));
    assert_eq!(shown(&facts), of(3, 100, false));
    said_of(&mut facts, id, VOLUME + 1, |said| said.ahead = of(4, 11, false));
    assert_eq!(shown(&facts), of(7, 111, false));
    said_of(&mut facts, id, VOLUME + 1, |said| said.ahead = of(4, 11, true));
    assert_eq!(shown(&facts), of(7, 111, true));
    said_of(&mut facts, id, VOLUME + 1, |_| {});
    assert_eq!(shown(&facts), None, "a server of an earlier release counts nothing");
}

#[test]
fn a_job_of_several_shares_ends_when_all_have_and_with_the_words_of_all() {
    let (mut state, mut facts, id) = wide();
    let left = |path: &str| RecopyLeft { path: path.into(), reason: "open".into() };
    said_of(&mut facts, id, VOLUME, |said| {
        (said.ended, said.left, said.waiting) = (true, 1, vec![left("a")]);
        said.tally = RecopyTally { looked: 9, files: 7, bytes: 100 };
    });
    jobs::keep(&mut state, &facts);
    assert_eq!(reason(&state, id), "metadata server 3 (h3) has not begun yet");
    facts.up.remove(&(META + 1));
    jobs::keep(&mut state, &facts);
    assert!(reason(&state, id).starts_with("metadata server 3 (h3) does not answer"));
    facts.up.insert(META + 1);
    let tally = RecopyTally { looked: 1, files: 1, bytes: 11 };
    said_of(&mut facts, id, VOLUME + 1, |said| said.tally = tally);
    jobs::keep(&mut state, &facts);
    assert!(reason(&state, id).is_empty() && state.jobs[&id].lasts());
    said_of(&mut facts, id, VOLUME + 1, |said| {
        (said.ended, said.tally, said.left, said.waiting) = (true, tally, 2, vec![left("b")]);
    });
    jobs::keep(&mut state, &facts);
    let job = &state.jobs[&id];
    assert!(job.is(JobState::Failed) && job.reason.starts_with("3 files are as they were"));
    let one = job.recopy.as_ref().unwrap();
    assert_eq!(one.tally, RecopyTally { looked: 10, files: 8, bytes: 111 });
    assert_eq!((one.left, one.waiting.len()), (3, 2));
}

/// It was counted, and shown, once for each share: all of them go through it.
#[test]
fn a_directory_that_waits_in_all_shares_is_told_once() {
    let (_, mut facts, id) = wide();
    let left = |path: &str| RecopyLeft { path: path.into(), reason: "target 13".into() };
    let ahead = |files| Some(RecopyAhead { files, bytes: 10, whole: true });
    said_of(&mut facts, id, VOLUME, |said| {
        (said.left, said.ahead) = (3, ahead(5));
        said.waiting = vec![left(":/main/dir"), left(":/main/a"), left(":/main/a")];
    });
    said_of(&mut facts, id, VOLUME + 1, |said| {
        (said.left, said.ahead) = (2, ahead(4));
        said.waiting = vec![left(":/main/b"), left(":/main/dir")];
    });
    let sum = together(told(&facts, id)).unwrap();
    let paths: Vec<_> = sum.waiting.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(paths, [":/main/dir", ":/main/a", ":/main/a", ":/main/b"]);
    assert_eq!((sum.left, sum.ahead.unwrap().files), (4, 8));
}

/// Of many shares each names a few of those that wait: the others counted once for each share.
#[test]
fn directories_that_wait_in_all_shares_and_are_not_named_count_once() {
    let (_, mut facts, id) = wide();
    let left = |path: &str| RecopyLeft { path: path.into(), reason: "target 13".into() };
    let ahead = |files| Some(RecopyAhead { files, bytes: 10, whole: true });
    for (share, files) in [(0, 3), (1, 2)] {
        said_of(&mut facts, id, VOLUME + share, |said| {
            (said.left, said.directories, said.ahead) = (20 + files, 20, ahead(20 + files));
            said.waiting = vec![left(":/main/dir")];
        });
    }
    let sum = together(told(&facts, id)).unwrap();
    assert_eq!((sum.waiting.len(), sum.directories), (1, 20));
    assert_eq!((sum.left, sum.ahead.unwrap().files), (25, 25));
}
