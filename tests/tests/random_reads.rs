//! Files that are read here and there: the kernel soon has them, of what it has nothing is old, and nobody hangs when
//! the mount is lost meanwhile.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use strake_tests::cluster::{
    Servers, command_lines, counted, eventually, free_port, is_mounted, run, signal,
};

/// Only something that never comes reaches it.
const WAIT: Duration = Duration::from_secs(60);
/// What [`strake_fuse::prefetch::NAME`] says.
const PREFETCH: &str = "strake-prefetch";

/// Bytes that the kernel of a mount was given so.
fn prefetched(metrics: &str) -> u64 {
    counted(metrics, |line| line.starts_with("strake_fuse_prefetched_bytes_total"))
}

/// Processes that fetch for the mount at `path`.
fn fetching(path: &Path) -> usize {
    let line = [PREFETCH.as_bytes(), path.as_os_str().as_encoded_bytes()].join(&0);
    command_lines().filter(|(_, found)| found.starts_with(&line)).count()
}

/// Pages of a file in which each word says its page and the round in which it was written.
mod pages {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    pub const BYTES: usize = 4096;

    pub fn write(file: &File, page: u64, round: u64) {
        let word = (page << 32 | round).to_le_bytes();
        file.write_all_at(&word.repeat(BYTES / word.len()), page * BYTES as u64).unwrap();
    }

    /// The round of a page; none, if a write to it is under way.
    pub fn read(file: &File, page: u64) -> io::Result<Option<u64>> {
        let mut bytes = [0; BYTES];
        file.read_exact_at(&mut bytes, page * BYTES as u64)?;
        let words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let words: Vec<u64> = words.collect();
        assert!(words.iter().all(|word| word >> 32 == page), "another page's bytes in {page}");
        let same = words.iter().all(|word| *word == words[0]);
        Ok(same.then_some(words[0] & 0xffff_ffff))
    }

    /// For reads here and there, with nothing of it in the kernel.
    pub fn forget(file: &File) {
        use rustix::fs::{Advice, fadvise};
        fadvise(file, 0, None, Advice::Random).unwrap();
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
    }
}

fn write_all(path: &Path, pages: u64) {
    let file = File::create(path).unwrap();
    (0..pages).for_each(|page| pages::write(&file, page, 1));
}

/// Pages of a file, each far from the one before.
fn far_from_each_other(pages: u64) -> impl Iterator<Item = u64> + Clone {
    (0..pages).map(move |nth| nth * 769 % pages)
}

#[test]
fn a_file_that_is_read_here_and_there_the_kernel_soon_has() {
    const PAGES: u64 = 2048;
    let metrics = format!("127.0.0.1:{}", free_port());
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", &format!("metrics={metrics}")));
    let reads = || counted(&metrics, |line| line.starts_with("strake_fuse_ops_total{op=\"read\"}"));
    let (mut tries, mut file) = (0, None);
    // What it costs to have a part is learned first, and on a busy machine it costs more.
    eventually(WAIT, "the kernel asks for less than half of the pages", || {
        tries += 1;
        let name = format!("file{tries}");
        write_all(&a.at(&name), PAGES);
        let before = reads();
        let file = file.insert(File::open(b.at(&name)).unwrap());
        pages::forget(file);
        for page in far_from_each_other(PAGES) {
            assert_eq!(pages::read(file, page).unwrap(), Some(1));
        }
        reads() - before < PAGES / 2
    });
    assert!(prefetched(&metrics) > 0);
    assert_eq!((fetching(b.path()), fetching(a.path())), (1, 0));
    // Nobody has it open any more, and so it keeps no mount busy; but for a process that another test starts at this moment.
    drop(file);
    eventually(WAIT, "the mount is idle", || {
        run(["umount", b.path().to_str().unwrap()]).status.success()
    });
    eventually(WAIT, "the process that fetched ends", || fetching(b.path()) == 0);
}

#[test]
fn what_the_kernel_has_of_a_file_that_is_read_here_and_there_is_never_old() {
    const PAGES: u64 = 2048;
    const ROUNDS: u64 = 120;
    let metrics = format!("127.0.0.1:{}", free_port());
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", &format!("metrics={metrics}")));
    write_all(&a.at("file"), PAGES);
    let written: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(1)).collect();
    let ended = AtomicBool::new(false);
    let fetched = || prefetched(&metrics);
    let read = || {
        let mut page = 1;
        while !ended.load(Ordering::SeqCst) {
            // Who opens it while others write goes around the kernel's pages as long as anybody here has it open.
            let file = File::open(b.at("file")).unwrap();
            pages::forget(&file);
            for _ in 0..500 {
                page = (page * 769 + 13) % PAGES;
                let least = written[page as usize].load(Ordering::SeqCst);
                let found = pages::read(&file, page).unwrap();
                let is_old = found.is_some_and(|round| round < least);
                assert!(!is_old, "page {page}: {found:?} after {least}");
            }
            drop(file);
            // The kernel tells the mount a little later.
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(read);
        let write = |round: u64| {
            // By this mount and by another one, around the page cache and through it.
            let mount = if round.is_multiple_of(2) { &a } else { &b };
            let mut how = fs::OpenOptions::new();
            let file =
                how.write(true).read(round.is_multiple_of(3)).open(mount.at("file")).unwrap();
            for page in (0..PAGES).filter(|page| (page + round).is_multiple_of(29)) {
                pages::write(&file, page, round);
                written[page as usize].store(round, Ordering::SeqCst);
            }
        };
        (2..ROUNDS).take_while(|_| !reader.is_finished()).for_each(|round| {
            write(round);
            std::thread::sleep(Duration::from_millis(round % 8));
            // Now and then the reader is to have pages again: once the server has heard that the writer closed the file.
            let before = fetched();
            for _ in (0..250).take_while(|_| round.is_multiple_of(8) && fetched() == before) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        ended.store(true, Ordering::SeqCst);
    });
    assert!(fetched() > 0, "nothing was tested");
}

/// A mount that waits for pages which only it can fetch would never end.
#[test]
fn a_mount_that_is_killed_while_parts_are_fetched_for_its_kernel_hangs_nobody() {
    const PAGES: u64 = 2048;
    const READERS: u64 = 4;
    let servers = Servers::start();
    write_all(&servers.mount("writer", "").at("file"), PAGES);
    for round in 0..6 {
        let mut mount = servers.mount(&format!("reader{round}"), "");
        let (path, pid) = (mount.path().to_path_buf(), mount.process().pid());
        let (tell, ended) = channel();
        for nth in 0..READERS {
            let (file, tell) = (File::open(mount.at("file")).unwrap(), tell.clone());
            let begin = (PAGES / READERS * nth) as usize;
            let some = far_from_each_other(PAGES).cycle().skip(begin).take(PAGES as usize);
            let read = move || loop {
                pages::forget(&file);
                if some.clone().any(|page| pages::read(&file, page).is_err()) {
                    // Nobody listens any more where others hang.
                    let _failed = tell.send(());
                    return;
                }
            };
            std::thread::spawn(read);
        }
        eventually(WAIT, "a process fetches parts", || fetching(&path) == 1);
        std::thread::sleep(Duration::from_millis(20 + round * 17));
        signal(pid, "KILL");
        for _ in 0..READERS {
            ended.recv_timeout(WAIT).expect("who reads is told that the mount is lost");
        }
        mount.process().kill();
        eventually(WAIT, "the process that fetched ends", || fetching(&path) == 0);
        eventually(WAIT, "the lost mount is taken away", || !is_mounted(&path));
    }
}
