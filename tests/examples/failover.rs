//! How long readers and writers stand still when a storage server dies or falls silent, and when it returns.
//!
//! A witness, three storage servers and two mounts, all processes of this machine over TCP; every file
//! has two copies. One thread overwrites 4 KiB and calls `fsync`. At the other mount, which does not
//! have in memory what is under way, one reads 64 KiB with O_DIRECT from the same file, and one from a
//! file that nobody writes. Again and again one server gets `kill -9` (or, with `silence`, SIGSTOP: to others
//! that is a network that is cut), stays away until it was taken out, and returns until it leads its groups again.
//! Printed are the longest calls beside each of the two. With `leader` there are three servers with all roles on one
//! PostgreSQL instead, and the one that is lost is that whose manager leads; with `owner` it is the one that has the volume's
//! names. With `three` every file has three copies, and two of the three storage servers are lost at once.
//!
//! ```sh
//! cargo build --release -p strake
//! STRAKE_BIN=target/release/strake cargo run --release -p strake-tests --example failover -- 50
//! STRAKE_BIN=target/release/strake cargo run --release -p strake-tests --example failover -- 50 silence leader
//! ```

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_base::aligned::AlignedBuffer;
use strake_tests::cluster::{Mount, Process, eventually, run, signal, succeed};
use strake_tests::owners::Cluster as Equals;
use strake_tests::postgres::PostgresServer;
use strake_tests::servers::Cluster;

/// How long anything else may take. Only a hang reaches it.
const WAIT: Duration = Duration::from_secs(60);
const SERVERS: usize = 3;
const FILE_BYTES: u64 = 32 << 20;
const WRITE_BYTES: u64 = 4 << 10;
const READ_BYTES: u64 = 64 << 10;
/// A lease and some time for what follows when it is over.
const AWAY: Duration = Duration::from_secs(5);
/// After this time a server that is back leads its groups again.
const LEADS_AGAIN: Duration = Duration::from_secs(8);

/// The longest of some calls, in microseconds, and how many there were.
#[derive(Default)]
struct Calls {
    longest: AtomicU64,
    count: AtomicU64,
}

impl Calls {
    fn time(&self, call: impl FnOnce()) {
        let began = Instant::now();
        call();
        self.longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Seconds of the longest call since the last time.
    fn take(&self) -> f64 {
        self.longest.swap(0, Ordering::SeqCst) as f64 / 1e6
    }
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    writes: Calls,
    /// Of the file that is written.
    reads: Calls,
    /// Of the other one.
    others: Calls,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn write(&self, path: &Path) {
        let file = File::options().write(true).open(path).expect("the file is there");
        let block = [7; WRITE_BYTES as usize];
        for nth in (0..).step_by(37) {
            if !self.goes_on() {
                return;
            }
            let at = nth * WRITE_BYTES % FILE_BYTES;
            self.writes.time(|| {
                file.write_all_at(&block, at).expect("a write succeeds");
                file.sync_data().expect("a sync succeeds");
            });
        }
    }

    fn read(&self, calls: &Calls, path: &Path) {
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(path);
        let file = file.expect("the file is there");
        let mut buffer = AlignedBuffer::new(READ_BYTES as usize);
        for nth in (0..).step_by(11) {
            if !self.goes_on() {
                return;
            }
            let at = nth * READ_BYTES % FILE_BYTES;
            calls.time(|| file.read_exact_at(&mut buffer, at).expect("a read succeeds"));
        }
    }
}

/// The longest calls in seconds, of each round.
#[derive(Default)]
struct Times {
    name: &'static str,
    seconds: Vec<f64>,
}

impl Times {
    fn of(name: &'static str) -> Self {
        Self { name, seconds: Vec::new() }
    }

    fn print(&mut self) {
        self.seconds.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let nth = (self.seconds.len() as f64 * part).ceil() as usize;
            self.seconds[nth.saturating_sub(1)]
        };
        let (name, most) = (self.name, at(1.0));
        println!("{name:<36} {:>7.3} {:>7.3} {most:>7.3}", at(0.5), at(0.99));
    }
}

/// What becomes of a server.
#[derive(Clone, Copy)]
enum Fate {
    /// Whoever asks it is refused at once.
    Killed,
    /// Nobody is answered.
    Silent,
}

/// The servers.
enum Bed {
    /// A witness, and others with storage.
    Witness(Cluster),
    /// All of them with all roles, what takes the place of one that is killed, and who that is.
    Equals(Equals, Option<Process>, Role),
}

/// Which of the servers with all roles is lost.
#[derive(Clone, Copy)]
enum Role {
    Leader,
    Owner,
}

impl Bed {
    fn of_equals(role: Role) -> Self {
        let database = PostgresServer::shared();
        let cluster = Equals::of_equals(&database.url(&database.database()), SERVERS);
        let address = cluster.address();
        succeed(["volume", "set", "main", "--copies", "2", "--cluster", &address]);
        Bed::Equals(cluster, None, role)
    }

    fn mount(&self, name: &str) -> Mount {
        match self {
            Bed::Witness(cluster) => cluster.mount(name),
            Bed::Equals(cluster, ..) => cluster.mount(name),
        }
    }

    fn until_whole(&self) {
        match self {
            Bed::Witness(cluster) => cluster.until_whole(),
            Bed::Equals(cluster, ..) => eventually(WAIT, "all is in sync", || {
                let said = run(["status", "--json", "--cluster", &cluster.address()]).stdout;
                let status = serde_json::from_slice::<serde_json::Value>(&said);
                status.is_ok_and(|status| status["health"] == "fine")
            }),
        }
    }

    /// Who is lost in a round.
    fn victim(&self, round: usize) -> usize {
        match self {
            Bed::Witness(_) => round % SERVERS,
            Bed::Equals(cluster, _, Role::Leader) => {
                cluster.leader().expect("one leads: all is well")
            }
            Bed::Equals(cluster, _, Role::Owner) => cluster.owner(),
        }
    }

    fn signal(&self, victim: usize, name: &str) {
        match self {
            Bed::Witness(cluster) => cluster.signal(victim, name),
            Bed::Equals(cluster, ..) => signal(cluster.metas[victim].process.pid(), name),
        }
    }

    fn lose(&mut self, victim: usize, fate: Fate) {
        match (self, fate) {
            (bed, Fate::Silent) => bed.signal(victim, "STOP"),
            (Bed::Witness(cluster), Fate::Killed) => cluster.kill(victim),
            (Bed::Equals(cluster, next, _), Fate::Killed) => {
                *next = Some(cluster.metas[victim].next());
                cluster.metas[victim].process.kill();
            }
        }
    }

    fn bring_back(&mut self, victim: usize, fate: Fate) {
        match (self, fate) {
            (bed, Fate::Silent) => bed.signal(victim, "CONT"),
            (Bed::Witness(cluster), Fate::Killed) => cluster.start_again(victim),
            (Bed::Equals(cluster, next, _), Fate::Killed) => {
                let mut next = next.take().expect("it was made before the kill");
                next.go();
                cluster.metas[victim].process = next;
            }
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(10, |n| n.parse().expect("how many rounds"));
    let (mut fate, mut role, mut copies) = (Fate::Killed, None, 2);
    for word in arguments {
        match word.as_str() {
            "silence" => fate = Fate::Silent,
            "leader" => role = Some(Role::Leader),
            "owner" => role = Some(Role::Owner),
            "three" => copies = 3,
            other => panic!("{other}: silence, leader, owner and three are known"),
        }
    }
    let mut bed = match (role, copies) {
        (None, _) => Bed::Witness(Cluster::with_copies(SERVERS, copies)),
        (Some(role), 2) => Bed::of_equals(role),
        (Some(_), _) => panic!("three: of storage servers beside a witness only"),
    };
    let (one, two) = (bed.mount("one"), bed.mount("two"));
    for name in ["written", "other"] {
        let path = one.path().join(name);
        std::fs::write(&path, vec![1; FILE_BYTES as usize]).expect("a file can be made");
    }
    let load = Arc::new(Load::default());
    let start = |path: PathBuf, work: fn(&Load, &Path)| {
        let load = load.clone();
        std::thread::spawn(move || work(&load, &path))
    };
    let threads = [
        start(one.path().join("written"), Load::write),
        start(two.path().join("written"), |load, path| load.read(&load.reads, path)),
        start(two.path().join("other"), |load, path| load.read(&load.others, path)),
    ];
    let mut times = [
        "write + fsync, beside the loss",
        "read of what is written, beside it",
        "read of another file, beside it",
        "write + fsync, beside a return",
        "read of what is written, beside it",
        "read of another file, beside it",
    ]
    .map(Times::of);
    let calls = [&load.writes, &load.reads, &load.others];
    for round in 0..rounds {
        bed.until_whole();
        let first = bed.victim(round);
        let victims: Vec<usize> =
            (first..first + copies as usize - 1).map(|n| n % SERVERS).collect();
        let _before = calls.map(Calls::take);
        victims.iter().for_each(|victim| bed.lose(*victim, fate));
        std::thread::sleep(AWAY);
        let killed = calls.map(Calls::take);
        victims.iter().for_each(|victim| bed.bring_back(*victim, fate));
        bed.until_whole();
        std::thread::sleep(LEADS_AGAIN);
        let longest = [killed, calls.map(Calls::take)].concat();
        eprintln!("round {}: {longest:.3?}", round + 1);
        times.iter_mut().zip(longest).for_each(|(times, longest)| times.seconds.push(longest));
    }
    load.stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no call failed"));
    let [writes, reads, others] = calls.map(|calls| calls.count.load(Ordering::SeqCst));
    println!("{rounds} rounds, {writes} writes, {reads} and {others} reads, none failed; seconds:");
    println!("{:<36} {:>7} {:>7} {:>7}", "longest call of a round", "p50", "p99", "most");
    times.iter_mut().for_each(Times::print);
}
