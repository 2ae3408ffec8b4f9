//! Volumes of several copies over real processes: servers are killed under load, and nothing that was
//! acknowledged is missing or old.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strake_tests::cluster::{Mount, Process, free_port, mount_of, run, succeed};
use tempfile::TempDir;

/// How long a cluster may take to be whole again.
const HEAL_WAIT: Duration = Duration::from_secs(60);
/// Bytes of a record that is overwritten again and again.
const RECORD: usize = 4096;

/// A witness with manager and metadata, and storage servers of one target each; every process over TCP.
struct Cluster {
    witness: Process,
    storage: Vec<Process>,
    address: String,
    directory: TempDir,
}

impl Cluster {
    /// So many storage servers; the volume `main` keeps so many copies.
    fn start(servers: usize, copies: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let data = directory.path().join("witness");
        fs::create_dir(&data).unwrap();
        let arguments = words(&[
            "server",
            "--listen",
            &address,
            "--roles",
            "manager,meta",
            "--data",
            data.to_str().unwrap(),
        ]);
        let mut witness = Process::start(&arguments, &directory.path().join("witness.log"));
        witness.wait_until("the witness", || std::net::TcpStream::connect(&address).is_ok());
        let mut cluster = Self { witness, storage: Vec::new(), address, directory };
        for nth in 0..servers {
            let process = cluster.begin(nth, &format!("127.0.0.1:{}", free_port()));
            cluster.storage.push(process);
        }
        // A server listens before it has joined.
        let witness = &mut cluster.witness;
        let address = cluster.address.clone();
        witness.wait_until("all targets", || {
            let output = run(["status", "--json", "--cluster", &address]);
            let status: serde_json::Value =
                serde_json::from_slice(&output.stdout).unwrap_or_default();
            status["targets"].as_array().is_some_and(|targets| targets.len() == servers)
        });
        let copies = copies.to_string();
        let cluster_flag = ["--cluster", &cluster.address];
        succeed(["volume", "set", "main", "--copies", &copies].into_iter().chain(cluster_flag));
        cluster
    }

    fn log_of(&self, nth: usize) -> PathBuf {
        self.directory.path().join(format!("storage{nth}.log"))
    }

    fn begin(&self, nth: usize, listen: &str) -> Process {
        let data = self.directory.path().join(format!("storage{nth}"));
        fs::create_dir_all(&data).unwrap();
        let (data, join) = (data.display().to_string(), self.address.clone());
        let arguments = words(&[
            "server", "--listen", listen, "--roles", "storage", "--data", &data, "--join", &join,
        ]);
        let mut process = Process::start(&arguments, &self.log_of(nth));
        process.wait_until("a storage server", || std::net::TcpStream::connect(listen).is_ok());
        fs::write(self.directory.path().join(format!("listen{nth}")), listen).unwrap();
        process
    }

    fn kill(&mut self, nth: usize) {
        self.storage[nth].kill();
    }

    fn start_again(&mut self, nth: usize) {
        let listen = self.directory.path().join(format!("listen{nth}"));
        let listen = fs::read_to_string(listen).unwrap();
        self.storage[nth] = self.begin(nth, &listen);
    }

    fn status(&self) -> (Option<i32>, String) {
        let output = run(["status", "--cluster", &self.address]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until every group has all its copies.
    fn until_whole(&mut self) {
        let end = Instant::now() + HEAL_WAIT;
        loop {
            let (code, shown) = self.status();
            if code == Some(0) {
                return;
            }
            let logs: Vec<_> = self.storage.iter().map(Process::log).collect();
            assert!(Instant::now() < end, "not whole again:\n{shown}\n{}", logs.join("\n"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn mount(&self, name: &str) -> Mount {
        let path = self.directory.path().join(name);
        mount_of(&self.address, &path, "")
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

/// A file in which each record holds the number that was last written to it.
struct Ledger {
    file: File,
    numbers: Vec<u64>,
}

impl Ledger {
    fn new(path: &Path, records: usize) -> Self {
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
        Self { file, numbers: vec![0; records] }
    }

    /// Overwrites a record and makes it durable; both are acknowledged when this returns.
    fn write(&mut self, at: usize, number: u64) {
        let record: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(RECORD).collect();
        self.file.write_all_at(&record, (at * RECORD) as u64).unwrap();
        self.file.sync_data().unwrap();
        self.numbers[at] = number;
    }

    fn check(&self, path: &Path) {
        let bytes = fs::read(path).unwrap();
        for (at, number) in self.numbers.iter().enumerate().filter(|(_, number)| **number > 0) {
            let record = &bytes[at * RECORD..(at + 1) * RECORD];
            let found = u64::from_le_bytes(record[..8].try_into().unwrap());
            assert_eq!(found, *number, "record {at}");
            assert!(
                record.chunks(8).all(|part| part == number.to_le_bytes()),
                "record {at} is torn"
            );
        }
    }
}

#[test]
fn a_killed_server_costs_no_error_and_what_it_missed_is_there_when_it_is_the_only_one_left() {
    let mut cluster = Cluster::start(2, 2);
    let mount = cluster.mount("mnt");
    let big: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    fs::write(mount.at("before"), &big).unwrap();
    cluster.kill(0);
    assert_eq!(fs::read(mount.at("before")).unwrap(), big);
    fs::write(mount.at("during"), &big).unwrap();
    let mut ledger = Ledger::new(&mount.at("ledger"), 300);
    for at in 0..300 {
        ledger.write(at, 1 + at as u64);
    }
    fs::remove_file(mount.at("before")).unwrap();
    let (code, shown) = cluster.status();
    assert_eq!(code, Some(1), "degraded:\n{shown}");
    cluster.start_again(0);
    cluster.until_whole();
    cluster.kill(1);
    drop(mount);
    let mount = cluster.mount("again");
    assert_eq!(fs::read(mount.at("during")).unwrap(), big);
    ledger.check(&mount.at("ledger"));
    fs::write(mount.at("after"), b"and it goes on").unwrap();
    drop(mount);
    assert!(cluster.witness.log().contains("joined"));
}

#[test]
fn nothing_acknowledged_is_missing_or_old_however_often_servers_are_killed() {
    let mut cluster = Cluster::start(3, 2);
    let mount = cluster.mount("mnt");
    let ledgers: Vec<_> = (0..2)
        .map(|writer| {
            let path = mount.at(&format!("ledger{writer}"));
            (Mutex::new(Ledger::new(&path, 500)), path)
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (ledger, _) in &ledgers {
            let stop = &stop;
            scope.spawn(move || {
                let mut ledger = ledger.lock().unwrap();
                for number in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let at = (number as usize * 7919) % 500;
                    ledger.write(at, number);
                }
            });
        }
        let (mount, stop) = (&mount, &stop);
        scope.spawn(move || {
            for nth in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut file = File::create(mount.at(&format!("file{}", nth % 10))).unwrap();
                file.write_all(&vec![nth as u8; 1_500_000]).unwrap();
                drop(file);
                let back = fs::read(mount.at(&format!("file{}", nth % 10))).unwrap();
                assert!(back.len() == 1_500_000 && back.iter().all(|b| *b == nth as u8), "{nth}");
            }
        });
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(700));
            cluster.kill(round % 3);
            std::thread::sleep(Duration::from_millis(if round % 2 == 0 { 300 } else { 4_000 }));
            cluster.start_again(round % 3);
            cluster.until_whole();
        }
        stop.store(true, Ordering::Relaxed);
    });
    for survivor in 0..3 {
        // Each server is away once while everything is read: the other copies hold it all.
        cluster.kill(survivor);
        let fresh = cluster.mount(&format!("fresh{survivor}"));
        for (writer, (ledger, _)) in ledgers.iter().enumerate() {
            ledger.lock().unwrap().check(&fresh.at(&format!("ledger{writer}")));
        }
        drop(fresh);
        cluster.start_again(survivor);
        cluster.until_whole();
    }
}
