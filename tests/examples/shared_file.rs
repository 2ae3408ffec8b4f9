//! What it costs that several mounts write disjoint parts of one file, beside files of their own.
//!
//! Threads, by turns on the mounts that are named, each with a handle of its own: all write their part of one file,
//! then each a file of its own, and so on; every run ends with the last `fsync`. Printed are the medians in MiB/s and
//! their ratio, for files of each `consistency`.
//!
//! ```sh
//! strake testbed up --clients 2 --link 100mbit --data ./testbed
//! cargo run --release -p strake-tests --example shared_file -- 2 12 1M testbed/mnt/c1 testbed/mnt/c2
//! ```

use rustix::fs::{XattrFlags, setxattr};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;
use strake_types::size;

const ROUNDS: usize = 5;
const USAGE: &str = "usage: shared_file [--read] THREADS_PER_MOUNT MIB_PER_THREAD BLOCK MOUNT...";

struct Work {
    mounts: Vec<PathBuf>,
    threads: usize,
    bytes: u64,
    block: u64,
    /// The handles are open for reading, too: those opened before others have the file open use the page cache.
    reads: bool,
}

impl Work {
    /// MiB/s of one run in a directory.
    fn run(&self, directory: &str, shared: bool) -> f64 {
        let barrier = Barrier::new(self.threads + 1);
        let begun = std::thread::scope(|scope| {
            for nth in 0..self.threads {
                let (name, from) = match shared {
                    true => ("one".to_owned(), nth as u64 * self.bytes),
                    false => (format!("own{nth}"), 0),
                };
                let path = self.mounts[nth % self.mounts.len()].join(directory).join(name);
                let barrier = &barrier;
                scope.spawn(move || self.write(&path, from, barrier));
            }
            barrier.wait();
            Instant::now()
        });
        let seconds = begun.elapsed().as_secs_f64();
        for entry in fs::read_dir(self.mounts[0].join(directory)).expect("it can be listed") {
            fs::remove_file(entry.expect("an entry").path()).expect("it can be removed");
        }
        (self.threads as u64 * self.bytes) as f64 / seconds / f64::from(1 << 20)
    }

    fn write(&self, path: &Path, from: u64, barrier: &Barrier) {
        let file =
            File::options().read(self.reads).write(true).create(true).truncate(false).open(path);
        let file = file.expect("it can be made");
        let block = vec![7; self.block as usize];
        barrier.wait();
        for at in (0..self.bytes).step_by(block.len()) {
            file.write_all_at(&block, from + at).expect("it can be written");
        }
        file.sync_all().expect("it is written");
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let reads = arguments.first().is_some_and(|first| first == "--read");
    arguments.drain(..usize::from(reads));
    let [threads, mib, block, mounts @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let mounts: Vec<PathBuf> = mounts.iter().map(PathBuf::from).collect();
    let each: usize = threads.parse().expect(USAGE);
    let mib: u64 = mib.parse().expect(USAGE);
    let block = size::parse(block).expect(USAGE);
    let work = Work { threads: each * mounts.len(), mounts, bytes: mib << 20, block, reads };
    for mode in ["strict", "close-to-open", "parallel"] {
        let directory = work.mounts.first().expect(USAGE).join(mode);
        fs::create_dir(&directory).expect("a new directory");
        // As strake layout set does, which would have to be in the network of the testbed.
        let (name, flags) = ("user.strake.layout.consistency", XattrFlags::empty());
        setxattr(&directory, name, mode.as_bytes(), flags).expect("the mount is one of Strake's");
        let (mut one, mut own) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            own.push(work.run(mode, false));
            one.push(work.run(mode, true));
        }
        let (one, own) = (median(one), median(own));
        println!("{mode:14} own files {own:7.1} MiB/s, one file {one:7.1} MiB/s, {:.2}", one / own);
        fs::remove_dir(&directory).expect("it is empty");
    }
}
