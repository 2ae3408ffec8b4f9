//! What all verbs have in common that move members of groups: flags, the plan that is shown, the job that
//! is begun and watched.

use crate::cluster::ClusterFlags;
use crate::failure::{FAILED, Outcome};
use crate::jobs::{self, Files, JobView, lasts};
use crate::{output, size};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::time::Duration;
use strake_wire::map::MapView;
use strake_wire::message::jobs::{Job, JobState, Plan};

/// Time between two looks at a job that is watched.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

/// Flags of a verb that begins a job.
#[derive(Args, Debug)]
pub struct PlanFlags {
    /// Only show which groups and how many bytes would move
    #[arg(long)]
    pub dry_run: bool,

    /// Send at most so many bytes per second, as 20M (may be changed: strake job throttle)
    #[arg(long, value_name = "RATE", value_parser = size::parse)]
    pub throttle: Option<u64>,

    /// Accept that copies of something come to lie on one server
    #[arg(long)]
    pub force: bool,

    /// Wait until it is done, and show how far it is
    #[arg(long)]
    pub wait: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PlanFlags {
    /// Adds what the flags say.
    pub fn apply(&self, request: Plan) -> Plan {
        let (dry_run, force) = (self.dry_run, self.force);
        Plan { dry_run, force, rate: self.throttle.unwrap_or(0), ..request }
    }

    /// Begins a job, or shows it; the exit code.
    pub async fn begin(&self, request: Plan, cluster: &ClusterFlags) -> Outcome<u8> {
        let map = cluster.connect().await?;
        let removes = request.remove;
        let job = jobs::plan(&map, self.apply(request)).await?;
        if self.wait && !self.dry_run {
            return watch(&map, job.id, self.json).await;
        }
        let view = JobView::new(&job, &Files::default());
        match self.json {
            true => output::json(&view)?,
            false => show(&job, &view, self.dry_run, removes),
        }
        Ok(0)
    }
}

fn show(job: &Job, view: &JobView, dry_run: bool, removes: bool) {
    let moved = format!("{} groups, about {}", job.items.len(), size::show(job.bytes));
    let then = if removes { "; then it leaves the cluster" } else { "" };
    let about = &job.about;
    if dry_run {
        output::line(&format!("{about}: would move {moved}{then}"));
        show_items(view);
        return;
    }
    let id = job.id;
    output::line(&format!("job {id}: {about}: moving {moved}{then}"));
    output::line(&format!("  next: strake job watch {id}"));
}

/// The parts of a job, as a table.
pub fn show_items(view: &JobView) {
    if view.items().is_empty() {
        return;
    }
    let mut table = output::table(&[">GROUP", ">FROM", ">TO", ">BYTES", "STATE", "FILE"]);
    for item in view.items() {
        table.add_row(item.row());
    }
    output::show(&table);
}

/// Shows a job until it has ended; exit code 1 unless it is done.
pub async fn watch(map: &Arc<MapView>, id: u64, json: bool) -> Outcome<u8> {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:30} {percent}%  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    loop {
        let list = jobs::fetch(map, id).await?;
        let Some(job) = list.jobs.first() else { return Ok(FAILED) };
        let files = Files::find(map, &list.jobs).await;
        let view = JobView::new(job, &files);
        if !lasts(job) {
            bar.finish_and_clear();
            match json {
                true => output::json(&view)?,
                false => tell_end(job, &view),
            }
            return Ok(if job.state == JobState::Done as u32 { 0 } else { FAILED });
        }
        bar.set_length(job.bytes.max(1));
        bar.set_position(job.bytes_done);
        let file = view.files().next().map(|file| format!(", at {file}")).unwrap_or_default();
        let reason = view.reasons().first().map(|reason| format!("; {reason}")).unwrap_or_default();
        bar.set_message(format!("job {id}: {}{file}{reason}", view.progress()));
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

fn tell_end(job: &Job, view: &JobView) {
    let (id, about) = (job.id, &job.about);
    output::line(&format!(
        "job {id} ({about}) is {}: {}",
        jobs::state_word(job.state),
        view.progress()
    ));
    for reason in view.reasons() {
        output::line(&format!("  ! {reason}"));
    }
}
