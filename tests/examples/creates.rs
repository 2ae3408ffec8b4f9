//! How many files a second a native client makes in one directory, with so many tasks.
//!
//! A server with all roles, over TCP, and the client, on this machine. Five rounds, each in a new directory; printed are all
//! and the median. `STRAKE_BIN` names another build of the server, to compare with.
//!
//! ```sh
//! cargo build -p strake
//! cargo run -p strake-tests --example creates -- 16 20000 [--meta postgres://USER@HOST/DATABASE]
//! ```

use std::time::Instant;
use strake_client::Volume;
use strake_client::api::VolumeOptions;
use strake_tests::cluster::Servers;
use strake_tests::made::{make_directory, make_file};
use strake_types::Ino;

const ROUNDS: usize = 5;
const USAGE: &str = "usage: creates TASKS FILES [--meta URL]";

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tasks, files, meta @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let (tasks, files): (usize, usize) = (tasks.parse().expect(USAGE), files.parse().expect(USAGE));
    let servers = Servers::start_with(meta);
    let addresses = vec![servers.address().to_owned()];
    let volume = Volume::connect_to(addresses, "main", VolumeOptions::default());
    let volume = volume.await.expect("the volume is there");
    let mut rates = Vec::new();
    for round in 0..ROUNDS {
        let dir = make_directory(&volume, Ino::ROOT, format!("round{round}")).await;
        let began = Instant::now();
        let all = (0..tasks).map(|task| {
            let volume = volume.clone();
            tokio::spawn(async move {
                for nth in 0..files / tasks {
                    make_file(&volume, dir, format!("task{task:03}-file{nth:08}")).await;
                }
            })
        });
        for task in all.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        rates.push((files / tasks * tasks) as f64 / began.elapsed().as_secs_f64());
        println!("{:.0} files/s", rates[round]);
    }
    rates.sort_by(f64::total_cmp);
    println!("median {:.0} files/s, {tasks} tasks", rates[ROUNDS / 2]);
    volume.close().await.expect("it can be closed");
}
