//! `strake server list|drain|remove`: the servers of a cluster, from outside.

use crate::cluster::{self, ClusterFlags};
use crate::failure::Outcome;
use crate::plan_flags::PlanFlags;
use crate::{jobs, output, release, servers};
use clap::Subcommand;
use serde::Serialize;
use strake_wire::message::jobs::{JobKind, Plan};
use strake_wire::message::manager::{ClusterMap, Server};

/// What is done with servers of a cluster.
#[derive(Subcommand, Debug)]
pub enum ServersVerb {
    /// List the servers of the cluster
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Move everything off a server's targets, keeping all copies; it stays in the cluster
    Drain {
        /// Its name or number (strake server list)
        server: String,
        /// Use its targets again
        #[arg(long, conflicts_with_all = ["lose_data", "dry_run", "throttle", "force", "wait"])]
        undo: bool,
        /// Give up what only its targets have, if they are gone for good
        #[arg(long)]
        lose_data: bool,
        /// How.
        #[command(flatten)]
        plan: PlanFlags,
    },
    /// Move everything off a server's targets, keeping all copies, and take it out of the cluster
    Remove {
        /// Its name or number (strake server list)
        server: String,
        /// Give up what only its targets have, if they are gone for good
        #[arg(long)]
        lose_data: bool,
        /// How.
        #[command(flatten)]
        plan: PlanFlags,
    },
}

/// A server, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    id: u32,
    name: String,
    address: String,
    roles: String,
    /// Its manager leads those of the cluster.
    leads: bool,
    up: bool,
    /// Null: it has not said it, as an earlier one.
    release: Option<String>,
    targets: Vec<u32>,
}

/// Runs the verb; the exit code.
pub async fn run(verb: &ServersVerb, cluster: &ClusterFlags) -> Outcome<u8> {
    let kind = JobKind::Drain as u32;
    match verb {
        ServersVerb::List { json } => list(cluster, *json).await.map(|()| 0),
        ServersVerb::Drain { server, undo: true, .. } => {
            let map = cluster.connect().await?;
            let known = cluster::fresh_map(&map).await?;
            let id = servers::find(&known, server)?.id;
            if !drains(&known, id) {
                output::line(&format!("server {server} is not being drained: nothing changes"));
                return Ok(0);
            }
            let servers = vec![id];
            jobs::plan(&map, Plan { kind, servers, undo: true, ..Plan::default() }).await?;
            output::line(&format!(
                "server {server} is used again; strake rebalance moves data there"
            ));
            Ok(0)
        }
        ServersVerb::Drain { server, lose_data, plan, .. } => {
            let (servers, lose_data) = (vec![number(cluster, server).await?], *lose_data);
            plan.begin(Plan { kind, servers, lose_data, ..Plan::default() }, cluster).await
        }
        ServersVerb::Remove { server, lose_data, plan } => {
            let (servers, lose_data) = (vec![number(cluster, server).await?], *lose_data);
            let request = Plan { kind, servers, lose_data, remove: true, ..Plan::default() };
            plan.begin(request, cluster).await
        }
    }
}

/// True if targets of a server are to lose what they have, or were.
fn drains(map: &ClusterMap, server: u32) -> bool {
    map.targets.iter().any(|target| target.server == server && target.drains)
}

/// The number of a server that is named by number or name.
async fn number(cluster: &ClusterFlags, named: &str) -> Outcome<u32> {
    Ok(servers::find(&cluster.map().await?, named)?.id)
}

async fn list(cluster: &ClusterFlags, json: bool) -> Outcome {
    let map = cluster.map().await?;
    let row = |server: &Server| {
        let targets: Vec<u32> =
            map.targets.iter().filter(|t| t.server == server.id).map(|t| t.id).collect();
        Row {
            id: server.id,
            name: server.name.clone(),
            address: server.address.clone(),
            roles: servers::roles(&map, server),
            leads: servers::leads(&map, server),
            up: server.up,
            release: server.release.as_deref().and_then(release::said),
            targets,
        }
    };
    let rows: Vec<Row> = map.servers.iter().map(row).collect();
    if json {
        return output::json(&rows);
    }
    let mut table =
        output::table(&[">SERVER", "NAME", "ADDRESS", "ROLES", "STATE", "RELEASE", "TARGETS"]);
    for row in rows {
        let targets: Vec<String> = row.targets.iter().map(u32::to_string).collect();
        table.add_row([
            row.id.to_string(),
            row.name,
            row.address,
            row.roles,
            if row.up { "up".to_owned() } else { "down".to_owned() },
            release::shown(row.release),
            targets.join(","),
        ]);
    }
    output::show(&table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::Target;

    /// It was said to be used again.
    #[test]
    fn a_drain_is_undone_where_there_is_one() {
        let target = |server, drains| Target { server, drains, ..Target::default() };
        let targets = vec![target(1, false), target(2, false), target(2, true)];
        let map = ClusterMap { targets, ..ClusterMap::default() };
        assert_eq!([1, 2, 3].map(|server| drains(&map, server)), [false, true, false]);
    }
}
