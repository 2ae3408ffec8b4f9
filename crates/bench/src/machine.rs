//! What the machine is that a run is made on, and which programs of others play what is measured there.

use crate::error::{Error, Result};
use crate::process::{self, Manner};
use crate::result::{Machine, Program, Side};
use crate::watch::Watch;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// File systems whose clients are programs, as the kernel names them, and the program that says its release.
const CLIENTS: &[(&str, &str)] = &[
    ("fuse.ceph-fuse", "ceph-fuse"),
    ("fuse.glusterfs", "glusterfs"),
    ("fuse.juicefs", "juicefs"),
    ("fuse.sshfs", "sshfs"),
];
/// How long one may take to say it.
const SAYS_WITHIN: Duration = Duration::from_secs(5);

impl Machine {
    /// This machine; what it does not tell is empty or 0.
    pub fn here(version: &str) -> Machine {
        let uname = rustix::system::uname();
        let kernel = [uname.sysname(), uname.release()].map(|part| part.to_string_lossy());
        Machine {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: memory().unwrap_or_default(),
            kernel: kernel.join(" "),
            version: version.to_owned(),
        }
    }
}

/// The programs that play what is measured, with their releases. Of a file system in the kernel its release says all.
pub fn programs(sides: &[Side]) -> Vec<Program> {
    let is_measured = |kind: &str| sides.iter().any(|side| side.file_system == kind);
    let measured = CLIENTS.iter().filter(|(kind, _)| is_measured(kind));
    let found = measured.filter_map(|(_, name)| {
        let version = release(&process::find(name)?)?;
        Some(Program { name: (*name).to_owned(), version, command: String::new() })
    });
    found.collect()
}

/// What a program says that its release is.
fn release(program: &Path) -> Option<String> {
    let (asked, anywhere) = (["--version".into()], Path::new("/"));
    let watch = Watch::default();
    let told = process::run(program, &asked, anywhere, SAYS_WITHIN, &watch, Manner::QUIET).ok()?;
    let mut words = told.output.lines().next()?.split_whitespace();
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

/// Bytes of memory of this machine, if it says.
pub fn memory() -> Option<u64> {
    let text = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = text.split(' ').next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes of memory of this machine, for what cannot do without knowing.
pub fn memory_known() -> Result<u64> {
    memory().ok_or_else(|| {
        Error::failed("this machine does not say how much memory it has")
            .next("say how large the files shall be")
    })
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page compared with "fuse.glusterfs", whichever that was.
    #[test]
    fn a_program_says_its_release() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("player");
        let says = |script: &str| {
            // Written elsewhere: what somebody writes cannot be started.
            let copy = format!("cp /dev/stdin '{}' <<'END'\n{script}\nEND", program.display());
            let copied = std::process::Command::new("/bin/sh").args(["-c", &copy]).status();
            assert!(copied.unwrap().success());
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            release(&program)
        };
        assert_eq!(says("#!/bin/sh\necho player 10.3 of $1").as_deref(), Some("10.3"));
        assert_eq!(says("#!/bin/sh\nexit 1"), None);
        assert!(programs(&[]).is_empty());
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::here("1");
        assert!(machine.cores > 0 && machine.memory > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
