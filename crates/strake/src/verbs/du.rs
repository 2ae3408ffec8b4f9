//! `strake du`: what directories of a volume occupy.

use crate::cluster::ClusterFlags;
use crate::failure::Outcome;
use crate::place::Paths;
use crate::{output, size};
use clap::Args;
use serde::Serialize;
use strake_native::tree;

/// Flags of `strake du`.
#[derive(Args, Debug)]
pub struct DuFlags {
    /// Directories or files: [ADDR[,ADDR]]:/VOLUME[/PATH]
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Row {
    path: String,
    entries: u64,
    bytes: u64,
    occupied: u64,
}

/// Runs the verb.
pub async fn run(flags: &DuFlags, cluster: &ClusterFlags) -> Outcome {
    let paths = Paths::new("du", cluster);
    let mut rows = Vec::new();
    for path in &flags.paths {
        let usage = tree::usage(&paths.clients, &paths.locate_remote(path).await?).await?;
        let tree::Usage { entries, bytes, occupied } = usage;
        rows.push(Row { path: path.clone(), entries, bytes, occupied });
    }
    paths.close().await?;
    if flags.json {
        return output::json(&rows);
    }
    let mut table = output::table(&[">OCCUPIED", ">SIZE", ">ENTRIES", "PATH"]);
    for row in rows {
        let (occupied, bytes) = (size::short(row.occupied), size::short(row.bytes));
        table.add_row([occupied, bytes, row.entries.to_string(), row.path]);
    }
    output::show(&table);
    Ok(())
}
