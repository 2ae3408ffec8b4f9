//! Running on in the background: the program starts itself again as a child and waits until the
//! child says that it is usable, or why it is not.
//!
//! The child's first words come through its standard output, one line: `ready`, or the failure as
//! JSON. From then on it writes only to its log.

use crate::failure::{Context, Failure, Outcome};
use crate::made::Made;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the child.
const MARK: &str = "STRAKE_DETACHED";

/// The child's first line.
#[derive(Serialize, Deserialize)]
struct FirstWords {
    ready: bool,
    #[serde(default)]
    cause: String,
    #[serde(default)]
    next: Option<String>,
    #[serde(default)]
    code: u8,
}

/// True in the child.
pub fn is_marked() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The same. Leaves the terminal's session, so that its end is not ours.
pub fn is_child() -> bool {
    if !is_marked() {
        return false;
    }
    let _already_leader = rustix::process::setsid();
    true
}

/// In the child: the parent may go. False if it has gone before: it was interrupted, and nobody wants what was started.
#[must_use]
pub fn ready() -> bool {
    let is_heard = say(&FirstWords { ready: true, cause: String::new(), next: None, code: 0 });
    if !is_heard {
        tracing::warn!("who started this in the background was interrupted: stopping");
    }
    is_heard
}

/// In the child: it did not work. The parent tells.
pub fn failed(failure: &Failure) {
    let (cause, next) = (failure.cause.clone(), failure.next.clone());
    say(&FirstWords { ready: false, cause, next, code: failure.code });
}

/// True if somebody was there to hear it.
fn say(words: &FirstWords) -> bool {
    let Ok(text) = serde_json::to_string(words) else { return true };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Starts this same command line again in the background; returns the child's process number when it
/// is usable. Its log goes to `log`, opened with these flags as well; one that is new goes again if the child says why it is not
/// usable.
pub fn start(log: &Path, flags: OFlags, level: Option<&str>) -> Outcome<u32> {
    let shown = || format!("log file {}", log.display());
    let mut made = Made::default();
    made.expect(log);
    let file = open_log(log, flags).context(shown)?;
    let program = std::env::current_exe().context(|| "finding this program".into())?;
    let mut command = Command::new(program);
    // The name it was called by counts: mount.strake is called with other arguments.
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(MARK, "1");
    if let Some(level) = level {
        command.env("STRAKE_LOG", level);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn();
    let mut child = child.context(|| "starting the background process".into())?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context(|| "the background process".into())?;
    }
    match serde_json::from_str::<FirstWords>(&line) {
        Ok(words) if words.ready => {
            made.keep();
            Ok(child.id())
        }
        Ok(words) => Err(Failure { cause: words.cause, next: words.next, code: words.code }),
        Err(_) => {
            made.keep();
            Err(Failure::new("the background process ended without a word")
                .next(format!("tail {}", log.display())))
        }
    }
}

fn open_log(log: &Path, flags: OFlags) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(flags.bits() as i32).open(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a directory for logs is a group's, its members chose to which file root's mount wrote its log.
    #[test]
    fn a_log_that_nobody_has_named_goes_through_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let (log, other) = (directory.path().join("log"), directory.path().join("other"));
        std::os::unix::fs::symlink(&other, &log).unwrap();
        open_log(&log, OFlags::NOFOLLOW).unwrap_err();
        assert!(!other.exists());
        open_log(&log, OFlags::empty()).unwrap();
        assert!(other.exists());
        std::fs::remove_file(&log).unwrap();
        open_log(&log, OFlags::NOFOLLOW).unwrap();
    }
}
