//! Why a verb failed, as a person reads it: the cause with its object, and the next command.

use crate::terminal;
use std::fmt;
use strake_native::Failures;

/// Exit code of a verb that failed, also where a cluster refuses what another one would take.
pub const FAILED: u8 = 1;
/// Exit code where the command line itself was wrong (the same as clap's), whatever the cluster is: nobody was asked.
pub const USAGE: u8 = 2;

/// Exit code of a verb whose exit code says how something is, where that does not work at all.
pub const BROKEN: u8 = 2;

/// The result of a verb.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a verb failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What went wrong, and with what.
    pub cause: String,
    /// What to try next; `None` where the cause says it.
    pub next: Option<String>,
    /// The exit code of the program.
    pub code: u8,
}

impl Failure {
    /// A failure that says itself what to do.
    pub fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), next: None, code: FAILED }
    }

    /// A wrong command line.
    pub fn usage(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), next: None, code: USAGE }
    }

    /// An error that says itself what to do, after its last semicolon.
    pub fn telling(error: &strake_types::Error) -> Self {
        match error.detail.rsplit_once("; ") {
            Some((cause, next)) => Self::new(cause).next(next),
            None => Self::new(error.to_string()),
        }
    }

    /// The same of a verb whose exit code says how something is: nothing worse could be found.
    pub fn broken(self) -> Self {
        Self { code: BROKEN, ..self }
    }

    /// Puts what it is about before the cause.
    #[must_use]
    pub fn about(self, what: &str) -> Self {
        Self { cause: format!("{what}: {}", self.cause), ..self }
    }

    /// Adds what to try next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

/// Notes the failure of one of several things, where the others go on: the first is told by the end of the program, each further
/// one at once.
pub fn note(failed: &mut Outcome, failure: Failure) {
    match failed.is_ok() {
        true => *failed = Err(failure),
        false => terminal::aside(&format!("strake: {failure}")),
    }
}

/// Notes the failures of entries of a tree, as [`note`] does.
pub fn note_all(failed: &mut Outcome, failures: Failures) {
    let Failures { first, more } = failures;
    first.into_iter().for_each(|error| note(failed, error.into()));
    if more > 0 {
        note(failed, Failure::new(format!("further entries that failed: {more}")));
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        match &self.next {
            Some(next) => write!(f, "\n  next: {next}"),
            None => Ok(()),
        }
    }
}

impl From<strake_types::Error> for Failure {
    fn from(error: strake_types::Error) -> Self {
        Failure::new(error.to_string())
    }
}

/// Says with what an error happened.
pub trait Context<T> {
    /// Puts `what` before the error.
    fn context(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}

/// For errors that say everything themselves: cause, object, next command.
pub trait Plain<T> {
    /// The error as it is.
    fn plain(self) -> Outcome<T>;
}

impl<T, E: fmt::Display> Plain<T> for Result<T, E> {
    fn plain(self) -> Outcome<T> {
        self.map_err(|error| Failure::new(error.to_string()))
    }
}
