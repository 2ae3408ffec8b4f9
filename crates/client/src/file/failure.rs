//! What is remembered of writes that have failed.

use strake_types::{Error, ErrorKind};

/// The last failure of a write that had been accepted.
#[derive(Default)]
pub(crate) struct Failure {
    /// Number of failures so far.
    pub(crate) count: u64,
    pub(crate) error: Option<Error>,
    /// No sync has told of it yet.
    pub(crate) untold: bool,
    /// It is that of a life that is over.
    pub(crate) of_last_life: bool,
}

impl Failure {
    /// True if the last one is the same, and no sync has told of it yet.
    pub(crate) fn is_same(&self, error: &Error) -> bool {
        self.untold && self.error.as_ref() == Some(error)
    }

    /// The last one, if there were no more than so many before, and servers were waited for in vain.
    pub(crate) fn timed_out_after(&self, count: u64) -> Option<Error> {
        let error = self.error.as_ref().filter(|error| error.kind == ErrorKind::TimedOut);
        error.filter(|_| self.count > count).cloned()
    }
}
