//! A comparison as one page that needs nothing else, in the style of a report's page: each ratio with
//! its interval as a mark and a line about 1, and beneath them what they are made of.

use super::forest::Forest;
use super::{Comparison, Lone, Row};
use crate::report::markup::Markup;
use crate::report::{html, moment, numbers};
use crate::result::Report;
use crate::statistics::Verdict;
use std::collections::BTreeMap;

/// One of the two reports, under the name it was asked for by.
pub struct Party<'a> {
    /// The name.
    pub name: &'a str,
    /// The report.
    pub report: &'a Report,
}

/// The page of a comparison of two reports.
pub fn page(before: &Party<'_>, after: &Party<'_>, found: &Comparison) -> String {
    let mut page = Markup::default();
    let title = format!("{} and {} compared", before.name, after.name);
    html::begin(&mut page, &title);
    page.raw("<header>\n").element("h1", &[], &title).line();
    let text = format!(
        "{} of {} · {} of {}",
        before.report.title,
        moment(before.report.started),
        after.report.title,
        moment(after.report.started)
    );
    page.element("p", &[("class", &"soft")], text).raw("\n</header>\n");
    differences(&mut page, found);
    page.raw("<main>\n");
    sum(&mut page, [before, after], found);
    let several_sides = found.rows.iter().any(|row| row.side != found.rows[0].side);
    for rows in groups(found) {
        section(&mut page, &rows, several_sides, [before.name, after.name]);
    }
    for (party, lone) in [(before, &found.only_first), (after, &found.only_second)] {
        only_in(&mut page, party.name, lone);
    }
    page.raw("</main>\n");
    method(&mut page, [before, after]);
    page.raw("</body>\n</html>\n");
    page.finish()
}

/// Where the runs were made on something different: a ratio is then not of one change alone.
fn differences(page: &mut Markup, found: &Comparison) {
    if found.differences.is_empty() {
        return;
    }
    page.raw("<aside class=\"notes\">\n");
    for difference in &found.differences {
        page.element("p", &[], format!("different {difference}")).line();
    }
    page.raw("</aside>\n");
}

/// How many rows have which verdict, and what the marks mean.
fn sum(page: &mut Markup, [before, after]: [&Party<'_>; 2], found: &Comparison) {
    page.raw("<section>\n<h2>At a glance</h2>\n");
    if found.rows.is_empty() {
        page.raw("<p>The two have no figure in common.</p>\n</section>\n");
        return;
    }
    page.raw("<ul class=\"legend\">\n");
    for verdict in Verdict::ALL {
        let count = found.rows.iter().filter(|row| row.verdict == verdict).count();
        page.raw("<li>")
            .open("span", &[("class", &html::class_of_verdict(verdict))])
            .text(verdict.sign());
        page.close("span").element("span", &[], format!("{count} {}", verdict.words()));
        page.raw("</li>\n");
    }
    page.raw("</ul>\n");
    for text in found.by_chance().into_iter().chain([format!(
        "Every ratio is {} divided by {}, its line the interval that holds it with 95 % confidence. The \
         interval knows the noise within each run, and not what else changed between the runs.",
        after.name, before.name
    )]) {
        page.element("p", &[("class", &"soft small")], text).line();
    }
    page.raw("</section>\n");
}

/// Rows by what is before the slash of their tests.
fn groups(found: &Comparison) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in &found.rows {
        match groups
            .iter_mut()
            .find(|group| html::group_of(&group[0].test) == html::group_of(&row.test))
        {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn section(page: &mut Markup, rows: &[&Row], several_sides: bool, names: [&str; 2]) {
    page.raw("<section>\n").element("h2", &[], html::group_of(&rows[0].test)).line();
    let labels = labels(rows, several_sides);
    let forest = Forest::of(rows, &labels);
    for width in html::WIDTHS {
        page.add(&forest.draw(width));
    }
    if forest.left_out > 0 {
        let text = format!("The table has {} further rows.", forest.left_out);
        page.element("p", &[("class", &"soft small")], text).line();
    }
    table(page, rows, &labels, names);
    page.raw("</section>\n");
}

/// What tells a row from the others: its test, its side where there are several, and the parameters
/// that others have differently; a row alone is shown with all.
fn labels(rows: &[&Row], several_sides: bool) -> Vec<String> {
    let label = |row: &&Row| {
        let differs = |(name, value): &(&String, &f64)| {
            let others = rows.iter().filter_map(|other| other.parameters.get(*name));
            rows.len() == 1 || others.into_iter().any(|other| other != *value)
        };
        let mut words = vec![row.test.clone()];
        words.extend(several_sides.then(|| row.side.clone()));
        let differing = row.parameters.iter().filter(differs);
        words.extend(differing.map(|(name, _)| parameter(name, &row.parameters)));
        words.join(", ")
    };
    rows.iter().map(label).collect()
}

fn parameter(name: &str, of: &BTreeMap<String, f64>) -> String {
    let value = of.get(name).map(|value| numbers::parameter(name, *value)).unwrap_or_default();
    format!("{name} {value}")
}

fn table(page: &mut Markup, rows: &[&Row], labels: &[String], [before, after]: [&str; 2]) {
    page.raw(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of ratios\">\n",
    );
    page.raw("<table>\n<thead><tr><th class=\"left\" scope=\"col\">test</th>");
    for name in [before, after, "ratio", "95 % interval", "verdict"] {
        page.element("th", &[("scope", &"col")], name);
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for (row, label) in rows.iter().zip(labels) {
        page.raw("<tr>").element("th", &[("class", &"left"), ("scope", &"row")], label);
        let scale = row.scale();
        for summary in [&row.first, &row.second] {
            page.raw("<td>").text(format!("{} {}", scale.show(summary.value), scale.label));
            if let Some(spread) = summary.spread {
                page.element("small", &[], format!("spread {}", numbers::percent(spread)));
            }
            page.raw("</td>");
        }
        page.element("td", &[], row.ratio_shown()).element("td", &[], row.interval_shown());
        page.raw("<td>").open("strong", &[("class", &html::class_of_verdict(row.verdict))]);
        page.text(format!("{} {}", row.verdict.sign(), row.verdict.words()));
        page.close("strong").raw("</td></tr>\n");
    }
    page.raw("</tbody>\n</table>\n</div>\n");
}

/// What only one of the two has.
fn only_in(page: &mut Markup, name: &str, lone: &[Lone]) {
    if lone.is_empty() {
        return;
    }
    page.raw("<section>\n").element("h2", &[], format!("Only in {name}")).raw("\n<ul>\n");
    for Lone { test, side, parameters } in lone {
        let with = parameters.keys().map(|name| parameter(name, parameters));
        let words = [test.clone(), side.clone()].into_iter().chain(with).collect::<Vec<_>>();
        page.element("li", &[], words.join(", ")).line();
    }
    page.raw("</ul>\n</section>\n");
}

fn method(page: &mut Markup, parties: [&Party<'_>; 2]) {
    page.raw("<section>\n<h2>What was compared</h2>\n");
    for Party { name, report } in parties {
        page.element("h3", &[], name).line();
        html::run_of(page, report);
    }
    page.raw("<div class=\"soft small\">\n<p>better, worse: the interval does not hold 1, and the difference is at \
        least a hundredth. no difference seen: the interval holds 1 and is narrow, or the difference is below a \
        hundredth. too noisy: it holds 1 and much else; repeat more often, or on a quieter machine. too few \
        samples: less than four repetitions.</p>\n</div>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::compare;
    use crate::report::fixture::{slower, study};

    fn compared(before: &Report, after: &Report) -> String {
        let (a, b) =
            (Party { name: "before", report: before }, Party { name: "after", report: after });
        page(&a, &b, &compare(before, after))
    }

    #[test]
    fn the_page_has_every_row_and_what_it_is_made_of() {
        let page = compared(&study(), &slower());
        for word in [
            "before and after compared",
            "different kernel: Linux 6.1.0-28 | Linux 7.0",
            "▼ worse",
            "▲ better",
            "95 % interval",
            "strake bench study 1",
            "Only in before",
            "× 0.900",
        ] {
            assert!(page.contains(word), "{word:?} is not in: {page}");
        }
        let found = compare(&study(), &slower());
        assert_eq!(page.matches("<strong").count(), found.rows.len());
        for tag in ["svg", "table", "tr", "td", "th", "g", "section", "div", "p", "text", "strong"]
        {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn nothing_of_a_report_or_of_a_name_becomes_markup() {
        let evil = "</style><script>alert(1)</script><img src=x>";
        let mut report = study();
        report.title = evil.into();
        report.figures.iter_mut().for_each(|figure| figure.test = evil.into());
        report.figures.truncate(1);
        let party = || Party { name: evil, report: &report };
        let page = page(&party(), &party(), &compare(&report, &report));
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    }

    #[test]
    fn two_without_a_common_figure_say_so() {
        let mut other = study();
        other.figures.iter_mut().for_each(|figure| figure.test.push_str(" other"));
        let page = compared(&study(), &other);
        assert!(page.contains("no figure in common") && page.contains("Only in after"));
    }
}
