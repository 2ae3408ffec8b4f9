//! `strake job`: what moves, heals, is verified or gets other copies in the background.

use crate::cluster::ClusterFlags;
use crate::failure::{Failure, Outcome};
use crate::held::{self, Wanted};
use crate::jobs::{self, Files, Findings, JobView, ago};
use crate::plan_flags::{show_items, watch};
use crate::scrub_report;
use crate::{output, size};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::sync::Arc;
use strake_wire::map::MapView;
use strake_wire::message::jobs::SteerJob;
use strake_wire::message::manager::ManagerOp;

/// Flags of `strake job`.
#[derive(Args, Debug)]
pub struct JobFlags {
    /// What to do.
    #[command(subcommand)]
    verb: JobVerb,
}

#[derive(Subcommand, Debug)]
enum JobVerb {
    /// List the jobs: heals, drains, replacements, rebalances, scrubs, recopies (layout set --existing); the last hundred heals and hundred others that have ended, too
    List {
        /// Only those that have not ended
        #[arg(long)]
        running: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show everything about a job: each group or target, the files it is at, those that wait and who has them open, and why what failed has failed
    Show {
        /// The job's number
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        id: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the files of which a job has given something up (--lose-data), as :/VOLUME/PATH
    Files {
        /// The job's number
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        id: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Follow a job until it has ended; exit code 1 unless it is done
    Watch {
        /// The job's number [default: the newest that has not ended]
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        id: Option<u64>,
        /// Print JSON at the end
        #[arg(long)]
        json: bool,
    },
    /// Let a job wait
    Pause {
        /// The job's number
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        id: u64,
    },
    /// Let a job that waits go on
    Resume {
        /// The job's number
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        id: u64,
    },
    /// Change how fast a job may send (a scrub: read; a recopy: copy) in all, at once
    Throttle {
        /// The job's number, or `all`: every job without a rate of its own
        #[arg(value_name = "ID|all", value_parser = number)]
        id: u64,
        /// Bytes per second, as 20M; 0: no limit
        #[arg(value_parser = size::parse)]
        rate: u64,
    },
    /// End a job; what has moved stays where it is, and files that have other copies keep them
    ///
    /// A heal cannot be ended: until it is done a copy is missing, and it would begin again at once. strake job pause N lets it
    /// wait, strake job throttle N RATE slows it down.
    Cancel {
        /// The job's number
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        id: u64,
    },
}

/// A job with all that it has found, as `--json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    job: &'a JobView,
    #[serde(flatten)]
    findings: Findings,
}

/// Runs the verb; the exit code.
pub async fn run(flags: &JobFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let map = cluster.connect().await?;
    let steer = |id| SteerJob { id, ..SteerJob::default() };
    let request = match &flags.verb {
        JobVerb::List { running, json } => return list(&map, *running, *json).await.map(|()| 0),
        JobVerb::Show { id, json } => {
            let job = jobs::fetch_one(&map, *id).await?;
            let files = Files::find(&map, std::slice::from_ref(&job)).await;
            let view = JobView::new(&job, &files);
            match json {
                true => {
                    let findings = Findings::of(&map, &job).await;
                    output::json(&Shown { job: &view, findings })?;
                }
                false => {
                    show(&view, job.begun_ms, job.rate_max);
                    held::show_lost(&map, &job).await;
                    let found = scrub_report::sentences(&Findings::of(&map, &job).await);
                    found.iter().for_each(|sentence| output::line(sentence));
                }
            }
            return Ok(0);
        }
        JobVerb::Files { id, json } => {
            let job = jobs::fetch_one(&map, *id).await?;
            let Some(wanted) = Wanted::lost_by(&job) else {
                return Err(Failure::new(format!("job {id} gives nothing up")).next(
                    "strake job show says what it does; only --lose-data lets a job give something up",
                ));
            };
            return held::print(&map, &wanted, *json).await;
        }
        JobVerb::Watch { id, json } => {
            let id = match id {
                Some(id) => *id,
                None => newest(&map).await?,
            };
            return watch(&map, id, *json).await;
        }
        JobVerb::Pause { id } => SteerJob { pause: true, ..steer(*id) },
        JobVerb::Resume { id } => SteerJob { resume: true, ..steer(*id) },
        JobVerb::Cancel { id } => SteerJob { cancel: true, ..steer(*id) },
        JobVerb::Throttle { id, rate } => SteerJob { rate: Some(*rate), ..steer(*id) },
    };
    let list = jobs::ask(&map, ManagerOp::SteerJob(request)).await?;
    match list.jobs.first().filter(|_| request.id != 0) {
        Some(job) => {
            let view = JobView::new(job, &Files::default());
            let word = jobs::state_word(job.state);
            output::line(&format!("job {} is {word}: {}", job.id, view.progress()));
        }
        None => output::line(&format!("jobs send {}", rate_text(list.default_rate, "each"))),
    }
    Ok(0)
}

/// Reads a job's number, or `all`: 0.
fn number(id: &str) -> Result<u64, String> {
    if id == "all" {
        return Ok(0);
    }
    id.parse().ok().filter(|&id| id > 0).ok_or_else(|| {
        format!(
            "{id:?} is no job's number; strake job list shows the numbers, and `all` is every job without a rate of its own"
        )
    })
}

async fn newest(map: &MapView) -> Outcome<u64> {
    let list = jobs::fetch(map, 0).await?;
    let last = list.jobs.iter().rev().find(|job| jobs::lasts(job));
    last.map(|job| job.id).ok_or_else(|| {
        Failure::new("no job is under way").next("strake job list shows those that have ended")
    })
}

async fn list(map: &Arc<MapView>, running: bool, json: bool) -> Outcome {
    let list = jobs::fetch(map, 0).await?;
    let wanted = list.jobs.iter().filter(|job| !running || jobs::lasts(job));
    let files = Files::find(map, &list.jobs).await;
    let views: Vec<JobView> = wanted.clone().map(|job| JobView::new(job, &files)).collect();
    if json {
        return output::json(&views);
    }
    if views.is_empty() {
        output::line("no jobs");
        return Ok(());
    }
    let mut table = output::table(&[">JOB", "KIND", "STATE", "BEGUN", "ABOUT", "PROGRESS"]);
    for (job, view) in wanted.zip(&views) {
        table.add_row([
            job.id.to_string(),
            jobs::kind_word(job.kind).to_owned(),
            jobs::state_word(job.state).to_owned(),
            ago(job.begun_ms),
            job.about.clone(),
            view.progress_at(),
        ]);
    }
    output::show(&table);
    if list.left_out > 0 {
        output::line(&format!("{} that ended earlier are not listed", list.left_out));
    }
    Ok(())
}

/// How fast it may be; `whose`: what has the rate.
fn rate_text(rate: u64, whose: &str) -> String {
    match rate {
        0 => "as fast as foreground work allows".to_owned(),
        rate => format!("at most {}/s {whose}", size::show(rate)),
    }
}

fn show(view: &JobView, begun_ms: u64, rate_max: u64) {
    output::line(&view.headline());
    let does = match (view.is_scrub(), view.recopy().is_some()) {
        (true, _) => "reads",
        (_, true) => "copies",
        _ => "sends",
    };
    // Its parts share it.
    let rate = rate_text(rate_max, "in all");
    output::line(&format!("  begun {}, {does} {rate}", ago(begun_ms)));
    output::line(&format!("  {}", view.progress()));
    if let Some(took) = view.took() {
        output::line(&format!("  took {}", output::duration(took)));
    }
    for reason in view.reasons() {
        output::line(&format!("  ! {reason}"));
    }
    show_items(view);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    /// A job's rate was told to be that of each of its parts, which share it.
    #[test]
    fn a_rate_is_told_with_what_has_it() {
        assert_eq!(rate_text(100 << 10, "in all"), "at most 100 KiB/s in all");
        assert_eq!(rate_text(0, "in all"), "as fast as foreground work allows");
    }

    /// A wrong number was told of only after the cluster had been reached.
    #[test]
    fn a_job_is_named_by_its_number_or_all_are_meant() {
        assert_eq!(number("7").unwrap(), 7);
        assert_eq!(number("all").unwrap(), 0);
        for wrong in ["0", "x", "-1", ""] {
            assert!(number(wrong).unwrap_err().contains("strake job list"));
        }
        assert!(Cli::try_parse_from(["strake", "job", "throttle", "all", "20M"]).is_ok());
        assert!(Cli::try_parse_from(["strake", "job", "throttle", "x", "20M"]).is_err());
    }
}
