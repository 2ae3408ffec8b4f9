//! A test's figures as iozone's spreadsheets have them: record sizes across and file sizes down, for
//! each side beneath the other.

use super::numbers::Scale;
use super::plot::describe;
use super::table::{self, Row, Table};
use crate::result::{Figure, Report, Unit};
use std::collections::BTreeMap;

/// Bytes of the unit in which sizes are written, as iozone does.
const KIB: f64 = 1024.0;
/// Parameters that are written in KiB.
const IN_KIB: &[&str] = &["size", "record", "block"];

/// The figures of one side in one unit, with everything but two parameters alike.
pub struct Grid {
    /// Whose, and with which further parameters.
    pub title: String,
    /// What the figures are in.
    pub unit: Unit,
    /// The scale in which they read well.
    pub scale: Scale,
    /// The parameter that grows downwards.
    pub down: Option<String>,
    /// The parameter that grows to the right.
    pub across: Option<String>,
    /// Its values to the right, as they are written; `None` where rows have none.
    pub heads: Vec<Option<f64>>,
    /// For each value downwards that value, and the figures.
    pub lines: Vec<(Option<f64>, Vec<Option<f64>>)>,
}

/// The tests of a report, in its order.
pub fn tests(report: &Report) -> Vec<&str> {
    let mut tests: Vec<&str> = Vec::new();
    for figure in report.figures.iter().filter(|figure| !figure.test.ends_with('/')) {
        if !tests.contains(&figure.test.as_str()) {
            tests.push(&figure.test);
        }
    }
    tests
}

/// The grids of a test: one for each side, each unit and each set of parameters that are neither down
/// nor across.
pub fn of(report: &Report, test: &str) -> Vec<Grid> {
    // A limit of many tests stands beside the rows of each.
    let is_of = |figure: &Figure| figure.test == test || figure.test.ends_with('/');
    let mut table = table::of(report, is_of);
    table.rows.retain(|row| row.test == test);
    let (down, across) = directions(&table);
    let others = |row: &Row| {
        let mut others = row.parameters.clone();
        others.retain(|name, _| Some(name) != down.as_ref() && Some(name) != across.as_ref());
        others
    };
    let mut kinds: Vec<(Unit, BTreeMap<String, f64>)> = Vec::new();
    for row in &table.rows {
        let kind = (row.unit, others(row));
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let sets: Vec<_> = kinds.iter().map(|(_, set)| set.clone()).collect();
    let mut grids = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        for (unit, set) in &kinds {
            let is_here = |row: &&Row| row.unit == *unit && others(row) == *set;
            let rows: Vec<&Row> = table.rows.iter().filter(is_here).collect();
            let title = [column.title(), describe(set, &sets)].join(" ");
            let title = title.trim_end().to_owned();
            grids.extend(grid(title, *unit, &rows, at, (down.clone(), across.clone())));
        }
    }
    grids
}

/// The grid of rows of one unit; `None` where the column has no figure in them.
fn grid(
    title: String,
    unit: Unit,
    rows: &[&Row],
    column: usize,
    (down, across): (Option<String>, Option<String>),
) -> Option<Grid> {
    let figure = |row: &Row| row.cells[column].as_ref().map(|cell| cell.summary.value);
    let largest = rows.iter().filter_map(|row| figure(row)).reduce(f64::max)?;
    let (heads, downwards) = (values(rows, across.as_deref()), values(rows, down.as_deref()));
    let line = |value: &Option<f64>| {
        let cell = |head: &Option<f64>| {
            let is_here = |row: &&&Row| {
                shown(row, down.as_deref()) == *value && shown(row, across.as_deref()) == *head
            };
            rows.iter().find(is_here).and_then(|row| figure(row))
        };
        (*value, heads.iter().map(cell).collect())
    };
    let lines = downwards.iter().map(line).collect();
    let scale = Scale::of(unit, largest);
    Some(Grid { title, unit, scale, down, across, heads, lines })
}

impl Grid {
    /// What goes down and what across.
    pub fn corner(&self) -> String {
        let names = [&self.down, &self.across].into_iter().flatten().map(|name| named(name));
        let names = names.collect::<Vec<_>>().join(" down, ");
        if self.across.is_some() { format!("{names} across") } else { names }
    }
}

/// Which parameter goes down and which across: iozone's, or those with the most values.
fn directions(table: &Table) -> (Option<String>, Option<String>) {
    let values = |name: &str| {
        let values = table.rows.iter().filter_map(|row| row.parameters.get(name));
        let mut values: Vec<u64> = values.map(|value| value.to_bits()).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let mut names = table.parameters.clone();
    let rank = |name: &String| match name.as_str() {
        "size" => (0, 0),
        "record" => (1, 0),
        other => (2, usize::MAX - values(other)),
    };
    names.sort_by_key(rank);
    let mut names = names.into_iter();
    (names.next(), names.next())
}

/// The values of a parameter, sorted.
fn values(rows: &[&Row], name: Option<&str>) -> Vec<Option<f64>> {
    let mut values: Vec<Option<f64>> = rows.iter().map(|row| shown(row, name)).collect();
    let number = |value: &Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
    values.sort_by(|a, b| number(a).total_cmp(&number(b)));
    values.dedup();
    values
}

/// A parameter of a row as it is written.
fn shown(row: &Row, name: Option<&str>) -> Option<f64> {
    let name = name?;
    let value = *row.parameters.get(name)?;
    Some(if IN_KIB.contains(&name) { value / KIB } else { value })
}

/// A parameter with its unit.
fn named(name: &str) -> String {
    if IN_KIB.contains(&name) { format!("{name} (KiB)") } else { name.to_owned() }
}
