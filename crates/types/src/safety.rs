//! What a write asks of the copies of its chunk before it is done.

use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// Which copies must have a change before it is acknowledged: CEFT-PVFS's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ack {
    /// All in-sync copies: whichever server dies, what was acknowledged is there.
    #[default]
    All,
    /// The primary's; the others follow at once. Should its server die in between, acknowledged
    /// changes that were not synced are lost, and the next sync fails.
    Primary,
}

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Safety {
    /// Who must have it.
    pub ack: Ack,
    /// Copies that must be in sync for anything to be acknowledged, at least 1.
    pub min_copies: u32,
}

impl Default for Safety {
    fn default() -> Self {
        Self { ack: Ack::All, min_copies: 1 }
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ack::All => "all",
            Ack::Primary => "primary",
        })
    }
}

impl FromStr for Ack {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "all" => Ok(Ack::All),
            "primary" => Ok(Ack::Primary),
            _ => Err(Error::with(ErrorKind::Invalid, "who acknowledges is all or primary")),
        }
    }
}
