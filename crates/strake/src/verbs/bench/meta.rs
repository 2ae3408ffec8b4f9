//! `strake bench meta`: names and attributes.

use super::crew::CrewFlags;
use super::running::{RunFlags, carry_out};
use crate::failure::Outcome;
use crate::size;
use clap::Args;
use strake_bench::meta::{self, Options};
use strake_bench::work::names::Shape;

/// Flags of `strake bench meta`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake bench meta --files 10000 -t 4 --on /mnt
  strake bench meta --files 1000000 --shared -t 8 --phase create --phase list --on /mnt
  strake bench meta --depth 3 --branching 4 --files 100 --bytes 4K --shift -t 2 --on /mnt --on /var/tmp")]
pub struct MetaFlags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    crew: CrewFlags,

    /// Files of each thread in each directory
    #[arg(long, value_name = "N", default_value_t = 1000)]
    files: u64,

    /// Levels of directories below the first one
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    depth: u32,

    /// Directories in each directory that is not on the last level
    #[arg(long, value_name = "N", default_value_t = 2)]
    branching: u64,

    /// Bytes that are written to each file
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0")]
    bytes: u64,

    /// All threads in one tree, instead of one each
    #[arg(long)]
    shared: bool,

    /// Each thread looks at the files that its neighbour has made
    #[arg(long)]
    shift: bool,

    /// Visit files in random order
    #[arg(long)]
    random: bool,

    /// End each file that is created with fsync()
    #[arg(short = 'e')]
    flush: bool,

    /// Measure only this phase; can be repeated
    #[arg(long = "phase", value_name = "PHASE")]
    phases: Vec<String>,
}

/// Runs the verb.
pub async fn run(flags: &MetaFlags) -> Outcome<u8> {
    let mut options = Options {
        shape: Shape { depth: flags.depth, branching: flags.branching, files: flags.files },
        workers: flags.crew.workers(),
        shared: flags.shared,
        shift: flags.shift,
        random: flags.random,
        bytes: flags.bytes,
        flush: flags.flush,
        cold: flags.crew.cold,
        protocol: flags.run.protocol(),
        ..Options::default()
    };
    if !flags.phases.is_empty() {
        let phases = flags.phases.iter().map(|name| meta::phase(name));
        options.phases = phases.collect::<Result<_, _>>()?;
    }
    let mut plan = meta::plan(&options)?;
    let crew = flags.crew.clients.crew(&flags.run.on, &mut plan)?;
    carry_out(plan, crew, &flags.run.on, &flags.run.output).await
}
