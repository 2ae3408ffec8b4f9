//! Study 1: iozone's write, rewrite, read and reread of files of 2 to 256 MB over two servers behind
//! links of 100 Mbit/s. 25 repetitions, the largest and the smallest dropped, the mean of the rest.
//!
//! It runs both ways: as the study did, where caches may answer; and with `close` and `fsync` inside
//! the timing and cold caches before reads, where everything must cross the link. The study does not
//! say how large its records were; they are 1 MiB here.

use super::published::{STUDY_1, STUDY_1_SIDES, STUDY_1_TESTS, figure};
use super::{FAST_ETHERNET, Options, Setting};
use crate::error::{Error, Result};
use crate::iozone::{self, Test};
use crate::plan::Plan;
use crate::result::{Figure, Rule};
use crate::work::file::Ending;

/// Repetitions of the study.
const REPETITIONS: usize = 25;
/// Repetitions of a quick run.
const QUICK_REPETITIONS: usize = 3;
/// Sizes are 2 to the n megabytes.
const EXPONENTS: std::ops::RangeInclusive<u32> = 1..=8;
/// Those of a quick run.
const QUICK_EXPONENTS: [u32; 3] = [1, 3, 5];
/// Bytes of a record.
const RECORD: u64 = 1 << 20;
/// What a reader of the figures must know.
const NOTES: [&str; 2] = [
    "records are 1 MiB here: the study does not say how large its were",
    "the study's figures stand beside both ways of timing; it had neither close nor fsync in its timing",
];

/// Two servers behind 100 Mbit/s.
pub fn settings() -> Vec<Setting> {
    vec![Setting { servers: 2, link: Some(FAST_ETHERNET), disk: None, chunk_size: None }]
}

/// What it does.
pub fn plan(options: &Options) -> Result<Plan> {
    let chosen = &options.part.sizes;
    let mut exponents: Vec<u32> = match options.quick && chosen.is_empty() {
        true => QUICK_EXPONENTS.to_vec(),
        false => EXPONENTS.collect(),
    };
    exponents.retain(|exponent| chosen.is_empty() || chosen.contains(&size(*exponent)));
    if exponents.is_empty() {
        return Err(Error::usage("--sizes: study 1 has files of 2M, 4M, 8M, ... 256M"));
    }
    let mut plan = Plan::new("");
    for exponent in &exponents {
        for crossing in [false, true] {
            plan.cells.extend(iozone::plan(&tests(options, size(*exponent), crossing)?)?.cells);
        }
    }
    plan.repetitions = if options.quick { QUICK_REPETITIONS } else { REPETITIONS };
    plan.rule = Rule::TrimmedMean;
    plan.chart_each_test(&["size"], true);
    let tests: Vec<String> = plan.charts.iter().map(|chart| chart.test.clone()).collect();
    plan.published = exponents.iter().flat_map(|n| published(*n, &tests)).collect();
    plan.notes = NOTES.map(str::to_owned).into();
    Ok(plan)
}

fn size(exponent: u32) -> u64 {
    1 << (20 + exponent)
}

fn tests(options: &Options, size: u64, crossing: bool) -> Result<iozone::Options> {
    let mut tests = Test::select("0")?;
    tests.extend(Test::select("1")?);
    Ok(iozone::Options {
        tests,
        sizes: vec![(size, vec![RECORD])],
        ending: Ending { flush: crossing, close: crossing },
        cold: crossing,
        protocol: options.protocol(1),
        ..iozone::Options::default()
    })
}

/// The study's figures of a size, beside every test that is one of its own, however it ends.
fn published(exponent: u32, tests: &[String]) -> Vec<Figure> {
    let row = STUDY_1[exponent as usize - 1];
    let parameters = [("size", size(exponent) as f64)];
    let mut figures = Vec::new();
    for (at, speed) in row.into_iter().enumerate() {
        let (side, test) = (at / STUDY_1_TESTS.len(), at % STUDY_1_TESTS.len());
        let of = STUDY_1_TESTS[test];
        let is_one = |test: &&String| *test == of || test.starts_with(&format!("{of} "));
        for test in tests.iter().filter(is_one) {
            figures.push(figure(STUDY_1_SIDES[side], test, &parameters, speed));
        }
    }
    figures
}
