//! A cluster of real processes: a witness with manager and metadata, and storage servers that come and go.

use crate::cluster::{
    Mount, Process, SERVES, counted, free_port, mount_memory, mount_of, run, signal, succeed,
    take_away,
};
use crate::way::Way;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a cluster may take to be as it should. Only a hang reaches it.
pub const WAIT: Duration = Duration::from_secs(90);

/// A storage server of one target.
struct Storage {
    process: Process,
    listen: String,
    metrics: String,
}

/// The processes, every one over TCP.
pub struct Cluster {
    witness: Process,
    storage: Vec<Storage>,
    /// `host:port` of the witness.
    pub address: String,
    small_disks: Vec<SmallDisk>,
    directory: TempDir,
}

/// A disk in memory, which ends with the cluster.
struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        take_away(&self.0);
    }
}

impl Cluster {
    /// So many storage servers of one target each: targets 1, 2, 3, ...
    pub fn start(servers: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let address = format!("127.0.0.1:{}", free_port());
        let mut witness = witness(&address, directory.path());
        witness.go();
        witness.wait_until_it_serves("the witness");
        let (storage, small_disks) = (Vec::new(), Vec::new());
        let mut cluster = Self { witness, storage, address, small_disks, directory };
        for _ in 0..servers {
            cluster.add();
        }
        cluster
    }

    /// The same, where the volume `main` keeps so many copies.
    pub fn with_copies(servers: usize, copies: u32) -> Self {
        let cluster = Self::start(servers);
        cluster.succeed(&["volume", "set", "main", "--copies", &copies.to_string()]);
        cluster
    }

    /// One more storage server; returns when it has joined.
    pub fn add(&mut self) {
        self.add_with(free_port(), &[]);
    }

    /// As [`Cluster::add`]; others reach it by a way that can be cut, and it reaches them by another.
    pub fn add_behind_a_way(&mut self) -> Way {
        let port = free_port();
        let way = Way::to(port);
        self.add_with(port, &["--advertise", &format!("127.0.0.1:{}", way.port)]);
        way
    }

    fn add_with(&mut self, port: u16, flags: &[&str]) {
        let listen = format!("127.0.0.1:{port}");
        let metrics = format!("127.0.0.1:{}", free_port());
        let nth = self.storage.len();
        let mut process = self.prepare_with(nth, &listen, &metrics, flags);
        process.go();
        process.wait_until_it_serves("a storage server");
        self.storage.push(Storage { process, listen, metrics });
        self.until("a new target", |c| c.targets().iter().any(|t| t["path"] == c.path_of(nth)));
    }

    /// As [`Cluster::add`], on a disk of its own of so many bytes.
    pub fn add_with_a_small_disk(&mut self, bytes: u64) {
        let data = self.data_of(self.storage.len());
        mount_memory(&data, bytes);
        self.small_disks.push(SmallDisk(data));
        self.add();
    }

    /// Where a storage server keeps what it has.
    pub fn data_of(&self, nth: usize) -> PathBuf {
        self.directory.path().join(format!("storage{nth}"))
    }

    fn path_of(&self, nth: usize) -> String {
        self.data_of(nth).join("target").display().to_string()
    }

    /// A process that will be a storage server. It is made before anything is killed: see
    /// [`Process::wait_to_start`].
    fn prepare_with(&self, nth: usize, listen: &str, metrics: &str, flags: &[&str]) -> Process {
        let data = self.data_of(nth);
        fs::create_dir_all(&data).expect("a directory can be made");
        let data = data.display().to_string();
        let name = format!("storage{nth}");
        #[rustfmt::skip]
        let arguments = [
            "server", "--listen", listen, "--roles", "storage", "--data", &data, "--join",
            &self.address, "--name", &name, "--metrics", metrics,
        ];
        let log = self.directory.path().join(format!("storage{nth}.log"));
        let arguments: Vec<String> =
            arguments.iter().chain(flags).map(|&word| word.to_owned()).collect();
        Process::wait_to_start(&arguments, &log)
    }

    /// The disk of a storage server that was killed is another one, which is empty.
    pub fn swap_disk(&mut self, nth: usize) {
        fs::remove_dir_all(self.data_of(nth).join("target")).expect("the old target is there");
        let Storage { listen, metrics, .. } = &self.storage[nth];
        let mut process = self.prepare_with(nth, listen, metrics, &["--new-disks"]);
        process.go();
        self.storage[nth].process = process;
        self.until("the new disk is known", |c| c.log(nth).contains("strake target replace"));
    }

    /// `kill -9` of a storage server for good.
    pub fn kill(&mut self, nth: usize) {
        self.storage[nth].process.kill();
    }

    /// A storage server gets a signal, by name.
    pub fn signal(&self, nth: usize, name: &str) {
        signal(self.storage[nth].process.pid(), name);
    }

    /// The witness gets a signal, by name.
    pub fn signal_witness(&self, name: &str) {
        signal(self.witness.pid(), name);
    }

    /// It starts again with the flags it had; returns when it has joined: until then its earlier life may
    /// count as alive.
    pub fn start_again(&mut self, nth: usize) {
        self.start_again_and_hear(nth, &[], SERVES);
    }

    /// It starts again with some flags more; returns when it has said something.
    pub fn start_again_and_hear(&mut self, nth: usize, flags: &[&str], word: &str) {
        let Storage { listen, metrics, .. } = &self.storage[nth];
        let mut process = self.prepare_with(nth, listen, metrics, flags);
        process.go();
        self.storage[nth].process = process;
        self.storage[nth].process.wait_until_it_says("a storage server", word);
    }

    /// Waits until a storage server has ended by itself; its exit code.
    pub fn exit_code(&mut self, nth: usize) -> Option<i32> {
        self.storage[nth].process.exit_code()
    }

    /// `kill -9` of a storage server, and a new start after a pause.
    pub fn restart(&mut self, nth: usize, pause: Duration) {
        let Storage { listen, metrics, .. } = &self.storage[nth];
        let mut process = self.prepare_with(nth, listen, metrics, &[]);
        self.storage[nth].process.kill();
        std::thread::sleep(pause);
        process.go();
        self.storage[nth].process = process;
    }

    /// `kill -9` of manager and metadata server, and a new start.
    pub fn restart_witness(&mut self) {
        self.restart_witness_after(Duration::ZERO);
    }

    /// The same, with a pause in between.
    pub fn restart_witness_after(&mut self, pause: Duration) {
        let mut next = witness(&self.address, self.directory.path());
        self.witness.kill();
        std::thread::sleep(pause);
        next.go();
        self.witness = next;
        self.witness.wait_until_it_serves("the witness");
    }

    /// Stops manager and metadata server in order, does something with the directory of what they have, and starts them again.
    pub fn restart_witness_with(&mut self, change: impl FnOnce(&Path)) {
        let mut next = witness(&self.address, self.directory.path());
        self.witness.stop();
        change(&self.directory.path().join("witness"));
        next.go();
        self.witness = next;
        self.witness.wait_until_it_serves("the witness");
    }

    /// The log of the witness so far.
    pub fn witness_log(&self) -> String {
        self.witness.log()
    }

    /// The logs of all storage servers so far.
    pub fn logs(&self) -> Vec<String> {
        self.storage.iter().map(|storage| storage.process.log()).collect()
    }

    /// The log of a storage server so far.
    pub fn log(&self, nth: usize) -> String {
        self.storage[nth].process.log()
    }

    /// Runs a verb on the cluster; its exit code, and all it says.
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = run(arguments.iter().copied().chain(["--cluster", &self.address]));
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// A process that will run a verb on the cluster ([`Process::wait_to_start`]), and what it says.
    pub fn prepare_verb(&self, arguments: &[&str]) -> Process {
        let log = self.directory.path().join("verb.log");
        let cluster = ["--cluster", self.address.as_str()];
        let arguments: Vec<String> =
            arguments.iter().copied().chain(cluster).map(str::to_owned).collect();
        Process::wait_to_start(&arguments, &log)
    }

    /// Runs a verb that must succeed; its standard output.
    pub fn succeed(&self, arguments: &[&str]) -> String {
        succeed(arguments.iter().copied().chain(["--cluster", &self.address]))
    }

    /// Runs a verb with `--json`; what it prints. Nothing if it cannot.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = run(arguments.iter().copied().chain(["--json", "--cluster", &self.address]));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The targets.
    pub fn targets(&self) -> Vec<serde_json::Value> {
        self.json(&["target", "list"]).as_array().cloned().unwrap_or_default()
    }

    /// A job.
    pub fn job(&self, id: u64) -> serde_json::Value {
        self.json(&["job", "show", &id.to_string()])
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + WAIT;
        while !so(self) {
            if Instant::now() >= end {
                let (_, status) = self.run(&["status"]);
                let (_, jobs) = self.run(&["job", "list"]);
                let (witness, logs) = (self.witness_log(), self.logs().join("\n--\n"));
                panic!("in vain: {what}\n{status}\n{jobs}\n{witness}\n{logs}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until every group has all its copies.
    pub fn until_whole(&self) {
        self.until("all is in sync", |c| c.json(&["status"])["health"] == "fine");
    }

    /// A counter of a storage server, over all labels.
    pub fn counter(&self, nth: usize, name: &str) -> u64 {
        counted(&self.storage[nth].metrics, |line| line.starts_with(name))
    }

    /// A mount of the volume `main`.
    pub fn mount(&self, name: &str) -> Mount {
        self.mount_with(name, "")
    }

    /// The same with options as for `-o`.
    pub fn mount_with(&self, name: &str, options: &str) -> Mount {
        mount_of(&self.address, &self.directory.path().join(name), options)
    }
}

/// A process that will be the witness.
fn witness(address: &str, directory: &Path) -> Process {
    let data = directory.join("witness");
    fs::create_dir_all(&data).expect("a directory can be made");
    let data = data.display().to_string();
    let arguments = ["server", "--listen", address, "--roles", "manager,meta", "--data", &data];
    let log = directory.join("witness.log");
    Process::wait_to_start(&arguments.map(str::to_owned), &log)
}
