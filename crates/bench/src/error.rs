//! Why a run failed, as a person reads it.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// The result of anything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run failed. It travels from workers in other processes, so it holds words and no sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// What kind of failure.
    pub kind: Kind,
    /// What went wrong, and with what.
    pub cause: String,
    /// What to try next; `None` where the cause says it.
    pub next: Option<String>,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What was asked for makes no sense.
    Usage,
    /// Somebody asked the run to stop.
    Stopped,
    /// The measured file system, or the machine, did not do what was asked.
    Failed,
}

impl Error {
    /// The measured file system or the machine failed.
    pub fn failed(cause: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, cause: cause.into(), next: None }
    }

    /// What was asked for makes no sense.
    pub fn usage(cause: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, cause: cause.into(), next: None }
    }

    /// The run was asked to stop.
    pub fn stopped() -> Self {
        Self { kind: Kind::Stopped, cause: "the run was interrupted".into(), next: None }
    }

    /// What was read is not what was written.
    pub fn lost(cause: impl Into<String>) -> Self {
        Self::failed(cause)
            .next("the file system, a disk or the memory has lost data: do not trust it")
    }

    /// A file ended in a read, which `written` bytes were written to.
    pub fn cut_short(path: &Path, written: u64) -> Self {
        let length = std::fs::metadata(path).map_or(0, |found| found.len());
        Self::lost(format!(
            "reading {}: it is {length} bytes long, and {written} were written",
            path.display()
        ))
    }

    /// Adds what to try next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// An error of the operating system, with what was done to which file.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let failed = Self::failed(format!("{doing} {}: {error}", path.display()));
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => {
                failed.next("free some room, or use smaller files")
            }
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
                failed.next("measure a directory in which you can create files")
            }
            Some(libc::ENOENT | libc::ENOTCONN | libc::ENODEV | libc::ESTALE) => failed
                .next("the directory, or the file system on it, is gone: mount it and run again"),
            _ => failed,
        }
    }
}
