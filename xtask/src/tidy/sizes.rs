//! A function fits a screen, a file fits a head, inline tests do not bury the code.

use super::tree::{File, is_test_file};
use super::{Finding, Tree, scan};

/// Longest function, from its `fn` line to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Longest file, tests not counted.
const FILE_LINES_MAX: usize = 600;
/// Longest `#[cfg(test)]` module inside a file; longer ones go to `name/tests.rs`.
const INLINE_TEST_LINES_MAX: usize = 150;

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (path, file) in tree.rust() {
        functions(path, file, &mut findings);
        let mut test_lines = 0;
        for range in &file.tests {
            let lines = file.line_of(range.end) - file.line_of(range.start) + 1;
            test_lines += lines;
            if lines > INLINE_TEST_LINES_MAX {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: file.line_of(range.start),
                    rule: "inline-tests",
                    subject: "tests".into(),
                    text: format!(
                        "{lines} lines; over {INLINE_TEST_LINES_MAX} move to a tests.rs of their own"
                    ),
                });
            }
        }
        let lines = file.text.lines().count().saturating_sub(test_lines);
        if lines > FILE_LINES_MAX && !is_test_file(path) {
            findings.push(Finding {
                path: path.to_owned(),
                line: 0,
                rule: "file-length",
                subject: "file".into(),
                text: format!("{lines} lines without tests, at most {FILE_LINES_MAX}"),
            });
        }
    }
    Ok(findings)
}

fn functions(path: &str, file: &File, findings: &mut Vec<Finding>) {
    for function in scan::functions(&file.code) {
        let line = file.line_of(function.start);
        let lines = file.line_of(function.end) - line + 1;
        if lines > FUNCTION_LINES_MAX {
            findings.push(Finding {
                path: path.to_owned(),
                line,
                rule: "function-length",
                subject: function.name,
                text: format!("{lines} lines, at most {FUNCTION_LINES_MAX}"),
            });
        }
    }
}
