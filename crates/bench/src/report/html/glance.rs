//! The first table of the page: of each test, how the sides stand to each other and to the limit.

use super::tables::swatch;
use crate::report::markup::Markup;
use crate::report::numbers;
use crate::report::table::{self, Cell, Column, Table};
use crate::result::{Origin, Report};
use crate::statistics::Verdict;

/// The section, where there is something to compare.
pub fn section(page: &mut Markup, report: &Report) {
    let table = table::of(report, |_| true);
    let measured: Vec<usize> = (0..table.columns.len())
        .filter(|at| table.columns[*at].origin == Origin::Measured)
        .collect();
    let comparable = measured.iter().any(|at| table.has_ratio(*at) || table.has_limit(*at));
    let mut tests: Vec<&str> = Vec::new();
    for row in table.rows.iter().filter(|row| measured.iter().any(|at| row.cells[*at].is_some())) {
        if !tests.contains(&row.test.as_str()) {
            tests.push(&row.test);
        }
    }
    if !comparable || tests.is_empty() {
        return;
    }
    page.raw("<section>\n<h2>At a glance</h2>\n");
    page.element("p", &[("class", &"soft small")], explanation(&table, &measured)).line();
    page.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"At a glance\">\n<table>\n");
    page.raw("<thead><tr><th class=\"left\" scope=\"col\">test</th>");
    for at in &measured {
        head(page, &table.columns[*at], &table.columns);
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for test in tests {
        page.raw("<tr>").element("th", &[("class", &"left"), ("scope", &"row")], test);
        for at in &measured {
            let rows = table.rows.iter().filter(|row| row.test == test);
            let cells: Vec<&Cell> = rows.filter_map(|row| row.cells[*at].as_ref()).collect();
            cell(page, &cells, measured.first() == Some(at), measured.len() == 1);
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody>\n</table>\n</div>\n</section>\n");
}

fn explanation(table: &Table, measured: &[usize]) -> String {
    let mut parts = Vec::new();
    if let Some(first) = measured.first().filter(|_| measured.iter().any(|at| table.has_ratio(*at)))
    {
        let name = &table.columns[*first].name;
        parts.push(format!(
            "× is the geometric mean of all ratios to {name}, with the least and the greatest"
        ));
    }
    if measured.iter().any(|at| table.has_limit(*at)) {
        parts.push(
            "what did not pass through the limit (a cache, a local disk) is beyond it".to_owned(),
        );
    }
    let text = parts.join("; ");
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn head(page: &mut Markup, column: &Column, columns: &[Column]) {
    page.raw("<th scope=\"col\">");
    swatch(page, column, columns);
    page.text(&column.name).raw("</th>");
}

/// A side's cell. Ratios are to the first side. Where a side is alone there is nothing to have a ratio
/// to: only the limit counts.
fn cell(page: &mut Markup, cells: &[&Cell], is_first: bool, alone: bool) {
    let ratios: Vec<f64> = cells.iter().filter_map(|cell| cell.to_first).map(|r| r.value).collect();
    let shares: Vec<f64> = cells.iter().filter_map(|cell| cell.of_limit).collect();
    if cells.is_empty() || (alone && shares.is_empty()) {
        page.raw("<td class=\"soft\">–</td>");
        return;
    }
    page.raw("<td>");
    let (within, beyond): (Vec<f64>, Vec<f64>) =
        shares.iter().partition(|share| numbers::is_within(**share));
    if let Some(mean) = mean(&ratios) {
        page.text(format!("× {}", numbers::ratio(mean)));
        if let Some(range) = range(&ratios, numbers::ratio).filter(|_| ratios.len() > 1) {
            page.element("small", &[], range);
        }
        page.element("small", &[], verdicts(cells));
    } else if !alone {
        page.raw(if is_first { "× 1" } else { "–" });
    }
    if let Some(shares) = range(&within, numbers::percent) {
        let text = format!("{shares} of limit");
        match alone {
            true => page.text(text),
            false => page.element("small", &[], text),
        };
    }
    if !beyond.is_empty() {
        page.element("small", &[], format!("{} of {} beyond limit", beyond.len(), shares.len()));
    }
    page.raw("</td>");
}

/// The geometric mean; `None` of none, or where one is not above zero.
fn mean(ratios: &[f64]) -> Option<f64> {
    let all = !ratios.is_empty() && ratios.iter().all(|ratio| *ratio > 0.0);
    all.then(|| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp())
}

/// "93.0 % to 99.8 %", or one where both ends read the same.
fn range(values: &[f64], show: impl Fn(f64) -> String) -> Option<String> {
    let least = values.iter().copied().min_by(f64::total_cmp).map(&show)?;
    let most = values.iter().copied().max_by(f64::total_cmp).map(&show)?;
    Some(if least == most { least } else { format!("{least} to {most}") })
}

/// How often a side is called better or worse.
fn verdicts(cells: &[&Cell]) -> String {
    let count = |wanted| cells.iter().filter(|cell| cell.verdict == Some(wanted)).count();
    let parts = [(Verdict::Better, "better"), (Verdict::Worse, "worse")]
        .map(|(verdict, word)| (count(verdict), word))
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"));
    let said = parts.collect::<Vec<_>>().join(", ");
    let all = cells.iter().filter(|cell| cell.verdict.is_some()).count();
    if said.is_empty() { format!("no verdict in {all}") } else { format!("{said} of {all}") }
}
