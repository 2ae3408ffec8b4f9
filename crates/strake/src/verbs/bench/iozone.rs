//! `strake bench iozone`: flags as iozone has them.

use super::bed::{Bed, BedFlags, carry_out_in};
use super::crew::CrewFlags;
use super::output as to;
use super::running::RunFlags;
use crate::failure::{Failure, Outcome};
use crate::{output, size};
use clap::Args;
use std::path::PathBuf;
use strake_bench::iozone::{self, Options, Test};
use strake_bench::place::{self, named};
use strake_bench::report::spreadsheet;
use strake_bench::result::Report;
use strake_bench::work::file::{Ending, Open};

/// File size where neither `-a` nor `-s` says one.
const FILE_SIZE: u64 = 64 << 20;
/// iozone's record size where neither `-a` nor `-r` says one.
const RECORD_SIZE: u64 = 4 << 10;
/// Most records in flight (`-H`).
const IN_FLIGHT_MAX: i64 = 4096;

/// Flags of `strake bench iozone`.
#[derive(Args, Debug)]
#[command(
    after_help = "Tests of -i: 0 write, rewrite; 1 read, reread; 2 random read, random write; 3 backward read; \
4 record rewrite; 5 stride read; 6 fwrite, frewrite; 7 fread, freread; 8 random mix (two threads and more); \
9 pwrite, repwrite; 10 pread, repread; 11 pwritev, repwritev; 12 preadv, repreadv. A name selects one test.

Sizes are bytes, or have a unit: 64K, 1M, 2G (iozone takes a bare number for KiB).

Examples:
  strake bench iozone -a -i 0 -i 1 --on /mnt
  strake bench iozone -Rac -g 2G -i 0 -i 1 --on /mnt
  strake bench iozone -s 1G -r 4K -i 8 -+p 75 -t 8 -O --on /mnt
  strake bench iozone -s 1G -r 1M -t 2 -F fast/a wide/b --on /mnt
  strake bench iozone -s 1G -r 1M --clients host1,host2 --on /mnt
  strake bench iozone -s 64M -r 1M -e --cold --testbed testbed --on strake=testbed/mnt/c1 --on gluster=testbed/mnt/gluster
  strake bench iozone -s 1G -r 1M -t 4 -c -e --on strake=/mnt --on local=/var/tmp --repetitions 5"
)]
pub struct IozoneFlags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    crew: CrewFlags,

    #[command(flatten)]
    bed: BedFlags,

    /// All file sizes from -n to -g with all record sizes from 4K to 16M (-r: only that one)
    #[arg(short = 'a', conflicts_with = "sizes")]
    automatic: bool,

    /// Smallest file of -a [default: 64K]
    #[arg(short = 'n', value_name = "SIZE", value_parser = size::parse, requires = "automatic")]
    least: Option<u64>,

    /// Largest file of -a [default: 512M]
    #[arg(short = 'g', value_name = "SIZE", value_parser = size::parse, requires = "automatic")]
    most: Option<u64>,

    /// File size, of each thread [default: 64M]; can be repeated
    #[arg(short = 's', value_name = "SIZE", value_parser = size::parse)]
    sizes: Vec<u64>,

    /// Record size [default: 4K]; can be repeated
    #[arg(short = 'r', value_name = "SIZE", value_parser = size::parse)]
    records: Vec<u64>,

    /// Which test, by number or name; can be repeated, and they run in the order of their numbers
    /// [default: all]
    #[arg(short = 'i', value_name = "TEST")]
    tests: Vec<String>,

    /// As threads of one process, which is the default here
    #[arg(short = 'T', conflicts_with_all = ["processes", "clients"])]
    as_threads: bool,

    /// All threads on disjoint parts of one file
    #[arg(long)]
    shared_file: bool,

    /// The file of each thread, by its path below the measured directory; it must not be there, and
    /// is removed afterwards
    #[arg(short = 'F', value_name = "FILE", num_args = 1.., conflicts_with = "shared_file")]
    names: Vec<String>,

    /// Of the threads of test 8, read with so many percent, the others write (iozone: -+p) [default:
    /// every second one reads]
    #[arg(short = 'p', long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    read_percent: Option<u32>,

    /// So that iozone's `-+p 75` is read as `-p 75`.
    #[arg(short = '+', hide = true, requires = "read_percent")]
    plus: bool,

    /// Results in operations per second
    #[arg(short = 'O')]
    per_second: bool,

    /// Print tables for a spreadsheet after the report, as iozone does: KiB/s, sizes in KiB
    #[arg(short = 'R', conflicts_with_all = ["json", "csv"])]
    spreadsheet: bool,

    /// The same as --xlsx, under iozone's name
    #[arg(short = 'b', value_name = "FILE", conflicts_with = "xlsx")]
    workbook: Option<PathBuf>,

    /// Include close() in the timing
    #[arg(short = 'c')]
    close: bool,

    /// Include fsync() in the timing of what writes
    #[arg(short = 'e')]
    flush: bool,

    /// Go past the page cache: O_DIRECT
    #[arg(short = 'I')]
    direct: bool,

    /// Write synchronously: O_SYNC
    #[arg(short = 'o')]
    synced: bool,

    /// Copy from and to mappings: mmap(); in processes, as with --processes
    #[arg(short = 'B')]
    mapped: bool,

    /// Keep so many records in flight: io_uring
    #[arg(short = 'H', value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..=IN_FLIGHT_MAX))]
    in_flight: Option<u32>,
}

/// Runs the verb.
pub async fn run(flags: &IozoneFlags) -> Outcome<u8> {
    let (testbed, on) = flags.bed.find(&flags.run.on, flags.crew.clients.hosts())?;
    let mut plan = iozone::plan(&options(flags, &on)?)?;
    let crew = flags.crew.clients.crew(&on, &mut plan)?;
    let mut output = flags.run.output.clone();
    output.xlsx = output.xlsx.or_else(|| flags.workbook.clone());
    let spreadsheet = flags.spreadsheet;
    let print = move |report: &Report| {
        to::print(report);
        if spreadsheet {
            output::line("");
            output::bytes(spreadsheet::tables(report).trim_end().as_bytes());
            output::line("");
        }
    };
    carry_out_in(testbed.map(Bed::unnamed), plan, crew, &on, &output, print).await
}

fn options(flags: &IozoneFlags, on: &[String]) -> Outcome<Options> {
    let names = named::below(&place::sides(on)?, &flags.names)?;
    let workers = flags.crew.threads.unwrap_or(names.len().max(flags.crew.workers()));
    let mut options = Options {
        tests: Test::all(workers),
        sizes: sizes(flags)?,
        workers,
        names,
        read_percent: flags.read_percent,
        per_second: flags.per_second,
        shared_file: flags.shared_file,
        mapped: flags.mapped,
        in_flight: flags.in_flight,
        open: Open { direct: flags.direct, synced: flags.synced, ..Open::default() },
        ending: Ending { flush: flags.flush, close: flags.close },
        cold: flags.crew.cold,
        protocol: flags.run.protocol(),
    };
    if !flags.tests.is_empty() {
        options.tests.clear();
        for text in &flags.tests {
            let new = Test::select(text)?.into_iter().filter(|t| !options.tests.contains(t));
            let new: Vec<_> = new.collect();
            options.tests.extend(new);
        }
    }
    Ok(options)
}

fn sizes(flags: &IozoneFlags) -> Outcome<Vec<(u64, Vec<u64>)>> {
    let or = |given: &[u64], default| if given.is_empty() { vec![default] } else { given.to_vec() };
    if !flags.automatic {
        let records = or(&flags.records, RECORD_SIZE);
        return Ok(or(&flags.sizes, FILE_SIZE).into_iter().map(|s| (s, records.clone())).collect());
    }
    let (least, most) =
        (flags.least.unwrap_or(iozone::FILE_MIN), flags.most.unwrap_or(iozone::FILE_MAX));
    if least == 0 || least > most {
        return Err(Failure::usage(format!(
            "-n {} is not between 1 and -g {}",
            size::show(least),
            size::show(most)
        )));
    }
    let mut sizes = iozone::automatic(least, most);
    if !flags.records.is_empty() {
        for (file, records) in &mut sizes {
            *records = flags.records.iter().copied().filter(|record| record <= file).collect();
        }
    }
    Ok(sizes)
}
