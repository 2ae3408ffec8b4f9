//! What a rule does not hold for, by name and reason.
//!
//! `xtask/exceptions.toml` is a list of `[[exception]]` with `rule`, `path`, `subject` and `reason`.
//! An exception that strikes nothing out is itself a finding, so the list only shrinks.

use super::{Finding, Tree};
use toml::Table;

const FILE: &str = "xtask/exceptions.toml";

/// The findings that no exception names, and the exceptions that name nothing.
pub fn strike(tree: &Tree, findings: Vec<Finding>) -> Result<Vec<Finding>, String> {
    let text = tree.text(FILE);
    let table: Table = text.parse().map_err(|e| format!("{FILE}: {e}"))?;
    let empty = Vec::new();
    let list = table.get("exception").and_then(|v| v.as_array()).unwrap_or(&empty);
    let mut left = findings;
    for (nth, exception) in list.iter().enumerate() {
        let field = |name: &str| exception.get(name).and_then(|v| v.as_str()).unwrap_or("");
        let (rule, path, subject) = (field("rule"), field("path"), field("subject"));
        let before = left.len();
        left.retain(|f| !(f.rule == rule && f.path == path && f.subject == subject));
        let complaint = match (left.len() == before, field("reason").len() < 20) {
            (true, _) => "strikes nothing out any more: remove it",
            (_, true) => "has no reason in words",
            _ => continue,
        };
        left.push(Finding {
            path: FILE.into(),
            line: nth + 1,
            rule: "exception",
            subject: format!("{rule} {path} {subject}"),
            text: complaint.into(),
        });
    }
    Ok(left)
}
