//! No import cycles between a crate's modules.
//!
//! Modules are compared with their siblings, at every level of the tree: if `a` uses anything in or
//! below its sibling `b`, then nothing in or below `b` may use `a`, directly or through others. What
//! a module takes from its own ancestors or descendants is not counted: they are one room.

use super::tree::is_test_file;
use super::{Finding, Tree, scan};
use std::collections::{BTreeMap, BTreeSet};

/// Segments of a module's path below the crate root.
type Module = Vec<String>;

/// A crate's modules, and under which names each hands on what its children define.
struct Crate {
    modules: BTreeMap<Module, (String, String)>,
    handed_on: BTreeMap<Module, BTreeMap<String, Module>>,
}

/// A path as written, made absolute: where it stands and what it names.
struct Use {
    from: Module,
    to: Module,
}

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (path, file) in tree.rust() {
        let Some((top, below)) = path.split_once("/src/").filter(|_| !is_test_file(path)) else {
            continue;
        };
        let mut code = file.code.clone().into_bytes();
        file.tests.iter().for_each(|range| code[range.clone()].fill(b' '));
        let code = String::from_utf8_lossy(&code).into_owned();
        let found = crates.entry(top.to_owned());
        let found = found.or_insert(Crate { modules: BTreeMap::new(), handed_on: BTreeMap::new() });
        found.modules.insert(module_of(below), (path.to_owned(), code));
    }
    let mut findings = Vec::new();
    for found in crates.values_mut() {
        found.handed_on = hand_on(found);
        in_crate(found, &mut findings);
    }
    Ok(findings)
}

fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let mut segments: Module = path.split('/').map(str::to_owned).collect();
    if segments.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        segments.pop();
    }
    segments
}

/// `pub use child::Name;` in a parent: whoever takes `Name` from the parent takes it from the child.
fn hand_on(found: &Crate) -> BTreeMap<Module, BTreeMap<String, Module>> {
    let mut all = BTreeMap::new();
    for (module, (_, code)) in &found.modules {
        let mut names = BTreeMap::new();
        for at in scan::words(code, "use") {
            let end = code[at..].find(';').map_or(code.len(), |n| at + n);
            let mut paths = Vec::new();
            leaves(&code[at + 3..end], &mut paths);
            for path in paths {
                let path: Vec<_> = path.into_iter().filter(|s| s != "self").collect();
                let full: Module = module.iter().cloned().chain(path.first().cloned()).collect();
                if let (true, Some(name)) = (found.modules.contains_key(&full), path.last()) {
                    names.insert(name.clone(), full);
                }
            }
        }
        all.insert(module.clone(), names);
    }
    all
}

/// The paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`. `x as y` counts as `x`.
fn leaves(text: &str, into: &mut Vec<Vec<String>>) {
    let text = text.trim();
    let (head, rest) = match text.find('{') {
        Some(open) => (&text[..open], text[open + 1..].trim_end().trim_end_matches('}')),
        None => (text.split(" as ").next().unwrap_or(text), ""),
    };
    let prefix: Vec<String> =
        head.split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
    if rest.is_empty() {
        into.push(prefix);
        return;
    }
    for part in split_top(rest) {
        let mut inner = Vec::new();
        leaves(part, &mut inner);
        into.extend(inner.into_iter().map(|path| prefix.iter().cloned().chain(path).collect()));
    }
}

/// Splits at commas outside braces.
fn split_top(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Every path of a module that begins with `crate`, `super` or `self`.
fn uses(found: &Crate, module: &Module, code: &str) -> Vec<Use> {
    let mut all = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for at in scan::words(code, root) {
            // The tail of `super::super::` is read with its head.
            if code[..at].ends_with("::") {
                continue;
            }
            let mut paths = Vec::new();
            leaves(path_text(&code[at..]), &mut paths);
            for path in paths {
                if let Some(to) = absolute(found, module, &path) {
                    all.push(Use { from: module.clone(), to });
                }
            }
        }
    }
    all
}

/// The path at the start of a text, with its braces if it is a use tree.
fn path_text(code: &str) -> &str {
    let bytes = code.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' => return &code[..scan::closing_brace(code, at)],
            b if b.is_ascii_alphanumeric() || b == b'_' || b == b':' => at += 1,
            _ => break,
        }
    }
    &code[..at]
}

/// The module that a path leads to, following names that parents hand on.
fn absolute(found: &Crate, module: &Module, path: &[String]) -> Option<Module> {
    let mut at: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        _ => module.clone(),
    };
    for segment in &path[1..] {
        if segment == "super" {
            at.pop();
            continue;
        }
        let mut child = at.clone();
        child.push(segment.clone());
        if found.modules.contains_key(&child) {
            at = child;
        } else if let Some(to) = found.handed_on.get(&at).and_then(|names| names.get(segment)) {
            at.clone_from(to);
        } else {
            break;
        }
    }
    Some(at)
}

fn in_crate(found: &Crate, findings: &mut Vec<Finding>) {
    let mut graph: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, (_, code)) in &found.modules {
        for Use { from, to } in uses(found, module, code) {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if common < from.len() && common < to.len() {
                let edge = graph.entry(from[..=common].to_vec()).or_default();
                edge.insert(to[..=common].to_vec());
            }
        }
    }
    let mut told = BTreeSet::new();
    for start in graph.keys() {
        let Some(cycle) = way_back(&graph, start) else { continue };
        let names: BTreeSet<_> = cycle.iter().cloned().collect();
        if told.insert(names) {
            let shown: Vec<_> = cycle.iter().map(|m| m.join("::")).collect();
            let path = found.modules.get(start).map_or("", |(path, _)| path.as_str());
            findings.push(Finding {
                path: path.to_owned(),
                line: 0,
                rule: "import-cycle",
                subject: start.join("::"),
                text: format!("{} -> {}", shown.join(" -> "), shown[0]),
            });
        }
    }
}

/// The shortest way from a module back to itself.
fn way_back(graph: &BTreeMap<Module, BTreeSet<Module>>, start: &Module) -> Option<Vec<Module>> {
    let mut queue = std::collections::VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = queue.pop_front() {
        for next in graph.get(way.last()?).into_iter().flatten() {
            if next == start {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                let mut longer = way.clone();
                longer.push(next.clone());
                queue.push_back(longer);
            }
        }
    }
    None
}
