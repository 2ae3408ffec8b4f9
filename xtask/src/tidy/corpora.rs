//! Every fuzz target has a corpus, and every corpus a target.

use super::{Finding, Tree};
use std::collections::BTreeSet;

const TARGETS: &str = "fuzz/fuzz_targets/";
const CORPORA: &str = "fuzz/corpus/";

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let targets: BTreeSet<_> = tree.paths().filter_map(target).collect();
    let corpora: BTreeSet<_> = tree.paths().filter_map(corpus).collect();
    let finding = |place: String, name: &str, text: &str| Finding {
        path: place,
        line: 0,
        rule: "corpus",
        subject: name.to_owned(),
        text: text.to_owned(),
    };
    let bare = targets
        .difference(&corpora)
        .map(|name| finding(format!("{TARGETS}{name}.rs"), name, "a fuzz target without a corpus"));
    let stray = corpora
        .difference(&targets)
        .map(|name| finding(format!("{CORPORA}{name}"), name, "a corpus without a fuzz target"));
    Ok(bare.chain(stray).collect())
}

fn target(path: &str) -> Option<&str> {
    path.strip_prefix(TARGETS)?.strip_suffix(".rs")
}

fn corpus(path: &str) -> Option<&str> {
    path.strip_prefix(CORPORA)?.split_once('/').map(|(name, _)| name)
}
