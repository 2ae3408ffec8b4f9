//! What a testbed is remembered by.
//!
//! `DIR/testbed.json` says what was planned, before anything of it is made, and which processes were
//! started. `/run/strake/testbeds/NAME` is a link to `DIR`: it takes the name, so that two testbeds never
//! have the same, and goes when the machine starts anew, as namespaces do.

use super::context::Context;
use super::plan::{Host, Plan};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Name of the file in the directory of a testbed.
pub const FILE: &str = "testbed.json";
/// Where the names of testbeds are.
const REGISTRY: &str = "/run/strake/testbeds";
/// Locked while a name is taken.
const LOCK: &str = ".lock";

/// What a testbed says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What it is to be.
    pub plan: Plan,
    /// Its network is 10.98.`subnet`.0/24.
    pub subnet: u8,
    /// Its directory.
    pub data: PathBuf,
    /// Whether the directory was made for it.
    pub made_data: bool,
    /// True once everything runs.
    pub complete: bool,
    /// What was started in it, in this order.
    pub processes: Vec<Process>,
}

/// A process of a testbed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The name of the host it runs on.
    pub host: String,
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the machine started.
    pub began_ticks: u64,
}

impl Process {
    /// True while it runs.
    pub fn is_alive(&self) -> bool {
        strake_base::process::began_ticks(self.pid) == Some(self.began_ticks)
    }
}

impl State {
    /// The hosts.
    pub fn hosts(&self) -> Vec<Host> {
        self.plan.hosts(self.subnet)
    }

    /// Where the client with this number mounts.
    pub fn mount(&self, nth: u32) -> PathBuf {
        self.data.join(Plan::mount_name(nth))
    }

    /// Reads the state file of a directory; `None` if there is none that can be understood.
    pub fn read(data: &Path) -> Option<State> {
        let text = std::fs::read_to_string(data.join(FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes it in one step: a reader sees all of it or nothing.
    pub fn write(&self) -> Result<()> {
        let path = self.data.join(FILE);
        let draft = self.data.join(format!("{FILE}.new"));
        let text = serde_json::to_string_pretty(self).context(|| path.display().to_string())?;
        std::fs::write(&draft, text).context(|| draft.display().to_string())?;
        std::fs::rename(&draft, &path).context(|| path.display().to_string())
    }
}

/// The names of the testbeds of this machine.
pub struct Registry {
    path: PathBuf,
}

impl Registry {
    /// The one of this machine.
    pub fn of_machine() -> Registry {
        Registry { path: REGISTRY.into() }
    }

    /// Names that are taken, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| name != LOCK).collect();
        names.sort();
        names
    }

    /// The directory of a testbed; `None` if there is none of this name.
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        std::fs::read_link(self.path.join(name)).ok()
    }

    /// The state of a testbed, as far as it is there.
    pub fn state(&self, name: &str) -> Option<State> {
        State::read(&self.directory(name)?).filter(|state| state.plan.name == name)
    }

    /// Takes a name and a network for a plan, and makes the directory with the state in it.
    pub fn take(&self, plan: &Plan, data: &Path) -> Result<State> {
        let shown = || self.path.display().to_string();
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.path).context(shown)?;
        let lock = File::create(self.path.join(LOCK)).context(shown)?;
        lock.lock().context(shown)?;
        let link = self.path.join(&plan.name);
        if let Some(other) = self.directory(&plan.name) {
            return Err(Error::failed(format!(
                "testbed {} is there already, or was left behind, with its data in {}",
                plan.name,
                other.display()
            ))
            .next(format!(
                "use it (strake testbed status --name {0}), remove it (strake testbed down --name {0}), \
                 or choose another --name",
                plan.name
            )));
        }
        let subnet = self.free_subnet()?;
        let made_data = make_directory(data)?;
        let data = data.canonicalize().context(|| data.display().to_string())?;
        let (plan, processes) = (plan.clone(), Vec::new());
        let state = State { plan, subnet, data, made_data, complete: false, processes };
        // The name first: whatever happens next, `down` finds it.
        let written = symlink(&state.data, &link)
            .context(|| link.display().to_string())
            .and_then(|()| state.write());
        if let Err(error) = written {
            self.release(&state.plan.name)?;
            if made_data {
                let _not_empty = std::fs::remove_dir(&state.data);
            }
            return Err(error);
        }
        Ok(state)
    }

    fn free_subnet(&self) -> Result<u8> {
        let states = self.names().into_iter().filter_map(|name| self.state(&name));
        let taken: Vec<u8> = states.map(|state| state.subnet).collect();
        (0..=u8::MAX).find(|subnet| !taken.contains(subnet)).ok_or_else(|| {
            Error::failed("no network is free for another testbed")
                .next("remove one: strake testbed down --name NAME")
        })
    }

    /// Gives a name back; one that is not taken is no error.
    pub fn release(&self, name: &str) -> Result<()> {
        let link = self.path.join(name);
        match std::fs::remove_file(&link) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::failed(format!("{}: {e}", link.display())))
            }
            _ => Ok(()),
        }
    }
}

/// Makes the directory of a testbed, or takes an empty one; whether it was made.
fn make_directory(data: &Path) -> Result<bool> {
    let shown = || format!("data directory {}", data.display());
    match std::fs::read_dir(data).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(false),
        Ok(false) => Err(Error::failed(format!("{} is not empty", shown()))
            .next("choose another --data: strake testbed down removes all that is in it")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(data).context(shown).map(|()| true)
        }
        Err(e) => Err(Error::failed(format!("{}: {e}", shown())).next("choose another --data")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    fn registry(dir: &Path) -> Registry {
        Registry { path: dir.join("names") }
    }

    #[test]
    fn a_testbed_is_found_again_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let names = registry(dir.path());
        assert_eq!((names.names(), names.state("t")), (vec![], None));
        let state = names.take(&plan(), &dir.path().join("d")).unwrap();
        assert_eq!(names.state("t"), Some(state.clone()));
        assert_eq!(names.names(), ["t"]);
        assert_eq!(state.mount(2), state.data.join("mnt/c2"));
        names.release("t").unwrap();
        names.release("t").unwrap();
        assert_eq!(names.state("t"), None);
    }

    #[test]
    fn two_testbeds_share_neither_name_nor_network_nor_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (names, data) = (registry(dir.path()), dir.path().join("d"));
        let first = names.take(&plan(), &data).unwrap();
        let error = names.take(&plan(), &dir.path().join("e")).unwrap_err();
        assert!(error.next.unwrap().contains("down --name t"), "{}", error.cause);
        assert!(!dir.path().join("e").exists());
        let other = Plan { name: "u".into(), ..plan() };
        let error = names.take(&other, &data).unwrap_err();
        assert!(error.cause.contains("not empty"), "{error}");
        let second = names.take(&other, &dir.path().join("e")).unwrap();
        assert_ne!(first.subnet, second.subnet);
    }

    #[test]
    fn a_state_that_cannot_be_understood_still_takes_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let names = registry(dir.path());
        let state = names.take(&plan(), &dir.path().join("d")).unwrap();
        std::fs::write(state.data.join(FILE), "{").unwrap();
        assert_eq!((names.state("t"), names.directory("t")), (None, Some(state.data)));
        assert!(names.take(&plan(), &dir.path().join("e")).is_err());
    }

    #[test]
    fn another_process_with_the_number_of_ours_is_not_ours() {
        let pid = std::process::id();
        let began_ticks = strake_base::process::began_ticks(pid).unwrap();
        let own = Process { host: "s1".into(), pid, began_ticks };
        assert!(own.is_alive());
        assert!(!Process { began_ticks: began_ticks + 1, ..own }.is_alive());
    }
}
