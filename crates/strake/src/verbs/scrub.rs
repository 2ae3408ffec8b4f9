//! `strake scrub`: everything that targets hold, against its checksums, and the copies of each group
//! against each other; a job of the manager that the targets' servers carry out.

use crate::cluster::ClusterFlags;
use crate::failure::Outcome;
use crate::jobs::{self, Files, JobView};
use crate::plan_flags::{follow_to_its_end, tell_begun};
use crate::scrub_report::Report;
use crate::{output, size};
use clap::Args;
use strake_wire::message::jobs::{Job, JobKind, Plan};

/// Flags of `strake scrub`.
#[derive(Args, Debug)]
#[command(
    after_help = "Damaged blocks are repaired from another copy where there is one (--no-repair: only told). \
The work is a job of the cluster: Ctrl-C only stops watching it, and strake job list, watch, pause, throttle \
and cancel are for it, too.\n\
Exit code: 0 all is sound, or was made so; 1 something is damaged still, or could not be looked at; 130 after \
Ctrl-C."
)]
pub struct ScrubFlags {
    /// Only these targets (strake status shows their numbers)
    #[arg(value_name = "TARGET")]
    pub targets: Vec<u32>,

    /// Say what is damaged, and leave it so
    #[arg(long)]
    pub no_repair: bool,

    /// Read at most so much per second from all targets together, as 50M; 0: no limit (may be changed: strake job throttle)
    #[arg(long, visible_alias = "rate", value_name = "RATE", value_parser = size::parse)]
    pub throttle: Option<u64>,

    /// Begin, and do not wait for the end
    #[arg(long)]
    pub no_wait: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb; exit code 1 if anything is left damaged.
pub async fn run(flags: &ScrubFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let map = cluster.connect().await?;
    let request = Plan {
        kind: JobKind::Scrub as u32,
        targets: flags.targets.clone(),
        rate: flags.throttle,
        no_repair: flags.no_repair,
        ..Plan::default()
    };
    let job = jobs::plan(&map, request).await?;
    if flags.no_wait {
        match flags.json {
            true => output::json(&JobView::new(&job, &Files::default()))?,
            false => {
                let (about, held) = (&job.about, size::show(job.bytes));
                tell_begun(job.id, &format!("verifies {about}, about {held}"));
            }
        }
        return Ok(0);
    }
    let show = async |job: &Job| Report::of(&map, job).await.print(flags.json);
    follow_to_its_end(&map, job.id, show).await
}
