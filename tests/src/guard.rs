//! A shell that stands between this program and a server of a package: it starts the server, does with it what it is told,
//! and ends it when this program is gone, however it went. (The tests of `engine` use this file too.)

use std::io::Write;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How often, and how long apart, a log is looked at. Only a hang reaches the end.
pub const LOOKS_MAX: u32 = 3000;
pub const LOOK: Duration = Duration::from_millis(20);

/// The shell. It and its server end when this is dropped.
pub struct Guard {
    shell: Mutex<Child>,
    /// Where the server writes what it says.
    log: PathBuf,
    server: &'static str,
    /// What it says when its port is taken.
    taken: &'static str,
}

impl Guard {
    /// Starts one, whose server keeps its log in this directory.
    pub fn start(
        shell: &mut Command,
        dir: &Path,
        server: &'static str,
        taken: &'static str,
    ) -> Self {
        let shell = Mutex::new(shell.stdin(Stdio::piped()).spawn().unwrap());
        Self { shell, log: dir.join("log"), server, taken }
    }

    /// Tells it something, and waits for nothing.
    pub fn tell(&self, word: &str) {
        let mut shell = self.shell.lock().unwrap();
        writeln!(shell.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    /// Tells it something, and waits until the log says that it was done.
    pub fn tell_and_wait(&self, word: &str, sign: &str) {
        let before = self.count(sign);
        self.tell(word);
        assert!(self.says(sign, before + 1), "its port was taken:\n{}", self.log());
    }

    /// Waits until the log says something so many times; false if the server's port is taken.
    pub fn says(&self, what: &str, times: usize) -> bool {
        for _ in 0..LOOKS_MAX {
            if self.count(what) >= times {
                return true;
            }
            if self.log().contains(self.taken) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        panic!("{} does not say {what:?}:\n{}", self.server, self.log());
    }

    /// How often the log says something.
    pub fn count(&self, what: &str) -> usize {
        self.log().matches(what).count()
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap();
        drop(shell.stdin.take());
        let _gone = shell.wait();
    }
}

/// One of these ports that nobody listens on. They are below those of other tests and those that the kernel gives to callers.
pub fn free_port(ports: Range<u16>) -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id()
            .wrapping_mul(131)
            .wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = ports.start + (next as usize % ports.len()) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
