//! Directories in a testbed that is there already: what it carries at most stands beside their figures.

use super::output::OutputFlags;
use super::running::{Supervised, carry_out_and, supervise};
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::collections::BTreeMap;
use strake_bench::crew::Crew;
use strake_bench::limit;
use strake_bench::plan::Plan;
use strake_bench::result::Report;
use strake_bench::runner::Run;
use strake_bench::testbed::Testbed;

/// In which testbed it is measured.
#[derive(Args, Debug)]
pub struct BedFlags {
    /// The testbed whose client c1 has the directories mounted: what its links and disks carry at most
    /// is measured as well, and stands beside the figures (needs root) [default of --on: c1's own mount]
    #[arg(long, value_name = "NAME")]
    testbed: Option<String>,
}

/// A testbed with what is to be measured in it.
pub struct Bed {
    /// The testbed.
    pub testbed: Testbed,
    /// By what figures say that they were taken in it.
    pub parameters: BTreeMap<String, f64>,
    /// Whether its limits are measured quickly.
    pub quick: bool,
}

impl Bed {
    /// One that figures do not name.
    pub fn unnamed(testbed: Testbed) -> Self {
        Self { testbed, parameters: BTreeMap::new(), quick: false }
    }
}

impl BedFlags {
    /// The testbed, where one is named, and the directories to measure; so many hosts do the work.
    pub fn find(&self, on: &[String], hosts: usize) -> Outcome<(Option<Testbed>, Vec<String>)> {
        let Some(name) = &self.testbed else { return Ok((None, on.to_vec())) };
        if hosts > 1 {
            return Err(Failure::usage(
                "--testbed measures the limits of one client, not of several",
            )
            .next("leave --clients out, or name one"));
        }
        let testbed = Testbed::find(name)?;
        if !on.is_empty() {
            return Ok((Some(testbed), on.to_vec()));
        }
        if !testbed.state.plan.cluster {
            return Err(Failure::usage(format!("testbed {name} has no cluster to measure"))
                .next("name what is mounted in it: --on DIR"));
        }
        let mount = format!("strake={}", testbed.state.mount(1).display());
        Ok((Some(testbed), vec![mount]))
    }
}

/// Carries out a plan, with the limits of a testbed where it is in one, and shows what it measured; the
/// exit code.
pub async fn carry_out_in(
    bed: Option<Bed>,
    plan: Plan,
    crew: Crew,
    on: &[String],
    wanted: &OutputFlags,
    print: impl FnOnce(&Report),
) -> Outcome<u8> {
    let Some(bed) = bed else { return carry_out_and(plan, crew, on, wanted, print).await };
    let measure = move |run: Supervised<'_>| {
        let Supervised { sides, command, version, watch } = run;
        let run = Run { sides, crew, command, version, watch };
        limit::carry_out(&plan, run, &bed.testbed, &bed.parameters, bed.quick)
    };
    supervise(on, wanted, measure, print).await
}
