//! Removals and renames that a mount has answered before its metadata server has heard of them (S-018): the server, the mount
//! and whoever looks meanwhile are processes of their own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use strake_tests::cluster::{Mount, Servers, eventually, signal, succeed};

/// Only something that never comes reaches it.
const WAIT: Duration = Duration::from_secs(120);
/// Files that are changed.
const FILES: u32 = 20;
/// For so long nobody else has been in a directory that a mount has for itself.
const ALONE: Duration = Duration::from_millis(2_500);

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A directory of files that this mount has made.
fn fill(mount: &Mount) {
    fs::create_dir(mount.at("d")).unwrap();
    (0..FILES).for_each(|nth| fs::write(mount.at(&format!("d/{nth}")), "contents").unwrap());
}

/// Just before it is removed: what is not used for a second the mount does not have for itself any more.
fn make_empty(mount: &Mount) {
    fs::create_dir(mount.at("d/empty")).unwrap();
}

/// An empty directory and every second file are removed, and the others get another name, while the server stands still.
fn change(servers: &mut Servers, mount: &Mount) {
    let server = servers.server().pid();
    make_empty(mount);
    signal(server, "STOP");
    let dir = mount.at("d");
    let changes = thread::spawn(move || {
        fs::remove_dir(dir.join("empty")).unwrap();
        for nth in 0..FILES {
            let path = dir.join(nth.to_string());
            match nth % 2 {
                0 => fs::remove_file(path).unwrap(),
                _ => fs::rename(path, dir.join(format!("new{nth}"))).unwrap(),
            }
        }
    });
    eventually(WAIT, "changes are answered while no server is there", || changes.is_finished());
    changes.join().unwrap();
}

fn changed() -> BTreeSet<String> {
    (0..FILES).filter(|nth| nth % 2 == 1).map(|nth| format!("new{nth}")).collect()
}

#[test]
fn what_was_changed_while_the_server_stood_still_outlasts_unmounting() {
    let mut servers = Servers::start();
    let mut mount = servers.mount("a", "");
    fill(&mount);
    change(&mut servers, &mount);
    assert!(!mount.at("d/0").exists() && mount.at("d/new1").exists());
    succeed(["umount", mount.path().to_str().unwrap()]);
    signal(servers.server().pid(), "CONT");
    assert_eq!(mount.process().exit_code(), Some(0), "{}", mount.process().log());
    let again = servers.mount("again", "");
    assert_eq!(names(&again.at("d")), changed());
    assert!(!mount.process().log().contains("was answered"), "{}", mount.process().log());
}

#[test]
fn who_looks_after_the_server_was_killed_sees_what_was_changed_before() {
    let mut servers = Servers::start();
    let (mount, other) = (servers.mount("a", ""), servers.mount("b", ""));
    fill(&mount);
    assert_eq!(names(&other.at("d")).len(), FILES as usize);
    // What the other knows of it is recalled, and nobody is there after that.
    fs::write(mount.at("d/alone"), "").unwrap();
    thread::sleep(ALONE);
    fs::remove_file(mount.at("d/alone")).unwrap();
    change(&mut servers, &mount);
    servers.kill();
    servers.start_again();
    assert_eq!(names(&other.at("d")), changed());
    assert_eq!(names(&mount.at("d")), changed());
}

#[test]
fn a_mount_that_is_told_to_writes_no_names_behind() {
    let mut servers = Servers::start();
    let mount = servers.mount("a", "sync_names");
    fill(&mount);
    signal(servers.server().pid(), "STOP");
    let removed = {
        let path = mount.at("d/0");
        thread::spawn(move || fs::remove_file(path))
    };
    thread::sleep(Duration::from_secs(1));
    let waits = !removed.is_finished();
    signal(servers.server().pid(), "CONT");
    removed.join().unwrap().unwrap();
    assert!(waits, "it was answered without a server");
}
