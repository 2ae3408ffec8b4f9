//! How many files a second native clients make in one directory, with so many tasks.
//!
//! A server with all roles, over TCP, and the clients, on this machine; the tasks are dealt out to the clients. Five rounds, each
//! in a new directory; printed are all and the median. `STRAKE_BIN` names another build of the server, to compare with.
//!
//! ```sh
//! cargo build -p strake
//! cargo run -p strake-tests --example creates -- 16 20000 [--clients 4] [--meta postgres://USER@HOST/DATABASE]
//! ```

use std::time::Instant;
use strake_client::Volume;
use strake_client::api::VolumeOptions;
use strake_tests::cluster::Servers;
use strake_tests::made::{make_directory, make_file};
use strake_types::Ino;

const ROUNDS: usize = 5;
const USAGE: &str = "usage: creates TASKS FILES [--clients N] [--meta URL]";

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tasks, files, others @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let number = |text: &String| text.parse::<usize>().expect(USAGE);
    let (tasks, files) = (number(tasks), number(files));
    let (clients, meta) = match others {
        [option, clients, meta @ ..] if option == "--clients" => (number(clients), meta),
        meta => (1, meta),
    };
    let servers = Servers::start_with(meta);
    let mut volumes = Vec::new();
    for _ in 0..clients {
        let addresses = vec![servers.address().to_owned()];
        let volume = Volume::connect_to(addresses, "main", VolumeOptions::default());
        volumes.push(volume.await.expect("the volume is there"));
    }
    let mut rates = Vec::new();
    for round in 0..ROUNDS {
        let dir = make_directory(&volumes[0], Ino::ROOT, format!("round{round}")).await;
        let began = Instant::now();
        let all = (0..tasks).map(|task| {
            let volume = volumes[task % clients].clone();
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
    println!("median {:.0} files/s, {tasks} tasks of {clients} clients", rates[ROUNDS / 2]);
    for volume in volumes {
        volume.close().await.expect("it can be closed");
    }
}
