//! What runs leave that were killed: found, named and removed by the next one.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;
use strake_base::process::{began_ticks, boot_id};

/// How the directories of runs begin.
pub const PREFIX: &str = ".strake-bench-";
/// The file in it that says whose it is.
const OWNER: &str = "owner.json";

/// The process a workspace belongs to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    host: String,
    /// Which machine, and which numbering of processes on it: names of hosts are given twice, by people and by containers.
    /// Absent in what earlier releases left.
    #[serde(default)]
    machine: String,
    /// Numbers of processes begin anew with each boot.
    boot: String,
    pid: u32,
    /// When it began, in ticks since the boot: numbers of processes come again.
    began: u64,
}

impl Owner {
    /// This process.
    pub fn here() -> io::Result<Self> {
        let pid = std::process::id();
        let began = began_ticks(pid).ok_or(io::ErrorKind::NotFound)?;
        let line = |path| Ok::<_, io::Error>(fs::read_to_string(path)?.trim().to_owned());
        let host = line("/proc/sys/kernel/hostname")?;
        // Not every container has one; a boot is one machine's, too.
        let machine = line("/etc/machine-id").unwrap_or_default();
        let numbering = fs::read_link("/proc/self/ns/pid")?;
        let machine = format!("{machine} {}", numbering.display());
        Ok(Self { host, machine, boot: boot_id()?, pid, began })
    }

    pub fn write(&self, workspace: &Path) -> io::Result<()> {
        fs::write(workspace.join(OWNER), serde_json::to_vec(self)?)
    }

    /// True if nobody can be working there any more, as far as this host can know.
    fn is_gone(&self, here: &Owner) -> bool {
        (&self.host, &self.machine) == (&here.host, &here.machine)
            && (self.boot != here.boot || began_ticks(self.pid) != Some(self.began))
    }
}

/// Removes what dead runs of this host have left in a directory. A sentence about each directory
/// that was removed, or that belongs to a run which may still work.
pub fn sweep(measured: &Path) -> Result<Vec<String>> {
    let told = |e: &io::Error| Error::io("listing", measured, e);
    let here = Owner::here().map_err(|e| told(&e))?;
    let mut sentences = Vec::new();
    for entry in fs::read_dir(measured).map_err(|e| told(&e))? {
        let entry = entry.map_err(|e| told(&e))?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let shown = path.display();
        let owner: Option<Owner> =
            fs::read(path.join(OWNER)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        sentences.push(match owner {
            Some(owner) if owner.is_gone(&here) => {
                fs::remove_dir_all(&path).map_err(|e| Error::io("removing", &path, &e))?;
                format!("removed {shown}, which an interrupted run (process {}) left", owner.pid)
            }
            Some(owner) if (&owner.host, &owner.machine) == (&here.host, &here.machine) => {
                format!("another run (process {}) works in {shown}: both disturb each other", owner.pid)
            }
            Some(owner) => format!(
                "a run of host {} works in {shown}, or has left it; if none does, remove it by hand",
                owner.host
            ),
            None => format!("{shown} does not say whose it is; if no run works there, remove it by hand"),
        });
    }
    Ok(sentences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(directory: &Path, name: &str, owner: &Owner) -> std::path::PathBuf {
        let path = directory.join(format!("{PREFIX}{name}"));
        fs::create_dir(&path).unwrap();
        owner.write(&path).unwrap();
        fs::write(path.join("big"), "x").unwrap();
        path
    }

    #[test]
    fn only_what_a_dead_process_of_this_host_left_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let here = || Owner::here().unwrap();
        let rebooted = leave(directory.path(), "a", &Owner { boot: "before".into(), ..here() });
        let dead = leave(directory.path(), "b", &Owner { began: here().began + 1, ..here() });
        let alive = leave(directory.path(), "c", &here());
        let elsewhere = leave(directory.path(), "d", &Owner { host: "other".into(), ..here() });
        let (boot, machine) = ("before".to_owned(), "another of that name".to_owned());
        let namesake = leave(directory.path(), "f", &Owner { boot, machine, ..here() });
        let unknown = directory.path().join(format!("{PREFIX}e"));
        fs::create_dir(&unknown).unwrap();
        fs::write(directory.path().join("precious"), "x").unwrap();
        let sentences = sweep(directory.path()).unwrap();
        assert_eq!(sentences.len(), 6, "{sentences:?}");
        assert_eq!(sentences.iter().filter(|s| s.starts_with("removed ")).count(), 2);
        assert!(!rebooted.exists() && !dead.exists());
        assert!(alive.join("big").exists() && elsewhere.join("big").exists() && unknown.exists());
        assert!(namesake.join("big").exists());
        assert!(directory.path().join("precious").exists());
    }
}
