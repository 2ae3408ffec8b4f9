//! An etcd cluster of the distribution's package, of one member or several, in a directory of its own, for as long as
//! the test program lives.
//!
//! A shell stands between each member and this program: it ends the member when this program is gone, however it
//! went. (The tests of `engine` use this file too.)

use super::guard::{Guard, LOOK, LOOKS_MAX, free_port};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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
/// Where its members may listen.
const PORTS: Range<u16> = 6_000..10_000;
/// How long `etcdctl` waits. Only a hang reaches it.
const CTL_WAIT: &str = "60s";

/// One member.
struct Member {
    port: u16,
    guard: Guard,
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
            let ports: Vec<_> =
                (0..members).map(|_| [free_port(PORTS), free_port(PORTS)]).collect();
            let members = (0..members).map(|nth| Member::begin(&program, nth, &ports, further));
            let members: Vec<_> = members.collect();
            if members.iter().all(|member| member.guard.says(READY, 1)) {
                return EtcdServer { members, names: AtomicU32::new(0) };
            }
        }
        panic!("etcd finds no port");
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
        self.members[nth].guard.tell_and_wait("crash", "told-crash");
    }

    /// Keeps a copy of what a member that was killed has on its disk.
    pub fn save(&self, nth: usize) {
        self.members[nth].guard.tell_and_wait("save", "told-save");
    }

    /// Puts that copy in place of what a member that was killed has now.
    pub fn restore(&self, nth: usize) {
        self.members[nth].guard.tell_and_wait("restore", "told-restore");
    }

    /// Starts it again. It is up when most of the members are.
    pub fn resume(&self, nth: usize) {
        self.members[nth].guard.tell_and_wait("resume", READY);
    }

    /// Starts several again.
    pub fn resume_all(&self, which: &[usize]) {
        let guards: Vec<_> = which.iter().map(|&nth| &self.members[nth].guard).collect();
        let before: Vec<_> = guards.iter().map(|guard| guard.count(READY)).collect();
        guards.iter().for_each(|guard| guard.tell("resume"));
        for (guard, before) in guards.iter().zip(before) {
            assert!(guard.says(READY, before + 1), "its port was taken");
        }
    }

    /// Has a member stand still.
    pub fn stop(&self, nth: usize) {
        self.members[nth].guard.tell_and_wait("stop", "told-stop");
    }

    /// Has it go on.
    pub fn go(&self, nth: usize) {
        self.members[nth].guard.tell_and_wait("go", "told-go");
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
        // It would wait for a member that is slow for no more than a few seconds.
        ctl.args(["--dial-timeout", CTL_WAIT, "--command-timeout", CTL_WAIT]);
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
    /// Begins one of those that have these ports: one for clients and one for each other.
    fn begin(program: &Path, nth: usize, ports: &[[u16; 2]], further: &[&str]) -> Self {
        let [port, peer_port] = ports[nth];
        let dir = tempfile::Builder::new().prefix("strake-etcd-").tempdir().unwrap().keep();
        let peer = |(nth, [_, port]): (usize, &[u16; 2])| format!("m{nth}=http://127.0.0.1:{port}");
        let all: Vec<_> = ports.iter().enumerate().map(peer).collect();
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let name = format!("m{nth}");
        let token = format!("{}-{}", std::process::id(), ports[0][0]);
        let arguments = [
            ["--name", &name],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &all.join(",")],
            ["--initial-cluster-token", &token],
        ];
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARD, "sh"]).arg(program).arg(&dir);
        // What they say twice counts as it was said last.
        shell.args(arguments.as_flattened());
        shell.args(further.iter().map(|word| word.replace("{port}", &port.to_string())));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ETCD") {
                shell.env_remove(variable);
            }
        }
        Self { port, guard: Guard::start(shell.current_dir(&dir), &dir, "etcd", TAKEN) }
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
