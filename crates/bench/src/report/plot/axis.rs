//! Axes: from values to places, and the marks along them.

use crate::report::numbers::{self, number};

/// Values that reach over more than this are drawn on a logarithmic axis.
const LOGARITHMIC_FROM: f64 = 25.0;
/// Marks wanted on an axis, about.
const MARKS: f64 = 5.0;

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// True where equal factors have equal lengths.
    pub logarithmic: bool,
    /// The value at the beginning.
    pub low: f64,
    /// The value at the end.
    pub high: f64,
    /// Values with a mark, and what is written there.
    pub marks: Vec<(f64, String)>,
}

impl Axis {
    /// True where values reach too far for an axis from zero.
    pub fn reaches_far(values: impl Iterator<Item = f64> + Clone) -> bool {
        let largest = values.clone().fold(0.0, f64::max);
        let smallest = values.fold(f64::INFINITY, f64::min);
        smallest > 0.0 && largest / smallest > LOGARITHMIC_FROM
    }

    /// The vertical axis for values that are not negative: from zero, or logarithmic where they
    /// reach far and none is zero.
    pub fn vertical(values: impl Iterator<Item = f64> + Clone) -> Self {
        let largest = values.clone().fold(0.0, f64::max);
        let smallest = values.clone().fold(f64::INFINITY, f64::min);
        match Self::reaches_far(values) {
            true => Self::decades(smallest, largest),
            false => Self::from_zero(largest),
        }
    }

    /// From zero to a round number.
    pub fn from_zero(largest: f64) -> Self {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = round_step(largest / MARKS);
        // A little air above the highest point.
        let count = (largest * 1.02 / step).ceil() as i32;
        let marks = (0..=count).map(|at| f64::from(at) * step).map(|v| (v, short(v)));
        Self { logarithmic: false, low: 0.0, high: f64::from(count) * step, marks: marks.collect() }
    }

    /// A logarithmic axis between round numbers.
    fn decades(smallest: f64, largest: f64) -> Self {
        let low = *round_numbers(smallest / 100.0, smallest * 0.92).last().unwrap_or(&smallest);
        let high = *round_numbers(largest * 1.08, largest * 100.0).first().unwrap_or(&largest);
        let all = round_numbers(low, high);
        let is_decade = |value: &f64| (value.log10() - value.log10().round()).abs() < 1e-9;
        let marks: Vec<f64> = match (high / low).log10() {
            span if span <= 3.4 => all,
            span => {
                let every = (span / 7.0).ceil() as i32;
                let decade = |v: &f64| v.log10().round() as i32 % every == 0;
                all.into_iter().filter(|v| is_decade(v) && decade(v)).collect()
            }
        };
        let marks = marks.into_iter().map(|v| (v, short(v))).collect();
        Self { logarithmic: true, low, high, marks }
    }

    /// The horizontal axis of a parameter, with a mark at each of its values: sorted, at least two.
    pub fn horizontal(name: &str, values: &[f64], doubling: bool) -> Self {
        let (low, high) = (values[0], values[values.len() - 1]);
        let marks = values.iter().map(|v| (*v, numbers::parameter(name, *v))).collect();
        Self { logarithmic: doubling && low > 0.0, low, high, marks }
    }

    /// Where a value lies: 0 at the beginning, 1 at the end.
    pub fn place(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps.iter().map(|step| step * power).find(|step| *step >= least * 0.999);
    step.unwrap_or(least)
}

/// 1, 2 and 5 times powers of ten between two values.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let first = low.log10().floor() as i32 - 1;
    let last = high.log10().ceil() as i32 + 1;
    let numbers = (first..=last).flat_map(|power| {
        [1.0, 2.0, 5.0].map(|digit| format!("{digit}e{power}").parse().unwrap_or(f64::NAN))
    });
    numbers.filter(|n: &f64| *n >= low * (1.0 - 1e-9) && *n <= high * (1.0 + 1e-9)).collect()
}

/// A round number without needless zeros.
fn short(value: f64) -> String {
    let text = number(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_short_reach_begins_at_zero() {
        let axis = Axis::vertical([10.4, 11.95].into_iter());
        assert_eq!(written(&axis), ["0", "2.5", "5", "7.5", "10", "12.5"]);
        assert_eq!((axis.place(0.0), axis.place(12.5)), (0.0, 1.0));
        let zero = Axis::vertical([0.0, 0.0].into_iter());
        assert_eq!(zero.place(0.0), 0.0);
        let with_zero = Axis::vertical([0.0, 1000.0].into_iter());
        assert!(!with_zero.logarithmic);
    }

    #[test]
    fn a_long_reach_is_logarithmic() {
        let axis = Axis::vertical([5.63, 253.0].into_iter());
        assert_eq!(written(&axis), ["5", "10", "20", "50", "100", "200", "500"]);
        assert!((axis.place(50.0) - 0.5).abs() < 1e-9);
        let wide = Axis::vertical([5.63, 3200.0].into_iter());
        let wanted = ["5", "10", "20", "50", "100", "200", "500", "1000", "2000", "5000"];
        assert_eq!(written(&wide), wanted);
        let decades = Axis::vertical([0.1, 3200.0].into_iter());
        assert_eq!(written(&decades), ["0.1", "1", "10", "100", "1000"]);
        let wider = Axis::vertical([1e-9, 1e9].into_iter());
        assert!(wider.marks.len() <= 8, "{:?}", wider.marks);
    }

    #[test]
    fn a_doubling_axis_has_equal_steps() {
        let axis = Axis::horizontal("size", &[1024.0, 2048.0, 4096.0], true);
        assert_eq!(written(&axis), ["1 KiB", "2 KiB", "4 KiB"]);
        assert!((axis.place(2048.0) - 0.5).abs() < 1e-9);
    }
}
