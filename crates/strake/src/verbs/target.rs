//! `strake target`: the disks of a cluster, and what becomes of their data.

use crate::cluster::ClusterFlags;
use crate::failure::{Failure, Outcome};
use crate::plan_flags::PlanFlags;
use crate::{output, servers, size};
use clap::{Args, Subcommand};
use serde::Serialize;
use strake_wire::message::jobs::{JobKind, Plan};
use strake_wire::message::manager::{ClusterMap, Target};

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
    /// Say how a disk is added to a server, or to the cluster with a server
    Add {
        /// A server's name or number, and a directory on the new disk
        #[arg(value_name = "SERVER:DIR")]
        place: Option<String>,
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
    total_bytes: u64,
    free_bytes: u64,
}

/// Runs the verb; the exit code.
pub async fn run(flags: &TargetFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    match &flags.verb {
        TargetVerb::List { json } => list(cluster, *json).await.map(|()| 0),
        TargetVerb::Add { place } => add(cluster, place.as_deref()).await.map(|()| 0),
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

/// How a target is, in a word.
pub fn state_of(map: &ClusterMap, target: &Target) -> String {
    let empty = !map.groups.iter().any(|group| group.members.contains(&target.id));
    let state = match (target.up, target.spec.poisoned.is_empty()) {
        (false, _) => "down",
        (true, false) => "stopped",
        (true, true) => "up",
    };
    match (target.drains, empty) {
        (false, _) => state.to_owned(),
        (true, false) => format!("{state}, draining"),
        (true, true) => format!("{state}, drained"),
    }
}

async fn list(cluster: &ClusterFlags, json: bool) -> Outcome {
    let map = cluster.map().await?;
    let row = |target: &Target| Row {
        id: target.id,
        server: servers::name(&map, target.server),
        path: target.spec.path.clone(),
        state: state_of(&map, target),
        groups: map.groups.iter().filter(|g| g.members.contains(&target.id)).count(),
        total_bytes: target.spec.total_bytes,
        free_bytes: target.spec.free_bytes,
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
            size::short(row.total_bytes),
            size::short(row.free_bytes),
            row.groups.to_string(),
            row.state,
            row.path,
        ]);
    }
    output::show(&table);
    Ok(())
}

/// A server opens its directories when it starts, so this only says what to do, by name.
async fn add(cluster: &ClusterFlags, place: Option<&str>) -> Outcome {
    let Some(place) = place else {
        output::line(
            "a new server:       strake server --listen ADDR --roles storage --join ADDR --data DIR",
        );
        output::line(
            "a disk of a server: restart it with its flags and one more directory behind --data",
        );
        output::line("then:               strake rebalance --dry-run; strake rebalance");
        return Ok(());
    };
    let Some((name, dir)) = place.split_once(':').filter(|(s, d)| !s.is_empty() && !d.is_empty())
    else {
        return Err(Failure::usage(format!("{place:?} is not SERVER:DIR"))
            .next("name a server of strake server list, and a directory on its new disk"));
    };
    let map = cluster.map().await?;
    let server = servers::find(&map, name)?;
    let own = map.targets.iter().filter(|target| target.server == server.id);
    let paths: Vec<&str> =
        own.map(|t| t.spec.path.strip_suffix("/target").unwrap_or(&t.spec.path)).collect();
    if paths.contains(&dir) {
        return Err(Failure::new(format!("{dir} is a target of server {name} already"))
            .next("give a directory on the new disk"));
    }
    output::line(&format!(
        "server {} ({}) opens its directories when it starts. Restart it with its flags, and this:",
        server.name, server.address
    ));
    output::line(&format!("  --data {} {dir}", paths.join(" ")));
    output::line("Groups of several copies go on without it meanwhile. Then: strake rebalance");
    Ok(())
}
