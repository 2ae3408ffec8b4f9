//! A file system that does nothing, by the same dispatch as the real one: what the kernel and the
//! door cost by themselves on this machine. The yardstick for the speed of the mount.
//!
//! `cargo run --release -p strake-fuse --example nothing` (as root) measures by itself; with a
//! directory as its argument it stays mounted there, until it is unmounted, for other tools: a file
//! `big` of 1 GiB is there, and any other name can be made.

use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strake_fuse::abi;
use strake_fuse::dispatch::Door;
use strake_fuse::errno::Errno;
use strake_fuse::interrupt::Interrupt;
use strake_fuse::mount::mount_door;
use strake_fuse::reply::{Opened, Reply, Shown};
use strake_fuse::request::{Op, Request};
use strake_fuse::{MountOptions, Unmount};
use strake_types::{Attr, FileKind, Ino, Timestamp};

const ROOT: u64 = 1;
const LENGTH: u64 = 1 << 30;
const RUN: Duration = Duration::from_secs(2);
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

struct Nothing {
    next: AtomicU64,
}

fn shown(ino: u64, length: u64) -> Shown {
    let time = Timestamp { seconds: 1_700_000_000, nanos: 0 };
    let kind = if ino == ROOT { FileKind::Directory } else { FileKind::File };
    let attr = Attr {
        ino: Ino(ino),
        kind,
        mode: 0o777,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        length,
        occupied: length,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        version: 1,
        inline: false,
        no_xattrs: true,
        layout: None,
    };
    let (valid, real) = (Duration::from_secs(60), attr.ino);
    Shown { attr, valid, name_valid: valid, name: None, real }
}

/// As the real door does: writers around the page cache, others through it.
fn opened(flags: u32) -> Opened {
    let direct = flags & libc::O_ACCMODE as u32 == libc::O_WRONLY as u32
        || flags & libc::O_DIRECT as u32 != 0;
    let around = abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES;
    Opened { fh: 0, flags: if direct { around } else { 0 } }
}

impl Door for Nothing {
    async fn handle(self: Arc<Self>, request: Request, _: Interrupt) -> Result<Reply, Errno> {
        Ok(match request.op {
            Op::Lookup { name } if name.starts_with(b"big") => Reply::Entry(shown(2, LENGTH)),
            Op::Lookup { .. } => Reply::NoEntry(Duration::ZERO),
            Op::Getattr { .. } => {
                let length = if request.node == 2 { LENGTH } else { 0 };
                Reply::Attr(shown(request.node, length))
            }
            Op::Setattr(_) => Reply::Attr(shown(request.node, 0)),
            Op::Create { flags, .. } => {
                let ino = self.next.fetch_add(1, Ordering::Relaxed);
                Reply::Created(shown(ino, 0), opened(flags))
            }
            Op::Open { flags, .. } => Reply::Open(opened(flags)),
            Op::Read { size, .. } => Reply::Data(vec![Bytes::from_static(&ZEROS[..size as usize])]),
            Op::Write { data, .. } => Reply::Written(data.len() as u32),
            Op::Flush { .. } | Op::Release { .. } | Op::Fsync { .. } => Reply::Empty,
            _ => return Err(Errno::ENOSYS),
        })
    }

    fn abandon(&self, _: Reply) {}
}

/// Repeats `work` for a while on `threads` threads; times per second.
fn rate(threads: usize, work: impl Fn(u64) + Sync) -> f64 {
    let (started, count) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while started.elapsed() < RUN {
                    work(count.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    count.into_inner() as f64 / started.elapsed().as_secs_f64()
}

fn gb_per_second(mut once: impl FnMut() -> usize) -> f64 {
    let (started, mut bytes) = (Instant::now(), 0);
    while started.elapsed() < RUN {
        bytes += once();
    }
    bytes as f64 / started.elapsed().as_secs_f64() / 1e9
}

fn measure(root: &Path) -> std::io::Result<()> {
    let small = vec![1u8; 4096];
    let create = |n: u64| {
        let made =
            File::create(root.join(format!("small-{n}"))).and_then(|mut f| f.write_all(&small));
        made.expect("the file system that does nothing creates files");
    };
    println!("create + write 4 KiB + close  {:>9.0} /s", rate(1, create));
    for threads in [1, 2, 4] {
        let lookup = |_| assert!(!root.join("missing").exists());
        println!("lookup, {threads} threads             {:>9.0} /s", rate(threads, lookup));
    }
    let mut block = vec![1u8; 1 << 20];
    let big = root.join("big");
    for (how, read) in [("around the page cache", false), ("through the page cache", true)] {
        let mut file = OpenOptions::new().write(true).read(read).open(&big)?;
        let mut left = 0;
        let speed = gb_per_second(|| {
            if left == 0 {
                std::io::Seek::rewind(&mut file).expect("a file can be rewound");
                left = 512;
            }
            left -= 1;
            file.write_all(&block).expect("the file system that does nothing writes");
            block.len()
        });
        println!("write 1 MiB {how:<22} {speed:>6.2} GB/s");
    }
    for (how, flags) in [("around the page cache", libc::O_DIRECT), ("through the page cache", 0)] {
        let mut file = None;
        let speed = gb_per_second(|| {
            let mut reader = file.take().unwrap_or_else(|| open_for_reading(&big, flags));
            let got = reader.read(&mut block).expect("the file system that does nothing reads");
            if got > 0 {
                file = Some(reader);
            }
            got
        });
        println!("read 1 MiB {how:<23} {speed:>6.2} GB/s");
    }
    Ok(())
}

/// Opening drops the pages cached by the reader before.
fn open_for_reading(path: &Path, flags: i32) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.expect("the large file is there")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let door = Arc::new(Nothing { next: AtomicU64::new(1000) });
    let options = MountOptions::default();
    let mount =
        |path: &Path| runtime.block_on(mount_door(door, path, &options, runtime.handle().clone()));
    if let Some(path) = std::env::args_os().nth(1) {
        return Ok(runtime.block_on(mount(Path::new(&path))?.wait())?);
    }
    let dir = tempfile::tempdir()?;
    let mount = mount(dir.path())?;
    let measured = measure(dir.path());
    runtime.block_on(mount.unmount(Unmount::Lazy))?;
    Ok(measured?)
}
