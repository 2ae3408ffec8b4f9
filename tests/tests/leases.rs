//! What mounts of one volume know without asking, and how they learn that it is no longer so: each mount
//! a process of its own, and their server another.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use strake_tests::cluster::{Servers, free_port, http_get, signal};

/// Only something that never comes reaches it.
const WAIT: Duration = Duration::from_secs(60);

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything is looked at by one mount, changed by the other, and looked at again.
#[test]
fn what_one_mount_changes_another_sees_at_once() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    for (round, (own, other)) in [(&a, &b), (&b, &a)].into_iter().cycle().take(8).enumerate() {
        let dir = format!("d{round}");
        let (changed, seen) = (own.at(&dir), other.at(&dir));
        assert!(is_missing(&seen));
        fs::create_dir(&changed).unwrap();
        assert_eq!(names(&seen), BTreeSet::new());
        assert!(is_missing(&seen.join("f")));
        fs::write(changed.join("f"), "12345").unwrap();
        assert_eq!(fs::metadata(seen.join("f")).unwrap().len(), 5);
        assert_eq!(names(&seen), ["f".to_owned()].into());
        let before = fs::metadata(&seen).unwrap();
        for bits in [0o600, 0o644, 0o755] {
            set_mode(&changed.join("f"), bits);
            assert_eq!(mode(&seen.join("f")), bits);
        }
        set_mode(&changed, 0o711);
        assert_eq!(mode(&seen), 0o711);
        fs::create_dir(changed.join("sub")).unwrap();
        assert_eq!(fs::metadata(&seen).unwrap().nlink(), before.nlink() + 1);
        fs::rename(changed.join("f"), changed.join("sub/g")).unwrap();
        assert!(is_missing(&seen.join("f")));
        assert_eq!(fs::metadata(seen.join("sub/g")).unwrap().len(), 5);
        assert_eq!(names(&seen.join("sub")), ["g".to_owned()].into());
        fs::hard_link(changed.join("sub/g"), changed.join("h")).unwrap();
        assert_eq!(fs::metadata(seen.join("sub/g")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(seen.join("h")).unwrap().nlink(), 2);
        fs::remove_file(changed.join("sub/g")).unwrap();
        assert!(is_missing(&seen.join("sub/g")));
        assert_eq!(fs::metadata(seen.join("h")).unwrap().nlink(), 1);
        fs::rename(changed.join("sub"), changed.join("moved")).unwrap();
        assert!(is_missing(&seen.join("sub")) && names(&seen.join("moved")).is_empty());
        std::os::unix::fs::symlink("one", changed.join("link")).unwrap();
        assert_eq!(fs::read_link(seen.join("link")).unwrap(), Path::new("one"));
        fs::remove_file(changed.join("link")).unwrap();
        std::os::unix::fs::symlink("two", changed.join("link")).unwrap();
        assert_eq!(fs::read_link(seen.join("link")).unwrap(), Path::new("two"));
    }
}

/// Who looks by its open directory or file looks past names.
#[test]
fn attributes_of_what_is_open_are_seen_at_once() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("f"), "1").unwrap();
    let open = fs::File::open(b.at("f")).unwrap();
    for length in 2..20u64 {
        assert_eq!(open.metadata().unwrap().len(), length - 1);
        let file = fs::File::options().write(true).open(a.at("f")).unwrap();
        file.set_len(length).unwrap();
        drop(file);
        assert_eq!(open.metadata().unwrap().len(), length);
    }
}

#[test]
fn a_directory_that_another_mount_removed_stays_for_who_has_it_open() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::create_dir(a.at("d")).unwrap();
    let open = fs::File::open(b.at("d")).unwrap();
    let inode = open.metadata().unwrap().ino();
    fs::remove_dir(a.at("d")).unwrap();
    for _ in 0..3 {
        let gone = open.metadata().unwrap();
        assert_eq!((gone.ino(), gone.nlink()), (inode, 0));
    }
    assert!(is_missing(&b.at("d")));
}

/// How often the metadata server has been asked for something of these names.
fn asked(metrics: &str, ops: &[&str]) -> u64 {
    let page = http_get(metrics, "/metrics");
    let lines = page.lines().filter(|line| line.starts_with("strake_meta_ops_total{"));
    let of = |line: &&str| ops.iter().any(|op| line.contains(&format!("op=\"{op}\"")));
    lines.filter(of).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn what_is_known_is_looked_at_again_without_asking_the_server() {
    let metrics = format!("127.0.0.1:{}", free_port());
    let servers = Servers::start_with(&["--metrics".into(), metrics.clone()]);
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::create_dir(a.at("d")).unwrap();
    for nth in 0..20 {
        fs::write(a.at(&format!("d/f{nth}")), "x").unwrap();
    }
    let look = || {
        for mount in [&a, &b] {
            assert_eq!(names(&mount.at("d")).len(), 20);
            let length = |nth: u32| fs::metadata(mount.at(&format!("d/f{nth}"))).unwrap().len();
            assert!((0..20).all(|nth| length(nth) == 1));
            assert!(is_missing(&mount.at("d/none")));
        }
    };
    (0..3).for_each(|_| look());
    let looks = || asked(&metrics, &["lookup", "getattr", "readdir"]);
    let recalls = || asked(&metrics, &["recalls"]);
    // Until leases have been kept alive several times over.
    let (before, enough, end) = (looks(), recalls() + 10, Instant::now() + WAIT);
    while recalls() < enough {
        assert!(Instant::now() < end, "recalls are not asked for");
        look();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(looks(), before);
}

#[test]
fn a_mount_that_hangs_delays_changes_only_as_long_as_its_lease() {
    let servers = Servers::start();
    let (a, mut b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("f"), "x").unwrap();
    assert_eq!(fs::metadata(b.at("f")).unwrap().len(), 1);
    assert!(is_missing(&b.at("g")));
    let pid = b.process().pid();
    signal(pid, "STOP");
    // Would it wait for the mount, it would wait until the test is over.
    fs::write(a.at("g"), "12").unwrap();
    set_mode(&a.at("f"), 0o600);
    signal(pid, "CONT");
    assert_eq!((fs::metadata(b.at("g")).unwrap().len(), mode(&b.at("f"))), (2, 0o600));
}

#[test]
fn after_a_restart_of_the_server_no_mount_believes_what_was_before() {
    let mut servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("f"), "x").unwrap();
    for round in 1..4u32 {
        assert_eq!(fs::metadata(b.at("f")).unwrap().len(), u64::from(round));
        let name = format!("g{round}");
        assert!(is_missing(&b.at(&name)));
        servers.kill();
        servers.start_again();
        fs::write(a.at("f"), vec![b'x'; round as usize + 1]).unwrap();
        fs::write(a.at(&name), "").unwrap();
        set_mode(&a.at("f"), 0o600 + round);
        assert_eq!(mode(&b.at("f")), 0o600 + round);
        assert!(!is_missing(&b.at(&name)));
    }
}

/// Two mounts change the same names as fast as they can, and what each is told fits together.
#[test]
fn of_names_that_two_mounts_change_each_sees_the_last_state() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::create_dir(a.at("d")).unwrap();
    std::thread::scope(|scope| {
        for (own, mount) in [("a", &a), ("b", &b)] {
            scope.spawn(move || {
                for nth in 0..150 {
                    let (mine, moved) = (format!("d/{own}{nth}"), format!("d/{own}{nth}-moved"));
                    fs::write(mount.at(&mine), "").unwrap();
                    assert!(!is_missing(&mount.at(&mine)) && is_missing(&mount.at(&moved)));
                    fs::rename(mount.at(&mine), mount.at(&moved)).unwrap();
                    assert!(is_missing(&mount.at(&mine)) && !is_missing(&mount.at(&moved)));
                    if nth % 3 > 0 {
                        fs::remove_file(mount.at(&moved)).unwrap();
                        assert!(is_missing(&mount.at(&moved)));
                    }
                }
            });
        }
    });
    assert_eq!((names(&a.at("d")), names(&a.at("d")).len()), (names(&b.at("d")), 100));
}

fn sessions(metrics: &str) -> u64 {
    let page = http_get(metrics, "/metrics");
    let line = page.lines().find(|line| line.starts_with("strake_meta_sessions "));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
}

#[test]
fn a_mount_whose_session_was_lost_believes_nothing_of_before() {
    let metrics = format!("127.0.0.1:{}", free_port());
    let servers = Servers::start_with(&["--metrics".into(), metrics.clone()]);
    let (a, mut b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("f"), "x").unwrap();
    assert_eq!((names(&b.at(".")).len(), mode(&b.at("f"))), (1, 0o644));
    assert!(is_missing(&b.at("g")));
    let (pid, end) = (b.process().pid(), Instant::now() + WAIT);
    signal(pid, "STOP");
    // Its session ends when nothing was heard of it for 30 s.
    while sessions(&metrics) != 1 {
        assert!(Instant::now() < end, "the session goes on");
        std::thread::sleep(Duration::from_millis(200));
    }
    fs::rename(a.at("f"), a.at("g")).unwrap();
    set_mode(&a.at("g"), 0o600);
    signal(pid, "CONT");
    assert!(is_missing(&b.at("f")));
    assert_eq!((names(&b.at(".")), mode(&b.at("g"))), (["g".to_owned()].into(), 0o600));
}
