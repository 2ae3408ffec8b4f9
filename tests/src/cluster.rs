//! `strake up`, and servers and mounts of their own, as real processes on temporary directories.
//!
//! Everything started here ends with its value: first asked to stop, then killed, then what is left
//! of the mount is taken away. A process also ends by itself when the test process dies.

use std::any::Any;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use strake_base::mount_table;
use tempfile::TempDir;

/// What a process says that waits to become the program.
const WAITING: &str = "waiting to start";
const WAIT_TO_START: &str = "echo waiting to start; read -r _; exec \"$0\" \"$@\"";
/// What `statfs` says of a FUSE mount.
const FUSE_MAGIC: i64 = 0x6573_5546;
/// Ports that tests listen at: below those that the kernel gives to connections.
const PORTS: Range<u16> = 12_000..32_000;
/// What a server says when it serves.
pub const SERVES: &str = " serves at ";
/// How long a program may take to be ready. Only a hang reaches it.
const READY_WAIT: Duration = Duration::from_secs(60);
/// How long a program may take to stop before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(30);

/// The program under test: cargo has built it beside this test, from the same sources.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("STRAKE_BIN") {
        return path.into();
    }
    beside_tests("strake-under-test")
}

/// A path in the directory of what is built.
fn beside_tests(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let directory = test.parent().and_then(Path::parent).expect("it lies in target/debug/deps");
    directory.join(name)
}

/// The program with arguments; standard input is empty, and what it remembers for its user is kept
/// away from the user who runs the tests.
pub fn strake<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(program());
    command.env("XDG_DATA_HOME", beside_tests("data-of-tests"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    strake(arguments).output().expect("the program starts")
}

/// True if [`run_as_nobody`] may be used; if not, that is said.
pub fn may_be_nobody() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root may run programs as another user");
    }
    is_root
}

/// As [`run`], as a user who may not read and write everything.
pub fn run_as_nobody<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    strake(arguments).uid(65_534).gid(65_534).output().expect("the program starts")
}

/// Runs the program, which must succeed; its standard output.
pub fn succeed<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let output = run(arguments.iter().copied());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "strake {}: {error}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A process of `strake-test-application` (see [`crate::applications`]), which ends with the test process.
pub(crate) fn application() -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(beside_tests("strake-test-application"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    spawner(command)
}

/// A process that ends with this value, or with the test process.
pub struct Process {
    child: Child,
    log: PathBuf,
    /// Bytes of the log that processes before it have written.
    begin: usize,
}

impl Process {
    /// Starts the program; what it says goes to a log that failures show.
    pub fn start(arguments: &[String], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log can be made");
        Self::begin(Command::new("setpriv"), arguments, log, file)
    }

    /// The same, without a log: what it says goes to these two.
    pub fn start_saying_to(arguments: &[String], out: Stdio, errors: Stdio) -> Self {
        Self::begin_with(Command::new("setpriv"), arguments, Path::new(""), (out, errors))
    }

    /// A process that becomes the program when [`Process::go`] is called. To start one while the
    /// server of a mount is away would not do: a child of ours has our open files until it becomes
    /// another program, and closing them waits for that server.
    pub fn wait_to_start(arguments: &[String], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log can be made");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "sh", "-c", WAIT_TO_START]);
        command.arg(program()).args(arguments).stdin(Stdio::piped());
        command.stdout(file.try_clone().expect("a log can be shared")).stderr(file);
        let mut process = Self::spawn(command, log);
        while !process.said(WAITING) {
            assert!(matches!(process.child.try_wait(), Ok(None)), "a shell can wait");
            std::thread::sleep(Duration::from_millis(2));
        }
        process
    }

    /// Lets the program begin.
    pub fn go(&mut self) {
        let mut input = self.child.stdin.take().expect("it waits for a line");
        input.write_all(b"\n").expect("it reads the line");
    }

    /// As [`Process::start`], on the host that this command enters.
    pub fn start_on(mut host: Command, arguments: &[String], log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log can be made");
        host.arg("setpriv");
        Self::begin(host, arguments, log, file)
    }

    fn begin(command: Command, arguments: &[String], log: &Path, file: File) -> Self {
        let out = file.try_clone().expect("a log can be shared");
        Self::begin_with(command, arguments, log, (out.into(), file.into()))
    }

    fn begin_with(
        mut command: Command,
        arguments: &[String],
        log: &Path,
        (out, errors): (Stdio, Stdio),
    ) -> Self {
        // The signal comes when the *thread* that started it ends: one thread starts them all.
        command.arg("--pdeathsig").arg("TERM").arg(program()).args(arguments);
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        Self::spawn(command, log)
    }

    fn spawn(command: Command, log: &Path) -> Self {
        let begin = std::fs::metadata(log).map_or(0, |log| log.len() as usize);
        Self { child: spawner(command), log: log.to_owned(), begin }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        self.child.wait().expect("a child can be waited for");
    }

    /// Asks it to stop and waits; kills it if it does not.
    pub fn stop(&mut self) {
        signal(self.pid(), "TERM");
        let end = Instant::now() + STOP_WAIT;
        while Instant::now() < end {
            if self.child.try_wait().expect("a child can be waited for").is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("{} did not stop when asked:\n{}", self.pid(), self.log());
        self.kill();
    }

    /// What it has said, and processes before it whose log was the same.
    pub fn log(&self) -> String {
        self.log_after(0)
    }

    fn log_after(&self, begin: usize) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(log.get(begin..).unwrap_or_default()).into_owned()
    }

    /// True if its log has something that was written since it was started.
    fn said(&self, word: &str) -> bool {
        self.log_after(self.begin).contains(word)
    }

    /// Waits until a server serves. It takes connections long before, and a command waits for a few seconds only.
    pub fn wait_until_it_serves(&mut self, what: &str) {
        self.wait_until_it_says(what, SERVES);
    }

    /// Waits until it has said something, be it the last that it says.
    pub fn wait_until_it_says(&mut self, what: &str, word: &str) {
        self.wait(&format!("{what} says {word:?}"), |process| process.said(word));
    }

    /// Waits until something is so; panics with the log if the process ends or time is over.
    pub fn wait_until(&mut self, what: &str, mut so: impl FnMut() -> bool) {
        self.wait(what, |_| so());
    }

    fn wait(&mut self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + READY_WAIT;
        while !so(self) {
            if let Ok(Some(status)) = self.child.try_wait() {
                // It may have come to be so just before that.
                assert!(so(self), "{what}: the program ended ({status}):\n{}", self.log());
                return;
            }
            assert!(Instant::now() < end, "{what}: not after {READY_WAIT:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has ended by itself; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut status = None;
        eventually(READY_WAIT, "it ends by itself", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Memory it has resident, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most memory it ever had resident, in bytes.
    pub fn peak_resident_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Seconds of processor time that all of its threads have used.
    pub fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("the process runs");
        // The name may have blanks; behind it, user and system time are the 12th and 13th.
        let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        // USER_HZ, what the kernel counts in towards processes, is 100 on all machines we run on.
        ticks as f64 / 100.0
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = File::open(path).expect("the process runs");
        let mut lines = BufReader::new(status).lines().map_while(Result::ok);
        let line = lines.find(|l| l.starts_with(field)).expect("Linux says it");
        let kibibytes = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        kibibytes.expect("a number of kB") << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop();
        }
        if std::thread::panicking() {
            eprintln!("--- {}:\n{}", self.log.display(), self.log());
        }
    }
}

/// The command line of each process of this machine: its number, and its arguments, each ended by a zero.
pub fn command_lines() -> impl Iterator<Item = (u32, Vec<u8>)> {
    let entries = std::fs::read_dir("/proc").expect("it is always there").flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, std::fs::read(entry.path().join("cmdline")).ok()?))
    })
}

/// True if all threads of a process are stopped, have ended, or wait in the kernel, after which they stop.
fn stand_still(tasks: &str) -> bool {
    let Ok(tasks) = std::fs::read_dir(tasks) else { return true };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|fields| fields.trim_start().chars().next());
        state.is_none_or(|state| "TtDZX".contains(state))
    })
}

/// Sends a signal to a process that was started here. Starts none: that would wait for whoever has a file open
/// here in a mount that stands still.
pub fn signal(pid: u32, name: &str) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        other => panic!("no test sends {other}"),
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process has a number");
    // It may have ended by itself.
    let gone = kill_process(pid, signal);
    if signal == Signal::STOP && gone.is_ok() {
        let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
        // A thread that runs just then, on another processor, may answer yet.
        eventually(READY_WAIT, "it stands still", || stand_still(&tasks));
    }
}

fn spawner(command: Command) -> Child {
    type Request = (Command, Sender<std::io::Result<Child>>);
    static REQUESTS: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (sender, receiver) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in receiver {
                // The test that asked may have given up.
                let _gone = reply.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (reply, answer) = channel();
    requests.lock().expect("nothing panics under it").send((command, reply)).expect("it runs on");
    answer.recv().expect("it answers").expect("setpriv is there (util-linux)")
}

/// True if a FUSE file system answers there.
pub fn is_mounted(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|s| s.f_type == FUSE_MAGIC)
}

/// How many mounts there are at a path, those whose process is dead included.
pub fn mounts_at(path: &Path) -> usize {
    let mounts = mount_table::read().expect("the table is always there");
    mounts.iter().filter(|mount| mount.path == path).count()
}

/// Takes a mount away, also a dead one.
pub fn take_away(path: &Path) {
    let flags = rustix::mount::UnmountFlags::DETACH;
    while rustix::mount::unmount(path, flags).is_ok() {}
}

/// Makes a directory that is a disk of its own of so many bytes, in memory; [`take_away`] unmounts it.
pub fn mount_memory(path: &Path, bytes: u64) {
    std::fs::create_dir(path).expect("a fresh directory");
    let size = std::ffi::CString::new(format!("size={bytes}")).expect("digits hold no NUL");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, size.as_c_str()).expect("root mounts");
}

/// A free TCP port of this machine, which no other test gets as long as this process lives. Outgoing
/// connections do not take it either: they get higher ones.
pub fn free_port() -> u16 {
    /// A name in the kernel for each port given, which is free again when this process is gone.
    static GIVEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let first = std::process::id() as usize * 7;
    for nth in 0..PORTS.len() {
        let port = PORTS.start + ((first + nth) % PORTS.len()) as u16;
        let name = SocketAddr::from_abstract_name(format!("strake tests port {port}"));
        let Ok(given) = name.and_then(|name| UnixListener::bind_addr(&name)) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            GIVEN.lock().expect("nobody panics with it").push(given);
            return port;
        }
    }
    panic!("no port is free");
}

/// A file system of its own: `strake up` on a temporary directory.
pub struct Up {
    process: Process,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Up {
    /// Starts with further arguments, and waits until the mount answers.
    pub fn start(further: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self::start_in(directory, further)
    }

    /// Starts with its data on a disk of its own of so many bytes, in memory.
    pub fn start_on_a_small_disk(bytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let data = directory.path().join("data");
        mount_memory(&data, bytes);
        Self::start_in(directory, &[])
    }

    fn start_in(directory: TempDir, further: &[&str]) -> Self {
        let path = |name: &str| directory.path().join(name).display().to_string();
        // Other users of this machine must get through to the mount.
        open_to_all(directory.path());
        let mut arguments: Vec<String> =
            ["up", "--data", &path("data"), "--mount", &path("mnt")].map(String::from).into();
        arguments.extend(further.iter().map(|a| a.to_string()));
        let process = Process::start(&arguments, &directory.path().join("log"));
        let mut up = Self { process, arguments, directory };
        up.wait();
        up
    }

    /// One file system for all tests of a binary that do not disturb it; the last one stops it.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Up>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let up = Arc::new(Up::start(&[]));
            *shared = Arc::downgrade(&up);
            up
        })
    }

    fn wait(&mut self) {
        let mount = self.mount();
        self.process.wait_until("strake up", || is_mounted(&mount));
    }

    /// Where it is mounted.
    pub fn mount(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Memory it has resident, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes()
    }

    /// `kill -9`; the mount is taken away.
    pub fn kill(&mut self) {
        self.process.kill();
        take_away(&self.mount());
    }

    /// Stops in good order.
    pub fn stop(&mut self) {
        self.process.stop();
        assert!(!is_mounted(&self.mount()), "a clean stop unmounts:\n{}", self.process.log());
    }

    /// Starts again after [`Up::kill`] or [`Up::stop`].
    pub fn start_again(&mut self) {
        self.process = Process::start(&self.arguments, &self.directory.path().join("log"));
        self.wait();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if matches!(self.process.child.try_wait(), Ok(None)) {
            self.process.stop();
        }
        take_away(&self.mount());
        take_away(&self.data());
    }
}

pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("our own directory");
}

/// A directory for one test, on a file system that is shared with others.
pub struct Place {
    /// Keeps the file system running.
    _stage: Arc<dyn Any + Send + Sync>,
    /// The directory, empty at first, mode 0777.
    pub path: PathBuf,
}

impl Place {
    /// The directory of the test with this name, on `strake up`.
    pub fn new(name: &str) -> Self {
        let up = Up::shared();
        Self::within(&up.mount(), name, up)
    }

    /// The same on any mount, which ends with the last copy of `stage`.
    pub fn within(mount: &Path, name: &str, stage: Arc<dyn Any + Send + Sync>) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let path = mount.join(name);
        std::fs::create_dir(&path).expect("each test has its own name");
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("our own directory");
        Self { _stage: stage, path }
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed may leave what cannot be removed: the file system goes anyway.
        let _left = std::fs::remove_dir_all(&self.path);
    }
}

/// A server and mounts of its volume, each a process of its own, over TCP on this machine.
pub struct Servers {
    server: Process,
    /// What takes the place of a server that was killed.
    next: Option<Process>,
    arguments: Vec<String>,
    address: String,
    directory: TempDir,
}

impl Servers {
    /// One server process with all roles and four targets.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Servers::start`], and where its metrics are served: `HOST:PORT`.
    pub fn start_counted() -> (Self, String) {
        let metrics = format!("127.0.0.1:{}", free_port());
        (Self::start_with(&["--metrics".into(), metrics.clone()]), metrics)
    }

    /// As [`Servers::start`], with further arguments.
    pub fn start_with(further: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        open_to_all(directory.path());
        let address = format!("127.0.0.1:{}", free_port());
        let mut arguments: Vec<String> =
            ["server", "--listen", &address, "--roles", "manager,meta,storage", "--data"]
                .map(String::from)
                .into();
        for nth in 0..4 {
            let target = directory.path().join(format!("target{nth}"));
            std::fs::create_dir(&target).expect("a fresh directory");
            arguments.push(target.display().to_string());
        }
        arguments.extend_from_slice(further);
        let mut server = Process::start(&arguments, &directory.path().join("server.log"));
        server.wait_until_it_serves("strake server");
        Self { server, next: None, arguments, address, directory }
    }

    /// The server's process.
    pub fn server(&mut self) -> &mut Process {
        &mut self.server
    }

    /// `kill -9` of the server.
    pub fn kill(&mut self) {
        let log = self.directory.path().join("server.log");
        self.next = Some(Process::wait_to_start(&self.arguments, &log));
        self.server.kill();
    }

    /// Starts the server again.
    pub fn start_again(&mut self) {
        self.server = self.next.take().expect("start_again follows kill, which made it");
        self.server.go();
        self.server.wait_until_it_serves("strake server");
    }

    /// Stops the server in good order, and starts it at another address.
    pub fn move_elsewhere(&mut self) {
        self.server.stop();
        let address = format!("127.0.0.1:{}", free_port());
        let said = self.arguments.iter_mut().filter(|argument| **argument == self.address);
        said.for_each(|argument| argument.clone_from(&address));
        self.address = address;
        self.server = Process::start(&self.arguments, &self.directory.path().join("server.log"));
        self.server.wait_until_it_serves("strake server");
    }

    /// `host:port` of the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The directory that holds its targets (`target0`, ...) and its mounts.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A mount of the volume `main`, with options as for `-o`.
    pub fn mount(&self, name: &str, options: &str) -> Mount {
        mount_of(&self.address, &self.directory.path().join(name), options)
    }
}

/// A mount of the volume `main` of the cluster at an address, with options as for `-o`, on a directory
/// that is made. Its log is beside it.
pub fn mount_of(address: &str, path: &Path, options: &str) -> Mount {
    std::fs::create_dir(path).expect("each mount has its own name");
    mount_at(address, path, options)
}

/// The same, on a directory that is there.
pub fn mount_at(address: &str, path: &Path, options: &str) -> Mount {
    mount_volume(address, "main", path, options)
}

/// The same, of any volume.
pub fn mount_volume(address: &str, volume: &str, path: &Path, options: &str) -> Mount {
    let mut arguments: Vec<String> = ["mount", "--foreground"].map(String::from).into();
    if !options.is_empty() {
        arguments.extend(["-o".into(), options.into()]);
    }
    arguments.push(format!("{address}:/{volume}"));
    arguments.push(path.display().to_string());
    let mut process = Process::start(&arguments, &path.with_extension("log"));
    process.wait_until("strake mount", || is_mounted(path));
    Mount { process, path: path.to_owned() }
}

/// A mount that is a process of its own.
pub struct Mount {
    process: Process,
    path: PathBuf,
}

impl Mount {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if matches!(self.process.child.try_wait(), Ok(None)) {
            self.process.stop();
        }
        take_away(&self.path);
    }
}

/// A file to read and write; it is made if it is missing.
pub fn read_write(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("the file can be opened")
}

/// Looks again and again until something is so, for so long at most.
pub fn eventually(most: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + most;
    while !so() {
        assert!(Instant::now() < end, "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The whole of a file, through a handle of its own.
pub fn contents(path: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut all)).expect("the file is readable");
    all
}

/// What the metrics at an address say, added up over the lines that are meant.
pub fn counted(metrics: &str, is_meant: impl Fn(&str) -> bool) -> u64 {
    let page = http_get(metrics, "/metrics");
    let value = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    let lines = page.lines().filter(|line| is_meant(line));
    lines.map(|line| value(line).expect("each line ends in a number")).sum::<f64>() as u64
}

/// The answer of an HTTP server to a GET, head included.
pub fn http_get(address: &str, path: &str) -> String {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request is short");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the answer is text");
    answer
}
