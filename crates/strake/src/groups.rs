//! Groups of several copies as people see them: who is missing where, and what that means.

use crate::{jobs, output, servers};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use strake_base::disk::Place;
use strake_types::GroupId;
use strake_wire::message::jobs::Job;
use strake_wire::message::manager::{ClusterMap, Group, Server, Target, TargetSpec, Volume};

/// What mends a target that takes no writes, and whose directory is not where it was: a start would not find it there.
pub const PUT_BACK: &str =
    "move or mount its directory back, check its disk (dmesg, smartctl), then restart its server";

/// Targets that are named where more is said of each.
const NAMED_MAX: usize = 3;

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
#[derive(Clone, Serialize)]
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

    /// How many copies a file asks for at least (`--min-copies`) whose writes here wait; none if those of all do, or of none.
    pub fn too_few_for(&self) -> Option<u32> {
        let there = u32::try_from(self.in_sync.len()).ok()?;
        (self.serves && there < self.copies).then_some(there + 1)
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

/// What is wrong with groups, and with volumes for that, beside these jobs.
pub fn troubles(map: &ClusterMap, jobs: &[Job]) -> Vec<Trouble> {
    let mut all = writes_that_wait(map, jobs);
    all.extend(of_groups(map, jobs));
    all
}

/// Volumes that ask for more copies (`--min-copies`) than are in sync in some of their groups. Directories may ask for so many, too,
/// which nobody but their metadata server knows.
fn writes_that_wait(map: &ClusterMap, jobs: &[Job]) -> Vec<Trouble> {
    let rows = troubled(map);
    let mut found: BTreeMap<(u32, BTreeSet<u32>), Vec<&str>> = BTreeMap::new();
    for volume in map.living() {
        let Some(template) = &volume.spec.template else { continue };
        let copies = copies_of(volume);
        let least = template.min_copies.unwrap_or(1).min(copies);
        let is_its = |row: &&GroupRow| match template.list.is_empty() {
            true => row.copies == copies,
            false => template.list.contains(&row.id),
        };
        let short = |row: &&GroupRow| row.too_few_for().is_some_and(|too_few| too_few <= least);
        let short: BTreeSet<u32> =
            rows.iter().filter(is_its).filter(short).map(GroupRow::id).collect();
        if !short.is_empty() {
            found.entry((least, short)).or_default().push(&volume.spec.name);
        }
    }
    let trouble = |((least, short), volumes): ((u32, BTreeSet<u32>), Vec<&str>)| {
        let groups = output::count(short.len() as u64, "group", "groups");
        let volumes = output::several("volume", volumes.into_iter());
        let short: Vec<GroupRow> =
            rows.iter().filter(|row| short.contains(&row.id)).cloned().collect();
        Trouble {
            stops: true,
            about: format!(
                "writes to {volumes} wait where fewer than {least} copies are in sync (--min-copies): in {groups}"
            ),
            mend: mend_all(map, jobs, &lacking(&short)),
        }
    };
    found.into_iter().map(trouble).collect()
}

/// What is wrong with groups, by the targets that make it so, beside these jobs.
pub fn of_groups(map: &ClusterMap, jobs: &[Job]) -> Vec<Trouble> {
    let rows = troubled(map);
    let lacks = lacking(&rows);
    let mut stopped: BTreeMap<Vec<u32>, BTreeSet<u32>> = BTreeMap::new();
    for row in rows.into_iter().filter(|row| !row.serves) {
        stopped.entry(row.in_sync).or_default().insert(row.id);
    }
    let stops = stopped.iter().map(|(members, groups)| {
        let names: Vec<String> = members.iter().map(|&id| with_fault(map, id)).collect();
        // Once used, they count as used although there may be nothing in them any more.
        let stops = single_in_use(map) || groups.iter().any(|&id| GroupId(id).copies() > 1);
        Trouble {
            stops,
            about: format!(
                "{} cannot be read or written: only {} has everything, and does not serve",
                concerned(map, groups),
                names.join(" or ")
            ),
            mend: bring_all_back(map, jobs, members),
        }
    });
    let lacks = lacks.iter().map(|((member, state), groups)| {
        let name = with_fault(map, *member);
        let how = match state {
            MemberState::Joining => "is being made equal",
            _ => "is missing",
        };
        let about = format!("{name} {how} in {}", concerned(map, groups));
        Trouble { stops: false, about, mend: mend(map, jobs, *member, *state, groups) }
    });
    stops.chain(lacks).collect()
}

/// What gives groups the copies back that they lack: it is said with each of the targets, if there are several.
fn mend_all(
    map: &ClusterMap,
    jobs: &[Job],
    lacks: &BTreeMap<(u32, MemberState), BTreeSet<u32>>,
) -> String {
    let members: BTreeSet<u32> = lacks.keys().map(|(member, _)| *member).collect();
    if members.len() > 1 {
        let named: Vec<String> = members.iter().take(NAMED_MAX).map(u32::to_string).collect();
        let more = match members.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return format!("see what is said below of targets {}{more}", named.join(", "));
    }
    let mends =
        lacks.iter().map(|((member, state), groups)| mend(map, jobs, *member, *state, groups));
    mends.collect::<Vec<_>>().join("; ")
}

/// What gives these groups the copy back that a target should have.
fn mend(
    map: &ClusterMap,
    jobs: &[Job],
    member: u32,
    state: MemberState,
    groups: &BTreeSet<u32>,
) -> String {
    match (state, jobs::that_fills(jobs, member, groups)) {
        (MemberState::Joining, Some(job)) => jobs::wait_for(job),
        (MemberState::Joining, None) => "wait; strake job list shows how far it is".to_owned(),
        _ => bring_back(map, jobs, member, groups),
    }
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
fn bring_all_back(map: &ClusterMap, jobs: &[Job], targets: &[u32]) -> String {
    // Any other job waits for them itself.
    let gives_up = |id: &u32| {
        let is_lost = |job: &&Job| job.items.iter().any(|item| item.from == *id && item.lost);
        jobs::that_empties(jobs, *id).filter(is_lost)
    };
    if let Some(job) = targets.iter().find_map(gives_up) {
        return jobs::wait_for(job);
    }
    match replacements(map, targets) {
        Some(commands) if targets.len() == 1 => format!(
            "another disk has taken its place: start the server with the old one again; is that lost: {commands}"
        ),
        Some(commands) => format!(
            "other disks have taken their places: start the servers with the old ones again; are those lost: {commands}"
        ),
        None if are_unreached(map, targets) => start_again(map, targets),
        None if are_at(map, targets, Place::Elsewhere) => PUT_BACK.to_owned(),
        None if are_at(map, targets, Place::Removed) => {
            let without: Vec<_> = targets.iter().map(|&id| do_without(id, true)).collect();
            copy_first(targets, &without.join("; "))
        }
        None => mend_disks(map, targets)
            .unwrap_or_else(|| format!("{}, and with its disks", start_again(map, targets))),
    }
}

/// What gives groups the copy back that a target should have, and that others have.
fn bring_back(map: &ClusterMap, jobs: &[Job], target: u32, groups: &BTreeSet<u32>) -> String {
    let is_well = found(map, target).0.is_some_and(works)
        && !are_unreached(map, &[target])
        && mend_disks(map, &[target]).is_none();
    // With one that serves all the same nothing is known to be wrong but what the job says.
    let tried = jobs::why_unequal(jobs, target, groups).filter(|_| is_well);
    let how = match (jobs::that_empties(jobs, target), replacements(map, &[target])) {
        (Some(job), _) => jobs::wait_for(job),
        (None, Some(command)) => format!("another disk has taken its place: {command}"),
        (None, None) if are_at(map, &[target], Place::Removed) => do_without(target, false),
        (None, None) if are_at(map, &[target], Place::Elsewhere) => PUT_BACK.to_owned(),
        (None, None) if let Some((job, why)) = tried => format!(
            "it cannot be made equal: {why}; that is tried again by itself (strake job show {job}), and strake doctor looks closer"
        ),
        (None, None) => format!(
            "{}. Is it lost: strake target replace {target} NEW, or strake target remove {target}",
            mend_disks(map, &[target])
                .unwrap_or_else(|| format!("{}; check its disk", start_again(map, &[target])))
        ),
    };
    format!("{how}; strake target files {target} --lacking names the files")
}

/// What gives others the part of a target that is not to come back; `lost`: it takes no writes, and has what nobody else has.
pub fn do_without(target: u32, lost: bool) -> String {
    let how = if lost { " --lose-data" } else { "" };
    format!("strake target replace {target} NEW{how}, or strake target remove {target}{how}")
}

/// What to do before that where their directories were removed: to start their servers again would be the end of what they have.
pub fn copy_first(targets: &[u32], then: &str) -> String {
    let targets: Vec<String> = targets.iter().map(u32::to_string).collect();
    format!(
        "before its server stops, copy the files that only it has (strake target files {} --only-copy); then {then}",
        targets.join(" ")
    )
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

/// True if these targets are up, and all their directories are there.
fn are_at(map: &ClusterMap, targets: &[u32], place: Place) -> bool {
    are_up(map, targets, |spec| spec.place() == place)
}

/// True if these targets are up, and this is so of all of them.
fn are_up(map: &ClusterMap, targets: &[u32], is_so: impl Fn(&TargetSpec) -> bool) -> bool {
    let holds = |id: &u32| found(map, *id).0.is_some_and(|t| t.up && is_so(&t.spec));
    !targets.is_empty() && targets.iter().all(holds)
}

/// What mends targets that are up, and whose disks alone have failed or hang: their servers have not ended.
fn mend_disks(map: &ClusterMap, targets: &[u32]) -> Option<String> {
    if !are_up(map, targets, |spec| !spec.poisoned.is_empty() || spec.silent_ms.is_some()) {
        return None;
    }
    let has_failed = |id: u32| found(map, id).0.is_some_and(|t| !t.spec.poisoned.is_empty());
    let (failed, hanging): (Vec<u32>, Vec<u32>) =
        targets.iter().copied().partition(|&id| has_failed(id));
    let names = servers_of(map, &failed);
    Some(match (failed.is_empty(), hanging.is_empty()) {
        (false, true) => format!("check the disk (dmesg, smartctl), then restart {names}"),
        (true, _) => "check the disk (dmesg, smartctl); it goes on when that answers".to_owned(),
        (false, false) => format!(
            "check the disks (dmesg, smartctl), then restart {names}; one that hangs goes on when it answers"
        ),
    })
}

/// The servers of these targets, by name.
fn servers_of(map: &ClusterMap, targets: &[u32]) -> String {
    let found = targets.iter().filter_map(|id| found(map, *id).0);
    let names: BTreeSet<String> = found.map(|target| servers::name(map, target.server)).collect();
    names.into_iter().collect::<Vec<_>>().join(" or ")
}

/// What brings the servers of these targets back, or the targets to servers that run without them.
fn start_again(map: &ClusterMap, targets: &[u32]) -> String {
    let found: Vec<&Target> = targets.iter().filter_map(|id| found(map, *id).0).collect();
    let names = servers_of(map, targets);
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

/// The same with what is the matter with it while its server runs.
fn with_fault(map: &ClusterMap, id: u32) -> String {
    let (name, target) = (target_name(map, id), found(map, id).0);
    match target.filter(|target| target.up).map(|target| &target.spec) {
        Some(spec) if !spec.poisoned.is_empty() => {
            format!("{name}, which takes no writes ({}),", spec.poisoned)
        }
        Some(spec) if spec.silent_ms.is_some() => format!("{name}, whose disk hangs,"),
        _ => name,
    }
}

/// Names of the volumes whose files get so many copies.
fn volumes_of(map: &ClusterMap, copies: u32) -> impl Iterator<Item = &str> {
    let gets = map.living().filter(move |volume| copies_of(volume) == copies);
    gets.map(|volume| volume.spec.name.as_str())
}

/// How many copies the files of a volume get.
fn copies_of(volume: &Volume) -> u32 {
    let template = volume.spec.template.as_ref();
    let listed = template.and_then(|t| t.list.first()).map(|&id| GroupId(id).copies());
    listed.or(template.and_then(|t| t.copies)).unwrap_or(1)
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
mod tests;
