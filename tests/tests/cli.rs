//! The command line: every kind of bad input gives one clear message and a non-zero exit code, and
//! changes nothing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use strake_tests::cluster::{
    Process, Servers, eventually, free_port, is_mounted, may_be_nobody, run, run_as_nobody, signal,
    strake, succeed,
};
use strake_tests::stores::restart_without;
use tempfile::TempDir;

/// Files that a refused command may touch: its log, and the lock of a directory.
const MAY_CHANGE: &[&str] = &["strake.log"];

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a command that must fail with exit code `code`; the one message it gives.
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments.iter().copied());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "strake {}: {error}", arguments.join(" "));
    let messages = error.lines().filter(|l| l.starts_with("strake: ") || l.starts_with("error: "));
    assert_eq!(messages.count(), 1, "one message: {error}");
    error
}

/// As [`refused`]; the message must contain all of `words`, and `watched` must stay as it is.
fn refused_unchanged(watched: &Path, words: &[&str], arguments: &[&str]) {
    let before = contents(watched);
    let error = refused(1, arguments);
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    assert_eq!(contents(watched), before, "a refused command changes nothing: {error}");
}

/// Every file below a directory with length and hash of its contents.
fn contents(directory: &Path) -> BTreeMap<PathBuf, (usize, u64)> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            found.insert(path, (0, 0));
        } else if metadata.is_file() && !MAY_CHANGE.iter().any(|name| path.ends_with(name)) {
            let bytes = std::fs::read(&path).unwrap();
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            found.insert(path, (bytes.len(), hasher.finish()));
        }
    }
    found
}

/// A server with all roles on a directory of its own.
struct Server {
    process: Process,
    address: String,
    data: PathBuf,
    directory: TempDir,
}

impl Server {
    fn start() -> Server {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let address = format!("127.0.0.1:{}", free_port());
        let process = begin(&directory, &address, &data);
        Server { process, address, data, directory }
    }

    fn source(&self, volume: &str) -> String {
        format!("{}:/{volume}", self.address)
    }

    fn status(&self) -> i32 {
        run(["status", "--cluster", &self.address]).status.code().unwrap()
    }
}

fn begin(directory: &TempDir, address: &str, data: &Path) -> Process {
    let data = text(data);
    let roles = "manager,meta,storage";
    let arguments = ["server", "--listen", address, "--roles", roles, "--data", &data];
    let mut process =
        Process::start(&arguments.map(String::from), &directory.path().join("server.log"));
    process.wait_until("strake server", || {
        run(["status", "--cluster", address]).status.code() == Some(0)
    });
    process
}

#[test]
fn wrong_arguments_are_explained() {
    let cases: &[(&[&str], &str)] = &[
        (&["frobnicate"], "frobnicate"),
        (&["up", "--targets", "0"], "--targets"),
        (&["up", "--memory", "much"], "much"),
        (&["up", "--memory", "1"], "32M"),
        (&["up", "--memory", "1000T"], "in all"),
        (&["up", "--engine", "rocks"], "rocks"),
        (&["server", "--listen", "a"], "--data"),
        (&["server", "--listen", "a", "--data", "/x", "--roles", "boss"], "boss"),
        (&["server", "--listen", "a", "--data", "/x", "--roles", "storage"], "--join"),
        (
            &["server", "--listen", "a", "--data", "/x", "--roles", "manager", "--name", "4"],
            "--name",
        ),
        (&["volume", "create", "v", "--chunk-size", "5000"], "5000"),
        (&["volume", "create", "v", "--distribution", "random"], "random"),
        (&["mount", "somewhere", "/mnt"], "somewhere"),
        (&["volume", "create", "v", "--groups", "0,0"], "twice"),
        (&["volume", "create", "v", "--groups", "0", "--copies", "2"], "groups of the same kind"),
        (&["volume", "create", "a/b"], "a/b"),
        (&["volume", "create", "v", "--inline-max", "1M"], "64K"),
        (&["volume", "set", "v", "--inline-max", "8G"], "64K"),
        (&["volume", "create", "v", "--shares", "0"], "1 to 64 shares"),
        (&["volume", "create", "v", "--min-copies", "2"], "--copies and --min-copies"),
        (&["volume", "create", "v", "--copies", "2", "--min-copies", "3"], "3 copies"),
        (&["layout", "set", "."], "nothing to set"),
        (&["layout", "set", ".", "--targets", "3,3"], "twice"),
        (&["ls", "/etc"], "/etc"),
        (&["status", "--log-level", "loud,=="], "--log-level"),
    ];
    for (arguments, word) in cases {
        let error = refused(2, arguments);
        assert!(error.contains(word), "{word:?} is not in: {error}");
        assert!(!error.contains("invalid argument"), "the sentence says all: {error}");
    }
}

/// It was "No such file or directory" and nothing else.
#[test]
fn a_path_that_is_not_there_is_told_with_the_form_of_others() {
    for (code, verb) in [(1, &["layout", "get"][..]), (2, &["why"])] {
        let error = refused(code, &[verb, &[":main"]].concat());
        assert!(error.contains("strake: :main: ") && error.contains(":/VOLUME/PATH"), "{error}");
    }
}

#[test]
fn help_explains_every_verb() {
    let all = succeed(["--help"]);
    let verbs = "up down server mount umount volume layout status doctor scrub fsck cp ls stat cat rm df du bench";
    for verb in verbs.split(' ') {
        assert!(all.contains(&format!("  {verb} ")), "{verb}");
        assert!(succeed([verb, "--help"]).contains("Usage: "), "{verb}");
    }
}

#[test]
fn an_unreachable_server_is_named_with_what_to_do() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let error = refused(2, &["status", "--cluster", &nobody]);
    assert!(error.contains(&nobody) && error.contains("next:"), "{error}");
    // A monitor that reads the report was given none.
    let output = run(["status", "--json", "--cluster", &nobody]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let problem = report["problems"][0].as_str().unwrap();
    assert_eq!((output.status.code(), report["health"].as_str()), (Some(2), Some("broken")));
    assert!(problem.contains(&nobody) && problem.contains("strake doctor"), "{problem}");
    // Where nobody reads it the exit code said that all is fine.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = strake(["status", "--json", "--cluster", &nobody]);
    assert_eq!(unread.stdout(writer).output().unwrap().status.code(), Some(2));
    let source = format!("{nobody}:/main");
    let mount = directory.path().join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let server =
        ["server", "--listen", "127.0.0.1:0", "--roles", "storage", "--join", &nobody, "--data"];
    let server: Vec<&str> = server.into_iter().chain([data.to_str().unwrap()]).collect();
    let (local, path) = (text(&directory.path().join("x")), format!("{source}/x"));
    for arguments in [
        &["volume", "list", "--cluster", &nobody][..],
        &["ls", &source],
        &["cp", &path, &local],
        &["mount", &source, &text(&mount), "-o", &format!("log={}/log", text(directory.path()))],
        &server,
    ] {
        let error = refused(1, arguments);
        assert!(error.contains(&nobody), "{error}");
    }
    assert!(!data.exists(), "a server that could not join leaves nothing behind");
    let error = refused(1, &["ls", "no.such.host.invalid:/main"]);
    assert!(error.contains("no.such.host.invalid"), "{error}");
}

#[test]
fn what_does_not_exist_is_named() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let mount = text(directory.path());
    let log = format!("log={}/log", text(server.directory.path()));
    let cluster = ["--cluster", &server.address];
    for (word, arguments) in [
        ("nothere", &["mount", &server.source("nothere"), &mount, "-o", &log][..]),
        ("nodir", &["mount", &server.source("main/nodir"), &mount, "-o", &log]),
        ("nothere", &["volume", "info", "nothere"]),
        ("nothere", &["client", "list", "nothere"]),
        ("nothere", &["volume", "delete", "nothere", "--yes"]),
        ("nothere", &["volume", "set", "nothere", "--stripe-width", "2"]),
        ("main", &["volume", "create", "main"]),
        ("nofile", &["stat", &server.source("main/nofile")]),
        ("nofile", &["cat", &server.source("main/nofile")]),
        ("nothere", &["ls", &server.source("nothere")]),
    ] {
        let arguments: Vec<&str> = arguments.iter().copied().chain(cluster).collect();
        let error = refused(1, &arguments);
        assert!(error.contains(word), "{word:?} is not in: {error}");
        assert!(error.matches("no such file or directory").count() <= 1, "{error}");
    }
    for words in
        ["info nothere", "delete nothere", "delete nothere --yes", "set nothere --copies 1"]
    {
        let arguments: Vec<&str> =
            ["volume"].into_iter().chain(words.split(' ')).chain(cluster).collect();
        let error = refused(1, &arguments);
        assert!(error.contains("next: strake volume list"), "{words}: {error}");
        let way = format!("export STRAKE_CLUSTER={}", server.address);
        assert!(error.contains(&way), "that asks another cluster, or none: {error}");
    }
    assert!(!is_mounted(directory.path()));
    assert_eq!(server.status(), 0);
}

/// The first path that was wrong was the end, and nothing of the others was shown.
#[test]
fn of_several_paths_those_that_are_there_are_shown_and_the_others_named() {
    let server = Server::start();
    let file = server.directory.path().join("file");
    std::fs::write(&file, "hello\n").unwrap();
    succeed(["cp", &text(&file), &server.source("main/file")]);
    let [there, first, second] =
        ["main/file", "main/nofile", "main/nothing"].map(|path| server.source(path));
    for verb in ["stat", "du", "ls", "cat"] {
        let output = run([verb, &first, &there, &second]);
        let shown = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{verb}: {error}");
        assert!(error.contains("nofile") && error.contains("nothing"), "{verb}: {error}");
        assert!(shown.contains("file") || shown == "hello\n", "{verb}: {shown}");
    }
}

/// A volume that was not served hid all others, and the targets.
#[test]
fn df_shows_what_answers_and_names_the_volume_that_does_not() {
    let mut servers = Servers::start();
    let address = servers.address().to_owned();
    succeed(["volume", "create", "other", "--cluster", &address]);
    restart_without(&mut servers, 2);
    let output = run(["df", "--cluster", &address]);
    let shown = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("strake: volume other: "), "{error}");
    let firsts: Vec<_> = shown.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(firsts, ["VOLUME", "main", "TARGET", "1", "2", "3", "4", "all"], "{shown}");
    let output = run(["df", "--json", "--cluster", &address]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!((output.status.code(), rows.len()), (Some(1), 1), "{rows:?}");
    assert_eq!(rows[0]["volume"], "main");
}

/// A volume that is not there was the end: the error before it was never told, and what came after it stayed.
#[test]
fn of_several_paths_those_that_can_be_are_removed_and_the_others_named() {
    let server = Server::start();
    let file = server.directory.path().join("file");
    std::fs::write(&file, "hello\n").unwrap();
    succeed(["cp", &text(&file), &server.source("main/z")]);
    let [x, y, z] = ["main/x", "typo/y", "main/z"].map(|path| server.source(path));
    let output = run(["rm", "--verbose", &x, &y, &z]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("main/x") && error.contains("typo"), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 removed\n");
    assert_eq!(succeed(["ls", &server.source("main")]), "");
}

/// It was the end: nothing else was counted, and the rest stayed.
#[test]
fn what_may_not_be_looked_into_is_named_and_keeps_du_and_rm_from_nothing_else() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    for (name, mode) in [("t", 0o777), ("t/locked", 0o711), ("t/own", 0o777)] {
        std::fs::create_dir(mount.at(name)).unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(mount.at(name), mode).unwrap();
    }
    for name in ["t/locked/x", "t/own/y", "t/z"] {
        std::fs::write(mount.at(name), "x").unwrap();
    }
    let tree = format!("{}:/main/t", servers.address());
    let tried_at = |arguments: &[&str], place: &str| {
        let output = run_as_nobody(arguments.iter().copied().chain([place]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("/t/locked") && error.contains("denied"), "{error}");
        assert_eq!(error.lines().filter(|line| line.starts_with("strake: ")).count(), 1, "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    let tried = |arguments: &[&str]| tried_at(arguments, &tree);
    tried_at(&["ls"], &format!("{tree}/locked"));
    let used: serde_json::Value = serde_json::from_str(&tried(&["du", "--json"])).unwrap();
    assert_eq!(used[0]["entries"], 5, "{used}");
    assert_eq!(tried(&["rm", "-rv"]), "3 removed\n");
    assert!(mount.at("t/locked/x").exists());
    assert!(!mount.at("t/own").exists() && !mount.at("t/z").exists());
}

/// Whoever gave these commands was root to the servers.
#[test]
fn layout_and_why_act_in_the_name_of_their_user() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    for (name, mode) in [("of-root", 0o755), ("locked", 0o700), ("own", 0o755)] {
        std::fs::create_dir(mount.at(name)).unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(mount.at(name), mode).unwrap();
    }
    std::fs::write(mount.at("locked/secret"), "x").unwrap();
    std::os::unix::fs::chown(mount.at("own"), Some(65_534), Some(65_534)).unwrap();
    let there = |name: &str| format!("{}:/main/{name}", servers.address());
    let [of_root, own, secret] = ["of-root", "own", "locked/secret"].map(there);
    let set = ["--chunk-size", "64K"];
    let existing = ["--copies", "1", "--existing", "--dry-run"];
    let cases: [(i32, &[&str], &[&str], &str); 6] = [
        (1, &["layout", "set", &of_root], &set, "operation not permitted"),
        (1, &["layout", "set", &of_root], &existing[..3], "as root"),
        (1, &["layout", "set", &of_root], &existing, "as root"),
        (2, &["why", &of_root], &[], "as root"),
        (1, &["layout", "get", &secret], &[], "permission denied"),
        (2, &["why", &secret], &[], "permission denied"),
    ];
    for (code, verb, flags, words) in cases {
        let output = run_as_nobody([verb, flags].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{verb:?}: {error}");
        assert!(error.contains(words) && error.contains(verb[verb.len() - 1]), "{error}");
    }
    let done = run_as_nobody(["layout", "set", &own, "--chunk-size", "64K"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for (place, chunk_size) in [(&own, Some(65_536)), (&of_root, None)] {
        let shown = run_as_nobody(["layout", "get", "--json", place]);
        let view: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(view["chunk_size"].as_u64(), chunk_size, "{view}");
    }
    let shown = succeed(["layout", "get", &own]);
    assert!(shown.contains("copies        1 (of volume main)"), "{shown}");
}

/// It became a file of this machine with that name, and all was well.
#[test]
fn a_copy_to_a_cluster_without_a_volume_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), "x").unwrap();
    let copy = |from: &str, to: &str| {
        strake(["cp", from, to]).current_dir(directory.path()).output().unwrap()
    };
    for (from, to) in [("f", "host:9150:"), ("f", "host:"), ("f", ":"), (":main/x", "f")] {
        let output = copy(from, to);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{from} {to}: {error}");
        assert!(error.contains("names no place") && error.contains(":/VOLUME"), "{error}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert!(copy("f", "./host:").status.success() && copy("f", "host:").status.success());
}

/// The first that was in use was the end.
#[test]
fn of_several_mounts_those_that_are_idle_are_taken_away() {
    let servers = Servers::start();
    let mounts = ["a", "b", "c"].map(|name| servers.mount(name, ""));
    let [a, b, c] = [0, 1, 2].map(|nth: usize| text(mounts[nth].path()));
    let in_use = std::fs::File::create(mounts[0].at("f")).unwrap();
    let output = run(["umount", &a, &b, &c]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&a) && !error.contains(&b), "{error}");
    let mounted = [0, 1, 2].map(|nth: usize| is_mounted(mounts[nth].path()));
    assert_eq!(mounted, [true, false, false]);
    drop(in_use);
}

/// Its helper said that it does not know the mount.
#[test]
fn a_mount_of_somebody_else_is_told_with_who_may_take_it_away() {
    if !may_be_nobody() {
        return;
    }
    let servers = Servers::start();
    let mount = servers.mount("mount", "");
    let output = run_as_nobody(["umount", &text(mount.path())]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("root has mounted it"), "{error}");
    assert!(is_mounted(mount.path()));
}

/// It died by the signal: what was unsent was lost, and nothing said how to go on.
#[test]
fn a_copy_that_is_interrupted_ends_in_order_and_says_how_to_go_on() {
    let server = Server::start();
    let pipe = server.directory.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let (from, to) = (text(&pipe), server.source("main/x"));
    let mut copying = strake(["cp", &from, &to]);
    let copying = copying.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Returns when the copy has begun, and there is never anything to be read.
    let writer = std::fs::File::options().write(true).open(&pipe).unwrap();
    signal(copying.id(), "INT");
    let ended = copying.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{error}");
    assert!(error.contains("next: give the same command again"), "{error}");
    drop(writer);
}

#[test]
fn a_mount_point_that_cannot_be_used_is_named() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let (full, file) = (directory.path().join("full"), directory.path().join("file"));
    let (missing, used) = (directory.path().join("missing"), directory.path().join("used"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("precious"), "x").unwrap();
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir(&used).unwrap();
    let source = server.source("main");
    let log = format!("log={}/log", text(server.directory.path()));
    succeed(["mount", &source, &text(&used), "-o", &log]);
    for (path, word) in [
        (&full, "not empty"),
        (&file, "not a directory"),
        (&missing, "mkdir -p"),
        (&used, "mounted there already"),
    ] {
        let error = refused(1, &["mount", &source, &text(path), "-o", &log]);
        assert!(error.contains(word) && error.contains(&text(path)), "{error}");
    }
    let error = refused(1, &["umount", &text(&full)]);
    assert!(error.contains("no Strake volume"), "{error}");
    succeed(["umount", &text(&used)]);
    assert_eq!(std::fs::read(full.join("precious")).unwrap(), b"x");
}

/// It was passed over without a word, until the other one was away.
#[test]
fn a_manager_whose_name_stands_for_no_host_is_told_once_at_the_mount() {
    let server = Server::start();
    let [point, log] = ["mount", "log"].map(|name| server.directory.path().join(name));
    std::fs::create_dir(&point).unwrap();
    let source = format!("no..host,{}", server.source("main"));
    let output = run(["mount", &source, &text(&point), "-o", &format!("log={}", text(&log))]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let told = "manager no..host:7440 is passed over: ";
    assert_eq!(error.matches(told).count(), 1, "{error}");
    let logged = || std::fs::read_to_string(&log).unwrap().matches(told).count() == 1;
    eventually(Duration::from_secs(30), "the log of the mount tells of it", logged);
    succeed(["umount", &text(&point)]);
}

#[test]
fn a_port_or_a_directory_that_is_in_use_is_named() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let roles = ["--roles", "manager,meta,storage"];
    let path = text(&data);
    let mut arguments = vec!["server", "--listen", &taken, "--data", &path];
    arguments.extend(roles);
    refused_unchanged(directory.path(), &[&taken, "next:"], &arguments);
    arguments.extend(["--metrics", &taken]);
    arguments[2] = "127.0.0.1:0";
    refused_unchanged(directory.path(), &["--metrics", &taken], &arguments);
    let path = text(&server.data);
    let mut arguments = vec!["server", "--listen", "127.0.0.1:0", "--data", &path];
    arguments.extend(roles);
    let error = refused(1, &arguments);
    assert!(error.contains(&path) && error.contains("in use"), "{error}");
    assert_eq!(server.status(), 0);
}

#[test]
fn an_up_that_is_refused_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (new, full) = (directory.path().join("new"), directory.path().join("full"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("precious"), "x").unwrap();
    let (data, mount, full) = (text(&new.join("data")), text(&new.join("mnt")), text(&full));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let database = ["--meta", "etcd://127.0.0.1/d", "--engine", "redb"];
    let before = contents(directory.path());
    let cases: &[(i32, &str, &str, &[&str])] = &[
        (1, &taken, &mount, &["--listen", &taken]),
        (1, &taken, &mount, &["--metrics", &taken]),
        (1, "not empty", &full, &[]),
        (2, "frobnicate", &mount, &["-o", "frobnicate"]),
        // Known only when everything else is made.
        (2, "--engine", &mount, &database),
    ];
    for (code, word, mount, further) in cases {
        for way in [&[][..], &["--detach"]] {
            let up = ["up", "--data", &data, "--mount", mount];
            let arguments = [&up[..], *further, way].concat();
            let error = refused(*code, &arguments);
            assert!(error.contains(word), "{word:?} is not in: {error}");
            assert_eq!(contents(directory.path()), before, "{arguments:?}");
            assert!(!new.exists(), "{arguments:?}");
        }
    }
}

#[test]
fn data_of_another_cluster_or_a_newer_release_is_refused() {
    let mut one = Server::start();
    one.process.stop();
    let other = Server::start();
    let data = text(&one.data);
    let join = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--roles",
        "storage",
        "--join",
        &other.address,
        "--data",
    ];
    let arguments: Vec<&str> = join.into_iter().chain([data.as_str()]).collect();
    refused_unchanged(&one.data, &["cluster"], &arguments);
    // The target alone, taken to a server of another cluster.
    let moved = one.directory.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    std::fs::rename(one.data.join("target"), moved.join("target")).unwrap();
    let path = text(&moved);
    let arguments: Vec<&str> = join.into_iter().chain([path.as_str()]).collect();
    refused_unchanged(&moved, &["cluster"], &arguments);
    std::fs::rename(moved.join("target"), one.data.join("target")).unwrap();
    assert_eq!(other.status(), 0);

    let file = one.data.join("node.json");
    let newer = std::fs::read_to_string(&file).unwrap().replace("\"format\": 1", "\"format\": 99");
    std::fs::write(&file, newer).unwrap();
    let start =
        ["server", "--listen", "127.0.0.1:0", "--roles", "manager,meta,storage", "--data", &data];
    refused_unchanged(&one.data, &["99", "newer release"], &start);
}

#[test]
fn a_target_that_is_missing_or_not_ours_is_refused() {
    let mut server = Server::start();
    server.process.stop();
    let (target, aside) = (server.data.join("target"), server.directory.path().join("aside"));
    let data = text(&server.data);
    let start =
        ["server", "--listen", "127.0.0.1:0", "--roles", "manager,meta,storage", "--data", &data];
    std::fs::rename(&target, &aside).unwrap();
    // Its own manager says first whether the target has left the cluster: no more than that is at work there.
    let looks_there = |words: &[&str]| {
        let error = refused(1, &start);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    looks_there(&["missing", "next:"]);
    assert!(!target.exists(), "nothing is begun there");
    std::fs::create_dir(&target).unwrap();
    looks_there(&["missing"]);
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "nor there");
    std::fs::write(target.join("holiday.jpg"), "x").unwrap();
    looks_there(&[&text(&target)]);
    std::fs::remove_dir_all(&target).unwrap();
    std::fs::rename(&aside, &target).unwrap();
    server.process = begin(&server.directory, &server.address, &server.data);
    assert_eq!(server.status(), 0);
}

#[test]
fn a_corrupt_store_is_refused() {
    let mut server = Server::start();
    server.process.stop();
    let data = text(&server.data);
    let start =
        ["server", "--listen", "127.0.0.1:0", "--roles", "manager,meta,storage", "--data", &data];
    let identity = server.data.join("node.json");
    let whole = std::fs::read(&identity).unwrap();
    std::fs::write(&identity, &whole[..whole.len() / 2]).unwrap();
    refused_unchanged(&server.data, &["node.json", "corrupt"], &start);
    std::fs::write(&identity, whole).unwrap();
    // A metadata store that is gone is not taken for a new one.
    let (meta, aside) = (server.data.join("meta"), server.directory.path().join("aside"));
    std::fs::rename(&meta, &aside).unwrap();
    refused_unchanged(&server.data, &["metadata store", "missing"], &start);
    std::fs::create_dir(&meta).unwrap();
    refused_unchanged(&server.data, &["metadata store", "missing"], &start);
    std::fs::create_dir(meta.join("lost+found")).unwrap();
    refused_unchanged(&server.data, &["metadata store", "missing"], &start);
    std::fs::remove_dir_all(&meta).unwrap();
    std::fs::rename(&aside, &meta).unwrap();
}

/// All of it was gone after a start that said nothing, or the whole cluster; then an empty --data was asked for.
#[test]
fn metadata_whose_journal_has_lost_its_end_is_refused_and_whole_when_that_is_back() {
    let mut server = Server::start();
    let file = server.directory.path().join("file");
    std::fs::write(&file, "hello").unwrap();
    succeed(["cp", "--sync", &text(&file), &server.source("main/file")]);
    server.process.stop();
    let data = text(&server.data);
    let start =
        ["server", "--listen", "127.0.0.1:0", "--roles", "manager,meta,storage", "--data", &data];
    let entries = std::fs::read_dir(server.data.join("meta")).unwrap();
    let journal = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| text(path).contains("/journal-"))
        .max()
        .unwrap();
    let whole = std::fs::read(&journal).unwrap();
    let name = text(Path::new(journal.file_name().unwrap()));
    for left in [0, whole.len().saturating_sub(4096), whole.len() / 2] {
        for zeros in [0, whole.len() - left] {
            let mut bytes = whole[..left].to_vec();
            bytes.resize(left + zeros, 0);
            std::fs::write(&journal, bytes).unwrap();
            let error = refused(1, &start);
            for word in ["metadata store", "corrupt", &name, "a backup"] {
                assert!(error.contains(word), "{word:?} is not in: {error}");
            }
            assert!(!error.contains("empty --data"), "{error}");
        }
    }
    std::fs::write(&journal, whole).unwrap();
    server.process = begin(&server.directory, &server.address, &server.data);
    assert_eq!(succeed(["cat", &server.source("main/file")]), "hello");
}

/// It started as if nothing were, and whoever read was the first to learn of it.
#[test]
fn a_target_of_which_a_data_file_is_missing_or_cut_is_refused_and_whole_when_that_is_back() {
    let mut server = Server::start();
    let file = server.directory.path().join("file");
    let contents = vec![7; 1 << 20];
    std::fs::write(&file, &contents).unwrap();
    succeed(["cp", "--sync", &text(&file), &server.source("main/file")]);
    server.process.stop();
    let data = text(&server.data);
    let start =
        ["server", "--listen", "127.0.0.1:0", "--roles", "manager,meta,storage", "--data", &data];
    let (segment, aside) =
        (server.data.join("target/data-00000"), server.directory.path().join("aside"));
    std::fs::rename(&segment, &aside).unwrap();
    let check = |how: &str| {
        let error = refused(1, &start);
        let words = ["target", "corrupt", "data-00000", how, "strake target replace"];
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
    };
    check("is missing");
    assert!(!segment.exists(), "nothing is made in its place");
    std::fs::write(&segment, [7; 4096]).unwrap();
    check("ends at byte 4096");
    assert_eq!(std::fs::metadata(&segment).unwrap().len(), 4096);
    std::fs::rename(&aside, &segment).unwrap();
    server.process = begin(&server.directory, &server.address, &server.data);
    let back = server.directory.path().join("back");
    succeed(["cp", &server.source("main/file"), &text(&back)]);
    assert!(std::fs::read(&back).unwrap() == contents);
}

/// A small file system of its own under a directory, taken away with the value.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(path: &Path, options: &str) -> Tmpfs {
        std::fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path);
        assert!(mount.status().unwrap().success());
        Tmpfs(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        strake_tests::cluster::take_away(&self.0);
    }
}

#[test]
fn a_disk_that_is_read_only_or_full_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for options in ["ro", "size=256k"] {
        let disk = Tmpfs::mount(&directory.path().join(options), options);
        let data = text(&disk.0.join("data"));
        let start = [
            "server",
            "--listen",
            "127.0.0.1:0",
            "--roles",
            "manager,meta,storage",
            "--data",
            &data,
        ];
        let error = refused(1, &start);
        assert!(error.contains(&text(&disk.0)), "{error}");
    }
}

/// It made as many as there was room for, and nothing got out of the data directory any more.
#[test]
fn an_up_with_more_targets_than_its_disk_has_room_for_leaves_nothing_behind() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk = Tmpfs::mount(&directory.path().join("disk"), "size=200m");
    let (data, mount) = (disk.0.join("data"), text(&directory.path().join("mnt")));
    let error = refused(1, &["up", "--data", &text(&data), "--mount", &mount]);
    assert!(error.contains("4 new targets") && error.contains("256 MiB"), "{error}");
    assert!(!data.exists());
}

/// A server whose disk was not mounted came back as another one, and took its own address away.
#[test]
fn a_server_whose_first_directory_is_away_does_not_come_back_as_a_new_one() {
    let cluster = Server::start();
    let at = |name: &str| cluster.directory.path().join(name);
    let (data, listen) = (text(&at("second")), format!("127.0.0.1:{}", free_port()));
    let own = ["server", "--listen", &listen, "--data", &data, "--roles", "storage"];
    let join = ["--join", &cluster.address, "--name", "second"];
    let arguments = [&own[..], &join].concat();
    let start = |log: &str, further: &[&str]| {
        let words: Vec<String> = arguments.iter().chain(further).map(|&w| w.into()).collect();
        let mut process = Process::start(&words, &at(log));
        process.wait_until_it_serves("the second server");
        process
    };
    let servers = || {
        let list = succeed(["server", "list", "--json", "--cluster", &cluster.address]);
        list.matches("second").count()
    };
    start("1.log", &[]).stop();
    std::fs::rename(at("second"), at("away")).unwrap();
    let error = refused(1, &arguments);
    assert!(error.contains("node.json") && error.contains("--new-server"), "{error}");
    assert!(!at("second").exists() && servers() == 1, "{error}");
    std::fs::rename(at("away"), at("second")).unwrap();
    start("2.log", &[]).stop();
    std::fs::rename(at("second"), at("away")).unwrap();
    // Its address is its own until it counts as down.
    eventually(Duration::from_secs(60), "the second server is down", || {
        let list = succeed(["server", "list", "--json", "--cluster", &cluster.address]);
        list.contains("\"up\": false") || list.contains("\"up\":false")
    });
    let _meant = start("3.log", &["--new-server"]);
    assert_eq!(servers(), 2);
}

/// It was said in the log of what runs in the background only, or not at all.
#[test]
fn an_up_in_the_background_says_what_it_makes_of_its_options() {
    let directory = tempfile::tempdir().unwrap();
    let [data, mount] = ["data", "mnt"].map(|name| text(&directory.path().join(name)));
    let options = "memory=1K,wait=99999999999999";
    let output = run(["up", "--detach", "--data", &data, "--mount", &mount, "-o", options]);
    let _stopped = run(["down", "--data", &data]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for words in ["memory=1K is too little; 32M is used", "wait=99999999999999 is too long"] {
        assert!(said.contains(words), "{said}");
    }
}

/// It stayed for half a minute, in which the volume could not be deleted because it was in use.
#[test]
fn a_layout_or_why_or_mount_that_fails_leaves_no_session() {
    let server = Server::start();
    let on_cluster = |verb: &[&str]| succeed([verb, &["--cluster", &server.address]].concat());
    on_cluster(&["volume", "create", "v"]);
    let (root, nothing) = (server.source("v"), format!("{}/nothing", server.source("v")));
    let point = server.directory.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let point = text(&point);
    let verbs: [(i32, &[&str]); 6] = [
        (1, &["layout", "get", &nothing]),
        (1, &["layout", "set", &nothing, "--copies", "1"]),
        (1, &["layout", "set", &nothing, "--copies", "1", "--existing"]),
        (1, &["layout", "set", &root, "--targets", "99"]),
        (2, &["why", &nothing]),
        (1, &["mount", "--foreground", &nothing, &point]),
    ];
    for (code, verb) in verbs {
        refused(code, verb);
    }
    let clients = on_cluster(&["client", "list", "v", "--json"]);
    for client in ["layout at", "why at", &point] {
        assert!(!clients.contains(client), "{clients}");
    }
    on_cluster(&["volume", "delete", "v", "--yes"]);
}
