//! `strake testbed`: it comes up, its links and disks are as slow as asked for, it survives and outlives
//! nothing, and after `down` nothing of it is left.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use strake_tests::cluster::{
    command_lines, eventually, is_mounted, program, run, strake, take_away,
};
use strake_tests::made::pattern;
use tempfile::TempDir;

/// A testbed with a name that no other test of this machine has. Goes with its value.
struct Bed {
    name: String,
    directory: TempDir,
}

impl Bed {
    fn new(test: &str) -> Bed {
        let directory = tempfile::tempdir().unwrap();
        Bed { name: format!("t{}-{test}", std::process::id()), directory }
    }

    /// The verb on this testbed, and further arguments.
    fn command(&self, verb: &str, further: &[&str]) -> Command {
        strake(["testbed", verb, "--name", &self.name].into_iter().chain(further.iter().copied()))
    }

    fn run(&self, verb: &str, further: &[&str]) -> Output {
        self.command(verb, further).output().unwrap()
    }

    fn succeed(&self, verb: &str, further: &[&str]) -> String {
        let output = self.run(verb, further);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "testbed {verb} {further:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn up(&self, further: &[&str]) -> String {
        let data = self.data().display().to_string();
        self.succeed("up", &[&["--data", &data], further].concat())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("bed")
    }

    fn mount(&self, nth: u32) -> PathBuf {
        self.data().join(format!("mnt/c{nth}"))
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&self.run("status", &["--json"]).stdout).unwrap_or_default()
    }

    /// Processes that run on a host.
    fn processes(&self, host: &str) -> Vec<u32> {
        let status = self.status();
        let hosts = status["hosts"].as_array().unwrap();
        let host = hosts.iter().find(|h| h["host"] == host).unwrap();
        let pids = host["processes"].as_array().unwrap();
        pids.iter().map(|pid| pid.as_u64().unwrap() as u32).collect()
    }

    fn namespaces(&self) -> Vec<String> {
        let prefix = format!("strake.{}.", self.name);
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    /// How many processes name this testbed in their command line.
    fn commands(&self) -> usize {
        let names_it = |line: &[u8]| String::from_utf8_lossy(line).contains(&self.name);
        command_lines().filter(|(_, line)| names_it(line)).count()
    }

    /// Nothing that a testbed consists of is there.
    fn assert_gone(&self, pids: &[u32]) {
        assert_eq!(self.namespaces(), [""; 0]);
        assert!(!self.data().exists(), "{}", self.data().display());
        assert!(!Path::new("/run/strake/testbeds").join(&self.name).is_symlink());
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let here = self.directory.path().display().to_string();
        assert!(!mounts.contains(&here), "{mounts}");
        for pid in pids {
            assert_eq!(strake_base::process::began_ticks(*pid), None, "process {pid}");
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let down = self.run("down", &[]);
        if !down.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&down.stderr));
            (1..=2).for_each(|nth| take_away(&self.mount(nth)));
        }
    }
}

fn is_possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return false;
    }
    true
}

/// `kill -9`, and waits until it is gone.
fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
    while strake_base::process::began_ticks(pid).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_cluster_in_a_testbed_is_used_loses_a_server_and_goes_without_a_trace() {
    if !is_possible() {
        return;
    }
    let bed = Bed::new("cluster");
    let limits = ["--servers", "2", "--link", "1gbit", "--disk", "40MB/s", "--chunk-size", "64K"];
    let said = bed.up(&limits);
    assert!(said.contains(&format!("strake testbed down --name {}", bed.name)), "{said}");
    let file = bed.mount(1).join("file");
    std::fs::write(&file, pattern(5 << 20)).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), pattern(5 << 20));
    for server in ["s1", "s2"] {
        let target = bed.data().join(server).join("disk1/target/data-00000");
        assert!(target.exists(), "each server has a part: {}", target.display());
    }
    assert_eq!(bed.status()["fine"], true);
    let (program, shown) = (strake([]).get_program().to_owned(), file.display().to_string());
    let layout = ["c1", program.to_str().unwrap(), "layout", "get", "--no-tls", &shown];
    let layout = bed.succeed("exec", &layout);
    assert!(layout.contains("chunks of 64 KiB"), "{layout}");

    // A command sees the network of its host and the files of the machine; its exit code is ours.
    let address = bed.succeed("exec", &["s2", "ip", "-br", "addr", "show", "eth0"]);
    assert!(address.contains("10.98.") && address.contains(".2/24"), "{address}");
    let here = bed.mount(1).display().to_string();
    assert!(bed.succeed("exec", &["c1", "ls", &here]).contains("file"));
    assert_eq!(bed.run("exec", &["c1", "sh", "-c", "exit 3"]).status.code(), Some(3));
    assert_eq!(bed.run("exec", &["c1", "no-such-program"]).status.code(), Some(127));
    assert!(String::from_utf8_lossy(&bed.run("exec", &["c9", "ls"]).stderr).contains("s1, s2, c1"));

    let pids: Vec<u32> = ["m1", "s1", "s2", "c1"].iter().flat_map(|h| bed.processes(h)).collect();
    assert!(pids.len() >= 4, "{pids:?}");
    kill(bed.processes("s1")[0]);
    assert_eq!(bed.run("status", &[]).status.code(), Some(2));
    assert_eq!(bed.status()["fine"], false);
    bed.succeed("down", &[]);
    bed.assert_gone(&pids);
    assert!(bed.succeed("down", &[]).contains("nothing is left"));
    // Twice in a row, under the same name.
    bed.up(&["--servers", "1"]);
    assert!(is_mounted(&bed.mount(1)));
    bed.succeed("down", &[]);
    bed.assert_gone(&[]);
}

#[test]
fn two_testbeds_do_not_know_of_each_other_and_limits_are_measured() {
    if !is_possible() {
        return;
    }
    let (bed, other) = (Bed::new("one"), Bed::new("two"));
    for bed in [&bed, &other] {
        bed.up(&["--servers", "1", "--clients", "2", "--link", "200mbit", "--no-cluster"]);
    }
    let environment = bed.succeed("env", &[]);
    let value = |name: &str| {
        let script = format!("{environment}\necho ${name}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!((value("HOSTS"), value("CLIENTS")), ("s1 c1 c2".into(), "c1 c2".into()));
    assert_eq!(value("NAMESPACE_c2"), format!("strake.{}.c2", bed.name));
    assert_eq!(value("LINK_BYTES_PER_SECOND"), "25000000");
    assert_ne!(bed.status()["hosts"][0]["address"], other.status()["hosts"][0]["address"]);

    // What a stream carries is never above the link: headers are counted.
    let limits = bed.succeed("limit", &["--json", "--bytes", "4M", "--repetitions", "1"]);
    let limits: serde_json::Value = serde_json::from_str(&limits).unwrap();
    for direction in ["to_one", "from_one"] {
        let rate = limits[direction][0].as_f64().unwrap();
        assert!(rate > 0.0 && rate < 25e6, "{direction}: {limits:#}");
    }

    // A file system that is mounted in a testbed, as any directory here, stands beside its limits.
    let on = other.directory.path().display().to_string();
    let iozone = ["bench", "iozone", "-s", "64K", "-r", "64K", "-i", "0", "-e"];
    let iozone = iozone.into_iter().chain(["--testbed", &bed.name]);
    let refused = run(iozone.clone());
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("has no cluster to measure"), "{error}");
    let report = run(iozone.chain(["--on", &on, "--json"]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let limits = report["figures"].as_array().unwrap().iter();
    let limits: Vec<_> = limits.filter(|figure| figure["origin"] == "limit").collect();
    let tests: Vec<_> = limits.iter().map(|figure| figure["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["iozone/write -e", "iozone/rewrite -e"], "{report:#}");

    other.succeed("down", &[]);
    assert_eq!(bed.namespaces().len(), 4, "the other one had no part in it");
}

#[test]
fn what_a_kill_leaves_is_named_and_removed() {
    if !is_possible() {
        return;
    }
    let bed = Bed::new("killed");
    let data = bed.data().display().to_string();
    let mut up = bed
        .command("up", &["--data", &data, "--servers", "40"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while bed.namespaces().len() < 5 {
        assert!(up.try_wait().unwrap().is_none(), "it has forty hosts to make");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    up.kill().unwrap();
    up.wait().unwrap();
    // A command that it had begun outlives it, and may still make a namespace.
    eventually(Duration::from_secs(60), "its last command ends", || bed.commands() == 0);
    assert!(!bed.namespaces().is_empty());
    let again = bed.run("up", &["--data", &data]);
    let error = String::from_utf8_lossy(&again.stderr);
    assert!(error.contains(&format!("strake testbed down --name {}", bed.name)), "{error}");
    bed.succeed("down", &[]);
    bed.assert_gone(&[]);
}

#[test]
fn an_up_that_is_interrupted_or_fails_leaves_nothing() {
    if !is_possible() {
        return;
    }
    let bed = Bed::new("interrupted");
    let data = bed.data().display().to_string();
    let mut up = bed
        .command("up", &["--data", &data, "--servers", "40"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while bed.namespaces().len() < 3 {
        assert!(up.try_wait().unwrap().is_none(), "it has forty hosts to make");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // Twice, as impatient people and timeout(1) do.
    for _ in 0..2 {
        let _ended = Command::new("kill").args(["-INT", &up.id().to_string()]).status();
    }
    assert_eq!(up.wait().unwrap().code(), Some(1));
    bed.assert_gone(&[]);

    // A directory that is not empty is not taken, and stays as it is.
    std::fs::create_dir(bed.data()).unwrap();
    std::fs::write(bed.data().join("precious"), "x").unwrap();
    let refused = bed.run("up", &["--data", &data]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--data"));
    assert_eq!(bed.namespaces(), [""; 0]);
    assert!(bed.data().join("precious").exists());

    // A server that cannot start, for lack of room: its words are shown, and what was made goes too.
    std::fs::remove_file(bed.data().join("precious")).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", bed.data(), "tmpfs", flags, c"size=1m").unwrap();
    let failed = bed.run("up", &["--data", &data]);
    let error = String::from_utf8_lossy(&failed.stderr).into_owned();
    let left = std::fs::read_dir(bed.data()).unwrap().count();
    take_away(&bed.data());
    assert!(!failed.status.success() && error.contains("host "), "{error}");
    assert_eq!((left, bed.namespaces()), (0, vec![]));
}

#[test]
fn what_is_wrong_with_a_testbed_is_said_with_the_next_command() {
    for (arguments, expected) in [
        (vec!["up", "--link", "100"], "100mbit"),
        (vec!["up", "--disk", "6.83"], "6.83MB/s"),
        (vec!["up", "--servers", "0"], "1..=64"),
        (vec!["status", "--name", "a/b"], "--name"),
        (vec!["exec", "--name", "nobody-has-this-name", "c1", "ls"], "strake testbed up"),
    ] {
        let output = run(["testbed"].into_iter().chain(arguments.iter().copied()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let named = error.contains(expected) || error.contains("name one with --name");
        assert!(named, "{arguments:?}: {error}");
    }
}

#[test]
fn a_study_that_is_interrupted_takes_its_testbed_with_it() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut study = strake(["bench", "study", "3", "--quick"])
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let prefix = format!("strake.study-{}-", study.id());
    let namespaces = || {
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).count()
    };
    while namespaces() == 0 {
        assert!(study.try_wait().unwrap().is_none(), "it has a testbed to make");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let _ended = Command::new("kill").args(["-INT", &study.id().to_string()]).status();
    assert!(!study.wait().unwrap().success());
    assert_eq!(namespaces(), 0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    let four = run(["bench", "study", "4", "--quick"]);
    let error = String::from_utf8_lossy(&four.stderr).into_owned();
    assert!(!four.status.success() && error.contains("--on DIR"), "{error}");
}

#[test]
fn a_testbed_without_root_is_refused() {
    if !is_possible() {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(program())
        .args(["testbed", "up", "--name", "norights"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("need root") && error.contains("next: "), "{error}");
}
