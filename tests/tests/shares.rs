//! A volume of several shares as who uses its commands sees it.

use std::fs;
use std::path::Path;
use std::time::Duration;
use strake_tests::cluster::{eventually, run, succeed};
use strake_tests::owners::Cluster;

/// How long anything may take. Only a hang reaches it.
const WAIT: Duration = Duration::from_secs(60);
/// Files and directories that [`fill`] makes; one with two names counts once.
const ENTRIES: u64 = 1 + 6 * (3 + 2);

/// Directories below each other, small files and a large one, names of files in other directories than they were made in.
fn fill(root: &Path) {
    fs::create_dir(root).unwrap();
    for nth in 0..6 {
        let dir = root.join(format!("d{nth}"));
        fs::create_dir_all(dir.join("e/f")).unwrap();
        fs::write(dir.join("small"), nth.to_string()).unwrap();
        fs::write(dir.join("e/f/large"), vec![nth; 1_500_000]).unwrap();
        fs::hard_link(dir.join("small"), dir.join("e/f/again")).unwrap();
    }
}

fn refused(words: &str, arguments: &[&str]) {
    let output = run(arguments.iter().copied());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
}

/// The files of a volume, as `strake df` counts them.
fn counted(cluster: &Cluster) -> u64 {
    let said = succeed(["df", "--json", "--cluster", &cluster.address()]);
    let all: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let mut volumes = all.as_array().expect("a list").iter();
    let wide = volumes.find(|volume| volume["volume"] == "wide");
    wide.and_then(|wide| wide["inodes"].as_u64()).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn commands_without_a_mount_see_all_shares() {
    let cluster = Cluster::of_shares(5);
    let mount = cluster.mount("mnt");
    fill(&mount.at("tree"));
    let tree = format!("{}:/wide/tree", cluster.address());
    let names: Vec<_> = (0..6).map(|nth| format!("d{nth}")).collect();
    assert_eq!(succeed(["ls", &tree]).lines().collect::<Vec<_>>(), names);
    assert!(succeed(["stat", &format!("{tree}/d3/small")]).contains("links     2"));
    assert_eq!(succeed(["cat", &format!("{tree}/d4/e/f/again")]), "4");
    // It ends with 1 as long as a server is late with its heartbeat.
    eventually(WAIT, "why says that all is well with a file", || {
        let why = run(["why", &format!("{tree}/d5/e/f/large")]);
        assert!(String::from_utf8_lossy(&why.stdout).contains("/tree/d5/e/f/large"));
        why.status.success()
    });
    let sum = succeed(["du", "--json", &tree]);
    let sum: serde_json::Value = serde_json::from_str(&sum).unwrap();
    assert_eq!(sum[0]["entries"], ENTRIES, "{sum}");
    eventually(WAIT, "df counts the files of all shares", || {
        // And the root.
        counted(&cluster) == ENTRIES + 1
    });
    let copy = format!("{}:/wide/copy", cluster.address());
    succeed(["cp", "-r", &tree, &copy]);
    assert_eq!(fs::read(mount.at("copy/d2/e/f/large")).unwrap(), vec![2; 1_500_000]);
    succeed(["rm", "-r", &tree]);
    assert!(!mount.at("tree").exists());
    succeed(["rm", "-r", &copy]);
    eventually(WAIT, "nothing is left but the root", || counted(&cluster) == 1);
    drop(mount);
    cluster.fsck();
}

/// Each command has a session with each share, and ends all of them at once: each of them asked for two snapshots, of
/// which PostgreSQL's engine has 24 for all; what came of it were sessions that had ended and were begun anew.
#[test]
fn as_many_sessions_as_there_are_shares_end_at_once() {
    let cluster = Cluster::of_shares(64);
    let root = format!("{}:/wide", cluster.address());
    for nth in 0..3 {
        succeed(["cp", "/etc/hostname", &format!("{root}/file{nth}")]);
    }
    assert_eq!(succeed(["ls", &root]).lines().count(), 3);
    let left = succeed(["client", "list", "wide", "--json", "--cluster", &cluster.address()]);
    assert_eq!(left.trim(), "[]");
}

/// Asks for another number of copies of all files below a place, and for how it went.
fn recopy(place: &str, copies: u32, flags: &[&str]) -> serde_json::Value {
    let copies = copies.to_string();
    let verb = ["layout", "set", place, "--copies", &copies, "--existing", "--json"];
    let said = succeed(verb.into_iter().chain(flags.iter().copied()));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn files_of_all_shares_get_another_number_of_copies_and_directories_hand_it_down() {
    let cluster = Cluster::of_shares(4);
    let mount = cluster.mount("mnt");
    fill(&mount.at("tree"));
    let tree = format!("{}:/wide/tree", cluster.address());
    assert_eq!(recopy(&tree, 2, &["--dry-run"])["files"], 12);
    let done = recopy(&tree, 2, &[]);
    assert_eq!((&done["state"], &done["files"]), (&"done".into(), &12.into()), "{done}");
    assert_eq!(recopy(&tree, 2, &["--dry-run"])["files"], 0);
    for nth in 0..6 {
        let dir = mount.at(&format!("tree/d{nth}/e/f"));
        assert_eq!(fs::read(dir.join("large")).unwrap(), vec![nth; 1_500_000]);
        assert_eq!(fs::read_to_string(dir.join("again")).unwrap(), nth.to_string());
        fs::write(dir.join("made"), "x").unwrap();
    }
    assert_eq!(recopy(&tree, 1, &["--dry-run"])["files"], 18, "new files have as many");
    drop(mount);
    cluster.fsck();
}

#[test]
fn what_a_volume_of_several_shares_cannot_do_is_said() {
    let cluster = Cluster::of_shares(3);
    let address = cluster.address();
    let set = ["volume", "set", "wide", "--shares", "4", "--cluster", &address];
    refused("unexpected argument '--shares'", &set);
    let create = ["volume", "create", "wider", "--shares", "65", "--cluster", &address];
    refused("1 to 64 shares", &create);
}
