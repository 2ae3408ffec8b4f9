use super::*;
use strake_wire::message::common::Template;
use strake_wire::message::jobs::{JobItem, JobKind, JobState};
use strake_wire::message::manager::VolumeSpec;

/// Where no job is under way.
fn troubles(map: &ClusterMap) -> Vec<Trouble> {
    super::troubles(map, &[])
}

fn map(in_sync: &[u32], joining: &[u32], up: [bool; 2]) -> ClusterMap {
    let server = |id: u32| Server { id, name: format!("h{id}"), ..Server::default() };
    let target = |id: u32| {
        let spec = TargetSpec { path: format!("/t{id}"), ..TargetSpec::default() };
        Target { id, server: id, spec, up: up[id as usize - 1], drains: false }
    };
    let group = Group {
        id: GroupId::of_class(2, 0).0,
        members: vec![1, 2],
        in_sync: in_sync.to_vec(),
        joining: joining.to_vec(),
        ..Group::default()
    };
    let template = Some(Template { copies: Some(2), ..Template::default() });
    let spec = VolumeSpec { name: "safe".into(), template, ..VolumeSpec::default() };
    ClusterMap {
        servers: (1..=2).map(server).collect(),
        targets: (1..=2).map(target).collect(),
        groups: vec![group],
        volumes: vec![Volume { id: 1, spec, ..Volume::default() }],
        ..ClusterMap::default()
    }
}

#[test]
fn who_is_missing_or_joining_is_named_with_what_it_concerns() {
    assert_eq!(troubles(&map(&[1, 2], &[], [true, true])), []);
    let missing = troubles(&map(&[1], &[], [true, false]));
    assert_eq!((missing.len(), missing[0].stops), (1, false));
    let about = "target 2 (/t2 on server h2) is missing in 1 group of 2 copies (volumes: safe)";
    assert_eq!(missing[0].about, about);
    for command in ["on h2: start `strake server`", "strake target files 2 --lacking"] {
        assert!(missing[0].mend.contains(command), "{missing:?}");
    }
    let joining = troubles(&map(&[2], &[1], [true, true]));
    assert!(joining[0].about.contains("/t1 on server h1) is being made equal"), "{joining:?}");
    assert!(joining[0].mend.contains("strake job list"), "{joining:?}");
}

#[test]
fn a_group_stops_when_nobody_in_sync_serves() {
    let stopped = troubles(&map(&[1], &[], [false, true]));
    assert_eq!(stopped.iter().map(|t| t.stops).collect::<Vec<_>>(), [true, false]);
    assert!(stopped[0].about.contains("only target 1 (/t1 on server h1)"), "{stopped:?}");
    assert!(stopped[0].mend.contains("on h1: start `strake server`"), "{stopped:?}");
    assert!(!troubled(&map(&[1], &[], [false, true]))[0].serves);
}

/// A server that was up was to be started.
#[test]
fn a_server_that_runs_without_a_target_is_to_get_it_back() {
    let mut map = map(&[1], &[], [true, false]);
    map.servers[1].up = true;
    let missing = troubles(&map);
    assert!(missing[0].mend.starts_with("on h2, which runs without it"), "{missing:?}");
    map.servers[1].up = false;
    assert!(troubles(&map)[0].mend.contains("start `strake server`"));
}

/// Nobody had left it out, and its directory was that of the new one.
#[test]
fn a_target_whose_disk_was_changed_is_to_be_replaced_by_the_one_at_its_place() {
    let mut map = map(&[1], &[], [true, false]);
    map.servers[1].up = true;
    let new = Target { id: 3, up: true, ..map.targets[1].clone() };
    map.targets.push(new);
    let mend = troubles(&map).remove(0).mend;
    assert!(mend.contains("its place: strake target replace 2 3; "), "{mend}");
    assert!(!mend.contains("--without") && mend.contains("files 2 --lacking"), "{mend}");
    map.groups[0].in_sync = vec![2];
    let stopped = troubles(&map).remove(0);
    let mend = "another disk has taken its place: start the server with the old one again; is that lost: strake \
                target replace 2 3";
    assert!(stopped.stops && stopped.mend == mend, "{stopped:?}");
    map.targets[2].server = 1;
    assert_eq!(successor(&map, &map.targets[1]), None, "it lies elsewhere");
}

/// `target replace` was advised while that very job ran, which refuses another one.
#[test]
fn a_target_that_a_job_empties_is_waited_for() {
    let mut map = map(&[1], &[], [true, false]);
    let new = Target { id: 3, up: true, ..map.targets[1].clone() };
    map.targets.push(new);
    let running = JobState::Running as u32;
    let items = vec![JobItem { from: 2, to: 3, ..JobItem::default() }];
    let job = Job { id: 17, state: running, items, ..Job::default() };
    let mend = |job: Job| super::troubles(&map, &[job]).remove(0).mend;
    for kind in [JobKind::Drain as u32, JobKind::Replace as u32] {
        let told = mend(Job { kind, ..job.clone() });
        assert!(told.starts_with("wait; strake job watch 17"), "{told}");
        assert!(!told.contains("replace"), "{told}");
        let told = mend(Job { kind, state: JobState::Paused as u32, ..job.clone() });
        assert!(told.contains("strake job resume 17") && !told.contains("replace"), "{told}");
    }
    let kind = JobKind::Drain as u32;
    let item = |from, state: JobState| {
        let items = vec![JobItem { from, state: state as u32, ..JobItem::default() }];
        Job { kind, items, ..job.clone() }
    };
    let others = [
        ("only some of its groups move", Job { kind: JobKind::Rebalance as u32, ..job.clone() }),
        ("it has ended", Job { kind, state: JobState::Failed as u32, ..job.clone() }),
        ("that group has failed", item(2, JobState::Failed)),
        ("it empties another one", item(1, JobState::Running)),
    ];
    for (why, job) in others {
        let told = mend(job);
        assert!(told.contains("strake target replace 2 3"), "{why}: {told}");
    }
}

/// To replace it was advised while that was done. A job that gives up nothing waits for the target itself.
#[test]
fn what_a_job_gives_up_is_not_to_be_given_up_again() {
    let mut map = map(&[2], &[], [true, false]);
    let new = Target { id: 3, up: true, ..map.targets[1].clone() };
    map.targets.push(new);
    let (kind, state) = (JobKind::Replace as u32, JobState::Running as u32);
    for lost in [true, false] {
        let items = vec![JobItem { from: 2, to: 3, lost, ..JobItem::default() }];
        let job = Job { id: 17, kind, state, items, ..Job::default() };
        let stopped = super::troubles(&map, &[job]).remove(0);
        assert!(stopped.stops);
        assert_eq!(stopped.mend.starts_with("wait; strake job watch 17"), lost, "{stopped:?}");
    }
}

/// The server was to be started again, which ends what it has of it.
#[test]
fn a_server_whose_target_has_lost_its_directory_is_not_to_be_started_again() {
    let mut map = map(&[1], &[], [true, true]);
    let spec = &mut map.targets[1].spec;
    (spec.displaced, spec.poisoned) = (Place::Removed as u32, "EIO".into());
    let missing = troubles(&map).remove(0).mend;
    assert!(missing.starts_with("strake target replace 2 NEW, or"), "{missing}");
    map.groups[0].in_sync = vec![2];
    let stopped = troubles(&map).remove(0);
    assert!(stopped.stops && stopped.mend.contains("before its server stops"), "{stopped:?}");
    assert!(stopped.mend.contains("strake target remove 2 --lose-data"), "{stopped:?}");
}

#[test]
fn a_target_that_is_elsewhere_is_to_be_put_back_before_its_server_is_started_again() {
    let mut map = map(&[1], &[], [true, true]);
    let spec = &mut map.targets[1].spec;
    (spec.displaced, spec.poisoned) = (Place::Elsewhere as u32, "EIO".into());
    let missing = troubles(&map).remove(0).mend;
    assert!(missing.starts_with(PUT_BACK), "{missing}");
    map.groups[0].in_sync = vec![2];
    assert_eq!(troubles(&map).remove(0).mend, PUT_BACK);
}

/// They were to be replaced by what is empty, with everything that they alone have.
#[test]
fn the_only_targets_that_have_everything_are_to_come_back_before_others_replace_them() {
    let mut map = map(&[1, 2], &[], [false, false]);
    let new = |old: &Target| Target { id: old.id + 2, up: true, ..old.clone() };
    let others: Vec<Target> = map.targets.iter().map(new).collect();
    map.targets.extend(others);
    let mend = "other disks have taken their places: start the servers with the old ones again; are those lost: \
                strake target replace 1 3, strake target replace 2 4";
    assert_eq!(troubles(&map)[0].mend, mend);
}

/// "strake doctor tries from here, and with its disks".
#[test]
fn a_server_that_is_not_reached_is_not_to_be_given_its_disks() {
    let mut map = map(&[1], &[], [false, true]);
    assert!(troubles(&map)[0].mend.ends_with(", and with its disks"));
    map.servers[0].unreached = "h1:7440".into();
    let mend = troubles(&map).remove(0).mend;
    assert!(mend.contains("others reach h1") && !mend.contains("disks"), "{mend}");
}

/// Its server runs, and the manager hears it: to start it again mends nothing.
#[test]
fn a_target_that_others_do_not_reach_is_not_to_be_started() {
    let mut map = map(&[1], &[], [true, true]);
    map.servers[1].up = true;
    let mend = troubles(&map).remove(0).mend;
    assert!(mend.starts_with("h2 runs with it: strake doctor"), "{mend}");
}

/// Its server was to be started again, which runs, and its log to say how it had ended.
#[test]
fn a_target_whose_disk_fails_or_hangs_under_a_server_that_runs_is_told_with_that() {
    let mut map = map(&[1], &[], [true, true]);
    map.servers[1].up = true;
    map.targets[1].spec.poisoned = "flushing data: EIO".into();
    let missing = troubles(&map).remove(0);
    let named =
        "target 2 (/t2 on server h2), which takes no writes (flushing data: EIO), is missing";
    assert!(missing.about.starts_with(named), "{missing:?}");
    let mend = "check the disk (dmesg, smartctl), then restart h2. Is it lost: strake target";
    assert!(missing.mend.starts_with(mend), "{missing:?}");
    map.groups[0].in_sync = vec![2];
    let stopped = troubles(&map).remove(0);
    assert_eq!(stopped.mend, "check the disk (dmesg, smartctl), then restart h2");
    map.groups[0].in_sync = vec![1];
    (map.targets[1].spec.poisoned, map.targets[1].spec.silent_ms) = (String::new(), Some(30_000));
    let missing = troubles(&map).remove(0);
    assert!(missing.about.contains("whose disk hangs, is missing"), "{missing:?}");
    assert!(missing.mend.starts_with("check the disk (dmesg, smartctl); it goes"), "{missing:?}");
    map.targets[1].up = false;
    assert!(troubles(&map)[0].mend.contains("which runs without it"), "that was before it ended");
}

/// Both servers were to be started, which run.
#[test]
fn targets_of_which_one_has_failed_and_another_hangs_are_told_with_what_mends_each() {
    let mut map = map(&[1, 2], &[], [true, true]);
    map.servers.iter_mut().for_each(|server| server.up = true);
    map.targets[0].spec.poisoned = "flushing data: EIO".into();
    (map.targets[1].spec.poisoned, map.targets[1].spec.silent_ms) = ("EIO".into(), Some(30_000));
    let both = mend_disks(&map, &[1, 2]).unwrap();
    assert!(both.ends_with("then restart h1 or h2"), "{both}");
    map.targets[1].spec.poisoned = String::new();
    let mixed = mend_disks(&map, &[1, 2]).unwrap();
    assert!(mixed.contains("then restart h1; one that hangs goes on when it answers"), "{mixed}");
    map.targets[1].spec.silent_ms = None;
    assert_eq!(mend_disks(&map, &[1, 2]), None, "one works");
}

#[test]
fn copies_on_one_server_are_noticed() {
    let mut map = map(&[1, 2], &[], [true, true]);
    assert!(!share_servers(&map, 2));
    map.targets[1].server = 1;
    assert!(share_servers(&map, 2) && !share_servers(&map, 3));
}

#[test]
fn a_group_of_one_copy_stops_with_its_target_if_there_is_something_in_it() {
    let mut map = map(&[1, 2], &[], [true, false]);
    let (members, in_sync) = (vec![2], vec![2]);
    map.groups[0] = Group { id: 1, members, in_sync, never_used: true, ..Group::default() };
    assert_eq!((troubles(&map), has_single(&map, 2)), (Vec::new(), false));
    map.groups[0].never_used = false;
    assert!(!has_single(&map, 2), "no volume has such files");
    let stopped = troubles(&map);
    assert!(stopped.len() == 1 && !stopped[0].stops, "{stopped:?}");
    let about = "1 group of one copy (files of volumes that asked for it once, directories that do) cannot be read \
                 or written: only target 2 (/t2 on server h2) has everything, and does not serve";
    assert_eq!(stopped[0].about, about);
    map.volumes[0].spec.template = None;
    assert!(has_single(&map, 2) && !has_single(&map, 1) && troubles(&map)[0].stops);
}

/// A volume that nobody could write to was degraded, and nothing said that its writes wait.
#[test]
fn a_volume_that_asks_for_more_copies_than_are_in_sync_is_told_of() {
    let mut map = map(&[1], &[], [true, false]);
    let least = |map: &mut ClusterMap, least| {
        map.volumes[0].spec.template.as_mut().unwrap().min_copies = Some(least);
    };
    least(&mut map, 2);
    let told = troubles(&map);
    assert_eq!(told.iter().map(|one| one.stops).collect::<Vec<_>>(), [true, false]);
    let about = "writes to volume safe wait where fewer than 2 copies are in sync (--min-copies): in 1 group";
    assert_eq!((told[0].about.as_str(), &told[0].mend), (about, &told[1].mend));
    assert_eq!(
        super::of_groups(&map, &[]).len(),
        1,
        "of one file that is told by what it asks for"
    );
    let row = |map: &ClusterMap| troubled(map).remove(0);
    assert_eq!(row(&map).too_few_for(), Some(2));
    least(&mut map, 1);
    assert_eq!(troubles(&map).len(), 1);
    least(&mut map, 2);
    map.volumes[0].spec.template.as_mut().unwrap().copies = Some(1);
    assert_eq!(troubles(&map).len(), 1, "another group has its files");
    map.volumes[0].spec.template.as_mut().unwrap().copies = Some(2);
    map.targets[0].up = false;
    assert_eq!(row(&map).too_few_for(), None, "it is not read either, which is told");
    assert!(!troubles(&map)[0].about.contains("writes"));
}

/// With every target that was away the whole of its sentence was said twice, in one line.
#[test]
fn writes_that_wait_for_several_targets_lead_to_what_is_said_of_each() {
    let mut map = map(&[1], &[], [true, false]);
    map.volumes[0].spec.template.as_mut().unwrap().min_copies = Some(2);
    let mend = |map: &mut ClusterMap, id| {
        let target = Target { id, up: false, ..map.targets[1].clone() };
        map.targets.push(target);
        let group =
            Group { id: GroupId::of_class(2, id).0, members: vec![1, id], ..map.groups[0].clone() };
        map.groups.push(group);
        troubles(map).remove(0).mend
    };
    assert_eq!(mend(&mut map, 3), "see what is said below of targets 2, 3");
    assert_eq!(mend(&mut map, 4), "see what is said below of targets 2, 3, 4");
    mend(&mut map, 5);
    assert_eq!(mend(&mut map, 6), "see what is said below of targets 2, 3, 4 and 2 more");
}

/// Who was told to wait for what somebody had let wait waited for ever.
#[test]
fn what_is_made_equal_by_a_job_that_is_paused_waits_for_that_to_be_resumed() {
    let map = map(&[1], &[2], [true, true]);
    let item = |group| JobItem { group, to: 2, ..JobItem::default() };
    let job = |id, state: JobState, group| {
        let (kind, state) = (JobKind::Heal as u32, state as u32);
        Job { id, kind, state, items: vec![item(group)], ..Job::default() }
    };
    let group = map.groups[0].id;
    let mend = |jobs: &[Job]| super::troubles(&map, jobs).remove(0).mend;
    let running = job(7, JobState::Running, group);
    assert!(mend(std::slice::from_ref(&running)).starts_with("wait; strake job watch 7"));
    let paused = job(8, JobState::Paused, group);
    assert_eq!(mend(&[running.clone(), paused]), "job 8 is paused: strake job resume 8");
    let elsewhere = job(8, JobState::Paused, group + 1);
    assert!(mend(&[running, elsewhere]).contains("job watch 7"));
}

/// A disk that was full was to be looked at, and to be replaced.
#[test]
fn a_target_that_cannot_be_made_equal_is_told_with_what_the_job_says() {
    let mut map = map(&[1], &[], [true, true]);
    map.servers[1].up = true;
    let reason = "target 2 is full".to_owned();
    let group = map.groups[0].id;
    let state = JobState::Running as u32;
    let item = JobItem { group, to: 2, reason, state, ..JobItem::default() };
    let mend = |map: &ClusterMap, item: &JobItem| {
        let (kind, items) = (JobKind::Heal as u32, vec![item.clone()]);
        super::troubles(map, &[Job { id: 7, kind, state, items, ..Job::default() }]).remove(0).mend
    };
    let told = mend(&map, &item);
    assert!(told.starts_with("it cannot be made equal: target 2 is full; "), "{told}");
    assert!(told.contains("strake job show 7") && !told.contains("replace"), "{told}");
    let elsewhere = JobItem { group: group + 1, ..item.clone() };
    let waits = JobItem { state: JobState::Waiting as u32, ..item.clone() };
    for other in [elsewhere, waits] {
        assert!(!mend(&map, &other).contains("cannot be made equal"), "{other:?}");
    }
    map.targets[1].up = false;
    assert!(mend(&map, &item).contains("which runs without it"), "that was before it ended");
}

/// It said to wait, for nobody knew what.
#[test]
fn a_job_that_gets_on_with_nothing_says_what_it_waits_for() {
    let item = |state: JobState, reason: &str| JobItem {
        state: state as u32,
        reason: reason.to_owned(),
        ..JobItem::default()
    };
    let job = |items: Vec<JobItem>, rate| Job {
        id: 7,
        state: JobState::Running as u32,
        items,
        rate,
        ..Job::default()
    };
    let told = |items: Vec<JobItem>| jobs::wait_for(&job(items, 0));
    let [done, waits, runs] =
        [(JobState::Done, ""), (JobState::Running, "h1 is away"), (JobState::Running, "")]
            .map(|(state, reason)| item(state, reason));
    let said = told(vec![done.clone(), item(JobState::Waiting, ""), waits.clone()]);
    assert_eq!(said, "job 7 is at it, and says: h1 is away");
    assert!(jobs::wait_for(&job(vec![waits.clone()], 9)).starts_with("wait; "), "tried again");
    assert!(told(vec![done, waits, runs]).starts_with("wait; "));
}
