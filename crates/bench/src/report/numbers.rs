//! Numbers as people read them: SI prefixes for rates (MB = 10^6 bytes, as the studies print them),
//! binary ones for sizes of files and records, which are powers of two.

use crate::result::Unit;

/// Parameters that are counted in bytes.
const IN_BYTES: &[&str] = &["size", "record", "block", "chunk", "chunk_size", "file_size"];
/// Parameters that are counted in bytes per second.
const IN_RATES: &[&str] = &["disk", "link"];
/// Shares above this are not of the limit at all.
const BEYOND_FROM: f64 = 1.1;
/// Binary units of sizes.
const SIZES: &[(f64, &str)] = &[
    ((1_u64 << 40) as f64, "TiB"),
    ((1_u64 << 30) as f64, "GiB"),
    ((1_u64 << 20) as f64, "MiB"),
    ((1_u64 << 10) as f64, "KiB"),
];

/// A unit with a prefix, in which a row or an axis is printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// How many of the unit make one.
    pub factor: f64,
    /// The unit as printed: "MB/s".
    pub label: &'static str,
}

impl Scale {
    /// The scale in which the largest of some values reads well. Rates are in MB/s whenever that
    /// does not hide them, so that rows and studies compare without thought.
    pub fn of(unit: Unit, largest: f64) -> Self {
        let (factor, label) = match unit {
            Unit::BytesPerSecond if largest < 1e3 => (1.0, "B/s"),
            Unit::BytesPerSecond if largest < 1e5 => (1e3, "kB/s"),
            Unit::BytesPerSecond => (1e6, "MB/s"),
            Unit::PerSecond => (1.0, "1/s"),
            Unit::Percent => (1.0, "%"),
            Unit::Seconds if largest < 1e-3 => (1e-6, "µs"),
            Unit::Seconds if largest < 1.0 => (1e-3, "ms"),
            Unit::Seconds => (1.0, "s"),
        };
        Self { factor, label }
    }

    /// A value in this scale, without the label.
    pub fn show(&self, value: f64) -> String {
        number(value / self.factor)
    }
}

/// A number with two decimals below a hundred as the studies print them, one below a thousand, none
/// above, where digits are grouped; three digits where there is nothing before the point.
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".into(),
        _ if size < 0.001 => format!("{value:.1e}"),
        _ if size < 0.1 => format!("{value:.4}"),
        _ if size < 1.0 => format!("{value:.3}"),
        _ if size < 99.995 => format!("{value:.2}"),
        _ if size < 999.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// A whole number in groups of three, parted by narrow spaces that do not break.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        // Four digits read well as they are.
        if at > 0 && digits.len() > 4 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A ratio: "1.05", "0.998", "253".
pub fn ratio(value: f64) -> String {
    match value.abs() {
        size if size < 0.0005 => format!("{value:.1e}"),
        // Where a half percent matters, three decimals show it.
        size if size < 1.1 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A share as percent: "99.6 %".
pub fn percent(share: f64) -> String {
    match share.abs() * 100.0 {
        size if size < 99.95 => format!("{:.1} %", share * 100.0),
        _ => format!("{:.0} %", share * 100.0),
    }
}

/// A share of a limit. What did not pass through it (an answer from a cache, a local disk) is no
/// share of it.
pub fn of_limit(share: f64) -> String {
    if is_within(share) { percent(share) } else { "beyond".into() }
}

/// True for shares that can be explained by noise in the figure or the limit.
pub fn is_within(share: f64) -> bool {
    share <= BEYOND_FROM
}

/// A parameter's value: bytes as a size, speeds as rates, others as numbers.
pub fn parameter(name: &str, value: f64) -> String {
    if IN_RATES.contains(&name) {
        let scale = Scale::of(Unit::BytesPerSecond, value);
        return format!("{} {}", scale.show(value), scale.label);
    }
    match IN_BYTES.contains(&name) {
        true => size(value),
        false if value.fract() == 0.0 && value.abs() < 1e15 => grouped(value),
        false => format!("{value}"),
    }
}

/// "64 KiB"; what is no whole number of a unit is given in bytes, or with one decimal.
fn size(bytes: f64) -> String {
    let whole = |factor: &f64| (bytes / factor).fract() == 0.0;
    let unit = SIZES.iter().find(|(factor, _)| bytes >= *factor && whole(factor));
    match (unit, SIZES.iter().find(|(factor, _)| bytes >= *factor)) {
        (Some((factor, label)), _) if bytes / factor < 10_000.0 => {
            format!("{} {label}", bytes / factor)
        }
        (_, Some((factor, label))) => format!("{:.1} {label}", bytes / factor),
        (_, None) => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_precise_as_they_need_to_be() {
        let cases = [
            (0.0, "0"),
            (0.012_34, "0.0123"),
            (0.5, "0.500"),
            (10.4, "10.40"),
            (99.999, "100.0"),
            (253.31, "253.3"),
            (999.97, "1000"),
            (3129.14, "3129"),
            (1_234_567.0, "1\u{202f}234\u{202f}567"),
            (-12_000.0, "-12\u{202f}000"),
            (0.000_012, "1.2e-5"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn sizes_are_binary_and_rates_are_decimal() {
        assert_eq!(parameter("size", (1 << 21) as f64), "2 MiB");
        assert_eq!(parameter("record", 65536.0), "64 KiB");
        assert_eq!(parameter("size", 1536.0), "1.5 KiB");
        assert_eq!(parameter("size", 100.0), "100 B");
        assert_eq!(parameter("size", 13e9), "12.1 GiB");
        assert_eq!(parameter("threads", 32.0), "32");
        assert_eq!(parameter("disk", 6.83e6), "6.83 MB/s");
        assert_eq!(parameter("load", 0.5), "0.5");
        let scale = Scale::of(Unit::BytesPerSecond, 11.95e6);
        assert_eq!((scale.label, scale.show(11.95e6).as_str()), ("MB/s", "11.95"));
        assert_eq!(Scale::of(Unit::Seconds, 0.0021).label, "ms");
    }

    #[test]
    fn ratios_show_what_matters() {
        assert_eq!(ratio(0.9951), "0.995");
        assert_eq!(ratio(1.5), "1.50");
        assert_eq!(ratio(253.0), "253");
        assert_eq!(percent(0.9951), "99.5 %");
        assert_eq!(percent(1.0), "100 %");
    }
}
