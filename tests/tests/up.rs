//! `strake up` and `strake down`: files stay over a stop, a crash and a power cut of the process.

use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use strake_base::process::began_ticks;
use strake_tests::cluster::{
    contents, eventually, is_mounted, mount_volume, run, signal, strake, succeed, take_away,
};
use strake_tests::made::pattern;
use strake_tests::servers::Cluster;
use tempfile::TempDir;

/// Only a hang reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// A place for `strake up --detach`, stopped and taken away with the value.
struct Home {
    directory: TempDir,
}

impl Home {
    fn new() -> Home {
        Home { directory: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> String {
        self.directory.path().join("data").display().to_string()
    }

    fn mount(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    fn up(&self, further: &[&str]) -> String {
        let (data, mount) = (self.data(), self.mount().display().to_string());
        let arguments = ["up", "--detach", "--data", &data, "--mount", &mount];
        succeed(arguments.into_iter().chain(further.iter().copied()))
    }

    fn down(&self) -> String {
        succeed(["down", "--data", &self.data()])
    }

    fn run_file(&self) -> serde_json::Value {
        let text = std::fs::read(self.directory.path().join("data/strake.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn pid(&self) -> u32 {
        self.run_file()["pid"].as_u64().unwrap() as u32
    }

    fn address(&self) -> String {
        self.run_file()["addresses"][0].as_str().unwrap().to_owned()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount().join(name)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _stopped = run(["down", "--data", &self.data()]);
        take_away(&self.mount());
    }
}

fn ended(pid: u32) -> bool {
    began_ticks(pid).is_none()
}

fn wait_for_end(pid: u32) {
    eventually(WAIT, "the process ends", || ended(pid));
}

#[test]
fn a_second_up_finds_the_files_of_the_first() {
    let home = Home::new();
    let said = home.up(&[]);
    assert!(said.contains("strake down"), "it says how to stop it: {said}");
    assert!(is_mounted(&home.mount()), "detached means usable");
    std::fs::write(home.at("small"), "x").unwrap();
    std::fs::write(home.at("large"), pattern(9_000_000)).unwrap();
    let pid = home.pid();
    home.down();
    assert!(!is_mounted(&home.mount()) && ended(pid));
    assert!(home.down().contains("nothing runs"), "down twice is no error");
    home.up(&[]);
    assert_eq!(contents(&home.at("small")), b"x");
    assert_eq!(contents(&home.at("large")), pattern(9_000_000));
}

/// In the background it had the limit of the shell that it was started from, 1,024 as a rule, and used it up.
#[test]
fn what_runs_in_the_background_may_have_as_many_files_open_as_the_system_allows() {
    let home = Home::new();
    let (data, mount) = (home.data(), home.mount().display().to_string());
    let up = strake(["up", "--detach", "--data", &data, "--mount", &mount]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 256; exec \"$0\" \"$@\""]).arg(up.get_program());
    shell.args(up.get_args()).stdin(Stdio::null());
    shell.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", home.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard] = [0, 1].map(|nth| line.split_whitespace().nth(nth).unwrap());
    assert_eq!(soft, hard, "{line}");
}

/// A limit of their size (`ulimit -f`, `LimitFSIZE=`) ended it without a word.
#[test]
fn what_runs_in_the_background_is_not_ended_by_a_limit_of_file_sizes() {
    let home = Home::new();
    home.up(&[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", home.pid())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert!(ignored & 1 << (Signal::XFSZ.as_raw() - 1) != 0, "{ignored:x}");
}

#[test]
fn after_kill_9_the_next_up_cleans_up_and_finds_the_files() {
    let home = Home::new();
    home.up(&[]);
    let file = std::fs::File::create(home.at("synced")).unwrap();
    std::io::Write::write_all(&mut &file, &pattern(3_000_000)).unwrap();
    file.sync_all().unwrap();
    std::fs::write(home.at("small"), "x").unwrap();
    drop(file);
    let pid = home.pid();
    signal(pid, "KILL");
    wait_for_end(pid);
    home.up(&[]);
    assert_eq!(contents(&home.at("synced")), pattern(3_000_000));
    assert_eq!(contents(&home.at("small")), b"x");
    let pid = home.pid();
    signal(pid, "KILL");
    wait_for_end(pid);
    assert!(home.down().contains("nothing runs"));
    assert!(!is_mounted(&home.mount()));
}

#[test]
fn down_takes_the_mount_away_from_a_program_that_uses_it() {
    let home = Home::new();
    home.up(&[]);
    let mut user = Command::new("sleep").arg("60").current_dir(home.mount()).spawn().unwrap();
    home.down();
    assert!(!is_mounted(&home.mount()));
    user.kill().unwrap();
    user.wait().unwrap();
}

/// It said nothing until, after ten minutes, it killed the process.
#[test]
fn down_says_what_it_waits_for_where_that_takes_long() {
    let home = Home::new();
    home.up(&[]);
    let pid = home.pid();
    signal(pid, "STOP");
    let down = strake(["down", "--data", &home.data()]).stderr(Stdio::piped()).spawn();
    let mut down = down.unwrap();
    let mut said = String::new();
    BufReader::new(down.stderr.take().unwrap()).read_line(&mut said).unwrap();
    signal(pid, "CONT");
    assert!(down.wait().unwrap().success());
    let words = [format!("process {pid} still runs"), home.mount().display().to_string()];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn unmounting_from_outside_stops_it() {
    let home = Home::new();
    home.up(&[]);
    let pid = home.pid();
    std::fs::write(home.at("f"), "x").unwrap();
    // A process that another test starts at this moment still has the file open.
    eventually(WAIT, "the mount is idle", || {
        run(["umount", &home.mount().display().to_string()]).status.success()
    });
    home.down();
    // `down` may find that nothing runs any more while the process still ends.
    wait_for_end(pid);
    home.up(&[]);
    assert_eq!(contents(&home.at("f")), b"x");
}

#[test]
fn the_commands_that_up_shows_work_as_they_are_shown() {
    let home = Home::new();
    let said = home.up(&[]);
    let shown = |before: &str| -> Vec<&str> {
        let (_, after) = said.split_once(before).expect(before);
        after.lines().next().unwrap().split(' ').collect()
    };
    let status = shown("look at it with: strake ");
    assert!(succeed(status.iter().copied()).contains("volumes: main"), "{said}");
    let (_, cluster) = shown("export ")[0].split_once('=').unwrap();
    assert_eq!(cluster, *status.last().unwrap());
    succeed(shown("stop it with: strake ").iter().copied());
    assert!(!is_mounted(&home.mount()));
}

#[test]
fn up_takes_the_options_of_mount() {
    let home = Home::new();
    let (data, mount) = (home.data(), home.mount().display().to_string());
    for (option, word) in
        [("log=/l", "strake.log"), ("no_tls", "--no-tls"), ("remount,ro", "mount -o")]
    {
        let arguments = ["up", "--detach", "--data", &data, "--mount", &mount, "-o", option];
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(word), "{option}: {error}");
    }
    home.up(&["-o", "wait=7,memory=64M,metrics=127.0.0.1:0", "-o", "noexec"]);
    assert!(home.run_file()["metrics"].is_string());
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(&format!(" {mount} "))).unwrap();
    assert!(line.contains("noexec"), "{line}");
}

#[test]
fn a_lost_disk_is_replaced_as_the_refusal_says() {
    let home = Home::new();
    home.up(&["--targets", "2"]);
    home.down();
    std::fs::remove_dir_all(home.directory.path().join("data/target-1")).unwrap();
    let (data, mount) = (home.data(), home.mount().display().to_string());
    let output = run(["up", "--detach", "--data", &data, "--mount", &mount]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("--new-disks"), "{error}");
    home.up(&["--new-disks"]);
    assert!(home.directory.path().join("data/target-1").exists() && is_mounted(&home.mount()));
}

/// It was refused from then on: the first restart after a removal was the end of the file system.
#[test]
fn up_goes_on_after_a_target_has_left() {
    let home = Home::new();
    home.up(&["--targets", "4"]);
    std::fs::write(home.at("f"), pattern(9_000_000)).unwrap();
    let said = succeed(["target", "remove", "3", "--wait", "--cluster", &home.address()]);
    assert!(said.contains("when the server of target 3 has closed it"), "{said}");
    let left = home.directory.path().join("data/target-2");
    let targets = || {
        let said = succeed(["target", "list", "--json", "--cluster", &home.address()]);
        let rows: serde_json::Value = serde_json::from_str(&said).unwrap();
        rows.as_array().unwrap().iter().map(|row| row["id"].as_u64()).collect::<Vec<_>>()
    };
    // With the directory there, without it, and once more.
    for gone in [false, true, true] {
        home.down();
        if gone && left.exists() {
            std::fs::remove_dir_all(&left).unwrap();
        }
        home.up(&[]);
        assert_eq!(contents(&home.at("f")), pattern(9_000_000));
        assert_eq!(targets(), [Some(1), Some(2), Some(4)], "no new one begins there");
    }
    home.down();
    home.up(&["--new-disks"]);
    assert_eq!(targets(), [Some(1), Some(2), Some(4), Some(5)]);
}

#[test]
fn a_second_up_on_the_same_data_is_refused() {
    let home = Home::new();
    home.up(&[]);
    let other = home.directory.path().join("other").display().to_string();
    let output = run(["up", "--detach", "--data", &home.data(), "--mount", &other]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("in use by process") && error.contains("strake down"), "{error}");
    assert!(!Path::new(&other).exists(), "nothing was made");
    assert!(is_mounted(&home.mount()), "the first goes on");
}

#[test]
fn the_number_of_targets_grows_and_never_shrinks() {
    let home = Home::new();
    home.up(&["--targets", "2"]);
    std::fs::write(home.at("f"), pattern(5_000_000)).unwrap();
    home.down();
    let (data, mount) = (home.data(), home.mount().display().to_string());
    let output = run(["up", "--detach", "--data", &data, "--mount", &mount, "--targets", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    home.up(&["--targets", "3"]);
    assert_eq!(contents(&home.at("f")), pattern(5_000_000));
    std::fs::write(home.at("wide"), pattern(5_000_000)).unwrap();
    let layout = |name: &str| -> serde_json::Value {
        let path = home.at(name).display().to_string();
        let text = succeed(["layout", "get", "--json", &path, "--cluster", &home.address()]);
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(layout("f")["stripe_width"], 2);
    assert_eq!(layout("wide")["stripe_width"], 3);
}

/// Of 2^28 chunks neither are some left out without a word, nor are all made before the first is there.
#[test]
fn the_layout_of_a_very_long_file_is_whole() {
    let home = Home::new();
    home.up(&[]);
    std::fs::create_dir(home.at("d")).unwrap();
    succeed(["layout", "set", "--chunk-size", "64K", &home.at("d").display().to_string()]);
    let file = std::fs::File::create(home.at("d/long")).unwrap();
    file.set_len(16 << 40).unwrap();
    let path = home.at("d/long").display().to_string();
    let shown = succeed(["layout", "get", &path]);
    let hidden = (1_u64 << 28) - 24;
    assert!(shown.ends_with(&format!("... and {hidden} more (--json gives all)\n")), "{shown}");
    let mut json = strake(["layout", "get", "--json", &path])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut begin = vec![0; 1 << 20];
    std::io::Read::read_exact(&mut json.stdout.take().unwrap(), &mut begin).unwrap();
    assert!(json.wait().unwrap().success(), "who has seen enough ends it");
    let begin = String::from_utf8(begin).unwrap();
    assert!(begin.contains("\"chunks\": [") && begin.contains("\"index\": 1000,"), "{begin:.300}");
}

#[test]
fn copies_are_chosen_per_volume_and_directory_and_shown() {
    let home = Home::new();
    home.up(&["--targets", "2"]);
    let address = home.address();
    let json = |args: &[&str]| -> serde_json::Value {
        let text = succeed([args, &["--json", "--cluster", &address]].concat());
        serde_json::from_str(&text).unwrap()
    };
    std::fs::create_dir(home.at("two")).unwrap();
    let two = home.at("two").display().to_string();
    let told =
        succeed(["layout", "set", &two, "--copies", "2", "--targets", "2", "--cluster", &address]);
    assert!(told.contains("on one server") && told.contains("strake rebalance"), "{told}");
    assert!(told.contains("files of up to 8 KiB lie in the metadata"), "{told}");
    let again = format!("strake layout set --copies 2 --existing {two}");
    assert!(told.contains(&again), "{told}");
    assert_eq!(succeed(["layout", "set", &two, "--chunk-size", "128K"]), "", "no word of copies");
    let told = succeed(["layout", "set", &two, "--ack", "primary"]);
    assert!(told.contains("fsync waits for all") && !told.contains("--existing"), "{told}");
    assert_eq!(json(&["layout", "get", &two])["copies"], 2);
    std::fs::write(home.at("two/f"), pattern(3_000_000)).unwrap();
    assert_eq!(contents(&home.at("two/f")), pattern(3_000_000));
    let layout = json(&["layout", "get", &home.at("two/f").display().to_string()]);
    assert_eq!((&layout["copies"], &layout["stripe_width"]), (&2.into(), &1.into()));
    assert_eq!(layout["chunks"][0]["targets"].as_array().unwrap().len(), 2);
    assert_eq!(json(&["volume", "info", "main"])["copies"], 1);
    let told = succeed(["volume", "set", "main", "--copies", "2", "--cluster", &address]);
    for words in ["on one server", "lie in the metadata", "--copies 2 --existing :/main"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(json(&["volume", "info", "main"])["copies"], 2);
    assert!(json(&["status"])["groups"].as_array().unwrap().is_empty(), "all are whole");
    let output = run(["volume", "create", "three", "--copies", "3", "--cluster", &address]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("need 3 targets") && error.contains("strake server"), "{error}");
}

/// The root of such a mount is inode 1 to the kernel, and was taken for the root of the volume.
#[test]
fn the_top_of_a_mounted_directory_is_that_directory_to_the_verbs() {
    let home = Home::new();
    home.up(&[]);
    std::fs::create_dir_all(home.at("a/b")).unwrap();
    let inode = std::fs::metadata(home.at("a/b")).unwrap().ino();
    let top = home.directory.path().join("top");
    std::fs::create_dir(&top).unwrap();
    let mount = mount_volume(&home.address(), "main/a/b", &top, "");
    let shown = succeed(["why", "--json", &top.display().to_string()]);
    let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(report["inode"].as_u64(), Some(inode), "{report}");
    drop(mount);
}

/// A file or directory that is bound from a mount to another place, until this is dropped.
struct Bound(PathBuf);

impl Bound {
    fn new(from: &Path, to: PathBuf) -> Self {
        match from.is_dir() {
            true => std::fs::create_dir_all(&to).unwrap(),
            false => std::fs::write(&to, "").unwrap(),
        }
        rustix::mount::mount_bind(from, &to).expect("root binds");
        Self(to)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        take_away(&self.0);
    }
}

/// What the layout of a directory says itself.
fn chunk_size(path: &Path) -> Option<u64> {
    let shown = succeed(["layout", "get", "--json", &path.display().to_string()]);
    let layout: serde_json::Value = serde_json::from_str(&shown).unwrap();
    layout["chunk_size"].as_u64()
}

/// The mount with the longest path counted, also where nothing of it was to be seen: its volume was changed.
#[test]
fn what_is_bound_over_a_mount_is_itself_to_the_verbs() {
    let home = Home::new();
    home.up(&[]);
    succeed(["volume", "create", "other", "--cluster", &home.address()]);
    std::fs::create_dir_all(home.at("over/sub")).unwrap();
    let below = home.directory.path().join("below");
    let sub = below.join("sub");
    std::fs::create_dir_all(&sub).unwrap();
    let hidden = mount_volume(&home.address(), "other", &sub, "");
    let over = Bound::new(&home.at("over"), below);
    succeed(["layout", "set", "--chunk-size", "64K", &sub.display().to_string()]);
    assert_eq!(chunk_size(&home.at("over/sub")), Some(64 << 10));
    // It can be taken away only where it is seen.
    drop(over);
    drop(hidden);
}

/// It was taken for the root of what is mounted, whose layout was set.
#[test]
fn what_is_bound_from_a_mount_is_itself_to_the_verbs() {
    let home = Home::new();
    home.up(&[]);
    std::fs::create_dir_all(home.at("a/b")).unwrap();
    std::fs::write(home.at("a/f"), "x").unwrap();
    let at = |name: &str| home.directory.path().join(name);
    std::fs::create_dir(at("top")).unwrap();
    let mount = mount_volume(&home.address(), "main/a", &at("top"), "");
    let bound = Bound::new(&home.at("a/b"), at("bound"));
    succeed(["layout", "set", "--chunk-size", "64K", &bound.path()]);
    assert_eq!((chunk_size(&home.at("a/b")), chunk_size(&home.mount())), (Some(64 << 10), None));
    let further = Bound::new(&mount.at("b"), at("further"));
    succeed(["layout", "set", "--chunk-size", "128K", &further.path()]);
    assert_eq!((chunk_size(&home.at("a/b")), chunk_size(&home.at("a"))), (Some(128 << 10), None));
    let root = Bound::new(mount.path(), at("root"));
    succeed(["layout", "set", "--chunk-size", "256K", &root.path()]);
    assert_eq!((chunk_size(&home.at("a")), chunk_size(&home.mount())), (Some(256 << 10), None));
    let file = Bound::new(&home.at("a/f"), at("file"));
    let inode = std::fs::metadata(home.at("a/f")).unwrap().ino();
    let shown = succeed(["why", "--json", &file.path()]);
    let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(report["inode"].as_u64(), Some(inode), "{report}");
}

#[test]
fn the_verbs_without_a_mount_see_what_the_mount_sees() {
    let home = Home::new();
    home.up(&[]);
    let address = home.address();
    let place = |path: &str| format!("{address}:/main/{path}");
    let local = home.directory.path().join("local");
    std::fs::create_dir_all(local.join("d")).unwrap();
    std::fs::write(local.join("d/large"), pattern(6_000_000)).unwrap();
    std::fs::write(local.join("d/small"), "hello").unwrap();
    succeed(["cp", "-r", &local.join("d").display().to_string(), &place("")]);
    assert_eq!(contents(&home.at("d/large")), pattern(6_000_000));
    assert_eq!(succeed(["cat", &place("d/small")]), "hello");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let small = place("d/small");
    let status = ["status", "--cluster", &address];
    let fsck = ["fsck", "--cluster", &address];
    for (verb, code) in [(&["cat", &small][..], 1), (&status[..], 2), (&fsck[..], 8)] {
        let mut command = strake(verb.iter().copied());
        let cut = command.stdout(full.try_clone().unwrap()).output().unwrap();
        let error = String::from_utf8_lossy(&cut.stderr);
        assert!(cut.status.code() == Some(code) && error.contains("standard output"), "{error}");
    }
    assert_eq!(succeed(["ls", &place("d")]), "large\nsmall\n");
    let stat: serde_json::Value =
        serde_json::from_str(&succeed(["stat", "--json", &place("d/large")])).unwrap();
    assert_eq!(stat[0]["size"], 6_000_000);
    let du: serde_json::Value =
        serde_json::from_str(&succeed(["du", "--json", &place("d")])).unwrap();
    assert_eq!((du[0]["bytes"].as_u64(), du[0]["entries"].as_u64()), (Some(6_000_005), Some(3)));
    let df = || -> serde_json::Value {
        serde_json::from_str(&succeed(["df", "--json", "--cluster", &address])).unwrap()
    };
    let space = df();
    let used = space[0]["total_bytes"].as_u64().unwrap() - space[0]["free_bytes"].as_u64().unwrap();
    assert!(used >= 6_000_000, "what targets on one disk hold is added up: {space}");
    // Blocks that came before the end of the file was known are counted a moment later.
    let counted = || df()[0]["contents_bytes"].as_u64() >= Some(6_000_000);
    eventually(WAIT, "what was copied is counted", counted);
    // Each volume was shown with what all hold, and no target at all.
    succeed(["volume", "create", "empty", "--cluster", &address]);
    let shown = succeed(["df", "--cluster", &address]);
    let row = |first: &str| -> Vec<String> {
        let mut lines = shown.lines().filter(|l| l.split_whitespace().next() == Some(first));
        let line = lines.next().unwrap_or_else(|| panic!("{shown}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("empty")[1], "0", "{shown}");
    assert!(row("main")[1] != "0" && row("1").contains(&"up".to_owned()), "{shown}");
    assert_eq!(row("all").len(), 4, "{shown}");
    succeed(["rm", "-r", &place("d")]);
    // The mount may show for a second what it has seen before.
    while home.at("d").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let disk = rustix::fs::statvfs(home.directory.path()).unwrap();
    let total = disk.f_blocks * disk.f_frsize;
    assert!(
        df()[0]["total_bytes"].as_u64().unwrap() <= total,
        "targets on one disk share its room"
    );
}

/// Names that are no UTF-8 came out changed, and nothing said where a link leads.
#[test]
fn names_are_shown_byte_for_byte_and_links_with_where_they_lead() {
    let home = Home::new();
    home.up(&[]);
    let place = |path: &str| format!("{}:/main/{path}", home.address());
    std::fs::create_dir(home.at("d")).unwrap();
    let odd = OsStr::from_bytes(b"a\xff\x1b[31m");
    std::fs::write(home.at("d").join(odd), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", home.at("d/link")).unwrap();
    assert_eq!(run(["ls", &place("d")]).stdout, b"a\xff\x1b[31m\nlink\n");
    let long = run(["ls", "-l", &place("d")]).stdout;
    assert!(long.ends_with(b"  link -> nowhere\n"), "{}", long.escape_ascii());
    let listed: serde_json::Value =
        serde_json::from_str(&succeed(["ls", "--json", &place("d")])).unwrap();
    assert_eq!(listed[0]["name"], "a\\xff\u{1b}[31m");
    assert_eq!(listed[0]["name_bytes"], serde_json::json!(b"a\xff\x1b[31m"));
    assert_eq!(listed[1]["target"], "nowhere");
    assert!(listed[1].get("name_bytes").is_none(), "{listed}");
    let link = succeed(["stat", "--json", "--no-follow", &place("d/link")]);
    let link: serde_json::Value = serde_json::from_str(&link).unwrap();
    assert_eq!((link[0]["kind"].as_str(), link[0]["size"].as_u64()), (Some("symlink"), Some(7)));
    assert_eq!(link[0]["target"], "nowhere");
}

#[test]
fn volumes_and_layouts_are_set_and_shown() {
    let home = Home::new();
    home.up(&[]);
    let address = home.address();
    let cluster = |arguments: &[&str]| {
        let all: Vec<&str> = arguments.iter().copied().chain(["--cluster", &address]).collect();
        succeed(all)
    };
    cluster(&["volume", "create", "work", "--chunk-size", "64K", "--stripe-width", "2"]);
    cluster(&["volume", "set", "work", "--distribution", "twod_stripe=2:3"]);
    let list: serde_json::Value =
        serde_json::from_str(&cluster(&["volume", "list", "--json"])).unwrap();
    assert_eq!((&list[1]["name"], &list[1]["chunk_size"]), (&"work".into(), &65536.into()));
    assert_eq!(list[1]["distribution"], "twod_stripe=2:3");

    let directory = home.at("pinned");
    std::fs::create_dir(&directory).unwrap();
    let path = directory.display().to_string();
    cluster(&["layout", "set", "--chunk-size", "128K", "--targets", "3,1", &path]);
    let inherited: serde_json::Value =
        serde_json::from_str(&cluster(&["layout", "get", "--json", &path])).unwrap();
    assert_eq!(inherited["chunk_size"], 131_072);
    std::fs::write(directory.join("f"), pattern(500_000)).unwrap();
    let file = directory.join("f").display().to_string();
    let layout: serde_json::Value =
        serde_json::from_str(&cluster(&["layout", "get", "--json", &file])).unwrap();
    assert_eq!(layout["distribution"], "simple_stripe");
    let targets: Vec<&str> = layout["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chunk| chunk["targets"][0].as_str().unwrap())
        .map(|name| name.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(targets, ["target-2", "target-0", "target-2", "target-0"]);

    cluster(&["volume", "delete", "work", "--yes"]);
    let left: serde_json::Value =
        serde_json::from_str(&cluster(&["volume", "list", "--json"])).unwrap();
    assert_eq!(left.as_array().unwrap().len(), 1);
}

#[test]
fn status_doctor_and_scrub_find_a_healthy_file_system_healthy() {
    let home = Home::new();
    home.up(&["--metrics", "127.0.0.1:0"]);
    std::fs::write(home.at("f"), pattern(3_000_000)).unwrap();
    let address = home.address();
    let status: serde_json::Value =
        serde_json::from_str(&succeed(["status", "--json", "--cluster", &address])).unwrap();
    assert_eq!(
        (&status["health"], status["targets"].as_array().unwrap().len()),
        (&"fine".into(), 4)
    );
    let doctor = run(["doctor", "--json", "--cluster", &address]);
    let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    for finding in findings.as_array().unwrap() {
        // Mounts of other tests come and go while this one looks.
        assert!(finding["health"] == "fine" || finding["phase"] == "mount", "{finding}");
    }
    let scrub: serde_json::Value =
        serde_json::from_str(&succeed(["scrub", "--json", "--cluster", &address])).unwrap();
    assert!(scrub["targets"].as_array().unwrap().iter().all(|t| t["damaged"] == 0));
    assert!(scrub["findings"].as_array().unwrap().is_empty());
    assert!(home.at("f").exists() && std::fs::read_dir(home.mount()).unwrap().count() == 1);

    let metrics = home.run_file()["metrics"].as_str().unwrap().to_owned();
    let page = strake_tests::cluster::http_get(&metrics, "/metrics");
    for name in
        ["strake_storage_bytes_total", "strake_storage_op_seconds_bucket", "strake_meta_ops_total"]
    {
        assert!(page.contains(name), "{name}:\n{page}");
    }
}

/// Those of mounts and of metadata servers had no text.
#[test]
fn every_metric_says_what_it_is() {
    let home = Home::new();
    home.up(&["--metrics", "127.0.0.1:0"]);
    std::fs::write(home.at("f"), pattern(3_000_000)).unwrap();
    assert_eq!(contents(&home.at("f")), pattern(3_000_000));
    succeed(["scrub", "--cluster", &home.address()]);
    let metrics = home.run_file()["metrics"].as_str().unwrap().to_owned();
    let page = strake_tests::cluster::http_get(&metrics, "/metrics");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    for part in ["client", "fuse", "meta", "storage"] {
        assert!(names.iter().any(|name| name.starts_with(&format!("strake_{part}_"))), "{page}");
    }
    let is_bare = |name: &&&str| !page.contains(&format!("# HELP {name} "));
    let bare: Vec<_> = names.iter().filter(is_bare).collect();
    assert!(bare.is_empty(), "{bare:?}");
}

#[test]
fn doctor_says_which_mounts_belong_to_the_cluster() {
    let (home, other) = (Home::new(), Home::new());
    home.up(&[]);
    other.up(&[]);
    // It waits a second for who is asked, and the machine may be busy.
    eventually(WAIT, "each mount is known", || {
        let doctor = run(["doctor", "--json", "--cluster", &home.address()]);
        let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let mounts = [(home.mount(), "of this cluster)"), (other.mount(), "of another cluster)")];
        mounts.iter().all(|(mount, whose)| {
            let begin = format!("{} (", mount.display());
            let about = findings.as_array().unwrap().iter().filter_map(|f| f["about"].as_str());
            let about: Vec<_> = about.filter(|about| about.starts_with(&begin)).collect();
            let unknown = || about[0].contains("cannot be asked)");
            let fits = about.len() == 1 && (about[0].contains(*whose) || unknown());
            assert!(fits, "{about:?} is not {whose}");
            about[0].ends_with(*whose)
        })
    });
}

#[test]
fn a_signal_in_the_foreground_unmounts() {
    let home = Home::new();
    let (data, mount) = (home.data(), home.mount().display().to_string());
    for name in ["INT", "TERM"] {
        let mut process = strake(["up", "--data", &data, "--mount", &mount])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !is_mounted(&home.mount()) {
            assert!(process.try_wait().unwrap().is_none(), "it runs");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        signal(process.id(), name);
        assert!(process.wait().unwrap().success());
        assert!(!is_mounted(&home.mount()));
    }
}

/// It stood still for ever: what told of the first signal was locked while the server stopped, and who heard the second one waited
/// for that with a thread of the runtime.
#[test]
fn a_second_signal_ends_a_server_that_waits_for_another_one_while_it_stops() {
    let cluster = Cluster::start(1);
    cluster.signal_witness("STOP");
    eventually(WAIT, "it hears more than one signal", || {
        cluster.signal(0, "TERM");
        cluster.log(0).contains("second signal")
    });
    cluster.signal_witness("CONT");
}
