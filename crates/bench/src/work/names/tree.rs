//! The shape of a tree, and the names in it.

use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use strake_base::random::mixed;

/// Most directories of a tree.
pub const DIRECTORIES_MAX: u64 = 1 << 20;
/// Letters of the random part of bonnie++'s names: none to this many.
const LETTERS_MAX: u64 = 12;

/// A tree in which every directory has as many directories below it, down to a depth, and as many
/// files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Levels of directories below the first one.
    pub depth: u32,
    /// Directories in each directory that has any.
    pub branching: u64,
    /// Files of each worker in each directory.
    pub files: u64,
}

/// How files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Naming {
    /// mdtest's: `file.mdtest.WORKER.NUMBER`.
    Numbered,
    /// As [`Naming::Numbered`], after the rename phase.
    Renamed,
    /// bonnie++'s sequential names: a number of 7 digits, then up to 12 random letters.
    NumberFirst,
    /// bonnie++'s random names: up to 12 random letters, then a number of 7 digits.
    LettersFirst,
}

impl Shape {
    /// Directories, the first one included; `None` if they are too many.
    pub fn directories(&self) -> Option<u64> {
        let (mut all, mut level) = (1u64, 1u64);
        for _ in 0..self.depth {
            level = level.checked_mul(self.branching)?;
            all = all.checked_add(level)?;
            if level == 0 || all > DIRECTORIES_MAX {
                break;
            }
        }
        (all <= DIRECTORIES_MAX).then_some(all)
    }

    /// Paths of all directories, each after the one it is in.
    pub fn paths(&self, root: &Path) -> Vec<PathBuf> {
        let count = self.directories().unwrap_or(1) as usize;
        let mut paths = vec![root.to_owned()];
        for number in 1..count {
            // Counted level by level, a directory's are the next ones that have no parent yet.
            let parent = (number - 1) / self.branching.max(1) as usize;
            let path = paths[parent].join(format!("d{number}"));
            paths.push(path);
        }
        paths
    }

    /// Entries of directories that are directories.
    pub fn inner_entries(&self) -> u64 {
        self.directories().unwrap_or(1) - 1
    }
}

impl Naming {
    /// Makes `path` end with the name of a worker's file, in place of its last name.
    pub fn put(self, path: &mut String, seed: u64, worker: usize, number: u64) {
        let random = mixed(seed ^ mixed(number ^ ((worker as u64) << 40)));
        // Writing to a string does not fail.
        let _always_written = match self {
            Naming::Numbered => write!(path, "file.mdtest.{worker}.{number}"),
            Naming::Renamed => write!(path, "renamed.mdtest.{worker}.{number}"),
            Naming::NumberFirst => {
                let written = write!(path, "{number:07}");
                letters(path, random);
                written
            }
            Naming::LettersFirst => {
                letters(path, random);
                write!(path, "{number:07}")
            }
        };
    }
}

fn letters(path: &mut String, random: u64) {
    let mut rest = random / (LETTERS_MAX + 1);
    for _ in 0..random % (LETTERS_MAX + 1) {
        // 26 to the 12th is less than 2 to the 57th: the letters last.
        path.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_branches_on_every_level() {
        let shape = Shape { depth: 2, branching: 3, files: 0 };
        assert_eq!(shape.directories(), Some(13));
        let paths = shape.paths(Path::new("r"));
        assert_eq!(paths.len(), 13);
        let below = |at: usize| paths.iter().filter(|p| p.parent() == Some(&paths[at])).count();
        assert_eq!((below(0), below(1), below(3), below(4)), (3, 3, 3, 0));
        assert_eq!(Shape { depth: 0, ..shape }.directories(), Some(1));
        assert_eq!(Shape { depth: 60, ..shape }.directories(), None);
        assert_eq!(Shape { depth: 3, branching: 1, files: 0 }.directories(), Some(4));
        assert_eq!(Shape { depth: 3, branching: 0, files: 0 }.directories(), Some(1));
    }

    #[test]
    fn names_differ_and_have_their_form() {
        let mut all = std::collections::BTreeSet::new();
        let kinds = [Naming::Numbered, Naming::Renamed, Naming::NumberFirst, Naming::LettersFirst];
        for naming in kinds {
            for number in 0..500 {
                let mut name = String::new();
                naming.put(&mut name, 1, 2, number);
                let digits = format!("{number:07}");
                let has_form = match naming {
                    Naming::NumberFirst => name.starts_with(&digits),
                    Naming::LettersFirst => name.ends_with(&digits),
                    _ => name.ends_with(&format!(".2.{number}")),
                };
                assert!(has_form, "{name}");
                all.insert((naming as u8, name));
            }
        }
        assert_eq!(all.len(), 2000);
    }
}
