//! Which crate may use which: the table in ARCHITECTURE.md, held against every manifest.

use super::{Finding, Tree};
use std::collections::BTreeMap;
use toml::{Table, Value};

const DOCUMENT: &str = "ARCHITECTURE.md";
/// The row that opens the table.
const HEADER: &str = "| layer | crate | may use |";
/// Every kind of dependency counts: a test that reaches across a layer rots like any other code.
const KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// Crate to the crates it may use, by the short names of the table.
type Edges = BTreeMap<String, Vec<String>>;

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let allowed = table(tree.text(DOCUMENT));
    let mut findings = Vec::new();
    for (path, file) in &tree.files {
        if path != "Cargo.toml" && path.ends_with("Cargo.toml") {
            let manifest = file.text.parse().map_err(|e| format!("{path}: {e}"))?;
            manifest_against(&allowed, path, &manifest, &mut findings);
        }
    }
    Ok(findings)
}

/// Reads the table: names in backquotes, the second column's may use the third's.
fn table(document: &str) -> Edges {
    let mut edges = Edges::new();
    let rows = document.lines().skip_while(|line| line.trim() != HEADER).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let mut columns = row.split('|').skip(2);
        let (of, may) = (columns.next().unwrap_or(""), columns.next().unwrap_or(""));
        for name in quoted(of) {
            edges.insert(name, quoted(may));
        }
    }
    edges
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn manifest_against(allowed: &Edges, path: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    let named = manifest.get("package").and_then(|p| p.get("name")).and_then(Value::as_str);
    let Some(name) = named.map(short) else { return };
    let mut complain = |line: usize, subject: &str, text: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line,
            rule: "crate-edge",
            subject: subject.to_owned(),
            text,
        });
    };
    let Some(may) = allowed.get(name) else {
        return complain(0, name, format!("not in the table of {DOCUMENT}"));
    };
    for kind in KINDS {
        let table = manifest.get(*kind).and_then(Value::as_table);
        for dependency in table.into_iter().flat_map(|t| t.keys()) {
            let target = short(dependency);
            // Only ours: the table knows them all, and our names begin alike.
            let ours = dependency.starts_with("strake") || allowed.contains_key(dependency);
            if ours && !may.iter().any(|m| m == target) {
                complain(0, name, format!("{kind} on {target}, which {DOCUMENT} does not allow"));
            }
        }
    }
}

/// `strake-meta` is `meta` in the table; the program is `strake`.
fn short(package: &str) -> &str {
    package.strip_prefix("strake-").unwrap_or(package)
}
