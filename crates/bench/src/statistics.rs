//! From samples to what may be said: one number, its spread, a ratio with its interval, a verdict.
//!
//! A ratio's interval is a bootstrap: both sides' samples are drawn again with replacement, each
//! drawing becomes one number by the figure's own rule, and the middle 95 % of the ratios are the
//! interval. (B. Efron, R. Tibshirani: An Introduction to the Bootstrap, 1993. For ratios of
//! measured speeds: T. Kalibera, R. Jones: Quantifying Performance Changes with Effect Size
//! Confidence Intervals, 2012.) With a handful of samples the plain percentiles are too narrow, so
//! they are moved out to where an interval by Student's t would have them (T. Hesterberg: What
//! Teachers Should Know about the Bootstrap, 2014, section 3.2: the expanded percentile interval).
//! The seed is fixed: the same samples always give the same interval.

use crate::result::{Figure, Rule, Unit};
use serde::Serialize;
use strake_base::random::SplitMix64;

/// Drawings of the bootstrap: enough for the fifth smallest of them to be the 0.1 % point.
const DRAWINGS: usize = 4000;
/// Samples that each side needs for an interval. With three and three, the best of one is above all
/// of the other in one of twenty cases without any difference.
pub const SAMPLES_MIN: usize = 4;
/// A difference below this is no difference to anybody, however sure.
const WORTH_SAYING: f64 = 0.01;
/// An interval that stays this near to 1 says that there is no difference; a wider one says nothing.
const CLOSE_ENOUGH: f64 = 0.05;
/// 97.5 % points of Student's t for 3, 4, ... 30 degrees of freedom.
const STUDENT: [f64; 28] = [
    3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
];

/// The samples of one figure, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The figure, by its rule.
    pub value: f64,
    /// How many samples there are, dropped ones too.
    pub count: usize,
    /// The smallest sample that the rule keeps.
    pub minimum: f64,
    /// The largest sample that the rule keeps.
    pub maximum: f64,
    /// The standard deviation of the kept samples; `None` of a single one.
    pub deviation: Option<f64>,
    /// (largest - smallest) / mean of the kept samples; `None` of a single one.
    pub spread: Option<f64>,
}

/// One figure divided by another of the same test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio of the two figures.
    pub value: f64,
    /// Where the ratio lies with 95 % confidence; `None` with too few samples.
    pub interval: Option<(f64, f64)>,
}

/// What the noise allows to say about a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better by at least a hundredth, and not by chance.
    Better,
    /// Worse by at least a hundredth, and not by chance.
    Worse,
    /// The interval holds 1 and is narrow.
    NoDifference,
    /// The interval holds 1 and much else.
    TooNoisy,
    /// There are too few samples for an interval.
    TooFew,
}

impl Verdict {
    /// All of them, the sure ones first.
    pub const ALL: [Verdict; 5] = [
        Verdict::Better,
        Verdict::Worse,
        Verdict::NoDifference,
        Verdict::TooNoisy,
        Verdict::TooFew,
    ];

    /// The verdict as one character.
    pub fn sign(self) -> &'static str {
        match self {
            Verdict::Better => "▲",
            Verdict::Worse => "▼",
            Verdict::NoDifference => "≈",
            Verdict::TooNoisy | Verdict::TooFew => "~",
        }
    }

    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference => "no difference seen",
            Verdict::TooNoisy => "too noisy",
            Verdict::TooFew => "too few samples",
        }
    }
}

/// Sums up a figure; `None` where it has no samples.
pub fn summary(figure: &Figure) -> Option<Summary> {
    let mut sorted = figure.samples.clone();
    let value = figure.rule.number(&mut sorted)?;
    sorted.sort_unstable_by(f64::total_cmp);
    let kept = figure.rule.kept(&sorted);
    let (minimum, maximum) = (*kept.first()?, *kept.last()?);
    let mean = mean(kept);
    let (deviation, spread) = match kept.len() {
        1 => (None, None),
        count => {
            let squares: f64 = kept.iter().map(|sample| (sample - mean).powi(2)).sum();
            let spread = (mean != 0.0).then(|| (maximum - minimum) / mean);
            (Some((squares / (count - 1) as f64).sqrt()), spread)
        }
    };
    Some(Summary { value, count: figure.samples.len(), minimum, maximum, deviation, spread })
}

/// Divides one figure by another; `None` where one has no samples or the second is zero.
pub fn ratio(of: &Figure, to: &Figure) -> Option<Ratio> {
    let (above, below) = (summary(of)?.value, summary(to)?.value);
    let value = (below != 0.0).then(|| above / below)?;
    let fewest = of.samples.len().min(to.samples.len());
    let interval = (fewest >= SAMPLES_MIN).then(|| bootstrap(of, to, fewest)).flatten();
    Some(Ratio { value, interval })
}

/// What may be said about a ratio of figures in a unit.
pub fn verdict(ratio: &Ratio, unit: Unit) -> Verdict {
    let Some((low, high)) = ratio.interval else { return Verdict::TooFew };
    if low > 1.0 || high < 1.0 {
        let more = low > 1.0;
        return match ((ratio.value - 1.0).abs() < WORTH_SAYING, more != unit.less_is_better()) {
            (true, _) => Verdict::NoDifference,
            (false, true) => Verdict::Better,
            (false, false) => Verdict::Worse,
        };
    }
    match low >= 1.0 - CLOSE_ENOUGH && high <= 1.0 + CLOSE_ENOUGH {
        true => Verdict::NoDifference,
        false => Verdict::TooNoisy,
    }
}

impl Rule {
    /// Makes one number of samples, whose order it may change; `None` of none. The bootstrap lives
    /// here, so nothing is sorted.
    fn number(self, samples: &mut [f64]) -> Option<f64> {
        let (count, sum) = (samples.len(), samples.iter().sum::<f64>());
        match self {
            _ if count == 0 => None,
            Rule::TrimmedMean if count > 2 => {
                let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
                let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                // What rounding leaves of an outlier must not carry the mean out of the rest.
                Some(((sum - least - most) / (count - 2) as f64).clamp(least, most))
            }
            Rule::Mean | Rule::TrimmedMean => Some(sum / count as f64),
            Rule::Median => {
                let (below, middle, _) = samples.select_nth_unstable_by(count / 2, f64::total_cmp);
                let before = below.iter().copied().max_by(f64::total_cmp);
                let even = count.is_multiple_of(2);
                Some(before.filter(|_| even).map_or(*middle, |other| f64::midpoint(other, *middle)))
            }
        }
    }

    /// The sorted samples that count: all, or all but the outermost two.
    fn kept(self, sorted: &[f64]) -> &[f64] {
        match (self, sorted.len()) {
            (Rule::TrimmedMean, count @ 3..) => &sorted[1..count - 1],
            _ => sorted,
        }
    }
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The interval of a ratio; `None` where drawings of zero leave it without an end.
fn bootstrap(of: &Figure, to: &Figure, fewest: usize) -> Option<(f64, f64)> {
    let mut random = SplitMix64::new(0x5EED_0F57_4A4B_E000);
    let mut drawn = (vec![0.0; of.samples.len()], vec![0.0; to.samples.len()]);
    let mut ratios = Vec::with_capacity(DRAWINGS);
    for _ in 0..DRAWINGS {
        draw(&mut random, &of.samples, &mut drawn.0);
        draw(&mut random, &to.samples, &mut drawn.1);
        let (above, below) = (of.rule.number(&mut drawn.0)?, to.rule.number(&mut drawn.1)?);
        ratios.push(above / below);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let outside = (tail(fewest) * DRAWINGS as f64) as usize;
    let ends = (ratios[outside], ratios[DRAWINGS - 1 - outside]);
    (ends.0.is_finite() && ends.1.is_finite()).then_some(ends)
}

/// The share of drawings to leave out at each end so that the interval is as wide as one by
/// Student's t: the normal distribution's tail beyond `t * sqrt(n / (n - 1))`.
fn tail(samples: usize) -> f64 {
    let student = STUDENT.get(samples - SAMPLES_MIN).copied().unwrap_or(1.96);
    let at = student * (samples as f64 / (samples - 1) as f64).sqrt();
    // M. Abramowitz, I. Stegun: Handbook of Mathematical Functions, 1964, 26.2.17; to within 1e-7.
    let t = 1.0 / (1.0 + 0.231_641_9 * at);
    let density = (-at * at / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let terms = [0.319_381_53, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    density * terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t)
}

fn draw(random: &mut SplitMix64, from: &[f64], into: &mut [f64]) {
    for place in into {
        let high = (u128::from(random.next_number()) * from.len() as u128) >> 64;
        *place = from[high as usize];
    }
}

#[cfg(test)]
mod tests;
