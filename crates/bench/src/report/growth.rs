//! How figures grow with the number of servers, for charts that are about that.

use super::numbers;
use super::plot::without;
use super::table::{self, Column};
use crate::result::{Chart, Figure, Origin, Report};
use crate::statistics;

/// The parameter that counts servers.
const SERVERS: &str = "servers";

/// How many times as fast as one server several are, a sentence for each chart across servers.
pub fn sentences(report: &Report) -> Vec<String> {
    report.charts.iter().filter_map(|chart| sentence(report, chart)).collect()
}

/// The same of one chart; `None` of others, and where nothing is known of one server or of several.
pub fn sentence(report: &Report, chart: &Chart) -> Option<String> {
    if chart.across != SERVERS {
        return None;
    }
    let columns = table::columns(report);
    let sides = columns.iter().filter(|side| side.origin != Origin::Limit);
    let grown: Vec<_> = sides.filter_map(|side| of_side(report, &chart.test, side)).collect();
    let text = || format!("{}, against one server: {}", chart.test, grown.join("; "));
    (!grown.is_empty()).then(text)
}

/// "strake 1.99x on 2, 4.97x on 5", of figures that differ in nothing else from that of one server.
fn of_side(report: &Report, test: &str, side: &Column) -> Option<String> {
    let is_of_side = |f: &&Figure| (&f.side, f.origin) == (&side.name, side.origin);
    let figures = report.figures.iter().filter(is_of_side).filter(|f| f.test == test);
    let figures: Vec<&Figure> = figures.collect();
    let servers = |f: &Figure| f.parameters.get(SERVERS).copied();
    let one = figures.iter().copied().find(|f| servers(f) == Some(1.0))?;
    let others = without(&one.parameters, SERVERS);
    let alike = figures.into_iter().filter(|f| without(&f.parameters, SERVERS) == others);
    let factor = |f: &Figure| Some((servers(f)?, statistics::ratio(f, one)?.value));
    let mut factors: Vec<(f64, f64)> =
        alike.filter_map(factor).filter(|(servers, _)| *servers > 1.0).collect();
    factors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let shown =
        |(servers, factor): &(f64, f64)| format!("{}x on {servers}", numbers::ratio(*factor));
    let shown: Vec<_> = factors.iter().map(shown).collect();
    (!shown.is_empty()).then(|| format!("{} {}", side.title(), shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::study;
    use crate::result::{Rule, Unit};

    /// The third study is about a factor, and nobody was told it.
    #[test]
    fn what_several_servers_are_of_one_is_said_of_every_side_but_not_of_limits() {
        let mut report = study();
        let test = "sequential/large read";
        report.charts.iter_mut().for_each(|chart| {
            chart.across = SERVERS.into();
            chart.test = test.into();
        });
        report.charts.truncate(1);
        let figure = |side: &str, origin, servers: f64, others: &[(&str, f64)], speed: f64| {
            let own = [(SERVERS, servers)];
            let parameters = others.iter().chain(&own);
            Figure {
                side: side.into(),
                origin,
                test: test.into(),
                parameters: parameters.map(|(n, v)| ((*n).to_owned(), *v)).collect(),
                unit: Unit::BytesPerSecond,
                samples: vec![speed],
                rule: Rule::Mean,
            }
        };
        let (size, other) = ([("size", 60.0)], [("size", 120.0)]);
        report.figures = vec![
            figure("strake", Origin::Measured, 5.0, &size, 24.9),
            figure("strake", Origin::Measured, 1.0, &size, 5.0),
            figure("strake", Origin::Measured, 2.0, &size, 9.95),
            figure("strake", Origin::Measured, 4.0, &other, 70.0),
            figure("ext4", Origin::Measured, 5.0, &size, 9.0),
            figure("disks", Origin::Limit, 1.0, &[], 5.0),
            figure("disks", Origin::Limit, 5.0, &[], 25.0),
            figure("GlusterFS", Origin::Published, 1.0, &[], 100.0),
            figure("GlusterFS", Origin::Published, 5.0, &[], 433.0),
        ];
        let said = "sequential/large read, against one server: strake 1.99x on 2, 4.98x on 5; \
                    GlusterFS (published) 4.33x on 5";
        assert_eq!(sentences(&report), [said]);
        assert!(crate::report::html::page(&report).contains("4.98x on 5"));
        assert!(sentences(&study()).is_empty());
    }
}
