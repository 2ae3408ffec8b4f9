//! The generation of a target: the file `generation` in its directory, a decimal number.
//!
//! The manager gives a greater one with every join and remembers what it has heard of; a server that runs goes one further
//! each hour. A directory that comes with a smaller one is an old copy of a disk, or a snapshot, and lacks what was
//! acknowledged since.

use crate::failure::{Failure, Outcome};
use crate::replaced;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Name of the file.
const NAME: &str = "generation";

/// What is written in the directory of a target; 0: nothing yet.
pub fn read(target: &Path) -> Outcome<u64> {
    let path = target.join(NAME);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(unusable(&path, &error)),
    };
    text.trim().parse().map_err(|_| {
        Failure::new(format!("{} holds no number", path.display())).next(
            "give the target's directory as it was; if it is as it was, remove the file and start with --old-disks",
        )
    })
}

/// Writes it, so that after a loss of power either the old or the new one is there. False if the disk has no room:
/// a server starts on a full disk, too.
pub fn write(target: &Path, generation: u64) -> Outcome<bool> {
    let path = target.join(NAME);
    match replaced::write(&path, &format!("{generation}\n")) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            tracing::warn!(
                "{}: {error}; an old copy of this disk may not be noticed",
                path.display()
            );
            Ok(false)
        }
        Err(error) => Err(unusable(&path, &error)),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
        .next("check its disk (dmesg, smartctl) and who may read it, and try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_as_it_was_written_and_nothing_else_is_taken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), 0);
        for generation in [1, 12] {
            assert!(write(dir.path(), generation).unwrap());
            assert_eq!(read(dir.path()).unwrap(), generation);
        }
        std::fs::write(dir.path().join(NAME), "x").unwrap();
        let said = read(dir.path()).unwrap_err().to_string();
        assert!(said.contains("generation holds no number"), "{said}");
    }
}
