//! The rules of the repository that no other tool checks.
//!
//! A [`Tree`] is read once; each rule is a plain function from the tree to findings, in a file of
//! its own. [`check`] runs them all and strikes out what `xtask/exceptions.toml` allows.

use std::fmt;

mod bans;
mod clauses;
mod corpora;
mod cycles;
mod edges;
mod essays;
mod exceptions;
mod scan;
mod sizes;
mod tree;

#[cfg(test)]
mod tests;

pub use tree::Tree;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, relative to the root.
    path: String,
    /// Line, from 1; 0 where the whole file is meant.
    line: usize,
    /// The rule's name, as in the exceptions file.
    rule: &'static str,
    /// What in the file: a function, a module, a crate. Exceptions name it.
    subject: String,
    /// What is wrong, in words.
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}: {}", self.path, self.line, self.rule, self.subject, self.text)
    }
}

/// Every finding in the tree, sorted by place.
pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let rules = [
        edges::check,
        sizes::check,
        cycles::check,
        bans::check,
        clauses::check,
        essays::check,
        corpora::check,
    ];
    let mut findings = Vec::new();
    for rule in rules {
        findings.extend(rule(tree)?);
    }
    let mut findings = exceptions::strike(tree, findings)?;
    findings.sort();
    findings.dedup();
    Ok(findings)
}
