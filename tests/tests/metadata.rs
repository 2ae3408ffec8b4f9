//! `strake meta export` and `import`: a server's metadata moves between engines, nothing is lost on the way, and what
//! is interrupted goes on.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;
use strake::node::MetaPlace;
use strake::node::identity::Node;
use strake::node::moving::{self, Import};
use strake_engine::kv::dump::{self, Progress, Step};
use strake_engine::kv::{DatabaseOptions, EngineKind, Outcome, Part, Transaction, open_database};
use strake_tests::cluster::{
    Mount, Process, eventually, free_port, mount_memory, mount_of, mount_volume, run, signal,
    strake, take_away,
};
use strake_tests::etcd::EtcdServer;
use strake_tests::postgres::{PASSWORD, PostgresServer};
use tempfile::TempDir;

/// How often an import is killed.
const KILLS: u64 = 12;
/// What a file occupies that has a byte somewhere, at least.
const BLOCK_BYTES: u64 = 4096;
/// So long files may wait to be counted that are closed.
const COUNTED_WAIT: Duration = Duration::from_secs(60);

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A server with all roles that is stopped and started with other flags.
struct Server {
    process: Option<Process>,
    mounts: u32,
    address: String,
    directory: TempDir,
}

impl Server {
    fn start(further: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let mut server = Self { process: None, mounts: 0, address, directory };
        server.start_again(further);
        server
    }

    fn start_again(&mut self, further: &[&str]) {
        let mut arguments: Vec<String> =
            ["server", "--listen", &self.address, "--roles", "manager,meta,storage", "--data"]
                .map(String::from)
                .into();
        arguments.extend([text(&self.home()), text(&self.at("disk"))]);
        arguments.extend(further.iter().map(|argument| (*argument).to_owned()));
        let mut process = Process::start(&arguments, &self.at("server.log"));
        process.wait_until_it_serves("strake server");
        self.process = Some(process);
    }

    fn stop(&mut self) {
        self.process.take().unwrap().stop();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.at("home")
    }

    fn mount(&mut self) -> Mount {
        self.mounts += 1;
        mount_of(&self.address, &self.at(&format!("mnt{}", self.mounts)), "")
    }

    fn mount_of(&self, volume: &str) -> Mount {
        let path = self.at(volume);
        fs::create_dir_all(&path).unwrap();
        mount_volume(&self.address, volume, &path, "")
    }

    /// Fails unless `strake fsck` finds nothing.
    fn check(&self) {
        let output = run(["fsck", "--json", "--cluster", &self.address]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// The arguments of `strake meta VERB` on this server.
    fn arguments(&self, verb: &str, further: &[&str]) -> Vec<String> {
        let data = text(&self.home());
        let own = ["meta", verb, "--data", &data];
        own.iter().chain(further).map(|argument| (*argument).to_owned()).collect()
    }

    /// `strake meta VERB`: its exit code, and what it says.
    fn meta(&self, verb: &str, further: &[&str]) -> (Option<i32>, String) {
        let arguments = self.arguments(verb, further);
        let output = run(arguments.iter().map(String::as_str));
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(!said.contains(PASSWORD), "{said}");
        (output.status.code(), said)
    }

    /// What a server of this home says that must not start.
    fn does_not_start(&self, further: &[&str]) -> String {
        let address = format!("127.0.0.1:{}", free_port());
        let data = [self.home(), self.at("disk")].map(|path| text(&path));
        let own = ["server", "--listen", &address, "--roles", "manager,meta,storage", "--data"];
        let arguments = own.into_iter().chain(data.iter().map(String::as_str));
        let output = run(arguments.chain(further.iter().copied()));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains(PASSWORD), "{said}");
        said
    }

    /// The same, which must succeed.
    fn succeed(&self, verb: &str, further: &[&str]) -> String {
        let (code, said) = self.meta(verb, further);
        assert_eq!(code, Some(0), "{said}");
        said
    }

    /// The same, which must fail and say all of these words, the next command among them.
    fn refused(&self, words: &[&str], verb: &str, further: &[&str]) {
        let (code, said) = self.meta(verb, further);
        assert!(matches!(code, Some(1 | 2)), "{code:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
        let next = ["next: ", "; ", "--help"].iter().any(|next| said.contains(next));
        assert!(next, "what to do: {said}");
    }

    fn begin(&self, verb: &str, further: &[&str]) -> Child {
        let arguments = self.arguments(verb, further);
        let mut command = strake(arguments.iter().map(String::as_str));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// Arguments for an import into an embedded store.
fn into_redb(file: &str) -> [&str; 5] {
    ["--meta", "embedded", "--engine", "redb", file]
}

/// Files of every kind, and what only metadata knows of them.
fn fill(root: &Path) {
    for dir in 0..5 {
        let dir = root.join(format!("dir{dir}"));
        fs::create_dir(&dir).unwrap();
        for nth in 0..40_usize {
            fs::write(dir.join(format!("small{nth}")), vec![nth as u8; nth * 150]).unwrap();
        }
        fs::write(dir.join("big"), vec![9; 3_000_000]).unwrap();
        let sparse = File::create(dir.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 5_000_000).unwrap();
        fs::hard_link(dir.join("big"), root.join(format!("{}-again", text(&dir)))).unwrap();
        symlink("big", dir.join("link")).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(dir.join("small3"), "user.colour", b"blue", flags).unwrap();
        fs::set_permissions(dir.join("small4"), fs::Permissions::from_mode(0o4711)).unwrap();
        chown(dir.join("small5"), Some(1234), Some(4321)).unwrap();
    }
    fs::rename(root.join("dir0/small0"), root.join("dir1/renamed")).unwrap();
    fs::remove_file(root.join("dir0/small1")).unwrap();
}

/// Waits until the server has counted what sparse files of [`fill`] occupy, which it does once they are closed.
fn all_counted(root: &Path) {
    for dir in 0..5 {
        let sparse = root.join(format!("dir{dir}/sparse"));
        eventually(COUNTED_WAIT, "a sparse file is counted", || {
            sparse.metadata().unwrap().blocks() * 512 >= BLOCK_BYTES
        });
    }
}

/// Everything that can be seen of what is below a directory.
fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().unwrap();
        let mut contents = Vec::new();
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if meta.is_file() {
            contents = fs::read(&path).unwrap();
        } else {
            contents = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
        }
        let mut value = [0; 100];
        let colour = rustix::fs::lgetxattr(&path, "user.colour", &mut value[..]).ok();
        let attributes = [meta.ino(), meta.nlink(), meta.size(), meta.blocks()];
        let owner = (meta.mode(), meta.uid(), meta.gid());
        let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
        let hash = blake3::hash(&contents);
        let about = format!("{attributes:?} {owner:?} {times:?} {colour:?} {hash}");
        seen.insert(path.strip_prefix(root).unwrap().to_owned(), about);
    }
    seen
}

/// What one picture shows otherwise than another one.
fn changed(
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
) -> Vec<(PathBuf, Option<String>, Option<String>)> {
    let all = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
    let pairs = all.map(|path| (path.clone(), before.get(path).cloned(), after.get(path).cloned()));
    pairs.filter(|(_, before, after)| before != after).collect()
}

#[test]
fn everything_is_there_whichever_engine_it_was_moved_to() {
    let database = PostgresServer::shared();
    let urls = [0, 1].map(|_| database.url(&database.database()));
    let mut server = Server::start(&[]);
    let mount = server.mount();
    fill(mount.path());
    // What a mount closes it may close later.
    drop(mount);
    let mount = server.mount();
    all_counted(mount.path());
    let mut wanted = picture(mount.path());
    drop(mount);
    server.stop();
    let embedded = |engine: &'static str| vec!["--meta", "embedded", "--engine", engine];
    let moves = [
        embedded("redb"),
        vec!["--meta", &urls[0]],
        vec!["--meta", &urls[1]],
        embedded("fjall"),
        embedded("fjall"),
    ];
    let mut from: Vec<&str> = Vec::new();
    for (nth, to) in moves.iter().enumerate() {
        let file = text(&server.at(&format!("export{nth}")));
        let said = server.succeed("export", &[&from[..], &[&file]].concat());
        assert!(said.contains("read back and sound"), "{said}");
        let was_embedded = server.home().join("meta").exists();
        let said = server.succeed("import", &[&from[..], to, &[&file]].concat());
        assert!(said.contains("compared with the file"), "{said}");
        let old = server.home().join("meta.moved");
        assert_eq!((old.exists(), said.contains(&text(&old))), (was_embedded, was_embedded));
        if was_embedded {
            fs::remove_dir_all(&old).unwrap();
        }
        let in_database = to.len() == 2;
        server.start_again(if in_database { to } else { &[] });
        server.check();
        let mount = server.mount();
        assert_eq!(changed(&wanted, &picture(mount.path())), [], "after move {nth}");
        // It is a store like any other.
        fs::write(mount.at("more"), "more").unwrap();
        fs::remove_file(mount.at("more")).unwrap();
        fs::remove_file(mount.at("dir2-again")).unwrap();
        fs::hard_link(mount.at("dir2/big"), mount.at("dir2-again")).unwrap();
        wanted = picture(mount.path());
        drop(mount);
        server.check();
        server.stop();
        from = if in_database { vec!["--from", to[1]] } else { Vec::new() };
    }
}

/// Nothing of it changes what the server has.
#[test]
fn what_cannot_be_moved_is_refused_with_the_reason() {
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let mut server = Server::start(&[]);
    fs::write(server.mount().at("file"), "here").unwrap();
    let file = text(&server.at("export"));
    server.refused(&["is running", "fuser", "the same command again"], "export", &[&file]);
    server.stop();
    let nowhere = ["meta", "export", "--data", "/nonexistent", &file];
    let said = String::from_utf8_lossy(&run(nowhere).stderr).into_owned();
    assert!(said.contains("no data directory of a server") && said.contains("next: "), "{said}");
    server.succeed("export", &[&file]);
    server.refused(&["is there already"], "export", &[&file]);
    server.refused(&["No such file", "no/dir.part"], "export", &["/no/dir"]);

    let whole = fs::read(&file).unwrap();
    let middle = whole.len() / 2;
    let flipped = [&whole[..middle], &[whole[middle] ^ 1], &whole[middle + 1..]].concat();
    let newer = [&whole[..8], &[9], &whole[9..]].concat();
    let bad: [(&[u8], &[&str]); 4] = [
        (b"anything else", &["no export of a metadata store"]),
        (&newer, &["has format 9", "newer release"]),
        (&whole[..whole.len() - 1], &["cut off", "at byte", "export again"]),
        (&flipped, &["checksum", "at byte", "export again"]),
    ];
    for (bytes, words) in bad {
        let path = text(&server.at("bad"));
        fs::write(&path, bytes).unwrap();
        server.refused(&[words, &[&path[..]]].concat(), "import", &into_redb(&path));
    }
    server.refused(&["No such file"], "import", &into_redb("/nonexistent"));
    let usage = ["--meta", &url, "--engine", "redb", &file];
    server.refused(&["--engine is for an embedded"], "import", &usage);
    server.refused(
        &["neither embedded nor postgres://"],
        "import",
        &["--meta", "mysql://h", &file],
    );
    let unreachable = ["--meta", "postgres://u:p@127.0.0.1:1/d", &file];
    server.refused(&["cannot be reached"], "import", &unreachable);
    assert!(!server.home().join("meta.new").exists(), "nothing was begun");

    let mut other = Server::start(&[]);
    fs::write(other.mount().at("file"), "there").unwrap();
    other.stop();
    let others = text(&other.at("export"));
    other.succeed("export", &[&others]);
    server.refused(&["of cluster", "this server"], "import", &into_redb(&others));
    other.succeed("import", &["--meta", &url, &others]);
    let words = ["is not empty: it holds store", "DROP TABLE"];
    server.refused(&words, "import", &["--meta", &url, &file]);
    server.start_again(&[]);
    server.check();
    assert_eq!(fs::read(server.mount().at("file")).unwrap(), b"here");
    server.stop();
    other.start_again(&["--meta", &url]);
    assert_eq!(fs::read(other.mount().at("file")).unwrap(), b"there");
}

#[test]
fn a_volume_of_several_shares_moves_from_one_database_to_another_and_to_an_embedded_store() {
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let mut server = Server::start(&["--meta", &url]);
    let wide = format!("{}:/wide", server.address);
    let create = ["volume", "create", "wide", "--shares", "4", "--cluster", &server.address];
    assert!(run(create).status.success());
    let tree = server.at("tree");
    fs::create_dir(&tree).unwrap();
    fill(&tree);
    assert!(run(["cp", "-r", &text(&tree), &wide]).status.success());
    server.stop();
    let file = text(&server.at("export"));
    server.succeed("export", &["--from", &url, &file]);
    let etcd = EtcdServer::shared();
    let there = etcd.url(&etcd.name());
    server.succeed("import", &["--from", &url, "--meta", &there, &file]);
    server.start_again(&["--meta", &there]);
    server.check();
    let mount = server.mount_of("wide");
    fs::rename(mount.at("tree/dir3"), mount.at("tree/dir2/dir3")).unwrap();
    fs::rename(mount.at("tree/dir2/dir3"), mount.at("tree/dir3")).unwrap();
    drop(mount);
    server.stop();
    let file = text(&server.at("again"));
    server.succeed("export", &["--from", &there, &file]);
    server.succeed("import", &["--from", &there, "--meta", "embedded", &file]);
    server.start_again(&[]);
    server.check();
    let mount = server.mount_of("wide");
    assert_eq!(fs::read(mount.at("tree/dir3/big")).unwrap(), vec![9; 3_000_000]);
    fs::rename(mount.at("tree/dir1"), mount.at("tree/dir2/dir1")).unwrap();
    fs::remove_dir_all(mount.at("tree")).unwrap();
    drop(mount);
    server.check();
}

#[test]
fn what_has_changed_since_is_not_lost_by_mistake() {
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let mut server = Server::start(&["--engine", "redb"]);
    fs::write(server.mount().at("old"), "old").unwrap();
    server.stop();
    let (first, second) = (text(&server.at("first")), text(&server.at("second")));
    server.succeed("export", &[&first]);
    server.start_again(&[]);
    fs::write(server.mount().at("new"), "new").unwrap();
    server.stop();
    let to = ["--meta", &url];
    let words = ["has run since", "strake meta export"];
    server.refused(&words, "import", &[&to[..], &[&first]].concat());
    server.succeed("export", &[&second]);
    server.succeed("import", &[&to[..], &[&second]].concat());
    server.start_again(&to);
    assert_eq!(fs::read(server.mount().at("new")).unwrap(), b"new");
    server.stop();

    // From a database, the old store has to be named; or nobody wants what is in it.
    let back = ["--meta", "embedded", &first];
    server.refused(&["give --from"], "export", &[&text(&server.at("third"))]);
    server.refused(&["give --from"], "import", &back);
    server.refused(&["has run since"], "import", &[&["--from", &url], &back[..]].concat());
    let third = text(&server.at("third"));
    server.succeed("export", &["--from", &url, &third]);
    server.refused(&["is now"], "import", &["--from", &url, "--meta", &url, &third]);
    fs::remove_dir_all(server.home().join("meta.moved")).unwrap();
    server.succeed("import", &["--from", &url, "--meta", "embedded", &third]);
    // Before it starts, it may go on to another engine; nothing has changed.
    server.succeed("import", &into_redb(&third));
    server.start_again(&[]);
    assert_eq!(fs::read(server.mount().at("new")).unwrap(), b"new");
    server.stop();
    // Of two old stores, one would have to go.
    let third = text(&server.at("fourth"));
    server.succeed("export", &[&third]);
    let old = text(&server.home().join("meta.moved"));
    server.refused(&[&old, "rm -r"], "import", &into_redb(&third));
    // Nobody moves by a flag.
    let said = server.does_not_start(&["--meta", &url]);
    assert!(said.contains("strake meta export"), "{said}");
}

/// Who was started with the old `--meta` led the old store beside the one who led the new store.
#[test]
fn the_store_that_was_moved_away_is_closed_until_the_move_is_given_up() {
    let database = PostgresServer::shared();
    let [from, to] = [(); 2].map(|()| database.url(&database.database()));
    let mut server = Server::start(&["--meta", &from]);
    fs::write(server.mount().at("file"), "old").unwrap();
    server.stop();
    let (first, file) = (text(&server.at("first")), text(&server.at("export")));
    // A copy to keep changes nothing.
    server.succeed("export", &["--from", &from, &first]);
    server.start_again(&["--meta", &from]);
    server.stop();
    server.succeed("export", &["--from", &from, &file]);
    let node = server.home().join("node.json");
    let before = fs::read(&node).unwrap();
    let import = ["--from", &from, "--meta", &to, &file];
    let said = server.succeed("import", &import);
    assert!(said.contains("is closed: no server starts on it"), "{said}");

    // As other servers have it; and this one, if the import was killed just before its end.
    fs::write(&node, &before).unwrap();
    let said = server.does_not_start(&["--meta", &from]);
    for word in ["is closed", "was moved to postgres://", "next: start this server with --meta"] {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    let words = ["is closed", "strake meta reopen"];
    server.refused(&words, "export", &["--from", &from, &text(&server.at("again"))]);
    let elsewhere = [&["--from", &from][..], &into_redb(&file)].concat();
    server.refused(&words, "import", &elsewhere);
    server.succeed("import", &import);
    let said = server.succeed("reopen", &["--from", &to]);
    assert!(said.contains("is not closed"), "{said}");

    fs::write(&node, &before).unwrap();
    let words = ["was moved to postgres://", "files are lost", "--yes"];
    server.refused(&words, "reopen", &["--from", &from]);
    assert!(server.does_not_start(&["--meta", &from]).contains("is closed"));
    server.succeed("reopen", &["--from", &from, "--yes"]);
    server.start_again(&["--meta", &from]);
    assert_eq!(fs::read(server.mount().at("file")).unwrap(), b"old");
    server.stop();
    server.refused(&["has run since"], "import", &import);
}

/// What another manager does when it begins to lead, before anything is written.
fn lead(options: &DatabaseOptions) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = open_database(options).unwrap();
    runtime.block_on(async {
        let kv = store.open(Part::Whole).await.unwrap();
        dump::forget(&*kv).await.unwrap();
    });
}

/// It was looked at before the import only.
#[test]
fn what_another_server_writes_during_an_import_is_not_lost() {
    let database = PostgresServer::shared();
    let [from, to] = [(); 2].map(|()| database.url(&database.database()));
    let mut server = Server::start(&["--meta", &from]);
    fs::write(server.mount().at("file"), "old").unwrap();
    server.stop();
    let file = text(&server.at("export"));
    server.succeed("export", &["--from", &from, &file]);
    let options = DatabaseOptions {
        url: from.clone(),
        store: Node::read(&server.home()).unwrap().store,
        create: false,
        host: "another".into(),
        wait_ms_max: 20_000,
    };
    let import = Import {
        home: server.home(),
        from: Some(MetaPlace::Database(from.clone())),
        to: MetaPlace::Database(to),
        engine: None,
        file: file.into(),
    };
    let is_led = Cell::new(false);
    let progress = |now: Progress| {
        if now.step == Step::Import && !is_led.replace(true) {
            // This thread has a runtime already.
            std::thread::scope(|scope| scope.spawn(|| lead(&options)).join().unwrap());
        }
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let failure = runtime.block_on(moving::import(&import, progress)).err().unwrap().to_string();
    assert!(failure.contains("has run since"), "{failure}");
    server.start_again(&["--meta", &from]);
    assert_eq!(fs::read(server.mount().at("file")).unwrap(), b"old");
}

/// A server whose metadata takes a while to be moved, its picture, and an export.
fn large() -> (Server, usize, String) {
    let mut server = Server::start(&[]);
    let mount = server.mount();
    let files = 3_000;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let root = mount.at(&format!("dir{thread}"));
            scope.spawn(move || {
                fs::create_dir(&root).unwrap();
                for nth in 0..files / 4 {
                    fs::write(root.join(format!("file{nth}")), vec![nth as u8; 4_000]).unwrap();
                }
            });
        }
    });
    drop(mount);
    server.stop();
    let file = text(&server.at("export"));
    server.succeed("export", &[&file]);
    (server, files, file)
}

fn is_whole(server: &mut Server, files: usize) {
    server.check();
    let mount = server.mount();
    for nth in 0..files / 4 {
        for thread in 0..4 {
            let path = mount.at(&format!("dir{thread}/file{nth}"));
            assert_eq!(fs::read(&path).unwrap(), vec![nth as u8; 4_000], "{}", text(&path));
        }
    }
}

#[test]
fn metadata_moves_to_etcd_and_back() {
    let etcd = EtcdServer::start(1, &[]);
    let url = etcd.url("strake");
    let (mut server, files, first) = large();
    etcd.ctl(&["put", "strake/map/k", "v"]);
    server.refused(&["keys are there"], "import", &["--meta", &url, &first]);
    etcd.ctl(&["del", "strake/map/k"]);
    server.succeed("import", &["--meta", &url, &first]);
    server.start_again(&["--meta", &url]);
    is_whole(&mut server, files);
    server.stop();
    let second = text(&server.at("second"));
    server.refused(&["give --from", "etcd://127.0.0.1"], "export", &[&second]);
    server.succeed("export", &["--from", &url, &second]);
    fs::remove_dir_all(server.home().join("meta.moved")).unwrap();
    server.succeed("import", &[&["--from", &url][..], &into_redb(&second)].concat());
    server.start_again(&[]);
    is_whole(&mut server, files);
    server.stop();
    // Nobody takes for empty what was left there.
    server.succeed("export", &[&text(&server.at("third"))]);
    let words = ["is not empty", "etcdctl del --prefix strake/"];
    server.refused(&words, "import", &["--meta", &url, &text(&server.at("third"))]);
}

#[test]
fn an_import_that_was_killed_goes_on() {
    let database = PostgresServer::shared();
    let url = database.url(&database.database());
    let (mut server, files, first) = large();
    let second = text(&server.at("second"));
    let to_database = ["--meta", &url, &first];
    let back = [&["--from", &url][..], &into_redb(&second)].concat();
    for (arguments, start) in [(&to_database[..], &["--meta", &url][..]), (&back[..], &[][..])] {
        let mut killed = 0;
        for nth in 0..KILLS {
            let mut import = server.begin("import", arguments);
            std::thread::sleep(Duration::from_millis(40 * nth));
            match import.try_wait().unwrap() {
                None => killed += 1,
                Some(_) => break,
            }
            import.kill().unwrap();
            import.wait().unwrap();
        }
        assert!(killed > 0);
        // The last one may have come to its end before it was killed, and told nobody; then it is done.
        server.succeed("import", arguments);
        server.succeed("import", arguments);
        server.start_again(start);
        is_whole(&mut server, files);
        server.stop();
        if server.home().join("meta.moved").exists() {
            fs::remove_dir_all(server.home().join("meta.moved")).unwrap();
            server.succeed("export", &["--from", &url, &second]);
        }
    }
}

/// What the journal of a store holds.
fn journal_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let journals = entries.filter(|e| e.file_name().to_string_lossy().starts_with("journal-"));
    journals.map(|entry| entry.metadata().map_or(0, |meta| meta.len())).sum()
}

/// Interrupts an import into an embedded store in its middle; how it ended. One that was done before, because this
/// process had to wait for a processor, is undone and begun anew.
fn interrupted(server: &Server, arguments: &[&str]) -> Output {
    let [node, meta, new, old] =
        ["node.json", "meta", "meta.new", "meta.moved"].map(|name| server.home().join(name));
    let before = fs::read(&node).unwrap();
    for _ in 0..20 {
        let mut import = server.begin("import", arguments);
        let mut has_ended = || import.try_wait().unwrap().is_some();
        while journal_bytes(&new) < 1 << 20 && !has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !has_ended() {
            signal(import.id(), "INT");
        }
        let output = import.wait_with_output().unwrap();
        if !output.status.success() {
            return output;
        }
        fs::remove_dir_all(&meta).unwrap();
        fs::rename(&old, &meta).unwrap();
        fs::write(&node, &before).unwrap();
        server.succeed("reopen", &["--yes"]);
    }
    panic!("each import was done before it was interrupted");
}

#[test]
fn an_import_that_is_interrupted_says_how_it_goes_on_and_spoils_nothing() {
    let (mut server, files, file) = large();
    let arguments = into_redb(&file);
    let output = interrupted(&server, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("next: the same command"), "{said}");
    server.refused(&["--engine redb was begun", "rm -r"], "import", &["--meta", "embedded", &file]);
    // The server starts on what it had.
    server.start_again(&[]);
    is_whole(&mut server, files);
    server.stop();
    // So the file may be outdated, which is refused; what was begun is of no use with another.
    server.refused(&["has run since"], "import", &arguments);
    let newer = text(&server.at("newer"));
    server.succeed("export", &[&newer]);
    server.refused(&["another file", "rm -r"], "import", &into_redb(&newer));
    fs::remove_dir_all(server.home().join("meta.new")).unwrap();
    server.succeed("import", &into_redb(&newer));
    server.start_again(&[]);
    is_whole(&mut server, files);
}

/// A disk in memory, which goes with this value.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        take_away(&self.0);
    }
}

/// A disk that is full while exporting, and a store in which there is something already.
#[test]
fn what_has_no_room_is_told_and_goes_on_when_there_is_some() {
    let (server, ..) = large();
    let disk = Small(server.at("small"));
    mount_memory(&disk.0, 40 << 20);
    let (file, filler) = (text(&disk.0.join("export")), disk.0.join("filler"));
    fs::write(&filler, vec![0; 36 << 20]).unwrap();
    server.refused(&["no space left", "the same command", &file], "export", &[&file]);
    let begun = fs::metadata(disk.0.join("export.part")).unwrap().len();
    assert!(begun > 1 << 20, "{begun}");
    fs::remove_file(&filler).unwrap();
    server.succeed("export", &[&file]);
    assert_eq!(fs::read(&file).unwrap(), fs::read(server.at("export")).unwrap());

    let new = server.home().join("meta.new");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kv = strake_engine::kv::open(EngineKind::Fjall, &new).unwrap();
    runtime.block_on(async {
        let mut tx = Transaction::begin(&*kv).await.unwrap();
        tx.put(b"key".to_vec(), "value");
        assert_eq!(tx.commit(&*kv).await.unwrap(), Outcome::Committed);
    });
    drop(kv);
    let import = ["--meta", "embedded", &text(&server.at("export"))];
    server.refused(&["is not empty", "rm -r", &text(&new)], "import", &import);
    fs::remove_dir_all(&new).unwrap();
    server.succeed("import", &import);
}
