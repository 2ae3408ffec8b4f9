//! A Strake cluster in a testbed: its servers, and a mount on each client.

use super::context::Context;
use super::host::{alone, staying, within};
use super::plan::{Host, Role};
use super::state::{Process, State};
use crate::error::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use strake_base::process::began_ticks;

/// What a server says once it serves, and a mount once it is usable.
const READY: &[&str] = &[" serves at ", "mounted at "];
/// How long a server or a mount may take to be ready.
const READY_WAIT: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How much of a log an error shows.
const LOG_LINES_SHOWN: usize = 5;
/// The volume of the cluster.
const VOLUME: &str = "main";
/// Below the testbed's directory: what its processes say.
pub const LOGS: &str = "log";

/// Starts the cluster's processes one after the other, and notes each.
pub struct Starter<'a> {
    /// The program `strake`.
    pub program: &'a Path,
    /// The testbed; its directory has the state.
    pub state: &'a mut State,
    /// True once nobody wants the testbed any more.
    pub stopped: &'a dyn Fn() -> bool,
}

impl Starter<'_> {
    /// The manager with the metadata, then all storage, then the mounts.
    pub fn start(&mut self) -> Result<()> {
        let logs = self.state.data.join(LOGS);
        std::fs::create_dir_all(&logs).context(|| logs.display().to_string())?;
        let hosts = self.state.hosts();
        let of = |role: Role| hosts.iter().filter(move |host| host.role == role);
        let manager = of(Role::Meta).next().map(|host| host.address.clone()).unwrap_or_default();
        for role in [Role::Meta, Role::Server, Role::Client] {
            if let Some(client) = of(role).next().filter(|_| role == Role::Client) {
                self.set_chunk_size(client, &manager)?;
            }
            let mut started = Vec::new();
            for (nth, host) in (1..).zip(of(role)) {
                let mut command = match role {
                    Role::Client => self.mount(nth, &manager)?,
                    _ => self.server(host, &manager),
                };
                started.push((host, self.spawn(host, &mut command)?));
            }
            for (host, mut child) in started {
                self.wait_for(host, &mut child)?;
            }
        }
        Ok(())
    }

    /// The command that is a server.
    fn server(&self, host: &Host, manager: &str) -> Command {
        let plan = &self.state.plan;
        let home = self.state.data.join(&host.name);
        let mut command = staying(self.program);
        command.args(["server", "--no-tls", "--listen", &host.address, "--name", &host.name]);
        if host.role == Role::Meta {
            command.args(["--roles", "manager,meta", "--data"]).arg(home);
            return command;
        }
        command.args(["--roles", "storage", "--join", manager]);
        if let Some(rate) = plan.disk {
            command.args(["--disk-rate", &rate.in_bytes()]);
        }
        command.arg("--data");
        command.args((1..=plan.targets).map(|nth| home.join(format!("disk{nth}"))));
        command
    }

    /// Before anybody has mounted the volume.
    fn set_chunk_size(&self, client: &Host, manager: &str) -> Result<()> {
        let Some(bytes) = self.state.plan.chunk_size else { return Ok(()) };
        let mut command = alone(self.program);
        command.args(["volume", "set", VOLUME, "--chunk-size", &bytes.to_string()]);
        command.args(["--no-tls", "--cluster", manager]);
        let output = within(&client.namespace, || command.output())?;
        let output = output.context(|| format!("starting {}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        Err(Error::failed(format!("setting the volume's chunk size: {}", told.trim())))
    }

    /// The command that is the mount of a client.
    fn mount(&self, nth: u32, manager: &str) -> Result<Command> {
        let point = self.state.mount(nth);
        std::fs::create_dir_all(&point).context(|| point.display().to_string())?;
        let mut command = staying(self.program);
        command
            .args(["mount", "--no-tls", "--foreground", &format!("{manager}:/{VOLUME}")])
            .arg(&point);
        Ok(command)
    }

    /// Starts a process on a host, and notes it.
    fn spawn(&mut self, host: &Host, command: &mut Command) -> Result<Child> {
        let path = self.log(host);
        let shown = || format!("log file {}", path.display());
        let log = File::options().create(true).append(true).open(&path).context(shown)?;
        command.stdout(log.try_clone().context(shown)?).stderr(log);
        let spawned = within(&host.namespace, || command.spawn())?;
        let child = spawned.context(|| format!("starting {}", self.program.display()))?;
        let (pid, host) = (child.id(), host.name.clone());
        let began_ticks = began_ticks(pid).unwrap_or(0);
        self.state.processes.push(Process { host, pid, began_ticks });
        self.state.write()?;
        Ok(child)
    }

    fn wait_for(&self, host: &Host, child: &mut Child) -> Result<()> {
        let end = Instant::now() + READY_WAIT;
        let path = self.log(host);
        loop {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            if READY.iter().any(|words| log.contains(words)) {
                return Ok(());
            }
            self.check_wanted()?;
            if let Ok(Some(status)) = child.try_wait() {
                return Err(self.failed(host, &format!("its process ended ({status})")));
            }
            if Instant::now() >= end {
                return Err(self.failed(host, "its process was not ready in time"));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn check_wanted(&self) -> Result<()> {
        match (self.stopped)() {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }

    fn log(&self, host: &Host) -> PathBuf {
        self.state.data.join(LOGS).join(format!("{}.log", host.name))
    }

    /// An error with the last lines of the host's log, which goes with the testbed.
    fn failed(&self, host: &Host, what: &str) -> Error {
        let log = std::fs::read_to_string(self.log(host)).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ");
        Error::failed(format!("host {}: {what}:\n  {last}", host.name))
    }
}
