//! `strake bench study`: the four founding studies.

use super::bed::{Bed, BedFlags, carry_out_in};
use super::output::{OutputFlags, print, remember};
use super::progress::span;
use super::running::{Ending, Supervised, supervise_sides};
use crate::failure::{Context, Outcome};
use crate::signals::stops_counted;
use crate::size;
use clap::Args;
use strake_bench::crew::Crew;
use strake_bench::result::Report;
use strake_bench::study::beds::{self, Beds};
use strake_bench::study::{self, Forecast, Options, Part, Setting, Study};
use strake_bench::testbed::Rate;

/// Flags of `strake bench study`.
#[derive(Args, Debug)]
#[command(after_help = "Studies:
  1  PVFS2 and GlusterFS: iozone, files of 2 to 256 MB, 25 repetitions, with and without close and fsync
  2  PVFS2 against ext3: the thread matrix
  3  GlusterFS: sequential reads of a file that fits the memory and of one that does not
  4  cluster file systems of 2006: iozone -Rac -g 2G -i 0 -i 1, and bonnie++

Examples:
  strake bench study 1 --quick        Strake in a testbed, beside what is possible there
  strake bench study 2 --sizes 1M,16M --threads 1,8 --servers 1,4 --disks 6.83MB/s
  strake bench study 1 --quick --on strake=/mnt --on local=/var/tmp
  strake bench study 1 --testbed testbed --on strake=testbed/mnt/c1 --on gluster=testbed/mnt/gluster")]
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

    /// Only files of these sizes (studies 1 and 2)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse)]
    sizes: Vec<u64>,

    /// Only these numbers of threads (study 2)
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    threads: Vec<u64>,

    /// Only testbeds of so many servers (studies 2 and 3)
    #[arg(long, value_name = "N,...", value_delimiter = ',', conflicts_with = "on")]
    servers: Vec<u32>,

    /// Only testbeds with disks of these speeds (study 2: 2.83MB/s, 4.14MB/s, 6.18MB/s, 6.83MB/s)
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', conflicts_with = "on")]
    disks: Vec<Rate>,

    /// What decides random orders and names; contents differ from run to run
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_default_value = true)]
    seed: u64,

    /// Fill files with a pattern and compare every byte that is read
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    bed: BedFlags,

    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the verb.
pub async fn run(flags: &StudyFlags) -> Outcome<u8> {
    let StudyFlags { quick, repetitions, seed, verify, .. } = *flags;
    let part = Part {
        sizes: flags.sizes.clone(),
        threads: flags.threads.clone(),
        servers: flags.servers.clone(),
        disks: flags.disks.iter().map(|disk| disk.bytes_per_second()).collect(),
    };
    let study = Study::of_number(flags.number)?;
    let options = Options { quick, repetitions, verify, seed, part };
    let (testbed, on) = flags.bed.find(&flags.on, 1)?;
    if on.is_empty() {
        return in_testbeds(study, options, &flags.output).await;
    }
    let setting = testbed.as_ref().map(|testbed| Setting::of(&testbed.state.plan));
    let plan = study::plan(study, setting.as_ref(), &options)?;
    tell(&Forecast::in_a_directory(&plan, setting.as_ref()));
    let bed = testbed.zip(setting).map(|(testbed, setting)| {
        let parameters = study.parameters(&setting);
        Bed { testbed, parameters, quick }
    });
    carry_out_in(bed, plan, Crew::Threads, &on, &flags.output, print).await
}

/// Strake in a testbed for each setting of the study. A Ctrl-C ends the run and removes the testbed.
async fn in_testbeds(study: Study, options: Options, output: &OutputFlags) -> Outcome<u8> {
    let data = std::env::current_dir().context(|| "the current directory".into())?;
    let program = std::env::current_exe().context(|| "finding this program".into())?;
    tell(&Forecast::in_testbeds(study, &options)?);
    let ending = Ending { asked: stops_counted()?, free: beds::leave };
    let flags = output.clone();
    let work = move |run: Supervised<'_>| {
        let Supervised { command, version, watch, .. } = run;
        let keep = |report: &Report| remember(report, &flags);
        let (data, program) = (data.as_path(), program.as_path());
        let beds = Beds { data, program, command, version, watch, keep: &keep };
        beds::run(study, &options, &beds)
    };
    supervise_sides(Vec::new(), ending, output, work, print).await
}

/// Says what a study will take, before it begins.
fn tell(forecast: &Forecast) {
    let bytes = size::show(forecast.bytes);
    let time = span(forecast.seconds as u64);
    let room = size::show(forecast.room);
    match (forecast.testbeds, forecast.speed) {
        // Nothing is to be done, and the run says why.
        _ if forecast.bytes == 0 => {}
        (_, Some(speed)) => eprintln!(
            "moves about {bytes} in each directory ({time} at {} MB/s), and needs {room} of room",
            speed / 1e6
        ),
        (testbeds, None) => eprintln!(
            "moves about {bytes} in {testbeds} testbeds ({time} at the speed of their links and disks), \
             and needs {room} of room here; --help says how to choose a part"
        ),
    }
}
