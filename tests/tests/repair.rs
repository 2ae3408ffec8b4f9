//! Bit rot over real processes: bits flip in the data files of targets, and what readers get is right as
//! long as one copy is. And scrubs, which find them before a reader does.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strake_tests::cluster::{Servers, Up, eventually, run, signal, strake, succeed};
use strake_tests::servers::{Cluster, WAIT};
use strake_tests::stores::restart_without;

/// Unit of checksums.
const BLOCK: usize = 4096;

/// So many blocks, of which each says throughout which one it is.
fn numbered(blocks: usize) -> Vec<u8> {
    let block = |nth: usize| (nth as u64 + 1).to_le_bytes().into_iter().cycle().take(BLOCK);
    (0..blocks).flat_map(block).collect()
}

/// Flips a bit of each numbered block in a target's data file for which `which` holds; how many these were.
fn rot(target: &Path, which: impl Fn(u64) -> bool) -> usize {
    let path = target.join("data-00000");
    let file = File::options().read(true).write(true).open(path).unwrap();
    let bytes = fs::read(target.join("data-00000")).unwrap();
    let mut hit = 0;
    for (place, block) in bytes.chunks_exact(BLOCK).enumerate() {
        let number = u64::from_le_bytes(block[..8].try_into().unwrap());
        let whole = block.chunks(8).all(|part| part == number.to_le_bytes());
        if whole && number > 0 && which(number - 1) {
            let at = place * BLOCK + 2000;
            file.write_all_at(&[block[2000] ^ 0x10], at as u64).unwrap();
            hit += 1;
        }
    }
    hit
}

fn target_of(cluster: &Cluster, nth: usize) -> std::path::PathBuf {
    cluster.data_of(nth).join("target")
}

fn cat(cluster: &Cluster, name: &str) -> std::process::Output {
    let path = format!("{}:/main/{name}", cluster.address);
    run(["cat", &path])
}

/// Blocks that storage servers say that they have repaired.
fn repaired(cluster: &Cluster) -> usize {
    let logs = cluster.logs();
    let count = |line: &str| {
        let (_, after) = line.split_once(" was damaged on target ")?;
        let (_, after) = after.split_once(", in ")?;
        after.split(' ').next()?.parse::<usize>().ok()
    };
    logs.iter().map(|log| log.lines().filter_map(count).sum::<usize>()).sum()
}

fn copy_all(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Storage servers that may know more than the metadata.
fn ahead(cluster: &Cluster) -> usize {
    let status = cluster.json(&["status"]);
    let rows = status["servers"].as_array().into_iter().flatten();
    rows.filter(|row| row["ahead"] == true).count()
}

/// Every read ended in ETIMEDOUT, and `strake status` said "fine".
#[test]
fn servers_that_live_on_beside_metadata_from_a_backup_are_told_until_they_are_started_again() {
    let mut cluster = Cluster::with_copies(2, 2);
    let backups = tempfile::tempdir().unwrap();
    let backup = backups.path().join("witness");
    let whole = numbered(300);
    let mount = cluster.mount("mnt");
    fs::write(mount.at("file"), &whole).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    drop(mount);
    cluster.restart_witness_with(|data| copy_all(data, &backup));
    cluster.until_whole();
    for nth in [0, 1] {
        cluster.kill(nth);
        cluster.until("a copy is missed", |c| c.json(&["status"])["health"] == "degraded");
        cluster.start_again(nth);
        cluster.until_whole();
    }
    cluster.restart_witness_with(|data| {
        fs::remove_dir_all(data).unwrap();
        copy_all(&backup, data);
    });
    cluster.until("both are told", |c| ahead(c) == 2);
    let (code, told) = cluster.run(&["status"]);
    assert!(code == Some(2) && told.contains("servers storage0, storage1 may refuse"), "{told}");
    (0..2).for_each(|nth| cluster.kill(nth));
    (0..2).for_each(|nth| cluster.start_again(nth));
    cluster.until_whole();
    assert_eq!(ahead(&cluster), 0);
    assert_eq!(cat(&cluster, "file").stdout, whole);
}

#[test]
fn what_rots_on_a_stopped_target_is_read_from_the_other_and_repaired_on_the_way() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let whole = numbered(700);
    fs::write(mount.at("file"), &whole).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    drop(mount);
    cluster.kill(0);
    let damaged = rot(&target_of(&cluster, 0), |nth| nth % 7 == 3);
    assert_eq!(damaged, 100);
    cluster.start_again(0);
    cluster.until_whole();
    let mount = cluster.mount("fresh");
    assert_eq!(fs::read(mount.at("file")).unwrap(), whole);
    let end = Instant::now() + WAIT;
    while repaired(&cluster) < damaged {
        // Another reader may ask the other member.
        assert_eq!(cat(&cluster, "file").stdout, whole);
        assert!(Instant::now() < end, "not repaired:\n{}", cluster.log(0));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(mount);
    // Alone, the one that was damaged has it all.
    cluster.kill(1);
    assert_eq!(cat(&cluster, "file").stdout, whole);
}

#[test]
fn a_block_that_has_rotted_everywhere_is_an_error_that_names_the_file_and_the_rest_is_read() {
    let cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let whole = numbered(300);
    fs::write(mount.at("file"), &whole).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    drop(mount);
    for nth in 0..2 {
        assert_eq!(rot(&target_of(&cluster, nth), |nth| nth == 280), 1);
    }
    let output = cat(&cluster, "file");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("file"), "{error}");
    assert!(error.contains("damaged at byte"), "{error}");
    // It waits for a copy no longer than people would, and the machine may be busy.
    cluster.until("both copies answer", |c| {
        let why = run(["why", "--verify", &format!("{}:/main/file", c.address)]);
        let told = String::from_utf8_lossy(&why.stdout);
        let answered = told.contains("all 2 copies answered, and none is sound");
        // Block 280 is the 24th of its chunk.
        assert!(!answered || told.contains("damaged at byte 98304;"), "{told}");
        assert_eq!(why.status.code(), Some(2), "{told}");
        answered
    });
    let mount = cluster.mount("fresh");
    let file = File::options().read(true).write(true).open(mount.at("file")).unwrap();
    let mut block = [0; BLOCK];
    let error = file.read_exact_at(&mut block, 280 * BLOCK as u64).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "EIO: {error}");
    let mut before = vec![0; 256 * BLOCK];
    file.read_exact_at(&mut before, 0).unwrap();
    assert_eq!(before, whole[..256 * BLOCK]);
    // What is overwritten as a whole is well again.
    file.write_all_at(&whole[280 * BLOCK..281 * BLOCK], 280 * BLOCK as u64).unwrap();
    file.sync_all().unwrap();
    drop((file, mount));
    assert_eq!(cat(&cluster, "file").stdout, whole);
}

#[test]
fn damage_at_the_one_member_that_stayed_does_not_keep_another_from_coming_back() {
    let mut cluster = Cluster::with_copies(3, 3);
    let mount = cluster.mount("mnt");
    let whole = numbered(600);
    cluster.kill(2);
    fs::write(mount.at("file"), &whole).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    // Each of those that stayed leads some of the file's groups.
    let damaged = rot(&target_of(&cluster, 0), |nth| nth % 5 == 1)
        + rot(&target_of(&cluster, 1), |nth| nth % 5 == 2);
    assert!(damaged > 100, "{damaged}");
    cluster.start_again(2);
    cluster.until_whole();
    drop(mount);
    for lone in [0, 1] {
        cluster.kill(lone);
    }
    assert_eq!(cat(&cluster, "file").stdout, whole);
}

#[test]
fn of_one_copy_rotten_bytes_are_an_error_that_says_what_to_do() {
    let up = Up::start(&["--targets", "2"]);
    fs::write(up.mount().join("file"), numbered(300)).unwrap();
    File::open(up.mount().join("file")).unwrap().sync_all().unwrap();
    let mut hit = 0;
    for entry in fs::read_dir(up.data()).unwrap() {
        let path = entry.unwrap().path();
        if path.join("data-00000").exists() {
            hit += rot(&path, |nth| nth == 5);
        }
    }
    assert_eq!(hit, 1);
    let place = format!("unix:{}:/main/file", up.data().join("strake.sock").display());
    let output = run(["cat", &place]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("restore the file"), "{error}");
}

fn scrub(address: &str, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let output =
        run(["scrub", "--json", "--cluster", address].into_iter().chain(flags.iter().copied()));
    let report = serde_json::from_slice(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), report.unwrap_or_else(|e| panic!("{e}: {error}")))
}

fn fates(report: &serde_json::Value) -> Vec<(String, String)> {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    let mut fates: Vec<_> = findings.map(|f| (word(&f["paths"][0]), word(&f["fate"]))).collect();
    fates.sort();
    fates.dedup();
    fates
}

#[test]
fn scrub_repairs_what_has_another_copy_and_names_the_files_that_are_lost() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    fs::create_dir(mount.at("dir")).unwrap();
    let whole = numbered(600);
    fs::write(mount.at("dir/sound"), vec![0xaa; 3_000_000]).unwrap();
    fs::write(mount.at("dir/rotten"), &whole).unwrap();
    File::open(mount.at("dir/rotten")).unwrap().sync_all().unwrap();
    assert_eq!(scrub(&cluster.address, &[]).0, Some(0));
    rot(&target_of(&cluster, 0), |nth| nth % 50 == 3 || nth == 299);
    rot(&target_of(&cluster, 1), |nth| nth % 50 == 4 || nth == 299);
    let (code, report) = scrub(&cluster.address, &["--no-repair"]);
    let of = |fate: &str| (":/main/dir/rotten".to_owned(), fate.to_owned());
    assert_eq!((code, fates(&report)), (Some(1), vec![of("left")]));
    let (code, report) = scrub(&cluster.address, &["--rate", "100M"]);
    assert_eq!((code, fates(&report)), (Some(1), vec![of("lost"), of("repaired")]));
    let again = scrub(&cluster.address, &[]);
    assert_eq!((again.0, fates(&again.1)), (Some(1), vec![of("lost")]), "all else was repaired");
    cluster.until("status names the file", |c| {
        let damaged = c.json(&["status"])["damaged_files"][0].clone();
        damaged["files"] == serde_json::json!([":/main/dir/rotten"])
    });
    let (_, shown) = cluster.run(&["status"]);
    assert!(shown.contains("files with damage on target 1: :/main/dir/rotten"), "{shown}");
    // It is not where `why` looks by itself.
    let why = || run(["why", &format!("{}:/main/dir/rotten", cluster.address)]);
    // It waits for a copy no longer than people would, and the machine may be busy.
    cluster.until("both copies answer", |_| {
        let why = why();
        let told = String::from_utf8_lossy(&why.stdout);
        assert!(told.contains("chunk 1 cannot be read from target 1"), "{told}");
        assert_eq!(why.status.code(), Some(2), "{told}");
        told.contains("all 2 copies answered, and none is sound")
    });
    let file = File::options().write(true).open(mount.at("dir/rotten")).unwrap();
    file.write_all_at(&whole[299 * BLOCK..300 * BLOCK], 299 * BLOCK as u64).unwrap();
    file.sync_all().unwrap();
    let (code, report) = scrub(&cluster.address, &[]);
    assert_eq!((code, fates(&report)), (Some(0), Vec::new()), "{report}");
    assert!(report["compared"].as_u64().unwrap() > 0);
    drop((file, mount));
    assert_eq!(cat(&cluster, "dir/rotten").stdout, whole);
    cluster.kill(1);
    let job = begin_scrub(&cluster, &[]);
    cluster
        .until("it says whom it waits for", |c| reason_of(c, job, 1).contains("start its server"));
    cluster.until("the other was looked at", |c| target_of_job(c, job, 0)["state"] == "done");
    cluster.start_again(1);
    let (code, said) = cluster.run(&["job", "watch", &job.to_string()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(target_of_job(&cluster, job, 1)["chunks"].as_u64().unwrap() > 0);
}

/// Chunks that were only reserved, in groups that had lost something since their file was made, were told as lost; and before the
/// damage that a scrub had found so many of them were looked at that it was not told.
#[test]
fn chunks_that_are_only_reserved_are_there_where_something_was_lost_and_hide_no_damage() {
    let mut cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    File::create(mount.at("reserved")).unwrap();
    fs::write(mount.at("lost"), vec![0xaa; 4 << 20]).unwrap();
    File::open(mount.at("lost")).unwrap().sync_all().unwrap();
    drop(mount);
    cluster.add();
    cluster.until("the manager hears of it", |c| {
        c.json(&["target", "remove", "1", "--dry-run"])["bytes"].as_u64() > Some(1 << 20)
    });
    cluster.kill(0);
    cluster.until("it is gone", |c| c.run(&["status"]).1.contains("is down"));
    cluster.succeed(&["target", "replace", "1", "3", "--lose-data", "--wait"]);
    cluster.until("what is left is whole", |c| {
        c.json(&["status"])["groups"].as_array().is_some_and(Vec::is_empty)
    });
    let told = |name: &str| {
        let why = run(["why", &format!("{}:/main/{name}", cluster.address)]);
        (why.status.code(), String::from_utf8_lossy(&why.stdout).into_owned())
    };
    let (code, text) = told("lost");
    assert!(code == Some(2) && text.contains("2 chunks, the first of them chunk"), "{text}");
    let mount = cluster.mount("fresh");
    let file = File::options().write(true).open(mount.at("reserved")).unwrap();
    let (chunk, chunks) = (1 << 20, 50);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, chunks * chunk).unwrap();
    file.write_all_at(&numbered(512), (chunks - 2) * chunk).unwrap();
    file.sync_all().unwrap();
    drop((file, mount));
    let (code, text) = told("reserved");
    assert!(code != Some(2) && !text.contains("has lost"), "{text}");
    // One block of each of the last two chunks, of which one is where something was lost.
    let is_last = |nth: u64| [100, 400].contains(&nth);
    assert_eq!([1, 2].map(|nth| rot(&target_of(&cluster, nth), is_last)), [1, 1]);
    assert_eq!(scrub(&cluster.address, &["2", "3"]).0, Some(1));
    let (code, text) = told("reserved");
    assert!(code == Some(2) && !text.contains("has lost"), "{text}");
    for chunk in ["chunk 48", "chunk 49"] {
        assert!(text.contains(&format!("{chunk} cannot be read from target")), "{text}");
    }
}

/// Begins a scrub that nobody waits for; its number.
fn begin_scrub(cluster: &Cluster, flags: &[&str]) -> u64 {
    let arguments: Vec<&str> = ["scrub", "--no-wait"].iter().chain(flags).copied().collect();
    let job = cluster.json(&arguments);
    job["id"].as_u64().unwrap_or_else(|| panic!("no job: {job}"))
}

fn target_of_job(cluster: &Cluster, job: u64, nth: usize) -> serde_json::Value {
    cluster.job(job)["targets"][nth].clone()
}

fn reason_of(cluster: &Cluster, job: u64, nth: usize) -> String {
    target_of_job(cluster, job, nth)["reason"].as_str().unwrap_or_default().to_owned()
}

fn done_of(cluster: &Cluster, job: u64, nth: usize) -> u64 {
    target_of_job(cluster, job, nth)["bytes_done"].as_u64().unwrap_or(0)
}

/// True if a process has said what it does at Ctrl-C: before that it dies.
fn hears_ctrl_c(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    caught.is_some_and(|signals| signals & 1 << (libc::SIGINT - 1) != 0)
}

#[test]
fn a_scrub_is_a_job_that_is_listed_paused_throttled_cancelled_and_outlives_who_asked_for_it() {
    let cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    fs::write(mount.at("file"), numbered(4096)).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    let damaged = rot(&target_of(&cluster, 0), |nth| nth % 400 == 3) as u64;
    assert_eq!(damaged, 11);
    // Whoever asked for it goes away; it does not.
    let slowly = ["scrub", "--throttle", "256K", "--cluster", &cluster.address];
    let asker = strake(slowly).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let running = |c: &Cluster| c.json(&["job", "list", "--running"])[0].clone();
    cluster.until("it verifies", |c| running(c)["bytes_done"].as_u64() > Some(0));
    let listed = running(&cluster);
    assert_eq!((&listed["kind"], &listed["rate_max"]), (&"scrub".into(), &(256 << 10).into()));
    let shown = cluster.run(&["job", "show", &listed["id"].to_string()]).1;
    assert!(shown.contains("reads at most 256 KiB/s in all"), "{shown}");
    cluster.until("it hears Ctrl-C", |_| hears_ctrl_c(asker.id()));
    signal(asker.id(), "INT");
    let asker = asker.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&asker.stderr);
    let job = listed["id"].as_u64().unwrap();
    assert!(said.contains(&format!("strake job watch {job}")), "{said}");
    assert_eq!(asker.status.code(), Some(130));
    let busy = cluster.run(&["scrub", "1"]);
    assert!(busy.0 == Some(1) && busy.1.contains(&format!("strake job watch {job}")), "{busy:?}");
    let id = job.to_string();
    cluster.succeed(&["job", "pause", &id]);
    // Nothing else keeps it from its end now, once the step that is under way is over.
    cluster.succeed(&["job", "throttle", &id, "0"]);
    cluster.until("it stays where it is", |c| {
        let paused = c.job(job);
        std::thread::sleep(Duration::from_secs(2));
        c.job(job)["bytes_done"] == paused["bytes_done"]
    });
    cluster.until("how much is left", |c| c.job(job)["bytes_left"].as_u64() > Some(0));
    cluster.succeed(&["job", "resume", &id]);
    let (code, said) = cluster.run(&["job", "watch", &id]);
    assert_eq!(code, Some(0), "{said}");
    let shown = cluster.job(job);
    assert_eq!(shown["targets"][0]["repaired"], damaged, "{shown}");
    assert_eq!(shown["findings"][0]["paths"][0], ":/main/file", "{shown}");
    // Primaries count, for whichever target it was.
    let blocks = |nth| cluster.counter(nth, "strake_storage_repaired_blocks_total");
    assert_eq!(blocks(0) + blocks(1), damaged);
    let found = "strake_storage_scrub_findings_total";
    assert_eq!((cluster.counter(0, found), cluster.counter(1, found)), (damaged, 0));
    let next = begin_scrub(&cluster, &["--throttle", "1M"]);
    cluster.until("it verifies", |c| done_of(c, next, 0) > 0);
    cluster.succeed(&["job", "cancel", &next.to_string()]);
    assert_eq!(cluster.job(next)["state"], "cancelled");
    assert_eq!(scrub(&cluster.address, &[]).0, Some(0), "nothing is in its way");
}

#[test]
fn a_scrub_goes_on_where_it_was_when_a_server_and_the_manager_were_killed() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    fs::write(mount.at("file"), numbered(24 * 256)).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    drop(mount);
    let held = |c: &Cluster, nth: usize| c.counter(nth, "strake_storage_scrubbed_bytes_total");
    let job = begin_scrub(&cluster, &["--throttle", "4M"]);
    cluster.until("some is verified", |c| done_of(c, job, 0) >= 10 << 20);
    cluster.kill(0);
    let before = done_of(&cluster, job, 0);
    cluster.until("it waits", |c| reason_of(c, job, 0).contains("does not answer"));
    cluster.restart_witness();
    cluster.start_again(0);
    cluster.until("it goes on", |c| done_of(c, job, 0) > 0);
    assert!(done_of(&cluster, job, 0) >= before, "it begins anew");
    cluster.succeed(&["job", "throttle", &job.to_string(), "0"]);
    let (code, said) = cluster.run(&["job", "watch", &job.to_string()]);
    assert_eq!(code, Some(0), "{said}");
    for nth in 0..2 {
        let target = target_of_job(&cluster, job, nth);
        assert_eq!(target["chunks"], 24, "each chunk once: {target}");
    }
    assert!(held(&cluster, 0) < 24 << 20, "what was verified before is not verified again");
}

#[test]
fn servers_verify_their_targets_by_themselves_and_status_tells_what_they_found() {
    let every_second = ["--scrub-every", "0.00001"].map(String::from);
    let servers = Servers::start_with(&every_second);
    let mount = servers.mount("mnt", "");
    fs::write(mount.at("file"), numbered(300)).unwrap();
    File::open(mount.at("file")).unwrap().sync_all().unwrap();
    let root = mount.path().parent().unwrap().to_owned();
    let targets = (0..4).map(|nth| root.join(format!("target{nth}/target")));
    let with_data = targets.filter(|target| target.join("data-00000").exists());
    assert_eq!(with_data.map(|target| rot(&target, |nth| nth == 7)).sum::<usize>(), 1);
    let end = Instant::now() + WAIT;
    loop {
        let output = run(["status", "--json", "--cluster", servers.address()]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let targets = status["targets"].as_array().unwrap();
        if targets.iter().any(|target| target["damaged_chunks"] == 1) {
            assert_eq!(output.status.code(), Some(1), "{status}");
            assert!(status["problems"][0].as_str().unwrap().contains("strake scrub"), "{status}");
            return;
        }
        assert!(Instant::now() < end, "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// It kept the files of all other volumes from being named.
#[test]
fn files_with_damage_are_named_also_where_another_volume_is_not_served() {
    let mut servers = Servers::start();
    let (address, root) = (servers.address().to_owned(), servers.directory().to_owned());
    succeed(["volume", "create", "other", "--cluster", &address]);
    let local = root.join("numbered");
    fs::write(&local, numbered(300)).unwrap();
    for volume in ["main", "other"] {
        let to = format!("{address}:/{volume}/file");
        succeed(["cp", "--sync", local.to_str().unwrap(), &to]);
    }
    let targets = (0..4).map(|nth| root.join(format!("target{nth}/target")));
    let with_data = targets.filter(|target| target.join("data-00000").exists());
    assert_eq!(with_data.map(|target| rot(&target, |nth| nth == 7)).sum::<usize>(), 2);
    restart_without(&mut servers, 2);
    let (code, report) = scrub(&address, &[]);
    let lost = |path: &str| (path.to_owned(), "lost".to_owned());
    assert_eq!((code, fates(&report)), (Some(1), vec![lost("-"), lost(":/main/file")]), "{report}");
    eventually(WAIT, "status names the file", || {
        let output = run(["status", "--json", "--cluster", &address]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let damaged = status["damaged_files"].as_array().cloned().unwrap_or_default();
        damaged.iter().any(|one| one["files"] == serde_json::json!([":/main/file"]))
    });
}
