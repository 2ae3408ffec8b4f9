//! Where the report of a run goes: onto the terminal, into files, and into the memory of `strake
//! bench save`.

use crate::failure::{Context, Failure, Outcome, Plain};
use crate::{output, size, terminal};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use strake_bench::baseline::{self, Store};
use strake_bench::report::numbers::Scale;
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
    let way = Way::within(table, terminal::width());
    way.lines(table).iter().for_each(|line| output::line(line));
    legend(table, way);
}

/// How a table is laid out, for terminals of different widths.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    /// With the standard deviations.
    deviation: bool,
    /// What all rows share stands in their columns, and not above them.
    shared: bool,
    /// Published figures stand beside the others, and not below.
    beside: bool,
}

/// From the widest to the narrowest.
const WAYS: [Way; 4] = [
    Way { deviation: true, shared: true, beside: true },
    Way::USUAL,
    Way { deviation: false, shared: false, beside: true },
    Way { deviation: false, shared: false, beside: false },
];

impl Way {
    /// Where nothing says how much room there is.
    const USUAL: Way = Way { deviation: false, shared: true, beside: true };

    /// The widest that fits into so many columns, or the narrowest of all.
    fn within(table: &Table, columns: Option<usize>) -> Way {
        let Some(columns) = columns else { return Way::USUAL };
        let fits = |way: &Way| way.lines(table).iter().all(|line| line.chars().count() <= columns);
        WAYS.into_iter().find(fits).unwrap_or(WAYS[WAYS.len() - 1])
    }

    fn lines(self, table: &Table) -> Vec<String> {
        let mut lines = Vec::new();
        let above = if self.shared { BTreeMap::new() } else { table.constant() };
        if !above.is_empty() {
            let shared = above.keys().map(|name| format!("{name} {}", parameter(name, &above)));
            lines.push(clean(&format!("all: {}", shared.collect::<Vec<_>>().join(", "))));
        }
        let parameters = table.parameters.iter().filter(|name| !above.contains_key(*name));
        let parameters: Vec<&String> = parameters.collect();
        let is_published = |at: &usize| table.columns[*at].origin == Origin::Published;
        let all = 0..table.columns.len();
        let (below, first) = all.partition::<Vec<_>, _>(|at| !self.beside && is_published(at));
        for columns in [first, below] {
            let some = self.part(table, &parameters, &columns);
            if !lines.is_empty() && !some.is_empty() {
                lines.push(String::new());
            }
            lines.extend(some);
        }
        lines
    }

    /// Some columns of a table, with the rows that have figures there.
    fn part(self, table: &Table, parameters: &[&String], columns: &[usize]) -> Vec<String> {
        let mut head: Vec<String> = vec!["TEST".into()];
        head.extend(parameters.iter().map(|name| format!(">{}", clean(name).to_uppercase())));
        head.push("UNIT".into());
        for at in columns {
            head.push(format!(">{}", clean(&table.columns[*at].title())));
            head.extend(self.extras(table, *at).map(|extra| format!(">{}", extra.title())));
        }
        let mut printed = output::table(&head.iter().map(String::as_str).collect::<Vec<_>>());
        for row in table.rows.iter().filter(|row| columns.iter().any(|at| row.cells[*at].is_some()))
        {
            let mut cells = vec![clean(&row.test)];
            cells.extend(parameters.iter().map(|name| parameter(name, &row.parameters)));
            cells.push(row.scale.label.to_owned());
            for at in columns {
                let cell = row.cells[*at].as_ref();
                let value = |cell: &Cell| row.scale.show(cell.summary.value);
                cells.push(cell.map(value).unwrap_or_default());
                let shown = |extra: Extra| cell.map(|cell| extra.show(cell, row.scale));
                cells.extend(self.extras(table, *at).map(|extra| shown(extra).unwrap_or_default()));
            }
            printed.add_row(cells);
        }
        match printed.row_count() {
            0 => Vec::new(),
            _ => printed.lines().map(|line| line.trim_end().to_owned()).collect(),
        }
    }

    /// What a column is followed by, where any row has it.
    fn extras(self, table: &Table, column: usize) -> impl Iterator<Item = Extra> {
        let has_spread = table.has_spread(column);
        let has = [
            (Extra::Deviation, has_spread && self.deviation),
            (Extra::Spread, has_spread),
            (Extra::Ratio, table.has_ratio(column)),
            (Extra::Limit, table.has_limit(column)),
        ];
        has.into_iter().filter(|(_, has)| *has).map(|(extra, _)| extra)
    }
}

/// What a column is followed by.
#[derive(Clone, Copy)]
enum Extra {
    Deviation,
    Spread,
    Ratio,
    Limit,
}

impl Extra {
    fn title(self) -> &'static str {
        match self {
            Extra::Deviation => "deviation",
            Extra::Spread => "spread",
            Extra::Ratio => "ratio",
            Extra::Limit => "of limit",
        }
    }

    fn show(self, cell: &Cell, scale: Scale) -> String {
        match self {
            Extra::Deviation => {
                cell.summary.deviation.map(|deviation| scale.show(deviation)).unwrap_or_default()
            }
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
fn legend(table: &Table, way: Way) {
    output::line("");
    let any = |has: fn(&Table, usize) -> bool| (0..table.columns.len()).any(|at| has(table, at));
    if any(Table::has_spread) && way.deviation {
        output::line("deviation: the standard deviation of the samples that count");
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use strake_bench::result::{Figure, Rule, Unit};

    /// Two sizes on one disk, beside what a study has printed.
    fn table() -> Table {
        let figure = |side: &str, origin, size: f64, samples: &[f64]| Figure {
            side: side.into(),
            origin,
            test: "iozone/write".into(),
            parameters: [("size", size), ("disk", 6.83e6)].map(|(n, v)| (n.to_owned(), v)).into(),
            unit: Unit::BytesPerSecond,
            samples: samples.to_vec(),
            rule: Rule::Mean,
        };
        let mut figures = Vec::new();
        for size in [1_048_576.0, 2_097_152.0] {
            figures.push(figure("strake", Origin::Measured, size, &[11e6, 12e6, 13e6]));
            figures.push(figure("PVFS2", Origin::Published, size, &[10e6]));
        }
        let report = Report {
            title: String::new(),
            command: String::new(),
            started: 0,
            machine: Machine::default(),
            sides: Vec::new(),
            programs: Vec::new(),
            figures,
            charts: Vec::new(),
            notes: Vec::new(),
        };
        table::of(&report, |_| true)
    }

    /// Each row took two or three lines of a terminal that is narrower.
    #[test]
    fn a_table_is_laid_out_by_the_width_of_the_terminal() {
        let table = table();
        let at = |columns| Way::within(&table, Some(columns)).lines(&table);
        let usual = Way::USUAL.lines(&table);
        assert_eq!(Way::within(&table, None), Way::USUAL);
        let wide = at(1000);
        assert!(wide[0].contains("deviation") && wide[1].contains("1.00"), "{wide:?}");
        let wanted = [
            "TEST           SIZE       DISK  UNIT  strake  spread  PVFS2 (published)",
            "iozone/write  1 MiB  6.83 MB/s  MB/s   12.00  16.7 %              10.00",
        ];
        assert_eq!(usual[..2], wanted);
        assert_eq!(at(wanted[1].len()), usual);
        let narrower = at(wanted[1].len() - 1);
        assert_eq!(narrower[..2], ["all: disk 6.83 MB/s", ""]);
        assert!(!narrower[2].contains("DISK") && narrower[2].contains("PVFS2 (published)"));
        let narrow = at(20);
        assert!(!narrow[2].contains("PVFS2"), "{narrow:?}");
        let below = &narrow[6..];
        assert!(below[0].contains("PVFS2 (published)") && below.len() == 3, "{narrow:?}");
    }
}
