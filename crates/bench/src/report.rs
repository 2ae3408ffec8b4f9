//! Showing a report: as tables, for programs, as a page with plots, as a workbook.
//!
//! [`table`] lays figures out in rows and columns; everything else prints those, and [`csv`] and
//! [`saved`] give the figures themselves. [`growth`] is how they grow with servers. [`html`] is a page of plots and
//! tables, [`xlsx`] a workbook, [`spreadsheet`] what iozone prints for one.

pub mod csv;
mod grid;
pub mod growth;
pub mod html;
pub(crate) mod markup;
pub mod numbers;
pub(crate) mod plot;
pub mod saved;
pub mod spreadsheet;
pub mod table;
pub mod xlsx;

use crate::result::{Figure, Report};
use std::collections::HashSet;
use strake_types::Timestamp;

/// Between less than a lifetime of one byte and more than all computers together.
const POSSIBLE: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

/// What is wrong with a report that cannot be shown.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Unsound {
    /// Two sides cannot be told apart.
    #[error("two sides are called {0:?}")]
    TwoSides(String),
    /// A figure without samples.
    #[error("{test} of {side:?} has no samples")]
    NoSamples {
        /// The test.
        test: String,
        /// Whose.
        side: String,
    },
    /// A sample or a parameter that nobody has measured.
    #[error("{test} of {side:?} holds {value:e}, which cannot have been measured")]
    Impossible {
        /// The test.
        test: String,
        /// Whose.
        side: String,
        /// The number.
        value: f64,
    },
    /// Two figures of the same thing.
    #[error("{test} of {side:?} is there twice with the same parameters")]
    Twice {
        /// The test.
        test: String,
        /// Whose.
        side: String,
    },
}

/// Says whether a report can be shown: names that tell things apart, samples that are numbers.
pub fn check(report: &Report) -> Result<(), Unsound> {
    let mut sides = HashSet::new();
    for side in &report.sides {
        if !sides.insert(&side.name) {
            return Err(Unsound::TwoSides(side.name.clone()));
        }
    }
    let mut figures = HashSet::new();
    for figure in &report.figures {
        let (test, side) = (figure.test.clone(), figure.side.clone());
        if figure.samples.is_empty() {
            return Err(Unsound::NoSamples { test, side });
        }
        let mut numbers = figure.samples.iter().chain(figure.parameters.values());
        if let Some(&value) = numbers.find(|number| !is_possible(**number)) {
            return Err(Unsound::Impossible { test, side, value });
        }
        if !figures.insert(identity(figure)) {
            return Err(Unsound::Twice { test, side });
        }
    }
    Ok(())
}

/// True for numbers that something can be measured as; all arithmetic with them ends well.
fn is_possible(number: f64) -> bool {
    number == 0.0 || POSSIBLE.contains(&number)
}

/// A time in seconds since 1970 as people write it, in UTC.
pub fn moment(seconds: u64) -> String {
    Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }.minute()
}

/// What tells a figure from all others of its report.
fn identity(figure: &Figure) -> (&str, u8, &str, u8, Vec<(&str, u64)>) {
    let parameters = figure.parameters.iter().map(|(name, value)| (name.as_str(), value.to_bits()));
    let (origin, unit) = (figure.origin as u8, figure.unit as u8);
    (&figure.side, origin, &figure.test, unit, parameters.collect())
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
