//! A tool on its way: bounded in time and output, and gone with all its children when it is over, or when
//! this process is.

use crate::error::{Error, Result};
use crate::watch::Watch;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes kept of each of a tool's outputs; the rest is read and dropped.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// How often a running tool is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
    /// How it ended, in words.
    pub how: String,
    /// Its standard output.
    pub output: String,
    /// Both outputs, first what it says went wrong.
    pub all: String,
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
    let (output, errors) = readers(&mut group.0);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = group.0.try_wait().map_err(|e| Error::io("running", program, &e))? {
            break status;
        }
        watch.check()?;
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
    Ok(Ended { succeeded: status.success(), how: status.to_string(), output, all })
}

type Reader = Option<JoinHandle<String>>;

fn readers(child: &mut Child) -> (Reader, Reader) {
    let output = child.stdout.take().map(|pipe: ChildStdout| std::thread::spawn(|| drain(pipe)));
    let errors = child.stderr.take().map(|pipe: ChildStderr| std::thread::spawn(|| drain(pipe)));
    (output, errors)
}

/// Reads a pipe to its end, so that nobody waits for it; keeps the beginning.
fn drain(mut pipe: impl Read) -> String {
    let mut kept = Vec::new();
    let _broken = pipe.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut kept);
    let _broken = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}
