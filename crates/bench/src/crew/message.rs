//! What a run and a worker in another process say to each other: a line of JSON at a time.

use crate::error::{Error, Result};
use crate::work::{Done, Job};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

/// Longest line: a job is far shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// What a worker is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// To get ready for a job.
    Prepare {
        /// The directory of the cell.
        directory: PathBuf,
        /// The job.
        job: Job,
    },
    /// To begin. All workers are told at the same time.
    Go,
    /// To give up what it does, or what it is ready for.
    Stop,
    /// To empty the caches of its machine.
    Cool {
        /// A directory on the measured file system.
        directory: PathBuf,
        /// Files of which the contents must not be cached, where not everything can be dropped.
        files: Vec<PathBuf>,
    },
}

/// What a worker answers; to [`Request::Stop`] with what it would have answered without it, or that
/// it was stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is there, and is this version of the program.
    Hello {
        /// The version.
        version: String,
    },
    /// It is ready to begin.
    Ready,
    /// It has done its job.
    Done(Done),
    /// Caches are empty; a sentence where only in part.
    Cooled {
        /// What is lost.
        lost: Option<String>,
    },
    /// It has failed, or was stopped.
    Failed(Error),
}

/// Writes a message.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads the next message; `None` at the end.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = Vec::new();
    let read = from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    let broken = |why: String| {
        Error::failed(format!("a worker and its run do not understand each other: {why}"))
    };
    match read.map_err(|e| broken(e.to_string()))? {
        0 => Ok(None),
        _ => serde_json::from_slice(&line).map(Some).map_err(|e| broken(e.to_string())),
    }
}
