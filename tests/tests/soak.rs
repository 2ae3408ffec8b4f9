//! A cluster on hosts of its own under load, while whatever can happen to its servers happens at random:
//! nothing that was acknowledged is missing or old, and the file system is clean.
//!
//! Three minutes of it in each run of the tests; `make soak` makes it half an hour. What happens follows from a
//! seed, which is shown: `STRAKE_SOAK_SEED` repeats it as far as time allows.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strake_base::random::SplitMix64;
use strake_tests::cluster::{Process, is_mounted, mount_memory, take_away};
use strake_tests::network::Network;
use strake_tests::records;
use tempfile::TempDir;

/// How long the cluster may take to be whole after all trouble.
const HEAL_WAIT: Duration = Duration::from_secs(120);
/// The witness has the manager and the names.
const HEAD: usize = 1;
/// Storage servers are hosts 2 to this one.
const LAST_STORAGE: usize = 4;
const CLIENT: usize = 5;
/// Records of a file that are overwritten again and again.
const RECORDS: usize = 400;
const WRITERS: usize = 2;
/// As long as the metadata server is started again and again before clients that were killed count as
/// gone, nothing that they might have open is deleted; so now and then it is left alone for some time.
const REST_EVERY: Duration = Duration::from_secs(120);
const REST: Duration = Duration::from_secs(45);
/// Between two records of a writer: the other tests need the processors, too.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a storage server's disk.
const DISK_BYTES: u64 = 1 << 30;

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Everything that runs.
struct Soak {
    servers: Vec<Option<Process>>,
    mount: Option<Process>,
    load: Option<Child>,
    disks: Vec<PathBuf>,
    network: Network,
    directory: TempDir,
}

impl Soak {
    fn start() -> Self {
        let (network, directory) = (Network::new(CLIENT), tempfile::tempdir().unwrap());
        let servers = (0..=LAST_STORAGE).map(|_| None).collect();
        let mut soak =
            Self { servers, mount: None, load: None, disks: Vec::new(), network, directory };
        for host in 1..=LAST_STORAGE {
            let disk = soak.path(&format!("disk{host}"));
            mount_memory(&disk, DISK_BYTES);
            soak.disks.push(disk);
            soak.start_server(host);
        }
        soak.until("all servers", |soak| {
            soak.status()["targets"].as_array().map(Vec::len) == Some(3)
        });
        let set = soak.run(&["volume", "set", "main", "--copies", "2", "--cluster", "10.77.0.1"]);
        assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        fs::create_dir(soak.path("mnt")).unwrap();
        soak.start_mount();
        soak
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn process(&self, host: usize, arguments: &[&str]) -> Process {
        let arguments: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
        let log = self.path(&format!("host{host}.log"));
        Process::start_on(self.network.enter(host), &arguments, &log)
    }

    fn start_server(&mut self, host: usize) {
        let (address, disk) = (Network::address(host), self.path(&format!("disk{host}/data")));
        let (name, disk) = (format!("host{host}"), disk.display().to_string());
        let mut arguments = vec!["server", "--listen", &address, "--data", &disk, "--name", &name];
        match host {
            HEAD => arguments.extend(["--roles", "manager,meta", "--metrics", "10.77.0.1:7499"]),
            _ => arguments.extend(["--roles", "storage", "--join", "10.77.0.1"]),
        }
        self.servers[host] = Some(self.process(host, &arguments));
    }

    fn kill(&mut self, host: usize) {
        if let Some(mut server) = self.servers[host].take() {
            server.kill();
        }
    }

    fn start_mount(&mut self) {
        let at = self.path("mnt");
        let flags = ["mount", "--foreground", "10.77.0.1:/main", &at.display().to_string()];
        let mut mount = self.process(CLIENT, &flags);
        mount.wait_until("the mount", || is_mounted(&at));
        self.mount = Some(mount);
    }

    /// The client's host dies, and its programs with it.
    fn kill_mount(&mut self) {
        self.stop_load();
        if let Some(mut mount) = self.mount.take() {
            mount.kill();
        }
        take_away(&self.path("mnt"));
    }

    /// In a process of its own: a server that is started from this one would begin with its open files.
    fn start_load(&mut self) {
        let mut load = Command::new(std::env::current_exe().unwrap());
        load.args(["--exact", "load", "--ignored", "--nocapture"]);
        load.env("STRAKE_LOAD_IN", self.path("mnt")).env("STRAKE_LOAD_LEDGER", self.path("ledger"));
        let log = OpenOptions::new().create(true).append(true).open(self.path("load.log")).unwrap();
        load.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.load = Some(load.spawn().unwrap());
    }

    fn stop_load(&mut self) {
        if let Some(mut load) = self.load.take() {
            let ended = load.try_wait().unwrap();
            load.kill().unwrap();
            load.wait().unwrap();
            let log = fs::read_to_string(self.path("load.log")).unwrap_or_default();
            assert_eq!(ended, None, "an application has seen an error:\n{log}");
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.network.run(CLIENT, arguments)
    }

    fn status(&self) -> serde_json::Value {
        let output = self.run(&["status", "--json", "--cluster", "10.77.0.1"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + HEAL_WAIT;
        while !so(self) {
            if Instant::now() >= end {
                panic!("{what}: {:#}\n{}", self.status(), self.look_around());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What there is to see when something does not become well.
    fn look_around(&self) -> String {
        let fsck = self.run(&["fsck", "main", "--cluster", "10.77.0.1"]);
        let said = String::from_utf8_lossy(&fsck.stdout).into_owned();
        let ask = "exec 3<>/dev/tcp/10.77.0.1/7499; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
        let page = self.network.enter(CLIENT).args(["bash", "-c", ask]).output();
        let page = String::from_utf8_lossy(&page.expect("nsenter is there").stdout).into_owned();
        let lines = page.lines().filter(|line| line.starts_with("strake_meta_"));
        lines.fold(said, |all, line| all + "\n" + line)
    }

    /// One thing goes wrong, for some time, and is well again.
    fn trouble(&mut self, random: &mut SplitMix64) -> String {
        let server = 1 + random.below(LAST_STORAGE as u64) as usize;
        let storage = 2 + random.below(LAST_STORAGE as u64 - 1) as usize;
        let other = 1 + random.below(CLIENT as u64) as usize;
        let time = Duration::from_millis(200 + random.below(5_000));
        let what = match random.below(7) {
            0 => {
                self.kill(storage);
                std::thread::sleep(time);
                self.start_server(storage);
                format!("host {storage} was killed, and back after {time:?}")
            }
            1 => {
                self.network.cut(server, true);
                std::thread::sleep(time);
                self.network.cut(server, false);
                format!("host {server} was cut off for {time:?}")
            }
            2 if other != server => {
                self.network.cut_one_way(server, other, true);
                std::thread::sleep(time);
                self.network.cut_one_way(server, other, false);
                format!("what host {server} sent to {other} was lost for {time:?}")
            }
            3 => {
                self.kill(HEAD);
                std::thread::sleep(time / 3);
                self.start_server(HEAD);
                format!("manager and metadata server were killed, and back after {:?}", time / 3)
            }
            4 => {
                self.kill_mount();
                self.start_mount();
                self.start_load();
                "the client was killed".to_owned()
            }
            5 => {
                let filler = self.disks[storage - 1].join("filler");
                let file = File::create(&filler).unwrap();
                let block = vec![1; 1 << 20];
                while (&file).write_all(&block).is_ok() {}
                std::thread::sleep(time);
                fs::remove_file(&filler).unwrap();
                format!("the disk of host {storage} was full for {time:?}")
            }
            _ => {
                for _ in 0..3 {
                    self.kill(storage);
                    self.start_server(storage);
                    std::thread::sleep(time / 5);
                }
                format!("host {storage} was started again and again")
            }
        };
        self.until("whole", |soak| soak.status()["health"] == "fine");
        what
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        if let Some(mut load) = self.load.take() {
            let _gone = load.kill();
            let _gone = load.wait();
        }
        if let Some(mut mount) = self.mount.take() {
            mount.kill();
        }
        take_away(&self.path("mnt"));
        self.servers.drain(..).flatten().for_each(drop);
        self.disks.iter().for_each(|disk| take_away(disk));
    }
}

/// What an application was told. One line for each thing that was done, written when it was done:
/// `r WRITER RECORD NUMBER`, `f NAME BYTE LENGTH`; `u NAME` before a file is removed.
struct Ledger(File);

impl Ledger {
    fn note(&self, line: &str) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).expect("the ledger's disk works");
    }
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// An error that an application may see here: the one disk with room for it is full.
fn is_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::StorageFull
}

fn write_records(directory: &Path, ledger: &Ledger, writer: usize) {
    let path = directory.join(format!("records{writer}"));
    let options = OpenOptions::new().create(true).truncate(false).write(true).clone();
    let file = options.open(path).unwrap();
    for turn in 0.. {
        let (at, number) = (records::place_of(turn, RECORDS), micros());
        match records::write(&file, at, number) {
            Ok(()) => ledger.note(&format!("r {writer} {at} {number}")),
            Err(error) if is_full(&error) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => panic!("record {at}: {error}"),
        }
        std::thread::sleep(PAUSE);
    }
}

fn make_files(directory: &Path, ledger: &Ledger) -> ! {
    // Those of loads that were killed, too: else the disks would be full some day.
    let numbers = |prefix: &str| -> VecDeque<u64> {
        let number = |entry: std::io::Result<fs::DirEntry>| -> Option<u64> {
            entry.unwrap().file_name().to_str()?.strip_prefix(prefix)?.parse().ok()
        };
        fs::read_dir(directory).unwrap().filter_map(number).collect()
    };
    // What a killed process had asked for goes on without it: its last draft may get its name only now, and what it
    // was removing may go.
    let began = micros();
    let remove = |name: String, number: u64| match fs::remove_file(directory.join(&name)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && number < began => {}
        removed => removed.unwrap_or_else(|error| panic!("{name}: {error}")),
    };
    for number in numbers("draft") {
        remove(format!("draft{number}"), number);
    }
    let (mut kept, draft) = (numbers("file"), directory.join(format!("draft{began}")));
    kept.make_contiguous().sort_unstable();
    loop {
        let number = micros();
        let (byte, len) = (number as u8 | 1, [100, 9_000, 300_000, 1_500_000][number as usize % 4]);
        let mut step = "create";
        let made = File::create(&draft).and_then(|mut file| {
            step = "write";
            file.write_all(&vec![byte; len])?;
            step = "fsync";
            file.sync_all()?;
            drop(file);
            step = "rename";
            fs::rename(&draft, directory.join(format!("file{number}")))
        });
        match made {
            Ok(()) => {
                ledger.note(&format!("f file{number} {byte} {len}"));
                kept.push_back(number);
            }
            Err(error) if is_full(&error) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => panic!("{step} of file {number}: {error}"),
        }
        while kept.len() > 30 {
            let number = kept.pop_front().unwrap();
            ledger.note(&format!("u file{number}"));
            remove(format!("file{number}"), number);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "the load of the soak test, which starts it"]
fn load() {
    let (Ok(directory), Ok(ledger)) =
        (std::env::var("STRAKE_LOAD_IN"), std::env::var("STRAKE_LOAD_LEDGER"))
    else {
        return;
    };
    let ledger = OpenOptions::new().create(true).append(true).open(ledger).unwrap();
    let (ledger, directory) = (Ledger(ledger), PathBuf::from(directory));
    // Whoever meets an error ends them all.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(1);
    }));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (ledger, directory) = (&ledger, &directory);
            scope.spawn(move || write_records(directory, ledger, writer));
        }
        make_files(&directory, &ledger)
    });
}

/// Holds what is there against what an application was told.
fn check(mount: &Path, ledger: &str) -> usize {
    let mut written: HashMap<(usize, usize), u64> = HashMap::new();
    let mut files: HashMap<&str, (u8, usize)> = HashMap::new();
    for line in ledger.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["r", writer, at, number] => {
                let key = (writer.parse().unwrap(), at.parse().unwrap());
                written.insert(key, number.parse().unwrap());
            }
            ["f", name, byte, len] => {
                files.insert(name, (byte.parse().unwrap(), len.parse().unwrap()));
            }
            ["u", name] => drop(files.remove(name)),
            // The last line of a load that was killed.
            _ => {}
        }
    }
    for writer in 0..WRITERS {
        let bytes = fs::read(mount.join(format!("records{writer}"))).unwrap();
        for ((_, at), number) in written.iter().filter(|((of, _), _)| *of == writer) {
            let found = records::number_in(&bytes, *at);
            assert!(found >= *number, "record {at} of {writer}: {found} is older than {number}");
        }
    }
    for (name, (byte, len)) in &files {
        let bytes = fs::read(mount.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(bytes.len() == *len && bytes.iter().all(|b| b == byte), "{name} is another");
    }
    written.len() + files.len()
}

#[test]
fn nothing_acknowledged_is_lost_whatever_happens_to_hosts_disks_and_the_network() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let seed = number_of("STRAKE_SOAK_SEED").unwrap_or_else(micros);
    let time = Duration::from_secs(number_of("STRAKE_SOAK_SECONDS").unwrap_or(180));
    println!("repeat it: STRAKE_SOAK_SEED={seed} STRAKE_SOAK_SECONDS={}", time.as_secs());
    let mut random = SplitMix64::new(seed);
    let mut soak = Soak::start();
    soak.start_load();
    let (began, mut troubles, mut rests) = (Instant::now(), 0, 0);
    while began.elapsed() < time {
        if began.elapsed() > REST_EVERY * (rests + 1) {
            std::thread::sleep(REST);
            rests += 1;
        }
        std::thread::sleep(Duration::from_millis(random.below(1_500)));
        let what = soak.trouble(&mut random);
        println!("{:6.1} s: {what}", began.elapsed().as_secs_f64());
        troubles += 1;
    }
    soak.stop_load();
    soak.kill_mount();
    soak.start_mount();
    let ledger = fs::read_to_string(soak.path("ledger")).unwrap();
    let checked = check(&soak.path("mnt"), &ledger);
    println!(
        "{troubles} troubles, {} lines, {checked} records and files compared",
        ledger.lines().count()
    );
    let fsck = soak.run(&["fsck", "main", "--cluster", "10.77.0.1"]);
    let shown = String::from_utf8_lossy(&fsck.stdout);
    assert_eq!(fsck.status.code(), Some(0), "{shown}{}", String::from_utf8_lossy(&fsck.stderr));
    let scrub = soak.run(&["scrub", "--cluster", "10.77.0.1"]);
    assert!(scrub.status.success(), "{}", String::from_utf8_lossy(&scrub.stdout));
}
