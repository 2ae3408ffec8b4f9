//! `strake df`: what volumes hold, and the room of targets.

use crate::asked::{AT_ONCE, Asked};
use crate::cluster::{self, ClusterFlags};
use crate::failure::{self, Outcome};
use crate::verbs::target::{free_of, size_of, state_of};
use crate::{output, servers, size};
use clap::Args;
use futures::{StreamExt, stream};
use serde::Serialize;
use std::sync::Arc;
use strake_client::VolumeSpace;
use strake_wire::map::MapView;
use strake_wire::message::manager::{ClusterMap, TargetSpec};

/// Flags of `strake df`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit code: 0 all is shown; 1 some of the volumes are not, each named with the reason."
)]
pub struct DfFlags {
    /// Only these volumes. CONTENTS is what their files occupy, one copy counted; all share the room of the targets below
    #[arg(value_name = "VOLUME")]
    pub volumes: Vec<String>,

    /// Print the volumes as JSON, each with the room of the whole cluster (strake target list --json has that of each target)
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Row {
    volume: String,
    /// What its own contents occupy, of one copy.
    contents_bytes: u64,
    /// Of all targets together, as the next two.
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    inodes: u64,
    inodes_free: u64,
}

impl Row {
    fn new(volume: String, space: &VolumeSpace) -> Self {
        Self {
            volume,
            contents_bytes: space.contents_bytes,
            total_bytes: space.total_bytes,
            used_bytes: space.total_bytes.saturating_sub(space.free_bytes),
            free_bytes: space.free_bytes,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
        }
    }
}

/// Runs the verb.
pub async fn run(flags: &DfFlags, cluster: &ClusterFlags) -> Outcome {
    let view = cluster.connect().await?;
    let names = cluster::named_or_all(&view.current(), &flags.volumes);
    let asked = Asked::of(&view);
    let answers = names.iter().map(|name| row(&view, &asked, name));
    let answers: Vec<_> = stream::iter(answers).buffered(AT_ONCE).collect().await;
    let (mut rows, mut failed) = (Vec::new(), Ok(()));
    for answer in answers {
        match answer {
            Ok(row) => rows.push(row),
            Err(failure) => failure::note(&mut failed, failure),
        }
    }
    if flags.json {
        output::json(&rows)?;
        return failed;
    }
    if !rows.is_empty() {
        show_volumes(rows);
        output::line("");
    }
    // Those the manager knows, whichever volumes answer.
    match cluster::fresh_map(&view).await {
        Ok(map) => show_targets(&map),
        Err(error) => failure::note(&mut failed, error.into()),
    }
    failed
}

async fn row(view: &Arc<MapView>, asked: &Asked<'_>, name: &str) -> Outcome<Row> {
    let space = asked.answer(name, space_of(view, name)).await?;
    Ok(Row::new(name.to_owned(), &space))
}

async fn space_of(view: &Arc<MapView>, name: &str) -> Outcome<VolumeSpace> {
    let volume = cluster::open_volume(view.clone(), name, "df").await?;
    let space = volume.statfs().await;
    cluster::leave_volume(&volume).await;
    Ok(space?)
}

fn show_volumes(rows: Vec<Row>) {
    let mut table = output::table(&["VOLUME", ">CONTENTS", ">FILES"]);
    for row in rows {
        table.add_row([row.volume, size::short(row.contents_bytes), row.inodes.to_string()]);
    }
    output::show(&table);
}

/// The room of each target, and of all.
fn show_targets(map: &ClusterMap) {
    let head = &[">TARGET", ">SIZE", ">USED", ">FREE", "STATE", "SERVER", "PATH"];
    let mut table = output::table(head);
    let sizes = |total: u64, free: u64| [total, total.saturating_sub(free), free].map(size::short);
    let unknown = || ["?", "?", "?"].map(str::to_owned);
    for target in &map.targets {
        let known = size_of(&target.spec).zip(free_of(&target.spec));
        let [total, used, free] = known.map_or_else(unknown, |(total, free)| sizes(total, free));
        let (state, server) = (state_of(map, target), servers::name(map, target.server));
        let path = target.spec.path.clone();
        table.add_row([target.id.to_string(), total, used, free, state, server, path]);
    }
    let sum = |bytes: fn(&TargetSpec) -> Option<u64>| -> u64 {
        map.targets.iter().filter_map(|target| bytes(&target.spec)).sum()
    };
    let [total, used, free] = sizes(sum(size_of), sum(free_of));
    let none = String::new;
    table.add_row(["all".to_owned(), total, used, free, none(), none(), none()]);
    output::show(&table);
}
