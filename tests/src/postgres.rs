//! A PostgreSQL server of the distribution's package, in a directory of its own, for as long as the
//! test program lives.
//!
//! `postgres` refuses to be run by root, so where tests are root it runs as the package's user. A shell stands
//! between: it ends the server when this program is gone, however it went. (The tests of `engine` use this
//! file too.)

use super::guard::{Guard, LOOK, LOOKS_MAX, free_port};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::Permissions;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The superuser's password.
pub const PASSWORD: &str = "strake-tests";
/// What stands between: it starts the server, ends it at once when told (as a crash would), starts it again, promotes it,
/// and ends all when its standard input ends. This program starts nothing itself for that: its children have the
/// files that are open on mounts until they become another program, and closing those may wait for this very server.
const GUARD: &str = r#"
start() {
  "$1/postgres" -D "$2/data" -p "$3" -k "$2" -c listen_addresses=127.0.0.1 -c fsync=off \
    -c max_connections=300 -c shared_buffers=32MB </dev/null >>"$2/log" 2>&1 &
  server=$!
}
start "$@"
while read -r word; do
  case $word in
    crash) kill -QUIT $server; wait $server; echo crashed >>"$2/log" ;;
    resume) start "$@" ;;
    promote) "$1/pg_ctl" promote -W -D "$2/data" </dev/null >>"$2/log" 2>&1 ;;
  esac
done
kill -QUIT $server
wait $server
grep -q "could not create any TCP/IP sockets" "$2/log" || rm -rf "$2"
"#;
/// What the log says of a server that is up, and of one that was ended.
const READY: &str = "ready to accept connections";
const STANDBY: &str = "ready to accept read-only connections";
const CRASHED: &str = "crashed\n";
/// What it says when it begins to read its settings again.
const RELOADED: &str = "reloading configuration files";
/// What it says when its port is taken.
const TAKEN: &str = "could not create any TCP/IP sockets";
/// Where it may listen.
const PORTS: Range<u16> = 10_000..12_000;

/// A server.
pub struct PostgresServer {
    programs: PathBuf,
    dir: PathBuf,
    port: u16,
    owner: (u32, u32),
    guard: Guard,
    databases: AtomicU32,
}

impl PostgresServer {
    /// The one of this test program.
    pub fn shared() -> &'static PostgresServer {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    /// Makes and starts a server. Panics where the package is missing.
    pub fn start() -> PostgresServer {
        let (programs, owner) = (programs(), owner());
        let dir = directory(owner);
        let password = dir.join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        chown(&password, Some(owner.0), Some(owner.1)).unwrap();
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.args(["--no-sync", "--locale=C", "-E", "UTF8", "-U", "postgres"]);
        initdb.args(["--auth=scram-sha-256", "--pwfile"]).arg(&password);
        initdb.arg("-D").arg(dir.join("data"));
        run(as_owner(&mut initdb, owner, &dir));
        Self::begun(programs, dir, owner, READY)
    }

    /// One that runs on a directory with a database.
    fn begun(programs: PathBuf, dir: PathBuf, owner: (u32, u32), ready: &str) -> PostgresServer {
        // Another test program may take the same port before the server does.
        for _ in 0..10 {
            let port = free_port(PORTS);
            let mut shell = Command::new("sh");
            shell.args(["-c", GUARD, "sh"]).arg(&programs).arg(&dir).arg(port.to_string());
            let shell = as_owner(&mut shell, owner, &dir);
            let guard = Guard::start(shell, &dir, "PostgreSQL", TAKEN);
            if guard.says(ready, 1) {
                let databases = AtomicU32::new(0);
                return PostgresServer { programs, dir, port, owner, guard, databases };
            }
            drop(guard);
            std::fs::remove_file(dir.join("log")).unwrap();
        }
        panic!("PostgreSQL finds no port");
    }

    /// A standby of it: from now on a commit is acknowledged when that one has it, too.
    pub fn standby(&self) -> PostgresServer {
        let dir = directory(self.owner);
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.arg("-h").arg(&self.dir).args(["-p", &self.port.to_string(), "-U", "postgres"]);
        copy.args(["--no-sync", "-c", "fast", "-X", "stream", "-R", "-D"]).arg(dir.join("data"));
        copy.env("PGPASSWORD", PASSWORD);
        run(as_owner(&mut copy, self.owner, &dir));
        let standby = Self::begun(self.programs.clone(), dir, self.owner, STANDBY);
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let synced = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        for _ in 0..LOOKS_MAX {
            if self.sql("postgres", synced) == "1" {
                return standby;
            }
            std::thread::sleep(LOOK);
        }
        panic!("the standby does not follow:\n{}{}", self.guard.log(), standby.guard.log());
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.guard.tell_and_wait("promote", READY);
    }

    /// Encrypts connections by TCP from now on that ask for it, with a certificate and its key in PEM. The CA is the one
    /// that clients' certificates are to be from, where `pg_hba.conf` asks for any.
    pub fn encrypt(&self, certificate: &str, key: &str, ca: &str) {
        let data = self.dir.join("data");
        for (name, text) in [("server.crt", certificate), ("server.key", key), ("root.crt", ca)] {
            let path = data.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            chown(&path, Some(self.owner.0), Some(self.owner.1)).unwrap();
        }
        self.sql("postgres", "ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
        self.sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.reload();
    }

    /// Lets in by TCP who a line of `pg_hba.conf` lets in, and nobody else.
    pub fn let_in(&self, line: &str) {
        let text = format!("local all all scram-sha-256\n{line}\n");
        std::fs::write(self.dir.join("data/pg_hba.conf"), text).unwrap();
        self.reload();
    }

    fn reload(&self) {
        let before = self.guard.count(RELOADED);
        self.sql("postgres", "SELECT pg_reload_conf()");
        assert!(self.guard.says(RELOADED, before + 1), "its port was taken");
    }

    /// Ends it at once; what was not written is to be recovered.
    pub fn crash(&self) {
        self.guard.tell_and_wait("crash", CRASHED);
    }

    /// Starts it again.
    pub fn resume(&self) {
        self.guard.tell_and_wait("resume", READY);
    }

    /// A new, empty database: its name.
    pub fn database(&self) -> String {
        let name = self.name();
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// The same on a disk of its own. The log of the server stays where it is.
    pub fn database_on(&self, disk: &SmallDisk) -> String {
        let (name, place) = (self.name(), disk.0.display());
        self.sql("postgres", &format!("CREATE TABLESPACE {name} LOCATION '{place}'"));
        self.sql("postgres", &format!("CREATE DATABASE {name} TABLESPACE {name}"));
        name
    }

    fn name(&self) -> String {
        format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed))
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database for the superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// The same where it is on two servers, of which one is the primary.
    pub fn url_with(&self, other: &PostgresServer, database: &str) -> String {
        let other = format!("127.0.0.1:{}", other.port);
        self.url(database).replace(&format!("/{database}"), &format!(",{other}/{database}"))
    }

    /// Carries out SQL as the superuser; what it prints.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        run(&mut self.psql(database, sql))
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        // By its socket: what answers there is no other program's server.
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h"]).arg(&self.dir);
        psql.args(["-U", "postgres", "-p", &self.port.to_string(), "-d", database, "-c", sql]);
        psql.env("PGPASSWORD", PASSWORD).stdin(Stdio::null());
        psql
    }
}

/// A disk of its own, in memory, for a database. It has to outlive the server.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Makes one of so many bytes. An empty database takes 8 MiB.
    pub fn new(bytes: u64) -> Self {
        let owner = owner();
        let disk = Self(directory(owner));
        let options = format!("size={bytes},uid={},gid={}", owner.0, owner.1);
        let options = CString::new(options).unwrap();
        let flags = MountFlags::empty();
        mount("tmpfs", &disk.0, "tmpfs", flags, options.as_c_str()).expect("root mounts");
        disk
    }

    /// Takes so much of it away, which others than the database need.
    pub fn take(&self, bytes: usize) {
        std::fs::write(self.ballast(), vec![0; bytes]).unwrap();
    }

    /// They do not need it any more.
    pub fn give_back(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Not there if it could not be mounted.
        let _gone = unmount(&self.0, UnmountFlags::DETACH);
        let _gone = std::fs::remove_dir(&self.0);
    }
}

/// A new directory of the server's owner.
fn directory(owner: (u32, u32)) -> PathBuf {
    let dir = tempfile::Builder::new().prefix("strake-pg-").tempdir().unwrap().keep();
    chown(&dir, Some(owner.0), Some(owner.1)).unwrap();
    dir
}

/// Where the newest package has its programs.
fn programs() -> PathBuf {
    let packages = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = packages.map(|package| package.path().join("bin"));
    let found = programs.filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists());
    let version = |bin: &PathBuf| -> u32 {
        let name = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        name.and_then(|name| name.parse().ok()).unwrap_or(0)
    };
    found.max_by_key(version).expect(
        "PostgreSQL is not installed, and the tests of its engine need it: apt-get install postgresql \
         (`make test` does that where it may)",
    )
}

/// Who runs the server: the package's user, or nobody, where this program is root's.
fn owner() -> (u32, u32) {
    let own = std::fs::metadata("/proc/self").unwrap();
    if own.uid() != 0 {
        return (own.uid(), own.gid());
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map_while(|field| field.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    };
    find("postgres").or_else(|| find("nobody")).expect("a user who is not root")
}

fn as_owner<'a>(command: &'a mut Command, owner: (u32, u32), dir: &Path) -> &'a mut Command {
    command.current_dir(dir);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(owner.0).gid(owner.1);
    }
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
