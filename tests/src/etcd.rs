//! An etcd cluster of the distribution's package, of one member or several, in a directory of its own, for as long as
//! the test program lives.
//!
//! A shell stands between each member and this program: it ends the member when this program is gone, however it
//! went. (The tests of `engine` use this file too.)

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// What stands between: it starts a member, kills it when told, starts it again, has it stand still and go on, and kills it when
/// its own standard input ends. Signals to all of this program's children are none to it.
const GUARD: &str = r#"
trap '' INT HUP TERM
program=$1 dir=$2
shift 2
start() {
  "$program" --data-dir "$dir/data" "$@" </dev/null >>"$dir/log" 2>&1 &
  member=$!
}
end() {
  [ -n "$member" ] || return 0
  kill -KILL "$member"
  wait "$member" 2>/dev/null
  member=
}
start "$@"
while read -r word; do
  case $word in
    crash) end; echo told-crash >>"$dir/log" ;;
    save) cp -a "$dir/data" "$dir/saved"; echo told-save >>"$dir/log" ;;
    restore) rm -rf "$dir/data"; cp -a "$dir/saved" "$dir/data"; echo told-restore >>"$dir/log" ;;
    resume) start "$@" ;;
    stop) kill -STOP "$member"; echo told-stop >>"$dir/log" ;;
    go) kill -CONT "$member"; echo told-go >>"$dir/log" ;;
  esac
done
end
rm -rf "$dir"
"#;
/// What the log says of a member that is up, and of one that finds its port taken.
const READY: &str = "ready to serve client requests";
const TAKEN: &str = "address already in use";
/// How often, and how long apart, a log is looked at. Only a hang reaches the end.
const LOOKS_MAX: u32 = 3000;
const LOOK: Duration = Duration::from_millis(20);

/// One member.
struct Member {
    dir: PathBuf,
    port: u16,
    peer_port: u16,
    guard: Mutex<Option<Child>>,
}

/// A cluster of members.
pub struct EtcdServer {
    members: Vec<Member>,
    names: AtomicU32,
}

impl EtcdServer {
    /// The one of this test program, of one member.
    pub fn shared() -> &'static EtcdServer {
        static SERVER: OnceLock<EtcdServer> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(1, &[]))
    }

    /// Makes and starts one of so many members, with further flags, in which `{port}` is the member's own. Panics where the
    /// package is missing.
    pub fn start(members: usize, further: &[&str]) -> EtcdServer {
        let program = program();
        // Another test program may take the same ports before the members do.
        for _ in 0..10 {
            let member = |_| Member {
                dir: tempfile::Builder::new().prefix("strake-etcd-").tempdir().unwrap().keep(),
                port: free_port(),
                peer_port: free_port(),
                guard: Mutex::default(),
            };
            let members: Vec<_> = (0..members).map(member).collect();
            let server = EtcdServer { members, names: AtomicU32::new(0) };
            for nth in 0..server.members.len() {
                server.begin(&program, nth, further);
            }
            if (0..server.members.len()).all(|nth| server.members[nth].says(READY, 1)) {
                return server;
            }
        }
        panic!("etcd finds no port");
    }

    fn begin(&self, program: &Path, nth: usize, further: &[&str]) {
        let member = &self.members[nth];
        let peer = |(nth, member): (usize, &Member)| {
            format!("m{nth}=http://127.0.0.1:{}", member.peer_port)
        };
        let all: Vec<_> = self.members.iter().enumerate().map(peer).collect();
        let client = format!("http://127.0.0.1:{}", member.port);
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        let name = format!("m{nth}");
        let token = format!("{}-{}", std::process::id(), self.members[0].port);
        let arguments = [
            ["--name", &name],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &all.join(",")],
            ["--initial-cluster-token", &token],
        ];
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "sh"]).arg(program).arg(&member.dir);
        // What they say twice counts as it was said last.
        guard.args(arguments.as_flattened());
        guard.args(further.iter().map(|word| word.replace("{port}", &member.port.to_string())));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ETCD") {
                guard.env_remove(variable);
            }
        }
        guard.stdin(Stdio::piped()).current_dir(&member.dir);
        *member.guard.lock().unwrap() = Some(guard.spawn().unwrap());
    }

    /// A name for a new store.
    pub fn name(&self) -> String {
        format!("n{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// The URL of a store with this name.
    pub fn url(&self, name: &str) -> String {
        let members = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port));
        format!("etcd://{}/{name}", members.collect::<Vec<_>>().join(","))
    }

    /// The port of a member for clients, on 127.0.0.1.
    pub fn port(&self, nth: usize) -> u16 {
        self.members[nth].port
    }

    /// Kills a member; what it has on its disk stays.
    pub fn crash(&self, nth: usize) {
        self.members[nth].tell_and_wait("crash", "told-crash");
    }

    /// Keeps a copy of what a member that was killed has on its disk.
    pub fn save(&self, nth: usize) {
        self.members[nth].tell_and_wait("save", "told-save");
    }

    /// Puts that copy in place of what a member that was killed has now.
    pub fn restore(&self, nth: usize) {
        self.members[nth].tell_and_wait("restore", "told-restore");
    }

    /// Starts it again. It is up when most of the members are.
    pub fn resume(&self, nth: usize) {
        self.members[nth].tell_and_wait("resume", READY);
    }

    /// Starts several again.
    pub fn resume_all(&self, which: &[usize]) {
        let before: Vec<_> = which.iter().map(|&nth| self.members[nth].count(READY)).collect();
        which.iter().for_each(|&nth| self.members[nth].tell("resume"));
        for (&nth, before) in which.iter().zip(before) {
            assert!(self.members[nth].says(READY, before + 1), "its port was taken");
        }
    }

    /// Has a member stand still.
    pub fn stop(&self, nth: usize) {
        self.members[nth].tell_and_wait("stop", "told-stop");
    }

    /// Has it go on.
    pub fn go(&self, nth: usize) {
        self.members[nth].tell_and_wait("go", "told-go");
    }

    /// Which member leads. Waits until one does; all have to be there.
    pub fn leader(&self) -> usize {
        for _ in 0..LOOKS_MAX {
            let leads = |nth: &usize| {
                let said = self.ctl_at(*nth, &["endpoint", "status", "-w", "json"]);
                let (member, leader) = (number(&said, "member_id"), number(&said, "leader"));
                member.is_some() && member == leader
            };
            if let Some(leader) = (0..self.members.len()).find(leads) {
                return leader;
            }
            std::thread::sleep(LOOK);
        }
        panic!("nobody leads");
    }

    /// The newest revision.
    pub fn revision(&self) -> String {
        number(&self.ctl(&["get", "nothing", "-w", "json"]), "revision").expect("JSON").to_string()
    }

    /// Runs `etcdctl` at the first member; what it prints.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.ctl_at(0, arguments)
    }

    /// Runs `etcdctl` at a member; what it prints.
    pub fn ctl_at(&self, nth: usize, arguments: &[&str]) -> String {
        let mut ctl = Command::new("etcdctl");
        ctl.env("ETCDCTL_API", "3").stdin(Stdio::null());
        ctl.args(["--endpoints", &format!("127.0.0.1:{}", self.port(nth))]).args(arguments);
        let output = ctl.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ctl:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// A number in what `etcdctl` prints as JSON.
fn number(said: &str, name: &str) -> Option<u64> {
    let rest = said.split(&format!("\"{name}\":")).nth(1)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

impl Member {
    fn tell(&self, word: &str) {
        let mut guard = self.guard.lock().unwrap();
        let input = guard.as_mut().and_then(|guard| guard.stdin.as_mut()).unwrap();
        writeln!(input, "{word}").unwrap();
    }

    fn tell_and_wait(&self, word: &str, sign: &str) {
        let before = self.count(sign);
        self.tell(word);
        assert!(self.says(sign, before + 1), "its port was taken:\n{}", self.log());
    }

    /// Waits until its log says something so many times; false if its port is taken.
    fn says(&self, what: &str, times: usize) -> bool {
        for _ in 0..LOOKS_MAX {
            if self.count(what) >= times {
                return true;
            }
            if self.log().contains(TAKEN) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        panic!("etcd does not say {what:?}:\n{}", self.log());
    }

    fn count(&self, what: &str) -> usize {
        self.log().matches(what).count()
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.lock().unwrap().take() {
            drop(guard.stdin.take());
            let _gone = guard.wait();
        }
    }
}

/// A port that nobody listens on, below those of other tests and those that the kernel gives to callers.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id()
            .wrapping_mul(131)
            .wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = 6_000 + (next % 4_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Where the package has its program.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/local/bin".into()]);
    let mut programs = places.map(|place| place.join("etcd"));
    programs.find(|program| program.is_file()).expect(
        "etcd is not installed, and the tests of its engine need it: apt-get install etcd-server etcd-client \
         (`make test` does that where it may)",
    )
}
