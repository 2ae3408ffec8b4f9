//! `strake bench bonnie`: flags as bonnie++ has them.

use super::running::{RunFlags, carry_out};
use crate::failure::{Failure, Outcome};
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
    let unknown = || {
        Failure::new("this machine does not say how much memory it has")
            .next("say how large the file shall be: -s SIZE")
    };
    let options = Options {
        size: flags.size.or_else(bonnie::default_size).ok_or_else(unknown)?,
        files: flags.files.saturating_mul(FILES_UNIT),
        fast: flags.fast,
        unbuffered: flags.unbuffered,
        cold: flags.run.cold,
        verify: flags.run.verify,
        seed: flags.run.seed,
        repetitions: flags.run.repetitions,
    };
    carry_out(bonnie::plan(&options)?, Crew::Threads, &flags.run).await
}
