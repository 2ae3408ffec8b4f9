//! A process that outlives ours by a moment: if we are killed, it takes the mount away.
//!
//! Without it, `kill -9` would leave a mount point that answers nothing but "Transport endpoint is
//! not connected". The kernel tells nobody of a dead process but who holds the other end of a pipe.
//!
//! And not even him while a thread cannot die: one that has the kernel drop a page waits, whatever signal comes, until that page was
//! read, which takes an answer of this very process. What is left of that keeps the pipe open, and the connection to the kernel, so
//! that every program of the mount would wait for ever. So the process here also looks now and then whether the other one is dying,
//! and aborts the connection then.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use strake_base::descriptor::lock_within;

/// Longest that a new mount waits for the process that watched over one of before.
const CLAIM_WAIT: Duration = Duration::from_secs(3);

/// How often it looks whether the process is dying, in seconds.
const LOOK_EVERY: u8 = 2;

/// When it looks first, in seconds: the signal would end a shell that busy processors have not let set its trap yet.
const LOOK_FIRST: u8 = 30;

/// Reads one line. With it, all is well; without it, the writer has died, or it is time to look at it. It is dying when its main
/// thread is dead, or has SIGKILL pending, or when it dumps core, which waits for all threads. A shell that cannot start another
/// process ends, so it starts none to look. From the directory of the process it looks at no other one, whoever has its number
/// later. Only a mount that answers nobody is taken away: whoever was quicker may have mounted something else, for whose answer
/// nobody waits for long.
const SCRIPT: &str = r#"trap '' INT TERM HUP
trap look=yes ALRM
cd "/proc/$1"
dying() {
  while read -r key value _; do
    case $key$value in
    State:Z | SigPnd:*[13579bdf]?? | CoreDumping:1) return 0 ;;
    esac
  done <status
  return 1
}
while :; do
  read -r word <&1 && exit
  [ "$look" ] || break
  look=
  if dying; then
    echo abort >&0
    break
  fi
done
case $(LC_ALL=C timeout -s KILL 5 stat -f -- "$2" 2>&1) in
*'not connected'* | *'connection abort'*)
  umount -l -- "$2" 2>/dev/null || fusermount3 -uz -- "$2" 2>/dev/null ;;
esac"#;

/// The right to mount at a directory: a lock of it, which whoever watches over the mount holds as long as it may
/// take a mount away. What is mounted anew meanwhile would be taken away in place of the lost one, and programs
/// would write into the bare directory from then on.
pub struct Claim(Option<File>);

impl Claim {
    /// Waits until nobody watches over `mountpoint`, on which nothing of ours is mounted. Where directories
    /// cannot be locked, or somebody holds a lock for long, one goes on without.
    pub fn wait(mountpoint: &Path) -> Self {
        let Ok(directory) = File::open(mountpoint) else { return Self(None) };
        match lock_within(&directory, CLAIM_WAIT) {
            Ok(()) => Self(Some(directory)),
            Err(error) => {
                let point = mountpoint.display();
                tracing::warn!("{point}: mounting without a lock of the directory: {error}");
                Self(None)
            }
        }
    }
}

/// Unmounts a mount point when it is lost without a word.
pub struct Watch {
    child: Child,
    /// Of the pipe from which it reads.
    tell: Option<PipeWriter>,
}

impl Watch {
    /// Starts to watch over `mountpoint` (absolute), which was claimed before it was mounted; `abort`: of its connection.
    pub fn start(mountpoint: &Path, claim: Claim, abort: io::Result<File>) -> io::Result<Self> {
        // Not by the number that we know: that may be another one's in this `/proc`. Without any we are not looked at.
        let process = std::fs::read_link("/proc/self").unwrap_or_default();
        Self::over(&process, mountpoint, claim, abort)
    }

    /// The same for the mount of any process, by its name in `/proc`.
    fn over(
        process: &Path,
        mountpoint: &Path,
        claim: Claim,
        abort: io::Result<File>,
    ) -> io::Result<Self> {
        let mut command = shell(process, mountpoint);
        // What a shell or its linker might say must not abort anything, so that is where nobody writes.
        match abort {
            Ok(abort) => {
                command.stdin(abort);
                wake_now_and_then(&mut command);
            }
            Err(error) => {
                tracing::debug!(%error, "nobody could abort the connection of this mount");
                command.stdin(Stdio::null());
            }
        }
        let no_pipe =
            |error: io::Error| io::Error::new(error.kind(), format!("no pipe to it: {error}"));
        let (told, tell) = io::pipe().map_err(no_pipe)?;
        // Nor can be written to these: the lock lasts until the last process that has it open ends.
        let claimed = claim.0.map_or_else(Stdio::null, Stdio::from);
        let child = command.stdout(told).stderr(claimed).spawn()?;
        Ok(Self { child, tell: Some(tell) })
    }
}

/// What watches over the mount of a process, by that one's name in `/proc`.
fn shell(process: &Path, mountpoint: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "strake-mount-watch"]).arg(process).arg(mountpoint);
    // Of its own group and away from where we were started: signals for us are not for it, and it keeps
    // no more busy than the mount does.
    command.process_group(0).current_dir("/");
    command
}

/// The program gets SIGALRM every [`LOOK_EVERY`] seconds: a shell has no other way to wait for two things.
#[allow(unsafe_code, reason = "timers outlast no fork, so it is the child that sets its own")]
fn wake_now_and_then(command: &mut Command) {
    let seconds = |count: u8| libc::timeval { tv_sec: count.into(), tv_usec: 0 };
    let timer = libc::itimerval { it_interval: seconds(LOOK_EVERY), it_value: seconds(LOOK_FIRST) };
    let set = move || {
        // SAFETY: the kernel reads a timer that is alive during the call, and writes nothing.
        let result =
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it does one system call, and neither allocates nor locks anything.
    unsafe { command.pre_exec(set) };
}

impl Drop for Watch {
    /// Never runs if the process is killed; that is the point of it.
    fn drop(&mut self) {
        let told = match self.tell.take() {
            Some(mut tell) => tell.write_all(b"done\n"),
            None => Ok(()),
        };
        if let Err(error) = told.and_then(|()| self.child.wait().map(drop)) {
            tracing::debug!(%error, "the process that watches over the mount ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::point::{abort_file, is_ours};
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use rustix::mount::{MountFlags, UnmountFlags};
    use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
    use std::ffi::CString;
    use std::io::{Read, Seek};
    use std::os::fd::AsRawFd;
    use std::process::ExitStatus;
    use std::time::Instant;

    /// Where nothing of ours is mounted.
    fn no_abort() -> io::Result<File> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn may_mount() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("skipped: only root mounts");
        }
        is_root
    }

    /// Wakes a shell that watches, as its timer does, until it has ended.
    fn wake_until_it_ends(shell: &mut Child) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = shell.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it goes on to watch");
            if catches_the_timer(shell) {
                kill_process(Pid::from_child(shell), Signal::ALARM).unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// True if it has set its trap.
    fn catches_the_timer(shell: &Child) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", shell.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (libc::SIGALRM - 1) != 0
    }

    /// A process is killed of which one thread cannot die: its device stays open, and its end of the pipe.
    #[test]
    fn a_mount_of_a_dying_process_is_aborted_while_its_connection_is_open() {
        if !may_mount() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let (options, flags) = (CString::new(options).unwrap(), MountFlags::empty());
        let at = directory.path();
        rustix::mount::mount("none", at, "fuse.strake", flags, options.as_c_str()).unwrap();
        let abort = abort_file(at);
        let file = at.join("file");
        let program = std::thread::spawn(move || std::fs::metadata(file));
        // Nobody has waited for it, so it is dead and not gone.
        let mut killed = Command::new("true").spawn().unwrap();
        let process = killed.id().to_string();
        let mut watch = Watch::over(Path::new(&process), at, Claim(None), abort).unwrap();
        let ended = wake_until_it_ends(&mut watch.child);
        let end = Instant::now() + Duration::from_secs(60);
        while !program.is_finished() {
            assert!(Instant::now() < end, "the program waits for ever");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(program.join().unwrap().is_err());
        assert!(ended.success());
        assert!(!is_ours(at));
        killed.wait().unwrap();
    }

    /// The watch was gone with the first look that met a limit of processes.
    #[test]
    #[allow(unsafe_code, reason = "the limit is set when the shell is no longer root's")]
    fn a_look_at_the_process_needs_no_other_process() {
        let mut killed = Command::new("true").spawn().unwrap();
        let mut abort = tempfile::tempfile().unwrap();
        let (told, _tell) = io::pipe().unwrap();
        let mut shell = shell(Path::new(&killed.id().to_string()), Path::new("/nowhere"));
        shell.stdin(abort.try_clone().unwrap()).stdout(told).stderr(Stdio::null());
        if rustix::process::geteuid().is_root() {
            // No limit holds for root.
            shell.uid(65534);
        }
        let limit = Rlimit { current: Some(1), maximum: Some(1) };
        let set = move || setrlimit(Resource::Nproc, limit).map_err(io::Error::from);
        // SAFETY: between fork and exec it does one system call, and neither allocates nor locks anything.
        unsafe { shell.pre_exec(set) };
        wake_until_it_ends(&mut shell.spawn().unwrap());
        let mut said = String::new();
        abort.rewind().unwrap();
        abort.read_to_string(&mut said).unwrap();
        assert_eq!(said, "abort\n");
        killed.wait().unwrap();
    }

    /// The first signal ended a shell that had not come to its trap.
    #[test]
    fn a_watch_that_is_slow_to_start_is_not_ended_by_its_timer() {
        let mut slow = Command::new("sleep");
        slow.arg("3");
        wake_now_and_then(&mut slow);
        assert!(slow.status().unwrap().success());
    }

    #[test]
    fn what_was_mounted_anew_in_the_place_of_a_lost_mount_stays() {
        if !may_mount() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        rustix::mount::mount("none", directory.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        std::fs::write(directory.path().join("file"), "here").unwrap();
        let mut watch = Watch::start(directory.path(), Claim(None), no_abort()).unwrap();
        drop(watch.tell.take());
        assert!(watch.child.wait().unwrap().success());
        let found = std::fs::read(directory.path().join("file"));
        rustix::mount::unmount(directory.path(), UnmountFlags::DETACH).unwrap();
        assert_eq!(found.unwrap(), b"here");
    }

    /// Who looks whether a mount is dead and then takes it away may meet one that was mounted in between.
    #[test]
    fn nobody_mounts_where_a_lost_mount_may_still_be_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::wait(directory.path());
        assert!(claim.0.is_some(), "a fresh directory is locked by nobody");
        let mut watch = Watch::start(directory.path(), claim, no_abort()).unwrap();
        let other = File::open(directory.path()).unwrap();
        let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK), "it watches");
        drop(other);
        drop(watch.tell.take());
        // Not as a mount claims it, which goes on without where a busy machine takes its time.
        let next = File::open(directory.path()).unwrap();
        assert!(lock_within(&next, Duration::from_secs(60)).is_ok(), "it ends");
        assert!(watch.child.wait().unwrap().success());
    }
}
