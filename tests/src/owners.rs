//! A cluster with several metadata servers on one database.

use crate::cluster::{Mount, Process, eventually, free_port, mount_of, run, succeed};
use std::path::{Path, PathBuf};
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
        let all = ["server", "--name", name, "--data", &data, "--listen", &listen];
        let arguments: Vec<String> = all.iter().chain(further).map(|&word| word.into()).collect();
        let log = directory.join(format!("{name}.log"));
        let mut process = Process::start(&arguments, &log);
        process.wait_until(name, || std::net::TcpStream::connect(&listen).is_ok());
        Self { process, arguments, log }
    }

    /// What will take its place: made before it is killed, see [`Process::wait_to_start`].
    pub fn next(&self) -> Process {
        Process::wait_to_start(&self.arguments, &self.log)
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        let at = self.arguments.iter().position(|word| word == "--listen").expect("it listens");
        &self.arguments[at + 1]
    }
}

/// A manager with storage, and metadata servers, all on one database.
pub struct Cluster {
    /// The metadata servers.
    pub metas: Vec<Server>,
    manager: Server,
    directory: TempDir,
}

impl Cluster {
    /// So many metadata servers on the database.
    pub fn start(url: &str, metas: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let manager =
            Server::start(directory.path(), "head", &["--roles", "manager,storage", "--meta", url]);
        let mut cluster = Self { metas: Vec::new(), manager, directory };
        for nth in 0..metas {
            let further = ["--roles", "meta", "--meta", url, "--join", cluster.address()];
            let name = format!("meta{nth}");
            cluster.metas.push(Server::start(cluster.directory.path(), &name, &further));
        }
        eventually(WAIT, "all have joined", || {
            let servers = succeed(["server", "list", "--cluster", cluster.address()]);
            (0..metas).all(|nth| servers.contains(&format!("meta{nth}")))
        });
        cluster
    }

    /// Where the manager is.
    pub fn address(&self) -> &str {
        self.manager.address()
    }

    /// A mount of the volume `main`.
    pub fn mount(&self, name: &str) -> Mount {
        mount_of(self.address(), &self.directory.path().join(name), "")
    }

    /// Which of the metadata servers serves the volume `main`.
    pub fn owner(&self) -> usize {
        self.owner_of("main")
    }

    /// The same of another volume.
    pub fn owner_of(&self, name: &str) -> usize {
        let said = succeed(["volume", "list", "--json", "--cluster", self.address()]);
        let volumes: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let mut volumes = volumes.as_array().expect("a list").iter();
        let volume = volumes.find(|v| v["name"] == name).expect("the volume is there");
        let server = volume["metadata_server"].as_str().expect("text");
        let is = |nth: &usize| server.starts_with(&format!("meta{nth} "));
        (0..self.metas.len()).find(is).unwrap_or_else(|| panic!("{server}"))
    }

    /// Everything fits together.
    pub fn fsck(&self) {
        let output = run(["fsck", "--cluster", self.address()]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
