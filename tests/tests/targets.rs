//! Disks that are added to servers that run, over real processes: they are used at once, opened again after a
//! `kill -9`, and a directory that cannot be a new target is refused with the reason.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use strake_tests::cluster::{
    Mount, SERVES, Up, eventually, free_port, mount_memory, run, succeed, take_away,
};
use strake_tests::records::{Ledger, StopAtEnd};
use strake_tests::servers::{Cluster, WAIT};

const MIB: usize = 1 << 20;

fn write(mount: &Mount, name: &str, bytes: &[u8]) {
    let mut file = File::create(mount.at(name)).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Adds a target to a server; its number.
fn add(cluster: &Cluster, server: &str, dir: &Path) -> u64 {
    let added = cluster.json(&["target", "add", server, dir.to_str().unwrap()]);
    added["target"].as_u64().unwrap_or_else(|| panic!("it is added: {added}"))
}

fn row(cluster: &Cluster, target: u64) -> serde_json::Value {
    let targets = cluster.targets();
    targets.into_iter().find(|row| row["id"] == target).unwrap_or_default()
}

/// True while a process has something open in a directory.
fn is_open(dir: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let files = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
    let mut links = files.flatten().flatten().filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| link.starts_with(dir))
}

/// Where a disk may be added.
fn disk() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    (directory, disk)
}

#[test]
fn a_disk_added_to_a_running_server_is_used_and_is_there_again_after_a_kill() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let bytes: Vec<u8> = (0..16 * MIB).map(|at| (at / 4096 % 251) as u8).collect();
    write(&mount, "old", &bytes);
    let (_directory, disk) = disk();
    let mut ledger = Ledger::new(&mount.at("ledger"), 400);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        scope.spawn(|| ledger.write_until(&stop));
        let path = disk.to_str().unwrap();
        let dry = cluster.json(&["target", "add", "storage0", path, "--dry-run"]);
        assert!(dry["target"].is_null() && dry["free_bytes"].as_u64() > Some(0), "{dry}");
        assert_eq!(fs::read_dir(&disk).unwrap().count(), 0, "it was only looked at");
        assert_eq!(add(&cluster, "storage0", &disk), 3);
        cluster.until("it is up", |c| row(c, 3)["state"] == "up");
        assert_eq!(row(&cluster, 3)["server"], "storage0");
        assert!(row(&cluster, 3)["groups"].as_u64() >= Some(2), "it leads one of each class");
        // The metadata server may not have heard of the new groups yet.
        cluster.until("a new file lies there too", |_| {
            let _absent = fs::remove_file(mount.at("new"));
            write(&mount, "new", &bytes);
            let layout = mount.at("new");
            succeed(["layout", "get", layout.to_str().unwrap(), "--json", "--all"]).contains(path)
        });
        cluster.until("what there is may move there", |c| {
            c.json(&["rebalance", "--dry-run"])["groups"].as_u64() > Some(0)
        });
        let job = cluster.json(&["rebalance", "--wait"]);
        assert!(job["state"] == "done" && job["bytes_sent"].as_u64() > Some(0), "{job}");
    });
    let groups = row(&cluster, 3)["groups"].clone();
    cluster.kill(0);
    cluster.start_again(0);
    cluster.until_whole();
    assert_eq!((&row(&cluster, 3)["state"], &row(&cluster, 3)["groups"]), (&"up".into(), &groups));
    // Every copy that is left lies on the server that was given the disk.
    cluster.kill(1);
    drop(mount);
    let mount = cluster.mount("again");
    ledger.check(&mount.at("ledger"));
    for name in ["old", "new"] {
        assert!(fs::read(mount.at(name)).unwrap() == bytes, "{name}");
    }
}

/// Until its server was restarted it was open, had a part of the room that the other has, and was said not to be verified.
#[test]
fn a_target_that_leaves_is_closed_and_its_part_of_the_room_is_the_others_again() {
    let cluster = Cluster::start(2);
    let (_directory, disk) = disk();
    let free = |c: &Cluster| row(c, 1)["free_bytes"].as_u64().unwrap_or_default();
    cluster.until("its room is known", |c| free(c) > 0);
    let most = free(&cluster) / 3 * 2;
    assert_eq!(add(&cluster, "storage0", &disk), 3);
    cluster.until("they share the disk", |c| row(c, 3)["state"] == "up" && free(c) < most);
    assert!(is_open(&disk));
    assert_eq!(cluster.json(&["target", "remove", "3", "--wait"])["state"], "done");
    cluster.until("the room is the other's", |c| free(c) > most);
    let told = "target 3 has left the cluster and is closed";
    cluster.until("it is said", |c| c.log(0).contains(told));
    assert!(!is_open(&disk));
    // Without a restart its place is free.
    fs::remove_dir_all(disk.join("target")).unwrap();
    assert_eq!(add(&cluster, "storage0", &disk), 4);
    cluster.until("it is up", |c| row(c, 4)["state"] == "up");
    assert_eq!(cluster.log(0).matches(told).count(), 1, "{}", cluster.log(0));
    // There are as many groups as targets. Who names it has one made.
    assert_eq!(row(&cluster, 4)["groups"], 0);
    let told = cluster.succeed(&["target", "list"]);
    assert!(told.contains("come to target 4; strake rebalance"), "{told}");
    let mount = cluster.mount("mnt");
    let pinned = mount.at("pinned");
    fs::create_dir(&pinned).unwrap();
    cluster.succeed(&["layout", "set", "--targets", "4", pinned.to_str().unwrap()]);
    assert_eq!(row(&cluster, 4)["groups"], 1);
    write(&mount, "pinned/file", &vec![7_u8; MIB]);
}

#[test]
fn an_added_disk_that_left_is_not_missed_and_one_that_is_lost_can_be_left_out() {
    let mut cluster = Cluster::start(2);
    let (_first, disk_1) = disk();
    let (_second, disk_2) = disk();
    assert_eq!(add(&cluster, "storage0", &disk_1), 3);
    cluster.until("it is up", |c| row(c, 3)["state"] == "up");
    assert_eq!(cluster.json(&["target", "remove", "3", "--wait"])["state"], "done");
    cluster.kill(0);
    cluster.start_again(0);
    assert!(cluster.log(0).contains("not in the cluster any more"), "{}", cluster.log(0));
    let again = ["target", "add", "storage0", disk_1.to_str().unwrap()];
    let (code, said) = cluster.run(&again);
    assert!(code == Some(1) && said.contains("delete that directory"), "{said}");
    fs::remove_dir_all(disk_1.join("target")).unwrap();
    assert_eq!(add(&cluster, "storage0", &disk_1), 4, "no number is used twice");
    assert_eq!(add(&cluster, "storage0", &disk_2), 5);
    cluster.kill(0);
    fs::remove_dir_all(disk_2.join("target")).unwrap();
    let without = ["--without", disk_2.to_str().unwrap()];
    cluster.start_again_and_hear(0, &[], &without.join(" "));
    cluster.kill(0);
    cluster.start_again_and_hear(0, &without, SERVES);
    cluster.until("the other is there", |c| row(c, 4)["state"] == "up");
    cluster.until("the one that was left out is down", |c| row(c, 5)["state"] == "down");
    cluster.kill(0);
    cluster.start_again_and_hear(0, &["--new-disks"], "strake target replace 5 6");
    cluster.until("a new one is in its place", |c| row(c, 6)["state"] == "up");
}

/// It holds `node.json`, so that no flag can leave it out: its server never started again.
#[test]
fn a_server_starts_with_the_flags_it_had_after_the_target_of_its_first_directory_was_replaced() {
    let mut cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    let bytes = vec![7; 16 * MIB];
    write(&mount, "file", &bytes);
    let (_directory, disk) = disk();
    assert_eq!(add(&cluster, "storage0", &disk), 3);
    cluster.until("it is up", |c| row(c, 3)["state"] == "up");
    assert_eq!(cluster.json(&["target", "replace", "1", "3", "--wait"])["state"], "done");
    for told in ["holds target 1, which has left the cluster", "target 1 was in "] {
        cluster.kill(0);
        cluster.start_again(0);
        assert!(cluster.log(0).contains(told), "{}", cluster.log(0));
        cluster.until("it serves", |c| row(c, 3)["state"] == "up");
        let ids: Vec<_> = cluster.targets().iter().map(|row| row["id"].as_u64()).collect();
        assert_eq!(ids, [Some(2), Some(3)]);
        assert!(fs::read(mount.at("file")).unwrap() == bytes);
        let left = cluster.data_of(0).join("target");
        if left.exists() {
            fs::remove_dir_all(left).unwrap();
        }
    }
    // So does one that has no target any more.
    assert_eq!(cluster.json(&["target", "remove", "3", "--wait"])["state"], "done");
    cluster.kill(0);
    cluster.start_again(0);
}

#[test]
fn what_cannot_be_a_new_target_is_refused_with_the_reason_and_stays_as_it_is() {
    let mut cluster = Cluster::start(2);
    let other = Cluster::start(1);
    let (directory, empty) = disk();
    let place = |name: &str| directory.path().join(name);
    fs::create_dir(place("used")).unwrap();
    fs::write(place("used/letter"), "dear").unwrap();
    mount_memory(&place("small"), 4 << 20);
    mount_memory(&place("read-only"), 256 << 20);
    let flags = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(place("read-only"), flags, "").unwrap();
    let refused = |cluster: &Cluster, server: &str, dir: &Path, code: i32, why: &str| {
        for flags in [&["--dry-run"][..], &[]] {
            let verb = [&["target", "add", server, dir.to_str().unwrap()], flags].concat();
            let (exit, said) = cluster.run(&verb);
            let told = exit == Some(code) && said.contains(why) && said.contains("next:");
            assert!(told, "{verb:?}: {exit:?} {said}");
        }
    };
    let cases = [
        (cluster.data_of(0), 1, "is target 1 of this server already"),
        (cluster.data_of(1), 1, "holds target 2, which belongs to server storage1"),
        (other.data_of(0), 1, "holds target 1 of cluster "),
        (place("used"), 1, "holds other files, as letter"),
        (place("used/letter"), 1, "Not a directory"),
        (place("no/such"), 1, "does not exist on the server"),
        (place("small"), 1, "and a target takes"),
        (place("read-only"), 1, "cannot be written"),
        (PathBuf::from("relative"), 2, "is not an absolute path"),
    ];
    for (dir, code, why) in &cases {
        refused(&cluster, "storage0", dir, *code, why);
    }
    for name in ["small", "read-only"] {
        assert_eq!(fs::read_dir(place(name)).unwrap().count(), 0, "{name}");
        take_away(&place(name));
    }
    refused(&cluster, "nobody", &empty, 1, "no server is called nobody");
    let witness = cluster.json(&["server", "list"])[0]["name"].as_str().unwrap().to_owned();
    refused(&cluster, &witness, &empty, 1, "does not have the role storage");
    assert_eq!(cluster.targets().len(), 2);
    cluster.kill(1);
    cluster.until("it is down", |c| row(c, 2)["state"] == "down");
    refused(&cluster, "storage1", &empty, 1, "is down");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    // What was refused is not in the way of what is right.
    assert_eq!(add(&cluster, "2", &empty), 3, "no number was lost");
    cluster.kill(0);
    cluster.start_again(0);
    cluster.until("it is there again", |c| row(c, 3)["state"] == "up");
}

/// Its target waited for the mount and the mount for the target: nothing could be written, and no start of the server came to
/// its end.
#[test]
fn a_directory_in_a_mount_of_a_volume_gets_no_target() {
    let cluster = Cluster::start(1);
    let mount = cluster.mount("mnt");
    fs::create_dir(mount.at("disk")).unwrap();
    for name in ["disk", "new"] {
        let dir = mount.at(name);
        let (code, said) = cluster.run(&["target", "add", "storage0", dir.to_str().unwrap()]);
        assert!(code == Some(1) && said.contains("lies in a Strake mount"), "{name}: {said}");
    }
    let (listen, disk) = (format!("127.0.0.1:{}", free_port()), mount.at("disk"));
    #[rustfmt::skip]
    let server = [
        "server", "--listen", &listen, "--roles", "storage", "--join", &cluster.address, "--name",
        "inside", "--data", disk.to_str().unwrap(),
    ];
    let output = run(server);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("lies in a Strake mount"), "{said}");
    assert_eq!(cluster.targets().len(), 1);
    write(&mount, "file", b"written as ever");
}

#[test]
fn a_file_system_of_one_process_gets_a_disk_too() {
    let mut up = Up::start(&[]);
    let (_directory, disk) = disk();
    let address = format!("unix:{}", up.data().join("strake.sock").display());
    // None where nobody answers yet.
    let list = || {
        let targets = run(["target", "list", "--json", "--cluster", &address]).stdout;
        let targets: serde_json::Value = serde_json::from_slice(&targets).unwrap_or_default();
        targets.as_array().into_iter().flatten().filter(|row| row["state"] == "up").count()
    };
    assert_eq!(list(), 4);
    succeed(["target", "add", "1", disk.to_str().unwrap(), "--cluster", &address]);
    eventually(WAIT, "it is up", || list() == 5);
    let bytes = vec![7; 16 * MIB];
    fs::write(up.mount().join("file"), &bytes).unwrap();
    up.stop();
    up.start_again();
    eventually(WAIT, "it is up again", || list() == 5);
    assert!(fs::read(up.mount().join("file")).unwrap() == bytes);
}

/// It was fine for as long as the server ran, and what was synced into it was gone with the next start.
#[test]
fn a_target_whose_directory_is_moved_or_removed_under_its_server_is_named_by_status() {
    let cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let bytes = vec![7; 4 * MIB];
    write(&mount, "before", &bytes);
    cluster.until_whole();
    let [target, aside] = ["target", "aside"].map(|name| cluster.data_of(0).join(name));
    let says = |c: &Cluster, words: &str| c.run(&["status"]).1.contains(words);
    fs::rename(&target, &aside).unwrap();
    cluster.until("it is named", |c| says(c, "is not where it was: its directory was moved"));
    write(&mount, "meanwhile", &bytes);
    fs::rename(&aside, &target).unwrap();
    cluster.until_whole();
    // Its server may make a file meanwhile.
    cluster.until("it is removed", |_| fs::remove_dir_all(&target).is_ok());
    cluster.until("it is named", |c| says(c, "takes no writes: its directory was removed"));
    assert!(says(&cluster, "strake target replace 1 NEW"));
    write(&mount, "after", &bytes);
    for name in ["before", "meanwhile", "after"] {
        assert!(fs::read(mount.at(name)).unwrap() == bytes, "{name}");
    }
    let log = cluster.log(0);
    for words in ["the directory was moved", "is where it was again", "the directory was removed"] {
        assert_eq!(log.matches(words).count(), 1, "{words}: {log}");
    }
}
