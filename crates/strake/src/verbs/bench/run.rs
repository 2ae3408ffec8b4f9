//! `strake bench run`: other tools, driven side by side.

use super::output::{self, OutputFlags};
use super::running::{Supervised, supervise};
use crate::failure::Outcome;
use crate::size;
use clap::builder::PossibleValuesParser;
use clap::{Args, builder::TypedValueParser};
use std::time::Duration;
use strake_bench::tools::{Options, Run, Tool};

/// Flags of `strake bench run`.
#[derive(Args, Debug)]
#[command(after_help = "Everything after -- is given to the tool as it is.

Examples:
  strake bench run fio --on strake=/mnt --on local=/var/tmp --repetitions 5 --html fio.html
  strake bench run bonnie++ --on /mnt --size 8G --files 16384
  strake bench run dbench --on /mnt --threads 16 -- --sync-dir")]
pub struct ToolFlags {
    /// Which tool
    #[arg(value_parser = tools())]
    pub tool: Tool,

    /// A directory on the file system to measure (default: the current one); repeat it to compare
    /// several side by side
    #[arg(long, value_name = "[NAME=]DIR")]
    pub on: Vec<String>,

    /// How often the tool runs on each; the directories take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repetitions: usize,

    /// Size of files: fio's for each thread, iozone's, all of bonnie++'s
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub size: u64,

    /// Files of bonnie++ (in units of 1024) and mdtest
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub files: u64,

    /// Threads of fio and bonnie++, clients of dbench
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,

    /// How long fio's random tests and dbench run
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub seconds: u64,

    /// How long one run of the tool may take
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub limit: u64,

    /// What to do with the report.
    #[command(flatten)]
    pub output: OutputFlags,

    /// Further arguments for the tool
    #[arg(last = true, value_name = "ARGUMENT")]
    pub further: Vec<String>,
}

/// Reads a tool's name.
fn tools() -> impl TypedValueParser<Value = Tool> {
    let names = Tool::ALL.map(Tool::name);
    PossibleValuesParser::new(names).try_map(|name| {
        let found = Tool::ALL.into_iter().find(|tool| tool.name() == name);
        found.ok_or_else(|| format!("{name} is not driven"))
    })
}

/// Runs the verb; the exit code.
pub async fn run(flags: ToolFlags) -> Outcome<u8> {
    flags.tool.find()?;
    let options = Options {
        size: flags.size,
        files: flags.files,
        threads: flags.threads,
        seconds: flags.seconds,
        repetitions: flags.repetitions,
        limit: Duration::from_secs(flags.limit),
        further: flags.further,
    };
    let tool = flags.tool;
    let measure = move |run: Supervised<'_>| {
        let Supervised { sides, command, version, watch } = run;
        Run { tool, options, sides, command, version, watch }.carry_out()
    };
    supervise(&flags.on, &flags.output, measure, output::print).await
}
