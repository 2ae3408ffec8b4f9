//! Mount points: cleaning up after a process that died, and which mounts there are.

use crate::failure::{Context, Outcome};
use crate::made::Made;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use strake_base::mount_table::{self, Mount};
use strake_fuse::Unmount;
use strake_types::FILE_SYSTEM_TYPE;

/// Mounts of ours that this process can see, in the order of mounting.
pub fn ours() -> Vec<Mount> {
    let mut mounts = mount_table::read().unwrap_or_default();
    mounts.retain(|mount| mount.kind == FILE_SYSTEM_TYPE);
    mounts
}

/// True if nobody answers at this mount any more: its process has died.
pub fn is_dead(path: &Path) -> bool {
    std::fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotConnected)
}

/// An absolute path, resolved up to its last part only: asking a dead mount would fail.
pub fn absolute(path: &Path) -> Outcome<PathBuf> {
    let shown = || path.display().to_string();
    let full = std::path::absolute(path).context(shown)?;
    match (full.parent().map(Path::canonicalize), full.file_name()) {
        (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
        _ => Ok(full),
    }
}

/// Takes away what dead processes left mounted here.
pub fn clear(path: &Path) -> Outcome {
    let full = absolute(path)?;
    while is_dead(&full) {
        tracing::info!("taking away a dead mount at {}", full.display());
        strake_fuse::unmount(&full, Unmount::Lazy)?;
    }
    Ok(())
}

/// Takes away what dead processes left mounted here, makes the directory if it is missing and `made` is there to
/// know of it, and makes sure that it can be mounted on. The path without links and dots.
pub fn prepare(path: &Path, made: Option<&mut Made>, nonempty: bool) -> Outcome<PathBuf> {
    clear(path)?;
    let full = absolute(path)?;
    if let Some(made) = made.filter(|_| !full.exists()) {
        made.expect(&full);
        std::fs::create_dir_all(&full).context(|| format!("mount point {}", full.display()))?;
    }
    Ok(strake_fuse::mount::check(&full, nonempty)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_something_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/new");
        let mut made = Made::default();
        prepare(dir.path(), None, false).unwrap();
        prepare(&new, Some(&mut made), false).unwrap();
        assert!(new.is_dir());
        assert!(prepare(dir.path(), None, false).unwrap_err().cause.contains("not empty"));
        prepare(dir.path(), None, true).unwrap();
        assert!(prepare(&dir.path().join("none"), None, false).is_err());
        drop(made);
        prepare(dir.path(), None, false).unwrap();
    }
}
