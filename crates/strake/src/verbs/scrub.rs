//! `strake scrub`: everything that targets hold, against its checksums, and the copies of each group
//! against each other.

use crate::cluster::ClusterFlags;
use crate::failure::{FAILED, Failure, Outcome};
use crate::soundness::{self, Comparison, Fate, Finding};
use crate::{output, size};
use clap::Args;
use futures::stream::{self, StreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_types::{Error, GroupId};
use strake_wire::map::MapView;
use strake_wire::message::manager::{ClusterMap, Target};

/// Bytes verified by one call.
const STEP_BYTES: u64 = 64 << 20;
/// The least, however slow it is to go.
const STEP_BYTES_MIN: u64 = 1 << 20;
/// Targets verified at once.
const TARGETS_MAX: usize = 8;

/// Flags of `strake scrub`.
#[derive(Args, Debug)]
#[command(
    after_help = "Damaged blocks are repaired from another copy where there is one (--no-repair: only told). \
Exit code: 0 all is sound, or was made so; 1 something is damaged still, or could not be looked at."
)]
pub struct ScrubFlags {
    /// Only these targets (strake status shows their numbers)
    #[arg(value_name = "TARGET")]
    pub targets: Vec<u32>,

    /// Say what is damaged, and leave it so
    #[arg(long)]
    pub no_repair: bool,

    /// Read at most so much per second from all targets together, as 50M
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub rate: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The report, as `--json` prints it.
#[derive(Serialize, Default)]
struct Report {
    targets: Vec<Row>,
    /// Chunks whose copies were compared.
    compared: u64,
    findings: Vec<Finding>,
    /// What could not be looked at, and why.
    skipped: Vec<String>,
}

#[derive(Serialize, Clone, Default)]
struct Row {
    target: u32,
    path: String,
    chunks: u64,
    bytes: u64,
    damaged: usize,
}

/// Lets so many bytes per second through.
struct Pace {
    rate: Option<u64>,
    next: Mutex<Instant>,
}

impl Pace {
    fn step_bytes(&self) -> u64 {
        self.rate.map_or(STEP_BYTES, |rate| (rate / 4).clamp(STEP_BYTES_MIN, STEP_BYTES))
    }

    /// Waits until the bytes that were read are paid for.
    async fn pay(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let until = {
            let mut next = self.next.lock();
            let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            *next = (*next).max(Instant::now()) + cost;
            *next
        };
        tokio::time::sleep_until(until.into()).await;
    }
}

/// One run.
struct Run<'a> {
    map: &'a Arc<MapView>,
    repair: bool,
    pace: Pace,
    bar: ProgressBar,
}

/// Runs the verb; exit code 1 if anything is left damaged.
pub async fn run(flags: &ScrubFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    if flags.rate == Some(0) {
        return Err(Failure::usage("--rate 0 would never end").next("give a size, as 50M"));
    }
    let map = cluster.connect().await?;
    let current = map.current();
    let wanted = wanted(&current, &flags.targets)?;
    let used = wanted.iter().map(|t| t.spec.total_bytes.saturating_sub(t.spec.free_bytes)).sum();
    let pace = Pace { rate: flags.rate, next: Mutex::new(Instant::now()) };
    let run = Run { map: &map, repair: !flags.no_repair, pace, bar: bar(used) };
    let mut report = Report::default();
    let mut done = stream::iter(wanted).map(|target| run.target(target)).buffered(TARGETS_MAX);
    while let Some((row, mut findings, stopped)) = done.next().await {
        let id = row.target;
        report.skipped.extend(stopped.map(|error| format!("target {id}: {error}")));
        report.targets.push(row);
        report.findings.append(&mut findings);
    }
    drop(done);
    run.compare(&current, &flags.targets, &mut report).await;
    run.bar.finish_and_clear();
    soundness::name_files(&map, &mut report.findings).await?;
    match flags.json {
        true => output::json(&report)?,
        false => show(&report),
    }
    let left = report.findings.iter().any(|finding| finding.fate != Fate::Repaired);
    Ok(if left || !report.skipped.is_empty() { FAILED } else { 0 })
}

fn wanted<'a>(map: &'a ClusterMap, named: &[u32]) -> Outcome<Vec<&'a Target>> {
    if let Some(id) = named.iter().find(|id| !map.targets.iter().any(|t| t.id == **id)) {
        return Err(Failure::usage(format!("target {id} does not exist"))
            .next("strake status lists the targets"));
    }
    let wanted = map.targets.iter().filter(|t| named.is_empty() || named.contains(&t.id));
    Ok(wanted.collect())
}

fn bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:30} {bytes} of {total_bytes} verified, {binary_bytes_per_sec}, {eta} left {msg}",
    );
    let bar = ProgressBar::new(bytes);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

impl Run<'_> {
    /// Verifies a target to its end, or to where it does not answer.
    async fn target(&self, target: &Target) -> (Row, Vec<Finding>, Option<Error>) {
        let mut row = Row { target: target.id, path: target.spec.path.clone(), ..Row::default() };
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let step = self.pace.step_bytes();
            let verified = soundness::verify(self.map, target.id, after, step).await;
            let (report, mut findings) = match verified {
                Ok(verified) => verified,
                Err(error) => return (row, all, Some(error)),
            };
            self.bar.inc(report.bytes);
            row.chunks += report.chunks;
            row.bytes += report.bytes;
            row.damaged += findings.len();
            for finding in findings.iter_mut().filter(|_| self.repair) {
                soundness::repair(self.map, finding).await;
            }
            all.append(&mut findings);
            match report.next {
                Some(next) => after = Some(next),
                None => return (row, all, None),
            }
            self.pace.pay(report.bytes).await;
        }
    }

    /// Compares the copies of all groups that have several, or a member among the targets named.
    async fn compare(&self, map: &ClusterMap, named: &[u32], report: &mut Report) {
        self.bar.set_message("(comparing copies)");
        for group in map.groups.iter().filter(|group| GroupId(group.id).copies() > 1) {
            if !named.is_empty() && !group.members.iter().any(|member| named.contains(member)) {
                continue;
            }
            let comparison = Comparison::of(group.id, self.repair);
            let (compared, mut found, skipped) = comparison.rest(self.map).await;
            report.compared += compared;
            report.findings.append(&mut found);
            report.skipped.extend(skipped);
        }
    }
}

fn show(report: &Report) {
    let mut table = output::table(&[">TARGET", ">CHUNKS", ">BYTES", ">DAMAGED", "PATH"]);
    for row in &report.targets {
        table.add_row([
            row.target.to_string(),
            row.chunks.to_string(),
            size::short(row.bytes),
            row.damaged.to_string(),
            row.path.clone(),
        ]);
    }
    output::show(&table);
    if report.compared > 0 {
        output::line(&format!("{} chunks were compared with their other copies", report.compared));
    }
    for finding in &report.findings {
        output::line(&sentence(finding));
    }
    for skipped in &report.skipped {
        output::line(&format!("not looked at: {skipped}"));
    }
}

fn sentence(finding: &Finding) -> String {
    let what = if finding.different { "differs" } else { "damaged" };
    let (file, target, detail) = (finding.file(), finding.target, &finding.detail);
    let chunk = finding.chunk.index.0;
    let place = format!("{what}: {file}, chunk {chunk} on target {target}");
    match finding.fate {
        Fate::Repaired => format!("{place}: repaired"),
        Fate::Left => {
            format!("{place}; strake scrub without --no-repair mends what has another copy")
        }
        Fate::Lost => format!("{place}: {detail}; restore the file from a backup"),
        Fate::Unknown => {
            format!("{place}: could not be repaired now ({detail}); run strake scrub again")
        }
    }
}
