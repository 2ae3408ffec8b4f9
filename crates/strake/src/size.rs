//! Sizes as people write and read them.

/// Units, each 1024 times the one before.
const UNITS: &[(char, u64)] =
    &[('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40), ('P', 1 << 50)];

/// Reads `65536`, `64K`, `64KiB`, `1M`, `1.5G`.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no size; write a number with K, M, G, T or nothing after it");
    let trimmed = text.trim();
    let lower = trimmed.to_ascii_uppercase();
    let short = lower.strip_suffix("IB").or(lower.strip_suffix('B')).unwrap_or(&lower);
    let unit = UNITS.iter().find(|(letter, _)| short.ends_with(*letter));
    let (number, factor) = match unit {
        Some((letter, factor)) => (short.trim_end_matches(*letter).trim(), *factor),
        None => (short, 1),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    let fits = value.is_finite() && (0.0..1e18).contains(&value) && unit.is_some();
    if fits { Ok(value as u64) } else { Err(wrong()) }
}

/// `1.5 GiB`.
pub fn show(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, factor)| bytes >= *factor);
    match unit {
        Some((letter, factor)) if bytes.is_multiple_of(*factor) => {
            format!("{} {letter}iB", bytes / factor)
        }
        Some((letter, factor)) => format!("{:.1} {letter}iB", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

/// `1.5G`, as `ls -h` and `df -h` write it; short enough for a column.
pub fn short(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, factor)| bytes >= *factor);
    match unit {
        Some((letter, factor)) if bytes.is_multiple_of(*factor) => {
            format!("{}{letter}", bytes / factor)
        }
        Some((letter, factor)) => format!("{:.1}{letter}", bytes as f64 / *factor as f64),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        let cases = [("0", 0), ("65536", 65536), ("64K", 65536), ("64kib", 65536), ("1M", 1 << 20)];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("1.5G"), Ok(3 << 29));
        for wrong in ["", "K", "1X", "-1", "1.5", "nan", "99999999P"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(show(1 << 20), "1 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show(17), "17 B");
        assert_eq!(short(1 << 16), "64K");
    }
}
