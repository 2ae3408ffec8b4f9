//! `strake fsck` over real processes: clean under load, and damage that is made while the servers are
//! stopped is found, named, mended, and not found a second time.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_base::disk::{Disk, RealDisk};
use strake_base::random::SplitMix64;
use strake_engine::chunk::{ChunkOptions, ChunkStore};
use strake_tests::cluster::{Servers, run};
use strake_tests::records::StopAtEnd;
use strake_tests::servers::Cluster;
use strake_tests::stores;
use strake_types::{ChunkId, ChunkIndex, ErrorKind, Ino, VolumeId};
use strake_wire::frame::crc32c;

/// How often servers are away for a moment at most.
const TRIES_MAX: usize = 10;

fn fsck(address: &str, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let arguments = ["fsck", "--json", "--cluster", address];
    let output = run(arguments.into_iter().chain(flags.iter().copied()));
    let report = serde_json::from_slice(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), report.unwrap_or_else(|e| panic!("{e}: {error}")))
}

/// The same, again where nothing was found but a server was away, as one may be for a moment on a busy machine.
fn whole_fsck(cluster: &Cluster, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut last = serde_json::Value::Null;
    for _ in 0..TRIES_MAX {
        let (code, report) = fsck(&cluster.address, flags);
        if !found(&report).is_empty() || !lacks_only_servers(&report) {
            return (code, report);
        }
        last = report;
        cluster.until_whole();
    }
    panic!("a server is always away: {last}");
}

/// True if something was not looked at, and all that because a server was away or did not answer in time.
fn lacks_only_servers(report: &serde_json::Value) -> bool {
    let skipped = report["skipped"].as_array().unwrap();
    use ErrorKind::{NotCurrent, StaleMap, TimedOut, Unavailable};
    let passing = [TimedOut, Unavailable, NotCurrent, StaleMap].map(|kind| kind.text());
    let is_away = |why: &str| why.ends_with("away") || passing.iter().any(|end| why.ends_with(end));
    !skipped.is_empty() && skipped.iter().all(|why| is_away(why.as_str().unwrap()))
}

/// Words and paths of what was found.
fn found(report: &serde_json::Value) -> Vec<(String, String)> {
    let problems = report["problems"].as_array().unwrap().iter();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let mut found: Vec<_> = problems.map(|p| (word(&p["what"]), word(&p["path"]))).collect();
    found.sort();
    found
}

/// Random changes of names and contents below a directory, until told to stop.
fn trouble(root: &Path, seed: u64, stop: &AtomicBool) {
    let mut random = SplitMix64::new(seed);
    fs::create_dir_all(root).unwrap();
    let name = |random: &mut SplitMix64| root.join(format!("n{}", random.below(12)));
    while !stop.load(Ordering::Relaxed) {
        let (a, b) = (name(&mut random), name(&mut random));
        // Whether it can be done depends on what is there by then.
        let _done = match random.below(9) {
            0 | 1 => File::create(&a).and_then(|mut file| {
                let len = [10, 9_000, 300_000, 2_500_000][random.below(4) as usize];
                file.write_all(&vec![seed as u8; len])
            }),
            2 => fs::create_dir(&a),
            3 => fs::rename(&a, &b),
            4 => fs::hard_link(&a, &b),
            5 => fs::remove_file(&a),
            6 => fs::remove_dir(&a),
            7 => std::os::unix::fs::symlink("somewhere", &a),
            _ => {
                File::options().write(true).open(&a).and_then(|f| f.set_len(random.below(200_000)))
            }
        };
    }
}

#[test]
fn a_volume_in_use_is_clean_however_often_it_is_looked_at() {
    let cluster = Cluster::with_copies(2, 2);
    let mounts = [cluster.mount("one"), cluster.mount("two")];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        for (nth, mount) in mounts.iter().enumerate() {
            for thread in 0..2 {
                let (own, shared) = (mount.at(&format!("own{nth}{thread}")), mount.at("shared"));
                let stop = &stop;
                scope
                    .spawn(move || trouble(if thread == 0 { &own } else { &shared }, thread, stop));
            }
        }
        let reports: Vec<_> = (0..4)
            .map(|nth| whole_fsck(&cluster, if nth % 2 == 0 { &[] } else { &["--repair"] }))
            .collect();
        stop.store(true, Ordering::Relaxed);
        for (code, report) in reports {
            assert_eq!((code, found(&report)), (Some(0), Vec::new()), "{report}");
            assert!(
                report["looked_at"].as_u64().unwrap() > 0
                    && report["skipped"].as_array().unwrap().is_empty(),
                "{report}"
            );
        }
    });
    drop(mounts);
    let (code, report) = whole_fsck(&cluster, &[]);
    assert_eq!(code, Some(0), "{report}");
}

/// Changes or deletes a key that is there.
fn edit(store: &Path, key: Vec<u8>, value: Option<Vec<u8>>) {
    assert!(stores::edit(store, key, value));
}

/// Key of an inode, or of an entry: docs/FORMATS.md.
fn key(kind: u8, ino: u64, name: &[u8]) -> Vec<u8> {
    [&[kind][..], &1u32.to_be_bytes(), &ino.to_be_bytes(), name].concat()
}

#[test]
fn damage_made_behind_the_servers_is_found_named_and_mended() {
    let mut servers = Servers::start();
    let mount = servers.mount("mnt", "");
    let root = mount.path().parent().unwrap().to_owned();
    fs::create_dir(mount.at("dir")).unwrap();
    let big = vec![7; 3_000_000];
    for name in ["dir/gone", "dir/nameless", "dir/sound"] {
        fs::write(mount.at(name), &big).unwrap();
        File::open(mount.at(name)).unwrap().sync_all().unwrap();
    }
    let ino = |name: &str| fs::metadata(mount.at(name)).unwrap().ino();
    let (dir, gone) = (ino("dir"), ino("dir/gone"));
    drop(mount);
    let address = servers.address().to_owned();
    assert_eq!(fsck(&address, &[]).0, Some(0));
    servers.server().stop();
    edit(&root.join("target0/meta"), key(b'I', gone, b""), None);
    edit(&root.join("target0/meta"), key(b'D', dir, b"nameless"), None);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&root.join("target1/target")).unwrap());
    let store = ChunkStore::open(disk, ChunkOptions::default()).unwrap();
    let (chunk, data) = (
        ChunkId { volume: VolumeId(1), ino: Ino(9_999_999), index: ChunkIndex(2) },
        bytes::Bytes::from_static(b"of nobody"),
    );
    store.write(chunk, 0, &data, crc32c(&data)).unwrap();
    drop(store);
    servers.kill();
    servers.start_again();

    let (code, report) = fsck(&address, &[]);
    assert_eq!(code, Some(4), "{report}");
    let words = found(&report);
    let of = |what: &str, path: &str| words.contains(&(what.to_owned(), path.to_owned()));
    assert!(of("entry-without-inode", ":/main/dir"), "{report}");
    assert!(of("inode-without-name", "-"), "{report}");
    assert!(of("wrong-counts", ":/main/dir"), "{report}");
    // What the inode that is gone had on targets, and the one that never was.
    let orphans = words.iter().filter(|(what, _)| what == "orphaned-chunk").count();
    assert!(orphans > 2, "{report}");
    let (code, report) = fsck(&address, &["--repair"]);
    assert_eq!((code, &report["left"]), (Some(1), &0.into()), "{report}");
    let (code, report) = fsck(&address, &[]);
    assert_eq!((code, found(&report)), (Some(0), Vec::new()), "the second time: {report}");
    let mount = servers.mount("again", "");
    assert!(fs::metadata(mount.at("dir/gone")).is_err());
    assert_eq!(fs::read(mount.at("dir/sound")).unwrap(), big);
    let lost = fs::read_dir(mount.at("lost+found")).unwrap().next().unwrap().unwrap();
    assert_eq!(fs::read(lost.path()).unwrap(), big);
    fs::remove_file(mount.at("dir/sound")).unwrap();
    fs::remove_dir(mount.at("dir")).unwrap();
}

/// It told the error alone, also of what it had mended already.
#[test]
fn what_was_found_before_an_error_is_told_with_it() {
    let mut servers = Servers::start();
    let mount = servers.mount("mnt", "");
    let root = mount.path().parent().unwrap().to_owned();
    fs::create_dir(mount.at("dir")).unwrap();
    for name in ["dir/gone", "dir/nameless", "lost+found"] {
        fs::write(mount.at(name), name).unwrap();
        File::open(mount.at(name)).unwrap().sync_all().unwrap();
    }
    let ino = |name: &str| fs::metadata(mount.at(name)).unwrap().ino();
    let (dir, gone) = (ino("dir"), ino("dir/gone"));
    drop(mount);
    let address = servers.address().to_owned();
    servers.server().stop();
    edit(&root.join("target0/meta"), key(b'I', gone, b""), None);
    edit(&root.join("target0/meta"), key(b'D', dir, b"nameless"), None);
    servers.kill();
    servers.start_again();

    let (code, report) = fsck(&address, &["--repair"]);
    assert_eq!((code, &report["complete"]), (Some(4), &false.into()), "{report}");
    for what in [("entry-without-inode", ":/main/dir"), ("inode-without-name", "-")] {
        let what = (what.0.to_owned(), what.1.to_owned());
        assert!(found(&report).contains(&what), "{what:?}: {report}");
    }
    let skipped = report["skipped"].to_string();
    assert!(skipped.contains("/lost+found is no directory"), "{report}");
}

#[test]
fn what_cannot_be_looked_at_is_exit_code_8() {
    let servers = Servers::start();
    for arguments in [
        vec!["fsck", "--cluster", "127.0.0.1:1"],
        vec!["fsck", "--cluster", servers.address(), "nosuch"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(8), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_away_is_named_and_is_not_said_to_be_checked() {
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mnt");
    for nth in 0..20 {
        fs::write(mount.at(&format!("file{nth}")), vec![nth; 300_000]).unwrap();
    }
    drop(mount);
    assert_eq!(fsck(&cluster.address, &[]).0, Some(0));
    cluster.kill(1);
    cluster.until("it is away", |c| c.targets().iter().any(|target| target["state"] == "down"));
    let (code, report) = fsck(&cluster.address, &[]);
    assert_eq!((code, found(&report)), (Some(8), Vec::new()), "{report}");
    assert_eq!((&report["complete"], &report["left"]), (&false.into(), &0.into()), "{report}");
    let skipped = report["skipped"][0].as_str().unwrap();
    assert!(skipped.contains("on server storage1): it is away"), "{report}");
    let (code, told) = cluster.run(&["fsck"]);
    assert_eq!(code, Some(8), "{told}");
    assert!(told.contains("not looked at: chunks of target ") && told.contains(skipped), "{told}");
    assert!(told.contains("next: strake status"), "{told}");
    cluster.start_again(1);
    cluster.until_whole();
    let (code, report) = fsck(&cluster.address, &[]);
    assert_eq!((code, &report["complete"]), (Some(0), &true.into()), "{report}");
}

#[test]
fn totals_that_do_not_fit_are_found_and_set_right() {
    let mut servers = Servers::start();
    let mount = servers.mount("mnt", "");
    let root = mount.path().parent().unwrap().to_owned();
    for nth in 0..30 {
        fs::write(mount.at(&format!("file{nth}")), [nth; 100]).unwrap();
    }
    drop(mount);
    let address = servers.address().to_owned();
    let inodes = || {
        let output = run(["df", "--json", "--cluster", &address]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report[0]["inodes"].as_u64().unwrap_or_else(|| panic!("{report}"))
    };
    let right = inodes();
    assert!(right > 30, "{right}");
    servers.server().stop();
    // Version, then fields 1 to 3: three inodes, no bytes, stopped in good order; then the checksum.
    let mut stat = vec![1, 8, 3, 24, 1];
    stat.extend_from_slice(&crc32c(&stat).to_le_bytes());
    let key = [&b"V"[..], &1u32.to_be_bytes()].concat();
    edit(&root.join("target0/meta"), key, Some(stat));
    servers.kill();
    servers.start_again();

    assert_eq!(inodes(), 3);
    let (code, report) = fsck(&address, &[]);
    assert_eq!(code, Some(4), "{report}");
    assert_eq!(found(&report), [("wrong-totals".to_owned(), "-".to_owned())]);
    assert_eq!(inodes(), 3, "only told");
    let (code, report) = fsck(&address, &["--repair"]);
    assert_eq!((code, report["mended"].as_u64()), (Some(1), Some(1)), "{report}");
    assert_eq!(fsck(&address, &[]).0, Some(0));
    assert_eq!(inodes(), right);
}
