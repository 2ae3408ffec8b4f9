//! What the kernel keeps of files: it stays where only its own mount writes, and goes with the lease.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use strake_tests::cluster::{
    Mount, Servers, counted, eventually, free_port, read_write, signal, succeed,
};

/// Only something that never comes reaches it.
const WAIT: Duration = Duration::from_secs(60);
const PAGE: usize = 4096;

/// A mount, with how often its kernel has asked it for something.
fn watched(servers: &Servers) -> (Mount, impl Fn(&str) -> u64 + use<>) {
    let metrics = format!("127.0.0.1:{}", free_port());
    let mount = servers.mount("watched", &format!("metrics={metrics}"));
    let asked = move |op: &str| {
        let begin = format!("strake_fuse_ops_total{{op=\"{op}\"}}");
        counted(&metrics, |line| line.starts_with(&begin))
    };
    (mount, asked)
}

fn page_of(file: &File, nth: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    file.read_exact_at(&mut bytes, nth * PAGE as u64).unwrap();
    bytes
}

#[test]
fn what_a_mount_writes_leaves_its_kernel_the_other_pages() {
    const PAGES: u64 = 512;
    let servers = Servers::start();
    let (mount, asked) = watched(&servers);
    let file = read_write(&mount.at("file"));
    file.write_all_at(&[1; PAGE * PAGES as usize], 0).unwrap();
    file.sync_all().unwrap();
    (0..PAGES).for_each(|nth| assert_eq!(page_of(&file, nth)[0], 1));
    let before = ["read", "getattr", "getxattr"].map(&asked);
    for nth in 0..PAGES {
        file.write_all_at(&[2; PAGE], nth * PAGE as u64).unwrap();
        assert_eq!(page_of(&file, nth)[0], 2);
        let far = (nth + PAGES / 2) % PAGES;
        assert_eq!(page_of(&file, far)[0], if far < nth { 2 } else { 1 });
    }
    let after = ["read", "getattr", "getxattr"].map(&asked);
    let each: Vec<u64> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    // An end of the leases on a busy machine takes all of it once.
    assert!(each.iter().all(|asked| *asked < PAGES / 4), "read, getattr, getxattr: {each:?}");
}

#[test]
fn who_writes_around_the_kernels_pages_is_seen_by_who_reads_through_them() {
    const LEN: usize = 64 * PAGE;
    const ROUNDS: u8 = 250;
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let file = File::create(mount.at("file")).unwrap();
    file.write_all_at(&[1; LEN], 0).unwrap();
    let (begun, done) = (AtomicU8::new(1), AtomicU8::new(1));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let file = File::open(mount.at("file")).unwrap();
                let mut bytes = vec![0; LEN];
                while done.load(Ordering::SeqCst) < ROUNDS {
                    let oldest = done.load(Ordering::SeqCst);
                    file.read_exact_at(&mut bytes, 0).unwrap();
                    let newest = begun.load(Ordering::SeqCst);
                    let wrong = bytes.iter().find(|byte| !(oldest..=newest).contains(byte));
                    assert_eq!(wrong, None, "the writes {oldest} to {newest} were under way");
                }
            });
        }
        for round in 2..=ROUNDS {
            begun.store(round, Ordering::SeqCst);
            file.write_all_at(&vec![round; LEN], 0).unwrap();
            done.store(round, Ordering::SeqCst);
        }
    });
}

#[test]
fn when_no_server_can_be_asked_the_kernel_shows_what_it_has_no_longer_than_leases_last() {
    let mut servers = Servers::start();
    let (mount, asked) = watched(&servers);
    std::fs::write(mount.at("file"), [1; 8 * PAGE]).unwrap();
    let file = File::open(mount.at("file")).unwrap();
    assert_eq!(page_of(&file, 0)[0], 1);
    let before = asked("read");
    assert_eq!(page_of(&file, 0)[0], 1);
    assert_eq!(asked("read"), before, "the kernel has it");
    let pid = servers.server().pid();
    signal(pid, "STOP");
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // It waits for the server in the end.
            while asked("read") == before {
                assert_eq!(page_of(&file, 0)[0], 1);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        eventually(WAIT, "the kernel asks for what it had", || asked("read") > before);
        signal(pid, "CONT");
        reader.join().unwrap();
    });
    assert!(count.load(Ordering::Relaxed) > 0);
}

#[test]
fn of_a_file_of_which_nothing_is_leased_the_kernel_keeps_pages_for_a_moment() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    for (name, consistency) in [("relaxed", Some("parallel")), ("unnamed", None)] {
        std::fs::create_dir(a.at(name)).unwrap();
        if let Some(consistency) = consistency {
            let dir = a.at(name).to_str().unwrap().to_owned();
            succeed(["layout", "set", &dir, "--consistency", consistency]);
        }
        let path = format!("{name}/file");
        std::fs::write(a.at(&path), [1; 16 * PAGE]).unwrap();
        let reader = File::open(b.at(&path)).unwrap();
        let writer = OpenOptions::new().write(true).open(a.at(&path)).unwrap();
        if consistency.is_none() {
            std::fs::remove_file(a.at(&path)).unwrap();
        }
        assert_eq!(page_of(&reader, 3)[0], 1);
        writer.write_all_at(&[2; PAGE], 3 * PAGE as u64).unwrap();
        writer.sync_all().unwrap();
        eventually(WAIT, "the reader sees it", || page_of(&reader, 3)[0] == 2);
    }
}
