//! Where a run works: the directories it compares, and its own directory in each of them.

mod leftovers;
pub mod named;
mod room;
mod workspace;

pub use leftovers::sweep;
pub use room::has_room;
pub use workspace::Workspace;

use crate::error::{Error, Result};
use crate::result::Side;
use std::path::Path;
use strake_base::mount_table::{self, Mount};

/// Most directories compared in one run.
const SIDES_MAX: usize = 16;

/// Reads what `--on [NAME=]DIR` says, any number of times; the current directory where it is not
/// said. The directories must be there, and their names must differ.
pub fn sides(on: &[String]) -> Result<Vec<Side>> {
    let here = [".".to_owned()];
    let on = if on.is_empty() { &here[..] } else { on };
    if on.len() > SIDES_MAX {
        return Err(Error::usage(format!("at most {SIDES_MAX} directories are compared at once")));
    }
    let sides = on.iter().map(|text| side(text)).collect::<Result<Vec<_>>>()?;
    for (at, side) in sides.iter().enumerate() {
        if sides[..at].iter().any(|other| other.name == side.name) {
            return Err(Error::usage(format!("two directories are named {:?}", side.name))
                .next("name them yourself: --on NAME=DIR"));
        }
    }
    Ok(sides)
}

fn side(text: &str) -> Result<Side> {
    let (name, directory) = match text.split_once('=') {
        Some((name, directory)) if !name.contains('/') => (Some(name), directory),
        _ => (None, text),
    };
    if name == Some("") || directory.is_empty() {
        return Err(Error::usage(format!("--on {text:?}: write DIR or NAME=DIR")));
    }
    let path = Path::new(directory).canonicalize();
    let path = path.map_err(|e| Error::io("measuring", Path::new(directory), &e))?;
    if !path.is_dir() {
        return Err(Error::failed(format!("measuring {directory}: it is not a directory"))
            .next("name a directory on the file system to be measured"));
    }
    let last = || path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Side {
        name: name.map_or_else(last, str::to_owned),
        file_system: file_system(&path),
        directory: path.display().to_string(),
    })
}

/// The kernel's name of the file system at a path: "ext4", "fuse.strake".
fn file_system(path: &Path) -> String {
    let mounts = mount_table::read().unwrap_or_default();
    kind_of(&mounts, path).unwrap_or_else(|| "unknown".into())
}

/// Of the mounts whose point is above a path, the last of the deepest ones is seen there.
fn kind_of(mounts: &[Mount], path: &Path) -> Option<String> {
    let seen = mounts.iter().filter(|mount| path.starts_with(&mount.path));
    seen.max_by_key(|mount| mount.path.components().count()).map(|mount| mount.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_above_a_path_counts_and_of_two_there_the_last() {
        // One point is no UTF-8: with it nothing was known of any.
        let mounts = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
             5 1 0:5 / /\xff rw - xfs /dev/b rw\n\
             2 1 0:2 / /mnt rw shared:1 - tmpfs none rw\n\
             3 1 0:3 / /mnt/a\\040b rw - fuse.strake strake rw\n\
             4 1 0:4 / /mnt rw - nfs4 host:/ rw\n";
        let kind = |path: &str| kind_of(&mount_table::parse(mounts), Path::new(path)).unwrap();
        assert_eq!(kind("/usr/x"), "ext4");
        assert_eq!(kind("/mnt/x"), "nfs4");
        assert_eq!(kind("/mnt/a b/c"), "fuse.strake");
        assert_eq!(kind("/mntx"), "ext4");
    }

    #[test]
    fn sides_have_the_names_they_are_given_or_their_directories() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x=y");
        std::fs::create_dir(&path).unwrap();
        let path = path.display().to_string();
        let found = sides(&[path.clone(), format!("other={path}")]).unwrap();
        assert_eq!((found[0].name.as_str(), found[1].name.as_str()), ("x=y", "other"));
        assert_eq!(found[0].directory, found[1].directory);
        let two = sides(&[path.clone(), path.clone()]).unwrap_err();
        assert!(two.cause.contains("x=y") && two.next.is_some(), "{two}");
        for wrong in ["=/tmp", "a=", ""] {
            assert!(sides(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_and_a_missing_directory_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = sides(&[file.display().to_string()]).unwrap_err();
        assert!(error.cause.contains("not a directory"), "{error}");
        let missing = directory.path().join("missing").display().to_string();
        let error = sides(std::slice::from_ref(&missing)).unwrap_err();
        assert!(error.cause.contains(&missing), "{error}");
    }
}
