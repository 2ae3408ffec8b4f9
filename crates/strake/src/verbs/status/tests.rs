use super::*;
use strake_engine::kv::KvError;
use strake_types::GroupId;
use strake_wire::message::common::Template;
use strake_wire::message::jobs::{JobItem, JobKind, JobState};
use strake_wire::message::manager::{Group, TargetSpec, VolumeSpec};

/// Where no job is under way.
fn judge(map: &ClusterMap) -> Report {
    super::judge(map, &[])
}

fn map() -> ClusterMap {
    let address = |id| format!("h{id}:7440");
    let server =
        |id| Server { id, up: true, meta: id == 1, address: address(id), ..Server::default() };
    let target = |id, server| Target {
        id,
        server,
        up: true,
        spec: TargetSpec { total_bytes: 1000, free_bytes: 900, ..TargetSpec::default() },
        drains: false,
    };
    let spec = VolumeSpec { name: "main".into(), ..VolumeSpec::default() };
    ClusterMap {
        servers: vec![server(1), server(2)],
        targets: vec![target(1, 1), target(2, 2)],
        volumes: vec![Volume { id: 1, spec, meta_server: 1, ..Volume::default() }],
        ..ClusterMap::default()
    }
}

/// It bore the name of the server that had come to its address, and was to be started where that one runs.
#[test]
fn a_server_whose_address_another_one_has_is_told_by_its_number() {
    let mut map = map();
    for server in &mut map.servers {
        (server.name, server.address) = ("h4".into(), "h4:7440".into());
    }
    (map.servers[1].up, map.servers[1].address) = (false, String::new());
    let said = server_problem(&map, &map.servers[1]).unwrap();
    assert!(said.about.starts_with("server h4 (number 2, whose address"), "{}", said.about);
    assert!(said.mend.contains("of server 2") && !said.mend.contains("on h4"), "{}", said.mend);
    map.servers[1].address = "h5:7440".into();
    let said = server_problem(&map, &map.servers[1]).unwrap();
    assert!(said.about.starts_with("server h4 (h5:7440) is down"), "{}", said.about);
}

/// A server of its own for names was named, which an embedded store refuses.
#[test]
fn a_volume_without_a_metadata_server_names_what_gives_it_one() {
    let mut map = map();
    (map.volumes[0].meta_server, map.servers[0].manager) = (0, true);
    map.servers[0].name = "head".into();
    assert!(judge(&map).problems[0].contains("on head: start `strake server` again"));
    map.servers[0].store = "database".into();
    assert!(judge(&map).problems[0].contains("--roles meta --join MANAGER --meta URL"));
}

/// It was up, and in no group; nothing said that no new file came there.
#[test]
fn a_target_that_no_new_files_come_to_is_named_with_what_brings_them() {
    let mut map = map();
    let group = |id, members: &[u32]| {
        let (members, in_sync) = (members.to_vec(), members.to_vec());
        Group { id, members, in_sync, ..Group::default() }
    };
    let two = GroupId::of_class(2, 0).0;
    map.groups = vec![group(0, &[1]), group(1, &[2]), group(two, &[1, 2])];
    assert!(judge(&map).unused.is_empty());
    map.groups = vec![group(0, &[1]), group(two, &[1, 2])];
    let report = judge(&map);
    let told = "no new files of 1 copy come to target 2; strake rebalance mends that";
    assert_eq!((report.health, report.unused), (Health::Fine, vec![told.to_owned()]));
    map.targets[1].drains = true;
    assert!(judge(&map).unused.is_empty(), "none are to come");
}

#[test]
fn a_cluster_is_as_well_as_its_worst_part() {
    assert_eq!(judge(&map()).health, Health::Fine);
    let mut full = map();
    full.targets[0].spec.free_bytes = 1;
    assert_eq!(judge(&full).health, Health::Degraded);
    full.targets[0].spec.total_bytes = 0;
    let unknown = judge(&full);
    assert_eq!((unknown.health, unknown.targets[0].free_bytes), (Health::Fine, None));
    full.targets[0].spec.total_bytes = 1000;
    let mut down = full.clone();
    (down.servers[1].up, down.targets[1].up) = (false, false);
    let (members, in_sync) = (vec![2], vec![2]);
    down.groups = vec![Group { id: 1, members, in_sync, ..Group::default() }];
    assert_eq!(judge(&down).health, Health::Broken);
    assert_eq!(judge(&down).problems.len(), 3);
    down.volumes[0].meta_server = 2;
    let told = judge(&down).problems;
    assert!(told[0].contains("and all that use volume main wait for it; on "), "{told:?}");
    down.volumes[0].meta_server = 1;
    down.groups[0].never_used = true;
    assert_eq!(judge(&down).health, Health::Degraded, "nothing is there that could be read");
}

/// The cluster was fine while nobody could open a volume of it.
#[test]
fn a_volume_that_nobody_can_open_is_broken() {
    let mut map = map();
    map.volumes[0].spec.template = Some(Template { ack: Some(9), ..Template::default() });
    let report = judge(&map);
    assert_eq!(report.health, Health::Broken);
    assert!(report.problems[0].contains("volume main cannot be opened"));
    map.volumes[0].deleting = true;
    assert_eq!(judge(&map).health, Health::Fine);
}

#[test]
fn whatever_is_wrong_is_told_with_a_command() {
    let mut map = map();
    (map.servers[0].name, map.servers[1].name) = ("h1".into(), "h2".into());
    (map.servers[0].cut_off, map.servers[1].up) = (true, false);
    (map.targets[0].spec.free_bytes, map.volumes[0].meta_server) = (1, 0);
    let problems = judge(&map).problems;
    let commands = [
        "on h1: journalctl -t strake",
        "on h2: start `strake server`",
        ADD_DISK,
        "--roles meta --join MANAGER",
    ];
    assert_eq!(problems.len(), commands.len(), "{problems:?}");
    for (problem, command) in problems.iter().zip(commands) {
        assert!(problem.contains(command), "{problem}");
    }
}

/// The cluster was fine, while all changes failed.
#[test]
fn a_metadata_store_without_room_is_told_once_with_its_volumes_and_what_mends_it() {
    let mut map = map();
    let spec = VolumeSpec { name: "work".into(), ..VolumeSpec::default() };
    map.volumes.push(Volume { id: 2, spec, meta_server: 2, ..Volume::default() });
    let said = "metadata store postgres://db/strake: no space left; give it room; or less";
    for (server, name) in map.servers.iter_mut().zip(["h1", "h2"]) {
        (server.name, server.full) = (name.into(), said.into());
    }
    let report = judge(&map);
    let told = format!(
        "servers h1, h2 take no new names, longer files or attributes of volumes main, work: {said}"
    );
    assert_eq!((report.health, report.problems), (Health::Broken, vec![told]));
    assert!(report.servers.iter().all(|row| row.full == said), "for programs");
    // It can say nothing of that any more, or nobody is the worse for it.
    (map.servers[0].cut_off, map.volumes[1].deleting) = (true, true);
    assert!(judge(&map).problems.iter().all(|problem| !problem.contains("no space left")));
    (map.servers[0].cut_off, map.servers[0].full) = (false, String::new());
    assert_eq!(judge(&map).health, Health::Fine);
    map.servers[0].full = "metadata store etcd://db/strake: no space left; disarm it".into();
    let told =
        "on server h1 nothing can be changed in volume main: metadata store etcd://db/strake";
    assert!(judge(&map).problems[0].starts_with(told), "it lets nobody delete either");
}

/// It was fine, while writes to groups of several copies failed: a 16th of it is kept back, which was more than what counted as
/// hardly anything.
#[test]
fn a_small_target_is_nearly_full_before_it_refuses_writes() {
    let (mut map, mib) = (map(), 1_u64 << 20);
    for (total, low) in [(173 * mib, true), (1_700 * mib, true), (4 << 40, false)] {
        let spec = &mut map.targets[0].spec;
        (spec.total_bytes, spec.free_bytes) = (total, total / 16);
        assert_eq!(room_problem(&map.targets[0]).is_some(), low, "{total}");
    }
}

/// The cluster was fine for good, while all changes failed.
#[test]
fn a_metadata_store_that_has_stopped_is_told_with_its_server_and_what_mends_it() {
    let mut map = map();
    let store = KvError::Poisoned { store: "/d/meta".into(), cause: "EIO".into() };
    (map.servers[0].name, map.servers[0].full) = ("head".into(), store.to_string());
    let report = judge(&map);
    let told = "on server head nothing can be changed in volume main: metadata store /d/meta stopped \
                after an I/O error (EIO); restart its server (what was synced is on its disk)";
    assert_eq!((report.health, report.problems.len()), (Health::Broken, 1));
    assert!(report.problems[0].starts_with(told), "{:?}", report.problems);
    map.servers[0].manager = true;
    let told = judge(&map).problems.remove(0);
    assert!(told.contains("in volume main, nor can its manager take out a server that"), "{told}");
}

/// It was fine, and the server up.
#[test]
fn a_server_that_is_heard_and_cannot_be_reached_is_told_with_its_address() {
    let mut map = map();
    let (name, address) = ("h2".to_owned(), "h2:1".to_owned());
    let unreached = "Connection refused".to_owned();
    map.servers[1] = Server { name, address, unreached, ..map.servers[1].clone() };
    for up in [true, false] {
        map.servers[1].up = up;
        let report = judge(&map);
        assert_eq!(report.health, Health::Degraded);
        let told = "server h2 is heard, but cannot be reached at h2:1: Connection refused; see to it that others reach h2";
        assert!(report.problems[0].starts_with(told), "{:?}", report.problems);
    }
}

/// Two processes had its number, and all was fine.
#[test]
fn a_server_under_whose_number_another_process_asks_to_join_is_told_with_both_addresses() {
    let mut map = map();
    let (name, address, rival) = ("h2".to_owned(), "h2:1".to_owned(), "copy:1".to_owned());
    map.servers[1] = Server { name, address, rival, ..map.servers[1].clone() };
    let report = judge(&map);
    assert_eq!((report.health, report.problems.len()), (Health::Degraded, 1));
    let told = "server h2 is heard at h2:1, and another process asks from copy:1 to join under its number (2); has h2 moved there?";
    assert!(report.problems[0].starts_with(told), "{:?}", report.problems);
}

/// It was fine, while every read of what they hold ended in ETIMEDOUT.
#[test]
fn servers_that_know_more_than_metadata_from_a_backup_are_told_with_what_to_do() {
    let mut map = map();
    for (server, name) in map.servers.iter_mut().zip(["h1", "h2"]) {
        (server.name, server.ahead) = (name.into(), true);
    }
    let report = judge(&map);
    assert_eq!((report.health, report.problems.len()), (Health::Broken, 1));
    for word in ["servers h1, h2 may refuse", "; stop `strake server` there and start it again"] {
        assert!(report.problems[0].contains(word), "{:?}", report.problems);
    }
    assert!(report.servers.iter().all(|row| row.ahead), "for programs");
    // Who is down is to be started anyway.
    map.servers[1].up = false;
    let told = judge(&map).problems;
    assert!(told[0].starts_with("server h1 may refuse"), "{told:?}");
    map.targets.clear();
    let told = judge(&map).problems;
    assert!(told.iter().all(|told| !told.contains("may refuse")), "it holds nothing: {told:?}");
}

/// The primaries were named, which answered everybody, and nothing said between which servers the way was broken.
#[test]
fn a_member_that_does_not_take_what_its_primary_sends_is_told_with_both_and_what_to_look_at() {
    let mut map = map();
    (map.servers[0].name, map.servers[1].name) = ("h1".into(), "h2".into());
    for (silent, suspect) in [(true, "network between h1 and h2"), (false, "disk of target 2")] {
        map.missed = vec![MissedBy { member: 2, primary: 1, for_ms: 12_345, silent, left: false }];
        let report = judge(&map);
        assert_eq!((report.health, report.problems.len()), (Health::Degraded, 1));
        let told = format!(
            "target 2 on h2 does not take what target 1 on h1 sends it, for 12 s; look at the {suspect}; strake doctor"
        );
        assert!(report.problems[0].starts_with(&told), "{:?}", report.problems);
    }
    map.targets[1].spec.silent_ms = Some(20_000);
    assert!(judge(&map).problems.iter().all(|told| !told.contains("does not take")), "it hangs");
}

/// Its copies were behind, and nothing said why they were not made equal.
#[test]
fn a_member_that_was_taken_out_since_its_primary_does_not_reach_it_is_told_with_both() {
    let mut map = map();
    (map.servers[0].name, map.servers[1].name) = ("h1".into(), "h2".into());
    map.missed = vec![MissedBy { member: 2, primary: 1, for_ms: 12_345, silent: true, left: true }];
    let told = "target 2 on h2 is out of groups of target 1 on h1, which does not reach it, for 12 s; look at the network between h1 and h2;";
    let problems = judge(&map).problems;
    assert!(problems[0].starts_with(told), "{problems:?}");
}

/// All of them were named, where the manager alone was not let out.
#[test]
fn that_the_manager_reaches_hardly_anybody_is_told_once() {
    let mut map = map();
    let heard = map.servers.len();
    map.servers.iter_mut().for_each(|server| server.unreached = "Connection refused".into());
    let report = judge(&map);
    assert_eq!((report.health, report.problems.len()), (Health::Degraded, 1));
    let told = format!("the manager reaches only 0 of {heard} servers; see to it that");
    assert!(report.problems[0].starts_with(&told), "{:?}", report.problems);
}

#[test]
fn a_missing_copy_is_not_the_end_where_everything_has_two() {
    let mut map = map();
    let template = Template { copies: Some(2), ..Template::default() };
    map.volumes[0].spec.template = Some(template);
    let group = |id, in_sync: &[u32]| Group {
        id,
        members: vec![1, 2],
        in_sync: in_sync.to_vec(),
        ..Group::default()
    };
    map.groups = vec![group(1 << 20, &[1, 2]), group((1 << 20) + 1, &[1])];
    assert_eq!(judge(&map).health, Health::Degraded);
    (map.servers[1].up, map.targets[1].up) = (false, false);
    assert_eq!(judge(&map).health, Health::Degraded, "server 2 serves no names");
    (map.targets[0].up, map.targets[1].up) = (false, true);
    assert_eq!(judge(&map).health, Health::Broken, "only target 1 has all of the second group");
}

/// It was fine, and "up".
#[test]
fn a_target_whose_directory_is_not_where_it_was_is_told_with_what_becomes_of_it() {
    let mut map = map();
    map.groups = vec![Group { id: 1, members: vec![2], in_sync: vec![2], ..Group::default() }];
    for target in &mut map.targets {
        target.spec.displaced = Place::Elsewhere as u32;
    }
    let report = judge(&map);
    assert_eq!((report.health, report.problems.len()), (Health::Degraded, 2), "all is served");
    for word in [
        "was moved, unmounted",
        "back there before its server stops",
        "strake target replace 1 NEW",
    ] {
        assert!(report.problems[0].contains(word), "{word}: {:?}", report.problems);
    }
    let mut hangs = map.clone();
    hangs.targets[1].spec.silent_ms = Some(30_000);
    let report = judge(&hangs);
    assert_eq!(report.health, Health::Broken, "what hangs serves nothing");
    assert!(report.problems[1].contains("hangs"), "{:?}", report.problems);
    for target in &mut map.targets {
        target.spec.poisoned = "EIO".into();
    }
    let report = judge(&map);
    assert_eq!(report.health, Health::Broken, "target 2 has files that nobody else has");
    for word in ["not where it was: EIO", "mount its directory back", "then restart its server"] {
        assert!(report.problems[1].contains(word), "{word}: {:?}", report.problems);
    }
    for target in &mut map.targets {
        target.spec.displaced = Place::Removed as u32;
    }
    let report = judge(&map);
    assert_eq!(report.health, Health::Broken, "target 2 has files that nobody else has");
    let [first, second] = [0, 1].map(|nth| report.problems[nth].as_str());
    assert!(!first.contains("copy the files") && !first.contains("lose-data"), "{first}");
    for word in ["its directory was removed", "files 2 --only-copy", "replace 2 NEW --lose-data"] {
        assert!(second.contains(word), "{word}: {second}");
    }
    // Its server has ended, and finds nothing there when it begins.
    map.targets[1].up = false;
    let report = judge(&map);
    assert!(
        !report.problems.iter().any(|told| told.contains("restart its server")),
        "{:?}",
        report.problems
    );
}

#[test]
fn a_target_that_a_job_empties_needs_no_other_one_wherever_its_directory_is() {
    let mut map = map();
    let items = vec![JobItem { from: 1, to: 2, ..JobItem::default() }];
    let (kind, state) = (JobKind::Replace as u32, JobState::Running as u32);
    let jobs = [Job { id: 17, kind, state, items, ..Job::default() }];
    for place in [Place::Elsewhere, Place::Removed] {
        map.targets[0].spec.displaced = place as u32;
        let problem = super::judge(&map, &jobs).problems.remove(0);
        assert!(problem.ends_with("; wait; strake job watch 17 shows how far it is"), "{problem}");
    }
}

/// With copies, a line was as long as there are targets.
#[test]
fn of_many_groups_the_number_is_shown() {
    assert_eq!(groups_shown(&[1, 1 << 20]), "1,1048576");
    assert_eq!(groups_shown(&[1, 2, 3, 4]), "4 groups");
}

/// A target that a server with a wrong clock had verified long ago was verified just now.
#[test]
fn what_a_clock_that_was_ahead_has_dated_is_not_just_now() {
    let now = wall_time().as_secs();
    assert_eq!(ago(Some(now + 365 * 86_400)), "unknown");
    assert_eq!(ago(Some(now + 60)), "just now");
    assert_eq!((ago(Some(now - 86_400 * 3)), ago(None)), ("3 d ago".into(), "never".into()));
}
