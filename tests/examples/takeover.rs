//! How long names stand still when a server is gone: `cargo run --release --example takeover -p strake-tests -- [ROUNDS [managers]]`
//!
//! A manager with storage and two metadata servers on one PostgreSQL, and a mount, on this machine. Each round ends the server that
//! serves the volume (`kill -9`, then SIGSTOP, then in good order) while a thread makes files, and says how long the slowest took.
//! With `managers`: three servers with all roles, of which the one is ended whose manager leads.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use strake_tests::cluster::{eventually, signal};
use strake_tests::owners::Cluster;
use strake_tests::postgres::PostgresServer;

const WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    StoodStill,
    Stopped,
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(10, |n| n.parse().expect("a number of rounds"));
    let of_managers = std::env::args().nth(2).is_some_and(|word| word == "managers");
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let mut cluster = match of_managers {
        true => Cluster::of_equals(&url, 3),
        false => Cluster::start(&url, 2),
    };
    let which = if of_managers { leader } else { Cluster::owner };
    let mount = cluster.mount("mnt");
    for end in [End::Killed, End::StoodStill, End::Stopped] {
        let mut took: Vec<f64> =
            (0..rounds).map(|nth| one(&mut cluster, which, mount.path(), end, nth)).collect();
        took.sort_by(f64::total_cmp);
        let at = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)];
        println!("{end:?}: median {:.2} s, p99 {:.2} s, of {rounds}", at(50), at(99));
    }
}

/// The server whose manager leads.
fn leader(cluster: &Cluster) -> usize {
    loop {
        if let Some(leader) = cluster.leader() {
            return leader;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// One round: the longest time of a create, in seconds.
fn one(
    cluster: &mut Cluster,
    which: fn(&Cluster) -> usize,
    mount: &Path,
    end: End,
    nth: usize,
) -> f64 {
    let dir = mount.join(format!("{end:?}{nth}"));
    fs::create_dir(&dir).expect("it is new");
    let (stop, (sender, slowest)) = (AtomicBool::new(false), channel());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let began = Instant::now();
                File::create_new(dir.join(format!("f{nth}"))).expect("it is made once");
                sender.send(began.elapsed().as_secs_f64()).expect("somebody counts");
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let owner = which(cluster);
        let mut next = cluster.metas[owner].next();
        let process = &mut cluster.metas[owner].process;
        match end {
            End::Killed => process.kill(),
            End::StoodStill => signal(process.pid(), "STOP"),
            End::Stopped => process.stop(),
        }
        std::thread::sleep(Duration::from_secs(5));
        if let End::StoodStill = end {
            signal(process.pid(), "CONT");
            next.stop();
        } else {
            next.go();
            cluster.metas[owner].process = next;
        }
        stop.store(true, Ordering::SeqCst);
    });
    drop(sender);
    // Both are well again, and the volume is where it was.
    std::thread::sleep(Duration::from_secs(8));
    eventually(WAIT, "the mount answers", || fs::read_dir(&dir).is_ok());
    longest(&slowest)
}

fn longest(times: &Receiver<f64>) -> f64 {
    times.iter().fold(0.0, f64::max)
}
