//! Files that the user has named: they lie in the measured directory itself, and not in one of the
//! run's own. A run makes them, so nobody else may have files of these names; and it removes them.

use super::has_room;
use crate::error::{Error, Result};
use crate::plan::{Cell, Plan, Room};
use crate::result::Side;
use crate::watch::Watch;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The paths in the measured directory that texts name: relative ones as they are, absolute ones
/// without the directory above them.
pub fn below(sides: &[Side], texts: &[String]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for text in texts {
        let path = Path::new(text);
        let name = match sides {
            _ if path.is_relative() => path,
            [only] => path.strip_prefix(&only.directory).map_err(|_| {
                let directory = &only.directory;
                Error::usage(format!("-F {text}: not below {directory}, which is measured"))
                    .next("name a directory above all files with --on DIR")
            })?,
            _ => {
                return Err(Error::usage(format!("-F {text}: one file, and several directories"))
                    .next("name files by their paths below each --on"));
            }
        };
        let mut parts = name.components();
        if name.as_os_str().is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::usage(format!("-F {text:?} names no file below a directory")));
        }
        let name = name.display().to_string();
        if names.contains(&name) {
            return Err(Error::usage(format!(
                "-F names {text} twice: each worker has its own file"
            )));
        }
        names.push(name);
    }
    Ok(names)
}

/// Says whether the files that the cells of a plan name can be made in a directory: nobody has files
/// of these names, and there is room wherever they lie.
pub fn can_be_made(plan: &Plan, measured: &Path, smaller: [&str; 2]) -> Result<()> {
    for cell in &plan.cells {
        for (place, needs) in needs(cell, measured)? {
            has_room(needs, &place, smaller)?;
        }
    }
    Ok(())
}

/// What a cell needs on each file system that it names files on, by a directory there.
fn needs(cell: &Cell, measured: &Path) -> Result<Vec<(PathBuf, Room)>> {
    let mut by_device: BTreeMap<u64, (PathBuf, Room)> = BTreeMap::new();
    for name in &cell.named {
        let path = measured.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            let shown = path.display();
            return Err(Error::failed(format!(
                "-F {shown} is there already: the run would overwrite it"
            ))
            .next("name another file; remove this one if a run has left it that was killed"));
        }
        let parent = path.parent().unwrap_or(measured);
        let about = fs::metadata(parent).map_err(|e| Error::io("making a file in", parent, &e))?;
        let (_, room) =
            by_device.entry(about.dev()).or_insert_with(|| (parent.to_owned(), Room::default()));
        room.bytes += cell.needs.bytes / cell.named.len() as u64;
        room.files += 1;
    }
    Ok(by_device.into_values().collect())
}

/// Removes the named files of a cell; each is a sign of life.
pub fn remove(cell: &Cell, measured: &Path, watch: &Watch) -> Result<()> {
    for name in &cell.named {
        watch.live();
        let path = measured.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("removing", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(name: &str) -> Side {
        Side { name: name.into(), directory: format!("/mnt/{name}"), file_system: String::new() }
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn names_lie_below_what_is_measured() {
        let one = [side("a")];
        assert_eq!(below(&one, &texts(&["x", "/mnt/a/d/y"])).unwrap(), ["x", "d/y"]);
        let two = [side("a"), side("b")];
        assert_eq!(below(&two, &texts(&["d/x"])).unwrap(), ["d/x"]);
        for wrong in ["", ".", "../x", "/mnt/a", "/mnt/b/x", "d/../../x"] {
            assert!(below(&one, &texts(&[wrong])).is_err(), "{wrong:?}");
        }
        assert!(below(&one, &texts(&["x", "/mnt/a/x"])).unwrap_err().cause.contains("twice"));
        assert!(below(&two, &texts(&["/mnt/a/x"])).is_err());
    }

    #[test]
    fn what_is_there_already_is_not_overwritten_and_what_is_not_there_need_not_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        fs::write(directory.path().join("d/precious"), "x").unwrap();
        let cell = |name: &str| Cell {
            named: vec![name.to_owned()],
            needs: Room { bytes: 10, files: 1 },
            ..Cell::default()
        };
        let needed = needs(&cell("d/new"), directory.path()).unwrap();
        assert_eq!(needed, [(directory.path().join("d"), Room { bytes: 10, files: 1 })]);
        let taken = needs(&cell("d/precious"), directory.path()).unwrap_err();
        assert!(taken.cause.contains("precious") && taken.next.is_some(), "{taken}");
        let missing = needs(&cell("missing/new"), directory.path()).unwrap_err();
        assert!(missing.cause.contains("missing"), "{missing}");
        remove(&cell("d/new"), directory.path(), &Watch::default()).unwrap();
        assert!(directory.path().join("d/precious").exists());
    }
}
