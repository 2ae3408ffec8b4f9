//! Where the report of a run goes: onto the terminal, into files, and into the memory of `strake
//! bench save`.

use crate::failure::{Context, Failure, Outcome, Plain};
use crate::{output, size};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use strake_bench::baseline::{self, Store};
use strake_bench::report::table::{Cell, Column, Table};
use strake_bench::report::{self, csv, growth, html, numbers, saved, table, xlsx};
use strake_bench::result::{Machine, Origin, Report};
use strake_bench::statistics::Verdict;

/// The flags of every verb that gives a report.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputFlags {
    /// Print the report as JSON, which strake bench show and compare read
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print every figure as comma-separated values
    #[arg(long)]
    pub csv: bool,

    /// Write a page with plots: one file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write a workbook for spreadsheets, as iozone -b does
    #[arg(long, value_name = "FILE")]
    pub xlsx: Option<PathBuf>,

    /// Keep the report as a baseline of this name, for strake bench compare; not that of a run that
    /// ended early
    #[arg(long, value_name = "NAME")]
    pub save: Option<String>,

    /// Where baselines are.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Where baselines are.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreFlags {
    /// Where baselines are kept [default: $XDG_DATA_HOME/strake/bench or ~/.local/share/strake/bench]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

impl StoreFlags {
    /// The store; `None` where neither the flag nor the environment names one.
    fn given(&self) -> Option<Store> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        self.store.as_ref().map(Store::new).or_else(|| Store::usual(variable))
    }

    /// The store that a verb cannot do without.
    pub fn open(&self) -> Outcome<Store> {
        self.given().ok_or_else(|| {
            Failure::new("where baselines are kept is unknown: HOME is not set")
                .next("name a directory with --store DIR")
        })
    }
}

impl OutputFlags {
    /// Finds out what would go wrong after a run, before it: a name that is taken or is none, a file
    /// that cannot be made.
    pub fn check(&self) -> Outcome {
        for file in [&self.html, &self.xlsx].into_iter().flatten() {
            let is_new = !file.exists();
            let opened = OpenOptions::new().append(true).create(true).open(file);
            opened.context(|| format!("writing {}", file.display()))?;
            if is_new {
                fs::remove_file(file).context(|| file.display().to_string())?;
            }
        }
        let Some(name) = &self.save else { return Ok(()) };
        match self.store.open()?.load(name) {
            Ok(_) => Err(telling(baseline::Error::Exists(name.clone()))),
            Err(baseline::Error::Missing { .. }) => Ok(()),
            Err(error) => Err(telling(error)),
        }
    }
}

/// A failure of the store with what to do about it.
pub fn telling(error: baseline::Error) -> Failure {
    let next = match &error {
        baseline::Error::Missing { .. } => Some("strake bench list shows the baselines"),
        baseline::Error::Exists(_) => {
            Some("choose another name, or replace it: strake bench save --replace NAME")
        }
        baseline::Error::NoRun(_) => Some("run one (strake bench --help), or name a report's file"),
        _ => None,
    };
    let failure = Failure::new(error.to_string());
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// Gives a new report to whoever wants it: keeps it for `strake bench save`, writes files, prints.
/// What was measured is printed even where a file cannot be written. A run that has ended early takes
/// no name by itself, for the whole one would find it taken.
pub fn write(
    report: &Report,
    flags: &OutputFlags,
    is_whole: bool,
    print: impl FnOnce(&Report),
) -> Outcome {
    report::check(report).context(|| "the report".into())?;
    remember(report, flags);
    let kept = match &flags.save {
        Some(name) if is_whole && has_measured(report) => {
            flags.store.open()?.save(name, report, false).map(|_| ()).map_err(telling)
        }
        Some(name) => {
            eprintln!("strake: {}", not_kept(name, report));
            Ok(())
        }
        None => Ok(()),
    };
    show(report, flags, print)?;
    kept
}

/// Remembers a report for `strake bench save`, unless nothing was measured: then the run before is
/// worth more. To be remembered is a convenience; `save` says what is missing.
pub fn remember(report: &Report, flags: &OutputFlags) {
    if has_measured(report) {
        let _remembered = flags.store.given().map(|store| store.remember(report));
    }
}

fn has_measured(report: &Report) -> bool {
    report.figures.iter().any(|figure| figure.origin == Origin::Measured)
}

/// Why a report is not kept under a name.
fn not_kept(name: &str, report: &Report) -> String {
    match has_measured(report) {
        true => format!(
            "the run ended early and is not kept as {name}; strake bench save {name} keeps what it measured"
        ),
        false => format!("nothing was measured, and nothing is kept as {name}"),
    }
}

/// Writes the files that the flags name, then prints a report as they say: whoever reads that may
/// have seen enough (`| head`), which ends the program.
pub fn show(report: &Report, flags: &OutputFlags, print: impl FnOnce(&Report)) -> Outcome {
    let written = write_files(report, flags);
    match flags {
        OutputFlags { json: true, .. } => output::line(&saved::to_json(report).plain()?),
        OutputFlags { csv: true, .. } => output::bytes(csv::write(report).as_bytes()),
        _ => print(report),
    }
    written
}

fn write_files(report: &Report, flags: &OutputFlags) -> Outcome {
    if let Some(file) = &flags.html {
        fs::write(file, html::page(report)).context(|| format!("writing {}", file.display()))?;
    }
    if let Some(file) = &flags.xlsx {
        let book = xlsx::workbook(report).context(|| "making a workbook".into())?;
        fs::write(file, book).context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Prints a report as people read it.
pub fn print(report: &Report) {
    head(report);
    let table = table::of(report, |_| true);
    if table.rows.is_empty() {
        output::line("nothing was measured");
    } else {
        print_table(&table);
    }
    growth::sentences(report).iter().for_each(|sentence| output::line(&clean(sentence)));
    notes(report);
}

/// What was run, when, and on what.
pub fn head(report: &Report) {
    output::line(&clean(&report.title));
    output::line(&format!("{}; {}", report::moment(report.started), machine(&report.machine)));
    let width = report.sides.iter().map(|side| clean(&side.name).chars().count()).max();
    for side in &report.sides {
        let (name, directory, system) =
            (clean(&side.name), clean(&side.directory), clean(&side.file_system));
        output::line(&format!(
            "  {name:width$}  {directory} ({system})",
            width = width.unwrap_or(0)
        ));
    }
    output::line("");
}

/// What a reader must know.
pub fn notes(report: &Report) {
    for note in &report.notes {
        output::line(&format!("note: {}", clean(note)));
    }
}

fn print_table(table: &Table) {
    let mut head: Vec<String> = vec!["TEST".into()];
    head.extend(table.parameters.iter().map(|name| format!(">{}", clean(name).to_uppercase())));
    head.push("UNIT".into());
    for (at, column) in table.columns.iter().enumerate() {
        head.push(format!(">{}", clean(&column.title())));
        head.extend(extras(table, at).map(|extra| format!(">{}", extra.title())));
    }
    let mut printed = output::table(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &table.rows {
        let mut cells = vec![clean(&row.test)];
        cells.extend(table.parameters.iter().map(|name| parameter(name, &row.parameters)));
        cells.push(row.scale.label.to_owned());
        for (at, cell) in row.cells.iter().enumerate() {
            let value = |cell: &Cell| row.scale.show(cell.summary.value);
            cells.push(cell.as_ref().map(value).unwrap_or_default());
            let shown = |extra: Extra| cell.as_ref().map(|cell| extra.show(cell));
            cells.extend(extras(table, at).map(|extra| shown(extra).unwrap_or_default()));
        }
        printed.add_row(cells);
    }
    output::show(&printed);
    legend(table);
}

/// What a column is followed by.
#[derive(Clone, Copy)]
enum Extra {
    Spread,
    Ratio,
    Limit,
}

/// What a column is followed by, where any row has it.
fn extras(table: &Table, column: usize) -> impl Iterator<Item = Extra> {
    let has = [
        (Extra::Spread, table.has_spread(column)),
        (Extra::Ratio, table.has_ratio(column)),
        (Extra::Limit, table.has_limit(column)),
    ];
    has.into_iter().filter(|(_, has)| *has).map(|(extra, _)| extra)
}

impl Extra {
    fn title(self) -> &'static str {
        match self {
            Extra::Spread => "spread",
            Extra::Ratio => "ratio",
            Extra::Limit => "of limit",
        }
    }

    fn show(self, cell: &Cell) -> String {
        match self {
            Extra::Spread => cell.summary.spread.map(numbers::percent).unwrap_or_default(),
            Extra::Limit => cell.of_limit.map(numbers::of_limit).unwrap_or_default(),
            Extra::Ratio => {
                let unsure = !matches!(cell.verdict, Some(Verdict::Better | Verdict::Worse));
                let mark = if unsure { "~" } else { "" };
                let ratio = cell.to_first.map(|ratio| numbers::ratio(ratio.value));
                ratio.map(|text| format!("{mark}{text}")).unwrap_or_default()
            }
        }
    }
}

/// What the columns mean.
fn legend(table: &Table) {
    output::line("");
    let any = |has: fn(&Table, usize) -> bool| (0..table.columns.len()).any(|at| has(table, at));
    if any(Table::has_spread) {
        output::line("spread: (largest - smallest) / mean of the samples that count");
    }
    if let Some(first) = table.columns.first().filter(|_| any(Table::has_ratio)) {
        let name = clean(&first.name);
        output::line(&format!("ratio: to {name}; ~ where the noise allows no verdict"));
    }
    let limits = table.columns.iter().filter(|c| is_limit(c)).map(|c| clean(&c.name));
    if any(Table::has_limit) {
        let names: Vec<_> = limits.collect();
        output::line(&format!("of limit: share of what {} carries", names.join(" or ")));
    }
}

fn is_limit(column: &Column) -> bool {
    column.origin == Origin::Limit
}

/// The parameter of a row, or nothing where it has none of that name.
pub fn parameter(name: &str, of: &BTreeMap<String, f64>) -> String {
    of.get(name).map(|value| numbers::parameter(name, *value)).unwrap_or_default()
}

fn machine(machine: &Machine) -> String {
    let Machine { processor, cores, memory, kernel, version } = machine;
    let memory = size::show(*memory);
    clean(&format!("strake {version} on {processor}, {cores} cores, {memory}, {kernel}"))
}

/// Text from outside without what a terminal would obey.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
