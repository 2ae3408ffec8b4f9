//! `strake bench bonnie`: flags as bonnie++ has them.

use super::crew::CrewFlags;
use super::running::{RunFlags, carry_out};
use crate::failure::Outcome;
use crate::size;
use clap::Args;
use strake_bench::bonnie::{self, FILES_UNIT, Options};

/// Flags of `strake bench bonnie`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake bench bonnie --on /mnt
  strake bench bonnie -s 1G -n 4 -f --on strake=/mnt --on local=/var/tmp
  strake bench bonnie -s 64G --clients host1,host2 --on /mnt

With several threads or clients each has a file and directories of its own; all begin each test together,
and a figure is what all of them do. What writes the large file ends with fsync and close, inside its
timing, as in bonnie++ 2.00.")]
pub struct BonnieFlags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    crew: CrewFlags,

    /// Size of the file of each thread [default: all files of a host are twice its memory, which is taken
    /// to be that of this one]; 0 leaves its tests out
    #[arg(short = 's', long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Number of files that each thread creates, in units of 1024; 0 leaves their tests out
    #[arg(short = 'n', value_name = "UNITS", default_value_t = 16)]
    files: u64,

    /// Fast: leave the per-character tests out
    #[arg(short = 'f')]
    fast: bool,

    /// No write buffering: every write, and every file that is created or deleted, waits for the disk
    #[arg(short = 'b')]
    unbuffered: bool,
}

/// Runs the verb.
pub async fn run(flags: &BonnieFlags) -> Outcome<u8> {
    let workers = flags.crew.workers();
    let threads = workers.div_ceil(flags.crew.clients.hosts());
    let options = Options {
        size: flags.size.map_or_else(|| bonnie::default_size(threads), Ok)?,
        workers,
        files: flags.files.saturating_mul(FILES_UNIT),
        fast: flags.fast,
        flush: true,
        unbuffered: flags.unbuffered,
        cold: flags.crew.cold,
        protocol: flags.run.protocol(),
    };
    let mut plan = bonnie::plan(&options)?;
    let crew = flags.crew.clients.crew(&flags.run.on, &mut plan)?;
    carry_out(plan, crew, &flags.run.on, &flags.run.output).await
}
