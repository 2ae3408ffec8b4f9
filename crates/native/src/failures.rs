//! What could not be done of a tree, where the others of its entries go on.

use strake_types::{Error, ErrorKind, Result};

/// The first of things of which there may be very many, and the number of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstOf<T> {
    /// The first, as they came.
    pub first: Vec<T>,
    /// How many came after them.
    pub more: u64,
}

/// Why entries of a tree were passed over, each with its name.
pub type Failures = FirstOf<Error>;

impl<T> FirstOf<T> {
    /// Most that are kept.
    pub(crate) const KEPT_MAX: usize = 100;

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.first.len() as u64 + self.more
    }

    pub(crate) fn take_first(&mut self) -> Option<T> {
        (!self.first.is_empty()).then(|| self.first.remove(0))
    }

    pub(crate) fn push(&mut self, one: T) {
        match self.first.len() < Self::KEPT_MAX {
            true => self.first.push(one),
            false => self.more += 1,
        }
    }
}

impl<T> Default for FirstOf<T> {
    fn default() -> Self {
        Self { first: Vec::new(), more: 0 }
    }
}

impl Failures {
    /// Notes the failure of an entry, and the others go on. An error that they would meet as well is passed on: it ends all.
    pub(crate) fn note(&mut self, error: Error) -> Result<()> {
        match ends_all(error.kind) {
            true => Err(error),
            false => {
                self.push(error);
                Ok(())
            }
        }
    }

    /// Puts what has ended all before them.
    pub(crate) fn ended_by(&mut self, error: Error) {
        self.first.insert(0, error);
    }
}

/// True for what the next entry would meet as well: there is no room, nothing may be written, a server does not answer, or
/// somebody has said stop. All else is a matter of the entry that has met it.
pub(crate) fn ends_all(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    let room = [NoSpace, Quota, ReadOnly, TooManyFiles];
    let servers = [TimedOut, Unavailable, NotCurrent, StaleMap, NoSession, WrongPeer];
    kind == Interrupted || room.contains(&kind) || servers.contains(&kind)
}

/// True for what somebody else may do, perhaps: the owner of a file, or root.
pub(crate) fn is_denied(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::AccessDenied | ErrorKind::NotPermitted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local;
    use rustix::io::Errno;

    #[test]
    fn of_very_many_failures_the_first_are_told_and_the_others_counted() {
        let mut failures = Failures::default();
        let error = |n| Error::with(ErrorKind::AccessDenied, format!("f{n}"));
        let most = Failures::KEPT_MAX;
        (0..most + 2).for_each(|n| failures.note(error(n)).unwrap());
        assert_eq!((failures.first.len(), failures.more), (most, 2));
        failures.ended_by(error(most));
        assert_eq!(failures.first[..2], [error(most), error(0)]);
        assert_eq!(failures.take_first(), Some(error(most)));
        assert_eq!((failures.first.len(), failures.count()), (most, most as u64 + 2));
    }

    #[test]
    fn what_every_entry_would_meet_ends_all() {
        let mut failures = Failures::default();
        for kind in [ErrorKind::NoSpace, ErrorKind::TimedOut, ErrorKind::Interrupted] {
            assert_eq!(failures.note(kind.into()), Err(kind.into()));
        }
        // What this machine says of it: no more files can be opened, and nobody serves a mount.
        for error in [Errno::MFILE, Errno::NFILE, Errno::NOTCONN] {
            let error = local::error(&error.into());
            assert_eq!(failures.note(error.clone()), Err(error));
        }
        assert_eq!(failures, Failures::default());
    }
}
