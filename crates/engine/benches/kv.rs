//! Creates per second of each metadata engine: two gets and four puts in one transaction, as the
//! creation of a file does.
//!
//! `cargo bench -p strake-engine --bench kv -- [--dir DIR] [--seconds N] [--preload N] [ENGINE...]`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_engine::kv::{EngineKind, Kv, Outcome, Transaction, open};

struct Options {
    dir: PathBuf,
    seconds: f64,
    preload: u64,
    engines: Vec<EngineKind>,
}

fn options() -> Options {
    let mut options =
        Options { dir: std::env::temp_dir(), seconds: 3.0, preload: 100_000, engines: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    let value = |next: Option<String>| next.expect("a value after the option");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--dir" => options.dir = value(arguments.next()).into(),
            "--seconds" => options.seconds = value(arguments.next()).parse().expect("seconds"),
            "--preload" => options.preload = value(arguments.next()).parse().expect("a number"),
            engine => options.engines.push(engine.parse().expect("an engine")),
        }
    }
    if options.engines.is_empty() {
        options.engines = EngineKind::ALL.to_vec();
    }
    options
}

fn main() {
    let options = options();
    println!("engine  work            threads      /s  CPU us each  written B each");
    for engine in &options.engines {
        let directory = options.dir.join(format!("strake-kv-bench-{}", std::process::id()));
        let kv = open(*engine, &directory).expect("an engine in a new directory");
        let next = Arc::new(AtomicU64::new(0));
        while next.load(Ordering::Relaxed) < options.preload {
            block_on(create(&*kv, next.fetch_add(1, Ordering::Relaxed)));
        }
        for (work, sync) in [("create", false), ("create + sync", true)] {
            for threads in [1, 16] {
                measure(&kv, &next, work, sync, threads, options.seconds);
            }
        }
        reads(&*kv, next.load(Ordering::Relaxed));
        drop(kv);
        let start = Instant::now();
        drop(open(*engine, &directory).expect("the engine again"));
        println!("{engine:7} close, open and close: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
        std::fs::remove_dir_all(&directory).expect("the directory can be removed");
    }
}

fn measure(
    kv: &Arc<dyn Kv>,
    next: &Arc<AtomicU64>,
    work: &str,
    sync: bool,
    threads: usize,
    seconds: f64,
) {
    let stop = Arc::new(AtomicBool::new(false));
    let (began, start) = (next.load(Ordering::Relaxed), Instant::now());
    let (cpu, written) = (cpu_seconds(), written_bytes());
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (kv, next, stop) = (kv.clone(), next.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    block_on(create(&*kv, next.fetch_add(1, Ordering::Relaxed)));
                    if sync {
                        block_on(async { kv.sync().await.expect("a sync") });
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a worker that does not panic");
    }
    let count = (next.load(Ordering::Relaxed) - began) as f64;
    println!(
        "{:7} {work:15} {threads:7} {:7.0} {:12.1} {:15.0}",
        kv.name(),
        count / start.elapsed().as_secs_f64(),
        (cpu_seconds() - cpu) * 1e6 / count,
        (written_bytes() - written) as f64 / count,
    );
}

fn entry(n: u64) -> Vec<u8> {
    let mut key = b"D\0\0\0\x01\0\0\0\0\0\0\0\x01".to_vec();
    key.extend_from_slice(format!("file-{n:010}").as_bytes());
    key
}

fn inode(n: u64) -> Vec<u8> {
    let mut key = b"I\0\0\0\x01".to_vec();
    key.extend_from_slice(&n.to_be_bytes());
    key
}

fn shard(n: u64) -> Vec<u8> {
    let mut key = b"U\0\0\0\x01\0\0\0\0\0\0\0\x01".to_vec();
    key.push((n % 64) as u8);
    key
}

async fn create(kv: &dyn Kv, n: u64) {
    loop {
        let mut transaction = Transaction::begin(kv).await.expect("a snapshot");
        assert!(transaction.get(&entry(n)).await.expect("a get").is_none());
        transaction.get(&shard(n)).await.expect("a get");
        transaction.put(entry(n), vec![1; 24]);
        transaction.put(inode(n), vec![2; 120]);
        transaction.put(shard(n), vec![n as u8; 48]);
        transaction.put([b"B", &inode(n)[1..]].concat(), vec![4; 16]);
        if transaction.commit(kv).await.expect("a commit") == Outcome::Committed {
            return;
        }
    }
}

fn reads(kv: &dyn Kv, count: u64) {
    const READS: u64 = 100_000;
    let snapshot = block_on(async { kv.snapshot().await.expect("a snapshot") });
    let start = Instant::now();
    for i in 0..READS {
        let n = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (count - 100);
        let value = block_on(async { snapshot.get(&inode(n)).await.expect("a get") });
        assert!(value.is_some());
    }
    let get = start.elapsed().as_secs_f64() * 1e6 / READS as f64;
    let start = Instant::now();
    for _ in 0..READS {
        block_on(async { kv.snapshot().await.expect("a snapshot") });
    }
    let begin = start.elapsed().as_secs_f64() * 1e6 / READS as f64;
    let start = Instant::now();
    let from = std::ops::Bound::Included(&b"I"[..]);
    let to = std::ops::Bound::Excluded(&b"J"[..]);
    let scan = block_on(async { snapshot.scan(from, to, READS as usize).await.expect("a scan") });
    let entry = start.elapsed().as_secs_f64() * 1e6 / scan.len() as f64;
    println!(
        "{:7} get {get:.2} us, snapshot {begin:.2} us, scan {entry:.2} us an entry",
        kv.name()
    );
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is mounted");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a field").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|f| f.parse::<u64>().expect("ticks")).sum();
    ticks as f64 / 100.0
}

fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("proc is mounted");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.expect("the line").parse().expect("a number")
}
