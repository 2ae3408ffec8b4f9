//! The one directory in which a run makes its files.

use super::leftovers::{Owner, PREFIX};
use crate::error::{Error, Result};
use crate::watch::Watch;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use strake_base::random::SystemRandom;

/// How often an unused name is looked for.
const NAMES_TRIED: usize = 10;

/// A directory `.strake-bench-XXXXXXXX` below a measured one. It goes with everything in it when
/// this value does.
pub struct Workspace {
    path: PathBuf,
}

impl Workspace {
    /// Makes one.
    pub fn new(measured: &Path) -> Result<Self> {
        let made = make(measured).map_err(|e| Error::io("making a directory in", measured, &e))?;
        let workspace = Self { path: made };
        let owner = Owner::here().and_then(|owner| owner.write(&workspace.path));
        owner.map_err(|e| Error::io("writing in", measured, &e))?;
        Ok(workspace)
    }

    /// Where the directory of a cell is.
    pub fn place(&self, number: usize) -> PathBuf {
        self.path.join(format!("cell-{number}"))
    }

    /// Makes an empty directory for the files of one cell.
    pub fn cell(&self, number: usize) -> Result<PathBuf> {
        let path = self.place(number);
        fs::create_dir(&path).map_err(|e| Error::io("making", &path, &e))?;
        Ok(path)
    }

    /// Removes what a cell has left.
    pub fn clear(&self, cell: &Path, watch: &Watch) -> Result<()> {
        remove_all(cell, watch).map_err(|e| Error::io("removing", cell, &e))
    }

    /// Removes the directory; an error says what is left.
    pub fn remove(self, watch: &Watch) -> Result<()> {
        let removed = remove_all(&self.path, watch);
        removed.map_err(|e| Error::io("removing what the run made,", &self.path, &e))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // After `remove` there is nothing left. After a failure the error that is told already
        // matters more, and the next run finds what is left here.
        let _gone = fs::remove_dir_all(&self.path);
    }
}

/// Removes a directory with everything in it. That may take long, and is no standing still: each entry
/// is a sign of life.
fn remove_all(top: &Path, watch: &Watch) -> io::Result<()> {
    // Directories that are being emptied, each below the one before it.
    let mut open = vec![(top.to_owned(), fs::read_dir(top)?)];
    while let Some((_, entries)) = open.last_mut() {
        watch.live();
        let Some(entry) = entries.next() else {
            let emptied = open.pop().map(|(path, _closed)| path);
            emptied.map_or(Ok(()), fs::remove_dir)?;
            continue;
        };
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            let entries = fs::read_dir(&path)?;
            open.push((path, entries));
        } else if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
    }
    Ok(())
}

fn make(measured: &Path) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAMES_TRIED {
        let mut random = [0; 4];
        SystemRandom.fill(&mut random)?;
        let path = measured.join(format!("{PREFIX}{:08x}", u32::from_le_bytes(random)));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_goes_with_everything_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(directory.path()).unwrap();
        let cell = workspace.cell(3).unwrap();
        fs::create_dir(cell.join("d")).unwrap();
        fs::write(cell.join("d/f"), "x").unwrap();
        drop(workspace);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_workspace_that_has_vanished_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(directory.path()).unwrap();
        fs::remove_dir_all(&workspace.path).unwrap();
        let error = workspace.cell(0).unwrap_err();
        assert!(error.cause.contains(PREFIX) && error.next.is_some(), "{error}");
        assert!(workspace.remove(&Watch::default()).is_err());
    }

    /// A run that was to stop, and had more to remove than goes in 20 s, was left for standing still.
    #[test]
    fn what_is_removed_is_a_sign_of_life_and_what_links_lead_to_stays() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("precious"), "x").unwrap();
        let workspace = Workspace::new(directory.path()).unwrap();
        let filled = || {
            let cell = workspace.cell(0).unwrap();
            for name in 0..100 {
                fs::create_dir_all(cell.join(format!("d/{name}"))).unwrap();
                fs::write(cell.join(format!("d/{name}/f")), "x").unwrap();
            }
            std::os::unix::fs::symlink(other.path(), cell.join("link")).unwrap();
            cell
        };
        let (cell, watch) = (filled(), Watch::default());
        workspace.clear(&cell, &watch).unwrap();
        assert!(!cell.exists() && watch.pulse().1 >= 200);
        let (_, watch) = (filled(), Watch::default());
        workspace.remove(&watch).unwrap();
        assert!(watch.pulse().1 >= 200);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(other.path().join("precious").exists());
    }
}
