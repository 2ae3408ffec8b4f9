//! Runs the double.

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};

/// A process that is TiKV and PD. It ends when its standard input does, so also with this program.
pub struct Double {
    pub port: u16,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    child: Child,
}

impl Drop for Double {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Double {
    /// One for all tests that do not disturb others.
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: OnceLock<Option<Arc<Double>>> = OnceLock::new();
        SHARED.get_or_init(|| Double::start().map(Arc::new)).clone()
    }

    /// `None`: there is no Go.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut pipes = (orders, BufReader::new(answers));
        let port = line(&mut pipes.1).parse().unwrap();
        Some(Self { port, pipes: Mutex::new(pipes), child })
    }

    /// Gives an order (`double/network.go` has them), and waits until it is carried out.
    pub fn order(&self, order: &str) -> String {
        let (orders, answers) = &mut *self.pipes.lock();
        writeln!(orders, "{order}").unwrap();
        line(answers)
    }

    /// A region begins with this key from now on.
    pub fn split(&self, key: &[u8]) {
        let hex = key.iter().fold("split ".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        });
        assert_eq!(self.order(&hex), "ok");
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The double, built at the first call; Go keeps what it has compiled.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if Command::new("go").arg("version").output().is_err() {
            println!("there is no Go: what needs the double of TiKV is skipped");
            return None;
        }
        let program = std::env::current_exe().unwrap().with_file_name("tikv-double");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/double"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(program)
    };
    PROGRAM.get_or_init(build).as_deref()
}
