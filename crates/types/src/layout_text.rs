//! Layouts as people write them: `varstrip=0:32K,1:64K`, `twod_stripe=2:4`.
//!
//! The same words serve the `user.strake.layout.*` attributes and the command line.

use crate::layout::{Distribution, Strip};
use crate::{Error, ErrorKind, Result, size};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

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
                    write!(f, "{comma}{}:{}", strip.slot, size::exact(strip.bytes))?;
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
                let strips: Result<Vec<_>> = list.split([',', ';']).map(parse_strip).collect();
                Ok(Distribution::Varstrip(strips?))
            }
            ("twod_stripe", Some(pair)) => {
                let (groups, factor) = parse_pair(pair)?;
                Ok(Distribution::TwodStripe { groups, factor })
            }
            ("varstrip", None) => Err(invalid("varstrip needs its strips: varstrip=0:32K,1:64K")),
            ("twod_stripe", None) => {
                Err(invalid("twod_stripe needs groups and factor: twod_stripe=2:4"))
            }
            ("simple_stripe" | "basic" | "progressive", Some(_)) => {
                Err(invalid(format!("{name} takes no parameters")))
            }
            _ => Err(invalid(format!(
                "no distribution is called {name:?}; there are simple_stripe, basic, varstrip, \
                 twod_stripe and progressive"
            ))),
        }
    }
}

fn parse_strip(text: &str) -> Result<Strip> {
    let wrong = || invalid(format!("strip {text:?} must be SLOT:SIZE, as in varstrip=0:32K,1:64K"));
    let (slot, bytes) = text.split_once(':').ok_or_else(wrong)?;
    let slot = slot.parse().map_err(|_| invalid(format!("slot {slot:?} is no number")))?;
    Ok(Strip { slot, bytes: size::parse(bytes).map_err(invalid)? })
}

fn parse_pair(text: &str) -> Result<(u32, u32)> {
    let wrong = || invalid(format!("{text:?} must be GROUPS:FACTOR, as in twod_stripe=2:4"));
    let (a, b) = text.split_once(':').ok_or_else(wrong)?;
    Ok((a.parse().map_err(|_| wrong())?, b.parse().map_err(|_| wrong())?))
}

fn invalid(detail: impl Into<Cow<'static, str>>) -> Error {
    Error::with(ErrorKind::Invalid, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_read_as_it_is_shown() {
        let texts = [
            "simple_stripe",
            "basic",
            "progressive",
            "varstrip=0:32K,1:64K",
            // It was shown as 1.0M, which is another size.
            "varstrip=0:1028K,1:64K",
            "twod_stripe=2:4",
        ];
        for text in texts {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        let shown = "varstrip=0:32KiB;1:1.5M".parse::<Distribution>().unwrap().to_string();
        assert_eq!(shown, "varstrip=0:32K,1:1536K");
    }

    #[test]
    fn what_is_wrong_is_explained() {
        for (wrong, why) in [
            ("stripe", "there are simple_stripe, basic, varstrip, twod_stripe and progressive"),
            ("", "no distribution is called"),
            ("varstrip", "varstrip=0:32K,1:64K"),
            ("varstrip=32K", "SLOT:SIZE"),
            ("varstrip=x:32K", "no number"),
            ("varstrip=0:32X", "no size"),
            ("twod_stripe", "twod_stripe=2:4"),
            ("twod_stripe=2", "GROUPS:FACTOR"),
            ("basic=1", "no parameters"),
        ] {
            let error = wrong.parse::<Distribution>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.detail.contains(why), "{error}");
        }
    }
}
