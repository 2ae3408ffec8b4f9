//! What iozone prints with `-R`: figures that a spreadsheet takes from the clipboard. For each test a
//! table, its words in quotation marks, its columns parted by tabs; rates in KiB per second.

use super::grid::{self, Grid};
use crate::result::{Report, Unit};

/// Bytes per second of iozone's unit.
const KIB: f64 = 1024.0;

/// The tables of all tests of a report.
pub fn tables(report: &Report) -> String {
    let mut text = String::new();
    for test in grid::tests(report) {
        for grid in grid::of(report, test) {
            text.push_str(&table(test, &grid));
        }
    }
    text
}

fn table(test: &str, grid: &Grid) -> String {
    let (factor, label) = match grid.unit {
        Unit::BytesPerSecond => (KIB, "KiB/s"),
        _ => (grid.scale.factor, grid.scale.label),
    };
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let number = |value: &Option<f64>| value.map(|value| quoted(&value.to_string()));
    let head = grid.heads.iter().map(|head| number(head).unwrap_or_default());
    let mut lines = vec![
        quoted(&format!("{test}, {}, {label}; {}", grid.title, grid.corner())),
        std::iter::once(String::new()).chain(head).collect::<Vec<_>>().join("\t"),
    ];
    for (value, figures) in &grid.lines {
        let figure = |figure: &Option<f64>| {
            figure.map(|figure| format!("{:.0}", figure / factor)).unwrap_or_default()
        };
        let first = std::iter::once(number(value).unwrap_or_default());
        lines.push(first.chain(figures.iter().map(figure)).collect::<Vec<_>>().join("\t"));
    }
    lines.join("\n") + "\n\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::many_records;

    #[test]
    fn records_go_across_and_sizes_down_in_kib() {
        let report = many_records();
        let text = tables(&report);
        let table = text.split("\n\n").next().unwrap();
        let lines: Vec<&str> = table.lines().collect();
        let title = "\"iozone/write, strake, KiB/s; size (KiB) down, record (KiB) across\"";
        assert_eq!(lines[..2], [title, "\t\"4\"\t\"64\"\t\"256\"\t\"1024\""]);
        let first: Vec<&str> = lines[2].split('\t').collect();
        assert_eq!(first[0], "\"2048\"");
        let speed: f64 = first[4].parse().unwrap();
        assert!((speed - 11.8e6 / KIB).abs() < 100.0, "{speed}");
        for side in &report.sides {
            assert!(text.contains(&format!("\"iozone/write, {}, ", side.name)), "{text}");
        }
    }
}
