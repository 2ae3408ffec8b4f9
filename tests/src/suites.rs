//! Suites that nobody here wrote. Each is installed once, at a fixed version, into `target/tools`.

use crate::cluster::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// How often an installation is tried.
const INSTALL_TRIES_MAX: u32 = 3;

/// The program of a suite, installed by cargo at the first time.
pub fn tool(package: &str, version: &str) -> PathBuf {
    // Two tests may want one at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let built = program();
    let target = built.parent().and_then(Path::parent).expect("it lies in target/debug");
    let root = target.join("tools").join(format!("{package}-{version}"));
    let path = root.join("bin").join(package);
    for _ in 0..INSTALL_TRIES_MAX {
        if path.exists() {
            return path;
        }
        // What it is built from is not optimised: that would take longer than it saves. Itself it is: fsx took more than half of
        // the processor time of its tests.
        let own = format!("profile.dev.package.{package}.opt-level=3");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["install", package, "--version", version, "--locked", "--debug", "--quiet"]);
        cargo
            .args(["--config", &own])
            .arg("--root")
            .arg(&root)
            .env("CARGO_TARGET_DIR", target.join("tools/build"));
        // What cargo sets for a test must not reach another package's build.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG")) {
            cargo.env_remove(name);
        }
        cargo.status().expect("cargo runs the tests, so it is there");
    }
    assert!(path.exists(), "cannot install {package} {version}: is there a network?");
    path
}

/// Runs a command to its end; what it said, as text.
pub fn finish(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("an installed program starts");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    (output, text)
}
