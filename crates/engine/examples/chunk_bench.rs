//! Measures the chunk engine beside plain files on the same disk, in turn, and prints medians:
//!
//! ```text
//! cargo run --release -p strake-engine --example chunk_bench -- DIRECTORY [MIB] [ROUNDS]
//! ```
//!
//! The directory must not exist; it is removed at the end. Reads from disk need the right to drop the
//! kernel's caches (root), else they show the cache.

use bytes::Bytes;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use strake_base::disk::{Disk, RealDisk};
use strake_engine::chunk::{ChunkOptions, ChunkStore, Identity};
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const MIB: u64 = 1 << 20;
const RANDOM_OPERATIONS: u64 = 100_000;
const SMALL_CHUNKS: u64 = 100_000;
const SYNC_OPERATIONS: u64 = 200;

/// One thing measured on both sides: name, unit, plain values, ours.
#[derive(Default)]
struct Row {
    name: &'static str,
    unit: &'static str,
    plain: Vec<f64>,
    ours: Vec<f64>,
}

struct Bench {
    directory: PathBuf,
    mib: u64,
    data: Bytes,
    rows: Vec<Row>,
    random: u64,
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("give a directory that does not exist")?);
    let mib = arguments.next().map_or(Ok(1024), |a| a.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |a| a.parse())?;
    std::fs::create_dir(&directory)?;
    let data = (0..MIB as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut bench = Bench { directory, mib, data, rows: Vec::new(), random: 1 };
    let mut amplification = 0.0f64;
    for round in 0..rounds {
        // Who begins changes with the round.
        if round % 2 == 0 {
            bench.plain()?;
            amplification = amplification.max(bench.ours()?);
        } else {
            amplification = amplification.max(bench.ours()?);
            bench.plain()?;
        }
    }
    let small = bench.small_chunks();
    std::fs::remove_dir_all(&bench.directory)?;
    small?;
    for row in &mut bench.rows {
        let (plain, ours) = (median(&mut row.plain), median(&mut row.ours));
        let Row { name, unit, .. } = row;
        println!(
            "{name:<34} plain {plain:>10.1}  chunks {ours:>10.1} {unit:<6} {:>5.0} %",
            100.0 * ours / plain
        );
    }
    println!("disk space after random overwrites: {amplification:.2} x the data");
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn chunk(index: u64) -> ChunkId {
    ChunkId { volume: VolumeId(1), ino: Ino(2), index: ChunkIndex(index) }
}

fn drop_caches() {
    let _may_lack_the_right = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

impl Bench {
    fn note(&mut self, name: &'static str, unit: &'static str, ours: bool, value: f64) {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name, unit, ..Row::default() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        if ours { &mut row.ours } else { &mut row.plain }.push(value);
    }

    /// MiB per second, or operations per second, of `amount` of them.
    fn time(
        &mut self,
        name: &'static str,
        unit: &'static str,
        ours: bool,
        amount: u64,
        work: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        let start = Instant::now();
        work(self)?;
        let rate = amount as f64 / start.elapsed().as_secs_f64();
        self.note(name, unit, ours, rate);
        Ok(())
    }

    fn block(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % (self.mib * 256)
    }

    fn plain(&mut self) -> Outcome {
        let path = self.directory.join("plain");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let mib = self.mib;
        self.time("write 1 MiB pieces and sync", "MiB/s", false, mib, |bench| {
            for index in 0..mib {
                file.write_all_at(&bench.data, index * MIB)?;
            }
            Ok(file.sync_data()?)
        })?;
        let mut buffer = vec![0; MIB as usize];
        let read = |file: &File, buffer: &mut [u8]| {
            (0..mib).try_for_each(|index| file.read_exact_at(buffer, index * MIB))
        };
        self.time("read, cached", "MiB/s", false, mib, |_| Ok(read(&file, &mut buffer)?))?;
        drop_caches();
        self.time("read from disk", "MiB/s", false, mib, |_| Ok(read(&file, &mut buffer)?))?;
        self.time("read 4 KiB at random, cached", "/s", false, RANDOM_OPERATIONS, |bench| {
            for _ in 0..RANDOM_OPERATIONS {
                file.read_exact_at(&mut buffer[..4096], bench.block() * 4096)?;
            }
            Ok(())
        })?;
        self.time("overwrite 4 KiB at random", "/s", false, RANDOM_OPERATIONS, |bench| {
            for _ in 0..RANDOM_OPERATIONS {
                let offset = bench.block() * 4096;
                file.write_all_at(&bench.data[..4096], offset)?;
            }
            Ok(())
        })?;
        self.time("  the sync after it", "/s", false, 1, |_| Ok(file.sync_data()?))?;
        self.time("overwrite 4 KiB and sync", "/s", false, SYNC_OPERATIONS, |bench| {
            for _ in 0..SYNC_OPERATIONS {
                let offset = bench.block() * 4096;
                file.write_all_at(&bench.data[..4096], offset)?;
                file.sync_data()?;
            }
            Ok(())
        })?;
        Ok(std::fs::remove_file(&path)?)
    }

    /// Returns the space occupied in the end, as a multiple of the data.
    fn ours(&mut self) -> Outcome<f64> {
        let path = self.directory.join("target");
        std::fs::create_dir(&path)?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&path)?);
        let options = ChunkOptions::default();
        let identity = Identity { cluster: String::new(), uuid: "ab".repeat(16), target: 1 };
        ChunkStore::format(&disk, &identity, &options)?;
        let store = ChunkStore::open(disk.clone(), options.clone())?;
        let mib = self.mib;
        self.time("write 1 MiB pieces and sync", "MiB/s", true, mib, |bench| {
            for index in 0..mib {
                let sum = crc_fast::crc32_iscsi(&bench.data);
                store.write(chunk(index), 0, &bench.data, sum)?;
            }
            Ok(store.sync()?)
        })?;
        let read = |store: &ChunkStore| {
            (0..mib).try_for_each(|index| store.read(chunk(index), 0, MIB).map(drop))
        };
        self.time("read, cached", "MiB/s", true, mib, |_| Ok(read(&store)?))?;
        drop_caches();
        self.time("read from disk", "MiB/s", true, mib, |_| Ok(read(&store)?))?;
        self.time("read 4 KiB at random, cached", "/s", true, RANDOM_OPERATIONS, |bench| {
            for _ in 0..RANDOM_OPERATIONS {
                let block = bench.block();
                store.read(chunk(block / 256), block % 256 * 4096, 4096)?;
            }
            Ok(())
        })?;
        let piece = self.data.slice(..4096);
        let sum = crc_fast::crc32_iscsi(&piece);
        let write = |store: &ChunkStore, bench: &mut Self| {
            let block = bench.block();
            store.write(chunk(block / 256), block % 256 * 4096, &piece, sum)
        };
        self.time("overwrite 4 KiB at random", "/s", true, RANDOM_OPERATIONS, |bench| {
            for _ in 0..RANDOM_OPERATIONS {
                write(&store, bench)?;
            }
            Ok(())
        })?;
        self.time("  the sync after it", "/s", true, 1, |_| Ok(store.sync()?))?;
        self.time("overwrite 4 KiB and sync", "/s", true, SYNC_OPERATIONS, |bench| {
            for _ in 0..SYNC_OPERATIONS {
                write(&store, bench)?;
                store.sync()?;
            }
            Ok(())
        })?;
        let occupied = occupied_bytes(&path)? as f64 / (mib * MIB) as f64;
        drop(store);
        std::fs::remove_dir_all(&path)?;
        Ok(occupied)
    }

    /// Many chunks of 16 KiB: what each costs, in time, in the map, and when the target is opened.
    fn small_chunks(&mut self) -> Outcome {
        let path = self.directory.join("small");
        std::fs::create_dir(&path)?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&path)?);
        let options = ChunkOptions::default();
        let identity = Identity { cluster: String::new(), uuid: "ab".repeat(16), target: 1 };
        ChunkStore::format(&disk, &identity, &options)?;
        let store = ChunkStore::open(disk.clone(), options.clone())?;
        let (piece, memory) = (self.data.slice(..16 << 10), resident_bytes()?);
        let sum = crc_fast::crc32_iscsi(&piece);
        let start = Instant::now();
        for ino in 0..SMALL_CHUNKS {
            store.write(ChunkId { ino: Ino(ino), ..chunk(0) }, 0, &piece, sum)?;
        }
        let written = start.elapsed();
        store.sync()?;
        println!(
            "{SMALL_CHUNKS} chunks of 16 KiB: {:.0}/s written, synced after {:.2} s; map {:.0} bytes each, memory {:.0} bytes each",
            SMALL_CHUNKS as f64 / written.as_secs_f64(),
            start.elapsed().as_secs_f64(),
            std::fs::metadata(path.join("map.redb"))?.len() as f64 / SMALL_CHUNKS as f64,
            resident_bytes()?.saturating_sub(memory) as f64 / SMALL_CHUNKS as f64,
        );
        drop(store);
        let start = Instant::now();
        let store = ChunkStore::open(disk, options)?;
        println!("opened in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        for ino in 0..SMALL_CHUNKS {
            store.delete_range(VolumeId(1), Ino(ino), ChunkIndex(0)..=ChunkIndex(u64::MAX))?;
        }
        let rate = SMALL_CHUNKS as f64 / start.elapsed().as_secs_f64();
        println!("{rate:.0}/s deleted");
        Ok(())
    }
}

/// Memory of this process.
fn resident_bytes() -> Outcome<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).ok_or("no second field in statm")?;
    Ok(pages.parse::<u64>()? * 4096)
}

fn occupied_bytes(directory: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}
