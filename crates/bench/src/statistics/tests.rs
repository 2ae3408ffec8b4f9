use super::*;
use crate::result::Origin;
use std::collections::BTreeMap;

fn figure(rule: Rule, samples: &[f64]) -> Figure {
    Figure {
        side: "a".into(),
        origin: Origin::Measured,
        test: "iozone/write".into(),
        parameters: BTreeMap::new(),
        unit: Unit::BytesPerSecond,
        samples: samples.to_vec(),
        rule,
    }
}

/// Samples of a normal distribution, the same each time.
fn normal(random: &mut SplitMix64, count: usize, mean: f64, deviation: f64) -> Vec<f64> {
    let mut uniform = || (random.next_number() >> 11) as f64 / (1_u64 << 53) as f64;
    let one = |_| {
        let sum: f64 = (0..12).map(|_| uniform()).sum();
        mean + deviation * (sum - 6.0)
    };
    (0..count).map(one).collect()
}

#[test]
fn the_rule_makes_one_number() {
    let of = |rule, samples: &[f64]| summary(&figure(rule, samples)).map(|s| s.value);
    assert_eq!(of(Rule::Median, &[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(of(Rule::Median, &[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(of(Rule::Mean, &[1.0, 2.0, 6.0]), Some(3.0));
    assert_eq!(of(Rule::TrimmedMean, &[100.0, 2.0, 4.0, 0.0]), Some(3.0));
    assert_eq!(of(Rule::TrimmedMean, &[2.0, 4.0]), Some(3.0));
    assert_eq!(of(Rule::Median, &[]), None);
}

#[test]
fn spread_and_deviation_are_of_what_the_rule_keeps() {
    let all = summary(&figure(Rule::Mean, &[9.0, 10.0, 11.0])).unwrap();
    assert_eq!(all.spread, Some(0.2));
    assert_eq!(all.deviation, Some(1.0));
    let trimmed = summary(&figure(Rule::TrimmedMean, &[0.0, 9.0, 11.0, 50.0])).unwrap();
    assert_eq!((trimmed.minimum, trimmed.maximum, trimmed.count), (9.0, 11.0, 4));
    assert_eq!(trimmed.spread, Some(0.2));
    let one = summary(&figure(Rule::Median, &[5.0])).unwrap();
    assert_eq!((one.spread, one.deviation), (None, None));
}

#[test]
fn the_tail_is_the_one_of_the_expanded_percentile_interval() {
    // Hesterberg's table of adjusted levels: n = 5 gives 0.00095, n = 10 gives 0.0085, n = 30 0.0188.
    for (samples, expected) in [(5, 0.000_95), (10, 0.008_5), (30, 0.018_8)] {
        let got = tail(samples);
        assert!((got / expected - 1.0).abs() < 0.02, "{samples}: {got}");
    }
}

#[test]
fn the_interval_holds_the_true_ratio_about_as_often_as_it_says() {
    let mut random = SplitMix64::new(1);
    let (mut held, rounds) = (0, 300);
    for _ in 0..rounds {
        let a = figure(Rule::Mean, &normal(&mut random, 6, 110.0, 5.0));
        let b = figure(Rule::Mean, &normal(&mut random, 6, 100.0, 5.0));
        let (low, high) = ratio(&a, &b).unwrap().interval.unwrap();
        held += u32::from(low <= 1.1 && 1.1 <= high);
    }
    let share = f64::from(held) / f64::from(rounds);
    assert!((0.90..=0.995).contains(&share), "{share}");
}

#[test]
fn the_same_samples_give_the_same_interval() {
    let a = figure(Rule::Median, &[10.0, 10.4, 9.9, 10.1, 10.3]);
    let b = figure(Rule::Median, &[9.0, 9.4, 9.1, 9.2, 8.9]);
    assert_eq!(ratio(&a, &b), ratio(&a, &b));
}

#[test]
fn a_verdict_is_given_only_where_the_noise_allows_one() {
    let base = figure(Rule::Mean, &[10.0, 10.1, 9.9, 10.05, 9.95]);
    let say =
        |samples: &[f64], unit| verdict(&ratio(&figure(Rule::Mean, samples), &base).unwrap(), unit);
    let faster = [11.0, 11.1, 10.9, 11.0, 11.05];
    assert_eq!(say(&faster, Unit::BytesPerSecond), Verdict::Better);
    assert_eq!(say(&faster, Unit::Seconds), Verdict::Worse);
    let slower = [9.0, 9.1, 8.9, 9.0, 9.05];
    assert_eq!(say(&slower, Unit::PerSecond), Verdict::Worse);
    let same = [10.02, 10.08, 9.93, 10.01, 9.97];
    assert_eq!(say(&same, Unit::BytesPerSecond), Verdict::NoDifference);
    let wild = [4.0, 19.0, 8.0, 12.0, 7.0];
    assert_eq!(say(&wild, Unit::BytesPerSecond), Verdict::TooNoisy);
    assert_eq!(say(&[20.0, 20.0, 20.0], Unit::BytesPerSecond), Verdict::TooFew);
}

#[test]
fn a_sure_difference_of_less_than_a_hundredth_is_none() {
    let a = figure(Rule::Mean, &[10.02, 10.02, 10.02, 10.02]);
    let b = figure(Rule::Mean, &[10.0, 10.0, 10.0, 10.0]);
    let ratio = ratio(&a, &b).unwrap();
    assert!(ratio.interval.unwrap().0 > 1.0);
    assert_eq!(verdict(&ratio, Unit::BytesPerSecond), Verdict::NoDifference);
}

#[test]
fn nothing_is_divided_by_zero() {
    let zero = figure(Rule::Mean, &[0.0, 0.0, 0.0, 0.0]);
    let some = figure(Rule::Mean, &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(ratio(&some, &zero), None);
    assert_eq!(ratio(&zero, &some).unwrap().interval, Some((0.0, 0.0)));
    let often_zero = figure(Rule::Median, &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(ratio(&some, &often_zero).unwrap().interval, None);
}
