//! `lib.rs` (or `main.rs`) opens with the essay of its crate.

use super::{Finding, Tree};

/// Fewest lines of `//!` that can say what a crate is, how data flows and what it never does.
const LINES_MIN: usize = 4;

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust() {
        let is_root = path.ends_with("/src/lib.rs")
            || path.ends_with("/src/main.rs")
                && !tree.files.contains_key(&path.replace("main.rs", "lib.rs"));
        if !is_root {
            continue;
        }
        let essay: Vec<_> = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let says_never = essay.iter().any(|line| line.contains("never"));
        let text = match (essay.len() < LINES_MIN, says_never) {
            (true, _) => format!("opens with {} lines of //!, at least {LINES_MIN}", essay.len()),
            (_, false) => "does not say what the crate never does".into(),
            _ => continue,
        };
        findings.push(Finding {
            path: path.to_owned(),
            line: 1,
            rule: "essay",
            subject: "crate".into(),
            text,
        });
    }
    Ok(findings)
}
