//! A report as a workbook, as `iozone -b` gives one: a sheet for each test, with record sizes across
//! and file sizes down, for each side beneath the other; then a sheet of all samples.

use super::csv;
use super::grid::{self, Grid};
use super::moment;
use super::table;
use crate::result::Report;
use crate::statistics;
use rust_xlsxwriter::{Format, Workbook, Worksheet, XlsxError};

/// Characters of a sheet's name; more cannot be opened.
const SHEET_NAME_MAX: usize = 31;
/// Characters of a cell's text; more cannot be opened.
const CELL_CHARACTERS_MAX: usize = 32_767;

/// The workbook of a report.
pub fn workbook(report: &Report) -> Result<Vec<u8>, XlsxError> {
    let mut book = Workbook::new();
    let styles = Styles::new();
    about(book.add_worksheet(), report, &styles)?;
    let mut names = vec!["report".to_owned(), "samples".to_owned()];
    for test in grid::tests(report) {
        let sheet = book.add_worksheet();
        sheet.set_name(sheet_name(test, &mut names))?.set_column_width(0, 24)?;
        let mut line = 0;
        for grid in grid::of(report, test) {
            line = block(sheet, line, &grid, &styles)? + 2;
        }
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

/// Writes a grid from a line on; the line after it.
fn block(sheet: &mut Worksheet, line: u32, grid: &Grid, styles: &Styles) -> Result<u32, XlsxError> {
    let title = format!("{}, {}", grid.title, grid.scale.label);
    sheet.write_string_with_format(line, 0, text(&title), &styles.bold)?;
    sheet.write_string_with_format(line + 1, 0, text(&grid.corner()), &styles.head)?;
    for (at, head) in (1..).zip(&grid.heads) {
        match head {
            Some(value) => sheet.write_number_with_format(line + 1, at, *value, &styles.head)?,
            None => sheet.write_string_with_format(line + 1, at, grid.scale.label, &styles.head)?,
        };
    }
    for (at, (value, figures)) in (line + 2..).zip(&grid.lines) {
        if let Some(value) = value {
            sheet.write_number_with_format(at, 0, *value, &styles.head)?;
        }
        for (column, figure) in (1..).zip(figures) {
            if let Some(figure) = figure {
                let number = figure / grid.scale.factor;
                sheet.write_number_with_format(at, column, number, &styles.number)?;
            }
        }
    }
    Ok(line + 2 + grid.lines.len() as u32)
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
