//! Ratios as a forest plot: a row for each, its interval a line on one logarithmic axis, its value a
//! mark on the line; left of 1 is less than before, right of it more.

use super::Row;
use crate::report::html::class_of_verdict;
use crate::report::markup::{Markup, Px, path, shortened};
use crate::report::plot::Width;

/// Most rows that are drawn; the table has all.
const ROWS_MAX: usize = 80;
/// The axis reaches at least this far to both sides of 1...
const REACH_MIN: f64 = 1.25;
/// ...and at most so far; what lies beyond ends at its edge.
const REACH_MAX: f64 = 1e6;
/// Air beyond the widest interval.
const AIR: f64 = 1.04;
/// Room below the rows for the axis.
const AXIS_HEIGHT: f64 = 40.0;
/// Marks above 1 for axes that reach a little; each has its inverse below 1.
const NEAR_MARKS: &[(f64, &[f64])] = &[
    (1.5, &[0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4]),
    (2.6, &[0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 2.5]),
    (12.0, &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]),
];
/// Marks on an axis of powers of ten, about.
const DECADES: f64 = 6.0;

/// Rows to be drawn on one axis.
pub struct Forest<'a> {
    /// Rows with what is written beside them; not more than are drawn.
    rows: Vec<(&'a Row, &'a str)>,
    /// How many rows there are beside those drawn.
    pub left_out: usize,
    /// The axis is from 1 / reach to reach.
    reach: f64,
}

/// Where things are on one of the two drawings.
struct Paper {
    wide: bool,
    all: f64,
    font: f64,
    row: f64,
    /// From where to where the axis goes.
    axis: (f64, f64),
    /// Characters of a label.
    label_max: usize,
}

impl<'a> Forest<'a> {
    /// Of rows with their labels.
    pub fn of(rows: &[&'a Row], labels: &'a [String]) -> Self {
        let left_out = rows.len().saturating_sub(ROWS_MAX);
        let all = rows.iter().copied().zip(labels.iter().map(String::as_str));
        let rows: Vec<_> = all.take(ROWS_MAX).collect();
        let ends = rows.iter().filter_map(|(row, _)| row.ratio).flat_map(|ratio| {
            let (low, high) = ratio.interval.unwrap_or((ratio.value, ratio.value));
            [low, high, ratio.value]
        });
        let away = ends.filter(|end| *end > 0.0).map(|end| end.max(1.0 / end) * AIR);
        let reach = away.fold(REACH_MIN, f64::max).min(REACH_MAX);
        Self { rows, left_out, reach }
    }

    /// Draws them.
    pub fn draw(&self, width: Width) -> Markup {
        let paper = Paper::of(width);
        let bottom = self.rows.len() as f64 * paper.row + 6.0;
        let class = if paper.wide { "plot wide" } else { "plot narrow" };
        let view = format!("0 0 {} {}", paper.all, Px(bottom + AXIS_HEIGHT));
        let about = "Ratios of the table below with their intervals";
        let mut svg = Markup::default();
        svg.open(
            "svg",
            &[("class", &class), ("viewBox", &view), ("role", &"img"), ("aria-label", &about)],
        );
        self.axis(&mut svg, &paper, bottom);
        for (at, (row, label)) in self.rows.iter().enumerate() {
            self.row(&mut svg, &paper, (row, label), at as f64 * paper.row);
        }
        svg.close("svg").line();
        svg
    }

    /// Where a ratio lies.
    fn place(&self, paper: &Paper, ratio: f64) -> f64 {
        let within = ratio.clamp(1.0 / self.reach, self.reach);
        let share = (within.ln() / self.reach.ln() + 1.0) / 2.0;
        paper.axis.0 + share * (paper.axis.1 - paper.axis.0)
    }

    fn marks(&self) -> Vec<f64> {
        let within = |mark: &f64| (1.0 / self.reach..=self.reach).contains(mark);
        let near = NEAR_MARKS.iter().find(|(reach, _)| self.reach <= *reach);
        if let Some((_, marks)) = near {
            return marks.iter().copied().filter(within).collect();
        }
        let decades = self.reach.log10().floor() as i32;
        let step = (f64::from(decades) * 2.0 / DECADES).ceil().max(1.0) as i32;
        let powers = (-decades..=decades).filter(|power| power % step == 0);
        powers.map(|power| 10_f64.powi(power)).collect()
    }

    fn axis(&self, svg: &mut Markup, paper: &Paper, bottom: f64) {
        for mark in self.marks() {
            let x = self.place(paper, mark);
            let class = if mark == 1.0 { "axis" } else { "grid" };
            svg.path(&[("class", &class), ("d", &path(&[(x, 0.0), (x, bottom)]))]);
            // As short as it can be written: 0.7, 1, 100.
            let text = format!("{mark}");
            let y = Px(bottom + paper.font + 2.0);
            svg.element(
                "text",
                &[("class", &"mark"), ("x", &Px(x)), ("y", &y), ("text-anchor", &"middle")],
                text,
            );
        }
        let middle = self.place(paper, 1.0);
        let y = Px(bottom + 2.0 * paper.font + 7.0);
        for (x, anchor, text) in
            [(middle - 12.0, "end", "← less than before"), (middle + 12.0, "start", "more →")]
        {
            svg.element(
                "text",
                &[("class", &"mark"), ("x", &Px(x)), ("y", &y), ("text-anchor", &anchor)],
                text,
            );
        }
    }

    fn row(&self, svg: &mut Markup, paper: &Paper, (row, label): (&Row, &str), top: f64) {
        let less = if row.unit.less_is_better() { " (less is better)" } else { "" };
        let base = top + paper.font + 1.0;
        svg.open("g", &[("class", &class_of_verdict(row.verdict))]);
        let ratio = match row.ratio {
            Some(_) => format!("× {}", row.ratio_shown()),
            None => "–".to_owned(),
        };
        svg.element("title", &[], format!("{label}{less}: {ratio}, {}", row.verdict.words()));
        let text = shortened(&format!("{label}{less}"), paper.label_max);
        svg.element("text", &[("class", &"name"), ("x", &0), ("y", &Px(base))], text);
        // On a phone the label has a line of its own.
        let middle = if paper.wide { base - paper.font * 0.35 } else { base + paper.font + 1.0 };
        let words = match (paper.wide, row.verdict) {
            (true, verdict) => format!("{ratio} {} {}", verdict.sign(), verdict.words()),
            (false, verdict) => format!("{ratio} {}", verdict.sign()),
        };
        let (x, y) = (Px(paper.axis.1 + 12.0), Px(middle + paper.font * 0.35));
        svg.element("text", &[("class", &"label"), ("x", &x), ("y", &y)], words);
        if let Some(ratio) = row.ratio {
            if let Some((low, high)) = ratio.interval {
                let (low, high) = (self.place(paper, low), self.place(paper, high));
                let cap = |x: f64| path(&[(x, middle - 4.0), (x, middle + 4.0)]);
                let line = path(&[(low, middle), (high, middle)]) + &cap(low) + &cap(high);
                svg.path(&[("class", &"whisker"), ("d", &line)]);
            }
            let (x, r) = (self.place(paper, ratio.value), 4.5);
            let corners = [(x - r, middle), (x, middle - r), (x + r, middle), (x, middle + r)];
            svg.path(&[("class", &"dot"), ("d", &(path(&corners) + "Z"))]);
        }
        svg.close("g");
    }
}

impl Paper {
    fn of(width: Width) -> Self {
        match width {
            Width::Wide => Self {
                wide: true,
                all: 900.0,
                font: 13.0,
                row: 24.0,
                axis: (335.0, 670.0),
                label_max: 48,
            },
            Width::Narrow => Self {
                wide: false,
                all: 350.0,
                font: 12.0,
                row: 40.0,
                axis: (4.0, 262.0),
                label_max: 50,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Unit;
    use crate::statistics::{Ratio, Summary, Verdict};

    fn row(value: f64, interval: Option<(f64, f64)>) -> Row {
        let summary = Summary {
            value,
            count: 5,
            minimum: value,
            maximum: value,
            deviation: None,
            spread: None,
        };
        Row {
            test: "t".into(),
            side: "s".into(),
            parameters: Default::default(),
            unit: Unit::BytesPerSecond,
            first: summary,
            second: summary,
            ratio: Some(Ratio { value, interval }),
            verdict: Verdict::TooNoisy,
        }
    }

    #[test]
    fn the_axis_holds_the_widest_interval_and_1_is_in_its_middle() {
        for (value, interval) in [
            (1.0, Some((0.99, 1.01))),
            (1.3, Some((0.4, 1.6))),
            (0.2, Some((0.001, 0.5))),
            (1e9, None),
            (0.0, Some((0.0, 2.0))),
        ] {
            let row = row(value, interval);
            let labels = ["label".to_owned()];
            let forest = Forest::of(&[&row], &labels);
            for width in [Width::Wide, Width::Narrow] {
                let paper = Paper::of(width);
                let (low, high) = interval.unwrap_or((value, value));
                let places = [low, value, high].map(|ratio| forest.place(&paper, ratio));
                assert!(places.is_sorted(), "{places:?}");
                // To a thousandth of a pixel: logarithms are rounded.
                let (left, right) = (paper.axis.0 - 1e-3, paper.axis.1 + 1e-3);
                assert!(places.iter().all(|x| (left..=right).contains(x)), "{places:?}");
                let middle = (paper.axis.0 + paper.axis.1) / 2.0;
                assert!((forest.place(&paper, 1.0) - middle).abs() < 1e-9);
            }
            let marks = forest.marks();
            assert!((3..=9).contains(&marks.len()) && marks.contains(&1.0), "{marks:?}");
        }
    }

    #[test]
    fn rows_that_are_too_many_are_counted() {
        let row = row(1.0, None);
        let (rows, labels) = (vec![&row; 100], vec!["l".to_owned(); 100]);
        assert_eq!(Forest::of(&rows, &labels).left_out, 20);
    }
}
