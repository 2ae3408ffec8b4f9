//! The figures as comma-separated values (RFC 4180), one line each, for spreadsheets and scripts.

use super::table;
use crate::result::{Origin, Report, Rule, Unit};
use crate::statistics;

/// All figures of a report. Numbers are in the unit without prefix; a line ends with all samples,
/// parted by spaces.
pub fn write(report: &Report) -> String {
    let parameters = table::of(report, |_| true).parameters;
    let mut head = vec!["test".to_owned(), "side".into(), "origin".into()];
    head.extend(parameters.iter().cloned());
    head.extend(LAST_COLUMNS.iter().map(|name| (*name).to_owned()));
    let mut text = line(&head);
    for figure in &report.figures {
        let mut fields =
            vec![figure.test.clone(), figure.side.clone(), origin(figure.origin).to_owned()];
        let parameter = |name| figure.parameters.get(name).map(f64::to_string);
        fields.extend(parameters.iter().map(|name| parameter(name).unwrap_or_default()));
        let Some(summary) = statistics::summary(figure) else { continue };
        let optional = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
        let samples: Vec<String> = figure.samples.iter().map(f64::to_string).collect();
        fields.extend([
            unit(figure.unit).to_owned(),
            summary.value.to_string(),
            rule(figure.rule).to_owned(),
            summary.count.to_string(),
            optional(summary.deviation),
            summary.minimum.to_string(),
            summary.maximum.to_string(),
            optional(summary.spread),
            samples.join(" "),
        ]);
        text += &line(&fields);
    }
    text
}

/// Columns after the parameters.
const LAST_COLUMNS: &[&str] =
    &["unit", "value", "rule", "count", "deviation", "minimum", "maximum", "spread", "samples"];

/// The name of an origin, as in JSON.
pub fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Measured => "measured",
        Origin::Limit => "limit",
        Origin::Published => "published",
    }
}

/// The name of a unit, without a prefix.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::BytesPerSecond => "B/s",
        Unit::PerSecond => "1/s",
        Unit::Seconds => "s",
        Unit::Percent => "%",
    }
}

/// The name of a rule, as in JSON.
pub fn rule(rule: Rule) -> &'static str {
    match rule {
        Rule::Median => "median",
        Rule::Mean => "mean",
        Rule::TrimmedMean => "trimmed_mean",
    }
}

/// One line. A field that would be taken apart is quoted.
pub fn line(fields: &[String]) -> String {
    let quoted: Vec<String> = fields
        .iter()
        .map(|field| match field.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => field.clone(),
        })
        .collect();
    quoted.join(",") + "\r\n"
}
