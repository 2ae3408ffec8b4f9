//! How much of each other's work clients see of a file that several have open.

use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// What is promised of contents (S-017 in `docs/SEMANTICS.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// What a write has returned for, everybody sees from then on.
    #[default]
    Strict,
    /// Who opens a file sees what was closed or synced before.
    CloseToOpen,
    /// The same, and nothing is leased: for programs that keep apart by themselves (PVFS).
    Parallel,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Strict => "strict",
            Consistency::CloseToOpen => "close-to-open",
            Consistency::Parallel => "parallel",
        })
    }
}

impl FromStr for Consistency {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "strict" => Ok(Consistency::Strict),
            "close-to-open" => Ok(Consistency::CloseToOpen),
            "parallel" => Ok(Consistency::Parallel),
            _ => {
                let detail = "consistency is strict, close-to-open or parallel";
                Err(Error::with(ErrorKind::Invalid, detail))
            }
        }
    }
}
