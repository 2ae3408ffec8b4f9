//! A cluster with several metadata servers or managers on one database.

use crate::cluster::{
    Mount, Place, Process, eventually, free_port, mount_volume, open_to_all, run, succeed,
};
use crate::postgres::PostgresServer;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take. Only a hang reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// A process of the cluster, and what it was started with.
pub struct Server {
    /// The process.
    pub process: Process,
    arguments: Vec<String>,
    log: PathBuf,
}

impl Server {
    /// Starts it, on a data directory and a port of its own.
    pub fn start(directory: &Path, name: &str, further: &[&str]) -> Self {
        let data = directory.join(name).display().to_string();
        let listen = format!("127.0.0.1:{}", free_port());
        let metrics = format!("127.0.0.1:{}", free_port());
        let all =
            ["server", "--name", name, "--data", &data, "--listen", &listen, "--metrics", &metrics];
        let arguments: Vec<String> = all.iter().chain(further).map(|&word| word.into()).collect();
        let log = directory.join(format!("{name}.log"));
        let mut process = Process::start(&arguments, &log);
        process.wait_until_it_serves(name);
        Self { process, arguments, log }
    }

    /// What will take its place: made before it is killed, see [`Process::wait_to_start`].
    pub fn next(&self) -> Process {
        Process::wait_to_start(&self.arguments, &self.log)
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        self.argument("--listen")
    }

    /// Where it gives its metrics.
    pub fn metrics(&self) -> &str {
        self.argument("--metrics")
    }

    fn argument(&self, flag: &str) -> &str {
        let at = self.arguments.iter().position(|word| word == flag).expect("each server has it");
        &self.arguments[at + 1]
    }
}

/// A manager with storage of two targets, and metadata servers, all on one database; or servers with all roles.
pub struct Cluster {
    /// The metadata servers.
    pub metas: Vec<Server>,
    /// The manager, where that is none of them.
    manager: Option<Server>,
    directory: TempDir,
    /// The volume that is mounted.
    volume: String,
}

impl Cluster {
    /// So many metadata servers on the database.
    pub fn start(url: &str, metas: usize) -> Self {
        Self::by_ways(url, &vec![url.to_owned(); metas])
    }

    /// Two metadata servers on a new database of this test program's PostgreSQL, and a volume of so many shares,
    /// which is mounted.
    pub fn of_shares(shares: u32) -> Self {
        let database = PostgresServer::shared();
        Self::of_shares_on(&database.url(&database.database()), shares)
    }

    /// The same on another database.
    pub fn of_shares_on(url: &str, shares: u32) -> Self {
        let mut cluster = Self::start(url, 2);
        let (address, shares) = (cluster.address(), shares.to_string());
        succeed(["volume", "create", "wide", "--shares", &shares, "--cluster", &address]);
        cluster.work_in("wide");
        cluster
    }

    /// Metadata servers that reach the database each by a URL of its own.
    pub fn by_ways(url: &str, ways: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let second = directory.path().join("second").display().to_string();
        let further = ["--roles", "manager,storage", "--meta", url, "--data", &second];
        let manager = Server::start(directory.path(), "head", &further);
        let mut cluster = Self::around(Some(manager), directory);
        ways.iter().for_each(|url| cluster.add("meta", url));
        cluster.wait();
        cluster
    }

    /// So many servers on the database, of which each has all roles.
    pub fn of_equals(url: &str, servers: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let mut cluster = Self::around(None, directory);
        for _ in 0..servers {
            cluster.add("manager,meta,storage", url);
        }
        cluster.wait();
        cluster
    }

    fn around(manager: Option<Server>, directory: TempDir) -> Self {
        // Other users of this machine must get through to the mounts.
        open_to_all(directory.path());
        Self { metas: Vec::new(), manager, directory, volume: "main".into() }
    }

    /// From now on this volume is mounted.
    pub fn work_in(&mut self, volume: &str) {
        self.volume = volume.into();
    }

    fn add(&mut self, roles: &str, url: &str) {
        let (name, join) = (format!("meta{}", self.metas.len()), self.address());
        let further = ["--roles", roles, "--meta", url, "--join", &join];
        let further = if join.is_empty() { &further[..4] } else { &further[..] };
        self.metas.push(Server::start(self.directory.path(), &name, further));
    }

    fn wait(&self) {
        eventually(WAIT, "all have joined", || {
            let servers = succeed(["server", "list", "--cluster", &self.address()]);
            (0..self.metas.len()).all(|nth| servers.contains(&format!("meta{nth}")))
        });
    }

    /// Where the managers are.
    pub fn address(&self) -> String {
        let managers =
            self.manager.iter().chain(self.metas.iter().filter(|_| self.manager.is_none()));
        managers.map(Server::address).collect::<Vec<_>>().join(",")
    }

    /// Which of the servers with all roles has the manager that leads; `None`: none does just now.
    pub fn leader(&self) -> Option<usize> {
        let output = run(["server", "list", "--json", "--cluster", &self.address()]);
        let servers: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let leads = |nth: &usize| {
            let mut servers = servers.as_array().expect("a list").iter();
            let server = servers.find(|server| server["name"] == format!("meta{nth}"));
            server.is_some_and(|server| server["leads"] == true)
        };
        (0..self.metas.len()).find(leads)
    }

    /// A mount of the volume.
    pub fn mount(&self, name: &str) -> Mount {
        let path = self.directory.path().join(name);
        std::fs::create_dir(&path).expect("each mount has its own name");
        mount_volume(&self.address(), &self.volume, &path, "")
    }

    /// Which of the metadata servers serves the volume `main`.
    pub fn owner(&self) -> usize {
        self.owner_of("main")
    }

    /// The same of another volume.
    pub fn owner_of(&self, name: &str) -> usize {
        let said = succeed(["volume", "list", "--json", "--cluster", &self.address()]);
        let volumes: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let mut volumes = volumes.as_array().expect("a list").iter();
        let volume = volumes.find(|v| v["name"] == name).expect("the volume is there");
        let server = volume["metadata_server"].as_str().expect("text");
        let is = |nth: &usize| server.starts_with(&format!("meta{nth} "));
        (0..self.metas.len()).find(is).unwrap_or_else(|| panic!("{server}"))
    }

    /// Everything fits together.
    pub fn fsck(&self) {
        let output = run(["fsck", "--cluster", &self.address()]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A directory for one test, on a mount of a volume of several shares that all tests of a binary use.
pub fn place_in_shares(name: &str) -> Place {
    static SHARED: Mutex<Weak<(Mount, Cluster)>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
    let stage = shared.upgrade().unwrap_or_else(|| {
        let cluster = Cluster::of_shares(5);
        // In the order in which they end.
        let stage = Arc::new((cluster.mount("mnt"), cluster));
        *shared = Arc::downgrade(&stage);
        stage
    });
    Place::within(stage.0.path(), name, Arc::clone(&stage) as _)
}
