//! `strake target`: the disks of a cluster, and what becomes of their data.

use crate::cluster::{self, ClusterFlags};
use crate::failure::{Failure, Outcome};
use crate::held::{self, Parts, Wanted};
use crate::plan_flags::{FORCE, PlanFlags};
use crate::{output, servers, size};
use bytes::Bytes;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use strake_types::{Error, ErrorKind, GroupId};
use strake_wire::message::jobs::{JobKind, Plan};
use strake_wire::message::manager::{ClusterMap, Server, Target, TargetSpec};
use strake_wire::message::storage::{AddTarget, StorageAnswer, StorageOp, StorageRequest};

/// Targets to which no new files come that are named; of more it is told how many they are.
const UNUSED_NAMED_MAX: usize = 8;

/// Flags of `strake target`.
#[derive(Args, Debug)]
pub struct TargetFlags {
    /// What to do.
    #[command(subcommand)]
    verb: TargetVerb,
}

#[derive(Subcommand, Debug)]
enum TargetVerb {
    /// List the targets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a running server one more target, in a directory on a new disk
    ///
    /// New files use it from then on, or after strake rebalance where other targets have left before (strake target list says
    /// so); that moves there what exists. The server opens it again whenever it starts, without a flag. (A new server: strake
    /// server --listen ADDR --roles storage --join MANAGER --data DIR)
    Add {
        /// A server's name or number (strake server list)
        server: String,
        /// An empty directory there, or one that is to be made; its whole path
        dir: PathBuf,
        /// Only look whether it could be added
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the files that have a part on a target, as :/VOLUME/PATH
    ///
    /// All volumes are gone through for it. A part that was never written counts as one; what another client is writing and
    /// has not told of yet is not known.
    Files {
        /// Their numbers (strake target list)
        #[arg(required = true, value_name = "TARGET")]
        targets: Vec<u32>,
        /// Only those of which nobody else has this part: what is lost if these targets are
        #[arg(long)]
        only_copy: bool,
        /// Only those of which this part is missing there, or is not equal yet: what has a copy less
        #[arg(long, conflicts_with = "only_copy")]
        lacking: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Move everything off a target, keeping all copies, and take it out of the cluster
    Remove {
        /// Its number (strake target list)
        target: u32,
        /// Give up what only this target has, if it is gone for good
        #[arg(long)]
        lose_data: bool,
        #[command(flatten)]
        plan: PlanFlags,
    },
    /// Let another target take the place of one, which may be dead, and take that out of the cluster
    #[command(mut_arg("force", |force| force.help(FORCE)))]
    Replace {
        /// The one that goes
        target: u32,
        /// The one that takes its place: of a server that has joined with a new directory
        new: u32,
        /// Give up what only the old target has, if it is gone for good
        #[arg(long)]
        lose_data: bool,
        #[command(flatten)]
        plan: PlanFlags,
    },
}

/// A target, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    id: u32,
    server: String,
    path: String,
    state: String,
    groups: usize,
    /// Null: not known, as just after a start of the manager.
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
}

/// Runs the verb; the exit code.
pub async fn run(flags: &TargetFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    match &flags.verb {
        TargetVerb::List { json } => list(cluster, *json).await.map(|()| 0),
        TargetVerb::Add { server, dir, dry_run, json } => {
            let added = add(cluster, server, dir, *dry_run).await?;
            if *json {
                output::json(&added)?
            } else {
                added.show()
            }
            Ok(0)
        }
        TargetVerb::Files { targets, only_copy, lacking, json } => {
            let view = cluster.connect().await?;
            let map = cluster::fresh_map(&view).await?;
            for id in targets {
                if !map.targets.iter().any(|target| target.id == *id) {
                    return Err(Failure::new(format!("no target {id}"))
                        .next("strake target list shows the numbers"));
                }
            }
            let parts = match (only_copy, lacking) {
                (true, _) => Parts::OnlyCopies,
                (_, true) => Parts::Lacking,
                _ => Parts::All,
            };
            held::print(&view, &Wanted::on(&map, targets, parts), *json).await
        }
        TargetVerb::Remove { target, lose_data, plan } => {
            let (kind, lose_data) = (JobKind::Drain as u32, *lose_data);
            let targets = vec![*target];
            let request = Plan { kind, targets, remove: true, lose_data, ..Plan::default() };
            plan.begin(request, cluster).await
        }
        TargetVerb::Replace { target, new, lose_data, plan } => {
            let (kind, lose_data) = (JobKind::Replace as u32, *lose_data);
            let (targets, to) = (vec![*target], *new);
            let request = Plan { kind, targets, to, remove: true, lose_data, ..Plan::default() };
            plan.begin(request, cluster).await
        }
    }
}

/// How large a target is; none: its server has not told the manager since that started.
pub fn size_of(spec: &TargetSpec) -> Option<u64> {
    Some(spec.total_bytes).filter(|bytes| *bytes > 0)
}

/// How much of it is free; see [`size_of()`].
pub fn free_of(spec: &TargetSpec) -> Option<u64> {
    size_of(spec).map(|_| spec.free_bytes)
}

/// How a target is, in a word.
pub fn state_of(map: &ClusterMap, target: &Target) -> String {
    let empty = !map.groups.iter().any(|group| group.members.contains(&target.id));
    let state = match (target.up, target.spec.poisoned.is_empty()) {
        (false, _) => "down",
        (true, false) => "stopped",
        (true, true) if target.spec.silent_ms.is_some() => "hangs",
        (true, true) => "up",
    };
    match (target.drains, empty) {
        (false, _) => state.to_owned(),
        (true, false) => format!("{state}, draining"),
        (true, true) => format!("{state}, drained"),
    }
}

/// To which targets no new files come, although they serve: who has come when others had left is in no group yet. One line for each
/// number of copies.
pub fn unused(map: &ClusterMap) -> Vec<String> {
    let mut members: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for group in &map.groups {
        members.entry(GroupId(group.id).copies()).or_default().extend(&group.members);
    }
    let takes = |target: &&Target| {
        let is_well = target.up && target.spec.poisoned.is_empty();
        is_well && !target.drains && !target.spec.is_nearly_full(false)
    };
    let without = |(copies, members): (u32, BTreeSet<u32>)| {
        let targets = map.targets.iter().filter(takes).map(|target| target.id);
        let targets: Vec<u32> = targets.filter(|id| !members.contains(id)).collect();
        let named: Vec<String> = targets.iter().map(u32::to_string).collect();
        let named = match named.len() {
            0 => return None,
            1..=UNUSED_NAMED_MAX => output::several("target", named.iter().map(String::as_str)),
            many => format!("{many} targets"),
        };
        let copies = output::count(copies.into(), "copy", "copies");
        Some(format!("no new files of {copies} come to {named}; strake rebalance mends that"))
    };
    members.into_iter().filter_map(without).collect()
}

async fn list(cluster: &ClusterFlags, json: bool) -> Outcome {
    let map = cluster.map().await?;
    let row = |target: &Target| Row {
        id: target.id,
        server: servers::name(&map, target.server),
        path: target.spec.path.clone(),
        state: state_of(&map, target),
        groups: map.groups.iter().filter(|g| g.members.contains(&target.id)).count(),
        total_bytes: size_of(&target.spec),
        free_bytes: free_of(&target.spec),
    };
    let rows: Vec<Row> = map.targets.iter().map(row).collect();
    if json {
        return output::json(&rows);
    }
    let head = &[">TARGET", "SERVER", ">SIZE", ">FREE", ">GROUPS", "STATE", "PATH"];
    let mut table = output::table(head);
    for row in rows {
        table.add_row([
            row.id.to_string(),
            row.server,
            size::short_or_unknown(row.total_bytes),
            size::short_or_unknown(row.free_bytes),
            row.groups.to_string(),
            row.state,
            row.path,
        ]);
    }
    output::show(&table);
    for line in unused(&map) {
        output::advice(&format!("  - {line}"));
    }
    Ok(())
}

/// A target that was added, as `--json` prints it.
#[derive(Serialize)]
struct AddedView {
    /// Absent: it was only looked at.
    target: Option<u32>,
    server: String,
    path: String,
    total_bytes: u64,
    free_bytes: u64,
    /// Targets on the same disk.
    beside: Vec<u32>,
}

impl AddedView {
    fn show(&self) {
        let (server, path) = (&self.server, &self.path);
        let room =
            format!("{} free of {}", size::show(self.free_bytes), size::show(self.total_bytes));
        match self.target {
            Some(target) => {
                output::line(&format!("target {target} of server {server}: {path}, {room}"));
            }
            None => output::line(&format!("server {server} would get a target: {path}, {room}")),
        }
        if !self.beside.is_empty() {
            let beside: Vec<String> = self.beside.iter().map(u32::to_string).collect();
            let beside = beside.join(", ");
            output::line(&format!(
                "  ! it is on the disk of target {beside}, and shares its room; is the new disk mounted?"
            ));
        }
        if self.target.is_some() {
            output::advice("  next: strake rebalance --dry-run; strake rebalance");
        }
    }
}

/// The server makes the target itself.
async fn add(cluster: &ClusterFlags, named: &str, dir: &Path, dry_run: bool) -> Outcome<AddedView> {
    let Some(dir) = dir.to_str().filter(|_| dir.is_absolute()) else {
        return Err(Failure::usage(format!("{} is not an absolute path", dir.display()))
            .next("give the whole path of a directory on the server"));
    };
    let view = cluster.connect().await?;
    let map = cluster::fresh_map(&view).await?;
    let server = servers::find(&map, named)?;
    let (name, address) = (&server.name, &server.address);
    if !server.up {
        return Err(Failure::new(format!("server {name} ({address}) is down"))
            .next("start it, then give the same command again (strake status)"));
    }
    let op = StorageOp::AddTarget(AddTarget { dir: dir.to_owned(), dry_run });
    let request = StorageRequest { op: Some(op), ..StorageRequest::default() };
    let answer = view.callers().storage(server).call(request, Bytes::new()).await;
    match answer.map(|(reply, _)| reply.answer) {
        Ok(Some(StorageAnswer::Added(added))) => Ok(AddedView {
            target: (added.target != 0).then_some(added.target),
            server: name.clone(),
            path: added.path,
            total_bytes: added.total_bytes,
            free_bytes: added.free_bytes,
            beside: added.beside,
        }),
        Ok(_) => Err(Failure::new(format!("server {name} answers something else"))),
        Err(error) => Err(not_added(server, &error)),
    }
}

/// Why a server has not added a target.
fn not_added(server: &Server, error: &Error) -> Failure {
    let (name, address) = (&server.name, &server.address);
    match error.kind {
        ErrorKind::StaleMap => Failure::new(format!("server {name} does not have the role storage"))
            .next("strake server list shows the roles, name a server that keeps contents"),
        ErrorKind::NotSupported => {
            Failure::new(format!("server {name} runs a release that opens targets only when it starts"))
                .next("upgrade it, or restart it with one more directory behind --data")
        }
        ErrorKind::Unavailable | ErrorKind::TimedOut => {
            Failure::new(format!("server {name} ({address}) does not answer: {error}"))
                .next("strake status shows how it is, give the same command again then: nothing is done twice")
        }
        _ => Failure::telling(error),
    }
}
