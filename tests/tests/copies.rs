//! Volumes of several copies over real processes: servers are killed under load, and nothing that was
//! acknowledged is missing or old.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_tests::cluster::{eventually, run, succeed};
use strake_tests::records::{Ledger, StopAtEnd};
use strake_tests::servers::{Cluster, WAIT};

#[test]
fn a_killed_server_costs_no_error_and_what_it_missed_is_there_when_it_is_the_only_one_left() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let big: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    fs::write(mount.at("before"), &big).unwrap();
    cluster.kill(0);
    assert_eq!(fs::read(mount.at("before")).unwrap(), big);
    fs::write(mount.at("during"), &big).unwrap();
    let mut ledger = Ledger::new(&mount.at("ledger"), 300);
    for at in 0..300 {
        ledger.write(at, 1 + at as u64);
    }
    fs::remove_file(mount.at("before")).unwrap();
    cluster.until("it is degraded", |c| c.run(&["status"]).0 == Some(1));
    let sorted = |files: &serde_json::Value| {
        let files = files.as_array().into_iter().flatten();
        let mut files: Vec<_> = files.filter_map(|file| file.as_str().map(str::to_owned)).collect();
        files.sort();
        files
    };
    let lack = [":/main/during", ":/main/ledger"];
    cluster.until("files that lack a copy are named", |c| {
        let lacking = c.json(&["status"])["lacking_files"][0].clone();
        (lacking["target"].as_u64(), sorted(&lacking["files"]))
            == (Some(1), lack.map(str::to_owned).into())
    });
    // It looks for them for two seconds, each time.
    cluster.until("they are named to people, too", |c| {
        c.run(&["status"]).1.contains("files that lack their copy on target 1: :/main/")
    });
    let all =
        |c: &Cluster, target| sorted(&c.json(&["target", "files", target, "--lacking"])["files"]);
    assert_eq!((all(&cluster, "1"), all(&cluster, "2").len()), (lack.map(str::to_owned).into(), 0));
    cluster.start_again(0);
    cluster.until_whole();
    cluster.kill(1);
    drop(mount);
    let mount = cluster.mount("again");
    assert_eq!(fs::read(mount.at("during")).unwrap(), big);
    ledger.check(&mount.at("ledger"));
    fs::write(mount.at("after"), b"and it goes on").unwrap();
    drop(mount);
    assert!(cluster.witness_log().contains("joined"));
}

/// It counted as up for ever: each `fsync` of what has a copy there failed after 30 s, and status said that all was fine.
#[test]
fn writers_go_on_without_a_server_that_is_heard_and_that_nobody_reaches() {
    let mut cluster = Cluster::with_copies(2, 2);
    let way = cluster.add_behind_a_way();
    let mount = cluster.mount("mnt");
    let synced = |name: &str| {
        let mut file = File::create(mount.at(name)).unwrap();
        file.write_all(&vec![7; 6 << 20]).unwrap();
        file.sync_all().unwrap();
    };
    synced("before");
    way.set_cut(true);
    (0..3).for_each(|nth| synced(&format!("during{nth}")));
    let told = format!("is heard, but cannot be reached at 127.0.0.1:{}: ", way.port);
    cluster.until("status tells of it", |c| {
        let (code, shown) = c.run(&["status"]);
        code == Some(1) && shown.contains(&told)
    });
    cluster.until("doctor tells of it", |c| c.run(&["doctor"]).1.contains(&told));
    // It is told so when it says next that it is there.
    let refused = "it hears this server, but cannot reach it";
    cluster.until("the server tells of it", |c| c.log(2).contains(refused));
    way.set_cut(false);
    cluster.until_whole();
    synced("after");
}

#[test]
fn nothing_acknowledged_is_missing_or_old_however_often_servers_are_killed() {
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mnt");
    let ledgers: Vec<_> = (0..2)
        .map(|writer| {
            let path = mount.at(&format!("ledger{writer}"));
            (Mutex::new(Ledger::new(&path, 500)), path)
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopAtEnd(&stop);
        for (ledger, _) in &ledgers {
            let stop = &stop;
            scope.spawn(move || ledger.lock().unwrap().write_until(stop));
        }
        let (mount, stop) = (&mount, &stop);
        scope.spawn(move || {
            for nth in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut file = File::create(mount.at(&format!("file{}", nth % 10))).unwrap();
                file.write_all(&vec![nth as u8; 1_500_000]).unwrap();
                drop(file);
                let back = fs::read(mount.at(&format!("file{}", nth % 10))).unwrap();
                assert!(back.len() == 1_500_000 && back.iter().all(|b| *b == nth as u8), "{nth}");
            }
        });
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(700));
            cluster.kill(round % 3);
            std::thread::sleep(Duration::from_millis(if round % 2 == 0 { 300 } else { 4_000 }));
            cluster.start_again(round % 3);
            cluster.until_whole();
        }
    });
    for survivor in 0..3 {
        // Each server is away once while everything is read: the other copies hold it all.
        cluster.kill(survivor);
        let fresh = cluster.mount(&format!("fresh{survivor}"));
        for (writer, (ledger, _)) in ledgers.iter().enumerate() {
            ledger.lock().unwrap().check(&fresh.at(&format!("ledger{writer}")));
        }
        drop(fresh);
        cluster.start_again(survivor);
        cluster.until_whole();
    }
}

/// A server dies, and the file says which copy is missing.
#[test]
fn why_names_the_missing_copy_and_who_has_the_file_open() {
    let mut cluster = Cluster::with_copies(2, 2);
    let mount = cluster.mount("mnt");
    let path = mount.at("file");
    fs::write(&path, vec![7u8; 3_000_000]).unwrap();
    fs::hard_link(&path, mount.at("name")).unwrap();
    let _open = File::open(&path).unwrap();
    let place = format!("{}:/main/file", cluster.address);
    // It waits for a copy no longer than people would, and the machine may be busy.
    let why = |flag: &str, code: i32, word: &str| {
        let mut shown = String::new();
        eventually(WAIT, word, || {
            let output = run(["why", &place, flag]);
            shown = String::from_utf8_lossy(&output.stdout).into_owned();
            println!("{:?} {shown}", output.status.code());
            output.status.code() == Some(code) && shown.contains(word)
        });
        shown
    };
    let shown = why("--verify", 0, "in sync");
    for part in ["2 copies", "/file\n", "/name\n", "primary", "in sync", "mnt (session"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    cluster.kill(1);
    let shown = why("--json", 1, "\"missing\"");
    let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(report["health"], "degraded");
    assert!(report["problems"][0].as_str().unwrap().contains("storage1"), "{shown}");
}

#[test]
fn writes_wait_for_as_many_copies_as_the_volume_asks_for() {
    let mut cluster = Cluster::with_copies(2, 2);
    let flags = ["--cluster", &cluster.address];
    succeed(
        ["volume", "set", "main", "--min-copies", "2", "--ack", "primary"].into_iter().chain(flags),
    );
    let mount = cluster.mount("mnt");
    let path = mount.at("file");
    // Synced: what one copy alone has acknowledged would be missed when its server dies.
    let mut file = File::create(&path).unwrap();
    file.write_all(&[1u8; 100_000]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let shown = succeed(["layout", "get", &path.display().to_string()]);
    assert!(shown.contains("2 copies (2 at least), acknowledged by the primary"), "{shown}");
    cluster.kill(1);
    // A process of its own: a server that is started from this one would begin with its open files.
    let to = format!("of={}", path.display());
    let flags = ["if=/dev/zero", &to, "bs=100000", "count=1", "conv=notrunc,fsync"];
    let mut writer = std::process::Command::new("dd").args(flags).spawn().unwrap();
    // Longer than it takes until the lost one is taken out.
    std::thread::sleep(Duration::from_secs(6));
    cluster.until("status says that writes wait", |c| {
        let (code, shown) = c.run(&["status"]);
        code == Some(2)
            && shown.contains("writes to volume main wait where fewer than 2 copies are in sync")
            && shown.contains("ask for more copies than are in sync (--min-copies): :/main/file")
    });
    let early = writer.try_wait().unwrap();
    cluster.start_again(1);
    assert!(writer.wait().unwrap().success());
    assert_eq!(early, None, "one copy is not enough");
    cluster.until_whole();
    cluster.kill(0);
    drop(mount);
    let mount = cluster.mount("again");
    assert_eq!(fs::read(mount.at("file")).unwrap(), vec![0u8; 100_000]);
}

#[test]
fn status_says_which_group_of_one_copy_is_away_and_who_waits_for_it() {
    let mut cluster = Cluster::start(1);
    let mount = cluster.mount("mnt");
    fs::write(mount.at("file"), vec![1u8; 1_000_000]).unwrap();
    drop(mount);
    let mount = cluster.mount("again");
    cluster.kill(0);
    let mut reader = std::process::Command::new("cat")
        .arg(mount.at("file"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    cluster.until("it is said what is waited for", |cluster| {
        let (code, shown) = cluster.run(&["status"]);
        code == Some(2)
            && shown.contains(
                "1 group of one copy (volumes: main) cannot be read or written: only target 1",
            )
            && shown.lines().any(|line| {
                line.contains(":/main/file on ")
                    && line.contains("waits for target 1 on storage0 (group 0)")
            })
    });
    cluster.until("the client that waits is told", |cluster| {
        cluster.run(&["client", "list"]).1.contains("waiting (strake status)")
    });
    let place = format!("{}:/main/file", cluster.address);
    let waits = |line: &str| {
        line.starts_with("  waits ") && line.contains("waits for target 1 on storage0 (group 0)")
    };
    cluster.until("it is told of the file", |cluster| {
        let (code, why) = cluster.run(&["why", &place]);
        code == Some(2) && why.lines().any(waits)
    });
    cluster.start_again(0);
    assert!(reader.wait().unwrap().success(), "the file is there again");
    cluster.until("nobody waits", |cluster| {
        let status = cluster.json(&["status"]);
        status["health"] == "fine" && status["waits"].as_array().is_some_and(Vec::is_empty)
    });
}

/// Status and doctor called it degraded, since the volume asked for two copies by then.
#[test]
fn a_file_from_when_its_volume_had_one_copy_makes_the_cluster_broken_while_it_cannot_be_read() {
    let mut cluster = Cluster::start(2);
    let mount = cluster.mount("mnt");
    fs::write(mount.at("file"), vec![1u8; 5_000_000]).unwrap();
    drop(mount);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    cluster.kill(1);
    cluster.until("status says what is out of reach", |cluster| {
        let (code, shown) = cluster.run(&["status"]);
        let named = "files that cannot be read or written whole now: :/main/file";
        code == Some(2) && shown.contains(named)
    });
    // It looks for files for two seconds, each time.
    cluster.until("doctor says it, too", |cluster| {
        let (code, shown) = cluster.run(&["doctor"]);
        let named = "cannot be read or written whole now: :/main/file";
        code == Some(2) && shown.contains(named)
    });
    cluster.start_again(1);
    cluster.until_whole();
}

/// Its probe lay in the group of one copy that each target has, which counted as lost with the target from then on.
#[test]
fn a_target_that_doctor_has_written_to_is_given_up_without_a_question() {
    let mut cluster = Cluster::with_copies(3, 2);
    // The metadata server may not have heard of the new groups yet.
    cluster.until("doctor has written to every target", |c| {
        c.run(&["doctor"]).1.matches("wrote, synced, read, removed").count() == 3
    });
    cluster.kill(2);
    cluster.until("it is down", |c| c.targets().iter().any(|target| target["state"] == "down"));
    let (code, said) = cluster.run(&["server", "remove", "storage2", "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Who looked at a cluster as the guide says, before its volume got two copies, was asked for `--lose-data` with each lost disk.
#[test]
fn what_doctor_looked_at_before_files_got_two_copies_is_given_up_without_a_question() {
    let mut cluster = Cluster::start(3);
    assert!(cluster.run(&["doctor"]).1.contains("nothing was put yet into a group"));
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    cluster.kill(2);
    cluster.until("it is down", |c| c.targets().iter().any(|target| target["state"] == "down"));
    let (code, said) = cluster.run(&["server", "remove", "storage2", "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
}

/// While the server is away to which waits are told nobody can be told of them.
#[test]
fn status_says_who_has_waited_for_the_metadata_server_when_it_is_back() {
    let mut cluster = Cluster::start(1);
    let mount = cluster.mount("mnt");
    let later = mount.at("later");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It begins before the server is killed, and goes on until one has waited.
        let (stop, _stops) = (&stop, StopAtEnd(&stop));
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                fs::create_dir(&later).unwrap();
                fs::remove_dir(&later).unwrap();
            }
        });
        cluster.restart_witness_after(Duration::from_secs(5));
        cluster.until("it is told", |c| {
            let status = c.json(&["status"]);
            let waited = status["waited"].as_array().cloned().unwrap_or_default();
            let for_meta = |row: &serde_json::Value| {
                row["what"].as_str().is_some_and(|what| what.contains("metadata server"))
            };
            waited.iter().any(|row| for_meta(row) && row["waited_seconds"].as_f64() > Some(2.0))
        });
    });
    cluster.until("it is told to people, too", |c| {
        let (_, shown) = c.run(&["status"]);
        shown.contains(" waited for ") && shown.contains(" s ago")
    });
}

/// Who syncs everything at the end does not ask file by file who has acknowledged.
#[test]
fn cp_to_a_volume_whose_primary_acknowledges_alone_reports_no_loss() {
    let cluster = Cluster::with_copies(2, 2);
    cluster.succeed(&["volume", "set", "main", "--ack", "primary"]);
    let file = cluster.data_of(0).join("file");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    fs::write(&file, &bytes).unwrap();
    let (from, to) = (file.display().to_string(), format!("{}:/main/file", cluster.address));
    succeed(["cp", from.as_str(), to.as_str()]);
    fs::remove_file(&file).unwrap();
    succeed(["cp", to.as_str(), from.as_str()]);
    assert!(fs::read(&file).unwrap() == bytes);
}

/// The smaller of two disks is full before the other: the copies stay both, and both say no.
#[test]
fn a_disk_that_is_full_takes_no_copy_out_of_its_groups() {
    let mut cluster = Cluster::start(1);
    cluster.add_with_a_small_disk(400 << 20);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    let mount = cluster.mount("mnt");
    let write = |name: &str, mib: usize| -> std::io::Result<()> {
        let mut file = File::create(mount.at(name))?;
        for nth in 0..mib {
            file.write_all(&vec![nth as u8; 1 << 20])?;
        }
        file.sync_all()
    };
    write("kept", 20).unwrap();
    let error = write("too-big", 500).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    // On a busy machine a server may count as down for a moment; who is full stays, which the logs show below.
    cluster.until("nobody has left", |c| {
        let (_, status) = c.run(&["status"]);
        let mut troubles = status.lines().filter(|line| line.trim_start().starts_with('!'));
        troubles.all(|line| line.contains("full"))
    });
    fs::remove_file(mount.at("too-big")).unwrap();
    cluster.until("the room is back", |_| match write("fits", 100) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            false
        }
    });
    assert!(!cluster.logs().join("").contains("cannot take changes"), "a copy was left behind");
    drop(mount);
    cluster.kill(0);
    let mount = cluster.mount("again");
    for (name, mib) in [("kept", 20), ("fits", 100)] {
        let found = fs::read(mount.at(name)).unwrap();
        let byte = |nth: usize| found[nth << 20];
        assert_eq!(found.len(), mib << 20);
        assert!((0..mib).all(|nth| byte(nth) == nth as u8), "{name}");
    }
}

#[test]
fn a_server_whose_disk_is_full_to_the_last_byte_starts_again_and_is_made_equal() {
    let mut cluster = Cluster::start(1);
    cluster.add_with_a_small_disk(400 << 20);
    cluster.succeed(&["volume", "set", "main", "--copies", "2"]);
    let mount = cluster.mount("mnt");
    fs::write(mount.at("file"), vec![1; 10 << 20]).unwrap();
    let filler = cluster.data_of(1).join("filler");
    let mut file = File::create(&filler).unwrap();
    let full = (0..).find_map(|_| file.write_all(&[0; 4096]).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    cluster.kill(1);
    cluster.start_again(1);
    cluster.until_whole();
    assert_eq!(fs::read(mount.at("file")).unwrap(), vec![1; 10 << 20]);
    drop(file);
    fs::remove_file(&filler).unwrap();
    fs::write(mount.at("file"), vec![2; 5 << 20]).unwrap();
    drop(mount);
    cluster.kill(0);
    let mount = cluster.mount("again");
    assert_eq!(fs::read(mount.at("file")).unwrap(), vec![2; 5 << 20]);
}

/// While a client from before the restart goes on.
#[test]
fn room_of_files_deleted_after_a_restart_of_the_metadata_server_comes_back() {
    let mut cluster = Cluster::start(0);
    cluster.add_with_a_small_disk(400 << 20);
    let mount = cluster.mount("mnt");
    let file = mount.at("file");
    fs::write(&file, vec![1; 200 << 20]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    cluster.restart_witness();
    fs::remove_file(&file).unwrap();
    let free = |c: &Cluster| c.targets()[0]["free_bytes"].as_u64().unwrap_or(0);
    cluster.until("the room is back", |c| free(c) > 250 << 20);
}
