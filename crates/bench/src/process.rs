//! A program of others on its way: bounded in time and output, and gone with all its children when it is over, or
//! when this process is.

use crate::error::{Error, Result};
use crate::watch::Watch;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes kept of each of a tool's outputs; the rest is read and dropped.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Bytes of an output that are read at once, and heard of.
const HEARD_BYTES: usize = 4096;
/// How often a running tool is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long one that is to stop may take to tell what it has measured.
const TELLS_WITHIN: Duration = Duration::from_secs(5);
/// Where root's programs lie, beside what PATH names.
const FURTHER_PLACES: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The shell that runs a tool.
const SHELL: &str = "/bin/sh";
/// What it does, so that a tool with its children ends with this process, too, which may be killed: a
/// process beside the tool reads a pipe into which we never write; when there is nobody any more who
/// could, it kills the group of both. The tool takes the place of the shell.
const GUARDED: &str = r#"exec 3<&0 </dev/null
{ read -r end <&3; kill -KILL 0; } >/dev/null 2>&1 &
exec 3<&-
exec "$0" "$@""#;

/// How a tool ended.
pub struct Ended {
    /// True where it says that all went well.
    pub succeeded: bool,
    /// True where it was to stop, and has told what it had measured.
    pub stopped: bool,
    /// How it ended, in words.
    pub how: String,
    /// Its standard output.
    pub output: String,
    /// Both outputs, first what it says went wrong.
    pub all: String,
}

/// What can be done with a tool while it runs.
#[derive(Clone, Copy)]
pub struct Manner<'a> {
    /// True of one that tells what it has measured by now when it is ended by SIGTERM.
    pub tells: bool,
    /// Is given what it has printed last.
    pub heard: &'a dyn Fn(&str),
}

impl Manner<'_> {
    /// Of one that is heard at its end.
    pub const QUIET: Manner<'static> = Manner { tells: false, heard: &|_| () };
}

/// Where a program is.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let further = FURTHER_PLACES.iter().map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(further);
    places.find_map(|place| Some(place.join(name)).filter(|program| program.is_file()))
}

/// The tool and everything that it has started: killed when this value goes.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Its guard is in its group, and so are children that outlive it.
        let _gone = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _status = self.0.wait();
    }
}

/// Runs a program in a directory to its end.
pub fn run(
    program: &Path,
    arguments: &[OsString],
    directory: &Path,
    limit: Duration,
    watch: &Watch,
    manner: Manner<'_>,
) -> Result<Ended> {
    let mut command = Command::new(SHELL);
    command.arg("-c").arg(GUARDED).arg(program).args(arguments);
    command.current_dir(directory).process_group(0);
    // Numbers with points and words in English.
    command.env("LC_ALL", "C");
    // Its input is the pipe of the guard, which `Group` holds open.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| Error::io("running", program, &e))?;
    let mut group = Group(child);
    let heard = Arc::<Mutex<String>>::default();
    let output = group.0.stdout.take().map(|pipe| reader(pipe, heard.clone()));
    let errors = group.0.stderr.take().map(|pipe| reader(pipe, Arc::default()));
    let began = Instant::now();
    let mut asked: Option<Instant> = None;
    let status = loop {
        if let Some(status) = group.0.try_wait().map_err(|e| Error::io("running", program, &e))? {
            break status;
        }
        let text = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
        (manner.heard)(&text);
        if let Err(stopped) = watch.check() {
            match asked {
                None if manner.tells => {
                    let _gone = kill_process(Pid::from_child(&group.0), Signal::TERM);
                    asked = Some(Instant::now());
                }
                Some(asked) if asked.elapsed() < TELLS_WITHIN => {}
                _ => return Err(stopped),
            }
        }
        watch.live();
        if began.elapsed() >= limit {
            let (name, seconds) = (program.display(), limit.as_secs());
            return Err(Error::failed(format!("{name} did not end within {seconds} s"))
                .next("give it more time (--limit SECONDS), or less to do (--size, --files)"));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    // Whoever still holds the pipes would keep their readers waiting.
    drop(group);
    let [output, errors] = [output, errors].map(|reader| reader.and_then(|r| r.join().ok()));
    let (output, errors) = (output.unwrap_or_default(), errors.unwrap_or_default());
    let all = format!("{output}\n{errors}");
    let (succeeded, stopped) = (status.success(), asked.is_some());
    Ok(Ended { succeeded, stopped, how: status.to_string(), output, all })
}

/// Reads a pipe to its end, so that nobody waits for it; keeps the beginning, and what came last in `heard`.
fn reader(mut pipe: impl Read + Send + 'static, heard: Arc<Mutex<String>>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), vec![0; HEARD_BYTES]);
        loop {
            let read = match pipe.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(read) => &buffer[..read],
            };
            kept.extend_from_slice(&read[..read.len().min(OUTPUT_BYTES_MAX - kept.len())]);
            let text = String::from_utf8_lossy(read).into_owned();
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
        String::from_utf8_lossy(&kept).into_owned()
    })
}
