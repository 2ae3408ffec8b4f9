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
    /// To write what its machine holds back.
    Settle {
        /// A directory on the measured file system.
        directory: PathBuf,
    },
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
    /// It is at its job; comes now and then before [`Answer::Done`].
    Doing {
        /// What it has done since it said this last, in units of about a byte.
        work: u64,
    },
    /// It has done its job.
    Done(Done),
    /// Nothing is held back any more.
    Settled,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Amount;

    #[test]
    fn lines_are_as_the_formats_page_has_them() {
        let done = Done {
            clock: "boot".into(),
            began: 1.5,
            ended: 2.0,
            told: 2.5,
            processor_seconds: 0.25,
            amount: Amount { bytes: 4096, operations: 1 },
        };
        let lines = [
            (Answer::Hello { version: "0.1.0".into() }, r#"{"hello":{"version":"0.1.0"}}"#),
            (Answer::Ready, r#""ready""#),
            (Answer::Doing { work: 4096 }, r#"{"doing":{"work":4096}}"#),
            (
                Answer::Done(done),
                r#"{"done":{"clock":"boot","began":1.5,"ended":2.0,"told":2.5,"processor_seconds":0.25,"bytes":4096,"operations":1}}"#,
            ),
            (Answer::Settled, r#""settled""#),
            (Answer::Cooled { lost: None }, r#"{"cooled":{"lost":null}}"#),
            (
                Answer::Failed(Error::usage("why").next("what")),
                r#"{"failed":{"kind":"usage","cause":"why","next":"what"}}"#,
            ),
        ];
        for (answer, line) in lines {
            assert_eq!(serde_json::to_string(&answer).unwrap(), line);
            assert_eq!(receive(&mut line.as_bytes()).unwrap(), Some(answer));
        }
        let settle = Request::Settle { directory: "/d".into() };
        let cool = Request::Cool { directory: "/d".into(), files: vec!["/d/f".into()] };
        let lines = [
            (Request::Go, r#""go""#),
            (Request::Stop, r#""stop""#),
            (settle, r#"{"settle":{"directory":"/d"}}"#),
            (cool, r#"{"cool":{"directory":"/d","files":["/d/f"]}}"#),
        ];
        for (request, line) in lines {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(receive(&mut line.as_bytes()).unwrap(), Some(request));
        }
    }

    #[test]
    fn what_is_no_message_is_an_error_and_the_end_is_none() {
        assert_eq!(receive::<Answer>(&mut &b""[..]).unwrap(), None);
        let endless = vec![b'['; LINE_BYTES_MAX as usize + 10];
        for wrong in [&b"\n"[..], b"{\"ready\":", b"\xff\xfe\n", b"{\"unknown\":{}}\n", &endless] {
            assert!(receive::<Answer>(&mut &wrong[..]).is_err());
        }
    }
}
