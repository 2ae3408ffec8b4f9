//! A cluster's worth of hosts on one machine: network namespaces joined by a switch, each link and
//! each disk no faster than asked for.
//!
//! * [`Plan`] says what a testbed consists of; everything it is made of has a name that follows from
//!   it, so that all of it is found again whatever happened in between.
//! * [`Testbed::up`] makes the network and starts a Strake cluster in it; [`down`] removes everything
//!   that has the testbed's name, also after a crash half-way.
//! * [`within`] does something in the network of a host: how clients are run, and how other file systems
//!   are started under the same limits.
//!
//! What this never does: touch a process, a mount or a file that is not in a testbed, or leave
//! something behind when it fails.

mod cluster;
mod context;
mod host;
mod network;
mod plan;
mod rate;
mod state;

pub use host::{command_line, namespace_file, processes_in, within};
pub use network::burst_bytes;
pub use plan::{HOSTS_MAX, Host, NAME_DEFAULT, Plan, Role, TARGETS_MAX, check_name};
pub use rate::Rate;
pub use state::{FILE, Process, Registry, State};

use crate::error::{Error, Result};
use cluster::Starter;
use context::Context;
use plan::namespace_prefix;
use rustix::mount::{UnmountFlags, unmount};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use strake_base::mount_table::{self, Mount};

/// How often mounts below the directory are looked for: one may lie on another.
const UNMOUNT_ROUNDS_MAX: u32 = 1000;

/// A testbed that runs.
#[derive(Debug, Clone)]
pub struct Testbed {
    /// What it is.
    pub state: State,
}

impl Testbed {
    /// Makes a testbed with everything in `data`, which is made or empty. `program` is the program
    /// `strake`. If it fails, or `stopped` becomes true on the way, nothing is left.
    pub fn up(
        plan: &Plan,
        data: &Path,
        program: &Path,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Testbed> {
        plan.check()?;
        network::check_means()?;
        let left = host::namespaces(&namespace_prefix(&plan.name));
        let registry = Registry::of_machine();
        if !left.is_empty() && registry.directory(&plan.name).is_none() {
            let cause = format!("namespaces of an earlier testbed {} are left", plan.name);
            return Err(Error::failed(cause)
                .next(format!("remove them: strake testbed down --name {}", plan.name)));
        }
        let mut state = registry.take(plan, data)?;
        match make(&mut state, program, stopped) {
            Ok(()) => Ok(Testbed { state }),
            Err(error) => {
                let error = or_stopped(error, stopped());
                if let Err(left) = down(&plan.name) {
                    return Err(Error::failed(format!("{error}\nand not all went: {left}"))
                        .next(format!("strake testbed down --name {}", plan.name)));
                }
                Err(error)
            }
        }
    }

    /// The testbed of this name.
    pub fn find(name: &str) -> Result<Testbed> {
        check_name(name)?;
        let registry = Registry::of_machine();
        match (registry.state(name), registry.directory(name)) {
            (Some(state), _) => Ok(Testbed { state }),
            (None, None) => {
                let names = registry.names();
                let others = match names.is_empty() {
                    true => "make one: strake testbed up".to_owned(),
                    false => format!("there are: {}; name one with --name", names.join(", ")),
                };
                Err(Error::failed(format!("there is no testbed {name}")).next(others))
            }
            (None, Some(data)) => Err(Error::failed(format!(
                "what testbed {name} was is lost: {} cannot be read",
                data.join(FILE).display()
            ))
            .next(format!("remove what is left of it: strake testbed down --name {name}"))),
        }
    }

    /// A host by its name.
    pub fn host(&self, name: &str) -> Result<Host> {
        let hosts = self.state.hosts();
        let names: Vec<_> = hosts.iter().map(|host| host.name.clone()).collect();
        hosts.into_iter().find(|host| host.name == name).ok_or_else(|| {
            Error::failed(format!("testbed {} has no host {name}", self.state.plan.name))
                .next(format!("name one of {}", names.join(", ")))
        })
    }

    /// The hosts of a role.
    pub fn hosts(&self, role: Role) -> Vec<Host> {
        self.state.hosts().into_iter().filter(|host| host.role == role).collect()
    }
}

/// A testbed that goes with its value, whatever happens in between.
#[derive(Debug)]
pub struct Temporary {
    /// The testbed.
    pub testbed: Testbed,
}

impl Temporary {
    /// Removes it and says how that went; dropping the value says nothing.
    pub fn down(self) -> Result<()> {
        down(&self.testbed.state.plan.name).map(drop)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After `Temporary::down` nothing of it is left, and this finds nothing.
        let _told_by_the_next_up = down(&self.testbed.state.plan.name);
    }
}

/// Why something was not done: once nobody wants it, that is why, whatever failed meanwhile.
pub(crate) fn or_stopped(error: Error, stopped: bool) -> Error {
    if stopped { Error::stopped() } else { error }
}

fn make(state: &mut State, program: &Path, stopped: &dyn Fn() -> bool) -> Result<()> {
    let hosts = state.hosts();
    network::make(&state.plan, &hosts, stopped)?;
    let mounts = state.data.join("mnt");
    std::fs::create_dir_all(&mounts).context(|| mounts.display().to_string())?;
    if state.plan.cluster {
        Starter { program, state: &mut *state, stopped }.start()?;
    }
    state.complete = true;
    state.write()
}

/// What [`down`] found and removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Namespaces, of hosts and of the switch.
    pub namespaces: usize,
    /// Mounts below its directory.
    pub mounts: usize,
    /// The directory, where there was one.
    pub data: Option<PathBuf>,
}

impl Removed {
    /// True if there was nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Removed::default()
    }
}

/// Removes a testbed: its mounts, every process in its networks, the networks, and its directory.
/// What is not there (any more) is no error; what cannot be removed is, and can be tried again.
pub fn down(name: &str) -> Result<Removed> {
    check_name(name)?;
    network::check_means()?;
    // Of two at a time each would miss what the other has just removed.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let registry = Registry::of_machine();
    let data = registry.directory(name);
    let state = registry.state(name);
    let mounts = match &data {
        Some(data) => unmount_below(data)?,
        None => 0,
    };
    let known = state.iter().flat_map(|state| &state.processes);
    let known: Vec<Process> = known.cloned().collect();
    let namespaces = host::namespaces(&namespace_prefix(name));
    host::kill_all(|| {
        // Those we started are known even when a namespace has lost its name.
        let mut pids = processes_in(&namespaces);
        pids.extend(known.iter().filter(|process| process.is_alive()).map(|process| process.pid));
        pids
    })?;
    let namespaces = network::remove(name)?;
    if let Some(data) = &data {
        // A mount that was on its way when we looked first.
        unmount_below(data)?;
        remove_data(data, state.is_none_or(|state| state.made_data))?;
    }
    registry.release(name)?;
    Ok(Removed { namespaces, mounts, data })
}

/// Takes away every mount below a directory, the last one first; how many there were.
fn unmount_below(data: &Path) -> Result<usize> {
    for round in 0..UNMOUNT_ROUNDS_MAX {
        let mounts = mount_table::read().unwrap_or_default();
        let Some(last) = mounts_below(mounts, data).pop() else { return Ok(round as usize) };
        unmount(&last, UnmountFlags::DETACH)
            .context(|| format!("unmounting {}", last.display()))
            .map_err(|e| e.next(format!("umount -l {}", last.display())))?;
    }
    Err(Error::failed(format!("mounts below {} come back again and again", data.display()))
        .next("stop whoever mounts there"))
}

/// Where something is mounted below a directory, in the order of the mounts.
fn mounts_below(mounts: Vec<Mount>, data: &Path) -> Vec<PathBuf> {
    let points = mounts.into_iter().map(|mount| mount.path);
    points.filter(|point| point != data && point.starts_with(data)).collect()
}

/// Removes what is in the directory, the state last, and then the directory `itself`. Nothing is
/// mounted below it. A directory without a state is no longer (or not yet) a testbed's: it goes only
/// if it is empty.
fn remove_data(data: &Path, itself: bool) -> Result<()> {
    let shown = || format!("data directory {}", data.display());
    let state = data.join(FILE);
    if state.exists() {
        for entry in std::fs::read_dir(data).context(shown)? {
            let path = entry.context(shown)?.path();
            let removed = match path.is_dir() && !path.is_symlink() {
                true => std::fs::remove_dir_all(&path),
                false if path == state => Ok(()),
                false => std::fs::remove_file(&path),
            };
            removed.context(|| path.display().to_string())?;
        }
        std::fs::remove_file(&state).context(|| state.display().to_string())?;
    }
    let _never_moved_into_place = std::fs::remove_file(data.join(format!("{FILE}.new")));
    if itself {
        let _others_have_files_in_it = std::fs::remove_dir(data);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_below_the_directory_are_its_own() {
        let points = ["/", "/t", "/t/mnt/c1", "/tt/mnt", "/t/mnt/c1/a\\040b", "/t/mnt/a\\012b"];
        let line = |point: &str| format!("1 0 0:1 / {point} rw - tmpfs x rw\n");
        let table: String = points.map(line).concat();
        let found = mounts_below(mount_table::parse(table.as_bytes()), Path::new("/t"));
        assert_eq!(found, ["/t/mnt/c1", "/t/mnt/c1/a b", "/t/mnt/a\nb"].map(PathBuf::from));
    }

    #[test]
    fn a_directory_that_was_there_before_stays() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("d");
        for itself in [false, true] {
            std::fs::create_dir_all(data.join("s1/disk1")).unwrap();
            std::fs::write(data.join(FILE), "{}").unwrap();
            remove_data(&data, itself).unwrap();
            assert_eq!(data.exists(), !itself);
        }
        remove_data(&data, true).unwrap();
    }

    #[test]
    fn a_directory_that_is_no_longer_a_testbeds_keeps_its_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("precious"), "x").unwrap();
        remove_data(dir.path(), true).unwrap();
        assert!(dir.path().join("precious").exists());
    }

    #[test]
    fn what_fails_once_nobody_wants_the_testbed_is_no_failure_of_its_own() {
        let error = || Error::failed("ip netns add: signal 15");
        assert_eq!(or_stopped(error(), true), Error::stopped());
        assert_eq!(or_stopped(error(), false), error());
    }

    #[test]
    fn a_name_that_is_no_name_is_refused_before_anything_is_looked_at() {
        assert!(down("../../etc").is_err());
        assert!(Testbed::find("a/b").is_err());
    }
}
