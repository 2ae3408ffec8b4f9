//! A report as a table.

use crate::{output, size};
use std::collections::BTreeSet;
use strake_bench::result::{Figure, Report, Unit};

/// Prints a report.
pub fn report(report: &Report) {
    let parameters: BTreeSet<&str> = report
        .figures
        .iter()
        .flat_map(|figure| figure.parameters.keys())
        .map(String::as_str)
        .collect();
    let mut head = vec!["TEST".to_owned(), "SIDE".to_owned()];
    head.extend(parameters.iter().map(|name| format!(">{}", name.to_uppercase())));
    head.extend([">MEDIAN", ">LEAST", ">MOST", ">SAMPLES"].map(str::to_owned));
    let mut table = output::table(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for figure in &report.figures {
        let mut row = vec![figure.test.clone(), figure.side.clone()];
        row.extend(parameters.iter().map(|name| parameter(figure, name)));
        row.extend(statistics(figure));
        table.add_row(row);
    }
    if !report.figures.is_empty() {
        output::show(&table);
    }
    for note in &report.notes {
        output::line(&format!("note: {note}"));
    }
}

fn parameter(figure: &Figure, name: &str) -> String {
    match figure.parameters.get(name) {
        Some(value) if matches!(name, "size" | "record") => size::short(*value as u64),
        Some(value) => value.to_string(),
        None => "-".into(),
    }
}

fn statistics(figure: &Figure) -> [String; 4] {
    let mut sorted = figure.samples.clone();
    sorted.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else {
        return ["-", "-", "-", "0"].map(str::to_owned);
    };
    let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
    let [median, least, most] = [median, *least, *most].map(|value| quantity(value, figure.unit));
    [median, least, most, sorted.len().to_string()]
}

fn quantity(value: f64, unit: Unit) -> String {
    match unit {
        Unit::BytesPerSecond => format!("{:.2} MB/s", value / 1e6),
        Unit::PerSecond => format!("{value:.0} /s"),
        Unit::Seconds => format!("{value:.3} s"),
        Unit::Percent => format!("{value:.0} %"),
    }
}
