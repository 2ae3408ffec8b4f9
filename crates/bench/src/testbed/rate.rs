//! How fast a link or a disk is, as people write it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Units and the bytes per second that one of them is. Networks count bits, disks count bytes.
const UNITS: &[(&str, f64)] = &[
    ("bit", 1.0 / 8.0),
    ("kbit", 1e3 / 8.0),
    ("mbit", 1e6 / 8.0),
    ("gbit", 1e9 / 8.0),
    ("kb/s", 1e3),
    ("mb/s", 1e6),
    ("gb/s", 1e9),
    ("kib/s", 1024.0),
    ("mib/s", 1048576.0),
    ("gib/s", 1073741824.0),
];
/// The slowest: a large packet must get through within a second.
const SLOWEST: u64 = 2_000;
/// The fastest that is worth a limit.
const FASTEST: u64 = 100_000_000_000;

/// Bytes per second, as a link or a disk is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

impl Rate {
    /// So many bytes per second.
    pub fn of(bytes_per_second: u64) -> Result<Rate, String> {
        match (SLOWEST..=FASTEST).contains(&bytes_per_second) {
            true => Ok(Rate(bytes_per_second)),
            false => Err(format!(
                "{bytes_per_second} bytes per second is out of range: at least 16kbit, at most 800gbit"
            )),
        }
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> u64 {
        self.0
    }

    /// Bits per second.
    pub fn bits_per_second(self) -> u64 {
        self.0 * 8
    }

    /// `6.83MB/s`, as disks are sold.
    pub fn in_bytes(self) -> String {
        format!("{}MB/s", self.0 as f64 / 1e6)
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `100mbit`, `1gbit`, `6.83MB/s`, `100MiB/s`.
    fn from_str(text: &str) -> Result<Rate, String> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits);
        let unit = unit.trim();
        let unit = unit.strip_suffix("bit/s").map_or(unit.to_owned(), |head| format!("{head}bit"));
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let (Ok(number), Some(factor)) = (number.parse::<f64>(), factor) else {
            return Err(format!(
                "{text:?} is no rate; write bits for a link (100mbit, 1gbit) and bytes for a disk \
                 (6.83MB/s, 100MiB/s)"
            ));
        };
        Rate::of((number * factor).round() as u64).map_err(|error| format!("{text:?}: {error}"))
    }
}

impl fmt::Display for Rate {
    /// In bits where that is round, as links are sold; else in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MBIT: u64 = 1_000_000;
        let bits = self.bits_per_second();
        match bits >= MBIT && bits.is_multiple_of(MBIT) {
            true if bits.is_multiple_of(1000 * MBIT) => write!(f, "{}gbit", bits / (1000 * MBIT)),
            true => write!(f, "{}mbit", bits / MBIT),
            false => f.write_str(&self.in_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse().ok().map(Rate::bytes_per_second)
    }

    #[test]
    fn rates_are_read_in_bits_and_in_bytes() {
        let cases = [
            ("100mbit", 12_500_000),
            ("100Mbit/s", 12_500_000),
            ("1gbit", 125_000_000),
            ("20 kbit", 2_500),
            ("6.83MB/s", 6_830_000),
            ("100 MiB/s", 104_857_600),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_could_be_bits_or_bytes_or_nothing_is_refused() {
        let wrong =
            ["", "100", "100M", "100mb", "100mbps", "fast", "-1mbit", "1e3mbit", "0mbit", "1bit"];
        for text in wrong {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.contains("100mbit") || error.contains("16kbit"), "{text}: {error}");
        }
    }

    #[test]
    fn a_rate_that_is_shown_is_read_as_the_same() {
        for text in ["100mbit", "6.83MB/s", "1gbit", "2.5MB/s", "5mbit", "2.83MB/s", "4.14MB/s"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string().parse(), Ok(rate), "{text}");
        }
        assert_eq!("100mbit".parse::<Rate>().unwrap().to_string(), "100mbit");
        assert_eq!("6.83MB/s".parse::<Rate>().unwrap().to_string(), "6.83MB/s");
    }
}
