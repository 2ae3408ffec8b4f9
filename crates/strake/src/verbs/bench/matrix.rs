//! `strake bench matrix`: the thread matrix of study 2.

use super::bed::{Bed, BedFlags, carry_out_in};
use super::crew::ClientFlags;
use super::output::print;
use super::running::RunFlags;
use crate::failure::Outcome;
use crate::size;
use clap::Args;
use strake_bench::matrix::{self, Options};

/// Flags of `strake bench matrix`.
#[derive(Args, Debug)]
#[command(
    after_help = "Every size is combined with every block and every number of threads. Reads always begin with empty caches.

With --clients, the threads are processes on them, by turns: of -t 8 on two clients four on each.

Examples:
  strake bench matrix -s 64M -b 4K -b 1M -t 1 -t 8 --on strake=/mnt --on local=/var/tmp
  strake bench matrix -s 1G -b 1M -t 2 -t 8 --clients host1,host2 --on /mnt"
)]
pub struct MatrixFlags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    clients: ClientFlags,

    #[command(flatten)]
    bed: BedFlags,

    /// Size of files: of the one that is read, and of each thread's that is written; can be repeated
    /// [default: 1M to 1G]
    #[arg(short = 's', long = "size", value_name = "SIZE", value_parser = size::parse)]
    sizes: Vec<u64>,

    /// Size of blocks; can be repeated [default: 1K, 32K, 1M]
    #[arg(short = 'b', long = "block", value_name = "SIZE", value_parser = size::parse)]
    blocks: Vec<u64>,

    /// Number of threads; can be repeated [default: 1 to 32]
    #[arg(short = 't', long = "threads", value_name = "THREADS")]
    threads: Vec<u64>,

    /// Write with fsync only [default: with and without]
    #[arg(short = 'e')]
    flush: bool,

    /// Read only
    #[arg(long, conflicts_with = "flush")]
    reads: bool,
}

/// Runs the verb.
pub async fn run(flags: &MatrixFlags) -> Outcome<u8> {
    let or = |given: &Vec<u64>, default| if given.is_empty() { default } else { given.clone() };
    let default = Options::default();
    let options = Options {
        sizes: or(&flags.sizes, default.sizes),
        blocks: or(&flags.blocks, default.blocks),
        threads: or(&flags.threads, default.threads),
        flush: match (flags.reads, flags.flush) {
            (true, _) => Vec::new(),
            (false, true) => vec![true],
            (false, false) => default.flush,
        },
        protocol: flags.run.protocol(),
    };
    let mut plan = matrix::plan(&options)?;
    let (testbed, on) = flags.bed.find(&flags.run.on, flags.clients.hosts())?;
    let crew = flags.clients.crew(&on, &mut plan)?;
    carry_out_in(testbed.map(Bed::unnamed), plan, crew, &on, &flags.run.output, print).await
}
