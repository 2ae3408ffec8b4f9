//! Saying with what an error happened.

use crate::error::{Error, Result};
use std::fmt;

/// Says with what an error happened.
pub(crate) trait Context<T> {
    /// Puts `what` before the error.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::failed(format!("{}: {error}", what())))
    }
}
