//! `strake bench save`, `compare`, `show` and `list`: what becomes of reports.

use super::output::{self as to, OutputFlags, StoreFlags, clean, telling};
use crate::failure::{Context, Failure, Outcome};
use crate::output;
use clap::Args;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use strake_bench::baseline::{self, Store};
use strake_bench::compare::page::Party;
use strake_bench::compare::{self, Comparison, Lone};
use strake_bench::report::{moment, numbers};
use strake_bench::result::Report;
use strake_bench::statistics::Verdict;

/// Flags of `strake bench save`.
#[derive(Args, Debug)]
pub struct SaveFlags {
    /// The name: letters, digits, '.', '_' and '-'
    pub name: String,

    /// A file that --json wrote [default: the last run]
    pub file: Option<PathBuf>,

    /// Replace a baseline of this name
    #[arg(long)]
    pub replace: bool,

    /// Where baselines are.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Flags of `strake bench compare`.
#[derive(Args, Debug)]
pub struct CompareFlags {
    /// What was before: the name of a baseline, or a file that --json wrote
    pub before: String,

    /// What came after, which is divided by what was before
    pub after: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write a page with the ratios and their intervals as plots: one file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Where baselines are.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Flags of `strake bench show`.
#[derive(Args, Debug)]
pub struct ShowFlags {
    /// The name of a baseline, or a file that --json wrote
    pub report: String,

    /// What to do with the report.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Flags of `strake bench list`.
#[derive(Args, Debug)]
pub struct ListFlags {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Where baselines are.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Runs `strake bench save`.
pub fn save(flags: &SaveFlags) -> Outcome {
    let store = flags.store.open()?;
    let report = match &flags.file {
        Some(file) => baseline::read(file),
        None => store.last_run(),
    };
    let report = report.map_err(telling)?;
    let path = store.save(&flags.name, &report, flags.replace).map_err(telling)?;
    output::line(&format!(
        "{}, begun {}, is kept in {}",
        clean(&report.title),
        moment(report.started),
        path.display()
    ));
    Ok(())
}

/// Runs `strake bench show`.
pub fn show(flags: &ShowFlags) -> Outcome {
    flags.output.check()?;
    let report = find(&flags.report, &flags.output.store)?;
    if let Some(name) = &flags.output.save {
        flags.output.store.open()?.save(name, &report, false).map_err(telling)?;
    }
    to::show(&report, &flags.output, to::print)
}

/// A report by the name of a baseline or of a file. A name goes before a file of the same name,
/// unless the file's is written with a slash.
fn find(name: &str, store: &StoreFlags) -> Outcome<Report> {
    let path = Path::new(name);
    let is_path = name.contains('/');
    let kept = if is_path { None } else { store.open().ok().filter(|store| store.holds(name)) };
    match kept {
        Some(store) => store.load(name).map_err(telling),
        None if is_path || path.exists() => baseline::read(path).map_err(telling),
        None => Err(absent(name, store)),
    }
}

fn absent(name: &str, store: &StoreFlags) -> Failure {
    let place = match store.open() {
        Ok(store) => format!(" in {}", store.directory().display()),
        Err(_) => String::new(),
    };
    let cause = format!("there is no file {name:?}, and no baseline of that name{place}");
    Failure::new(cause).next("strake bench list shows the baselines")
}

/// A baseline, as `--json` lists it.
#[derive(Serialize)]
struct Listed {
    name: String,
    title: Option<String>,
    started: Option<u64>,
    sides: Vec<String>,
    figures: usize,
    error: Option<String>,
}

/// Runs `strake bench list`.
pub fn list(flags: &ListFlags) -> Outcome {
    let store = flags.store.open()?;
    let rows = listed(&store)?;
    if flags.json {
        return output::json(&rows);
    }
    if rows.is_empty() {
        output::line(&format!("there are no baselines in {}", store.directory().display()));
        return Ok(());
    }
    let mut table = output::table(&["NAME", "BEGUN", ">FIGURES", "SIDES", "WHAT"]);
    for row in rows {
        let what = row.title.or(row.error).unwrap_or_default();
        let begun = row.started.map(moment).unwrap_or_default();
        let sides = clean(&row.sides.join(", "));
        table.add_row([row.name, begun, row.figures.to_string(), sides, clean(&what)]);
    }
    output::show(&table);
    Ok(())
}

fn listed(store: &Store) -> Outcome<Vec<Listed>> {
    let kept = store.list().map_err(telling)?;
    let row = |kept: baseline::Kept| match kept.report {
        Ok(report) => Listed {
            name: kept.name,
            title: Some(report.title),
            started: Some(report.started),
            sides: report.sides.into_iter().map(|side| side.name).collect(),
            figures: report.figures.len(),
            error: None,
        },
        Err(error) => Listed {
            name: kept.name,
            title: None,
            started: None,
            sides: Vec::new(),
            figures: 0,
            error: Some(error.to_string()),
        },
    };
    Ok(kept.into_iter().map(row).collect())
}

/// Runs `strake bench compare`.
pub fn compare(flags: &CompareFlags) -> Outcome {
    let before = find(&flags.before, &flags.store)?;
    let after = find(&flags.after, &flags.store)?;
    let found = compare::compare(&before, &after);
    if let Some(file) = &flags.html {
        let (first, second) = (
            Party { name: &flags.before, report: &before },
            Party { name: &flags.after, report: &after },
        );
        let page = compare::page::page(&first, &second, &found);
        fs::write(file, page).context(|| format!("writing {}", file.display()))?;
    }
    if flags.json {
        return output::json(&found);
    }
    for (name, report) in [(&flags.before, &before), (&flags.after, &after)] {
        let title = clean(&report.title);
        output::line(&format!("{}: {title}, {}", clean(name), moment(report.started)));
    }
    for difference in &found.differences {
        output::line(&format!("different {}", clean(difference)));
    }
    output::line("");
    print(&found, flags);
    Ok(())
}

fn print(found: &Comparison, flags: &CompareFlags) {
    if found.rows.is_empty() {
        output::line("the two have no figure in common");
    } else {
        print_rows(found, flags);
        sum_up(found);
    }
    for (name, lone) in [(&flags.before, &found.only_first), (&flags.after, &found.only_second)] {
        for lone in lone {
            output::line(&format!("only in {}: {}", clean(name), name_of(lone)));
        }
    }
}

fn print_rows(found: &Comparison, flags: &CompareFlags) {
    let several = found.rows.iter().any(|row| row.side != found.rows[0].side);
    let (before, after) = (clean(&flags.before), clean(&flags.after));
    let mut head = vec!["TEST".to_owned()];
    if several {
        head.push("SIDE".into());
    }
    head.extend(["WITH".into(), "UNIT".into(), format!(">{before}"), ">spread".into()]);
    head.extend([format!(">{after}"), ">spread".into(), ">RATIO".into()]);
    head.extend([">95 % INTERVAL".into(), "VERDICT".into()]);
    let mut table = output::table(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let spread = |spread: Option<f64>| spread.map(numbers::percent).unwrap_or_default();
    for row in &found.rows {
        let scale = row.scale();
        let mut cells = vec![clean(&row.test)];
        if several {
            cells.push(clean(&row.side));
        }
        cells.extend([
            with(&row.parameters),
            scale.label.to_owned(),
            scale.show(row.first.value),
            spread(row.first.spread),
            scale.show(row.second.value),
            spread(row.second.spread),
            row.ratio_shown(),
            row.interval_shown(),
            row.verdict.words().to_owned(),
        ]);
        table.add_row(cells);
    }
    output::show(&table);
}

/// How many rows have which verdict, and how many of those chance alone would give.
fn sum_up(found: &Comparison) {
    let count = |verdict| found.rows.iter().filter(|row| row.verdict == verdict).count();
    let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
    let total = found.rows.len();
    output::line("");
    output::line(&format!("{total} rows: {better} better, {worse} worse"));
    if let Some(chance) = found.by_chance() {
        output::line(&chance);
    }
}

fn name_of(lone: &Lone) -> String {
    let Lone { test, side, parameters } = lone;
    clean(&format!("{test} of {side} {}", with(parameters))).trim_end().to_owned()
}

/// All parameters of a row in one cell.
fn with(parameters: &std::collections::BTreeMap<String, f64>) -> String {
    let each = parameters.keys().map(|name| {
        let value = to::parameter(name, parameters);
        format!("{} {value}", clean(name))
    });
    each.collect::<Vec<_>>().join(", ")
}
