//! What must not stand in a tracked file.

use super::tree::{File, is_test_file};
use super::{Finding, Tree, scan};

/// Crates that may hold `unsafe`, each block with its reason.
const UNSAFE_CRATES: &[&str] = &["crates/base/", "crates/fuse/"];
/// Fewest words of an `expect` message that can be a proof.
const PROOF_WORDS_MIN: usize = 4;
/// Macros that mark unfinished code.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// Crates that the simulator runs: their tasks come from `base::task`, so that they belong to a
/// simulated process.
const SIMULATED_CRATES: &[&str] = &[
    "crates/wire/src/",
    "crates/manager/src/",
    "crates/meta/src/",
    "crates/storage/src/",
    "crates/client/src/",
];
/// What makes tasks that belong to nobody.
const FOREIGN_TASKS: &[&str] = &["tokio::spawn", "spawn_blocking"];
/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &["/work/", "/root/", "/home/"];
/// Parts of the names of hosts that packages come from: the toolchain's own configuration chooses
/// them, no file of ours.
const REGISTRY_HOSTS: &[&str] = &[".crates.io", ".npmjs.", "pypi.", "artifactory", "nexus."];
/// Where the default registry may and must be named.
const LOCK_FILES: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];
/// The one source that a lock file may name.
const DEFAULT_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
/// This file names what it bans.
const THIS_FILE: &str = "xtask/src/tidy/bans.rs";

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (path, file) in tree.files.iter().filter(|(path, _)| *path != THIS_FILE) {
        if path.ends_with(".rs") {
            rust(path, file, &mut findings);
        }
        places(path, file, &mut findings);
    }
    Ok(findings)
}

fn rust(path: &str, file: &File, findings: &mut Vec<Finding>) {
    let mut complain = |at: usize, rule, text: String| {
        let subject = enclosing(file, at);
        findings.push(Finding {
            path: path.to_owned(),
            line: file.line_of(at),
            rule,
            subject,
            text,
        });
    };
    for word in UNFINISHED {
        for at in scan::words(&file.code, word) {
            complain(at, "unfinished", format!("{word} in a tracked file"));
        }
    }
    for at in scan::words(&file.code, "unsafe") {
        if !UNSAFE_CRATES.iter().any(|top| path.starts_with(top)) {
            complain(at, "unsafe", "unsafe outside base and fuse".into());
        } else if !has_reason(file, at) {
            complain(at, "unsafe", "no comment beside it gives the reason".into());
        }
    }
    if is_test_file(path) {
        return;
    }
    if SIMULATED_CRATES.iter().any(|top| path.starts_with(top)) {
        for word in FOREIGN_TASKS {
            for at in scan::words(&file.code, word).filter(|at| !file.in_tests(*at)) {
                complain(at, "foreign-task", format!("{word} in place of base::task"));
            }
        }
    }
    for (at, call) in calls(&file.code).filter(|(at, _)| !file.in_tests(*at)) {
        let after = at + call.len();
        let literal = file.text[after..].trim_start();
        if call != ".expect(" {
            complain(at, "unwrap", format!("{call}) outside tests"));
        } else if let Some(message) = literal.strip_prefix('"') {
            let words = message.split('"').next().unwrap_or("").split_whitespace().count();
            if words < PROOF_WORDS_MIN {
                complain(at, "unwrap", "the message of expect is no proof".into());
            }
        }
    }
}

fn calls(code: &str) -> impl Iterator<Item = (usize, &'static str)> + '_ {
    [".unwrap(", ".unwrap_err(", ".expect(", ".expect_err("]
        .into_iter()
        .flat_map(|call| code.match_indices(call).map(move |(at, _)| (at, call)))
}

/// A comment on the line of `at` or on one of the three before it.
fn has_reason(file: &File, at: usize) -> bool {
    let line = file.line_of(at);
    let lines = file.text.lines().skip(line.saturating_sub(4)).take(4.min(line));
    lines.into_iter().any(|l| l.contains("//"))
}

/// The innermost function around an offset; exceptions name it.
fn enclosing(file: &File, at: usize) -> String {
    let mut around =
        scan::functions(&file.code).into_iter().filter(|f| (f.start..f.end).contains(&at));
    around.next_back().map_or_else(|| "file".into(), |f| f.name)
}

fn places(path: &str, file: &File, findings: &mut Vec<Finding>) {
    for (nth, line) in file.text.lines().enumerate() {
        let mut complain = |rule, subject: &str, text: &str| {
            findings.push(Finding {
                path: path.to_owned(),
                line: nth + 1,
                rule,
                subject: subject.to_owned(),
                text: text.to_owned(),
            });
        };
        if LOCK_FILES.contains(&path) {
            if line.starts_with("source = ") && line != DEFAULT_SOURCE {
                complain("registry", "source", "a lock file names another registry");
            }
            continue;
        }
        for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
            complain("registry", host, "a tracked file names a package registry's host");
        }
        for top in MACHINE_PATHS.iter().filter(|top| has_path(line, top)) {
            complain("machine-path", top, "a path that exists on one machine only");
        }
    }
}

/// True if an absolute path in the line begins with `top`.
fn has_path(line: &str, top: &str) -> bool {
    line.match_indices(top).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}~".contains(c))
    })
}
