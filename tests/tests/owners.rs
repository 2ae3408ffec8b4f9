//! Several metadata servers and managers on one database: they take over from each other, and nothing is lost or done twice.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use strake_tests::cluster::{
    Process, contents, eventually, free_port, run, signal, strake, succeed,
};
use strake_tests::etcd::EtcdServer;
use strake_tests::owners::{Cluster, Server};
use strake_tests::postgres::PostgresServer;
use strake_tests::way::Way;

/// How long anything may take. Only a hang reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// Directories that files are moved to.
const PLACES: u32 = 4;

/// Who makes, renames, and removes files for as long as he is let, and what must be there then.
struct Ledger<'a> {
    stop: &'a AtomicBool,
    done: &'a AtomicU32,
}

impl Ledger<'_> {
    fn keep(&self, dir: &Path) -> Vec<(PathBuf, u32)> {
        fs::create_dir(dir).unwrap();
        let mut written: Vec<(PathBuf, u32)> = Vec::new();
        for nth in 0_u32.. {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            // In a volume of several shares mostly from one to another.
            let place = dir.join(format!("to{}", nth % PLACES));
            if nth < PLACES {
                fs::create_dir(&place).unwrap();
            }
            let (made, path) = (dir.join("made"), place.join(format!("f{nth}")));
            // Exclusively: had the one before not been renamed, or were it made twice, it would be there.
            let mut file = File::create_new(&made).unwrap();
            file.write_all(&nth.to_be_bytes()).unwrap();
            file.sync_all().unwrap();
            fs::rename(&made, &path).unwrap();
            written.push((path, nth));
            if nth % 3 == 2 {
                let (path, _) = written.remove(written.len() / 2);
                fs::remove_file(path).unwrap();
            }
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        written
    }
}

/// Files are made on two mounts while `trouble` is made: it is given what waits until more have been. Then all must be there
/// that should be, and nothing else.
fn under_load(cluster: &mut Cluster, trouble: impl FnOnce(&mut Cluster, &dyn Fn())) {
    let mounts = [cluster.mount("one"), cluster.mount("two")];
    let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = mounts
            .iter()
            .enumerate()
            .map(|(nth, mount)| {
                let dir = mount.at(&format!("d{nth}"));
                let ledger = Ledger { stop: &stop, done: &done };
                scope.spawn(move || ledger.keep(&dir))
            })
            .collect();
        let more = || {
            let before = done.load(Ordering::SeqCst);
            eventually(WAIT, "more is written", || done.load(Ordering::SeqCst) > before + 20);
        };
        more();
        let troubled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            trouble(cluster, &more);
            more();
        }));
        stop.store(true, Ordering::SeqCst);
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        if troubled.is_err() || written.iter().any(Result::is_err) {
            let logs = cluster.metas.iter().map(|meta| meta.process.log());
            panic!("see above, and what the servers say:\n{}", logs.collect::<Vec<_>>().join("\n"));
        }
        written.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    });
    for (nth, files) in written.into_iter().enumerate() {
        // By the other mount.
        let dir = mounts[1 - nth].at(&format!("d{nth}"));
        for (path, number) in &files {
            let path = dir.join(path.strip_prefix(mounts[nth].at(&format!("d{nth}"))).unwrap());
            assert_eq!(contents(&path), number.to_be_bytes(), "{}", path.display());
        }
        let places = fs::read_dir(&dir).unwrap().map(|place| place.unwrap().path());
        let found = places.map(|place| fs::read_dir(place).unwrap().count());
        assert_eq!(found.sum::<usize>(), files.len());
    }
    drop(mounts);
    cluster.fsck();
}

/// Ends the server of the volume, and starts it again when another one has served the volume for a while. Which one it was.
fn without_owner(cluster: &mut Cluster, more: &dyn Fn(), end: fn(&mut Process)) -> usize {
    let owner = cluster.owner();
    let mut next = cluster.metas[owner].next();
    end(&mut cluster.metas[owner].process);
    more();
    assert_ne!(cluster.owner(), owner);
    next.go();
    cluster.metas[owner].process = next;
    owner
}

#[test]
fn a_metadata_server_that_is_killed_is_followed_by_another() {
    let database = PostgresServer::shared();
    let mut cluster = Cluster::start(&database.url(&database.database()), 2);
    under_load(&mut cluster, |cluster, more| {
        for _ in 0..3 {
            without_owner(cluster, more, Process::kill);
            more();
        }
    });
}

/// One volume, of whose directories each server has some.
#[test]
fn a_volume_of_several_shares_outlives_each_of_its_servers() {
    let mut cluster = Cluster::of_shares(6);
    let address = cluster.address();
    under_load(&mut cluster, |cluster, more| {
        let list = succeed(["client", "list", "wide", "--json", "--cluster", &address]);
        let clients: serde_json::Value = serde_json::from_str(&list).unwrap();
        let mut names: Vec<_> = clients.as_array().unwrap().iter().map(|c| &c["name"]).collect();
        let (listed, _) = (names.len(), names.dedup());
        assert_eq!(
            (listed, names.len()),
            (2, 2),
            "each mount once, not once for each share: {list}"
        );
        for nth in [0, 1, 0] {
            kill_and_start_again(cluster, nth, more);
        }
    });
}

fn kill_and_start_again(cluster: &mut Cluster, nth: usize, more: &dyn Fn()) {
    let mut next = cluster.metas[nth].next();
    cluster.metas[nth].process.kill();
    more();
    next.go();
    cluster.metas[nth].process = next;
    more();
}

#[test]
fn a_volume_of_several_shares_on_etcd_outlives_each_of_its_servers_and_a_member() {
    let etcd = EtcdServer::start(3, &[]);
    let mut cluster = Cluster::of_shares_on(&etcd.url("strake"), 6);
    under_load(&mut cluster, |cluster, more| {
        let leader = etcd.leader();
        for nth in [0, 1] {
            kill_and_start_again(cluster, nth, more);
        }
        etcd.crash(leader);
        more();
        etcd.resume(leader);
        more();
    });
    cluster.fsck();
}

#[test]
fn a_metadata_server_that_stood_still_writes_nothing_when_it_goes_on() {
    let database = PostgresServer::shared();
    let mut cluster = Cluster::start(&database.url(&database.database()), 2);
    under_load(&mut cluster, |cluster, more| {
        for _ in 0..2 {
            let owner = cluster.owner();
            let pid = cluster.metas[owner].process.pid();
            signal(pid, "STOP");
            more();
            assert_ne!(cluster.owner(), owner);
            signal(pid, "CONT");
            more();
        }
    });
}

#[test]
fn a_metadata_server_that_does_not_reach_the_database_hands_over_to_one_that_does() {
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let ways = [Way::to(database.port()), Way::to(database.port())];
    let by = |way: &Way| url.replace(&database.port().to_string(), &way.port.to_string());
    let mut cluster = Cluster::by_ways(&url, &ways.each_ref().map(by));
    // Whoever is to take over has to have been there for a while.
    std::thread::sleep(Duration::from_secs(7));
    under_load(&mut cluster, |cluster, more| {
        let owner = cluster.owner();
        ways[owner].set_cut(true);
        eventually(WAIT, "the other has the volume", || cluster.owner() != owner);
        more();
        eventually(WAIT, "status tells of it", || {
            let output = run(["status", "--cluster", &cluster.address()]);
            let said = String::from_utf8_lossy(&output.stdout);
            said.contains("does not reach the database") && output.status.code() == Some(1)
        });
        ways[owner].set_cut(false);
        more();
    });
}

#[test]
fn volumes_are_handed_over_when_a_metadata_server_comes_back_or_leaves() {
    let database = PostgresServer::shared();
    let mut cluster = Cluster::start(&database.url(&database.database()), 2);
    under_load(&mut cluster, |cluster, more| {
        let owner = without_owner(cluster, more, Process::stop);
        eventually(WAIT, "it has its volume again", || cluster.owner() == owner);
        more();
    });
    let log = cluster.metas.iter().map(|meta| meta.process.log()).collect::<String>();
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn volumes_are_spread_over_the_metadata_servers() {
    let database = PostgresServer::shared();
    let cluster = Cluster::start(&database.url(&database.database()), 2);
    let mut owners = Vec::new();
    for nth in 0..8 {
        let name = format!("v{nth}");
        succeed(["volume", "create", &name, "--cluster", &cluster.address()]);
        owners.push(cluster.owner_of(&name));
    }
    assert!(owners.contains(&0) && owners.contains(&1), "{owners:?}");
    // Each can be used.
    for name in ["v0", "v3", "v7"] {
        let volume = format!("{}:/{name}", cluster.address());
        succeed(["cp", "/etc/hostname", &format!("{volume}/file")]);
        assert!(succeed(["ls", &volume]).contains("file"));
    }
}

/// The server whose manager leads. A machine that is busy may be between two.
fn leader(cluster: &Cluster) -> usize {
    let mut leader = None;
    eventually(WAIT, "a manager leads", || {
        leader = cluster.leader();
        leader.is_some()
    });
    leader.unwrap()
}

/// Does something to the server whose manager leads, and waits until another one does and more has been written.
fn without_leader(cluster: &mut Cluster, more: &dyn Fn(), end: fn(&mut Process)) -> usize {
    let leader = leader(cluster);
    end(&mut cluster.metas[leader].process);
    eventually(WAIT, "another manager leads", || {
        cluster.leader().is_some_and(|other| other != leader)
    });
    more();
    leader
}

#[test]
fn a_manager_that_is_killed_is_followed_by_another() {
    let database = PostgresServer::shared();
    let mut cluster = Cluster::of_equals(&database.url(&database.database()), 3);
    under_load(&mut cluster, |cluster, more| {
        for end in [Process::kill, Process::stop, Process::kill] {
            let all: Vec<Process> = cluster.metas.iter().map(Server::next).collect();
            let leader = without_leader(cluster, more, end);
            let mut next = all.into_iter().nth(leader).unwrap();
            next.go();
            cluster.metas[leader].process = next;
            more();
        }
    });
    let log = cluster.metas.iter().map(|meta| meta.process.log()).collect::<String>();
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn a_manager_that_stood_still_leads_no_more_when_it_goes_on() {
    let database = PostgresServer::shared();
    let mut cluster = Cluster::of_equals(&database.url(&database.database()), 2);
    under_load(&mut cluster, |cluster, more| {
        for _ in 0..2 {
            let leader = without_leader(cluster, more, |process| signal(process.pid(), "STOP"));
            signal(cluster.metas[leader].process.pid(), "CONT");
            more();
        }
    });
    let address = cluster.address();
    let leader = leader(&cluster);
    let remove = ["server", "remove", &format!("meta{leader}"), "--cluster", &address];
    let output = strake(remove).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("stop it, so that another one leads"),
        "{said}"
    );
    succeed(["server", "remove", &format!("meta{}", 1 - leader), "--cluster", &address]);
}

#[test]
fn work_goes_on_on_etcd_when_its_members_and_the_servers_die() {
    let etcd = EtcdServer::start(3, &[]);
    let mut cluster = Cluster::of_equals(&etcd.url("strake"), 2);
    under_load(&mut cluster, |cluster, more| {
        let leader = etcd.leader();
        etcd.crash(leader);
        more();
        let all: Vec<Process> = cluster.metas.iter().map(Server::next).collect();
        let killed = without_leader(cluster, more, Process::kill);
        let mut next = all.into_iter().nth(killed).unwrap();
        next.go();
        cluster.metas[killed].process = next;
        etcd.resume(leader);
        more();
        for further in [0, 1] {
            let member = (etcd.leader() + further) % 3;
            etcd.stop(member);
            more();
            etcd.go(member);
            more();
        }
    });
}

#[test]
fn work_goes_on_when_the_standby_of_the_database_is_promoted() {
    let primary = PostgresServer::start();
    let (name, standby) = (primary.database(), primary.standby());
    let mut cluster = Cluster::of_equals(&primary.url_with(&standby, &name), 2);
    under_load(&mut cluster, |cluster, more| {
        primary.crash();
        standby.promote();
        more();
        // It does not know what was acknowledged since, and whoever asked it would be misled: as a server would that
        // has just started.
        primary.resume();
        for nth in 0..2 {
            let mut next = cluster.metas[nth].next();
            cluster.metas[nth].process.kill();
            next.go();
            cluster.metas[nth].process = next;
            more();
        }
    });
}

/// What a server says that must not start.
fn refused(directory: &Path, further: &[&str]) -> String {
    let (listen, data) = (format!("127.0.0.1:{}", free_port()), directory.join("refused"));
    let mut command = strake(["server", "--listen", &listen, "--data"]);
    let output = command.arg(&data).args(further).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !data.exists(), "{said}");
    said
}

#[test]
fn a_second_metadata_server_without_the_database_of_the_first_is_refused() {
    let database = PostgresServer::shared();
    let directory = tempfile::tempdir().unwrap();
    let embedded = Server::start(directory.path(), "head", &["--roles", "manager,meta,storage"]);
    let join = ["--join", embedded.address(), "--roles", "meta"];
    let manages = ["--join", embedded.address(), "--roles", "manager,storage"];
    let url = database.url(&database.database());
    for further in [&join[..], &[&join[..], &["--meta", &url]].concat(), &manages] {
        let said = refused(directory.path(), further);
        assert!(said.contains("needs a database that all reach"), "{said}");
        assert!(said.contains("strake meta export") && said.contains("head"), "{said}");
    }
    let cluster = Cluster::start(&url, 1);
    let join = ["--join", &cluster.address(), "--roles", "meta"];
    let said = refused(directory.path(), &join);
    assert!(said.contains("is in a database") && said.contains("give --meta"), "{said}");
    let other = database.url(&database.database());
    let said = refused(directory.path(), &[&join[..], &["--meta", &other]].concat());
    assert!(said.contains("it is empty") && said.contains("correct --meta"), "{said}");
}

/// Waits until a manager knows a server at the address that it has in this life.
fn wait_until_joined(manager: &Server, server: &Server) {
    eventually(WAIT, "the server has joined", || {
        let output = run(["server", "list", "--json", "--cluster", manager.address()]);
        String::from_utf8_lossy(&output.stdout).contains(server.address())
    });
}

/// A manager that belonged to the cluster already asked nobody, and looked for its old store in the new database.
#[test]
fn a_manager_follows_where_another_server_has_moved_the_metadata() {
    let database = PostgresServer::shared();
    let [from, to] = [(); 2].map(|()| database.url(&database.database()));
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &str, url: &str, join: &[&str]| {
        let own = ["--roles", "manager,meta,storage", "--meta", url];
        Server::start(directory.path(), name, &[&own[..], join].concat())
    };
    let mut one = start("one", &from, &[]);
    let mut two = start("two", &from, &["--join", one.address()]);
    wait_until_joined(&one, &two);
    two.process.stop();
    one.process.stop();

    let [home, file] = ["one", "export"].map(|name| directory.path().join(name));
    let [home, file] = [home, file].map(|path| path.display().to_string());
    succeed(["meta", "export", "--data", &home, "--from", &from, &file]);
    succeed(["meta", "import", "--data", &home, "--from", &from, "--meta", &to, &file]);
    let one = start("one", &to, &[]);
    wait_until_joined(&one, &one);
    // One that has not followed would lead the old store.
    let [home, listen] =
        [directory.path().join("two").display().to_string(), format!("127.0.0.1:{}", free_port())];
    let late = ["server", "--data", &home, "--listen", &listen, "--meta", &from, "--join"];
    let late = late.into_iter().chain([one.address(), "--roles", "manager,meta,storage"]);
    let late: Vec<String> = late.map(String::from).collect();
    let late = Process::start(&late, &directory.path().join("late.log"));
    eventually(WAIT, "it is refused", || late.log().contains("leads this cluster, and"));
    drop(late);
    // Nor does it where it asks nobody.
    let alone = ["server", "--data", &home, "--listen", &listen, "--meta", &from];
    let output = run(alone.into_iter().chain(["--roles", "manager,meta,storage"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("strake meta reopen"), "{said}");
    let two = start("two", &to, &["--join", one.address()]);
    wait_until_joined(&one, &two);
}
