//! A cluster whose metadata is in PostgreSQL: what survives, and what is refused.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use strake_tests::cluster::{Servers, contents, free_port, run, strake};
use strake_tests::postgres::{PASSWORD, PostgresServer};

fn on(url: &str) -> Servers {
    Servers::start_with(&["--meta".to_owned(), url.to_owned()])
}

fn fsck(address: &str) {
    let output = run(["fsck", "--cluster", address]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[test]
fn everything_is_there_after_the_server_was_killed_and_the_database_crashed() {
    let database = PostgresServer::start();
    let url = database.url(&database.database());
    let mut servers = on(&url);
    let mount = servers.mount("mnt", "");
    let big = vec![7; 3_000_000];
    for dir in 0..4 {
        fs::create_dir(mount.at(&format!("d{dir}"))).unwrap();
        for file in 0..20 {
            write(&mount.at(&format!("d{dir}/small{file}")), format!("{file}").as_bytes()).unwrap();
        }
        write(&mount.at(&format!("d{dir}/big")), &big).unwrap();
    }
    fs::rename(mount.at("d0/small0"), mount.at("d1/renamed")).unwrap();
    fs::remove_file(mount.at("d0/small1")).unwrap();
    servers.kill();
    database.crash();
    database.resume();
    servers.start_again();
    for dir in 0..4 {
        for file in (0..20).filter(|file| dir != 0 || *file > 1) {
            let path = mount.at(&format!("d{dir}/small{file}"));
            assert_eq!(contents(&path), format!("{file}").as_bytes());
        }
        assert_eq!(contents(&mount.at(&format!("d{dir}/big"))), big);
    }
    assert_eq!(contents(&mount.at("d1/renamed")), b"0");
    assert!(!mount.at("d0/small0").exists() && !mount.at("d0/small1").exists());
    drop(mount);
    fsck(servers.address());
}

#[test]
fn work_goes_on_when_the_database_has_come_back_and_nothing_acknowledged_is_lost() {
    let database = PostgresServer::start();
    let servers = on(&database.url(&database.database()));
    let mount = servers.mount("mnt", "");
    let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = Vec::new();
            for nth in 0_u32.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let path = mount.at(&format!("f{nth}"));
                if write(&path, &nth.to_be_bytes()).is_ok() {
                    written.push((path, nth));
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
            written
        });
        let wait_for_more = || {
            let before = done.load(Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < before + 20 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        };
        for _ in 0..3 {
            wait_for_more();
            database.crash();
            database.resume();
        }
        wait_for_more();
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    for (path, nth) in written {
        assert_eq!(contents(&path), nth.to_be_bytes(), "{}", path.display());
    }
    drop(mount);
    fsck(servers.address());
}

/// What a server says that must not start.
fn refused(data: &Path, further: &[&str]) -> String {
    let port = format!("127.0.0.1:{}", free_port());
    let mut command = strake(["server", "--listen", &port, "--roles", "manager,meta,storage"]);
    let output = command.arg("--data").arg(data).args(further).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    said
}

#[test]
fn a_database_that_is_not_ours_or_not_usable_is_refused_and_nothing_is_changed() {
    let database = PostgresServer::shared();
    let name = database.database();
    let url = database.url(&name);
    let mut servers = on(&url);
    let mount = servers.mount("mnt", "");
    write(&mount.at("file"), b"here").unwrap();
    let home = servers.directory().join("target0");
    let node = fs::read_to_string(home.join("node.json")).unwrap();
    assert!(!node.contains(PASSWORD) && node.contains("postgres://postgres@127.0.0.1"), "{node}");
    servers.kill();

    let other = tempfile::tempdir().unwrap();
    let fresh = other.path().join("data");
    let bad = [
        (url.clone(), "metadata of another server"),
        (url.replace(PASSWORD, "wrong"), "password authentication failed"),
        ("postgres://u:p@127.0.0.1:1/d".into(), "cannot be reached"),
        ("mysql://127.0.0.1/d".into(), "postgres://USER@HOST/DATABASE"),
    ];
    for (url, cause) in bad {
        let said = refused(&fresh, &["--meta", &url]);
        assert!(said.contains(cause), "{cause}: {said}");
        assert!(!fresh.exists(), "nothing is left of a refused start");
    }
    assert!(refused(&home, &[]).contains("give --meta with that URL"));
    assert!(refused(&home, &["--meta", "embedded"]).contains("give --meta with that URL"));
    let empty = database.url(&database.database());
    assert!(refused(&home, &["--meta", &empty]).contains("restore the database"));
    database
        .sql("postgres", &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    assert!(refused(&home, &["--meta", &url]).contains("read-only"));
    database.sql("postgres", &format!("ALTER DATABASE {name} RESET default_transaction_read_only"));

    servers.start_again();
    assert_eq!(contents(&mount.at("file")), b"here");
    drop(mount);
    fsck(servers.address());
}

/// It said that no manager leads, and not a word of the server that does.
#[test]
fn a_copy_of_the_server_that_leads_is_told_where_that_runs() {
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let mut servers = on(&url);
    let [home, copied] = ["target0", "copied"].map(|name| servers.directory().join(name));
    servers.kill();
    assert!(Command::new("cp").arg("-a").args([&home, &copied]).status().unwrap().success());
    servers.start_again();
    let why = format!("server 1 is alive at {}, or was a moment ago", servers.address());
    // The same database by another name: others are asked first.
    let renamed = url.replace("127.0.0.1", "localhost");
    let starts: [&[&str]; 2] =
        [&["--meta", &url], &["--meta", &renamed, "--join", servers.address()]];
    for flags in starts {
        let said = refused(&copied, flags);
        assert!(said.contains(&why) && said.contains("Stop that server first"), "{said}");
    }
    // It is as it was.
    drop(servers.mount("mnt", ""));
}

/// It waited for a lease, as where the process that it was may run.
#[test]
fn a_server_that_was_stopped_in_order_leads_at_once_at_another_address() {
    let database = PostgresServer::shared();
    let mut servers = on(&database.url(&database.database()));
    servers.move_elsewhere();
    let log = servers.server().log();
    assert_eq!(log.matches("this manager leads the cluster").count(), 2, "{log}");
    assert!(!log.contains("this one waits"), "{log}");
    drop(servers.mount("mnt", ""));
}

#[test]
fn a_server_with_an_embedded_store_is_not_moved_by_a_flag() {
    let mut servers = Servers::start();
    // From then on it belongs to its cluster.
    drop(servers.mount("mnt", ""));
    servers.kill();
    let home = servers.directory().join("target0");
    let database = PostgresServer::shared();
    let name = database.database();
    let said = refused(&home, &["--meta", &database.url(&name)]);
    assert!(said.contains("strake meta export"), "{said}");
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'strake%'";
    assert_eq!(database.sql(&name, tables), "0");
}
