//! `strake status`: how the cluster is, on one screen.

mod named;

use crate::cluster::{self, ClusterFlags};
use crate::failure::{BROKEN, Failure, Outcome};
use crate::groups::{self, GroupRow};
use crate::jobs::{self, Files, JobView};
use crate::verbs::target::{free_of, size_of, state_of, unused};
use crate::waits::{self, WaitRow};
use crate::{output, refusals, release, servers, size};
use clap::Args;
use named::Named;
pub use named::stopped_files;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use strake_base::clock::wall_time;
use strake_base::disk::Place;
use strake_engine::kv::database_engine;
use strake_manager::{ADD_DISK, ADD_SERVER};
use strake_types::layout::LayoutTemplate;
use strake_wire::message::jobs::Job;
use strake_wire::message::manager::{ClusterMap, MissedBy, Server, Target, Volume};

/// Groups of a target that are shown by their numbers; --json gives all.
const GROUPS_SHOWN_MAX: usize = 3;

/// Flags of `strake status`.
#[derive(Args, Debug)]
pub struct StatusFlags {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How well a cluster is. The number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Health {
    /// Everything works.
    Fine = 0,
    /// It works, but something needs attention.
    Degraded = 1,
    /// Some files cannot be read or written.
    Broken = BROKEN,
}

/// The report, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    health: Health,
    cluster: String,
    epoch: u64,
    total_bytes: u64,
    free_bytes: u64,
    problems: Vec<String>,
    servers: Vec<ServerRow>,
    /// Of which releases they are, for people: the rows have it.
    #[serde(skip)]
    releases: Option<String>,
    targets: Vec<TargetRow>,
    /// To which of them no new files come, for people: the rows have their groups.
    #[serde(skip)]
    unused: Vec<String>,
    volumes: Vec<String>,
    /// Groups that lack a copy, or cannot serve.
    groups: Vec<GroupRow>,
    #[serde(flatten)]
    named: Named,
    /// Jobs that have not ended.
    jobs: Vec<JobView>,
    /// What programs on mounts wait for.
    waits: Vec<WaitRow>,
    /// What they waited for in the last minute, which may be what had to tell of it.
    waited: Vec<WaitRow>,
}

/// The same of a cluster of which nothing is known.
#[derive(Serialize)]
struct OutOfReach {
    health: Health,
    problems: [String; 1],
}

impl OutOfReach {
    fn because(failure: &Failure) -> Self {
        let next = failure.next.iter().map(|next| format!("; {next}"));
        let problem = std::iter::once(failure.cause.clone()).chain(next).collect();
        Self { health: Health::Broken, problems: [problem] }
    }
}

#[derive(Serialize)]
struct ServerRow {
    id: u32,
    name: String,
    address: String,
    roles: String,
    /// Its manager leads those of the cluster.
    leads: bool,
    up: bool,
    silent_ms: u64,
    /// Null: it has not said it, as an earlier one.
    release: Option<String>,
    /// What the store of its metadata says while it has no room for changes, or takes none any more; empty: it takes them.
    full: String,
    /// It may refuse what is asked, since it knows more than the cluster's metadata, which is older.
    ahead: bool,
}

#[derive(Serialize)]
struct TargetRow {
    id: u32,
    groups: Vec<u32>,
    server: String,
    path: String,
    state: String,
    /// Null: not known, as just after a start of the manager.
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// When a round ended in which all of it was verified; absent: never yet.
    scrubbed_unix_s: Option<u64>,
    /// Chunks that were found damaged then, and repaired.
    repaired_chunks: u64,
    /// Chunks that were found damaged then, and could not be.
    damaged_chunks: u64,
}

/// Runs the verb; the exit code says how the cluster is. A cluster whose manager does not answer is
/// broken.
pub async fn run(flags: &StatusFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let asked = async {
        let view = cluster.connect().await?;
        let map = cluster::fresh_map(&view).await?;
        // A manager of an earlier release knows no jobs.
        let jobs = jobs::fetch(&view, 0).await.map(|list| list.jobs).unwrap_or_default();
        let (waits, named) = tokio::join!(waits::all(&view, &map), Named::find(&view, &map, &jobs));
        Outcome::Ok((map, jobs, waits, named))
    };
    let (map, jobs, waits, named) = match asked.await {
        Ok(known) => known,
        Err(failure) => {
            if flags.json {
                output::json(&OutOfReach::because(&failure))?;
            }
            return Err(failure.broken());
        }
    };
    let mut report = judge(&map, &jobs);
    if waits.iter().any(WaitRow::is_trouble) {
        report.health = report.health.max(Health::Degraded);
    }
    // Which files are in a group, the map does not say.
    if named.has_stopped() {
        report.health = Health::Broken;
    }
    report.named = named;
    let under_way = jobs.iter().filter(|job| jobs::lasts(job));
    (report.waits, report.waited) = waits.into_iter().partition(WaitRow::lasts);
    report.jobs = under_way.map(|job| JobView::new(job, &Files::default())).collect();
    match flags.json {
        true => output::json(&report)?,
        false => show(&report),
    }
    Ok(report.health as u8)
}

/// Something that is wrong.
pub struct Problem {
    /// How bad it is.
    pub health: Health,
    /// What it is.
    pub about: String,
    /// What mends it.
    pub mend: String,
}

fn judge(map: &ClusterMap, jobs: &[Job]) -> Report {
    let of_target = |target: &Target| {
        let single = groups::has_single(map, target.id);
        disk_problem(target, single, jobs).or_else(|| room_problem(target))
    };
    let parts = server_problems(map).into_iter();
    let parts = parts.chain(map.targets.iter().filter_map(of_target));
    let parts = parts.chain(map.living().filter_map(volume_problem));
    let told = |problem: Problem| (problem.health, format!("{}; {}", problem.about, problem.mend));
    let mut problems: Vec<_> = parts.map(told).collect();
    problems.extend(groups::troubles(map, jobs).into_iter().map(|trouble| {
        let health = if trouble.stops { Health::Broken } else { Health::Degraded };
        (health, format!("{}; {}", trouble.about, trouble.mend))
    }));
    for volume in map.volumes.iter().filter(|v| !v.deleting && v.meta_server == 0) {
        let text = format!("volume {} has no metadata server; {}", volume.spec.name, add_meta(map));
        problems.push((Health::Broken, text));
    }
    if map.targets.is_empty() {
        let text = format!("there is no storage; add a server: {ADD_SERVER}");
        problems.push((Health::Broken, text));
    }
    let health = problems.iter().map(|p| p.0).max().unwrap_or(Health::Fine);
    let up = || map.targets.iter().filter(|t| t.up);
    Report {
        health,
        cluster: map.cluster.clone(),
        epoch: map.epoch,
        total_bytes: up().map(|t| t.spec.total_bytes).sum(),
        free_bytes: up().filter_map(|t| free_of(&t.spec)).sum(),
        problems: problems.into_iter().map(|p| p.1).collect(),
        servers: map.servers.iter().map(|s| server_row(map, s)).collect(),
        releases: release::several(map),
        targets: map.targets.iter().map(|t| target_row(map, t)).collect(),
        unused: unused(map),
        groups: groups::troubled(map),
        named: Named::default(),
        jobs: Vec::new(),
        waits: Vec::new(),
        waited: Vec::new(),
        volumes: cluster::volume_names(map),
    }
}

/// What gives volumes a metadata server where there is none. Only the server of an embedded store can serve what is in it.
fn add_meta(map: &ClusterMap) -> String {
    let embedded = map.servers.iter().find(|server| server.manager && server.store.is_empty());
    match embedded {
        Some(server) => format!(
            "on {}: start `strake server` again, with the flags it had and meta in its --roles",
            server.name
        ),
        None => "start one: strake server --listen ADDR --roles meta --join MANAGER --meta URL --data DIR".into(),
    }
}

/// What is wrong with servers, and between two. Where the manager does not reach half of those that it hears that is told once: it may
/// be for its own network.
pub fn server_problems(map: &ClusterMap) -> Vec<Problem> {
    let is_unreached = |server: &&Server| server.up && !server.unreached.is_empty();
    let unreached = map.servers.iter().filter(is_unreached).count();
    let heard = map.servers.iter().filter(|server| server.up).count();
    let is_for_network = unreached > 1 && 2 * unreached >= heard;
    let network = is_for_network.then(|| Problem {
        health: Health::Degraded,
        about: format!("the manager reaches only {} of {heard} servers", heard - unreached),
        mend: servers::reach_again("them"),
    });
    let each = map.servers.iter().filter(|server| !is_for_network || !is_unreached(server));
    let each = each.filter_map(|server| server_problem(map, server));
    let between = map.missed.iter().filter_map(|missed| missed_problem(map, missed));
    let rivals = map.servers.iter().filter_map(servers::rival);
    let rivals = rivals.map(|(about, mend)| Problem { health: Health::Degraded, about, mend });
    let ahead = servers::ahead(map).into_iter();
    let ahead = ahead.map(|(about, mend)| Problem { health: Health::Broken, about, mend });
    let all = ahead.chain(network).chain(each).chain(rivals).chain(between);
    all.chain(full_problems(map)).collect()
}

/// Why changes wait, or a copy is behind, where two servers are up and one does not take what the other sends it. What is told of a
/// target that is away, or whose disk hangs, says it already.
fn missed_problem(map: &ClusterMap, missed: &MissedBy) -> Option<Problem> {
    let target = |id: u32| map.targets.iter().find(|target| target.id == id && target.up);
    let (member, primary) = (target(missed.member)?, target(missed.primary)?);
    if member.spec.silent_ms.is_some() {
        return None;
    }
    let (here, there) = (servers::name(map, member.server), servers::name(map, primary.server));
    let does_not = match missed.left {
        true => "is out of groups of",
        false => "does not take what",
    };
    let why = if missed.left { ", which does not reach it" } else { " sends it" };
    let about = format!(
        "target {} on {here} {does_not} target {} on {there}{why}, for {} s",
        member.id,
        primary.id,
        missed.for_ms / 1000
    );
    let suspect = match missed.silent {
        true => format!("network between {there} and {here}"),
        false => format!("disk of target {}", member.id),
    };
    let mend = format!("look at the {suspect}; strake doctor looks at the rest");
    Some(Problem { health: Health::Degraded, about, mend })
}

/// Whose metadata finds no room, or can be changed no more. Servers of one database say the same, and that is told once.
fn full_problems(map: &ClusterMap) -> Vec<Problem> {
    let mut by_store: BTreeMap<&str, Vec<&Server>> = BTreeMap::new();
    let told = map.servers.iter().filter(|s| s.up && !s.cut_off && !s.full.is_empty());
    told.for_each(|server| by_store.entry(&server.full).or_default().push(server));
    let problem = |(said, servers): (&str, Vec<&Server>)| {
        let volumes: BTreeSet<&str> = servers.iter().flat_map(|s| served_by(map, s)).collect();
        if volumes.is_empty() {
            return None;
        }
        let volumes = output::several("volume", volumes.into_iter());
        let take = if servers.len() == 1 { "takes" } else { "take" };
        let manages = servers.iter().any(|server| server.manager);
        let names = servers.iter().map(|server| server.name.as_str());
        let servers = output::several("server", names);
        let (what, mend) = refusals::of_store(said).unwrap_or((said, "strake doctor looks closer"));
        let store = what.strip_prefix("metadata store ").unwrap_or_default();
        let also = match refusals::has_stopped(what) && manages {
            true => ", nor can its manager take out a server that dies",
            false => "",
        };
        // A full etcd refuses what gives room back, too.
        let frees = what.ends_with("no space left") && database_engine(store) != Some("etcd");
        let about = match frees {
            true => format!(
                "{servers} {take} no new names, longer files or attributes of {volumes}: {what}"
            ),
            false => format!("on {servers} nothing can be changed in {volumes}{also}: {what}"),
        };
        Some(Problem { health: Health::Broken, about, mend: mend.to_owned() })
    };
    by_store.into_iter().filter_map(problem).collect()
}

/// What is wrong with a server. What its targets had is told of by group.
fn server_problem(map: &ClusterMap, server: &Server) -> Option<Problem> {
    let who = servers::at(server);
    // While it counts as up, others may reach it.
    let waits = match server.up && !server.cut_off {
        true => String::new(),
        false => who_waits(map, server),
    };
    let (about, mend) = match (server.up, server.cut_off) {
        _ if !server.unreached.is_empty() => {
            let Server { name, address, unreached, .. } = server;
            let about = format!(
                "server {name} is heard, but cannot be reached at {address}: {unreached}{waits}"
            );
            (about, servers::reach_again(name))
        }
        (true, false) => return None,
        (true, true) => (
            format!("{who} does not reach the database with the metadata{waits}"),
            format!(
                "on {}: journalctl -t strake, or its log, says why; strake doctor looks at what \
                 else does not work",
                server.name
            ),
        ),
        (false, _) => {
            let silent = match server.silent_ms {
                u64::MAX => "since the manager started".to_owned(),
                ms => format!("for {} s", ms / 1000),
            };
            let mend = match server.address.is_empty() {
                true => servers::start_elsewhere(server),
                false => servers::start_again(&server.name),
            };
            (format!("{who} is down: silent {silent}{waits}"), mend)
        }
    };
    let health = if waits.is_empty() { Health::Degraded } else { Health::Broken };
    Some(Problem { health, about, mend })
}

/// The volumes that a metadata server serves, or has to. A share is called as its volume, a slash and its number.
fn served_by<'a>(map: &'a ClusterMap, server: &Server) -> BTreeSet<&'a str> {
    let here = |v: &&Volume| !v.deleting && v.meta_server == server.id;
    map.volumes.iter().filter(here).filter_map(|v| v.spec.name.split('/').next()).collect()
}

/// Who waits for a metadata server that does not serve, and can tell nobody so.
fn who_waits(map: &ClusterMap, server: &Server) -> String {
    let names = served_by(map, server);
    match names.is_empty() {
        true => String::new(),
        false => {
            let names: Vec<&str> = names.into_iter().collect();
            format!(", and all that use volume {} wait for it", names.join(", "))
        }
    }
}

/// What is wrong with the disk of a target, beside these jobs; `single`: it has files of which there is one copy.
pub fn disk_problem(target: &Target, single: bool, jobs: &[Job]) -> Option<Problem> {
    let (spec, id) = (&target.spec, target.id);
    let who = format!("target {id} ({})", spec.path);
    let health = if single { Health::Broken } else { Health::Degraded };
    // Wherever it is: what hangs serves nothing.
    if let (Some(ms), true) = (spec.silent_ms, spec.poisoned.is_empty()) {
        let about = format!("{who} hangs: its disk has answered nothing for {} s", ms / 1000);
        let mend = "check its disk (dmesg, smartctl); it goes on when that answers".into();
        return Some(Problem { health, about, mend });
    }
    if target.up && spec.place() != Place::Same {
        return Some(place_problem(target, single, jobs));
    }
    // One whose directory is gone is no disk to check: which groups miss it, and what to do then, is told of those.
    if !spec.poisoned.is_empty() && spec.place() != Place::Removed {
        let about = format!("{who} takes no writes: {}", spec.poisoned);
        let mend = "check its disk (dmesg, smartctl), then restart its server".into();
        return Some(Problem { health, about, mend });
    }
    let left = spec.scrub.map_or(0, |scrub| scrub.left);
    (left > 0).then(|| Problem {
        health: Health::Degraded,
        about: format!("{who}: {} found damaged", output::count(left, "chunk was", "chunks were")),
        mend: format!("strake scrub {id} repairs what has another copy, and names the files"),
    })
}

/// What is wrong with a target whose directory is not where its server has opened it.
fn place_problem(target: &Target, single: bool, jobs: &[Job]) -> Problem {
    let (spec, id) = (&target.spec, target.id);
    let removed = spec.place() == Place::Removed;
    let serves = !removed && spec.poisoned.is_empty();
    let job = jobs::that_empties(jobs, id).map(jobs::wait_for);
    let without = || groups::do_without(id, removed && single);
    let (how, mend) = match (removed, serves) {
        (true, _) => {
            let then = job.unwrap_or_else(without);
            let mend = if single { groups::copy_first(&[id], &then) } else { then };
            ("takes no writes: its directory was removed".to_owned(), mend)
        }
        (_, true) => {
            let how =
                "is not where it was: its directory was moved, unmounted or covered by another one";
            let put_back = || {
                format!(
                    "move or mount it back there before its server stops, and nothing is lost; to do without it: {}",
                    without()
                )
            };
            (how.to_owned(), job.unwrap_or_else(put_back))
        }
        _ => {
            let how = format!("takes no writes, and is not where it was: {}", spec.poisoned);
            // What only it has waits for it.
            let job = job.filter(|_| !single);
            (how, job.unwrap_or_else(|| groups::PUT_BACK.to_owned()))
        }
    };
    let health = if single && !serves { Health::Broken } else { Health::Degraded };
    Problem { health, about: format!("target {id} ({}) {how}", spec.path), mend }
}

/// Whether a target has little room.
pub fn room_problem(target: &Target) -> Option<Problem> {
    let spec = &target.spec;
    let low = target.up && spec.is_nearly_full(false);
    let how = match spec.free_bytes {
        0 => "full".to_owned(),
        free => format!("nearly full: {} left", size::show(free)),
    };
    low.then(|| Problem {
        health: Health::Degraded,
        about: format!("target {} ({}) is {how}", target.id, spec.path),
        mend: make_room(),
    })
}

/// What mends a target that is full.
pub fn make_room() -> String {
    format!(
        "delete files, or add a disk: {ADD_DISK}, then strake rebalance; or, where it is small beside the others, strake target remove"
    )
}

/// What keeps everybody from a volume, wherever it is served.
pub fn volume_problem(volume: &Volume) -> Option<Problem> {
    let name = &volume.spec.name;
    let error = LayoutTemplate::try_from(volume.spec.template.clone()?).err()?;
    Some(Problem {
        health: Health::Broken,
        about: format!("volume {name} cannot be opened, its settings are wrong: {error}"),
        mend: "install the newest release that was in use here, on all servers and clients".into(),
    })
}

fn server_row(map: &ClusterMap, server: &Server) -> ServerRow {
    ServerRow {
        id: server.id,
        name: server.name.clone(),
        address: server.address.clone(),
        roles: servers::roles(map, server),
        leads: servers::leads(map, server),
        up: server.up,
        silent_ms: server.silent_ms,
        release: server.release.as_deref().and_then(release::said),
        full: server.full.clone(),
        ahead: server.ahead,
    }
}

fn target_row(map: &ClusterMap, target: &Target) -> TargetRow {
    TargetRow {
        id: target.id,
        groups: map
            .groups
            .iter()
            .filter(|g| g.members.contains(&target.id))
            .map(|g| g.id)
            .collect(),
        server: servers::name(map, target.server),
        path: target.spec.path.clone(),
        state: state_of(map, target),
        total_bytes: size_of(&target.spec),
        free_bytes: free_of(&target.spec),
        scrubbed_unix_s: target.spec.scrub.map(|scrub| scrub.ended_unix_s),
        repaired_chunks: target.spec.scrub.map_or(0, |scrub| scrub.repaired),
        damaged_chunks: target.spec.scrub.map_or(0, |scrub| scrub.left),
    }
}

fn show(report: &Report) {
    let word = match report.health {
        Health::Fine => "fine",
        Health::Degraded => "degraded",
        Health::Broken => "broken",
    };
    let used = report.total_bytes.saturating_sub(report.free_bytes);
    output::line(&format!(
        "{word}: cluster {}, {} of {} used, volumes: {}",
        report.cluster,
        size::show(used),
        size::show(report.total_bytes),
        report.volumes.join(", ")
    ));
    for problem in &report.problems {
        output::advice(&format!("  ! {problem}"));
    }
    for line in report.named.lines(&report.groups) {
        output::advice(&format!("  ! {line}"));
    }
    for job in &report.jobs {
        output::line(&format!("  - {}; {}", job.headline(), job.progress()));
    }
    if let Some(releases) = &report.releases {
        output::line(&format!("  - {releases}"));
    }
    for line in &report.unused {
        output::advice(&format!("  - {line}"));
    }
    for wait in report.waits.iter().chain(&report.waited) {
        let mark = if wait.is_trouble() { '!' } else { '.' };
        output::line(&format!("  {mark} {}", wait.line()));
    }
    let mut table = output::table(&[">SERVER", "NAME", "ADDRESS", "ROLES", "STATE"]);
    for row in &report.servers {
        let state = if row.up { "up" } else { "down" };
        let cells = [
            row.id.to_string(),
            row.name.clone(),
            row.address.clone(),
            row.roles.clone(),
            state.into(),
        ];
        table.add_row(cells);
    }
    output::line("");
    output::show(&table);
    let mut table = output::table(&[
        ">TARGET", ">GROUP", "SERVER", ">SIZE", ">FREE", "STATE", "SCRUBBED", "PATH",
    ]);
    for row in &report.targets {
        table.add_row([
            row.id.to_string(),
            groups_shown(&row.groups),
            row.server.clone(),
            size::short_or_unknown(row.total_bytes),
            size::short_or_unknown(row.free_bytes),
            row.state.clone(),
            ago(row.scrubbed_unix_s),
            row.path.clone(),
        ]);
    }
    output::line("");
    output::show(&table);
}

/// The groups of a target; of more than fit into a column, how many there are.
fn groups_shown(groups: &[u32]) -> String {
    match groups.len() {
        ..=GROUPS_SHOWN_MAX => groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
        many => format!("{many} groups"),
    }
}

/// How long ago something was, in days or hours. Clocks may differ; what lies far ahead was dated by a wrong one.
fn ago(unix_s: Option<u64>) -> String {
    let Some(then) = unix_s else { return "never".into() };
    let now = wall_time().as_secs();
    if then.saturating_sub(now) >= 3600 {
        return "unknown".into();
    }
    match now.saturating_sub(then) / 3600 {
        0 => "just now".into(),
        hours @ 1..48 => format!("{hours} h ago"),
        hours => format!("{} d ago", hours / 24),
    }
}

#[cfg(test)]
mod tests;
