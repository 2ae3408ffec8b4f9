//! `strake rebalance`: targets come to hold evenly what there is.

use crate::cluster::ClusterFlags;
use crate::failure::Outcome;
use crate::plan_flags::{FORCE, PlanFlags};
use clap::Args;
use strake_wire::message::jobs::{JobKind, Plan};

/// Flags of `strake rebalance`.
#[derive(Args, Debug)]
#[command(mut_arg("force", |force| force.help(FORCE)))]
pub struct RebalanceFlags {
    #[command(flatten)]
    plan: PlanFlags,
}

/// Runs the verb; the exit code.
pub async fn run(flags: &RebalanceFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let request = Plan { kind: JobKind::Rebalance as u32, ..Plan::default() };
    flags.plan.begin(request, cluster).await
}
