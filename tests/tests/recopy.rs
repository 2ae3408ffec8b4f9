//! Files there are get another number of copies, over real processes, while others use them.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_tests::cluster::{Mount, run};
use strake_tests::records::{Ledger, StopAtEnd};
use strake_tests::servers::Cluster;

/// Runs the verb on the whole volume; its exit code and its report.
fn recopy(cluster: &Cluster, copies: u32, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let (place, copies) = (format!("{}:/main", cluster.address), copies.to_string());
    let verb = ["layout", "set", &place, "--copies", &copies, "--existing", "--json"];
    let output = run(verb.into_iter().chain(flags.iter().copied()));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    (output.status.code(), report)
}

fn fsck(cluster: &Cluster) {
    let (code, said) = cluster.run(&["fsck"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Runs it until nothing has to wait any more: mounts report in their own time what was closed.
fn recopy_all(cluster: &Cluster, copies: u32) {
    cluster.until("no file waits", |c| {
        let (code, report) = recopy(c, copies, &[]);
        assert!(report["failed"].as_array().unwrap().is_empty(), "{report}");
        code == Some(0)
    });
}

fn contents(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3 + seed) as u8).collect()
}

/// Lengths of the files that are only read.
const LENS: [usize; 6] = [0, 100, 70_000, 1 << 20, 5_000_000, 9_876_543];

fn name(nth: usize) -> String {
    format!("dir/below/file{nth}")
}

/// Files of every length, one with two names, one that is mostly a hole.
fn make_files(mount: &Mount) {
    fs::create_dir_all(mount.at("dir/below")).unwrap();
    for (nth, len) in LENS.into_iter().enumerate() {
        fs::write(mount.at(&name(nth)), contents(nth, len)).unwrap();
    }
    fs::hard_link(mount.at(&name(4)), mount.at("linked")).unwrap();
    let sparse = File::create(mount.at("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 20 << 20).unwrap();
}

fn check_files(mount: &Mount) {
    for (nth, len) in LENS.into_iter().enumerate() {
        assert!(fs::read(mount.at(&name(nth))).unwrap() == contents(nth, len), "{nth}");
    }
}

/// Appends lines to a log, which it opens for each, and makes and removes files; returns how many lines.
fn append_until(mount: &Mount, stop: &AtomicBool) -> u64 {
    let mut lines = 0;
    while !stop.load(Ordering::Relaxed) {
        let open = File::options().create(true).append(true).open(mount.at("log"));
        writeln!(open.unwrap(), "{lines:>2000}").unwrap();
        lines += 1;
        let made = mount.at(&format!("dir/made{}", lines % 5));
        fs::write(&made, contents(1, 300_000)).unwrap();
        fs::remove_file(&made).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    lines
}

/// Everything holds what was written, so many lines and the ledger among them.
fn check(mount: &Mount, appended: u64, ledger: &Ledger) {
    check_files(mount);
    let sparse = fs::read(mount.at("sparse")).unwrap();
    assert!(sparse.len() == 40 << 20 && &sparse[20 << 20..][..13] == b"in the middle");
    assert_eq!(sparse.iter().filter(|byte| **byte != 0).count(), 13);
    let log = fs::read_to_string(mount.at("log")).unwrap();
    let lines: Vec<u64> = log.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(lines, (0..appended).collect::<Vec<_>>());
    ledger.check(&mount.at("ledger"));
}

#[test]
fn files_get_a_second_copy_while_others_write_read_and_append() {
    let mut cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    make_files(&mount);
    let mut ledger = Ledger::new(&mount.at("ledger"), 200);
    for at in 0..200 {
        ledger.write(at, 1);
    }
    let (code, planned) = recopy(&cluster, 2, &["--dry-run"]);
    assert_eq!((code, planned["files"].as_u64()), (Some(0), Some(8)), "{planned}");

    let stop = AtomicBool::new(false);
    let appended = std::thread::scope(|scope| {
        let (mount, stop, stops) = (&mount, &stop, StopAtEnd(&stop));
        let writer = scope.spawn(|| ledger.write_until(stop));
        let reader = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                check_files(mount);
                std::thread::sleep(Duration::from_secs(3));
            }
        });
        let appender = scope.spawn(move || append_until(mount, stop));
        let (code, report) = recopy(&cluster, 2, &["--throttle", "30M"]);
        fsck(&cluster);
        drop(stops);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_ne!(code, Some(0), "{report}");
        let waiting = report["waiting"].as_array().unwrap();
        let mut named = waiting.iter().map(|item| item["path"].as_str().unwrap_or_default());
        assert!(named.any(|path| path.ends_with("/ledger")), "{report}");
        appender.join().unwrap()
    });
    // It keeps its handle, and goes on with it when the file lies elsewhere only after it has closed it.
    ledger.write(7, 77_777);
    check(&mount, appended, &ledger);
    ledger.close();
    recopy_all(&cluster, 2);
    check(&mount, appended, &ledger);
    fsck(&cluster);
    drop(mount);
    for nth in 0..2 {
        cluster.until_whole();
        cluster.kill(nth);
        let fresh = cluster.mount(&format!("fresh{nth}"));
        check(&fresh, appended, &ledger);
        drop(fresh);
        cluster.start_again(nth);
    }
    cluster.until_whole();
    fsck(&cluster);
    recopy_all(&cluster, 1);
    let last = cluster.mount("last");
    check(&last, appended, &ledger);
    drop(last);
    fsck(&cluster);
}
