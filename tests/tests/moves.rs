//! Members of groups that move, over real processes: servers are drained, targets replaced, jobs steered,
//! while files are written and servers are killed. Nothing that was acknowledged is missing or old.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strake_tests::cluster::{Mount, Process, SERVES, free_port};
use strake_tests::records::{Ledger, StopAtEnd};
use strake_tests::servers::Cluster;

const MIB: usize = 1 << 20;

/// Bytes that are nowhere the same.
fn noise(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn write(mount: &Mount, name: &str, bytes: &[u8]) {
    let mut file = File::create(mount.at(name)).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// A directory whose files have two copies.
fn pairs(cluster: &Cluster, mount: &Mount) {
    let path = mount.at("two");
    fs::create_dir(&path).unwrap();
    cluster.succeed(&["layout", "set", path.to_str().unwrap(), "--copies", "2"]);
}

fn groups_of(cluster: &Cluster, target: u64) -> u64 {
    let targets = cluster.targets();
    let found = targets.iter().find(|row| row["id"] == target);
    found.map_or(0, |row| row["groups"].as_u64().unwrap())
}

#[test]
fn a_server_is_drained_while_files_are_written_and_killed_servers_cost_nothing() {
    let mut cluster = Cluster::start(4);
    let mount = cluster.mount("mnt");
    pairs(&cluster, &mount);
    let old = noise(1, 8 * MIB);
    write(&mount, "old", &old);
    write(&mount, "two/old", &old);
    let mut ledgers = [Ledger::new(&mount.at("one"), 400), Ledger::new(&mount.at("two/l"), 400)];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        for ledger in &mut ledgers {
            scope.spawn(|| ledger.write_until(&stop));
        }
        // Slowly, so that there is a middle in which servers die.
        let dry = cluster.json(&["server", "drain", "storage1", "--dry-run"]);
        assert_eq!((&dry["id"], &dry["state"]), (&0.into(), &"planned".into()), "{dry}");
        assert!(dry["groups"].as_u64().unwrap() >= 3, "{dry}");
        let job = cluster.json(&["server", "drain", "storage1", "--throttle", "256K"]);
        assert_eq!(job["groups"], dry["groups"]);
        let id = job["id"].as_u64().unwrap();
        let destination = Cell::new(None);
        cluster.until("it copies", |c| {
            let job = c.job(id);
            let mut items = job["items"].as_array().into_iter().flatten();
            let running = items.find(|item| item["state"] == "running");
            destination.set(running.and_then(|item| item["to"].as_u64()));
            job["bytes_sent"].as_u64() > Some(0) && destination.get().is_some()
        });
        // The destination, the source, and the manager.
        let to = destination.get().expect("something is under way") as usize - 1;
        cluster.restart(to, Duration::from_millis(300));
        std::thread::sleep(Duration::from_millis(500));
        cluster.restart(1, Duration::from_millis(300));
        std::thread::sleep(Duration::from_millis(500));
        cluster.restart_witness();
        cluster.succeed(&["job", "throttle", &id.to_string(), "0"]);
        let (code, shown) = cluster.run(&["job", "watch", &id.to_string()]);
        assert_eq!(code, Some(0), "{shown}");
    });
    assert_eq!(groups_of(&cluster, 2), 0);
    let status = cluster.json(&["status"]);
    assert!(status["targets"][1]["state"].as_str().unwrap().contains("drained"), "{status}");
    cluster.until("what was left behind is deleted", |c| {
        c.counter(1, "strake_storage_cleared_bytes_total") > 0
    });
    cluster.kill(1);
    drop(mount);
    let mount = cluster.mount("again");
    ledgers[0].check(&mount.at("one"));
    ledgers[1].check(&mount.at("two/l"));
    assert_eq!(fs::read(mount.at("old")).unwrap(), old);
    assert_eq!(fs::read(mount.at("two/old")).unwrap(), old);
    write(&mount, "two/new", &old);
}

#[test]
fn a_dead_target_is_replaced_and_the_new_one_has_everything() {
    let mut cluster = Cluster::start(3);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    let mount = cluster.mount("mnt");
    let old = noise(3, 6 * MIB);
    write(&mount, "old", &old);
    let (code, said) = cluster.run(&["target", "remove", "2", "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    cluster.kill(1);
    cluster.until("it is missed", |c| c.run(&["status"]).1.contains("missing in"));
    write(&mount, "new", &old);
    cluster.add();
    let job = cluster.json(&["target", "replace", "2", "4", "--wait"]);
    assert_eq!(job["state"], "done", "{job}");
    assert!(!cluster.targets().iter().any(|row| row["id"] == 2), "it left the cluster");
    cluster.until("the old server is all that is missed", |c| {
        let status = c.json(&["status"]);
        status["groups"].as_array().is_some_and(Vec::is_empty)
    });
    drop(mount);
    for dead in [0, 2] {
        cluster.kill(dead);
        let mount = cluster.mount(&format!("without{dead}"));
        assert_eq!(fs::read(mount.at("old")).unwrap(), old);
        assert_eq!(fs::read(mount.at("new")).unwrap(), old);
        drop(mount);
        cluster.start_again(dead);
        cluster.until("its groups are whole", |c| {
            c.json(&["status"])["groups"].as_array().is_some_and(Vec::is_empty)
        });
    }
    // The same path, another disk.
    let mount = cluster.mount("last");
    cluster.kill(0);
    cluster.swap_disk(0);
    cluster.until("the new target has joined", |c| c.targets().iter().any(|t| t["id"] == 5));
    let job = cluster.json(&["target", "replace", "1", "5", "--wait"]);
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(fs::read(mount.at("old")).unwrap(), old);
    drop(mount);
    let (code, said) = cluster.run(&["target", "replace", "2", "4"]);
    assert!(code == Some(1) && said.contains("target 2 is not in the cluster"), "{said}");
}

#[test]
fn jobs_pause_go_on_are_slowed_and_end_and_the_manager_remembers_them() {
    let mut cluster = Cluster::start(3);
    let mount = cluster.mount("mnt");
    pairs(&cluster, &mount);
    write(&mount, "two/file", &noise(5, 16 * MIB));
    let before = [1, 2, 3].map(|target| groups_of(&cluster, target));
    let job = cluster.json(&["server", "drain", "storage0", "--throttle", "256K"]);
    let id = job["id"].as_u64().unwrap();
    let name = id.to_string();
    let sent = |c: &Cluster| c.job(id)["bytes_sent"].as_u64().unwrap_or(0);
    cluster.until("it copies", |c| sent(c) > 0);
    let (_, shown) = cluster.run(&["status"]);
    assert!(shown.contains("drain") && shown.contains("job 1"), "{shown}");
    cluster.until("the file is named", |c| {
        c.run(&["job", "show", &name]).1.contains(":/main/two/file")
    });
    cluster.succeed(&["job", "pause", &name]);
    std::thread::sleep(Duration::from_secs(2));
    let paused = sent(&cluster);
    cluster.restart_witness();
    cluster.until("the manager knows it", |c| c.job(id)["state"] == "paused");
    std::thread::sleep(Duration::from_secs(2));
    assert!(sent(&cluster) <= paused + MIB as u64, "a chunk at most was under way");
    cluster.succeed(&["job", "resume", &name]);
    cluster.until("it goes on", |c| sent(c) > paused);
    cluster.succeed(&["job", "cancel", &name]);
    assert_eq!(cluster.job(id)["state"], "cancelled");
    cluster.until_whole();
    // Whole groups may have been moved by then; what was under way was taken back.
    let groups = |c: &Cluster| [1, 2, 3].map(|target| groups_of(c, target));
    let all = before.iter().sum::<u64>();
    cluster.until("it is taken back", |c| groups(c).iter().sum::<u64>() == all);
    let after = groups(&cluster);
    assert!(after[0] > 0, "{after:?}");
    let (code, said) = cluster.run(&["job", "cancel", &name]);
    assert!(code == Some(1) && said.contains("has ended"), "{said}");
    let (code, said) = cluster.run(&["job", "watch", &name]);
    assert_eq!(code, Some(1), "{said}");
}

/// Bytes that the second server has sent to make members equal, and those that jobs tell of.
fn healed(cluster: &Cluster) -> (u64, u64) {
    let sent = cluster.counter(1, "strake_storage_resync_bytes_total");
    let jobs = cluster.json(&["job", "list"]);
    let heals = jobs.as_array().unwrap().iter().filter(|job| job["kind"] == "heal");
    let told = heals
        .inspect(|job| assert_eq!(job["state"], "done", "{job}"))
        .map(|job| job["bytes_sent"].as_u64().unwrap());
    (sent, told.sum())
}

#[test]
fn a_target_that_missed_little_is_healed_with_little() {
    let mut cluster = Cluster::start(2);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    let mount = cluster.mount("mnt");
    write(&mount, "large", &noise(7, 64 * MIB));
    // On a busy machine a server may have been missed for a moment.
    cluster.until_whole();
    let before = healed(&cluster);
    cluster.kill(0);
    write(&mount, "missed", &noise(9, MIB));
    cluster.start_again(0);
    cluster.until_whole();
    let after = healed(&cluster);
    let (sent, told) = (after.0 - before.0, after.1 - before.1);
    assert!((MIB as u64..2 * MIB as u64).contains(&sent), "{sent} bytes sent");
    assert_eq!(told, sent);
}

#[test]
fn a_plan_tells_the_bytes_that_are_sent_then() {
    let cluster = Cluster::start(3);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    let mount = cluster.mount("mnt");
    for file in 0..6 {
        write(&mount, &format!("file{file}"), &noise(file, 5 * MIB));
    }
    drop(mount);
    cluster.until_whole();
    let planned = |server: &str| {
        cluster.json(&["server", "drain", server, "--dry-run"])["bytes"].as_u64().unwrap()
    };
    // Servers tell every few seconds what they hold: two copies of 30 MiB.
    let all = || ["storage0", "storage1", "storage2"].map(planned).iter().sum::<u64>();
    cluster.until("all is known", |_| all() >= 60 * MIB as u64);
    let planned = planned("storage1");
    let job = cluster.json(&["server", "drain", "storage1", "--wait"]);
    let sent = job["bytes_sent"].as_u64().unwrap();
    assert!(sent.abs_diff(planned) <= planned / 20, "{planned} bytes planned, {sent} sent");
}

#[test]
fn what_would_cost_copies_or_data_is_refused_with_the_sentence_why() {
    let mut cluster = Cluster::start(2);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    let refused = |cluster: &Cluster, verb: &[&str], why: &str| {
        let (code, said) = cluster.run(verb);
        assert!(
            code == Some(1) && said.contains(why) && said.contains("next:"),
            "{verb:?}: {said}"
        );
    };
    refused(&cluster, &["target", "remove", "2"], "keeps 2 copies");
    refused(&cluster, &["server", "remove", "1"], "is the manager that leads the cluster");
    refused(&cluster, &["target", "replace", "1", "2"], "no other target can take its part");
    refused(&cluster, &["server", "drain", "nobody"], "no server is called nobody");
    let mount = cluster.mount("mnt");
    let single = mount.at("single");
    fs::create_dir(&single).unwrap();
    cluster.succeed(&["layout", "set", single.to_str().unwrap(), "--copies", "1"]);
    write(&mount, "single/file", &noise(1, 4 * MIB));
    drop(mount);
    cluster.add();
    cluster.until("the manager hears of it", |c| {
        let row = c.json(&["target", "remove", "1", "--dry-run"]);
        row["bytes"].as_u64() > Some(MIB as u64)
    });
    let (code, said) = cluster.run(&["target", "replace", "1", "3", "--dry-run"]);
    assert!(code == Some(0) && said.contains("is healthy: it would serve until"), "{said}");
    cluster.kill(0);
    cluster.until("it is gone", |c| c.run(&["status"]).1.contains("is down"));
    refused(&cluster, &["target", "replace", "1", "3"], "would be lost");
    // What would be, and then is lost, is told by the names of files.
    let lost = serde_json::json!([":/main/single/file"]);
    assert_eq!(cluster.json(&["target", "files", "1", "--only-copy"])["files"], lost);
    // These look for files for two seconds, each time.
    cluster.until("status names it", |c| c.json(&["status"])["stopped_files"]["files"] == lost);
    let lossy = ["target", "replace", "1", "3", "--lose-data"];
    cluster.until("the plan names it", |c| {
        let planned = c.run(&[&lossy[..], &["--dry-run"]].concat()).1;
        planned.contains("would give up what files have in these groups: :/main/single/file")
    });
    let job = cluster.json(&[&lossy[..], &["--wait"]].concat());
    assert_eq!(job["state"], "done");
    let id = job["id"].to_string();
    assert_eq!(cluster.json(&["job", "files", &id])["files"], lost);
    cluster.until("the job names it", |c| {
        c.run(&["job", "show", &id]).1.contains(":/main/single/file")
    });
    assert_eq!(cluster.json(&["target", "files", "2", "3"])["unread"], serde_json::json!([]));
    cluster.until("what is left is whole", |c| {
        c.json(&["status"])["groups"].as_array().is_some_and(Vec::is_empty)
    });
    let (code, told) = cluster.run(&["fsck", "main"]);
    let names = told.lines().any(|l| l.contains("lost-chunk") && l.contains("/single/file"));
    assert!(code == Some(4) && names, "{told}");
    let place = format!("{}:/main/single/file", cluster.address);
    let (code, told) = cluster.run(&["why", &place]);
    assert!(code == Some(2) && told.contains("has lost what it had"), "{told}");
}

#[test]
fn an_old_copy_of_a_disk_is_refused_and_takes_nothing_from_others() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let write = |name: &str, fill| write(&mount, name, &vec![fill; 5_000_000]);
    write("before", 1);
    let (disk, copy) = (cluster.data_of(1).join("target"), cluster.data_of(1).join("copy"));
    cluster.kill(1);
    assert!(
        std::process::Command::new("cp")
            .arg("-a")
            .arg(&disk)
            .arg(&copy)
            .status()
            .unwrap()
            .success()
    );
    cluster.start_again(1);
    cluster.until_whole();
    write("after", 2);
    write("before", 3);
    drop(mount);
    cluster.kill(0);
    cluster.kill(1);
    fs::rename(&disk, cluster.data_of(1).join("right")).unwrap();
    fs::rename(&copy, &disk).unwrap();
    // Nobody else is there who could say so.
    cluster.start_again_and_hear(1, &[], "is older than when its server last started");
    cluster.start_again_and_hear(1, &["--old-disks"], SERVES);
    cluster.start_again(0);
    cluster.until_whole();
    let mount = cluster.mount("again");
    for (name, fill) in [("after", 2), ("before", 3)] {
        let bytes = fs::read(mount.at(name)).unwrap();
        assert!(bytes.len() == 5_000_000 && bytes.iter().all(|byte| *byte == fill), "{name}");
    }
    drop(mount);
    cluster.succeed(&["fsck", "main"]);
}

/// Both ran under its number, and heartbeats of the one were taken for those of the other.
#[test]
fn a_server_whose_number_a_copy_of_it_has_taken_ends_and_is_looked_at_when_it_comes_back() {
    let mut cluster = Cluster::start(2);
    let (data, copied) = (cluster.data_of(0), cluster.data_of(0).with_file_name("copied"));
    let mut copying = std::process::Command::new("cp");
    assert!(copying.arg("-a").args([&data, &copied]).status().unwrap().success());
    let address = format!("127.0.0.1:{}", free_port());
    let (at, join) = (copied.display().to_string(), cluster.address.clone());
    let flags = ["server", "--roles", "storage", "--name", "copied", "--listen", &address];
    let flags = flags.into_iter().chain(["--data", &at, "--join", &join]);
    let flags: Vec<String> = flags.map(str::to_owned).collect();
    let log = copied.with_extension("log");
    let mut copy = Process::start(&flags, &log);
    cluster.until("both are named", |c| {
        let asks = format!("another process asks from {address} to join under its number");
        c.run(&["status"]).1.contains(&asks)
    });
    copy.stop();
    cluster.signal(0, "STOP");
    let mut copy = Process::start(&flags, &log);
    copy.wait_until_it_serves("the copy");
    cluster.signal(0, "CONT");
    let ends = format!(" ends: another process runs as server 2 at {address} now");
    assert_eq!(cluster.exit_code(0), Some(1), "{}", cluster.log(0));
    let log = cluster.log(0);
    assert!(log.contains("strake: the server at ") && log.contains(&ends), "{log}");
    copy.stop();
    cluster.start_again_and_hear(0, &[], "is older than when its server last started");
    cluster.start_again_and_hear(0, &["--old-disks"], SERVES);
    let target = data.join("target").display().to_string();
    cluster.until("it is back", |c| {
        c.targets().iter().any(|row| row["path"] == target.as_str() && row["state"] == "up")
    });
}
