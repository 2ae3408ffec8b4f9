//! `strake df`: room of volumes and targets.

use crate::cluster::{self, ClusterFlags};
use crate::failure::Outcome;
use crate::{output, size};
use clap::Args;
use serde::Serialize;
use strake_client::VolumeSpace;

/// Flags of `strake df`.
#[derive(Args, Debug)]
pub struct DfFlags {
    /// Only these volumes
    #[arg(value_name = "VOLUME")]
    pub volumes: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Row {
    volume: String,
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    inodes: u64,
    inodes_free: u64,
}

/// Runs the verb.
pub async fn run(flags: &DfFlags, cluster: &ClusterFlags) -> Outcome {
    let map = cluster.connect().await?;
    let names = cluster::named_or_all(&map.current(), &flags.volumes);
    let mut rows = Vec::new();
    for name in names {
        let volume = cluster::open_volume(map.clone(), &name, "df").await?;
        let VolumeSpace { total_bytes, free_bytes, inodes, inodes_free } = volume.statfs().await?;
        volume.close().await?;
        let used_bytes = total_bytes.saturating_sub(free_bytes);
        rows.push(Row { volume: name, total_bytes, used_bytes, free_bytes, inodes, inodes_free });
    }
    if flags.json {
        return output::json(&rows);
    }
    let mut table = output::table(&["VOLUME", ">SIZE", ">USED", ">FREE", ">FILES"]);
    for row in rows {
        let sizes = [row.total_bytes, row.used_bytes, row.free_bytes].map(size::short);
        let [total, used, free] = sizes;
        table.add_row([row.volume, total, used, free, row.inodes.to_string()]);
    }
    output::show(&table);
    Ok(())
}
