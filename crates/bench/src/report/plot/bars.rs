//! Bars: for figures that have no axis to be drawn along. Each row of a table is a group of bars, one
//! for each column, on one scale from zero.

use super::lines::class_of;
use super::{Look, Series, Width, look};
use crate::report::markup::{Markup, Px, path};
use crate::report::numbers;
use crate::report::table::{Cell, Column, Row, Table};
use crate::result::{Origin, Unit};
use std::collections::BTreeMap;

/// Most groups that are drawn; the table has all.
const GROUPS_MAX: usize = 24;
/// Height of a bar, and of one with the gap to the next.
const BAR: (f64, f64) = (15.0, 20.0);

/// What a drawing is made on.
struct Paper {
    wide: bool,
    font: f64,
    /// How long the longest bar is.
    reach: f64,
}

/// The rows of one unit, to be drawn on one scale.
pub struct Bars<'a> {
    /// The rows, not more than are drawn.
    pub rows: Vec<&'a Row>,
    /// The table they are of.
    pub table: &'a Table,
    /// All columns of the report, which decide the colours.
    pub columns: &'a [Column],
    /// How many rows there are beside those drawn.
    pub left_out: usize,
}

impl<'a> Bars<'a> {
    /// The rows of a table in one unit.
    pub fn of(table: &'a Table, columns: &'a [Column], unit: Unit) -> Self {
        let all: Vec<&Row> = table.rows.iter().filter(|row| row.unit == unit).collect();
        let left_out = all.len().saturating_sub(GROUPS_MAX);
        Self { rows: all.into_iter().take(GROUPS_MAX).collect(), table, columns, left_out }
    }

    /// Draws them.
    pub fn draw(&self, width: Width) -> Markup {
        let wide = width == Width::Wide;
        let (all, font) = if wide { (900.0, 13.0) } else { (350.0, 12.0) };
        // Room behind the longest bar for its figure, which is written in full.
        let paper = Paper { wide, font, reach: all - 118.0 };
        let heights: f64 = self.rows.iter().map(|row| self.height(row, &paper)).sum();
        let mut svg = Markup::default();
        let class = if wide { "plot wide" } else { "plot narrow" };
        let view = format!("0 0 {all} {}", Px(heights.max(1.0)));
        let about = "Bars of the figures in the table below";
        svg.open(
            "svg",
            &[("class", &class), ("viewBox", &view), ("role", &"img"), ("aria-label", &about)],
        );
        let mut top = 0.0;
        for row in &self.rows {
            self.group(&mut svg, row, top, &paper);
            top += self.height(row, &paper);
        }
        svg.close("svg").line();
        svg
    }

    /// The largest figure on the scale of a row: that of all rows in its unit.
    fn largest(&self) -> f64 {
        let cells = self.rows.iter().flat_map(|row| row.cells.iter().flatten());
        let largest = cells.map(|cell| cell.summary.value).fold(0.0, f64::max);
        if largest > 0.0 { largest } else { 1.0 }
    }

    fn group(&self, svg: &mut Markup, row: &Row, top: f64, paper: &Paper) {
        let less = if row.unit.less_is_better() { " (less is better)" } else { "" };
        let mut y = top;
        for (at, line) in self.title(row, paper).into_iter().enumerate() {
            y += paper.font + 2.0;
            let class = if at == 0 { "group" } else { "mark" };
            let less = if at == 0 { less } else { "" };
            let text = format!("{line}{less}");
            svg.element("text", &[("class", &class), ("x", &0), ("y", &Px(y))], text);
        }
        y += 7.0;
        for (cell, column) in row.cells.iter().zip(&self.table.columns) {
            let Some(cell) = cell else { continue };
            let class = class_of(&Series {
                label: String::new(),
                look: self.look(column),
                origin: column.origin,
                points: Vec::new(),
            });
            self.bar(svg, row, (cell, column), &class, (y, paper.reach, paper.font));
            y += BAR.1;
        }
    }

    /// The test, and the parameters that tell its rows apart: in one line, or in as many as a phone
    /// needs.
    fn title(&self, row: &Row, paper: &Paper) -> Vec<String> {
        let differing = self.differing(row);
        if paper.wide {
            let all = [row.test.clone()].into_iter().chain(differing);
            return vec![all.collect::<Vec<_>>().join(", ")];
        }
        let two = differing.chunks(2).map(|pair| pair.join(", "));
        [row.test.clone()].into_iter().chain(two).collect()
    }

    fn height(&self, row: &Row, paper: &Paper) -> f64 {
        let lines = self.title(row, paper).len() as f64;
        let bars = row.cells.iter().flatten().count() as f64;
        lines * (paper.font + 2.0) + 7.0 + bars * BAR.1 + 14.0
    }

    fn look(&self, column: &Column) -> Look {
        look(self.columns, column)
    }

    fn bar(
        &self,
        svg: &mut Markup,
        row: &Row,
        (cell, column): (&Cell, &Column),
        class: &str,
        (y, reach, font): (f64, f64, f64),
    ) {
        let along = |value: f64| (value / self.largest() * reach).clamp(0.0, reach);
        let end = along(cell.summary.value).max(1.5);
        svg.open("g", &[("class", &class)]);
        let value = row.scale.show(cell.summary.value);
        svg.element("title", &[], format!("{}: {value} {}", column.title(), row.scale.label));
        if column.origin == Origin::Limit {
            let middle = y + BAR.0 / 2.0;
            svg.path(&[("class", &"line"), ("d", &path(&[(0.0, middle), (end, middle)]))]);
            svg.path(&[("class", &"line"), ("d", &path(&[(end, y), (end, y + BAR.0)]))]);
        } else {
            let corners = [(0.0, y), (end, y), (end, y + BAR.0), (0.0, y + BAR.0)];
            svg.path(&[("class", &"bar"), ("d", &(path(&corners) + "Z"))]);
        }
        svg.close("g");
        let mut text_from = end;
        if cell.summary.spread.is_some() {
            let (low, high) = (along(cell.summary.minimum), along(cell.summary.maximum));
            let middle = y + BAR.0 / 2.0;
            let caps = [low, high].map(|x| path(&[(x, middle - 3.5), (x, middle + 3.5)])).concat();
            let shape = path(&[(low, middle), (high, middle)]) + &caps;
            svg.path(&[("class", &"spread"), ("d", &shape)]);
            text_from = end.max(high);
        }
        let text = format!("{value} {}", row.scale.label);
        let place = (Px(text_from + 7.0), Px(y + BAR.0 / 2.0 + font * 0.35));
        svg.element("text", &[("class", &"mark"), ("x", &place.0), ("y", &place.1)], text);
    }

    /// The parameters of a row that other rows have differently.
    fn differing(&self, row: &Row) -> Vec<String> {
        let same =
            |of: &BTreeMap<String, f64>, name: &String| of.get(name) == row.parameters.get(name);
        let differs =
            |name: &&String| self.table.rows.iter().any(|other| !same(&other.parameters, name));
        let names = row.parameters.keys().filter(differs);
        names
            .map(|name| format!("{name} {}", numbers::parameter(name, row.parameters[name])))
            .collect()
    }
}
