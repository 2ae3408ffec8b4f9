//! Groups of several copies as people see them: who is missing where, and what that means.

use crate::{output, servers};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use strake_types::GroupId;
use strake_wire::message::manager::{ClusterMap, Group, Server, Target};

/// What a target is in one of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberState {
    /// It has everything, and orders the writes.
    Primary,
    /// It has everything.
    InSync,
    /// It receives every write, and is being made equal.
    Joining,
    /// It is away, or cannot be made equal yet.
    Missing,
}

impl MemberState {
    /// The state of a group's member.
    pub fn of(group: &Group, member: u32) -> Self {
        match group.in_sync().iter().position(|&other| other == member) {
            Some(0) => MemberState::Primary,
            Some(_) => MemberState::InSync,
            None if group.joining.contains(&member) => MemberState::Joining,
            None => MemberState::Missing,
        }
    }

    /// As it is shown.
    pub fn word(self) -> &'static str {
        match self {
            MemberState::Primary => "primary",
            MemberState::InSync => "in sync",
            MemberState::Joining => "joining",
            MemberState::Missing => "missing",
        }
    }
}

/// A group that is not as it should be, as `--json` prints it.
#[derive(Serialize)]
pub struct GroupRow {
    id: u32,
    copies: u32,
    in_sync: Vec<u32>,
    joining: Vec<u32>,
    missing: Vec<u32>,
    serves: bool,
}

impl GroupRow {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// A member that has everything answers.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Members that have everything.
    pub fn in_sync(&self) -> impl Iterator<Item = u32> {
        self.in_sync.iter().copied()
    }
}

/// Something that is wrong with groups.
#[derive(Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Some files cannot be read or written.
    pub stops: bool,
    /// What it is.
    pub about: String,
    /// What mends it.
    pub mend: String,
}

/// True if files of some volume get one copy.
fn single_in_use(map: &ClusterMap) -> bool {
    volumes_of(map, 1).next().is_some()
}

/// True if files of some volume may be in groups of one copy of a target. Those of a directory that asks for one copy may,
/// too, which nobody but their metadata server knows.
pub fn has_single(map: &ClusterMap, target: u32) -> bool {
    let only = |group: &Group| group.members == [target] && !group.never_used;
    map.groups.iter().any(only) && single_in_use(map)
}

/// True if a group of so many copies has two of them on one server.
pub fn share_servers(map: &ClusterMap, copies: u32) -> bool {
    let server = |id: &u32| map.targets.iter().find(|target| target.id == *id).map(|t| t.server);
    let crowded = |group: &&Group| {
        let servers: BTreeSet<_> = group.members.iter().map(server).collect();
        servers.len() < group.members.len()
    };
    map.groups.iter().filter(|group| GroupId(group.id).copies() == copies).any(|g| crowded(&g))
}

/// Groups of which a member is missing or joining, or that cannot serve; those of one copy only if there is something
/// in them.
pub fn troubled(map: &ClusterMap) -> Vec<GroupRow> {
    let is_up = |id: &u32| map.targets.iter().any(|target| target.id == *id && target.up);
    let is_away = |group: &Group| !group.never_used && !group.members.iter().any(is_up);
    let looked_at = map.groups.iter().filter(|group| group.members.len() > 1 || is_away(group));
    let row = |group: &Group| {
        let of = |state| {
            let members = group.members.iter().copied();
            members.filter(|&m| MemberState::of(group, m) == state).collect::<Vec<_>>()
        };
        GroupRow {
            id: group.id,
            copies: GroupId(group.id).copies(),
            in_sync: group.in_sync().to_vec(),
            joining: of(MemberState::Joining),
            missing: of(MemberState::Missing),
            serves: serves(map, group),
        }
    };
    // One that moves has all its copies meanwhile.
    let whole = |row: &GroupRow| row.serves && row.in_sync.len() >= row.copies as usize;
    looked_at.map(row).filter(|row| !whole(row)).collect()
}

/// Groups that lack a copy, by the target that should have it.
pub fn lacking(rows: &[GroupRow]) -> BTreeMap<(u32, MemberState), BTreeSet<u32>> {
    let mut lacks: BTreeMap<(u32, MemberState), BTreeSet<u32>> = BTreeMap::new();
    for row in rows {
        let joining = row.joining.iter().map(|&member| (member, MemberState::Joining));
        let missing = row.missing.iter().map(|&member| (member, MemberState::Missing));
        for key in joining.chain(missing) {
            lacks.entry(key).or_default().insert(row.id);
        }
    }
    lacks
}

/// What is wrong with groups, by the targets that make it so.
pub fn troubles(map: &ClusterMap) -> Vec<Trouble> {
    let rows = troubled(map);
    let lacks = lacking(&rows);
    let mut stopped: BTreeMap<Vec<u32>, BTreeSet<u32>> = BTreeMap::new();
    for row in rows.into_iter().filter(|row| !row.serves) {
        stopped.entry(row.in_sync).or_default().insert(row.id);
    }
    let stops = stopped.iter().map(|(members, groups)| {
        let names: Vec<String> = members.iter().map(|&id| target_name(map, id)).collect();
        // Once used, they count as used although there may be nothing in them any more.
        let stops = single_in_use(map) || groups.iter().any(|&id| GroupId(id).copies() > 1);
        Trouble {
            stops,
            about: format!(
                "{} cannot be read or written: only {} has everything, and does not serve",
                concerned(map, groups),
                names.join(" or ")
            ),
            mend: bring_all_back(map, members),
        }
    });
    let lacks = lacks.iter().map(|((member, state), groups)| {
        let name = target_name(map, *member);
        let groups = concerned(map, groups);
        let (about, mend) = match state {
            MemberState::Joining => (
                format!("{name} is being made equal in {groups}"),
                "wait; strake job list shows how far it is".to_owned(),
            ),
            _ => (format!("{name} is missing in {groups}"), bring_back(map, *member)),
        };
        Trouble { stops: false, about, mend }
    });
    stops.chain(lacks).collect()
}

/// A member that has everything answers.
fn serves(map: &ClusterMap, group: &Group) -> bool {
    group.in_sync().iter().filter_map(|id| found(map, *id).0).any(works)
}

/// It is up and takes writes.
fn works(target: &Target) -> bool {
    target.up && target.spec.poisoned.is_empty()
}

/// What gives groups back what these targets alone have.
fn bring_all_back(map: &ClusterMap, targets: &[u32]) -> String {
    match replacements(map, targets) {
        Some(commands) if targets.len() == 1 => format!(
            "another disk has taken its place: start the server with the old one again; is that lost: {commands}"
        ),
        Some(commands) => format!(
            "other disks have taken their places: start the servers with the old ones again; are those lost: {commands}"
        ),
        None if are_unreached(map, targets) => start_again(map, targets),
        None => format!("{}, and with its disks", start_again(map, targets)),
    }
}

/// What gives groups the copy back that a target should have, and that others have.
fn bring_back(map: &ClusterMap, target: u32) -> String {
    let how = match replacements(map, &[target]) {
        Some(command) => format!("another disk has taken its place: {command}"),
        None => format!(
            "{}; check its disk. Is it lost: strake target replace {target} NEW, or strake target remove {target}",
            start_again(map, &[target])
        ),
    };
    format!("{how}; strake target files {target} --lacking names the files")
}

/// The target that has begun on another disk at the place of one (`--new-disks`).
pub fn successor(map: &ClusterMap, old: &Target) -> Option<u32> {
    let is_it = |new: &&Target| {
        let same = new.server == old.server && new.spec.path == old.spec.path;
        new.id > old.id && same && !old.spec.path.is_empty()
    };
    map.targets.iter().filter(is_it).map(|new| new.id).max()
}

/// Where other disks have taken the places of all these targets, the commands that give those what these had; none if some are
/// merely away.
fn replacements(map: &ClusterMap, targets: &[u32]) -> Option<String> {
    let command = |id: &u32| {
        let old = found(map, *id).0?;
        Some(format!("strake target replace {id} {}", successor(map, old)?))
    };
    let commands = targets.iter().map(command).collect::<Option<Vec<_>>>()?;
    (!commands.is_empty()).then(|| commands.join(", "))
}

/// True if the servers of all these targets are heard, and not reached.
fn are_unreached(map: &ClusterMap, targets: &[u32]) -> bool {
    let server = |id: &u32| found(map, *id).1;
    let is_unreached = |id| server(id).is_some_and(|server| !server.unreached.is_empty());
    !targets.is_empty() && targets.iter().all(is_unreached)
}

/// What brings the servers of these targets back, or the targets to servers that run without them.
fn start_again(map: &ClusterMap, targets: &[u32]) -> String {
    let found: Vec<&Target> = targets.iter().filter_map(|id| found(map, *id).0).collect();
    let names: BTreeSet<String> =
        found.iter().map(|target| servers::name(map, target.server)).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" or ");
    let runs = |id: u32| map.servers.iter().any(|server| server.id == id && server.up);
    let is_left_out = |target: &Target| !target.up && runs(target.server);
    let all =
        |are: &dyn Fn(&Target) -> bool| !found.is_empty() && found.iter().all(|target| are(target));
    if are_unreached(map, targets) {
        return servers::reach_again(&names);
    }
    match (all(&is_left_out), all(&works)) {
        (true, _) => format!(
            "on {names}, which runs without it: start that again with its directory, not --without it"
        ),
        (_, true) => format!("{names} runs with it: strake doctor looks whether it is reached"),
        _ => servers::start_again(&names),
    }
}

/// A target and its server, as far as the map has them.
fn found(map: &ClusterMap, id: u32) -> (Option<&Target>, Option<&Server>) {
    let target = map.targets.iter().find(|target| target.id == id);
    (target, target.and_then(|t| map.servers.iter().find(|server| server.id == t.server)))
}

/// A target as people know it.
pub fn target_name(map: &ClusterMap, id: u32) -> String {
    match found(map, id) {
        (Some(target), Some(server)) => {
            format!("target {id} ({} on server {})", target.spec.path, server.name)
        }
        _ => format!("target {id}"),
    }
}

/// Names of the volumes whose files get so many copies.
fn volumes_of(map: &ClusterMap, copies: u32) -> impl Iterator<Item = &str> {
    let living = map.living();
    let gets = move |volume: &&strake_wire::message::manager::Volume| {
        let template = volume.spec.template.as_ref();
        let listed = template.and_then(|t| t.list.first()).map(|&id| GroupId(id).copies());
        listed.or(template.and_then(|t| t.copies)).unwrap_or(1) == copies
    };
    living.filter(gets).map(|volume| volume.spec.name.as_str())
}

/// Groups, and the volumes that use such groups for their files. Directories may use them too, and files from before a
/// volume was set to other copies, which nobody but their metadata server knows.
fn concerned(map: &ClusterMap, groups: &BTreeSet<u32>) -> String {
    let classes: BTreeSet<u32> = groups.iter().map(|&id| GroupId(id).copies()).collect();
    let classes: Vec<String> = classes
        .into_iter()
        .map(|copies| {
            let count = groups.iter().filter(|&&id| GroupId(id).copies() == copies).count() as u64;
            let volumes: Vec<&str> = volumes_of(map, copies).collect();
            let used = match volumes.is_empty() {
                true => "files of volumes that asked for it once, directories that do".to_owned(),
                false => format!("volumes: {}", volumes.join(", ")),
            };
            let groups = output::count(count, "group", "groups");
            let copies = if copies == 1 { "one copy".into() } else { format!("{copies} copies") };
            format!("{groups} of {copies} ({used})")
        })
        .collect();
    classes.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::common::Template;
    use strake_wire::message::manager::{Server, TargetSpec, Volume, VolumeSpec};

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
        map.targets[1].spec.poisoned = "EIO".into();
        assert!(troubles(&map)[0].mend.contains("start `strake server`"));
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
}
