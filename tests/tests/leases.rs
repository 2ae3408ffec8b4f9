//! What mounts of one volume know without asking, and how they learn that it is no longer so: each mount
//! a process of its own, and their server another.

use rustix::fs::{AtFlags, Timespec, Timestamps, futimens, utimensat};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use strake_tests::cluster::{Mount, Servers, counted, eventually, free_port, signal, succeed};

/// Only something that never comes reaches it.
const WAIT: Duration = Duration::from_secs(120);

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

/// On a local file system, too, there is nothing in a directory that was removed; the kernel shows ESTALE to
/// whoever is told ESTALE twice.
#[test]
fn in_a_directory_that_another_mount_has_removed_nothing_is_found_or_made() {
    use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
    use rustix::io::Errno;
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::create_dir(a.at("d")).unwrap();
    let gone = fs::File::open(b.at("d")).unwrap();
    let root = fs::File::open(b.path()).unwrap();
    fs::write(b.at("f"), "x").unwrap();
    fs::remove_dir(a.at("d")).unwrap();
    let mode = Mode::from_raw_mode(0o755);
    let none = AtFlags::empty();
    assert_eq!(statat(&gone, "x", none).unwrap_err(), Errno::NOENT);
    assert_eq!(openat(&gone, "x", OFlags::CREATE | OFlags::RDWR, mode).unwrap_err(), Errno::NOENT);
    assert_eq!(mkdirat(&gone, "x", mode).unwrap_err(), Errno::NOENT);
    assert_eq!(unlinkat(&gone, "x", none).unwrap_err(), Errno::NOENT);
    assert_eq!(renameat(&root, "f", &gone, "x").unwrap_err(), Errno::NOENT);
    assert_eq!(rustix::fs::linkat(&root, "f", &gone, "x", none).unwrap_err(), Errno::NOENT);
    let mut listing = rustix::fs::Dir::read_from(&gone).unwrap();
    assert!(listing.next().is_none());
}

/// The kernel takes a directory over from the place where it knew it under locks that a rename between
/// directories holds itself.
#[test]
fn a_directory_that_another_mount_has_moved_is_replaced_once_it_was_looked_at() {
    use rustix::io::Errno;
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    for name in ["d1", "d2", "d1/moved", "d1/own"] {
        fs::create_dir(a.at(name)).unwrap();
    }
    assert!(fs::metadata(b.at("d1/moved")).is_ok() && fs::metadata(b.at("d1/own")).is_ok());
    fs::rename(a.at("d1/moved"), a.at("d2/moved")).unwrap();
    if let Err(error) = rustix::fs::rename(b.at("d1/own"), b.at("d2/moved")) {
        assert_eq!(error, Errno::STALE);
        assert!(b.at("d1/own").exists(), "nothing was done");
        fs::metadata(b.at("d2/moved")).unwrap();
        fs::rename(b.at("d1/own"), b.at("d2/moved")).unwrap();
    }
    assert!(names(&a.at("d1")).is_empty() && names(&a.at("d2")) == ["moved".to_owned()].into());
}

/// How often the metadata server has been asked for something of these names.
fn asked(metrics: &str, ops: &[&str]) -> u64 {
    counted_of(metrics, "strake_meta_ops_total{", ops)
}

/// How often something of these names is counted.
fn counted_of(metrics: &str, counter: &str, ops: &[&str]) -> u64 {
    let of = |line: &str| ops.iter().any(|op| line.contains(&format!("op=\"{op}\"")));
    counted(metrics, |line| line.starts_with(counter) && of(line))
}

#[test]
fn what_is_known_is_looked_at_again_without_asking_the_server() {
    let (servers, metrics) = Servers::start_counted();
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
    // Until leases have been kept alive several times over. On a busy machine they may end in between, and the
    // next look asks: from then on it counts anew.
    let (mut before, mut enough) = (looks(), recalls() + 10);
    eventually(WAIT, "ten requests for recalls and no look that is asked for", || {
        look();
        if looks() != before {
            (before, enough) = (looks(), recalls() + 10);
        }
        recalls() >= enough
    });
}

/// A kernel looks a name up before it makes it, or renames something to it.
#[test]
fn what_is_new_in_a_directory_that_was_made_or_listed_is_not_looked_up_at_the_server() {
    let (servers, metrics) = Servers::start_counted();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::create_dir(b.at("listed")).unwrap();
    (0..3).for_each(|nth| fs::write(b.at(&format!("listed/{nth}")), "x").unwrap());
    let mut round = 0;
    // On a busy machine leases may end before they are kept alive.
    eventually(WAIT, "names that are made without a look", || {
        round += 1;
        let made = format!("made{round}");
        fs::create_dir(a.at(&made)).unwrap();
        names(&a.at("listed"));
        let before = asked(&metrics, &["lookup"]);
        for directory in [made.as_str(), "listed"] {
            let at = |name: &str| a.at(&format!("{directory}/{round}{name}"));
            fs::create_dir(at("d")).unwrap();
            fs::write(at("f"), "x").unwrap();
            fs::rename(at("f"), at("g")).unwrap();
            fs::rename(at("g"), at("d/h")).unwrap();
            assert!(is_missing(&at("f")) && is_missing(&at("g")) && is_missing(&at("d/i")));
            assert_eq!(fs::read(at("d/h")).unwrap(), b"x");
        }
        asked(&metrics, &["lookup"]) == before
    });
    for directory in ["listed", "made1", "listed/1d"] {
        let name = format!("{directory}/new");
        assert!(is_missing(&a.at(&name)));
        fs::write(b.at(&name), "new").unwrap();
        assert_eq!(fs::read(a.at(&name)).unwrap(), b"new");
    }
}

/// How many messages servers have got, but for those that keep leases and sessions alive.
fn messages(metrics: &str) -> u64 {
    let alive = |line: &str| {
        ["recalls", "renew_session"].iter().any(|op| line.contains(&format!("op=\"{op}\"")))
    };
    counted(metrics, |line| {
        line.starts_with("strake_storage_ops_total{")
            || line.starts_with("strake_meta_ops_total{") && !alive(line)
    })
}

/// What git prints, wherever it is used and by whom.
fn git(repository: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]);
    command.args(["-c", "maintenance.auto=false", "-c", "gc.auto=0", "-C"]).arg(repository);
    let output = command.args(arguments).output().expect("git is there");
    assert!(output.status.success(), "git {arguments:?}: {}", output.stderr.escape_ascii());
    String::from_utf8(output.stdout).unwrap()
}

/// Without its optional lock: `.git/index.lock` is made and removed by messages.
#[test]
fn git_status_asks_for_nothing_the_second_time() {
    let (servers, metrics) = Servers::start_counted();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let repository = a.at("repository");
    for nth in 0..150 {
        let directory = repository.join(format!("{}/{}", nth / 10, nth % 10));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..10 {
            fs::write(directory.join(format!("file{file}")), file.to_string()).unwrap();
        }
    }
    fs::write(repository.join(".gitignore"), "*.o\n").unwrap();
    // Git looks into files again that were changed in the second in which it has written its index.
    std::thread::sleep(Duration::from_millis(1_100));
    git(&repository, &["init", "--quiet"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "-m", "all"]);
    fs::write(repository.join("3/7/new"), "").unwrap();
    let status = || git(&repository, &["--no-optional-locks", "status", "--porcelain"]);
    assert_eq!(status(), "?? 3/7/new\n");
    // On a busy machine leases may end before they are kept alive.
    eventually(WAIT, "a `git status` that asks for nothing", || {
        let before = messages(&metrics);
        assert_eq!(status(), "?? 3/7/new\n");
        messages(&metrics) == before
    });
    fs::write(b.at("repository/12/4/other"), "").unwrap();
    assert_eq!(status(), "?? 12/4/other\n?? 3/7/new\n");
}

/// What unpacks an archive sets the times of each file, the owner that it has already, and its mode: each was a message of its own.
#[test]
fn times_that_are_set_after_a_write_are_told_with_it() {
    let (servers, metrics) = Servers::start_counted();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let times =
        |stat: &fs::Metadata| (stat.mtime(), stat.mtime_nsec(), stat.atime(), stat.atime_nsec());
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 7 };
    let set = Timestamps { last_access: time(1_000_000_000), last_modification: time(900_000_000) };
    for (name, length) in [("small", 100), ("large", 300_000)] {
        // On a busy machine what is written may be told before the times are set, and leases may end.
        eventually(WAIT, "times that cost no message", || {
            let file = fs::File::create(a.at(name)).unwrap();
            fs::set_permissions(a.at(name), fs::Permissions::from_mode(0o640)).unwrap();
            file.write_all_at(&vec![1; length], 0).unwrap();
            let (written, before) = (file.metadata().unwrap(), asked(&metrics, &["setattr"]));
            futimens(&file, &set).unwrap();
            fchown(&file, Some(written.uid()), Some(written.gid())).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
            let after = asked(&metrics, &["setattr"]);
            let shown = file.metadata().unwrap();
            assert_eq!(times(&shown), (900_000_000, 7, 1_000_000_000, 7));
            let changed = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
            assert!(changed(&shown) > changed(&written));
            // Who may do what is told at once.
            file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(mode(&b.at(name)), 0o600);
            // Small contents go with it.
            let spared = length > 1_000 || asked(&metrics, &["setattr"]) == before;
            let shown = file.metadata().unwrap();
            drop(file);
            for mount in [&a, &b] {
                let told = fs::metadata(mount.at(name)).unwrap();
                assert_eq!(times(&told), times(&shown));
                assert_eq!((changed(&told), told.len()), (changed(&shown), length as u64));
            }
            after == before && spared
        });
        let file = fs::File::options().write(true).open(a.at(name)).unwrap();
        file.write_all_at(b"2", 0).unwrap();
        futimens(&file, &set).unwrap();
        file.write_all_at(b"3", 1).unwrap();
        // The present is the server's.
        let before = asked(&metrics, &["setattr"]);
        let (now, omit) = (rustix::fs::UTIME_NOW, rustix::fs::UTIME_OMIT);
        let [last_modification, last_access] =
            [now, omit].map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
        futimens(&file, &Timestamps { last_access, last_modification }).unwrap();
        assert!(asked(&metrics, &["setattr"]) > before);
        drop(file);
        let stat = fs::metadata(b.at(name)).unwrap();
        assert!(stat.mtime() > 1_000_000_000 && stat.atime() == 1_000_000_000);
    }
}

/// What another mount sets, or writes, after that is not taken back by what is told later.
#[test]
fn times_that_others_set_stand_over_those_that_were_held_back() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let stat = |mount: &Mount, name: &str| fs::metadata(mount.at(name)).unwrap();
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let set = |file: &fs::File, last_access, last_modification| {
        futimens(file, &Timestamps { last_access, last_modification }).unwrap();
    };
    for round in 0..20 {
        let name = format!("f{round}");
        let file = fs::File::create(a.at(&name)).unwrap();
        let directory = fs::File::open(b.path()).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        set(&file, time(1_000), time(2_000));
        let (atime, mtime) = if round % 2 == 0 { (time(3_000), omit) } else { (omit, time(3_000)) };
        let by_name = Timestamps { last_access: atime, last_modification: mtime };
        utimensat(&directory, &name, &by_name, AtFlags::empty()).unwrap();
        drop(file);
        let expected = if round % 2 == 0 { (3_000, 2_000) } else { (1_000, 3_000) };
        for mount in [&a, &b] {
            let stat = stat(mount, &name);
            assert_eq!((stat.atime(), stat.mtime()), expected, "{name}");
        }
    }
    // Here nobody is asked before another one writes.
    let relaxed = a.at("relaxed");
    fs::create_dir(&relaxed).unwrap();
    succeed(["layout", "set", relaxed.to_str().unwrap(), "--consistency", "close-to-open"]);
    let file = fs::File::create(a.at("relaxed/f")).unwrap();
    let other = fs::File::options().write(true).open(b.at("relaxed/f")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    set(&file, omit, time(2_000));
    set(&other, omit, time(3_000));
    drop((file, other));
    assert_eq!(stat(&b, "relaxed/f").mtime(), 3_000);
}

#[test]
fn what_a_listing_shows_a_kernel_looks_at_without_asking_the_mount() {
    const FILES: u64 = 300;
    let metrics = format!("127.0.0.1:{}", free_port());
    let servers = Servers::start();
    let a = servers.mount("a", &format!("metrics={metrics}"));
    for file in 0..FILES {
        fs::File::create(a.at(&format!("file{file}"))).unwrap();
    }
    // On a busy machine a listing may take longer than names are believed.
    eventually(WAIT, "a listing that spares looks", || {
        let before = counted_of(&metrics, "strake_fuse_ops_total{", &["lookup", "getattr"]);
        let listed = fs::read_dir(a.path()).unwrap();
        assert_eq!(listed.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>(), 0);
        counted_of(&metrics, "strake_fuse_ops_total{", &["lookup", "getattr"]) - before < FILES / 4
    });
}

#[test]
fn what_was_open_is_opened_and_read_again_without_asking_the_server() {
    let (servers, metrics) = Servers::start_counted();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    // Inside the inode, and on the targets.
    let contents = |round: u8| [vec![round; 100], vec![round; 300_000]];
    let read = |mount: &Mount| [fs::read(mount.at("small")), fs::read(mount.at("large"))];
    let write = |mount: &Mount, round| {
        let [small, large] = contents(round);
        fs::write(mount.at("small"), small).unwrap();
        fs::write(mount.at("large"), large).unwrap();
    };
    write(&a, 0);
    for round in 0..4 {
        let (own, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        for mount in [own, other] {
            assert_eq!(read(mount).map(Result::unwrap), contents(round), "round {round}");
        }
        // On a busy machine leases may end before they are kept alive.
        eventually(WAIT, "reads that ask for nothing", || {
            let opens = asked(&metrics, &["open", "read_inline", "getattr"]);
            for mount in [own, other].into_iter().cycle().take(20) {
                assert_eq!(read(mount).map(Result::unwrap), contents(round), "round {round}");
            }
            asked(&metrics, &["open", "read_inline", "getattr"]) == opens
        });
        // Whoever opens after this sees it.
        write(other, round + 1);
    }
}

#[test]
fn what_another_mount_removes_is_gone_although_a_close_is_deferred() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    let used = || {
        let stat = rustix::fs::statvfs(a.at(".")).unwrap();
        stat.f_files - stat.f_ffree
    };
    let before = used();
    for name in ["f", "g", "h", "i"] {
        fs::write(a.at(name), vec![1; 200_000]).unwrap();
        for mount in [&a, &b] {
            assert_eq!(fs::read(mount.at(name)).unwrap().len(), 200_000);
        }
    }
    let open = fs::File::open(a.at("f")).unwrap();
    fs::remove_file(b.at("f")).unwrap();
    fs::remove_file(a.at("g")).unwrap();
    fs::rename(a.at("h"), a.at("i")).unwrap();
    fs::remove_file(b.at("i")).unwrap();
    assert!(["f", "g", "h", "i"].iter().all(|name| fs::File::open(a.at(name)).is_err()));
    // An open file lives on; nothing else does.
    assert_eq!(open.metadata().unwrap().len(), 200_000);
    eventually(WAIT, "something that is closed is kept", || used() == before + 1);
    drop(open);
    eventually(WAIT, "what was closed last is kept", || used() == before);
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

/// The kernel takes a name that it believes for a moment along into the other directory.
#[test]
fn a_name_that_was_moved_to_another_directory_is_believed_no_longer_than_others_there() {
    let servers = Servers::start();
    let (a, b) = (servers.mount("a", ""), servers.mount("b", ""));
    for round in 0..6 {
        let at = |mount: &Mount, name: &str| mount.at(&format!("r{round}/{name}"));
        fs::create_dir(b.at(&format!("r{round}"))).unwrap();
        for dir in ["from", "to"] {
            fs::create_dir(at(&b, dir)).unwrap();
        }
        fs::write(at(&b, "from/f"), "").unwrap();
        fs::write(at(&b, "to/g"), "").unwrap();
        // All moments are over; then one begins in the one directory.
        std::thread::sleep(Duration::from_millis(150));
        assert!(!is_missing(&at(&b, "from/f")));
        fs::rename(at(&b, "from/f"), at(&b, "to/f")).unwrap();
        fs::remove_file(at(&a, "to/f")).unwrap();
        assert!(is_missing(&at(&b, "to/f")), "round {round}");
    }
}

fn sessions(metrics: &str) -> u64 {
    counted(metrics, |line| line.starts_with("strake_meta_sessions "))
}

#[test]
fn a_mount_whose_session_was_lost_believes_nothing_of_before() {
    let (servers, metrics) = Servers::start_counted();
    let (a, mut b) = (servers.mount("a", ""), servers.mount("b", ""));
    fs::write(a.at("f"), "x").unwrap();
    assert_eq!((names(&b.at(".")).len(), mode(&b.at("f"))), (1, 0o644));
    assert!(is_missing(&b.at("g")));
    let pid = b.process().pid();
    signal(pid, "STOP");
    // Its session ends when nothing was heard of it for 30 s.
    eventually(WAIT, "the session ends", || sessions(&metrics) == 1);
    fs::rename(a.at("f"), a.at("g")).unwrap();
    set_mode(&a.at("g"), 0o600);
    signal(pid, "CONT");
    assert!(is_missing(&b.at("f")));
    assert_eq!((names(&b.at(".")), mode(&b.at("g"))), (["g".to_owned()].into(), 0o600));
}
