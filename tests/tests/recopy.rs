//! Files there are get another number of copies, over real processes, while others use them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_tests::cluster::{Mount, run, strake};
use strake_tests::records::{Ledger, StopAtEnd};
use strake_tests::servers::Cluster;

/// Runs the verb on the whole volume; its exit code and its report.
fn recopy(cluster: &Cluster, copies: u32, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    recopy_at(cluster, "", copies, flags)
}

/// As [`recopy`], on a path.
fn recopy_at(
    cluster: &Cluster,
    path: &str,
    copies: u32,
    flags: &[&str],
) -> (Option<i32>, serde_json::Value) {
    let (place, copies) = (format!("{}:/main/{path}", cluster.address), copies.to_string());
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

/// Begins the job on the whole volume.
fn begin(cluster: &Cluster, copies: u32, flags: &[&str]) -> u64 {
    let (code, report) = recopy(cluster, copies, &[&["--no-wait"], flags].concat());
    assert_eq!((code, &report["state"]), (Some(0), &"running".into()), "{report}");
    report["job"].as_u64().unwrap()
}

/// What a job tells of files.
fn told(cluster: &Cluster, job: u64) -> serde_json::Value {
    cluster.job(job)["recopy"].clone()
}

fn files_of(cluster: &Cluster, job: u64) -> u64 {
    told(cluster, job)["files"].as_u64().unwrap_or(0)
}

fn until_done(cluster: &Cluster, job: u64) {
    cluster.until("the job is done", |c| {
        let state = c.job(job)["state"].clone();
        assert!(state != "failed" && state != "cancelled", "{}", c.job(job));
        state == "done"
    });
}

/// Runs it to its end: mounts report in their own time what was closed.
fn recopy_all(cluster: &Cluster, copies: u32) {
    until_done(cluster, begin(cluster, copies, &[]));
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
    sparse.write_all_at(b"in the middle", 20 << 20).unwrap();
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
    let (appended, job) = std::thread::scope(|scope| {
        let (mount, stop, stops) = (&mount, &stop, StopAtEnd(&stop));
        let writer = scope.spawn(|| ledger.write_until(stop));
        let reader = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                check_files(mount);
                std::thread::sleep(Duration::from_secs(3));
            }
        });
        let appender = scope.spawn(move || append_until(mount, stop));
        let job = begin(&cluster, 2, &["--throttle", "30M"]);
        cluster.until("what is not in use is copied", |c| files_of(c, job) >= 6);
        fsck(&cluster);
        drop(stops);
        writer.join().unwrap();
        reader.join().unwrap();
        (appender.join().unwrap(), job)
    });
    // It keeps its handle, and goes on with it wherever the file lies.
    ledger.write(7, 77_777);
    until_done(&cluster, job);
    ledger.write(8, 88_888);
    check(&mount, appended, &ledger);
    ledger.close();
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
}

#[test]
fn files_that_nobody_has_open_get_a_copy_less_again_at_once() {
    let cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    make_files(&mount);
    drop(mount);
    for copies in [2, 1] {
        recopy_all(&cluster, copies);
        fsck(&cluster);
        check_files(&cluster.mount(&format!("fresh{copies}")));
    }
}

/// Files of one piece each, in several directories.
const SMALL: (usize, usize, usize) = (6, 10, 600_000);

fn small_name(nth: usize) -> String {
    format!("d{}/f{nth}", nth / SMALL.1)
}

fn small(mount: &Mount, mut look: impl FnMut(std::path::PathBuf, Vec<u8>)) {
    let (directories, files, len) = SMALL;
    for nth in 0..directories * files {
        look(mount.at(&small_name(nth)), contents(nth, len));
    }
}

fn make_small(mount: &Mount) {
    small(mount, |path, contents| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    });
}

fn check_small(mount: &Mount) {
    small(mount, |path, contents| assert!(fs::read(&path).unwrap() == contents, "{path:?}"));
}

/// Has a file open by a client without leases until what it prints is taken.
fn print(cluster: &Cluster, name: &str) -> Child {
    let place = format!("{}:/main/{name}", cluster.address);
    let mut printing = strake(["cat", &place]).stdout(Stdio::piped()).spawn().unwrap();
    // It fits into no pipe: the first byte says that the file is open, and there it stands.
    printing.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    printing
}

/// Takes all that is left of it, but for the first byte.
fn printed(printing: Child) -> Vec<u8> {
    let output = printing.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    output.stdout
}

/// Files that do not have so many copies.
fn others(cluster: &Cluster, copies: u32) -> u64 {
    others_at(cluster, "", copies)
}

fn others_at(cluster: &Cluster, path: &str, copies: u32) -> u64 {
    let (code, report) = recopy_at(cluster, path, copies, &["--dry-run"]);
    assert_eq!(code, Some(0), "{report}");
    report["files"].as_u64().unwrap()
}

#[test]
fn copies_are_a_job_that_outlives_who_asked_and_kills_of_metadata_server_and_manager() {
    let mut cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    make_small(&mount);
    drop(mount);
    let all = (SMALL.0 * SMALL.1) as u64;
    let place = format!("{}:/main", cluster.address);
    let verb = ["layout", "set", &place, "--copies", "2", "--existing", "--throttle", "1M"];
    let mut asker = strake(verb).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = |c: &Cluster| c.json(&["job", "list", "--running"])[0].clone();
    // More than one directory: how far it is, is noted after each.
    cluster.until("files are copied", |c| running(c)["recopy"]["files"].as_u64() > Some(10));
    let listed = running(&cluster);
    assert_eq!(
        (&listed["kind"], &listed["about"]),
        (&"recopy".into(), &":/main/, 2 copies".into())
    );
    asker.kill().unwrap();
    asker.wait().unwrap();
    let job = listed["id"].as_u64().unwrap();
    let id = job.to_string();
    let below = format!("{place}/d3");
    let busy = cluster.run(&["layout", "set", &below, "--copies", "1", "--existing"]);
    assert!(busy.0 == Some(1) && busy.1.contains(&format!("strake job watch {id}")), "{busy:?}");

    cluster.until("it is known how much is left, and how long that takes", |c| {
        let shown = running(c);
        shown["bytes_left"].as_u64() > Some(0) && shown["seconds_left"].as_u64().is_some()
    });
    // A file that is under way when its server is killed waits for ten minutes.
    cluster.succeed(&["job", "pause", &id]);
    cluster.until("nothing is under way", |c| {
        told(c, job)["under_way"].as_array().unwrap().is_empty()
    });
    let before = files_of(&cluster, job);
    assert!(before < all, "it is not in the middle");
    let left = (all - before) * SMALL.2 as u64;
    // What a file occupies is told by clients, and a little less than it has.
    let shown = cluster.job(job)["bytes_left"].as_u64().unwrap_or_default();
    assert!((left / 10 * 9..=left).contains(&shown), "{left}: {}", cluster.job(job));
    let ahead = serde_json::json!({ "files": all - before, "bytes": shown, "whole": true });
    assert_eq!(told(&cluster, job)["ahead"], ahead);
    cluster.restart_witness();
    cluster.until("it knows what it had done", |c| files_of(c, job) >= 10);
    assert!(files_of(&cluster, job) <= before && cluster.job(job)["state"] == "paused");
    cluster.succeed(&["job", "throttle", &id, "0"]);
    cluster.succeed(&["job", "resume", &id]);
    let (code, said) = cluster.run(&["job", "watch", &id]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(others(&cluster, 2), 0);
    assert_eq!(cluster.job(job)["bytes_left"], 0);
    assert!(files_of(&cluster, job) <= all, "a file was copied twice: {}", told(&cluster, job));
    fsck(&cluster);
    let fresh = cluster.mount("fresh");
    check_small(&fresh);
    fs::write(fresh.at("d5/new"), "new").unwrap();
    drop(fresh);
    assert_eq!(others(&cluster, 2), 0, "directories hand it down");
    cluster.until_whole();
    cluster.kill(1);
    check_small(&cluster.mount("alone"));
}

#[test]
fn a_job_that_is_cancelled_leaves_every_file_with_the_one_or_the_other_number_of_copies() {
    let cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    make_small(&mount);
    let all = (SMALL.0 * SMALL.1) as u64;
    let job = begin(&cluster, 2, &["--throttle", "1M"]);
    cluster.until("files are copied", |c| files_of(c, job) > 5);
    cluster.succeed(&["job", "cancel", &job.to_string()]);
    assert_eq!(cluster.job(job)["state"], "cancelled");
    let left = others(&cluster, 2);
    assert!(left > 0 && left < all, "{left}");
    check_small(&mount);
    fsck(&cluster);
    // Nothing is in the way of the next one, and what somebody has open who does not ask where it lies is waited for. Which files
    // the first has come to is its own affair, and it ends a moment later; so one that it has not come to is looked for.
    let held = (0..SMALL.0 * SMALL.1).rev().find_map(|nth| {
        let printing = print(&cluster, &small_name(nth));
        if others_at(&cluster, &small_name(nth), 2) == 1 {
            return Some((nth, printing));
        }
        printed(printing);
        None
    });
    let (held, printing) = held.expect("some file is as it was");
    let path = format!(":/main/{}", small_name(held));
    let mut read: Vec<File> =
        (0..SMALL.1).map(|nth| File::open(mount.at(&small_name(nth))).unwrap()).collect();
    let job = begin(&cluster, 2, &[]);
    cluster.until("all else is done", |c| {
        let shown = c.job(job);
        let said = &shown["recopy"];
        // Null: nobody has answered.
        let waits_on = ["running", ""].contains(&shown["state"].as_str().unwrap_or_default());
        assert!(waits_on, "it waits for what is open: {shown}");
        let waits = &said["waiting"][0];
        let open = waits["reason"].as_str().is_some_and(|reason| reason.starts_with("open by "));
        // Others may be under way still: they do not wait.
        let left = shown["bytes_left"].as_u64().unwrap_or_default();
        let alone = (1..=SMALL.2 as u64).contains(&left);
        said["left"] == 1 && waits["path"] == *path && open && alone
    });
    let (_, shown) = cluster.run(&["job", "show", &job.to_string()]);
    assert!(shown.contains(&format!("{path}: open by ")), "{shown}");
    assert!(printed(printing) == contents(held, SMALL.2)[1..]);
    until_done(&cluster, job);
    assert_eq!(others(&cluster, 2), 0);
    for (nth, file) in read.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == contents(nth, SMALL.2), "{nth}");
    }
    check_small(&mount);
}
