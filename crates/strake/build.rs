//! Which commit the program is built from, as `strake --version` and a cluster's servers show it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=STRAKE_COMMIT");
    let commit = std::env::var("STRAKE_COMMIT").ok().or_else(commit_of_git).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let release = match commit.as_str() {
        "" => version.to_owned(),
        commit => format!("{version} ({commit})"),
    };
    println!("cargo::rustc-env=STRAKE_COMMIT={commit}");
    println!("cargo::rustc-env=STRAKE_RELEASE={release}");
}

/// `None` where the sources are in no repository of their own. And of what is built for tests: that would be built anew with each
/// commit. With a plus where files have changed since: as of now, for this does not run again when others do.
fn commit_of_git() -> Option<String> {
    if std::env::var("PROFILE").ok()? != "release" {
        return None;
    }
    // Unpacked within another repository they would have that one's commit.
    if git(&["rev-parse", "--show-prefix"])? != "crates/strake/" {
        return None;
    }
    // It grows with each commit and each checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
