//! Tables of the page: wide ones scroll within themselves.

use super::class_of_verdict;
use crate::report::markup::Markup;
use crate::report::numbers;
use crate::report::plot::look;
use crate::report::table::{Cell, Column, Row, Table};
use crate::result::Origin;
use crate::statistics::Verdict;

/// A table of figures, without the parameters that all rows share.
pub fn table(page: &mut Markup, table: &Table, columns: &[Column]) {
    let constant = table.constant();
    let names: Vec<&String> =
        table.parameters.iter().filter(|name| !constant.contains_key(*name)).collect();
    let several_tests = table.rows.iter().any(|row| row.test != table.rows[0].test);
    let several_units = table.rows.iter().any(|row| row.scale != table.rows[0].scale);
    page.raw(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of figures\">\n",
    );
    page.raw("<table>\n<thead><tr>");
    if several_tests {
        page.element("th", &[("class", &"left"), ("scope", &"col")], "test");
    }
    for name in &names {
        page.element("th", &[("scope", &"col")], name);
    }
    for column in &table.columns {
        let unit = if several_units { "" } else { table.rows[0].scale.label };
        column_head(page, column, columns, unit);
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.raw("<tr>");
        if several_tests {
            page.element("th", &[("class", &"left"), ("scope", &"row")], &row.test);
        }
        for name in &names {
            let value = row.parameters.get(*name);
            let text = value.map(|v| numbers::parameter(name, *v)).unwrap_or_default();
            page.element("th", &[("scope", &"row")], text);
        }
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            figure(page, row, cell.as_ref(), column, several_units);
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody>\n</table>\n</div>\n");
}

fn column_head(page: &mut Markup, column: &Column, columns: &[Column], unit: &str) {
    page.raw("<th scope=\"col\">");
    swatch(page, column, columns);
    page.text(&column.name);
    let what = match column.origin {
        Origin::Measured => unit.to_owned(),
        Origin::Limit => format!("limit {unit}"),
        Origin::Published => format!("published {unit}"),
    };
    page.element("small", &[], what.trim_end()).raw("</th>");
}

/// The colour of a column, as in the plots.
pub fn swatch(page: &mut Markup, column: &Column, columns: &[Column]) {
    let class = match column.origin {
        Origin::Measured => format!("swatch c{}", look(columns, column).colour),
        Origin::Published => format!("swatch published c{}", look(columns, column).colour),
        Origin::Limit => "swatch limit".into(),
    };
    page.open("span", &[("class", &class)]).close("span");
}

fn figure(page: &mut Markup, row: &Row, cell: Option<&Cell>, column: &Column, with_unit: bool) {
    let Some(cell) = cell else {
        page.raw("<td class=\"soft\">–</td>");
        return;
    };
    page.raw("<td>");
    if let (Some(ratio), Some(verdict)) = (cell.to_first, cell.verdict) {
        ratio_before(page, ratio.value, verdict);
    }
    page.text(row.scale.show(cell.summary.value));
    if with_unit {
        page.text(format!(" {}", row.scale.label));
    }
    let share = cell.of_limit.map(|share| match numbers::is_within(share) {
        true => format!("{} of limit", numbers::percent(share)),
        false => "beyond limit".to_owned(),
    });
    let spread = cell
        .summary
        .spread
        .filter(|_| column.origin == Origin::Measured)
        .map(|spread| format!("spread {}", numbers::percent(spread)));
    let small: Vec<String> = share.into_iter().chain(spread).collect();
    if !small.is_empty() {
        page.element("small", &[], small.join(", "));
    }
    page.raw("</td>");
}

/// A ratio to the first side, with a sign for what may be said about it.
fn ratio_before(page: &mut Markup, ratio: f64, verdict: Verdict) {
    let class = class_of_verdict(verdict);
    let text = format!("{} × {}", verdict.sign(), numbers::ratio(ratio));
    page.element("span", &[("class", &class), ("title", &verdict.words())], text);
}
