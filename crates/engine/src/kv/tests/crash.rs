//! A child process commits and is killed; its parent opens the store again and looks.
//!
//! The child is this test binary with the one test [`child`]. It reports every acknowledged commit
//! through a pipe. It is killed with SIGKILL, at random times and at each named step of
//! [`crate::kv::step`].

use super::workload::{self, factor, random, run};
use crate::kv::embedded::{Embedded, Store};
use crate::kv::{EngineKind, Kv};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const WRITERS: u64 = 2;
/// Little, so that checkpoints are frequent.
const CHECKPOINT_BYTES: u64 = 24 << 10;
/// Commits of each writer after which the child ends by itself.
const COMMITS_MAX: u64 = 4000;
const SYNC_EVERY: u64 = 8;

/// Steps on the way of every open, and those met while commits go on.
const OPEN_STEPS: [&str; 4] = ["open store", "open replayed", "open checkpointed", "open journal"];
const STEPS: [&str; 14] = [
    "segment empty",
    "append",
    "append torn",
    "appended",
    "applied",
    "rotated",
    "sealed",
    "sync",
    "synced",
    "checkpoint",
    "checkpointed",
    "checkpoint synced",
    "segment removed",
    "compacted",
];

fn open(kind: EngineKind, directory: &Path) -> crate::kv::Result<Box<dyn Kv>> {
    fn with<S: Store>(directory: &Path) -> crate::kv::Result<Box<dyn Kv>> {
        Ok(Box::new(Embedded::<S>::open_with(directory, CHECKPOINT_BYTES)?))
    }
    match kind {
        EngineKind::Fjall => with::<crate::kv::fjall::Lsm>(directory),
        EngineKind::Redb => with::<crate::kv::redb::BTree>(directory),
    }
}

/// What the child does. Not a test of its own.
#[test]
#[ignore = "the child of the other tests"]
fn child() {
    let Ok(directory) = std::env::var("STRAKE_KV_CHILD") else { return };
    let kind: EngineKind = std::env::var("STRAKE_KV_ENGINE").unwrap().parse().unwrap();
    let kv = open(kind, Path::new(&directory)).unwrap();
    let heads = run(workload::verify(&*kv, WRITERS)).unwrap();
    thread::scope(|scope| {
        for (writer, head) in (0..).zip(heads) {
            let kv = &*kv;
            scope.spawn(move || {
                for n in head + 1..=head + COMMITS_MAX {
                    run(workload::commit(kv, writer, n)).unwrap();
                    say(&format!("ack {writer} {n}"));
                    if n % SYNC_EVERY == writer {
                        run(async { kv.sync().await.unwrap() });
                    }
                }
            });
        }
    });
}

/// One line in one write.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

struct Life {
    child: Child,
    acks: thread::JoinHandle<Vec<u64>>,
    first: mpsc::Receiver<()>,
}

impl Life {
    fn begin(kind: EngineKind, directory: &Path, step: Option<(&str, u64)>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["kv::tests::crash::child", "--exact", "--ignored", "--nocapture"])
            .env("STRAKE_KV_CHILD", directory)
            .env("STRAKE_KV_ENGINE", kind.name())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some((name, count)) = step {
            command.env("STRAKE_KV_STEP", format!("{name}:{count}"));
        }
        let mut child = command.spawn().unwrap();
        let pipe = BufReader::new(child.stdout.take().unwrap());
        let (send, first) = mpsc::channel();
        let acks = thread::spawn(move || {
            let mut acks = vec![0; WRITERS as usize];
            for line in pipe.lines().map_while(Result::ok) {
                let Some(ack) = line.strip_prefix("ack ") else { continue };
                let (writer, n) = ack.split_once(' ').unwrap();
                acks[writer.parse::<usize>().unwrap()] = n.parse().unwrap();
                let _nobody_waits_any_more = send.send(());
            }
            acks
        });
        Self { child, acks, first }
    }

    /// Waits for the end; returns the last acknowledged commit of each writer.
    fn end(mut self) -> (ExitStatus, Vec<u64>) {
        let status = self.child.wait().unwrap();
        (status, self.acks.join().unwrap())
    }
}

/// Opens what a killed child left: everything acknowledged must be there, at most one more commit
/// of each writer, and nothing by halves. Returns the heads.
fn judge(kind: EngineKind, directory: &Path, before: &[u64], acks: &[u64]) -> Vec<u64> {
    let kv = open(kind, directory).unwrap();
    let heads = run(workload::verify(&*kv, WRITERS)).unwrap();
    for writer in 0..WRITERS as usize {
        let acked = acks[writer].max(before[writer]);
        let head = heads[writer];
        assert!(head >= acked, "commit {acked} of writer {writer} was acknowledged: {heads:?}");
        assert!(head <= acked + 1, "commit {head} of writer {writer} was never begun");
    }
    heads
}

fn killed_at_random_times(kind: EngineKind) {
    let directory = tempfile::tempdir().unwrap();
    let mut random = random(kind as u64);
    let mut heads = vec![0; WRITERS as usize];
    for round in 0..14 * factor() {
        let mut life = Life::begin(kind, directory.path(), None);
        if round % 3 > 0 {
            // Else it may die while it opens the store.
            life.first.recv().unwrap();
        }
        thread::sleep(Duration::from_micros(random.below(40_000) as u64));
        life.child.kill().unwrap();
        let (_, acks) = life.end();
        heads = judge(kind, directory.path(), &heads, &acks);
    }
    assert!(heads.iter().all(|head| *head > 0));
}

fn killed_at_each_step(kind: EngineKind, steps: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let mut heads = vec![0; WRITERS as usize];
    let once = OPEN_STEPS.iter().map(|step| (*step, 1));
    let often = steps.iter().flat_map(|step| [(*step, 1), (*step, 4)]);
    for (step, count) in once.chain(often).chain(OPEN_STEPS.iter().map(|step| (*step, 1))) {
        let life = Life::begin(kind, directory.path(), Some((step, count)));
        let (status, acks) = life.end();
        assert_eq!(status.signal(), Some(9), "step {step:?} was not met {count} times: {status}");
        heads = judge(kind, directory.path(), &heads, &acks);
    }
}

#[test]
fn fjall_keeps_every_acknowledged_commit_when_killed_at_random_times() {
    killed_at_random_times(EngineKind::Fjall);
}

#[test]
fn redb_keeps_every_acknowledged_commit_when_killed_at_random_times() {
    killed_at_random_times(EngineKind::Redb);
}

#[test]
fn fjall_keeps_every_acknowledged_commit_when_killed_at_each_step() {
    killed_at_each_step(EngineKind::Fjall, &STEPS);
}

#[test]
fn redb_keeps_every_acknowledged_commit_when_killed_at_each_step() {
    // It is never compacted.
    killed_at_each_step(EngineKind::Redb, &STEPS[..STEPS.len() - 1]);
}

#[test]
fn a_store_that_was_not_closed_is_the_same_after_every_reopening() {
    for kind in EngineKind::ALL {
        let directory = tempfile::tempdir().unwrap();
        let life = Life::begin(kind, directory.path(), Some(("appended", 200)));
        let (_, acks) = life.end();
        let first = judge(kind, directory.path(), &[0, 0], &acks);
        for _ in 0..3 {
            assert_eq!(judge(kind, directory.path(), &first, &first), first);
        }
    }
}
