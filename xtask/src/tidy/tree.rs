//! The files that rules look at.

use super::scan;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// Directories that hold what is built or made at run time, never sources.
const NOT_SOURCES: &[&str] = &[".git", "target", "mnt", "strake-data"];
/// Broken on purpose: what the tests of tidy run on.
const FIXTURES: &str = "xtask/fixtures/";

/// All text files of the repository, read once.
pub struct Tree {
    /// Path relative to the root, with `/`, and what it holds.
    pub files: BTreeMap<String, File>,
    /// Paths of the files that are not text.
    binaries: BTreeSet<String>,
}

/// A text file; a Rust file also scanned.
pub struct File {
    /// Its bytes.
    pub text: String,
    /// For Rust: the same text with comments and literals blanked out, byte for byte in place.
    pub code: String,
    /// For Rust: byte ranges of items marked `#[cfg(test)]`.
    pub tests: Vec<Range<usize>>,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let rust = path.ends_with(".rs");
        let code = if rust { scan::blank(&text) } else { String::new() };
        let tests = scan::test_items(&code);
        Self { text, code, tests }
    }

    /// Line of a byte offset, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1
    }

    /// True if the offset lies in an item marked `#[cfg(test)]`.
    pub fn in_tests(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }
}

impl Tree {
    /// The files that git knows or would add, except fixtures; all files where there is no git.
    pub fn of_repository(root: &Path) -> Result<Self, String> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listed = Command::new("git").args(arguments).current_dir(root).output();
        let mut paths = Vec::new();
        match listed {
            Ok(output) if output.status.success() => {
                let names = String::from_utf8_lossy(&output.stdout).into_owned();
                paths.extend(names.split('\0').filter(|p| !p.is_empty()).map(str::to_owned));
            }
            _ => walk(root, "", &mut paths)?,
        }
        paths.retain(|path| !path.starts_with(FIXTURES));
        Self::read(root, paths)
    }

    /// Every file of a fixture, but not what is expected of it.
    #[cfg(test)]
    pub fn of_fixture(root: &Path) -> Result<Self, String> {
        let mut paths = Vec::new();
        walk(root, "", &mut paths)?;
        paths.retain(|path| path != "expected.txt");
        Self::read(root, paths)
    }

    fn read(root: &Path, paths: Vec<String>) -> Result<Self, String> {
        let (mut files, mut binaries) = (BTreeMap::new(), BTreeSet::new());
        for path in paths {
            let bytes = match std::fs::read(root.join(&path)) {
                Ok(bytes) => bytes,
                // Removed in the working tree, not yet in the index; or a link to a directory.
                Err(_) => continue,
            };
            // Corpora and images are not text.
            match String::from_utf8(bytes) {
                Ok(text) => drop(files.insert(path.clone(), File::new(&path, text))),
                Err(_) => drop(binaries.insert(path)),
            }
        }
        Ok(Self { files, binaries })
    }

    /// Every path, text or not.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().chain(&self.binaries).map(String::as_str)
    }

    /// Rust files, in order.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(p, f)| (p.as_str(), f))
    }

    /// The text of a file, or an empty one.
    pub fn text(&self, path: &str) -> &str {
        self.files.get(path).map_or("", |file| file.text.as_str())
    }
}

/// True for files that hold nothing but tests.
pub fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    ["tests.rs", "testing.rs"].contains(&name)
        || ["tests/", "fuzz/"].iter().any(|top| path.starts_with(top))
        || ["/tests/", "/testing/", "/benches/", "/examples/"].iter().any(|dir| path.contains(dir))
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> Result<(), String> {
    let directory = root.join(below);
    let failed = |e: std::io::Error| format!("cannot read {}: {e}", directory.display());
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if entry.file_type().map_err(failed)?.is_dir() {
            if !NOT_SOURCES.contains(&name.as_str()) {
                walk(root, &path, paths)?;
            }
        } else {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(())
}
