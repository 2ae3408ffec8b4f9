//! `strake du`: what directories of a volume occupy.

use crate::cluster::ClusterFlags;
use crate::failure::{self, Outcome};
use crate::place::Paths;
use crate::{output, size};
use clap::Args;
use serde::Serialize;
use strake_native::{Failures, tree};

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
    let (mut rows, mut failed) = (Vec::new(), Ok(()));
    for path in &flags.paths {
        match row(&paths, path).await {
            Ok((row, unread)) => {
                rows.push(row);
                failure::note_all(&mut failed, unread);
            }
            Err(failure) => failure::note(&mut failed, failure),
        }
    }
    let closed = paths.close().await;
    match flags.json {
        true => output::json(&rows)?,
        false if rows.is_empty() => {}
        false => show(rows),
    }
    failed.and(closed)
}

async fn row(paths: &Paths<'_>, path: &str) -> Outcome<(Row, Failures)> {
    let location = paths.locate_remote(path).await?;
    let used = tree::usage(&paths.clients, &location).await?;
    let tree::Usage { entries, bytes, occupied, unread } = used;
    Ok((Row { path: path.to_owned(), entries, bytes, occupied }, unread))
}

fn show(rows: Vec<Row>) {
    let mut table = output::table(&[">OCCUPIED", ">SIZE", ">ENTRIES", "PATH"]);
    for row in rows {
        let (occupied, bytes) = (size::short(row.occupied), size::short(row.bytes));
        table.add_row([occupied, bytes, row.entries.to_string(), row.path]);
    }
    output::show(&table);
}
