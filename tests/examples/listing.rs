//! How long `ls -l` of a large directory takes when nothing of it is cached, and what memory that needs.
//!
//! A server with all roles and a mount, over TCP, each a process of its own. For each round both start anew, so neither has
//! anything in its caches. Printed are the rounds with the most memory that both ever had, and the median.
//!
//! ```sh
//! cargo build --release -p strake
//! cargo run --release -p strake-tests --example listing -- 100000
//! cargo run --release -p strake-tests --example listing -- 100000 5 -o noxattr
//! ```

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use strake_client::Volume;
use strake_client::api::VolumeOptions;
use strake_tests::cluster::{Servers, mount_of};
use strake_tests::made::{make_directory, make_file};
use strake_types::Ino;

const ROUNDS: usize = 5;
/// That make the files, at once.
const TASKS: usize = 32;
const USAGE: &str = "usage: listing FILES [ROUNDS [-o OPTIONS]] [--meta URL]";

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    assert!(!arguments.is_empty(), "{USAGE}");
    let files: usize = arguments.remove(0).parse().expect(USAGE);
    let rounds = arguments.first().and_then(|first| first.parse().ok());
    arguments.drain(..usize::from(rounds.is_some()));
    let rounds = rounds.unwrap_or(ROUNDS);
    let options = match arguments.first().is_some_and(|first| first == "-o") {
        true => arguments.drain(..2).nth(1).expect(USAGE),
        false => String::new(),
    };
    let meta = &arguments[..];
    let mut servers = Servers::start_with(meta);
    let began = Instant::now();
    make(servers.address().to_owned(), files);
    println!("{files} files made, {:.0}/s", files as f64 / began.elapsed().as_secs_f64());
    let mut seconds = Vec::new();
    for round in 0..rounds {
        servers.kill();
        servers.start_again();
        let at = tempfile::tempdir().expect("a directory can be made");
        let mut mount = mount_of(servers.address(), &at.path().join("mount"), &options);
        let began = Instant::now();
        let lines = list(&mount.at("directory"));
        seconds.push(began.elapsed().as_secs_f64());
        assert_eq!(lines, files + 1, "one line for each, and the total");
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "{:.2} s; memory MiB at most: server {}, mount {}",
            seconds[round],
            mib(servers.server().peak_resident_bytes()),
            mib(mount.process().peak_resident_bytes()),
        );
    }
    seconds.sort_by(f64::total_cmp);
    println!("median {:.2} s for `ls -l` of {files}", seconds[rounds / 2]);
}

/// Lines that `ls -l` prints.
fn list(directory: &std::path::Path) -> usize {
    let mut ls = Command::new("ls");
    ls.arg("-l").arg(directory).env("LC_ALL", "C").stdout(Stdio::piped());
    let mut ls = ls.spawn().expect("ls is there");
    let output = ls.stdout.take().expect("it is a pipe");
    let lines = std::io::BufRead::split(std::io::BufReader::new(output), b'\n').count();
    assert!(ls.wait().expect("it ends").success());
    lines
}

#[tokio::main]
async fn make(address: String, files: usize) {
    let volume = Volume::connect_to(vec![address], "main", VolumeOptions::default()).await;
    let volume = volume.expect("the volume is there");
    let dir = make_directory(&volume, Ino::ROOT, "directory").await;
    let all = (0..TASKS).map(|task| tokio::spawn(make_some(Arc::clone(&volume), dir, task, files)));
    for task in all.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    volume.close().await.expect("it can be closed");
}

async fn make_some(volume: Arc<Volume>, dir: Ino, task: usize, files: usize) {
    for nth in (task..files).step_by(TASKS) {
        make_file(&volume, dir, format!("file{nth:08}")).await;
    }
}
