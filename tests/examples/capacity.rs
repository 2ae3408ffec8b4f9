//! What files take: bytes in the metadata store and in the targets' indexes, memory of the processes, messages of clients
//! that do nothing. The figures of `strake plan` are from this.
//!
//! A witness (manager and metadata), a storage server of one target and two mounts, all processes of this machine. So many
//! files of each kind are made at one mount and looked at by the other.
//!
//! ```sh
//! cargo build -p strake
//! cargo run -p strake-tests --example capacity -- 100000 [--meta postgres://USER@HOST/DATABASE]
//! ```

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use strake_tests::cluster::{Mount, Process, free_port, http_get, mount_of, succeed};

/// Files in a directory.
const PER_DIRECTORY: usize = 1_000;
const THREADS: usize = 4;
/// How long clients are watched that do nothing.
const IDLE: Duration = Duration::from_secs(20);
/// After this journals and caches have come to rest.
const REST: Duration = Duration::from_secs(8);
const USAGE: &str = "usage: capacity FILES [--meta URL]";

struct World {
    witness: Process,
    storage: Process,
    mounts: Vec<Mount>,
    metrics: String,
    directory: tempfile::TempDir,
    export: Vec<String>,
}

impl World {
    fn start(meta: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let port = || format!("127.0.0.1:{}", free_port());
        let (address, listen, metrics) = (port(), port(), port());
        let data = |name: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(&path).expect("a directory can be made");
            path.display().to_string()
        };
        let words = |words: &[&str], more: &[String]| -> Vec<String> {
            words.iter().map(|&word| word.to_owned()).chain(more.iter().cloned()).collect()
        };
        let witness = ["server", "--listen", &address, "--roles", "manager,meta", "--data"];
        let witness = words(&witness, &[data("witness"), "--metrics".into(), metrics.clone()]);
        let witness = [witness, meta.to_vec()].concat();
        let mut witness = Process::start(&witness, &directory.path().join("witness.log"));
        witness.wait_until_it_serves("the witness");
        let storage = ["server", "--listen", &listen, "--roles", "storage", "--join", &address];
        let storage = words(&storage, &["--data".into(), data("storage")]);
        let storage = Process::start(&storage, &directory.path().join("storage.log"));
        let mounted = |name: &str| mount_of(&address, &directory.path().join(name), "");
        let mounts = vec![mounted("a"), mounted("b")];
        let from = meta.iter().map(|word| word.replace("--meta", "--from"));
        let export = [words(&["meta", "export", "--data"], &[data("witness")]), from.collect()];
        Self { witness, storage, mounts, metrics, export: export.concat(), directory }
    }

    /// One line of how it is.
    fn show(&mut self, what: &str) {
        std::thread::sleep(REST);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let under = ["witness/meta", "storage/target"];
        let under = under.map(|name| mib(occupied(&self.directory.path().join(name))));
        let [a, b] = &mut self.mounts[..] else { return };
        let mounts = [a, b].map(|mount| mib(mount.process().resident_bytes()));
        println!(
            "{what:40} memory MiB: witness {:.1} storage {:.1} mounts {:.1} {:.1}; disk MiB: meta {:.2} target {:.2}",
            mib(self.witness.resident_bytes()),
            mib(self.storage.resident_bytes()),
            mounts[0],
            mounts[1],
            under[0],
            under[1],
        );
    }

    fn requests(&self) -> f64 {
        let page = http_get(&self.metrics, "/metrics");
        let counts = page.lines().filter(|line| line.starts_with("strake_meta_ops_total"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn make(&mut self, kind: &str, files: usize, write: impl Fn(&mut File) + Sync) {
        let root = self.mounts[0].at(kind);
        fs::create_dir(&root).expect("a fresh name");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (root, write) = (&root, &write);
                scope.spawn(move || {
                    for dir in (thread..files.div_ceil(PER_DIRECTORY)).step_by(THREADS) {
                        let dir = root.join(format!("directory{dir:06}"));
                        fs::create_dir(&dir).expect("a fresh name");
                        for nth in 0..PER_DIRECTORY.min(files) {
                            let name = dir.join(format!("file-of-a-name-{nth:06}"));
                            write(&mut File::create(name).expect("a fresh name"));
                        }
                    }
                });
            }
        });
        self.show(&format!("{files} {kind}"));
        let looked = look(&self.mounts[1].at(kind));
        self.show(&format!("  {looked} looked at by the other mount"));
    }

    /// Bytes of all records.
    fn exported(&mut self, nth: usize) -> u64 {
        let file = self.directory.path().join(format!("export{nth}"));
        let shown = file.display().to_string();
        succeed(self.export.iter().map(String::as_str).chain([shown.as_str()]));
        fs::metadata(file).expect("it is there").len()
    }
}

fn look(directory: &Path) -> usize {
    let entries =
        fs::read_dir(directory).expect("it can be listed").map(|entry| entry.expect("one"));
    entries
        .map(|entry| match entry.metadata().expect("it is there").is_dir() {
            true => look(&entry.path()),
            false => 1,
        })
        .sum()
}

fn occupied(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let below = match metadata.is_dir() {
        true => {
            fs::read_dir(path).into_iter().flatten().flatten().map(|e| occupied(&e.path())).sum()
        }
        false => 0,
    };
    below + metadata.blocks() * 512
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [files, meta @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let files: usize = files.parse().expect(USAGE);
    let mut world = World::start(meta);
    world.show("nothing");
    let before = world.requests();
    std::thread::sleep(IDLE);
    println!("idle: {:.1} requests a second", (world.requests() - before) / IDLE.as_secs_f64());
    world.make("empty", files, |_| {});
    world.make("small", files, |file| file.write_all(&[7; 1000]).expect("there is room"));
    world.make("chunks", files / 5, |file| file.write_all(&[7; 65_536]).expect("there is room"));
    let large = File::create(world.mounts[0].at("large")).expect("a fresh name");
    for chunk in 0..files as u64 / 5 {
        large.write_all_at(&[7; 4096], chunk << 20).expect("there is room");
    }
    large.sync_all().expect("there is room");
    world.show(&format!("{} chunks of 4 KiB of one file", files / 5));
    world.mounts.clear();
    world.witness.stop();
    println!("all records: {} bytes", world.exported(1));
}
