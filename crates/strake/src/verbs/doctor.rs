//! `strake doctor`: what is wrong, phase by phase, and the command that mends it.
//!
//! The habit of `pvfs2-ping`: each phase needs what the one before has shown, says `ok`, `warn` or
//! `bad`, and where it is not ok, what to do. The probes write a file without a name, so nothing is
//! left behind and nobody sees it.

mod encryption;
mod probe;

use crate::address;
use crate::cluster::{self, ClusterFlags, Managers};
use crate::failure::{Failure, Outcome};
use crate::groups;
use crate::jobs::{self, Files, JobView};
use crate::verbs::status::{self, Health, Problem};
use crate::verbs::target::state_of;
use crate::{mountpoint, output, size};
use clap::Args;
use futures::future::join_all;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_manager::ADD_SERVER;
use strake_types::ErrorKind;
use strake_wire::map::MapView;
use strake_wire::message::jobs::{Job, JobState};
use strake_wire::message::manager::ClusterMap;
use strake_wire::tls::Tls;
use strake_wire::transport;
use tokio::net::{TcpStream, lookup_host};

/// How long a connection or a mount may take to answer.
const ANSWER_SECONDS_MAX: u64 = 5;
/// How long the managers of a mount may take to say which cluster is theirs.
const MANAGER_MS_MAX: u64 = 1_000;

/// Flags of `strake doctor`.
#[derive(Args, Debug)]
pub struct DoctorFlags {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a phase found.
#[derive(Serialize)]
struct Finding {
    phase: &'static str,
    health: Health,
    about: String,
    /// The command that mends it.
    mend: Option<String>,
}

/// Everything found so far; shown as it comes.
pub(crate) struct Report {
    findings: Vec<Finding>,
    json: bool,
}

impl Report {
    fn add(&mut self, phase: &'static str, health: Health, about: String, mend: Option<String>) {
        if !self.json {
            let word = match health {
                Health::Fine => "ok  ",
                Health::Degraded => "warn",
                Health::Broken => "BAD ",
            };
            output::line(&format!("{word}  {phase:16} {about}"));
            if let Some(mend) = &mend {
                output::advice(&format!("{:24}mend: {mend}", ""));
            }
        }
        self.findings.push(Finding { phase, health, about, mend });
    }

    fn is_broken(&self, phase: &str) -> bool {
        self.findings.iter().any(|f| f.phase == phase && f.health == Health::Broken)
    }

    fn ok(&mut self, phase: &'static str, about: impl Into<String>) {
        self.add(phase, Health::Fine, about.into(), None);
    }

    fn warn(&mut self, phase: &'static str, about: impl Into<String>, mend: impl Into<String>) {
        self.add(phase, Health::Degraded, about.into(), Some(mend.into()));
    }

    fn problem(&mut self, phase: &'static str, problem: Problem) {
        self.add(phase, problem.health, problem.about, Some(problem.mend));
    }

    fn worst(&self) -> Health {
        self.findings.iter().map(|f| f.health).max().unwrap_or(Health::Fine)
    }

    fn bad(&mut self, phase: &'static str, about: impl Into<String>, mend: impl Into<String>) {
        self.add(phase, Health::Broken, about.into(), Some(mend.into()));
    }
}

/// Runs the verb; the exit code is that of `strake status`, unless what that cannot see is worse.
pub async fn run(flags: &DoctorFlags, cluster: &ClusterFlags) -> Outcome<u8> {
    let managers = cluster.managers(&[]).map_err(Failure::broken)?;
    let mut report = Report { findings: Vec::new(), json: flags.json };
    examine(&managers, &mut report).await;
    if flags.json {
        output::json(&report.findings)?;
    }
    Ok(report.worst() as u8)
}

async fn examine(managers: &Managers, report: &mut Report) {
    let tls = managers.tls.as_deref();
    if let Some(tls) = tls {
        encryption::own(tls, report);
    }
    for address in &managers.addresses {
        reach(address, tls, report).await;
    }
    let began = Instant::now();
    let view = match managers.view(ANSWER_SECONDS_MAX * 1000).await {
        Ok(view) => view,
        // Said already, where it came up.
        Err(_) if report.is_broken(encryption::PHASE) => return,
        Err(error) => {
            let mend = "start the server with the manager role (strake up, or strake server); same release on both sides?";
            let failure = cluster::no_manager(&managers.addresses, &error, mend);
            return report.bad("hello", failure.cause, failure.next.as_deref().unwrap_or(mend));
        }
    };
    report.ok("hello", format!("protocol and release agree ({:.1} ms)", millis(began)));
    let map = match cluster::fresh_map(&view).await {
        Ok(map) => map,
        Err(error) => {
            let (error, mend) = probe::told(error.to_string(), "strake status");
            return report.bad("map", error, mend);
        }
    };
    report.ok("cluster", format!("id {}", map.cluster));
    // A manager of an earlier release knows no jobs.
    let jobs = jobs::fetch(&view, 0).await.map(|list| list.jobs).unwrap_or_default();
    check_map(&map, &jobs, report);
    check_files(&view, &map, report).await;
    check_jobs(&map, &jobs, report);
    check_servers(&map, tls, report).await;
    probe::meta_and_clock(&view, &map, report).await;
    probe::other_volumes(&view, &map, report).await;
    probe::targets(&view, &map, report).await;
    check_room(&map, report);
    check_mounts(managers, &map, report).await;
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// Name resolution, connection, encryption.
async fn reach(address: &str, tls: Option<&Tls>, report: &mut Report) {
    if transport::is_unix(address) {
        return match transport::connect(address, None).await {
            Ok(_) => report.ok("connect", address),
            Err(e) => report.bad("connect", e.detail.into_owned(), "strake up --detach"),
        };
    }
    let resolved = match address::resolve(address) {
        Ok(found) => found,
        Err(failure) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            return report.bad(
                "name",
                failure.cause,
                format!("getent hosts {host}; correct /etc/hosts or DNS"),
            );
        }
    };
    report.ok("name", format!("{address} is {}", resolved[0].ip()));
    let began = Instant::now();
    let connect = transport::connect_any(resolved);
    match tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), connect).await {
        Ok(Ok(_)) => {
            report.ok("connect", format!("{address} in {:.1} ms", millis(began)));
            encryption::of(address, tls, report).await;
        }
        Ok(Err(e)) => report.bad(
            "connect",
            format!("{address}: {e}"),
            "start the server there; check --listen",
        ),
        Err(_) => {
            report.bad("connect", format!("{address} does not answer"), "check firewall and routes")
        }
    }
}

fn check_map(map: &ClusterMap, jobs: &[Job], report: &mut Report) {
    let parts = [
        output::count(map.servers.len() as u64, "server", "servers"),
        output::count(map.targets.len() as u64, "target", "targets"),
        output::count(map.groups.len() as u64, "group", "groups"),
        output::count(map.living().count() as u64, "volume", "volumes"),
    ];
    report.ok("map", format!("epoch {}: {}", map.epoch, parts.join(", ")));
    let servers = status::server_problems(map).into_iter();
    servers.for_each(|problem| report.problem("map", problem));
    let volumes = map.living().filter_map(status::volume_problem);
    volumes.for_each(|problem| report.problem("map", problem));
    for target in &map.targets {
        let problem = status::disk_problem(target, groups::has_single(map, target.id), jobs);
        problem.into_iter().for_each(|problem| report.problem("target", problem));
    }
    for trouble in groups::troubles(map, jobs) {
        match trouble.stops {
            true => report.bad("copies", trouble.about, trouble.mend),
            false => report.warn("copies", trouble.about, trouble.mend),
        }
    }
    if map.targets.is_empty() {
        report.bad("map", "no storage", ADD_SERVER);
    }
}

/// Files that are out of reach although no volume asks for so few copies any more: the map does not know of them.
async fn check_files(view: &Arc<MapView>, map: &ClusterMap, report: &mut Report) {
    let (stopped, waiting) = status::stopped_files(view, map).await;
    tell_files(&stopped, &waiting, report);
}

fn tell_files(stopped: &[String], waiting: &[String], report: &mut Report) {
    if !stopped.is_empty() {
        let about = format!("cannot be read or written whole now: {}", stopped.join(", "));
        report.bad("files", about, "start the servers of the groups above again, with their disks");
    }
    if !waiting.is_empty() {
        let about = format!(
            "writes wait, as more copies are asked for than are in sync (--min-copies): {}",
            waiting.join(", ")
        );
        report.bad("files", about, "bring the copies back that the groups above lack");
    }
}

/// What is under way, and the last job of each kind if it has failed.
fn check_jobs(map: &ClusterMap, jobs: &[Job], report: &mut Report) {
    for target in map.targets.iter().filter(|target| target.drains) {
        let (id, path) = (target.id, &target.spec.path);
        let state = state_of(map, target);
        report.ok("jobs", format!("target {id} ({path}) is {state}: it gets no new groups"));
    }
    for job in jobs {
        let view = JobView::new(job, &Files::default());
        let later = jobs.iter().any(|other| other.id > job.id && other.kind == job.kind);
        let failed = job.state == JobState::Failed as u32 && !later;
        match (jobs::lasts(job), view.reasons().first()) {
            (true, None) => {
                report.ok("jobs", format!("{}; {}", view.headline(), view.progress()));
            }
            (true, Some(reason)) => report.warn(
                "jobs",
                format!("{}; {reason}", view.headline()),
                format!("strake job show {}", job.id),
            ),
            (false, reason) if failed => report.warn(
                "jobs",
                format!("{}; {}", view.headline(), reason.cloned().unwrap_or_default()),
                format!("strake job show {}; mend that, then begin it again", job.id),
            ),
            _ => {}
        }
    }
}

/// Every server that is up must also be reachable from here, not only from the manager.
async fn check_servers(map: &ClusterMap, tls: Option<&Tls>, report: &mut Report) {
    for server in map.servers.iter().filter(|s| s.up) {
        reach(&server.address, tls, report).await;
    }
}

fn check_room(map: &ClusterMap, report: &mut Report) {
    for target in map.targets.iter().filter(|t| t.up) {
        let spec = &target.spec;
        match status::room_problem(target) {
            Some(problem) => report.problem("room", problem),
            None if spec.total_bytes == 0 => {
                report.ok("room", format!("target {} ({}): not told of yet", target.id, spec.path))
            }
            None => report.ok(
                "room",
                format!(
                    "target {} ({}): {} of {} free",
                    target.id,
                    spec.path,
                    size::show(spec.free_bytes),
                    size::show(spec.total_bytes)
                ),
            ),
        }
    }
}

/// A mount whose process hangs or has died makes every program that looks at it hang or fail. One of
/// another cluster is told of too, but this cluster is none the worse for it.
async fn check_mounts(managers: &Managers, map: &ClusterMap, report: &mut Report) {
    let mounts = mountpoint::ours();
    if mounts.is_empty() {
        return;
    }
    let servers = map.servers.iter().map(|server| &server.address);
    let own = Own::of(managers.addresses.iter().chain(servers).map(|a| &a[..]).collect()).await;
    for mount in mounts {
        let whose = whose(&mount.source, managers, map, &own).await;
        let (path, shown) = (mount.path.clone(), mount.path.display().to_string());
        let about = format!("{shown} ({}, {})", mount.source, whose.words());
        let look = tokio::task::spawn_blocking(move || probe_mount(&path));
        let (about, mend) =
            match tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), look).await {
                Ok(Ok(Ok(()))) => {
                    report.ok("mount", about);
                    continue;
                }
                Ok(Ok(Err(e))) => (
                    format!("{about}: {e}"),
                    format!("strake umount --lazy {shown}, then mount again"),
                ),
                _ => (
                    format!("{about} does not answer"),
                    "strake status; its servers may be away".to_owned(),
                ),
            };
        match whose {
            Whose::Other | Whose::Elsewhere => report.warn("mount", about, mend),
            Whose::This | Whose::Unknown => report.bad("mount", about, mend),
        }
    }
}

/// To which cluster a mount belongs.
#[derive(Clone, Copy)]
enum Whose {
    This,
    Other,
    /// None of the managers that it was given is a server of this cluster, and nobody listens there any more.
    Elsewhere,
    Unknown,
}

impl Whose {
    fn words(self) -> &'static str {
        match self {
            Whose::This => "of this cluster",
            Whose::Other => "of another cluster",
            Whose::Elsewhere => {
                "of servers that this cluster does not have, and that cannot be asked"
            }
            Whose::Unknown => "of a cluster that cannot be asked",
        }
    }
}

/// Asks the managers that a mount was given which cluster is theirs.
async fn whose(source: &str, asking: &Managers, map: &ClusterMap, own: &Own<'_>) -> Whose {
    let Some(source) = address::parse_source(source) else { return Whose::Unknown };
    let mut managers = Managers { addresses: source.managers, tls: asking.tls.clone() };
    let mut answer = managers.view(MANAGER_MS_MAX).await;
    // Another cluster may speak without encryption.
    if managers.tls.is_some() && answer.as_ref().is_err_and(|e| e.kind == ErrorKind::WrongPeer) {
        managers.tls = None;
        answer = managers.view(MANAGER_MS_MAX).await;
    }
    match answer {
        Ok(view) if view.current().cluster == map.cluster => Whose::This,
        Ok(_) => Whose::Other,
        Err(_) if own.have_none_of(&managers.addresses).await => Whose::Elsewhere,
        Err(_) => Whose::Unknown,
    }
}

/// Where this cluster is reached.
struct Own<'a> {
    addresses: Vec<&'a str>,
    /// What the names among them stand for.
    found: Vec<SocketAddr>,
}

impl<'a> Own<'a> {
    async fn of(addresses: Vec<&'a str>) -> Self {
        let by_tcp = addresses.iter().filter(|address| !transport::is_unix(address));
        let found = join_all(by_tcp.map(|address| found(address))).await;
        let found = found.into_iter().flatten().flatten().collect();
        Self { addresses, found }
    }

    /// True if none of these managers is a server of this cluster, and all of them are gone.
    async fn have_none_of(&self, managers: &[String]) -> bool {
        let gone = join_all(managers.iter().map(|manager| self.is_gone_elsewhere(manager))).await;
        // What was told by a variable nobody knows.
        !gone.is_empty() && gone.into_iter().all(|gone| gone)
    }

    async fn is_gone_elsewhere(&self, manager: &str) -> bool {
        if let Some(socket) = manager.strip_prefix(transport::UNIX_PREFIX) {
            return !self.addresses.contains(&manager)
                && is_gone(transport::connect_unix(socket)).await;
        }
        // Of a name that stands for nothing now nobody knows.
        let Some(found) = found(manager).await else { return false };
        let gone = found.iter().map(|at| is_gone(TcpStream::connect(*at)));
        !found.is_empty()
            && !found.iter().any(|at| self.have(at))
            && join_all(gone).await.into_iter().all(|gone| gone)
    }

    /// This machine has an address that others know, too.
    fn have(&self, at: &SocketAddr) -> bool {
        let is_it =
            |own: &SocketAddr| own == at || at.ip().is_loopback() && own.port() == at.port();
        self.found.iter().any(is_it)
    }
}

/// What an address stands for, if that is known soon.
async fn found(address: &str) -> Option<Vec<SocketAddr>> {
    let wait = Duration::from_millis(MANAGER_MS_MAX);
    let found = tokio::time::timeout(wait, lookup_host(address)).await.ok()?;
    found.ok().map(Iterator::collect)
}

/// True if nobody listens there: so a cluster is known that has ended. One that is silent may be a server of this cluster that
/// is off, or that has another address here.
async fn is_gone<T>(connect: impl Future<Output = std::io::Result<T>>) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let wait = Duration::from_millis(MANAGER_MS_MAX);
    match tokio::time::timeout(wait, connect).await {
        Ok(Err(error)) => matches!(error.kind(), ConnectionRefused | NotFound),
        Ok(Ok(_)) | Err(_) => false,
    }
}

fn probe_mount(path: &Path) -> std::io::Result<()> {
    rustix::fs::statvfs(path)?;
    // What is bound from a mount may be a file.
    if std::fs::metadata(path)?.is_dir() {
        std::fs::read_dir(path)?.next().transpose()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::{Group, ScrubWord, Server, Target, TargetSpec};
    use strake_wire::server::Listener;

    fn worst(map: &ClusterMap) -> Health {
        let mut report = Report { findings: Vec::new(), json: true };
        check_map(map, &[], &mut report);
        check_room(map, &mut report);
        report.worst()
    }

    /// What is read all the same was told as out of reach.
    #[test]
    fn files_whose_writes_wait_are_not_told_as_out_of_reach() {
        let mut report = Report { findings: Vec::new(), json: true };
        tell_files(&[], &[":/main/file".to_owned()], &mut report);
        tell_files(&[":/main/gone".to_owned()], &[], &mut report);
        let about: Vec<&str> = report.findings.iter().map(|one| one.about.as_str()).collect();
        assert_eq!(about.len(), 2);
        assert!(about[0].starts_with("writes wait") && about[0].ends_with(": :/main/file"));
        assert_eq!(about[1], "cannot be read or written whole now: :/main/gone");
    }

    /// A long path was held for one that nobody listens at: it does not fit into the address of a socket.
    #[tokio::test]
    async fn a_socket_is_reached_however_long_its_path_is() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let address = format!("unix:{}", deep.join("s").display());
        let mut report = Report { findings: Vec::new(), json: true };
        reach(&address, None, &mut report).await;
        assert_eq!(report.worst(), Health::Broken, "nobody is there");
        let _listener = Listener::bind(&address).await.unwrap();
        let mut report = Report { findings: Vec::new(), json: true };
        reach(&address, None, &mut report).await;
        assert_eq!(report.worst(), Health::Fine);
    }

    /// A file that was bound from a mount was held for a mount that is dead.
    #[test]
    fn a_mount_that_is_a_file_is_looked_at_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(probe_mount(&file).is_ok() && probe_mount(dir.path()).is_ok());
        assert!(probe_mount(&dir.path().join("none")).is_err());
    }

    /// One of another cluster that had ended was bad news of this one; then one of this cluster was none, which had been given a
    /// server that is off, or an address that only some know.
    #[tokio::test]
    async fn a_mount_is_of_no_server_of_this_cluster_only_where_nobody_listens_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let socket = format!("unix:{}", socket.display());
        let deep = dir.path().join("d".repeat(200)).join("s");
        std::fs::create_dir(deep.parent().unwrap()).unwrap();
        let deep = format!("unix:{}", deep.display());
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = (silent.local_addr().unwrap().to_string(), silent);
        let addresses = vec!["127.0.0.1:9150", "10.0.0.1:9151", "unix:/run/s.sock", ""];
        let own = Own::of(addresses).await;
        let is_elsewhere = async |managers: &[&str]| {
            let managers: Vec<String> = managers.iter().map(|&manager| manager.into()).collect();
            own.have_none_of(&managers).await
        };
        // Nobody listens at port 1.
        assert!(is_elsewhere(&["127.0.0.1:1", "unix:/none/s.sock", &socket]).await);
        assert!(is_elsewhere(&[&deep]).await, "a socket's address has no room for its path");
        assert!(!is_elsewhere(&["127.0.0.1:1", &silent.0]).await, "one may be ours");
        assert!(!is_elsewhere(&["no..host:7440"]).await, "nobody knows what that was");
        assert!(!is_elsewhere(&["unix:/run/s.sock"]).await);
        assert!(!is_elsewhere(&["127.0.0.1:1", "10.0.0.1:9151"]).await, "one of them is enough");
        assert!(!is_elsewhere(&["127.0.0.1:9151"]).await, "it may run here");
        assert!(!is_elsewhere(&[]).await, "it was told by a variable");
    }

    /// It was told that it speaks without encryption.
    #[tokio::test]
    async fn a_port_that_says_nothing_is_told_to_do_so() {
        // Nobody listens there any more.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut report = Report { findings: Vec::new(), json: true };
        encryption::of(&port.to_string(), None, &mut report).await;
        assert_eq!(report.worst(), Health::Degraded);
    }

    /// A server that is down was the end, although all had a copy elsewhere, and damage that a scrub had left was nothing.
    #[test]
    fn a_cluster_is_as_well_as_status_says() {
        let server = |id| Server { id, up: true, meta: id == 1, ..Server::default() };
        let target = |id| Target {
            id,
            server: id,
            up: true,
            spec: TargetSpec { total_bytes: 1000, free_bytes: 900, ..TargetSpec::default() },
            drains: false,
        };
        let (members, in_sync) = (vec![1, 2], vec![1, 2]);
        let map = ClusterMap {
            servers: vec![server(1), server(2)],
            targets: vec![target(1), target(2)],
            groups: vec![Group { id: 1 << 20, members, in_sync, ..Group::default() }],
            ..ClusterMap::default()
        };
        assert_eq!(worst(&map), Health::Fine);
        let mut down = map.clone();
        (down.servers[1].up, down.targets[1].up) = (false, false);
        down.groups[0].in_sync = vec![1];
        assert_eq!(worst(&down), Health::Degraded);
        let mut damaged = map.clone();
        damaged.targets[0].spec.scrub = Some(ScrubWord { left: 1, ..ScrubWord::default() });
        assert_eq!(worst(&damaged), Health::Degraded);
        let mut older = map.clone();
        older.servers[1].ahead = true;
        assert_eq!(worst(&older), Health::Broken);
        let mut full = map;
        full.targets[0].spec.free_bytes = 1;
        assert_eq!(worst(&full), Health::Degraded);
    }
}
