//! A report as one page that needs nothing else: no other file, no network, no script. What is
//! compared, on what, by which command; for each chart a plot, drawn once for screens and once for
//! phones, with its table beneath; light or dark as the reader has it.

mod glance;
mod tables;

use super::markup::{Markup, path};
use super::plot::bars::Bars;
use super::plot::lines::{class_of, mark};
use super::plot::{self, Others, Plot, Series, Width, look};
use super::table::{self, Column, Table};
use super::{growth, moment, numbers};
use crate::result::{Chart, Figure, Origin, Report, Unit};
use crate::statistics::Verdict;
use std::collections::BTreeSet;

/// The page's style sheet.
const STYLE: &str = include_str!("html/style.css");
/// Nothing may be loaded and nothing may run, whatever the names in a report look like.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// Most plots of one chart; the table has all figures.
const PLOTS_MAX: usize = 24;
/// Both drawings of a plot.
pub(crate) const WIDTHS: [Width; 2] = [Width::Wide, Width::Narrow];
/// Units in the order in which bars of one section follow each other.
const UNITS: [Unit; 4] = [Unit::BytesPerSecond, Unit::PerSecond, Unit::Seconds, Unit::Percent];

/// The page of a report.
pub fn page(report: &Report) -> String {
    let columns = table::columns(report);
    let mut page = Markup::default();
    begin(&mut page, &report.title);
    head(&mut page, report);
    notes(&mut page, report);
    page.raw("<main>\n");
    glance::section(&mut page, report);
    for chart in &report.charts {
        chart_section(&mut page, report, chart, &columns);
    }
    for group in uncharted(report) {
        bars_section(&mut page, report, &group, &columns);
    }
    page.raw("</main>\n");
    method(&mut page, report);
    page.raw("</body>\n</html>\n");
    page.finish()
}

/// What every page begins with, to the beginning of its body.
pub(crate) fn begin(page: &mut Markup, title: &str) {
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.open("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]).line();
    page.element("title", &[], title).line();
    page.raw("<style>\n").raw(STYLE).raw("</style>\n</head>\n<body>\n");
}

fn head(page: &mut Markup, report: &Report) {
    page.raw("<header>\n").element("h1", &[], &report.title).line();
    let measured = report.sides.iter().map(|side| side.name.as_str()).collect::<Vec<_>>();
    let begun = moment(report.started);
    let text =
        format!("{} · measured {begun} · strake {}", measured.join(" · "), report.machine.version);
    page.element("p", &[("class", &"soft")], text).raw("\n</header>\n");
}

fn notes(page: &mut Markup, report: &Report) {
    if report.notes.is_empty() {
        return;
    }
    page.raw("<aside class=\"notes\">\n");
    for note in &report.notes {
        page.element("p", &[], note).line();
    }
    page.raw("</aside>\n");
}

fn chart_section(page: &mut Markup, report: &Report, chart: &Chart, columns: &[Column]) {
    let table = table::of(report, |figure| is_of(figure, &chart.test));
    if table.rows.is_empty() {
        return;
    }
    page.raw("<section>\n").element("h2", &[], &chart.title).line();
    // Where the test is the title it need not be said twice.
    subtitle(page, if chart.test == chart.title { "" } else { &chart.test }, &table);
    if let Some(sentence) = growth::sentence(report, chart) {
        page.element("p", &[], sentence).line();
    }
    let mut plots = plot::of(report, chart, &table, columns);
    let left_out = plots.len().saturating_sub(PLOTS_MAX);
    plots.truncate(PLOTS_MAX);
    if plots.iter().any(|plot| plot.positions().len() > 1) {
        legend(page, &plots);
        for plot in plots.iter().filter(|plot| plot.positions().len() > 1) {
            if !plot.caption.is_empty() {
                page.element("h3", &[], &plot.caption).line();
            }
            for width in WIDTHS {
                page.add(&plot::lines::draw(plot, width));
            }
        }
        if left_out > 0 {
            page.element(
                "p",
                &[("class", &"soft small")],
                format!("{left_out} further plots are left out."),
            );
        }
    } else {
        bars(page, &table, columns);
    }
    tables::table(page, &table, columns);
    page.raw("</section>\n");
}

/// Tests that no chart draws, in groups: what is before the slash of their names.
fn uncharted(report: &Report) -> Vec<BTreeSet<&str>> {
    let mut groups: Vec<BTreeSet<&str>> = Vec::new();
    for figure in report.figures.iter().filter(|figure| figure.origin != Origin::Limit) {
        let test = figure.test.as_str();
        if report.charts.iter().any(|chart| chart.test == test) {
            continue;
        }
        let same = |group: &&mut BTreeSet<&str>| {
            group.iter().any(|other| group_of(other) == group_of(test))
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.insert(test);
            }
            None => groups.push(BTreeSet::from([test])),
        }
    }
    groups
}

/// What is before the slash of a test's name.
pub(crate) fn group_of(test: &str) -> &str {
    test.split_once('/').map_or(test, |(group, _)| group)
}

fn bars_section(page: &mut Markup, report: &Report, tests: &BTreeSet<&str>, columns: &[Column]) {
    let table = table::of(report, |figure| tests.iter().any(|test| is_of(figure, test)));
    let Some(first) = table.rows.first() else { return };
    page.raw("<section>\n");
    let title = if tests.len() > 1 { group_of(&first.test) } else { &first.test };
    page.element("h2", &[], title).line();
    subtitle(page, "", &table);
    bars(page, &table, columns);
    tables::table(page, &table, columns);
    page.raw("</section>\n");
}

/// True for figures of a test, and for limits beside it.
fn is_of(figure: &Figure, test: &str) -> bool {
    let group = figure.origin == Origin::Limit && figure.test.ends_with('/');
    figure.test == test || group && test.starts_with(&figure.test)
}

fn bars(page: &mut Markup, table: &Table, columns: &[Column]) {
    let items = table.columns.iter().map(|column| Series {
        label: column.title(),
        look: look(columns, column),
        origin: column.origin,
        points: Vec::new(),
    });
    legend_of(page, &items.collect::<Vec<_>>(), true);
    for unit in UNITS {
        let bars = Bars::of(table, columns, unit);
        if bars.rows.is_empty() {
            continue;
        }
        for width in WIDTHS {
            page.add(&bars.draw(width));
        }
        if bars.left_out > 0 {
            let text = format!("The table has {} further rows.", bars.left_out);
            page.element("p", &[("class", &"soft small")], text).line();
        }
    }
}

/// The test, and the parameters that are the same in all rows.
fn subtitle(page: &mut Markup, test: &str, table: &Table) {
    let constant = table.constant();
    let parts: Vec<String> = [test.to_owned()]
        .into_iter()
        .filter(|test| !test.is_empty())
        .chain(constant.iter().map(|(n, v)| format!("{n} {}", numbers::parameter(n, *v))))
        .collect();
    if !parts.is_empty() {
        page.element("p", &[("class", &"soft small")], parts.join(" · ")).line();
    }
}

/// Every series of some plots, once.
fn legend(page: &mut Markup, plots: &[Plot]) {
    let mut items: Vec<Series> = Vec::new();
    for series in plots.iter().flat_map(|plot| &plot.series) {
        if !items.iter().any(|known| known.label == series.label && known.origin == series.origin) {
            items.push(series.clone());
        }
    }
    legend_of(page, &items, false);
}

fn legend_of(page: &mut Markup, items: &[Series], bars: bool) {
    page.raw("<ul class=\"legend\">\n");
    for series in items {
        page.raw("<li><svg viewBox=\"0 0 34 14\" aria-hidden=\"true\">");
        page.open("g", &[("class", &class_of(series))]);
        let limit = series.origin == Origin::Limit;
        if bars && !limit {
            page.raw("<path class=\"bar\" d=\"M4 1.5H30V12.5H4Z\"></path>");
        } else {
            page.path(&[("class", &"line"), ("d", &path(&[(1.0, 7.0), (33.0, 7.0)]))]);
        }
        if !bars && !limit {
            page.path(&[("class", &"dot"), ("d", &mark(series.look, 17.0, 7.0))]);
        }
        page.raw("</g></svg>");
        let what = if limit { " (limit)" } else { "" };
        page.element("span", &[], format!("{}{what}", series.label)).raw("</li>\n");
    }
    page.raw("</ul>\n");
}

fn method(page: &mut Markup, report: &Report) {
    page.raw("<section>\n<h2>How it was measured</h2>\n");
    run_of(page, report);
    page.raw("<div class=\"soft small\">\n");
    for text in explanations(report) {
        page.element("p", &[], text).line();
    }
    page.raw("</div>\n</section>\n");
}

/// By which command, when and on what machine a report was made.
pub(crate) fn run_of(page: &mut Markup, report: &Report) {
    page.element("pre", &[], &report.command).line();
    for program in report.programs.iter().filter(|program| !program.command.is_empty()) {
        page.element("pre", &[], &program.command).line();
    }
    let machine = &report.machine;
    let memory = numbers::parameter("size", machine.memory as f64);
    let mut facts: Vec<(&str, String)> = Vec::new();
    for side in &report.sides {
        facts.push((&side.name, format!("{} ({})", side.directory, side.file_system)));
    }
    facts.extend([
        ("begun", moment(report.started)),
        ("processor", format!("{}, {} cores", machine.processor, machine.cores)),
        ("memory", memory),
        ("kernel", machine.kernel.clone()),
        ("strake version", machine.version.clone()),
    ]);
    for program in report.programs.iter().filter(|program| !program.version.is_empty()) {
        facts.push((&program.name, format!("version {}", program.version)));
    }
    facts.push(("samples", samples(report)));
    page.raw("<dl>\n");
    for (name, value) in facts {
        page.element("dt", &[], name).element("dd", &[], value).line();
    }
    page.raw("</dl>\n");
}

/// The class of what carries a verdict.
pub(crate) fn class_of_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifference => "same",
        Verdict::TooNoisy | Verdict::TooFew => "unsure",
    }
}

/// How many samples figures have, and what became of them.
fn samples(report: &Report) -> String {
    let measured = || report.figures.iter().filter(|figure| figure.origin == Origin::Measured);
    let counts: BTreeSet<usize> = measured().map(|figure| figure.samples.len()).collect();
    let rules: BTreeSet<&str> = measured().map(|figure| figure.rule.words()).collect();
    let (Some(least), Some(most)) = (counts.first(), counts.last()) else { return "none".into() };
    let count = if least == most { least.to_string() } else { format!("{least} to {most}") };
    format!(
        "{count} of each figure; shown: {}",
        rules.into_iter().collect::<Vec<_>>().join(", or ")
    )
}

/// What the words of this page mean, of those that it uses.
fn explanations(report: &Report) -> Vec<String> {
    let mut texts = vec![
        "Rates are in decimal units (1 MB = 1,000,000 bytes), sizes of files and records in binary ones.".into(),
        "Spread is the distance from the smallest to the largest sample that counts, divided by their \
         mean; thin bars in the plots reach from one to the other."
            .into(),
    ];
    if let [first, _, ..] = report.sides.as_slice() {
        texts.push(format!(
            "Ratios (×) are to {}. ▲ better and ▼ worse are said only where the 95 % interval of the ratio (a \
             bootstrap) does not hold 1 and the difference is a hundredth or more; ≈ means no difference seen, \
             ~ that noise or too few samples allow no verdict.",
            first.name
        ));
    }
    let has = |origin| report.figures.iter().any(|figure| figure.origin == origin);
    if has(Origin::Limit) {
        texts.push("A limit was measured in the same run: no more is possible.".into());
    }
    if has(Origin::Published) {
        texts.push("Published figures are printed as their authors gave them; they were measured on other machines.".into());
    }
    texts
}

impl Table {
    /// The parameters that all rows have, with the same values, where there are several rows.
    pub fn constant(&self) -> Others {
        let [first, _, ..] = self.rows.as_slice() else { return Others::new() };
        let same = |name: &String, value: &f64| {
            self.rows.iter().all(|row| row.parameters.get(name) == Some(value))
        };
        let constant = first.parameters.iter().filter(|(name, value)| same(name, value));
        constant.map(|(name, value)| (name.clone(), *value)).collect()
    }
}

#[cfg(test)]
mod tests;
