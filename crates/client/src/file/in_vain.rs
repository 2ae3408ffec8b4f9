//! Reads that were given up.

use std::ops::Range;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};

/// How long a read that overlaps one that was given up is given up, too.
const IN_VAIN_FOR: Duration = Duration::from_secs(1);

/// The last read that was given up because no server answered. A kernel whose read-ahead fails reads the same once more,
/// and a program would wait twice as long as it has to.
#[derive(Default)]
pub(crate) struct InVain(Option<(Range<u64>, Duration, Error)>);

impl InVain {
    /// A read has failed.
    pub(super) fn note(&mut self, range: Range<u64>, now: Duration, error: &Error) {
        if error.kind == ErrorKind::TimedOut {
            self.0 = Some((range, now, error.clone()));
        }
    }

    /// Fails if a part of this was waited for in vain a moment ago.
    pub(super) fn check(&self, range: &Range<u64>, now: Duration) -> Result<()> {
        match &self.0 {
            Some((vain, at, error))
                if now.saturating_sub(*at) < IN_VAIN_FOR
                    && vain.start < range.end
                    && range.start < vain.end =>
            {
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}
