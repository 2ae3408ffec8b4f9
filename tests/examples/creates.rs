//! How many files a second native clients make, rename and remove in one directory, with so many tasks.
//!
//! A server with all roles, over TCP, and the clients, on this machine; the tasks are dealt out to the clients, and to the
//! directories where there are several. Five rounds, each in new directories; printed are all and the medians. `STRAKE_BIN`
//! names another build of the server, to compare with.
//!
//! ```sh
//! cargo build -p strake
//! cargo run -p strake-tests --example creates -- 16 20000 [--clients 4] [--directories 8] [--meta postgres://USER@HOST/DATABASE]
//! ```

use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use strake_client::Volume;
use strake_client::api::{RenameFlags, VolumeOptions};
use strake_tests::cluster::Servers;
use strake_tests::made::{make_directory, make_file};
use strake_types::{Credentials, Ino};

const ROUNDS: usize = 5;
const USAGE: &str = "usage: creates TASKS FILES [--clients N] [--directories N] [--meta URL]";

/// What is done to each file.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Create,
    Rename,
    Remove,
}

const PHASES: [Phase; 3] = [Phase::Create, Phase::Rename, Phase::Remove];

impl Phase {
    async fn carry_out(self, volume: &Arc<Volume>, dir: Ino, name: String) {
        let (root, new_name) = (Credentials::root(), Bytes::from(format!("{name}-renamed")));
        match self {
            Phase::Create => make_file(volume, dir, name).await,
            Phase::Rename => {
                let (name, flags) = (name.into(), RenameFlags::default());
                let renamed = volume.rename(&root, dir, name, dir, new_name, flags).await;
                renamed.expect("it is there");
            }
            Phase::Remove => drop(volume.unlink(&root, dir, new_name).await.expect("it is there")),
        }
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tasks, files, others @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let number = |text: &String| text.parse::<usize>().expect(USAGE);
    let (tasks, files) = (number(tasks), number(files));
    let (mut clients, mut directories, mut meta) = (1, 1, &others[..0]);
    for pair in others.chunks(2) {
        match pair {
            [option, count] if option == "--clients" => clients = number(count),
            [option, count] if option == "--directories" => directories = number(count),
            [option, _] if option == "--meta" => meta = pair,
            _ => panic!("{USAGE}"),
        }
    }
    let servers = Servers::start_with(meta);
    let mut volumes = Vec::new();
    for _ in 0..clients {
        let addresses = vec![servers.address().to_owned()];
        let volume = Volume::connect_to(addresses, "main", VolumeOptions::default());
        volumes.push(volume.await.expect("the volume is there"));
    }
    let mut rates = PHASES.map(|_| Vec::new());
    for round in 0..ROUNDS {
        let mut dirs = Vec::new();
        for nth in 0..directories {
            dirs.push(make_directory(&volumes[0], Ino::ROOT, format!("round{round}-{nth}")).await);
        }
        for (phase, rates) in PHASES.into_iter().zip(&mut rates) {
            let began = Instant::now();
            let all = (0..tasks).map(|task| {
                let (volume, dir) = (volumes[task % clients].clone(), dirs[task % directories]);
                tokio::spawn(async move {
                    for nth in 0..files / tasks {
                        phase.carry_out(&volume, dir, format!("task{task:03}-file{nth:08}")).await;
                    }
                })
            });
            for task in all.collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
            rates.push((files / tasks * tasks) as f64 / began.elapsed().as_secs_f64());
            println!("{phase:?}: {:.0} files/s", rates[round]);
        }
    }
    for (phase, mut rates) in PHASES.into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!(
            "{phase:?}: median {:.0} files/s, {tasks} tasks of {clients} clients in {directories} directories",
            rates[ROUNDS / 2]
        );
    }
    for volume in volumes {
        volume.close().await.expect("it can be closed");
    }
}
