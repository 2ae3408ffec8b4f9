//! Being in the network of a host, and what runs there.
//!
//! Only the network is a host's own: its processes see the files and mounts of the machine, and the
//! machine sees theirs.

use super::context::Context;
use crate::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strake_base::descriptor;

/// Where namespaces have their names.
const NAMESPACES: &str = "/run/netns";
/// How long killed processes may take to end.
const KILL_WAIT: Duration = Duration::from_secs(20);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The file that stands for a namespace.
pub fn namespace_file(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Names of the namespaces that begin with `prefix`, in order.
pub fn namespaces(prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// Does `work` on a thread that is in the network of a host. What it starts (a process, a socket)
/// stays in that network.
pub fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = namespace_file(namespace);
    let file = File::open(&path).map_err(|e| {
        Error::failed(format!("the network of a host, {}: {e}", path.display()))
            .next("remove what is left of the testbed: strake testbed down")
    })?;
    let enter = || -> io::Result<T> {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    };
    let entered = std::thread::scope(|scope| scope.spawn(enter).join());
    match entered {
        Ok(done) => done.context(|| format!("entering the network {}", path.display())),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A program that a testbed starts, in a group of its own: a Ctrl-C at the terminal is for the run, which
/// ends or awaits what it has started.
pub fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.process_group(0).stdin(Stdio::null());
    command
}

/// The same for what stays when the testbed is up: it has neither the open files nor the directory of who wanted it, as what runs in
/// the background has not.
pub fn staying(program: impl AsRef<OsStr>) -> Command {
    let _not_before_linux_5_11 = descriptor::keep_from_programs();
    let mut command = alone(program);
    command.current_dir("/");
    command
}

/// Processes whose network is one of these, but for our own.
pub fn processes_in(namespaces: &[String]) -> Vec<u32> {
    let id = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    let networks: BTreeSet<_> =
        namespaces.iter().filter_map(|name| id(&namespace_file(name))).collect();
    let in_them = |pid: &u32| {
        id(Path::new(&format!("/proc/{pid}/ns/net"))).is_some_and(|net| networks.contains(&net))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).filter(in_them).collect()
}

/// The name of a process's program, and its first arguments, for people.
pub fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let (program, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program} {rest}").trim().to_owned()
}

/// Kills processes, as often as `which` finds some, and waits until it finds none.
pub fn kill_all(which: impl Fn() -> Vec<u32>) -> Result<()> {
    let end = Instant::now() + KILL_WAIT;
    loop {
        let left = which();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            let shown: Vec<_> =
                left.iter().map(|pid| format!("{pid} ({})", command_line(*pid))).collect();
            let shown = shown.join(", ");
            return Err(Error::failed(format!("processes cannot be killed: {shown}"))
                .next(format!("see what they wait for: cat /proc/{}/stack", left[0])));
        }
        for pid in left {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ended_by_itself = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{FdFlags, fcntl_setfd};
    use std::os::fd::AsRawFd;

    /// Ctrl-C ended `ip` and `strake volume set` half-way, and the testbed failed instead of stopping.
    #[test]
    fn what_a_testbed_starts_is_not_ended_by_a_ctrl_c_at_the_terminal() {
        // The fifth field of a process's state is its group.
        let script = "read -r pid name state parent group rest < /proc/$$/stat; test $group = $$";
        assert!(alone("/bin/sh").args(["-c", script]).status().unwrap().success());
    }

    /// A pipe from `strake testbed up` never ended, and a disk could not be unmounted on which it had been given.
    #[test]
    fn what_stays_has_neither_the_files_nor_the_directory_of_who_wanted_the_testbed() {
        let file = tempfile::tempfile().unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        let script = format!("test ! -e /proc/$$/fd/{} && test \"$(pwd)\" = /", file.as_raw_fd());
        assert!(staying("/bin/sh").args(["-c", &script]).status().unwrap().success());
    }
}
