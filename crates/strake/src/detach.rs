//! Running on in the background: the program starts itself again as a child and waits until the
//! child says that it is usable, or why it is not.
//!
//! The child's first words come through its standard output, one line: `ready`, or the failure as
//! JSON. From then on it writes only to its log.

use crate::failure::{Context, Failure, Outcome};
use crate::made::Made;
use crate::mountpoint;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use strake_base::descriptor;

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
    // Not earlier: relative paths counted from there until now. Not later: whoever started this may unmount the disk it is on.
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::warn!("the directory that this was started in stays in use: {error}");
    }
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
/// is usable. Its log goes to `log`, which others may have made unless it `is_chosen`; one that is new goes again if the child
/// says why it is not usable. What it has mounted at `point` goes if it dies before that.
pub fn start(log: &Path, is_chosen: bool, level: &str, point: &Path) -> Outcome<u32> {
    let mut made = Made::default();
    made.expect(log);
    let file = open_log(log, is_chosen)?;
    let program = std::env::current_exe().context(|| "finding this program".into())?;
    let mut command = Command::new(program);
    // The name it was called by counts: mount.strake is called with other arguments.
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(MARK, "1").env("STRAKE_LOG", level);
    // A lock that the caller has open would stay held, and a pipe that he reads would never end.
    if let Err(error) = descriptor::keep_from_programs() {
        tracing::debug!("open files of the caller stay open in the background: {error}");
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
            // Nothing may have watched over its mount yet, which answers nobody, and is not dead, until the process is gone.
            let _ended = child.wait();
            if let Err(failure) = mountpoint::clear(point) {
                tracing::warn!("{failure}");
            }
            Err(Failure::new("the background process ended without a word")
                .next(format!("tail {}", log.display())))
        }
    }
}

/// Opens the log. What nobody has chosen is a file and no link, nor a pipe; who reads a chosen one is not waited for.
fn open_log(log: &Path, is_chosen: bool) -> Outcome<File> {
    let (links, next) = match is_chosen {
        true => (OFlags::empty(), "name a file that can be written, or a pipe that somebody reads"),
        false => (OFlags::NOFOLLOW, "-o log=FILE names a file for it"),
    };
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags((OFlags::NONBLOCK | links).bits() as i32);
    let file = options.open(log).and_then(|file| match is_chosen || file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    });
    file.context(|| format!("log file {}", log.display())).map_err(|failure| failure.next(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;

    /// Where a directory for logs is a group's, its members chose to which file root's mount wrote its log.
    #[test]
    fn a_log_that_nobody_has_chosen_goes_through_no_link_and_into_no_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let (log, other) = (directory.path().join("log"), directory.path().join("other"));
        std::os::unix::fs::symlink(&other, &log).unwrap();
        let failure = open_log(&log, false).unwrap_err();
        assert!(failure.next.is_some_and(|next| next.contains("log=FILE")));
        assert!(!other.exists());
        open_log(&log, true).unwrap();
        assert!(other.exists());
        std::fs::remove_file(&log).unwrap();
        // The mount waited for somebody to read it.
        rustix::fs::mkfifoat(rustix::fs::CWD, &log, Mode::from_raw_mode(0o600)).unwrap();
        open_log(&log, false).unwrap_err();
        let reader = OpenOptions::new().read(true).write(true).open(&log).unwrap();
        let failure = open_log(&log, false).unwrap_err();
        assert!(failure.cause.contains("no regular file"), "{failure}");
        drop(reader);
        std::fs::remove_file(&log).unwrap();
        open_log(&log, false).unwrap();
    }

    /// `strake mount -o log=PIPE` stood still for ever.
    #[test]
    fn a_chosen_log_that_is_a_pipe_is_refused_where_nobody_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        rustix::fs::mkfifoat(rustix::fs::CWD, &log, Mode::from_raw_mode(0o600)).unwrap();
        let failure = open_log(&log, true).unwrap_err();
        assert!(failure.next.is_some_and(|next| next.contains("somebody reads")));
        let _reader = OpenOptions::new().read(true).write(true).open(&log).unwrap();
        open_log(&log, true).unwrap();
    }
}
