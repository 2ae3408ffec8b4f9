//! `strake bench study`: the four founding studies.

use super::output::{OutputFlags, print};
use super::running::{Ending, Supervised, carry_out, supervise_sides};
use crate::failure::{Context, Outcome};
use crate::signals::stops_counted;
use clap::Args;
use strake_bench::crew::Crew;
use strake_bench::study::beds::{self, Beds};
use strake_bench::study::{self, Options, Study};

/// Flags of `strake bench study`.
#[derive(Args, Debug)]
#[command(after_help = "Studies:
  1  PVFS2 and GlusterFS: iozone, files of 2 to 256 MB, 25 repetitions, with and without close and fsync
  2  PVFS2 against ext3: the thread matrix
  3  GlusterFS: sequential reads of a file that fits the memory and of one that does not
  4  cluster file systems of 2006: iozone -Rac -g 2G -i 0 -i 1, and bonnie++

Examples:
  strake bench study 1 --quick        Strake in a testbed, beside what is possible there
  strake bench study 1 --quick --on strake=/mnt --on local=/var/tmp")]
pub struct StudyFlags {
    /// Which study
    #[arg(value_name = "1|2|3|4", value_parser = clap::value_parser!(u32).range(1..=4))]
    number: u32,

    /// A directory to run it on; repeat it to compare several side by side [default: strake in testbeds
    /// with the study's links and disks, made below the current directory; needs root]
    #[arg(long, value_name = "[NAME=]DIR")]
    on: Vec<String>,

    /// Fewer cells and repetitions: a first impression in three minutes
    #[arg(long)]
    quick: bool,

    /// Repetitions, instead of what the study made
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,

    /// What decides the contents of files and random orders
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_default_value = true)]
    seed: u64,

    /// Fill files with a pattern and compare every byte that is read
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the verb.
pub async fn run(flags: &StudyFlags) -> Outcome<u8> {
    let StudyFlags { quick, repetitions, seed, verify, .. } = *flags;
    let (study, options) =
        (Study::of_number(flags.number)?, Options { quick, repetitions, verify, seed });
    if flags.on.is_empty() {
        return in_testbeds(study, options, &flags.output).await;
    }
    let plan = study::plan(study, None, &options)?;
    carry_out(plan, Crew::Threads, &flags.on, &flags.output).await
}

/// Strake in a testbed for each setting of the study. A Ctrl-C ends the run and removes the testbed.
async fn in_testbeds(study: Study, options: Options, output: &OutputFlags) -> Outcome<u8> {
    let data = std::env::current_dir().context(|| "the current directory".into())?;
    let program = std::env::current_exe().context(|| "finding this program".into())?;
    let ending = Ending { asked: stops_counted()?, free: beds::leave };
    let work = move |run: Supervised<'_>| {
        let Supervised { command, version, watch, .. } = run;
        beds::run(
            study,
            &options,
            &Beds { data: &data, program: &program, command, version, watch },
        )
    };
    supervise_sides(Vec::new(), ending, output, work, print).await
}
