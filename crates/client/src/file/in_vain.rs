//! Reads and other waits for a file that were given up.

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
    /// How a read has ended: an error, or well.
    pub(super) fn note(&mut self, range: Range<u64>, now: Duration, error: Option<&Error>) {
        match (error, &self.0) {
            (Some(error), _) if error.kind == ErrorKind::TimedOut => {
                self.0 = Some((range, now, error.clone()));
            }
            (None, Some((vain, ..))) if overlap(vain, &range) => self.0 = None,
            _ => {}
        }
    }

    /// Fails if a part of this was waited for in vain a moment ago.
    pub(super) fn check(&self, range: &Range<u64>, now: Duration) -> Result<()> {
        match &self.0 {
            Some((vain, at, error))
                if now.saturating_sub(*at) < IN_VAIN_FOR && overlap(vain, range) =>
            {
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}

/// The last time that servers were waited for in vain by who had a file's order, or what else is one's at a time: who stood in
/// line meanwhile would wait as long once more, one after the other.
#[derive(Default)]
pub(crate) struct OrderInVain(Option<(Duration, Error)>);

impl OrderInVain {
    /// How something has ended that was done in order: an error, or well.
    pub(crate) fn note(&mut self, now: Duration, error: Option<&Error>) {
        match error {
            Some(error) if error.kind == ErrorKind::TimedOut => self.0 = Some((now, error.clone())),
            None => self.0 = None,
            _ => {}
        }
    }

    /// Fails if it was in vain for the last time after that.
    pub(crate) fn check(&self, since: Duration) -> Result<()> {
        match &self.0 {
            Some((at, error)) if *at > since => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_overlaps_is_given_up_and_only_for_a_moment() {
        let (error, second) = (Error::new(ErrorKind::TimedOut), Duration::from_secs(1));
        let mut vain = InVain::default();
        vain.note(10..20, second, Some(&Error::new(ErrorKind::Io)));
        assert!(vain.check(&(10..20), second).is_ok(), "it was not waited for");
        vain.note(10..20, second, Some(&error));
        assert!(vain.check(&(19..30), second).is_err());
        assert!(vain.check(&(20..30), second).is_ok());
        assert!(vain.check(&(10..20), second + IN_VAIN_FOR).is_ok());
        vain.note(20..30, second, None);
        assert!(vain.check(&(10..20), second).is_err());
        vain.note(5..11, second, None);
        assert!(vain.check(&(10..20), second).is_ok(), "a server answers again");
    }
}
