//! Every clause of docs/SEMANTICS.md names a test, and every test it names exists.
//!
//! A clause is a paragraph or list item that begins with its number in bold (`**S-042**`); it ends
//! where the next begins. Its tests stand after `Tests:` or `Test:`, each in backquotes.

use super::{Finding, Tree, scan};
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/SEMANTICS.md";

struct Clause {
    number: String,
    line: usize,
    tests: Vec<String>,
}

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let clauses = clauses(tree.text(DOCUMENT));
    let tests = test_names(tree);
    let mut last = String::new();
    for clause in &clauses {
        let mut complain = |text: String| {
            findings.push(finding(DOCUMENT, clause.line, &clause.number, text));
        };
        if clause.number <= last {
            complain(format!("stands after {last}: numbers ascend and are never used twice"));
        }
        last.clone_from(&clause.number);
        if clause.tests.is_empty() {
            complain("names no test".into());
        }
        for test in clause.tests.iter().filter(|test| !tests.contains(test.as_str())) {
            complain(format!("names the test {test}, which does not exist"));
        }
    }
    mentions(tree, &clauses, &mut findings);
    Ok(findings)
}

fn finding(path: &str, line: usize, subject: &str, text: String) -> Finding {
    let (path, subject) = (path.to_owned(), subject.to_owned());
    Finding { path, line, rule: "clause", subject, text }
}

fn clauses(document: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = Vec::new();
    let mut in_tests = false;
    for (nth, line) in document.lines().enumerate() {
        let text = line.trim_start_matches(['-', ' ']);
        if let Some(number) = text.strip_prefix("**").and_then(clause_number) {
            clauses.push(Clause { number: number.to_owned(), line: nth + 1, tests: Vec::new() });
            in_tests = false;
        }
        if line.is_empty() || line.starts_with('#') {
            in_tests = false;
        }
        let start = ["Tests:", "Test:"].iter().find_map(|mark| line.find(mark));
        in_tests |= start.is_some();
        let Some(clause) = clauses.last_mut().filter(|_| in_tests) else { continue };
        let names = line[start.unwrap_or(0)..].split('`').skip(1).step_by(2);
        clause.tests.extend(names.map(str::to_owned));
    }
    clauses
}

/// `S-` and three digits at the start of a text.
fn clause_number(text: &str) -> Option<&str> {
    let digits = text.get(2..5)?;
    (text.starts_with("S-") && digits.bytes().all(|b| b.is_ascii_digit())).then(|| &text[..5])
}

/// Functions marked with some `#[...test...]` attribute, anywhere in the tree.
fn test_names(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, file) in tree.rust() {
        for function in scan::functions(&file.code) {
            let before = &file.code[..function.start];
            let item = before.rfind(['}', ';', '{']).map_or(0, |at| at + 1);
            if scan::words(&before[item..], "test").next().is_some() {
                names.insert(function.name);
            }
        }
    }
    names
}

/// Numbers that code mentions must exist.
fn mentions(tree: &Tree, clauses: &[Clause], findings: &mut Vec<Finding>) {
    let known: BTreeSet<_> = clauses.iter().map(|c| c.number.as_str()).collect();
    for (path, file) in tree.rust().filter(|(path, _)| !path.starts_with("xtask/")) {
        for (at, _) in file.text.match_indices("S-") {
            let number = clause_number(&file.text[at..]).filter(|n| !known.contains(n));
            let word_before = at > 0 && file.text.as_bytes()[at - 1].is_ascii_alphanumeric();
            if let Some(number) = number.filter(|_| !word_before) {
                let text = format!("mentioned, but not in {DOCUMENT}");
                findings.push(finding(path, file.line_of(at), number, text));
            }
        }
    }
}
