//! Three hosts and a client, each in a network namespace of its own: three commands make a cluster,
//! a fourth mounts it, and a striped file lies on all three.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};
use strake_tests::cluster::{Process, is_mounted, take_away};
use strake_tests::made::pattern;
use strake_tests::network::Network;
use tempfile::TempDir;

/// How long a change of the cluster may take to show. Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster of the guide: the commands of docs/guide/first-cluster.md, word by word.
struct Cluster {
    client: Option<Process>,
    servers: Vec<Process>,
    network: Network,
    directory: TempDir,
}

impl Cluster {
    fn start() -> Cluster {
        let network = Network::new(4);
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Cluster { client: None, servers: Vec::new(), network, directory };
        for nth in 1..=3 {
            let server = cluster.server(nth);
            cluster.servers.push(server);
        }
        cluster.wait_for("three servers", |c| {
            let status = c.status();
            status["health"] == "fine" && status["targets"].as_array().is_some_and(|t| t.len() == 3)
        });
        cluster
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn server(&self, nth: usize) -> Process {
        let (address, data) = (format!("10.77.0.{nth}"), self.path(&format!("host{nth}")));
        let name = format!("host{nth}");
        let mut arguments = vec!["server", "--listen", &address, "--data", &data, "--name", &name];
        match nth {
            1 => arguments.extend(["--roles", "manager,meta,storage"]),
            _ => arguments.extend(["--roles", "storage", "--join", "10.77.0.1"]),
        }
        self.process(nth, &arguments)
    }

    fn process(&self, host: usize, arguments: &[&str]) -> Process {
        let arguments: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
        let log = self.directory.path().join(format!("host{host}.log"));
        Process::start_on(self.network.enter(host), &arguments, &log)
    }

    /// A command on the client's host.
    fn run(&self, arguments: &[&str]) -> Output {
        self.network.run(4, arguments)
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "strake {}: {error}", arguments.join(" "));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn status(&self) -> serde_json::Value {
        let output = self.run(&["status", "--json", "--cluster", "10.77.0.1"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn wait_for(&mut self, what: &str, so: impl Fn(&Cluster) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !so(self) {
            assert!(Instant::now() < end, "{what}: {:#}", self.status());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn mount(&mut self) -> PathBuf {
        let mount = self.directory.path().join("mnt");
        std::fs::create_dir(&mount).unwrap();
        let path = mount.display().to_string();
        let mut client = self.process(4, &["mount", "--foreground", "10.77.0.1:/main", &path]);
        client.wait_until("strake mount", || is_mounted(&mount));
        self.client = Some(client);
        mount
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut client) = self.client.take() {
            client.stop();
        }
        take_away(&self.directory.path().join("mnt"));
        self.servers.iter_mut().for_each(Process::stop);
    }
}

#[test]
fn three_commands_make_a_cluster_and_a_file_lies_on_all_three_hosts() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let mut cluster = Cluster::start();
    let mount = cluster.mount();
    let file = mount.join("striped");
    std::fs::write(&file, pattern(12 << 20)).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), pattern(12 << 20));

    let layout = cluster.succeed(&["layout", "get", "--json", &file.display().to_string()]);
    let layout: serde_json::Value = serde_json::from_str(&layout).unwrap();
    let chunks = layout["chunks"].as_array().unwrap();
    let host = |chunk: &serde_json::Value| {
        let target = chunk["targets"][0].as_str().unwrap();
        target.split(':').next().unwrap().to_owned()
    };
    let hosts: BTreeSet<_> = chunks.iter().map(host).collect();
    assert_eq!(chunks.len(), 12);
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["host1", "host2", "host3"]);

    // Without the mount, over the same network.
    let copy = cluster.path("copy");
    cluster.succeed(&["cp", "10.77.0.1:/main/striped", &copy]);
    assert_eq!(std::fs::read(&copy).unwrap(), pattern(12 << 20));
    let doctor = cluster.run(&["doctor", "--json", "--cluster", "10.77.0.1"]);
    let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let about_us = |f: &&serde_json::Value| {
        // It also looks at mounts of others on this machine, which come and go.
        let path = cluster.path("");
        f["phase"] != "mount" || f["about"].as_str().unwrap().starts_with(&path)
    };
    for finding in findings.as_array().unwrap().iter().filter(about_us) {
        assert_eq!(finding["health"], "fine", "{finding}");
    }

    // A host dies: status says so; it comes back with the same command: all is well again.
    cluster.servers[2].kill();
    cluster.wait_for("the dead host shows", |c| c.status()["health"] == "broken");
    let server = cluster.server(3);
    cluster.servers[2] = server;
    cluster.wait_for("the host is back", |c| c.status()["health"] == "fine");
    let rest = mount.join("after");
    std::fs::write(&rest, pattern(5 << 20)).unwrap();
    std::fs::File::open(&rest).unwrap().sync_all().unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), pattern(12 << 20));

    cluster.succeed(&["umount", &mount.display().to_string()]);
    assert!(!is_mounted(&mount));
}
