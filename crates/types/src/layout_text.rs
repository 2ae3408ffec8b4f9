//! Layouts as people write them: `1M`, `varstrip=0:32K,1:64K`, `twod_stripe=2:4`.
//!
//! The same words serve the `user.strake.layout.*` attributes and the command line.

use crate::layout::{Distribution, Strip};
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// Reads a number of bytes: digits, and K, M, G or T for powers of 1,024.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let wrong = || invalid(format!("{text:?} is no size: write 65536, 64K, 1M"));
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        Some(b't' | b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Writes a number of bytes as [`parse_bytes`] reads it, with the largest unit that fits.
pub fn show_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::SimpleStripe => f.write_str("simple_stripe"),
            Distribution::Basic => f.write_str("basic"),
            Distribution::Progressive => f.write_str("progressive"),
            Distribution::TwodStripe { groups, factor } => {
                write!(f, "twod_stripe={groups}:{factor}")
            }
            Distribution::Varstrip(strips) => {
                f.write_str("varstrip=")?;
                for (nth, strip) in strips.iter().enumerate() {
                    let comma = if nth > 0 { "," } else { "" };
                    write!(f, "{comma}{}:{}", strip.slot, show_bytes(strip.bytes))?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, parameters) = match text.split_once(['=', ':']) {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        match (name, parameters) {
            ("simple_stripe", None) => Ok(Distribution::SimpleStripe),
            ("basic", None) => Ok(Distribution::Basic),
            ("progressive", None) => Ok(Distribution::Progressive),
            ("varstrip", Some(list)) => {
                Ok(Distribution::Varstrip(list.split(',').map(parse_strip).collect::<Result<_>>()?))
            }
            ("twod_stripe", Some(pair)) => {
                let (groups, factor) = parse_pair(pair)?;
                Ok(Distribution::TwodStripe { groups, factor })
            }
            _ => Err(invalid(format!(
                "distribution {text:?} must be simple_stripe, basic, varstrip=SLOT:SIZE,..., \
                 twod_stripe=GROUPS:FACTOR or progressive"
            ))),
        }
    }
}

fn parse_strip(text: &str) -> Result<Strip> {
    let wrong = || invalid(format!("strip {text:?} must be SLOT:SIZE, as in varstrip=0:32K,1:64K"));
    let (slot, bytes) = text.split_once(':').ok_or_else(wrong)?;
    Ok(Strip { slot: slot.parse().map_err(|_| wrong())?, bytes: parse_bytes(bytes)? })
}

fn parse_pair(text: &str) -> Result<(u32, u32)> {
    let wrong = || invalid(format!("{text:?} must be GROUPS:FACTOR, as in twod_stripe=2:4"));
    let (a, b) = text.split_once(':').ok_or_else(wrong)?;
    Ok((a.parse().map_err(|_| wrong())?, b.parse().map_err(|_| wrong())?))
}

fn invalid(detail: String) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_read_as_it_is_shown() {
        for text in
            ["simple_stripe", "basic", "progressive", "varstrip=0:32K,1:64K", "twod_stripe=2:4"]
        {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_explained() {
        for wrong in ["stripe", "varstrip", "varstrip=32K", "twod_stripe=2", "basic=1", ""] {
            let error = wrong.parse::<Distribution>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
    }

    #[test]
    fn sizes_take_units_and_do_not_overflow() {
        assert_eq!(parse_bytes("64K").unwrap(), 65_536);
        assert_eq!(parse_bytes("1048576").unwrap(), 1 << 20);
        assert_eq!(show_bytes(3 << 20), "3M");
        assert_eq!(show_bytes(0), "0");
        assert!(parse_bytes("99999999999999999999").is_err());
        assert!(parse_bytes("99999999T").is_err());
        assert!(parse_bytes("é").is_err());
    }
}
