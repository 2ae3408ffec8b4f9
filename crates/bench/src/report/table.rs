//! The figures of a report in rows and columns: tests by their parameters down, sides across.

use super::numbers::Scale;
use crate::result::{Figure, Origin, Report, Unit};
use crate::statistics::{self, Ratio, Summary, Verdict};
use std::collections::BTreeMap;

/// Parameters in the order of their columns; others follow by name.
const PARAMETER_ORDER: &[&str] = &["size", "record", "block", "files", "threads", "clients"];

/// Figures in rows and columns.
#[derive(Debug, Clone)]
pub struct Table {
    /// Names of the parameters that rows have.
    pub parameters: Vec<String>,
    /// What stands side by side: measured sides in their order, limits, published figures.
    pub columns: Vec<Column>,
    /// The rows, in the order in which their tests and parameters were first measured.
    pub rows: Vec<Row>,
}

/// One of the things side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Who vouches for its figures.
    pub origin: Origin,
}

/// A test with one set of parameters.
#[derive(Debug, Clone)]
pub struct Row {
    /// The test.
    pub test: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, f64>,
    /// What its figures are in.
    pub unit: Unit,
    /// How they are printed.
    pub scale: Scale,
    /// One for each column; `None` where nothing is known.
    pub cells: Vec<Option<Cell>>,
    /// The smallest limit beside the row: no more is possible.
    pub limit: Option<f64>,
}

/// A figure in its row.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The figure, summed up.
    pub summary: Summary,
    /// The ratio to the first measured side; of other measured sides only.
    pub to_first: Option<Ratio>,
    /// What may be said about the ratio to the first side.
    pub verdict: Option<Verdict>,
    /// The share of the limit; of measured sides only.
    pub of_limit: Option<f64>,
}

/// Lays out the figures for which `wanted` is true.
pub fn of(report: &Report, wanted: impl Fn(&Figure) -> bool) -> Table {
    let figures: Vec<&Figure> = report.figures.iter().filter(|figure| wanted(figure)).collect();
    let columns = columns_of(report, &figures);
    let mut rows: Vec<Row> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.origin == Origin::Measured) {
        add_row(&mut rows, figure);
    }
    for figure in figures.iter().filter(|figure| figure.origin != Origin::Measured) {
        if !rows.iter().any(|row| fits_beside(figure, row)) {
            add_row(&mut rows, figure);
        }
    }
    rows.iter_mut().for_each(|row| fill(row, &columns, &figures));
    Table { parameters: parameters(&rows), columns, rows }
}

/// The columns of all figures of a report.
pub fn columns(report: &Report) -> Vec<Column> {
    columns_of(report, &report.figures.iter().collect::<Vec<_>>())
}

impl Table {
    /// True where the figures of a column are shown with their ratio to the first side.
    pub fn has_ratio(&self, column: usize) -> bool {
        self.any(column, |cell| cell.to_first.is_some())
    }

    /// True where the figures of a column are shown with their share of a limit.
    pub fn has_limit(&self, column: usize) -> bool {
        self.any(column, |cell| cell.of_limit.is_some())
    }

    /// True where the figures of a column have a spread.
    pub fn has_spread(&self, column: usize) -> bool {
        self.any(column, |cell| cell.summary.spread.is_some())
    }

    fn any(&self, column: usize, wanted: impl Fn(&Cell) -> bool) -> bool {
        self.rows.iter().filter_map(|row| row.cells[column].as_ref()).any(wanted)
    }
}

impl Column {
    /// The name, with a word on who says so where that is not this run.
    pub fn title(&self) -> String {
        match self.origin {
            Origin::Published => format!("{} (published)", self.name),
            Origin::Measured | Origin::Limit => self.name.clone(),
        }
    }
}

/// Measured sides in the report's order, then limits, then published figures.
fn columns_of(report: &Report, figures: &[&Figure]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let named = report.sides.iter().map(|side| (side.name.as_str(), Origin::Measured));
    let found = |origin| {
        figures.iter().filter(move |f| f.origin == origin).map(move |f| (f.side.as_str(), origin))
    };
    let wanted = named
        .chain(found(Origin::Measured))
        .chain(found(Origin::Limit))
        .chain(found(Origin::Published));
    for (name, origin) in wanted {
        let is_column = |c: &Column| c.name == name && c.origin == origin;
        let has_figures = figures.iter().any(|f| f.side == name && f.origin == origin);
        if has_figures && !columns.iter().any(is_column) {
            columns.push(Column { name: name.to_owned(), origin });
        }
    }
    columns
}

/// Adds the row of a figure, after the last one of its test.
fn add_row(rows: &mut Vec<Row>, figure: &Figure) {
    if rows.iter().any(|row| is_of(figure, row)) {
        return;
    }
    let after = rows.iter().rposition(|row| row.test == figure.test);
    let row = Row {
        test: figure.test.clone(),
        parameters: figure.parameters.clone(),
        unit: figure.unit,
        scale: Scale::of(figure.unit, 0.0),
        cells: Vec::new(),
        limit: None,
    };
    rows.insert(after.map_or(rows.len(), |at| at + 1), row);
}

fn is_of(figure: &Figure, row: &Row) -> bool {
    figure.test == row.test && figure.parameters == row.parameters && figure.unit == row.unit
}

fn fits_beside(figure: &Figure, row: &Row) -> bool {
    let parameter = |name: &str| row.parameters.get(name).copied();
    figure.unit == row.unit && stands_beside(figure, &row.test, parameter)
}

/// True where a limit or a published figure belongs beside measured ones of a test with some
/// parameters; see [`Figure`].
pub fn stands_beside(figure: &Figure, test: &str, parameter: impl Fn(&str) -> Option<f64>) -> bool {
    let group = figure.origin == Origin::Limit && figure.test.ends_with('/');
    let is_test = figure.test == test || group && test.starts_with(&figure.test);
    is_test && figure.parameters.iter().all(|(name, value)| parameter(name) == Some(*value))
}

fn fill(row: &mut Row, columns: &[Column], figures: &[&Figure]) {
    let found: Vec<Option<&Figure>> =
        columns.iter().map(|column| beside(row, column, figures)).collect();
    let value = |figure: &Figure| statistics::summary(figure).map(|summary| summary.value);
    row.limit = found
        .iter()
        .flatten()
        .filter(|figure| figure.origin == Origin::Limit && !row.unit.less_is_better())
        .filter_map(|figure| value(figure))
        .filter(|limit| *limit > 0.0)
        .min_by(f64::total_cmp);
    let first = columns.first().filter(|column| column.origin == Origin::Measured);
    let first = first.and_then(|_| found[0]);
    row.cells = found
        .iter()
        .enumerate()
        .map(|(at, figure)| cell((*figure)?, first.filter(|_| at > 0), row.limit))
        .collect();
    let values = row.cells.iter().flatten().map(|cell| cell.summary.value);
    row.scale = Scale::of(row.unit, values.fold(0.0, f64::max));
}

/// The figure of a column in a row: its own, or the one with most parameters that stands beside it.
fn beside<'a>(row: &Row, column: &Column, figures: &[&'a Figure]) -> Option<&'a Figure> {
    let of_column = |f: &&&Figure| f.side == column.name && f.origin == column.origin;
    let fits = |f: &&&Figure| match column.origin {
        Origin::Measured => is_of(f, row),
        Origin::Limit | Origin::Published => fits_beside(f, row),
    };
    let found = figures.iter().filter(of_column).filter(fits);
    found.max_by_key(|f| (f.test == row.test, f.parameters.len())).copied()
}

fn cell(figure: &Figure, first: Option<&Figure>, limit: Option<f64>) -> Option<Cell> {
    let summary = statistics::summary(figure)?;
    let measured = figure.origin == Origin::Measured;
    let to_first = first.filter(|_| measured).and_then(|first| statistics::ratio(figure, first));
    let verdict = to_first.as_ref().map(|ratio| statistics::verdict(ratio, figure.unit));
    let of_limit = limit.filter(|_| measured).map(|limit| summary.value / limit);
    Some(Cell { summary, to_first, verdict, of_limit })
}

/// Names of all parameters of some rows.
fn parameters(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.parameters.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let place = |name: &String| PARAMETER_ORDER.iter().position(|known| known == name);
    names.sort_by_key(|name| (place(name).unwrap_or(usize::MAX), name.clone()));
    names
}
