//! Sizes and counts as people write and read them.

/// Units, each 1024 times the one before.
const UNITS: &[(char, u64)] =
    &[('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40), ('P', 1 << 50)];
/// The first size that is too large, 16384P.
const SIZE_END: f64 = 16_384.0 * (1_u64 << 50) as f64;
/// Units of what is no bytes, each 1000 times the one before.
const COUNT_UNITS: &[(char, u64)] =
    &[('K', 1_000), ('M', 1_000_000), ('G', 1_000_000_000), ('T', 1_000_000_000_000)];
/// The largest count, which is a whole number as a `f64`, too.
const COUNT_MAX: f64 = 1e15;

/// Reads `65536`, `64K`, `64KiB`, `1M`, `1.5G`.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no size; write a number with K, M, G, T, P or nothing after it");
    let too_large = || format!("{text:?} is more than any size: 16383P is the largest");
    let upper = text.trim().to_ascii_uppercase();
    let short = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let unit = in_unit(short, UNITS);
    let (number, factor) = unit.unwrap_or((short, 1));
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(too_large);
    }
    match number.parse::<f64>().map_err(|_| wrong())? * factor as f64 {
        value if value >= SIZE_END => Err(too_large()),
        value if value >= 0.0 && unit.is_some() => Ok(value as u64),
        _ => Err(wrong()),
    }
}

/// What stands before one of these units, and what that is.
fn in_unit<'a>(text: &'a str, units: &[(char, u64)]) -> Option<(&'a str, u64)> {
    units.iter().find_map(|(letter, factor)| Some((text.strip_suffix(*letter)?.trim(), *factor)))
}

/// Reads `300000`, `300,000`, `20M`, `2G`: thousands here, for these are no bytes.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is no count; write a number with K, M, G, T (thousands) or nothing after it"
        )
    };
    let plain = text.trim().replace(['_', ','], "").to_ascii_uppercase();
    let (number, factor) = in_unit(&plain, COUNT_UNITS).unwrap_or((plain.as_str(), 1));
    // What is no whole number by a rounding only is one: 4.1 of 1,000,000,000 is.
    let is_whole = |value: f64| (value - value.round()).abs() <= value * 4.0 * f64::EPSILON;
    match number.parse::<f64>().map_err(|_| wrong())? * factor as f64 {
        value if value > COUNT_MAX => Err(format!("{text:?} is too many: 1000T are the most")),
        value if value >= 0.0 && is_whole(value) => Ok(value.round() as u64),
        _ => Err(wrong()),
    }
}

/// `950`, `10,423`, `1.5M`, `10G`: as [`parse_count()`] reads it.
pub fn show_count(number: u64) -> String {
    match in_units(number, &COUNT_UNITS[1..]) {
        Some((number, letter)) => format!("{number}{letter}"),
        None if number >= 1_000 => format!("{},{:03}", number / 1_000, number % 1_000),
        None => number.to_string(),
    }
}

/// `1.5 GiB`.
pub fn show(bytes: u64) -> String {
    match in_units(bytes, UNITS) {
        Some((number, letter)) => format!("{number} {letter}iB"),
        None => format!("{bytes} B"),
    }
}

/// `65537`, `64K`, `1536M`: to the byte, in the largest unit of which it is a whole number.
pub fn exact(bytes: u64) -> String {
    let is_whole = |unit: &&(char, u64)| bytes >= unit.1 && bytes.is_multiple_of(unit.1);
    match UNITS.iter().rev().find(is_whole) {
        Some((letter, factor)) => format!("{}{letter}", bytes / factor),
        None => bytes.to_string(),
    }
}

/// `1.5G`, as `ls -h` and `df -h` write it; short enough for a column.
pub fn short(bytes: u64) -> String {
    match in_units(bytes, UNITS) {
        Some((number, letter)) => format!("{number}{letter}"),
        None => bytes.to_string(),
    }
}

/// The same, `?` where it is not known.
pub fn short_or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".into(), short)
}

/// A number in the largest unit that it reaches: `1.5` and `G`, or `2` and `G`. `None`: it reaches none.
fn in_units(number: u64, units: &[(char, u64)]) -> Option<(String, char)> {
    let (letter, factor) = units.iter().rev().find(|(_, factor)| number >= *factor)?;
    let shown = match number.is_multiple_of(*factor) {
        true => (number / factor).to_string(),
        false => format!("{:.1}", number as f64 / *factor as f64),
    };
    Some((shown, *letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1_000_000_000;

    #[test]
    fn sizes_are_read_as_written() {
        let cases = [("0", 0), ("65536", 65536), ("64K", 65536), ("64kib", 65536), ("1M", 1 << 20)];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("1.5G"), Ok(3 << 29));
        assert_eq!(parse("1.5 GiB"), Ok(3 << 29));
        // It was more than any size.
        assert_eq!(parse("889.5P"), Ok(1779 << 49));
        // Of a letter too many nothing was said.
        for wrong in
            ["", "K", "1X", "-1", "1.5", "nan", "99999999P", "1KK", "1.5MM", "1KM", "\u{e9}"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for much in ["16384P", "99999999P", "1e30T", "99999999999999999999999"] {
            assert!(parse(much).unwrap_err().contains("16383P is the largest"), "{much}");
        }
    }

    #[test]
    fn counts_are_in_thousands_and_nothing_else_is_one() {
        let cases = [("7", 7), ("300_000", 300_000), ("20M", 20_000_000), ("2.5g", 2_500_000_000)];
        for (text, number) in cases.into_iter().chain([("10e9", 10_000_000_000)]) {
            assert_eq!(parse_count(text), Ok(number), "{text}");
        }
        for text in ["", "M", "-1", "1.5", "nan", "20X", "1MM5", "1MM", "2.5KK"] {
            assert!(parse_count(text).unwrap_err().contains("is no count"), "{text}");
        }
        for text in ["1e400", "99999T"] {
            assert!(parse_count(text).unwrap_err().contains("too many"), "{text}");
        }
    }

    #[test]
    fn counts_that_are_shown_are_read_as_the_same() {
        let cases = [(999, "999"), (10_423, "10,423"), (1_500_000, "1.5M"), (10 * G, "10G")];
        for (number, text) in cases {
            assert_eq!((&*show_count(number), parse_count(text)), (text, Ok(number)));
        }
    }

    /// The product was held for no whole number: 4.1G, 8.2T, and what was suggested itself.
    #[test]
    fn every_count_that_is_shown_can_be_given() {
        for (_, factor) in COUNT_UNITS {
            for number in (10..10_000).map(|tenths| factor / 10 * tenths) {
                assert_eq!(parse_count(&show_count(number)), Ok(number));
            }
        }
        for (text, number) in [("2.01K", 2_010), ("32.3M", 32_300_000), ("1.001K", 1_001)] {
            assert_eq!(parse_count(text), Ok(number), "{text}");
        }
        assert!(parse_count("1.0001K").is_err());
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(show(1 << 20), "1 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show(17), "17 B");
        assert_eq!(short(1 << 16), "64K");
        for (bytes, text) in [(0, "0"), (65_537, "65537"), (3 << 20, "3M"), (3 << 29, "1536M")] {
            assert_eq!((&*exact(bytes), parse(text)), (text, Ok(bytes)));
        }
    }
}
