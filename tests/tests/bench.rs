//! `strake bench`: what it measures is shown, what it makes is removed, and nonsense is refused.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strake_tests::cluster::{program, run, strake, succeed};
use strake_tests::programs;

/// How long a run may take to begin or to end. Only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(60);

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// True if a run has made its directory there, and said in it whose it is.
fn has_begun(directory: &Path) -> bool {
    let names = names_in(directory);
    let owner = names.first().map(|name| directory.join(name).join("owner.json"));
    owner.is_some_and(|owner| owner.metadata().is_ok_and(|owner| owner.len() > 0))
}

#[test]
fn iozone_compares_two_directories_and_leaves_both_empty() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let on = [format!("one={}", a.path().display()), format!("two={}", b.path().display())];
    let table = succeed([
        "bench",
        "iozone",
        "-s",
        "256K",
        "-r",
        "64K",
        "-t",
        "2",
        "-c",
        "-e",
        "--verify",
        "--on",
        &on[0],
        "--on",
        &on[1],
        "--repetitions",
        "2",
    ]);
    for word in ["iozone/write -ce", "iozone/backward read -c", "iozone/preadv -c", "one", "two"] {
        assert!(table.contains(word), "{word:?} is not in: {table}");
    }
    assert!(names_in(a.path()).is_empty() && names_in(b.path()).is_empty());
}

#[test]
fn bad_input_is_refused_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let (file, missing) = (file.display().to_string(), format!("{here}/missing"));
    for (code, word, arguments) in [
        (2, "0 repetitions", &["--repetitions", "0"][..]),
        (2, "4000 bytes", &["-s", "4000"]),
        (2, "12X", &["-s", "12X"]),
        (2, "records of 0", &["-r", "0"]),
        (2, "0 workers", &["-t", "0"]),
        (2, "\"99\"", &["-i", "99"]),
        (2, "-n", &["-a", "-n", "2M", "-g", "1M"]),
        (2, "two directories are named", &["--on", &here]),
        (2, "random mix", &["-i", "8"]),
        (2, "--read-percent", &["-+", "-t", "2"]),
        (2, "1..=100", &["-i", "8", "-t", "2", "-+p", "101"]),
        (2, "2 files for 3 workers", &["-t", "3", "-F", "a", "b"]),
        (2, "twice", &["-F", "a", "a"]),
        (2, "not below", &["-F", "/elsewhere/a"]),
        (1, "is there already", &["-F", "file"]),
        (1, "missing", &["-F", "missing/a"]),
        (2, "cannot be used with", &["-T", "--processes"]),
        (1, "has room for", &["-s", "1P", "-F", "a"]),
        (1, "has room for", &["-s", "1P"]),
        (1, "not a directory", &["--on", &file]),
        (1, &missing, &["--on", &missing]),
    ] {
        let arguments =
            ["bench", "iozone", "--on", &here].into_iter().chain(arguments.iter().copied());
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{word}: {error}");
        assert!(error.contains(word), "{word:?} is not in: {error}");
        assert!(output.stdout.is_empty(), "no figure without a measurement");
        assert_eq!(names_in(directory.path()), ["file"]);
    }
}

#[test]
fn iozones_own_spelling_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    std::fs::create_dir(directory.path().join("d")).unwrap();
    let iozone = ["bench", "iozone", "--on", &here, "--verify"];
    let mix = ["-s", "64K", "-i", "8", "-+p", "75", "-t", "4", "-T", "-O"];
    let table = succeed(iozone.into_iter().chain(mix));
    let row = table.lines().find(|line| line.starts_with("iozone/random mix")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[2..10], ["64", "KiB", "4", "KiB", "4", "3", "1/s", words[9]], "{table}");
    let absolute = format!("{here}/d/two");
    let book = format!("{here}/book.xlsx");
    let named = ["-Rac", "-g", "64K", "-i", "0", "-F", "one", &absolute, "-b", &book];
    let shown = succeed(iozone.into_iter().chain(named));
    assert!(shown.contains("\n\"iozone/write -c, "), "{shown}");
    assert!(shown.contains("\n\t\"4\"\t\"8\"\t\"16\"\t\"32\"\t\"64\"\n\"64\"\t"), "{shown}");
    assert!(std::fs::read(&book).unwrap().starts_with(b"PK"));
    std::fs::remove_file(book).unwrap();
    assert_eq!(names_in(directory.path()), ["d"]);
    assert!(names_in(&directory.path().join("d")).is_empty());
}

/// Workers that map one file cut what others had made longer, and what then had no page ended the run.
#[test]
fn mappings_of_one_file_are_made_in_processes_and_cut_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    let iozone = ["bench", "iozone", "-B", "-s", "64K", "-i", "0", "-i", "1", "-t", "4"];
    let shared = ["--shared-file", "--verify", "--repetitions", "5", "--on", &here];
    let table = succeed(iozone.into_iter().chain(shared));
    assert!(table.contains("iozone/reread"), "{table}");
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn a_run_that_is_interrupted_shows_what_it_has_and_leaves_nothing() {
    interrupted(&[]);
    interrupted(&["--processes", "-t", "2"]);
    interrupted(&["-F", "a", "b"]);
}

fn interrupted(crew: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    // So much that it is not done when it is interrupted: each record is waited for.
    let arguments =
        ["bench", "iozone", "-s", "16M", "-i", "0", "--repetitions", "1000", "-o", "--on", &here];
    let mut command = strake(arguments.into_iter().chain(crew.iter().copied()));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    // The run has begun when its directory is there.
    while names_in(directory.path()).is_empty() && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("interrupted"), "{shown}");
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    let mut command = strake(["bench", "iozone", "-s", "1G", "-i", "0", "-o", "--on", &here]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while !has_begun(directory.path()) && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names_in(directory.path()).len(), 1);
    let shown = succeed(["bench", "iozone", "-s", "64K", "-i", "0", "--on", &here]);
    assert!(shown.contains("removed "), "{shown}");
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn names_and_bonnies_tests_run_verified_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    let table = succeed([
        "bench", "meta", "--files", "20", "--depth", "1", "--bytes", "100", "-t", "2", "--shift",
        "--verify", "--on", &here,
    ]);
    for phase in "mkdir create stat read list rename remove rmdir".split(' ') {
        assert!(table.contains(&format!("meta/{phase} ")), "{phase:?} is not in: {table}");
    }
    let table = succeed(["bench", "bonnie", "-s", "160K", "-n", "1", "--verify", "--on", &here]);
    for test in ["output per chr", "rewrite", "seeks", "sequential create", "random delete"] {
        assert!(table.contains(&format!("bonnie/{test} ")), "{test:?} is not in: {table}");
    }
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn wrong_trees_and_wrong_blocks_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    for (word, arguments) in [
        ("chown", &["meta", "--phase", "chown"][..]),
        ("needs files", &["meta", "--files", "0"]),
        ("directories", &["meta", "--depth", "40", "--branching", "9"]),
        ("0 workers", &["meta", "-t", "0"]),
        ("blocks of 8K", &["bonnie", "-s", "10000"]),
        ("nothing to measure", &["bonnie", "-s", "0", "-n", "0"]),
    ] {
        let arguments = ["bench"].iter().chain(arguments).copied().chain(["--on", &here]);
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{word}: {error}");
        assert!(error.contains(word), "{word:?} is not in: {error}");
        assert!(names_in(directory.path()).is_empty());
    }
}

#[test]
fn a_study_stands_beside_its_published_figures() {
    let directory = tempfile::tempdir().unwrap();
    let on = format!("here={}", directory.path().display());
    let table = succeed(["bench", "study", "1", "--quick", "--repetitions", "1", "--on", &on]);
    for word in ["iozone/reread", "iozone/write -ce", "GlusterFS 3.2.7 (published)", "11.01"] {
        assert!(table.contains(word), "{word:?} is not in: {table}");
    }
    let matrix = ["bench", "matrix", "-s", "64K", "-b", "4K", "-t", "1", "-t", "4", "--verify"];
    let table = succeed(matrix.into_iter().chain(["--on", &on]));
    assert!(table.contains("matrix/read ") && table.contains("matrix/write fsync"), "{table}");
    assert!(names_in(directory.path()).is_empty());
    for (word, arguments) in [
        ("5", &["study", "5"][..]),
        ("blocks of 1000", &["matrix", "-s", "1M", "-b", "1000"]),
        ("number of threads", &["matrix", "-t", "0"]),
    ] {
        let output = run(["bench"].into_iter().chain(arguments.iter().copied()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// A network namespace that goes with its value.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status().unwrap();
        assert!(made.success(), "ip netns add {name}");
        Namespace(name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn processes_and_clients_in_namespaces_work_together() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    let on = ["--on", &here, "--verify"];
    let processes = ["bench", "iozone", "-s", "64K", "--processes", "-t", "3", "--shared-file"];
    let table = succeed(processes.into_iter().chain(on));
    assert!(table.contains("iozone/record rewrite"), "{table}");
    let (one, two) = (Namespace::new("bench-a"), Namespace::new("bench-b"));
    // The second has the directory under another path, which leads to the same place.
    let link = tempfile::tempdir().unwrap();
    let there = link.path().join("mnt");
    std::os::unix::fs::symlink(directory.path(), &there).unwrap();
    let clients = format!("netns:{},netns:{}={}", one.0, two.0, there.display());
    let meta =
        ["bench", "meta", "--files", "20", "--bytes", "10", "--shift", "--clients", &clients];
    let table = succeed(meta.into_iter().chain(on));
    assert!(table.contains("meta/rmdir") && table.contains("CLIENTS"), "{table}");
    for (test, arguments) in [
        ("bonnie/seeks", &["bonnie", "-s", "160K", "-n", "1", "-f"][..]),
        ("matrix/read", &["matrix", "-s", "64K", "-b", "4K", "-t", "1", "-t", "4"]),
        ("iozone/random mix", &["iozone", "-s", "64K", "-F", "a", "b"]),
    ] {
        let clients = ["--clients", &clients].into_iter().chain(on);
        let arguments = ["bench"].into_iter().chain(arguments.iter().copied()).chain(clients);
        let table = succeed(arguments);
        assert!(table.contains(test) && table.contains("CLIENTS"), "{table}");
    }
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn a_client_that_cannot_be_reached_is_named_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    for (code, word) in [(2, "-oProxyCommand=x"), (2, "a b"), (1, "netns:no-such-one")] {
        let clients = format!("--clients={word}");
        let output = run(["bench", "meta", "--files", "2", &clients, "--on", &here]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(word.trim_start_matches("netns:")), "{word:?} is not in: {error}");
        assert!(names_in(directory.path()).is_empty());
    }
}

/// A stand-in for ssh in a directory; the PATH with it. What was to run on a host runs here, unless the host is
/// dead; `hosts` has who was called, and what each was asked is in a file of its name.
fn stand_in_for_ssh(tools: &Path) -> String {
    let (ssh, at) = (tools.join("ssh"), tools.display());
    let script = format!(
        "#!/bin/sh\nwhile [ $1 = -o ]; do shift 2; done; host=$1; shift 2; echo $host >> {at}/hosts\n\
         [ $host != dead ] || exit 255\ntee -a {at}/$host | {} \"$@\"\n",
        program().display()
    );
    programs::make(&ssh, &script);
    format!("{at}:{}", std::env::var("PATH").unwrap())
}

#[test]
fn clients_on_other_hosts_are_reached_by_ssh_and_a_dead_one_is_named() {
    let tools = tempfile::tempdir().unwrap();
    let path = stand_in_for_ssh(tools.path());
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display().to_string();
    let measure = |clients: &str| {
        let arguments =
            ["bench", "meta", "--files", "5", "-t", "4", "--clients", clients, "--on", &here];
        strake(arguments).env("PATH", &path).output().unwrap()
    };
    let output = measure("one,me@two");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let hosts = std::fs::read_to_string(tools.path().join("hosts")).unwrap();
    let mut reached: Vec<_> = hosts.lines().collect();
    reached.sort_unstable();
    assert_eq!(reached, ["me@two", "me@two", "one", "one"], "four threads on two hosts");
    let output = measure("one,dead");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("dead has ended"), "{error}");
    assert!(names_in(directory.path()).is_empty());
}

/// Only this machine wrote what it held back, and there was nothing: hosts did while the next step, or the next
/// side, was timed.
#[test]
fn hosts_write_what_they_hold_back_before_the_next_step_and_the_next_side() {
    let tools = tempfile::tempdir().unwrap();
    let path = stand_in_for_ssh(tools.path());
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let on = [format!("a={}", a.path().display()), format!("b={}", b.path().display())];
    let matrix = ["bench", "matrix", "-s", "64K", "-b", "4K", "-t", "2", "--clients", "one,two"];
    let command = matrix.into_iter().chain(["--on", &on[0], "--on", &on[1]]);
    let output = strake(command).env("PATH", &path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for host in ["one", "two"] {
        let asked = std::fs::read_to_string(tools.path().join(host)).unwrap();
        for side in [&a, &b] {
            let begin = format!("{{\"settle\":{{\"directory\":\"{}", side.path().display());
            let (between, before) = (format!("{begin}\"}}}}"), format!("{begin}/.strake-bench-"));
            let is_asked = |wanted: &str| asked.lines().any(|line| line.starts_with(wanted));
            assert!(is_asked(&between) && is_asked(&before), "{host}: {asked}");
        }
    }
}

/// A file system in memory that goes with its value.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(options: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory.path());
        assert!(mount.status().unwrap().success(), "{mount:?}");
        Mounted(directory)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        // It may be gone already.
        let _gone = unmount.arg("-l").arg(self.0.path()).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_directory_that_is_read_only_and_one_that_is_full_are_told_apart() {
    for (options, word) in [("ro,size=64m", "Read-only"), ("size=1m", "has room for 1 MiB")] {
        let mounted = Mounted::new(options);
        let here = mounted.0.path().display().to_string();
        let output = run(["bench", "iozone", "-s", "64K", "--on", &here]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(word) && error.contains("next:"), "{word:?} is not in: {error}");
        assert!(names_in(mounted.0.path()).is_empty());
    }
}

#[test]
fn a_file_system_that_vanishes_ends_the_run_with_what_was_measured() {
    let mounted = Mounted::new("size=64m");
    let here = mounted.0.path().display().to_string();
    let arguments =
        ["bench", "iozone", "-s", "64K", "-i", "0", "--repetitions", "1000", "--on", &here];
    let mut command = strake(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !has_begun(mounted.0.path()) && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Something is measured.
    std::thread::sleep(Duration::from_millis(20));
    let unmounted = Command::new("umount").arg("-l").arg(mounted.0.path()).status().unwrap();
    assert!(unmounted.success());
    let (mut shown, mut error) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    let code = child.wait().unwrap().code();
    // On a fast machine the run may have ended before.
    if code != Some(0) {
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("strake-bench-") && error.contains("next:"), "{error}");
        assert!(shown.contains("ended early"), "{shown}");
    }
    assert!(names_in(mounted.0.path()).is_empty(), "nothing is left below the mount point");
}
