//! What a primary sends members beside changes: to whom, and why.

use strake_types::{Error, TargetId};
use strake_wire::message::storage as msg;

/// To whom something is sent, in which reign and epoch.
#[derive(Clone, Copy)]
pub(super) struct Errand {
    pub reign: u64,
    pub epoch: u64,
    pub member: TargetId,
}

/// What has met damage, as metrics label it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetBy {
    Read,
    Change,
    Resync,
    Scrub,
}

impl MetBy {
    /// From its number in a message.
    pub fn of(number: u32) -> Self {
        match number {
            1 => Self::Change,
            2 => Self::Resync,
            3 => Self::Scrub,
            _ => Self::Read,
        }
    }

    /// Its number in a message.
    pub fn number(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Change => 1,
            Self::Resync => 2,
            Self::Scrub => 3,
        }
    }

    /// As metrics and the log have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Change => "change",
            Self::Resync => "resync",
            Self::Scrub => "scrub",
        }
    }
}

/// What became of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Blocks repaired, at all members together.
    pub repaired: u64,
    /// Blocks that are damaged at every member in sync, ascending.
    pub lost: Vec<u32>,
    /// A member in sync that was not looked at, and why.
    pub unseen: Option<(TargetId, Error)>,
}

impl From<Outcome> for msg::Repaired {
    fn from(outcome: Outcome) -> Self {
        Self { blocks: outcome.repaired, lost: outcome.lost }
    }
}
