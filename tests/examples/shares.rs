//! What more metadata servers give one volume.
//!
//! PostgreSQL, a manager with storage, a native client, and on the one side one metadata server, on the other several, all on
//! this machine. Both sides do the same, in turn, five rounds. Where the machine's processors are the limit more servers cannot be faster, so
//! printed is, beside the rate, what the busiest metadata server had to do for it: its processor time and its requests. With a
//! limit, each metadata server has no more than that part of a core (a control group, which needs root), and the rates tell.
//!
//! ```sh
//! cargo build --release -p strake
//! cargo run --release -p strake-tests --example shares -- SERVERS SHARES [LIMIT]      # 2 8; 2 8 0.2
//! ```

use bytes::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_client::Volume;
use strake_client::api::{RenameFlags, VolumeOptions};
use strake_tests::cluster::{counted, eventually, succeed};
use strake_tests::made::{make_directory, make_file};
use strake_tests::owners::Cluster;
use strake_tests::postgres::PostgresServer;
use strake_types::{Credentials, Ino};

const ROUNDS: usize = 5;
const TASKS: usize = 48;
/// What each task makes in each round.
const DIRECTORIES: usize = 4;
const FILES: usize = 40;
const PHASES: [&str; 5] = ["mkdir", "create", "stat", "rename", "unlink"];
const USAGE: &str = "usage: shares SERVERS SHARES [LIMIT]";

/// One cluster with its clients.
struct Side {
    cluster: Cluster,
    writer: Arc<Volume>,
    reader: Arc<Volume>,
    results: Vec<Vec<Phase>>,
    _limits: Vec<Limit>,
}

/// What a phase of a round took.
#[derive(Clone, Copy)]
struct Phase {
    per_second: f64,
    /// Processor time of the busiest server for each operation, in µs.
    busiest_us: f64,
    /// Requests to the server that had the most, and to all, for each operation.
    most: f64,
    all: f64,
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, shares, limit @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let limit: Option<f64> = limit.first().map(|part| part.parse().expect(USAGE));
    let servers: usize = servers.parse().expect(USAGE);
    let mut sides = Vec::new();
    for servers in [1, servers] {
        sides.push(Side::start(servers, shares, limit).await);
    }
    for round in 0..ROUNDS {
        for nth in 0..sides.len() {
            // Who begins changes.
            sides[(round + nth) % 2].round(round).await;
        }
    }
    let header = ["", "servers", "per s", "busiest µs", "its requests", "all requests"];
    let [a, b, c, d, e, f] = header;
    println!("{a:8} {b:>8} {c:>10} {d:>11} {e:>13} {f:>13}");
    for (nth, phase) in PHASES.iter().enumerate() {
        sides.iter().for_each(|side| side.print(phase, nth));
    }
    for (what, of) in [
        ("rate", (|p: &Phase| p.per_second) as fn(&Phase) -> f64),
        ("processor time of the busiest", |p| 1.0 / p.busiest_us),
        ("requests of the busiest", |p| 1.0 / p.most),
    ] {
        let times = |nth| sides[1].median(nth, of) / sides[0].median(nth, of);
        let all: Vec<String> =
            PHASES.iter().zip((0..).map(times)).map(|(p, t)| format!("{p} {t:.2}")).collect();
        println!("{servers} servers are {what}: {}", all.join(", "));
    }
    for side in sides {
        side.writer.close().await.expect("it can be closed");
        side.reader.close().await.expect("it can be closed");
    }
}

impl Side {
    async fn start(servers: usize, shares: &str, limit: Option<f64>) -> Self {
        let database = PostgresServer::shared();
        let cluster = Cluster::start(&database.url(&database.database()), servers);
        let address = cluster.address();
        succeed(["volume", "create", "wide", "--shares", shares, "--cluster", &address]);
        let connect =
            || Volume::connect_to(vec![address.clone()], "wide", VolumeOptions::default());
        let (writer, reader) = (connect().await, connect().await);
        let (writer, reader) = (writer.expect("it is there"), reader.expect("it is there"));
        let pids = cluster.metas.iter().map(|server| server.process.pid());
        let _limits = limit
            .into_iter()
            .flat_map(|part| pids.clone().map(move |pid| Limit::new(pid, part)))
            .collect();
        Self { cluster, writer, reader, results: Vec::new(), _limits }
    }

    async fn round(&mut self, round: usize) {
        let round = make_directory(&self.writer, Ino::ROOT, format!("round{round}")).await;
        let mut tasks: Vec<Task> = Vec::new();
        for nth in 0..TASKS {
            let top = make_directory(&self.writer, round, format!("task{nth}")).await;
            tasks.push(Task { top, directories: Vec::new() });
        }
        let mut phases = Vec::new();
        for phase in PHASES {
            let (before, began) = (self.used(), Instant::now());
            let volume = if phase == "stat" { &self.reader } else { &self.writer };
            let all = tasks.into_iter().map(|task| tokio::spawn(task.run(volume.clone(), phase)));
            tasks = Vec::new();
            for task in all.collect::<Vec<_>>() {
                tasks.push(task.await.expect("no panic"));
            }
            let seconds = began.elapsed().as_secs_f64();
            let files = if phase == "mkdir" { 1 } else { FILES };
            phases.push(Phase::between(
                &before,
                &self.used(),
                seconds,
                TASKS * DIRECTORIES * files,
            ));
        }
        self.results.push(phases);
    }

    /// Processor seconds and requests of each metadata server until now.
    fn used(&self) -> Vec<(f64, u64)> {
        let of = |line: &str| line.starts_with("strake_meta_ops_total");
        let metas = self.cluster.metas.iter();
        metas.map(|m| (m.process.processor_seconds(), counted(m.metrics(), of))).collect()
    }

    fn median(&self, phase: usize, of: impl Fn(&Phase) -> f64) -> f64 {
        let mut all: Vec<f64> = self.results.iter().map(|phases| of(&phases[phase])).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }

    fn print(&self, phase: &str, nth: usize) {
        let (per_second, busiest) =
            (self.median(nth, |p| p.per_second), self.median(nth, |p| p.busiest_us));
        let (most, all) = (self.median(nth, |p| p.most), self.median(nth, |p| p.all));
        let servers = self.cluster.metas.len();
        println!(
            "{phase:8} {servers:>8} {per_second:>10.0} {busiest:>11.1} {most:>13.2} {all:>13.2}"
        );
    }
}

impl Phase {
    fn between(
        before: &[(f64, u64)],
        after: &[(f64, u64)],
        seconds: f64,
        operations: usize,
    ) -> Self {
        let each = before.iter().zip(after).map(|(b, a)| (a.0 - b.0, (a.1 - b.1) as f64));
        let (processor, requests): (Vec<f64>, Vec<f64>) = each.unzip();
        let operations = operations as f64;
        let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max) / operations;
        Self {
            per_second: operations / seconds,
            busiest_us: most(&processor) * 1e6,
            most: most(&requests),
            all: requests.iter().sum::<f64>() / operations,
        }
    }
}

/// What one task works in.
struct Task {
    top: Ino,
    directories: Vec<Ino>,
}

impl Task {
    async fn run(mut self, volume: Arc<Volume>, phase: &str) -> Self {
        let cred = Credentials::root();
        if phase == "mkdir" {
            for nth in 0..DIRECTORIES {
                let made = make_directory(&volume, self.top, format!("dir{nth}")).await;
                self.directories.push(made);
            }
            return self;
        }
        for &dir in &self.directories {
            for nth in 0..FILES {
                let (name, moved) =
                    (Bytes::from(format!("file{nth}")), Bytes::from(format!("moved{nth}")));
                match phase {
                    "create" => make_file(&volume, dir, name).await,
                    "stat" => drop(volume.lookup(&cred, dir, name).await.expect("it is there")),
                    "rename" => {
                        let flags = RenameFlags::default();
                        let done = volume.rename(&cred, dir, name, dir, moved, flags).await;
                        drop(done.expect("it is there"));
                    }
                    _ => drop(volume.unlink(&cred, dir, moved).await.expect("it is there")),
                }
            }
        }
        self
    }
}

/// A control group with one process, which has no more than a part of a core. Taken away when it is dropped.
struct Limit(PathBuf);

impl Limit {
    fn new(pid: u32, part: f64) -> Self {
        const PERIOD_US: u64 = 10_000;
        let quota = (part * PERIOD_US as f64) as u64;
        let root = Path::new("/sys/fs/cgroup");
        let unified = root.join("cgroup.controllers").exists();
        let parent = if unified { root.to_owned() } else { root.join("cpu") };
        let group = parent.join(format!("strake-example-{pid}"));
        let settings: &[(&str, String)] = match unified {
            true => &[("cpu.max", format!("{quota} {PERIOD_US}"))],
            false => &[
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
        };
        if unified {
            fs::write(root.join("cgroup.subtree_control"), "+cpu")
                .expect("root may limit processes");
        }
        fs::create_dir(&group).expect("root may make a control group");
        for (file, value) in settings.iter().chain([&("cgroup.procs", pid.to_string())]) {
            fs::write(group.join(file), value).expect("the kernel limits processor time");
        }
        Self(group)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // The group can go when its process is in another, or has gone.
        let others = self.0.parent().expect("it is below the root").join("cgroup.procs");
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(&others, pid);
        }
        eventually(Duration::from_secs(5), "the control group goes", || {
            fs::remove_dir(&self.0).is_ok()
        });
    }
}
