//! `strake bench bonnie`: flags as bonnie++ has them.

use super::running::{RunFlags, carry_out};
use crate::failure::Outcome;
use crate::size;
use clap::Args;
use strake_bench::bonnie::{self, FILES_UNIT, Options};
use strake_bench::crew::Crew;

/// Flags of `strake bench bonnie`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake bench bonnie --on /mnt
  strake bench bonnie -s 1G -n 4 -f --on strake=/mnt --on local=/var/tmp")]
pub struct BonnieFlags {
    #[command(flatten)]
    run: RunFlags,

    /// Empty all caches of this machine before what reads (needs root)
    #[arg(long)]
    cold: bool,

    /// Size of the file [default: twice the memory]; 0 leaves its tests out
    #[arg(short = 's', long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Number of files to create, in units of 1024; 0 leaves their tests out
    #[arg(short = 'n', value_name = "UNITS", default_value_t = 16)]
    files: u64,

    /// Fast: leave the per-character tests out
    #[arg(short = 'f')]
    fast: bool,

    /// No write buffering: every write waits for the disk
    #[arg(short = 'b')]
    unbuffered: bool,
}

/// Runs the verb.
pub async fn run(flags: &BonnieFlags) -> Outcome<u8> {
    let options = Options {
        size: flags.size.map_or_else(bonnie::default_size, Ok)?,
        files: flags.files.saturating_mul(FILES_UNIT),
        fast: flags.fast,
        unbuffered: flags.unbuffered,
        cold: flags.cold,
        protocol: flags.run.protocol(),
    };
    carry_out(bonnie::plan(&options)?, Crew::Threads, &flags.run.on, &flags.run.output).await
}
