//! A report as a workbook, as `iozone -b` gives one: a sheet for each test, with record sizes across
//! and file sizes down, for each side beneath the other; then a sheet of all samples.

use super::csv;
use super::moment;
use super::numbers::Scale;
use super::plot::describe;
use super::table::{self, Row, Table};
use crate::result::{Figure, Report};
use crate::statistics;
use rust_xlsxwriter::{Format, Workbook, Worksheet, XlsxError};
use std::collections::BTreeMap;

/// Characters of a sheet's name; more cannot be opened.
const SHEET_NAME_MAX: usize = 31;
/// Characters of a cell's text; more cannot be opened.
const CELL_CHARACTERS_MAX: usize = 32_767;
/// Bytes of the unit in which sizes are written, as iozone does.
const KIB: f64 = 1024.0;
/// Parameters that are written in KiB.
const IN_KIB: &[&str] = &["size", "record", "block"];

/// The workbook of a report.
pub fn workbook(report: &Report) -> Result<Vec<u8>, XlsxError> {
    let mut book = Workbook::new();
    let styles = Styles::new();
    about(book.add_worksheet(), report, &styles)?;
    let mut names = vec!["report".to_owned(), "samples".to_owned()];
    for test in tests(report) {
        let sheet = book.add_worksheet();
        sheet.set_name(sheet_name(test, &mut names))?;
        // A limit of many tests stands beside the rows of each.
        let is_of = |figure: &Figure| figure.test == test || figure.test.ends_with('/');
        let mut table = table::of(report, is_of);
        table.rows.retain(|row| row.test == test);
        test_sheet(sheet, &table, &styles)?;
    }
    samples(book.add_worksheet(), report, &styles)?;
    book.save_to_buffer()
}

/// How cells look.
struct Styles {
    bold: Format,
    head: Format,
    number: Format,
}

impl Styles {
    fn new() -> Self {
        Self {
            bold: Format::new().set_bold(),
            head: Format::new().set_bold().set_background_color(0x00E9_ECF0),
            number: Format::new().set_num_format("0.00"),
        }
    }
}

fn tests(report: &Report) -> Vec<&str> {
    let mut tests: Vec<&str> = Vec::new();
    for figure in report.figures.iter().filter(|figure| !figure.test.ends_with('/')) {
        if !tests.contains(&figure.test.as_str()) {
            tests.push(&figure.test);
        }
    }
    tests
}

/// A name for a test's sheet: without what programs refuse there, and not taken.
fn sheet_name(test: &str, taken: &mut Vec<String>) -> String {
    let refused = |c: char| c.is_control() || "[]:*?/\\'".contains(c);
    let plain: String = test.chars().map(|c| if refused(c) { ' ' } else { c }).collect();
    let plain = if plain.trim().is_empty() { "test" } else { plain.trim() };
    for number in 1.. {
        let ending = if number == 1 { String::new() } else { format!(" {number}") };
        // Programs count as UTF-16 does.
        let room = SHEET_NAME_MAX - ending.len();
        let mut used = 0;
        let fits = |c: &char| {
            used += c.len_utf16();
            used <= room
        };
        let name = plain.chars().take_while(fits).collect::<String>() + &ending;
        let key = name.to_lowercase();
        // "history" is a name that Excel keeps for itself.
        if key != "history" && !taken.contains(&key) {
            taken.push(key);
            return name;
        }
    }
    unreachable!("there are more numbers than sheets")
}

fn text(value: &str) -> String {
    value.chars().take(CELL_CHARACTERS_MAX).collect()
}

fn about(sheet: &mut Worksheet, report: &Report, styles: &Styles) -> Result<(), XlsxError> {
    sheet.set_name("Report")?.set_column_width(0, 16)?.set_column_width(1, 80)?;
    sheet.write_string_with_format(0, 0, text(&report.title), &styles.bold)?;
    let machine = &report.machine;
    let mut lines = vec![
        ("command", report.command.clone()),
        ("begun", moment(report.started)),
        ("processor", format!("{}, {} cores", machine.processor, machine.cores)),
        ("memory", super::numbers::parameter("size", machine.memory as f64)),
        ("kernel", machine.kernel.clone()),
        ("strake version", machine.version.clone()),
    ];
    for side in &report.sides {
        lines.push(("side", format!("{}: {} ({})", side.name, side.directory, side.file_system)));
    }
    lines.extend(report.notes.iter().map(|note| ("note", note.clone())));
    for (row, (name, value)) in (2..).zip(lines) {
        sheet.write_string(row, 0, name)?.write_string(row, 1, text(&value))?;
    }
    Ok(())
}

/// The blocks of a test: one for each side and each set of parameters that are neither down nor
/// across.
fn test_sheet(sheet: &mut Worksheet, table: &Table, styles: &Styles) -> Result<(), XlsxError> {
    sheet.set_column_width(0, 24)?;
    let (down, across) = directions(table);
    let others = |row: &Row| {
        let mut others = row.parameters.clone();
        others.retain(|name, _| Some(name) != down.as_ref() && Some(name) != across.as_ref());
        others
    };
    let mut sets: Vec<BTreeMap<String, f64>> = Vec::new();
    for row in &table.rows {
        if !sets.contains(&others(row)) {
            sets.push(others(row));
        }
    }
    let mut line = 0;
    for (at, column) in table.columns.iter().enumerate() {
        for set in &sets {
            let rows: Vec<&Row> = table.rows.iter().filter(|row| others(row) == *set).collect();
            let detail = describe(set, &sets);
            let title = [column.title(), detail].join(" ");
            let block = Block { title: title.trim_end(), rows, column: at };
            line = block.write(sheet, line, (down.as_deref(), across.as_deref()), styles)? + 2;
        }
    }
    Ok(())
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

/// The figures of one side.
struct Block<'a> {
    title: &'a str,
    rows: Vec<&'a Row>,
    column: usize,
}

impl Block<'_> {
    /// Writes the block from a line on; the line after it.
    fn write(
        &self,
        sheet: &mut Worksheet,
        line: u32,
        (down, across): (Option<&str>, Option<&str>),
        styles: &Styles,
    ) -> Result<u32, XlsxError> {
        let figures = self.rows.iter().filter_map(|row| row.cells[self.column].as_ref());
        let largest = figures.map(|cell| cell.summary.value).fold(0.0, f64::max);
        let Some(first) = self.rows.first() else { return Ok(line) };
        let scale = Scale::of(first.unit, largest);
        let title = format!("{}, {}", self.title, scale.label);
        sheet.write_string_with_format(line, 0, text(&title), &styles.bold)?;
        let corner = [down.map(named), across.map(named)].into_iter().flatten();
        let corner = corner.collect::<Vec<_>>().join(" down, ");
        let corner = if across.is_some() { format!("{corner} across") } else { corner };
        sheet.write_string_with_format(line + 1, 0, text(&corner), &styles.head)?;
        let (lines, columns) = (self.values(down), self.values(across));
        for (at, value) in (1..).zip(&columns) {
            match (across, value) {
                (Some(name), Some(value)) => sheet.write_number_with_format(
                    line + 1,
                    at,
                    shown(name, *value),
                    &styles.head,
                )?,
                _ => sheet.write_string_with_format(line + 1, at, scale.label, &styles.head)?,
            };
        }
        for (at, value) in (line + 2..).zip(&lines) {
            if let (Some(name), Some(value)) = (down, value) {
                sheet.write_number_with_format(at, 0, shown(name, *value), &styles.head)?;
            }
            for (column, other) in (1..).zip(&columns) {
                let wanted = |row: &&&Row| of(row, down) == *value && of(row, across) == *other;
                let row = self.rows.iter().find(wanted);
                let Some(cell) = row.and_then(|row| row.cells[self.column].as_ref()) else {
                    continue;
                };
                let number = cell.summary.value / scale.factor;
                sheet.write_number_with_format(at, column, number, &styles.number)?;
            }
        }
        Ok(line + 2 + lines.len() as u32)
    }

    /// The values of a parameter, sorted; `None` stands for rows without it.
    fn values(&self, name: Option<&str>) -> Vec<Option<f64>> {
        let mut values: Vec<Option<f64>> = self.rows.iter().map(|row| of(row, name)).collect();
        let number = |value: &Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
        values.sort_by(|a, b| number(a).total_cmp(&number(b)));
        values.dedup();
        values
    }
}

fn of(row: &Row, name: Option<&str>) -> Option<f64> {
    name.and_then(|name| row.parameters.get(name)).copied()
}

/// A parameter with its unit.
fn named(name: &str) -> String {
    if IN_KIB.contains(&name) { format!("{name} (KiB)") } else { name.to_owned() }
}

fn shown(name: &str, value: f64) -> f64 {
    if IN_KIB.contains(&name) { value / KIB } else { value }
}

fn samples(sheet: &mut Worksheet, report: &Report, styles: &Styles) -> Result<(), XlsxError> {
    sheet.set_name("Samples")?.set_freeze_panes(1, 2)?;
    sheet.set_column_width(0, 24)?.set_column_width(1, 16)?;
    let parameters = table::of(report, |_| true).parameters;
    let first = ["test", "side", "origin"].into_iter().map(str::to_owned);
    let last = ["unit", "value", "rule", "count", "deviation", "minimum", "maximum", "spread"];
    let head = first.chain(parameters.iter().cloned()).chain(last.map(str::to_owned));
    for (at, name) in (0..).zip(head.chain(["samples".to_owned()])) {
        sheet.write_string_with_format(0, at, text(&name), &styles.head)?;
    }
    for (row, figure) in (1..).zip(&report.figures) {
        let Some(summary) = statistics::summary(figure) else { continue };
        let words = [figure.test.as_str(), &figure.side, csv::origin(figure.origin)];
        for (at, word) in (0..).zip(words) {
            sheet.write_string(row, at, text(word))?;
        }
        let mut at = 3;
        for name in &parameters {
            if let Some(value) = figure.parameters.get(name) {
                sheet.write_number(row, at, *value)?;
            }
            at += 1;
        }
        sheet.write_string(row, at, csv::unit(figure.unit))?;
        sheet.write_number(row, at + 1, summary.value)?;
        sheet.write_string(row, at + 2, csv::rule(figure.rule))?;
        let count = Some(summary.count as f64);
        let (least, most) = (Some(summary.minimum), Some(summary.maximum));
        let numbers = [count, summary.deviation, least, most, summary.spread];
        let samples = figure.samples.iter().copied().map(Some);
        for (at, number) in (at + 3..).zip(numbers.into_iter().chain(samples)) {
            if let Some(number) = number {
                sheet.write_number(row, at, number)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
