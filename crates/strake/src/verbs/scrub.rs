//! `strake scrub`: everything that targets hold, against its checksums.

use crate::cluster::ClusterFlags;
use crate::failure::{FAILED, Failure, Outcome};
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use strake_types::TargetId;
use strake_wire::map::MapView;
use strake_wire::message::storage::{Chunk, Scrub, StorageAnswer, StorageOp, StorageRequest};

/// Bytes verified by one call.
const STEP_BYTES: u64 = 256 << 20;

/// Flags of `strake scrub`.
#[derive(Args, Debug)]
pub struct ScrubFlags {
    /// Only these targets (strake status shows their numbers)
    #[arg(value_name = "TARGET")]
    pub targets: Vec<u32>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize, Default)]
struct Row {
    target: u32,
    path: String,
    chunks: u64,
    bytes: u64,
    damaged: Vec<String>,
}

/// Runs the verb; exit code 1 if anything is damaged.
pub async fn run(flags: &ScrubFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let map = cluster.connect().await?;
    let current = map.current();
    if let Some(id) = flags.targets.iter().find(|id| !current.targets.iter().any(|t| t.id == **id))
    {
        return Err(Failure::usage(format!("target {id} does not exist"))
            .next("strake status lists the targets"));
    }
    let wanted = current
        .targets
        .iter()
        .filter(|t| flags.targets.is_empty() || flags.targets.contains(&t.id));
    let wanted: Vec<_> = wanted.collect();
    let used = wanted.iter().map(|t| t.spec.total_bytes.saturating_sub(t.spec.free_bytes)).sum();
    let style =
        ProgressStyle::with_template("{bytes} verified, {binary_bytes_per_sec}, target {msg}");
    let bar = ProgressBar::new(used);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut rows = Vec::new();
    for target in wanted {
        bar.set_message(format!("{} ({})", target.id, target.spec.path));
        let row = Row { target: target.id, path: target.spec.path.clone(), ..Row::default() };
        rows.push(scrub(&map, row, &bar).await?);
    }
    bar.finish_and_clear();
    let damaged = rows.iter().any(|row| !row.damaged.is_empty());
    match flags.json {
        true => output::json(&rows)?,
        false => show(&rows),
    }
    Ok(if damaged { FAILED } else { 0 })
}

async fn scrub(map: &MapView, mut row: Row, bar: &ProgressBar) -> Outcome<Row> {
    let storage = map.storage_of(TargetId(row.target))?;
    let mut after = None;
    loop {
        let op = Some(StorageOp::Scrub(Scrub { after, budget_bytes: STEP_BYTES }));
        let request = StorageRequest { target: row.target, op, ..StorageRequest::default() };
        let (reply, _) = storage.call(request, bytes::Bytes::new()).await?;
        let Some(StorageAnswer::Scrub(report)) = reply.answer else {
            return Err(Failure::new(format!("target {} answers something else", row.target)));
        };
        bar.inc(report.bytes);
        row.chunks += report.chunks;
        row.bytes += report.bytes;
        row.damaged.extend(report.corrupt.iter().map(name));
        match report.next {
            Some(next) => after = Some(next),
            None => return Ok(row),
        }
    }
}

fn name(chunk: &Chunk) -> String {
    strake_types::ChunkId::from(*chunk).to_string()
}

fn show(rows: &[Row]) {
    let mut table = output::table(&[">TARGET", ">CHUNKS", ">BYTES", ">DAMAGED", "PATH"]);
    for row in rows {
        table.add_row([
            row.target.to_string(),
            row.chunks.to_string(),
            crate::size::short(row.bytes),
            row.damaged.len().to_string(),
            row.path.clone(),
        ]);
    }
    output::show(&table);
    for damaged in rows.iter().flat_map(|row| &row.damaged) {
        output::line(&format!("damaged: {damaged}; restore the file from a backup"));
    }
}
