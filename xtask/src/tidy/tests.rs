//! Each folder of `xtask/fixtures` is a small tree that breaks one rule; its `expected.txt` holds the
//! findings.

use super::{Tree, check};
use std::path::Path;

fn fixture(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let tree = Tree::of_fixture(&root).unwrap();
    let found: String = check(&tree).unwrap().iter().map(|f| format!("{f}\n")).collect();
    let expected = std::fs::read_to_string(root.join("expected.txt")).unwrap();
    assert_eq!(found, expected, "findings in the fixture {name}");
}

#[test]
fn a_good_tree_has_no_findings() {
    fixture("good");
}

#[test]
fn an_edge_outside_the_table_is_found_in_every_kind_of_dependency() {
    fixture("crate-edge");
}

#[test]
fn long_functions_files_and_inline_tests_are_found() {
    fixture("sizes");
}

#[test]
fn an_import_cycle_is_found_through_groups_and_handed_on_names() {
    fixture("cycles");
}

#[test]
fn unwrap_unsafe_unfinished_code_and_foreign_places_are_found() {
    fixture("bans");
}

#[test]
fn a_clause_without_a_test_and_a_test_without_a_function_are_found() {
    fixture("clauses");
}

#[test]
fn a_crate_without_an_essay_is_found() {
    fixture("essays");
}

#[test]
fn a_fuzz_target_without_a_corpus_and_a_corpus_without_a_target_are_found() {
    fixture("corpora");
}

#[test]
fn exceptions_strike_findings_and_must_be_needed_and_reasoned() {
    fixture("exceptions");
}
