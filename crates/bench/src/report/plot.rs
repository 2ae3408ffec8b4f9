//! Plots: which series a chart draws. [`lines`] and [`bars`] draw them.

pub mod axis;
pub mod bars;
pub mod lines;

use super::numbers::{self, Scale};
use super::table::{Column, Table, stands_beside};
use crate::result::{Chart, Figure, Origin, Report, Unit};
use crate::statistics;
use axis::Axis;
use std::collections::BTreeMap;

/// More lines than this in one plot are not told apart; then there is a plot for each set of further
/// parameters.
const LINES_MAX: usize = 6;

/// Values of the parameters that are not on the axis.
pub type Others = BTreeMap<String, f64>;

/// How wide a page a drawing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A screen: labels beside the lines.
    Wide,
    /// A phone: the legend tells.
    Narrow,
}

/// How a series is drawn, the same in all plots of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Number of its colour.
    pub colour: usize,
    /// Number of its mark.
    pub mark: usize,
}

/// How far a plot up to the limit goes beyond it.
const ABOVE_LIMIT: f64 = 1.02;

/// Colours of the page's style sheet.
pub const COLOURS: usize = 8;

/// One plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// What tells it from its neighbours of the same chart; empty where it is alone.
    pub caption: String,
    /// The parameter along the horizontal axis.
    pub across: String,
    /// True where that axis doubles from mark to mark.
    pub doubling: bool,
    /// What the vertical axis is in.
    pub scale: Scale,
    /// True where lower is better.
    pub less_is_better: bool,
    /// Nothing above this is drawn; `None`: everything is.
    pub ceiling: Option<f64>,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// A line, or the bars of one side.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Its colour and mark.
    pub look: Look,
    /// Who vouches for it.
    pub origin: Origin,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where along the axis; `None`: everywhere, as a limit that does not depend on the parameter.
    pub across: Option<f64>,
    /// The figure.
    pub value: f64,
    /// The smallest and the largest sample that count, where there are several.
    pub range: Option<(f64, f64)>,
    /// How many samples there are.
    pub count: usize,
}

impl Plot {
    /// Values along the horizontal axis, sorted, each once.
    pub fn positions(&self) -> Vec<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut values: Vec<f64> = points.filter_map(|point| point.across).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// Every figure, with its smallest and largest sample.
    pub fn values(&self) -> impl Iterator<Item = f64> + Clone {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.flat_map(|point| {
            let (low, high) = point.range.unwrap_or((point.value, point.value));
            [low, point.value, high]
        })
    }

    /// The most that is possible anywhere in it: of links and disks those that limit; 0 where there is no limit.
    fn limit(&self) -> f64 {
        let mut greatest: BTreeMap<&str, f64> = BTreeMap::new();
        for series in self.series.iter().filter(|series| series.origin == Origin::Limit) {
            // Lines of one limit have its name, and what tells them apart.
            let name = series.label.split(", ").next().unwrap_or_default();
            let most = series.points.iter().map(|point| point.value).fold(0.0, f64::max);
            let known = greatest.entry(name).or_default();
            *known = known.max(most);
        }
        greatest.into_values().filter(|limit| *limit > 0.0).min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// The same on an axis from zero to a little above the limit, where some figures are so far
    /// beyond it (a cache, a local disk) that those near it could not be told apart.
    fn up_to_the_limit(&self) -> Option<Plot> {
        let limit = self.limit();
        let ceiling = limit * ABOVE_LIMIT;
        let below = |series: &Series| series.points.iter().any(|point| point.value < ceiling);
        let measured = |series: &&Series| series.origin == Origin::Measured;
        let wanted = limit > 0.0
            && !self.less_is_better
            && Axis::reaches_far(self.values())
            && self.values().any(|value| value > ceiling)
            && self.series.iter().filter(measured).any(below);
        let (near, beyond): (Vec<_>, Vec<_>) = self.series.iter().cloned().partition(below);
        let mut caption = match self.caption.as_str() {
            "" => "Up to the limit".to_owned(),
            caption => format!("{caption}, up to the limit"),
        };
        if !beyond.is_empty() {
            let names: Vec<_> = beyond.iter().map(|series| series.label.as_str()).collect();
            caption += &format!("; beyond it: {}", names.join(", "));
        }
        wanted.then(|| Plot { caption, ceiling: Some(ceiling), series: near, ..self.clone() })
    }
}

/// The look of a column: its place among all columns of the report. Limits are drawn in the colour
/// of text and need none.
pub fn look(columns: &[Column], column: &Column) -> Look {
    let coloured = columns.iter().filter(|c| c.origin != Origin::Limit);
    let at = coloured.take_while(|c| *c != column).count();
    Look { colour: at % COLOURS, mark: at }
}

/// The plots of a chart, of which a table holds all figures. `columns` are those of the whole report.
pub fn of(report: &Report, chart: &Chart, table: &Table, columns: &[Column]) -> Vec<Plot> {
    let Some(unit) = table.rows.first().map(|row| row.unit) else { return Vec::new() };
    let sets = sets(table, chart, unit);
    let measured = table.columns.iter().filter(|c| c.origin == Origin::Measured).count();
    let together = sets.len() * measured.max(1) <= LINES_MAX;
    let groups: Vec<&[Others]> = if together { vec![&sets[..]] } else { sets.chunks(1).collect() };
    let mut plots = Vec::new();
    for group in groups {
        let series: Vec<Series> = table
            .columns
            .iter()
            .flat_map(|c| series_of(report, chart, unit, group, columns, c))
            .collect();
        if series.is_empty() {
            continue;
        }
        let values = series.iter().flat_map(|s| &s.points).map(|p| p.value);
        let plot = Plot {
            caption: if together { String::new() } else { describe(&group[0], &sets) },
            across: chart.across.clone(),
            doubling: chart.doubling,
            scale: Scale::of(unit, values.fold(0.0, f64::max)),
            less_is_better: unit.less_is_better(),
            ceiling: None,
            series,
        };
        let closer = plot.up_to_the_limit();
        plots.extend([Some(plot), closer].into_iter().flatten());
    }
    plots
}

/// The sets of further parameters in the rows of a table.
fn sets(table: &Table, chart: &Chart, unit: Unit) -> Vec<Others> {
    let mut sets: Vec<Others> = Vec::new();
    for row in table.rows.iter().filter(|row| row.unit == unit) {
        let others = without(&row.parameters, &chart.across);
        if !sets.contains(&others) {
            sets.push(others);
        }
    }
    sets
}

/// Parameters but one.
pub fn without(parameters: &BTreeMap<String, f64>, name: &str) -> Others {
    parameters.iter().filter(|(n, _)| *n != name).map(|(n, v)| (n.clone(), *v)).collect()
}

/// The lines of one column: one for each set of further parameters that its figures have.
fn series_of(
    report: &Report,
    chart: &Chart,
    unit: Unit,
    group: &[Others],
    columns: &[Column],
    column: &Column,
) -> Vec<Series> {
    let mut found: Vec<(Others, Vec<Point>)> = Vec::new();
    for figure in &report.figures {
        let others = without(&figure.parameters, &chart.across);
        let is_of_column = figure.side == column.name && figure.origin == column.origin;
        if !is_of_column || figure.unit != unit || !belongs(figure, &chart.test, &others, group) {
            continue;
        }
        let Some(point) = point(figure, &chart.across) else { continue };
        match found.iter_mut().find(|(known, _)| *known == others) {
            Some((_, points)) => points.push(point),
            None => found.push((others, vec![point])),
        }
    }
    let base = look(columns, column);
    let line = |(at, (others, mut points)): (usize, (Others, Vec<Point>))| {
        points.sort_by(|a, b| a.across.partial_cmp(&b.across).unwrap_or(std::cmp::Ordering::Equal));
        let detail = describe(&others, group);
        let title = column.title();
        let label = if detail.is_empty() { title } else { format!("{title}, {detail}") };
        // Lines of one side share its colour and differ by their marks.
        let look = Look { mark: base.mark + at * COLOURS + at, ..base };
        Series { label, look, origin: column.origin, points }
    };
    found.into_iter().enumerate().map(line).collect()
}

/// True where a figure is drawn in a plot of some sets of further parameters.
fn belongs(figure: &Figure, test: &str, others: &Others, group: &[Others]) -> bool {
    match figure.origin {
        Origin::Measured => figure.test == test && group.contains(others),
        Origin::Limit | Origin::Published => {
            group.iter().any(|set| {
                stands_beside(figure, test, |name| {
                    // What is on the axis does not keep a series out.
                    if others.contains_key(name) {
                        set.get(name).copied()
                    } else {
                        figure.parameters.get(name).copied()
                    }
                })
            })
        }
    }
}

fn point(figure: &Figure, across: &str) -> Option<Point> {
    let across = figure.parameters.get(across).copied();
    if across.is_none() && figure.origin != Origin::Limit {
        return None;
    }
    let summary = statistics::summary(figure)?;
    let range = summary.spread.map(|_| (summary.minimum, summary.maximum));
    Some(Point { across, value: summary.value, range, count: summary.count })
}

/// The parameters of a set that others among `all` have differently.
pub fn describe(set: &Others, all: &[Others]) -> String {
    let differs =
        |name: &String, value: &f64| all.iter().any(|other| other.get(name) != Some(value));
    let parts = set.iter().filter(|(name, value)| differs(name, value));
    parts.map(|(n, v)| format!("{n} {}", numbers::parameter(n, *v))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
