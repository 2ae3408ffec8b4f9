//! Programs that a test makes up.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a program of a script. Written by a process of its own: one that another test starts at this moment would hold ours
/// open for writing, and nobody could run it.
pub fn make(path: &Path, script: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().expect("install is there (coreutils)");
    let mut input = install.stdin.take().expect("it was asked for");
    input.write_all(script.as_bytes()).expect("it reads all");
    drop(input);
    assert!(install.wait().expect("a child can be waited for").success(), "{}", path.display());
}
