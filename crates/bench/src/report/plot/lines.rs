//! A plot with lines, as SVG. Colours are classes of the page's style sheet, so that one drawing
//! serves light and dark; what tells sides apart is mark and label too, never colour alone.

use super::axis::Axis;
use super::{Look, Plot, Point, Series, Width};
use crate::report::markup::{Markup, Px, path, shortened};
use crate::report::numbers;
use crate::result::Origin;

/// Width of a character in parts of the font's size, on the average of texts here.
const CHARACTER: f64 = 0.56;
/// Most characters of a label beside a line; the legend has all of it.
const LABEL_CHARACTERS_MAX: usize = 30;
/// Half the size of a mark.
const MARK: f64 = 4.2;
/// Distance of the outermost points from the ends of the horizontal axis.
const INSET: f64 = 14.0;

/// Where things lie in a drawing.
struct Frame {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    font: f64,
}

/// A plot with its axes in their frame.
struct Drawing<'a> {
    plot: &'a Plot,
    frame: Frame,
    wide: bool,
    x: Axis,
    y: Axis,
}

/// A label that wants to stand at some height.
struct Label {
    text: String,
    class: String,
    /// Where its line ends.
    from: (f64, f64),
    /// Where it stands.
    y: f64,
}

/// Draws a plot whose points have at least two places along the axis.
pub fn draw(plot: &Plot, width: Width) -> Markup {
    let wide = width == Width::Wide;
    let drawing = Drawing {
        x: Axis::horizontal(&plot.across, &plot.positions(), plot.doubling),
        y: match plot.ceiling {
            Some(ceiling) => Axis::from_zero(ceiling / plot.scale.factor),
            None => Axis::vertical(plot.values().map(|value| value / plot.scale.factor)),
        },
        frame: frame(plot, wide),
        plot,
        wide,
    };
    drawing.svg()
}

fn frame(plot: &Plot, wide: bool) -> Frame {
    let (width, height, font) = if wide { (900.0, 400.0, 13.0) } else { (350.0, 300.0, 12.0) };
    let longest =
        plot.series.iter().map(|s| shortened(&s.label, LABEL_CHARACTERS_MAX).chars().count()).max();
    let labels = longest.unwrap_or(0) as f64 * font * CHARACTER + 30.0;
    let right = if wide { width - labels } else { width - 8.0 };
    let (left, bottom) = if wide { (58.0, height - 48.0) } else { (44.0, height - 42.0) };
    Frame { width, height, left, right, top: 38.0, bottom, font }
}

impl Drawing<'_> {
    fn svg(&self) -> Markup {
        let Frame { width, height, .. } = self.frame;
        let mut svg = Markup::default();
        let names: Vec<_> = self.plot.series.iter().map(|s| s.label.as_str()).collect();
        let about = format!(
            "{} by {}: {}. The table below has all figures.",
            self.plot.scale.label,
            self.plot.across,
            names.join(", ")
        );
        let class = if self.wide { "plot wide" } else { "plot narrow" };
        let view = format!("0 0 {width} {height}");
        svg.open(
            "svg",
            &[("class", &class), ("viewBox", &view), ("role", &"img"), ("aria-label", &about)],
        );
        self.vertical(&mut svg);
        self.horizontal(&mut svg);
        for series in self.in_order() {
            self.line(&mut svg, series);
        }
        for series in self.in_order() {
            self.marks(&mut svg, series);
        }
        if self.wide {
            self.labels_beside(&mut svg)
        } else {
            self.labels_on_limits(&mut svg)
        }
        svg.close("svg").line();
        svg
    }

    /// What lies beneath first: limits, then studies, then what was measured, the first side on top.
    fn in_order(&self) -> impl Iterator<Item = &Series> {
        let of = |origin| self.plot.series.iter().rev().filter(move |s| s.origin == origin);
        of(Origin::Limit).chain(of(Origin::Published)).chain(of(Origin::Measured))
    }

    fn place(&self, across: f64, value: f64) -> (f64, f64) {
        let Frame { left, right, .. } = self.frame;
        let inner = right - left - 2.0 * INSET;
        (left + INSET + self.x.place(across) * inner, self.y_of(value))
    }

    fn y_of(&self, value: f64) -> f64 {
        let Frame { top, bottom, .. } = self.frame;
        bottom - self.y.place(value / self.plot.scale.factor) * (bottom - top)
    }

    fn vertical(&self, svg: &mut Markup) {
        let Frame { left, right, top, bottom, font, .. } = self.frame;
        for (value, text) in &self.y.marks {
            let y = bottom - self.y.place(*value) * (bottom - top);
            let class = if *value == self.y.low { "axis" } else { "grid" };
            svg.path(&[("class", &class), ("d", &path(&[(left, y), (right, y)]))]);
            let place: [(&'static str, &dyn std::fmt::Display); 4] = [
                ("class", &"mark"),
                ("x", &Px(left - 8.0)),
                ("y", &Px(y + font * 0.35)),
                ("text-anchor", &"end"),
            ];
            svg.element("text", &place, text);
        }
        let mut title = self.plot.scale.label.to_owned();
        if self.y.logarithmic {
            title += ", logarithmic";
        }
        if self.plot.less_is_better {
            title += ", less is better";
        }
        svg.element("text", &[("class", &"title"), ("x", &2), ("y", &Px(top - 22.0))], title);
    }

    fn horizontal(&self, svg: &mut Markup) {
        let Frame { left, right, bottom, font, .. } = self.frame;
        svg.path(&[("class", &"axis"), ("d", &path(&[(left, bottom), (right, bottom)]))]);
        let mut free_from = f64::NEG_INFINITY;
        for (value, text) in &self.x.marks {
            let (x, _) = self.place(*value, self.plot.scale.factor);
            svg.path(&[("class", &"axis"), ("d", &path(&[(x, bottom), (x, bottom + 4.0)]))]);
            let half = text.chars().count() as f64 * font * CHARACTER / 2.0;
            if x - half < free_from {
                continue;
            }
            free_from = x + half + font * 0.5;
            let place: [(&'static str, &dyn std::fmt::Display); 4] = [
                ("class", &"mark"),
                ("x", &Px(x)),
                ("y", &Px(bottom + font + 7.0)),
                ("text-anchor", &"middle"),
            ];
            svg.element("text", &place, text);
        }
        let place: [(&'static str, &dyn std::fmt::Display); 4] = [
            ("class", &"title"),
            ("x", &Px(f64::midpoint(left, right))),
            ("y", &Px(bottom + 2.0 * font + 13.0)),
            ("text-anchor", &"middle"),
        ];
        svg.element("text", &place, &self.plot.across);
    }

    /// The points of a series on the paper; a limit without places reaches over all of it.
    fn on_paper(&self, series: &Series) -> Vec<(f64, f64)> {
        let Frame { left, right, .. } = self.frame;
        series
            .points
            .iter()
            .flat_map(|point| match point.across {
                Some(across) => vec![self.place(across, point.value)],
                None => vec![(left, self.y_of(point.value)), (right, self.y_of(point.value))],
            })
            .collect()
    }

    fn line(&self, svg: &mut Markup, series: &Series) {
        let class = format!("line {}", class_of(series));
        for piece in below(&self.on_paper(series), self.frame.top) {
            svg.path(&[("class", &class), ("d", &path(&piece))]);
        }
    }

    fn marks(&self, svg: &mut Markup, series: &Series) {
        for point in &series.points {
            let Some(across) = point.across else { continue };
            let (x, y) = self.place(across, point.value);
            if y < self.frame.top {
                continue;
            }
            svg.open("g", &[("class", &class_of(series))]);
            svg.element("title", &[], self.tip(series, point, across));
            if let Some((low, high)) = point.range {
                self.whisker(svg, x, (self.y_of(low), self.y_of(high).max(self.frame.top)));
            }
            svg.path(&[("class", &"dot"), ("d", &mark(series.look, x, y))]);
            svg.close("g");
        }
    }

    /// From the smallest to the largest sample.
    fn whisker(&self, svg: &mut Markup, x: f64, (low, high): (f64, f64)) {
        // What would lie behind the mark says nothing.
        if low - high < 2.0 * MARK {
            return;
        }
        let ends = [low, high].map(|y| path(&[(x - 3.5, y), (x + 3.5, y)]));
        let shape = path(&[(x, low), (x, high)]) + &ends.concat();
        svg.path(&[("class", &"whisker"), ("d", &shape)]);
    }

    fn tip(&self, series: &Series, point: &Point, across: f64) -> String {
        let scale = &self.plot.scale;
        let at = numbers::parameter(&self.plot.across, across);
        let mut text = format!(
            "{}, {} {at}: {} {}",
            series.label,
            self.plot.across,
            scale.show(point.value),
            scale.label
        );
        if let Some((low, high)) = point.range {
            let (low, high, count) = (scale.show(low), scale.show(high), point.count);
            text += &format!(" ({low} to {high}, {count} samples)");
        }
        text
    }

    /// A label at the right end of each line, moved apart where they would overlap.
    fn labels_beside(&self, svg: &mut Markup) {
        let Frame { right, top, bottom, font, .. } = self.frame;
        let mut labels = Vec::new();
        for series in &self.plot.series {
            let Some(&from) = self.on_paper(series).last().filter(|(_, y)| *y >= top) else {
                continue;
            };
            let text = shortened(&series.label, LABEL_CHARACTERS_MAX);
            labels.push(Label { text, class: class_of(series), from, y: from.1 });
        }
        labels.sort_by(|a, b| a.y.total_cmp(&b.y));
        move_apart(&mut labels, font * 1.3, top, bottom);
        for label in labels {
            let begin = right + 22.0;
            let (x, y) = label.from;
            let bend = [(x + MARK + 3.0, y), (right + 8.0, y), (begin - 5.0, label.y)];
            let class = format!("leader {}", label.class);
            svg.path(&[("class", &class), ("d", &path(&bend))]);
            let class = format!("label {}", label.class);
            let y = Px(label.y + font * 0.35);
            svg.element("text", &[("class", &class), ("x", &Px(begin)), ("y", &y)], label.text);
        }
    }

    /// Where no room is beside the lines, the legend names them, and limits are named on their
    /// lines, at the place with the fewest points of other lines beneath.
    fn labels_on_limits(&self, svg: &mut Markup) {
        let Frame { left, right, top, font, .. } = self.frame;
        for series in self.plot.series.iter().filter(|s| s.origin == Origin::Limit) {
            let points = self.on_paper(series);
            let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
            let text = shortened(&series.label, LABEL_CHARACTERS_MAX);
            let width = text.chars().count() as f64 * font * CHARACTER;
            let middle = f64::midpoint(left, right) - width / 2.0;
            let starts = [(right - width - 4.0, last.1), (middle, last.1), (left + 6.0, first.1)];
            let places = starts.iter().flat_map(|(x, y)| [(*x, y - 6.0), (*x, y + font + 2.0)]);
            let free = |place: &(f64, f64)| self.points_beneath(*place, width);
            let inside = places.filter(|(_, y)| *y > top + font && *y < self.frame.bottom - 2.0);
            let Some((x, y)) = inside.min_by_key(free) else { continue };
            let class = format!("label {}", class_of(series));
            svg.element("text", &[("class", &class), ("x", &Px(x)), ("y", &Px(y))], text);
        }
    }

    /// How many places on lines lie beneath a text that begins at a place.
    fn points_beneath(&self, (x, y): (f64, f64), width: f64) -> usize {
        let font = self.frame.font;
        let lines = self.plot.series.iter().filter(|s| s.origin != Origin::Limit);
        let beneath = |(px, py): &(f64, f64)| {
            (x - 4.0..x + width + 4.0).contains(px) && (y - font..y + 4.0).contains(py)
        };
        lines.flat_map(|s| along(&self.on_paper(s))).filter(beneath).count()
    }
}

/// Points along a line, close to each other.
fn along(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let between = points.windows(2).flat_map(|ends| {
        let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
        (0..16)
            .map(move |n| f64::from(n) / 16.0)
            .map(move |t| (x0 + t * (x1 - x0), y0 + t * (y1 - y0)))
    });
    between.chain(points.last().copied()).collect()
}

/// The pieces of a line that are not above a height.
fn below(points: &[(f64, f64)], top: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    for ends in points.windows(2) {
        let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
        let crossing = (x0 + (top - y0) / (y1 - y0) * (x1 - x0), top);
        match (y0 >= top, y1 >= top, pieces.last_mut()) {
            (true, true, Some(piece)) if piece.last() == Some(&ends[0]) => piece.push(ends[1]),
            (true, true, _) => pieces.push(ends.to_vec()),
            (true, false, Some(piece)) if piece.last() == Some(&ends[0]) => piece.push(crossing),
            (true, false, _) => pieces.push(vec![ends[0], crossing]),
            (false, true, _) => pieces.push(vec![crossing, ends[1]]),
            (false, false, _) => {}
        }
    }
    pieces
}

/// Moves sorted labels so that none overlaps the next and all stay between two heights.
fn move_apart(labels: &mut [Label], distance: f64, top: f64, bottom: f64) {
    let mut least = top;
    for label in labels.iter_mut() {
        label.y = label.y.max(least);
        least = label.y + distance;
    }
    let mut most = bottom;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(most);
        most = label.y - distance;
    }
}

/// The classes of a series.
pub fn class_of(series: &Series) -> String {
    match series.origin {
        Origin::Measured => format!("c{}", series.look.colour),
        Origin::Published => format!("c{} published", series.look.colour),
        Origin::Limit => "limit".into(),
    }
}

/// The outline of a mark around a place: circle, square, triangle, diamond, triangle on its head,
/// hexagon.
pub fn mark(look: Look, x: f64, y: f64) -> String {
    // Corners on a circle: how many, at which angle the first, and how far out.
    let (corners, turn, size) = match look.mark % 6 {
        0 => (24, 0.0, MARK),
        1 => (4, 0.125, MARK * 1.3),
        2 => (3, 0.25, MARK * 1.45),
        3 => (4, 0.0, MARK * 1.4),
        4 => (3, 0.75, MARK * 1.45),
        _ => (6, 0.0, MARK * 1.15),
    };
    let corner = |n: i32| {
        let angle = (f64::from(n) / f64::from(corners) + turn) * std::f64::consts::TAU;
        (x + size * angle.cos(), y - size * angle.sin())
    };
    path(&(0..corners).map(corner).collect::<Vec<_>>()) + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_it_leaves_the_paper() {
        let line = [(0.0, 0.0), (1.0, 20.0), (2.0, 30.0), (3.0, 0.0), (4.0, 5.0), (5.0, 15.0)];
        let pieces = below(&line, 10.0);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0][..3], [(0.5, 10.0), (1.0, 20.0), (2.0, 30.0)]);
        assert_eq!(pieces[1], [(4.5, 10.0), (5.0, 15.0)]);
        assert_eq!(below(&line[..2], 30.0), Vec::<Vec<(f64, f64)>>::new());
    }

    #[test]
    fn labels_do_not_overlap_and_stay_on_the_paper() {
        let label = |y: f64| Label { text: String::new(), class: String::new(), from: (0.0, y), y };
        let mut labels = [10.0, 11.0, 11.0, 95.0, 96.0].map(label);
        move_apart(&mut labels, 15.0, 20.0, 100.0);
        let at: Vec<f64> = labels.iter().map(|label| label.y).collect();
        assert_eq!(at, [20.0, 35.0, 50.0, 85.0, 100.0]);
    }
}
