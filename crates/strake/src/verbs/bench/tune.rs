//! `strake bench tune`: which layout suits a directory.

use super::output::{self as to, OutputFlags, clean};
use super::running::{Supervised, supervise};
use crate::failure::{Failure, Outcome};
use crate::{output, size};
use clap::Args;
use strake_bench::crew::Crew;
use strake_bench::report::{numbers, table};
use strake_bench::result::Report;
use strake_bench::runner::Run;
use strake_bench::statistics::{SAMPLES_MIN, Verdict};
use strake_bench::tune::{self, AS_IT_IS, Options};

/// Chunk sizes a volume can have.
const CHUNK_SIZES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Most layouts that are tried.
const LAYOUTS_MAX: usize = 15;
/// A record of what goes at random.
const RANDOM_RECORD: u64 = 64 << 10;

/// Flags of `strake bench tune`.
#[derive(Args, Debug)]
pub struct TuneFlags {
    /// A directory of a Strake mount; what is measured in it is removed
    pub directory: String,

    /// Chunk sizes to try
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "256K,1M,4M", value_parser = size::parse)]
    pub chunk_sizes: Vec<u64>,

    /// Stripe widths to try; 0 means all groups
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,0")]
    pub widths: Vec<u32>,

    /// Size of the file that is written and read
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub size: u64,

    /// Record size of what goes in order
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size::parse)]
    pub record: u64,

    /// Threads that read and write at random
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub threads: usize,

    /// How often everything is measured; the layouts take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repetitions: usize,

    /// What to do with the report.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Runs the verb; the exit code.
pub async fn run(flags: TuneFlags) -> Outcome<u8> {
    let fits = |size: &u64| CHUNK_SIZES.contains(size) && size.is_power_of_two();
    if let Some(wrong) = flags.chunk_sizes.iter().find(|size| !fits(size)) {
        let wrong = size::show(*wrong);
        return Err(Failure::usage(format!("chunks of {wrong}: a power of two from 64K to 64M")));
    }
    let count = flags.chunk_sizes.len() * flags.widths.len();
    if count > LAYOUTS_MAX {
        return Err(Failure::usage(format!("{count} layouts: at most {LAYOUTS_MAX} are compared")));
    }
    let options = Options {
        chunk_sizes: flags.chunk_sizes,
        widths: flags.widths,
        size: flags.size,
        record: flags.record,
        random_record: RANDOM_RECORD,
        threads: flags.threads,
        repetitions: flags.repetitions,
    };
    let (shown, directory) = (options.clone(), flags.directory.clone());
    let measure = move |run: Supervised<'_>| {
        let Supervised { sides, command, version, watch } = run;
        tune::measure(&options, Run { sides, crew: Crew::Threads, command, version, watch })
    };
    // A directory whose name holds `=` is still a directory.
    let on = [format!("{AS_IT_IS}={}", flags.directory)];
    supervise(&on, &flags.output, measure, |report| print(report, &shown, &directory)).await
}

fn print(report: &Report, options: &Options, directory: &str) {
    output::line(&clean(&report.title));
    output::line("");
    print_table(report);
    to::notes(report);
    output::line("");
    suggest(report, options, directory);
}

/// Layouts down and tests across: there are more layouts than fit beside each other.
fn print_table(report: &Report) {
    let table = table::of(report, |_| true);
    let mut head = vec!["LAYOUT".to_owned()];
    for row in &table.rows {
        head.extend([format!(">{}, {}", clean(&row.test), row.scale.label), ">ratio".into()]);
    }
    let mut printed = output::table(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for (at, column) in table.columns.iter().enumerate() {
        let mut cells = vec![clean(&column.name)];
        for row in &table.rows {
            let cell = row.cells[at].as_ref();
            let value = cell.map(|cell| row.scale.show(cell.summary.value));
            let ratio = cell.and_then(|cell| {
                let sure = matches!(cell.verdict, Some(Verdict::Better | Verdict::Worse));
                let mark = if sure { "" } else { "~" };
                cell.to_first.map(|ratio| format!("{mark}{}", numbers::ratio(ratio.value)))
            });
            cells.extend([value.unwrap_or_default(), ratio.unwrap_or_default()]);
        }
        printed.add_row(cells);
    }
    output::show(&printed);
    output::line("");
    output::line(&format!(
        "ratio: to the directory {AS_IT_IS}; ~ where the noise allows no verdict"
    ));
}

fn suggest(report: &Report, options: &Options, directory: &str) {
    let standings = tune::standings(report);
    let chosen = tune::suggestion(&standings);
    let layout = chosen.and_then(|chosen| Some((chosen, options.layout(&chosen.name)?)));
    if let Some((chosen, layout)) = layout {
        let (mean, better) = (numbers::ratio(chosen.mean), chosen.better);
        output::line(&format!(
            "suggestion: chunks of {}: {mean} times as fast on the average, better in {better} tests, worse in none",
            chosen.name
        ));
        let chunk = size::short(layout.chunk_size);
        let (width, quoted) = (layout.width, directory.replace('\'', r"'\''"));
        output::line(&format!(
            "  strake layout set --chunk-size {chunk} --stripe-width {width} '{}'",
            clean(&quoted)
        ));
        return;
    }
    output::line("suggestion: leave the layout as it is");
    match standings.first() {
        Some(_) if options.repetitions < SAMPLES_MIN => output::line(&format!(
            "  {} repetitions allow no verdict; it takes {SAMPLES_MIN}",
            options.repetitions
        )),
        Some(best) if best.better == 1 && best.worse == 0 => output::line(&format!(
            "  {} is better in one test, which is chance where so many are compared",
            best.name
        )),
        Some(best) if best.better > 0 => output::line(&format!(
            "  {} is better in {} tests, but worse in {}",
            best.name, best.better, best.worse
        )),
        Some(best) => output::line(&format!(
            "  {} is {} times as fast on the average, which is within the noise",
            best.name,
            numbers::ratio(best.mean)
        )),
        None => output::line("  all layouts that were asked for are the same here"),
    }
}
