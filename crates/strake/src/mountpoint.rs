//! Mount points: cleaning up after a process that died, and which mounts there are.

use crate::failure::{Context, Outcome};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use strake_fuse::Unmount;

/// The type of our mounts in the kernel's table.
const TYPE: &str = "fuse.strake";

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: PathBuf,
    /// What is mounted.
    pub source: String,
}

/// Mounts of ours that this process can see, in the order of mounting.
pub fn ours() -> Vec<Mount> {
    let table = std::fs::read("/proc/self/mounts").unwrap_or_default();
    String::from_utf8_lossy(&table).lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let (source, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let plain =
        |text: &str| text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
    (kind == TYPE).then(|| Mount { path: plain(path).into(), source: plain(source) })
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

/// Takes away what a dead process left mounted here, makes the directory if `create`, and makes sure
/// that it can be mounted on. The path without links and dots, and whether it was made.
pub fn prepare(path: &Path, create: bool, nonempty: bool) -> Outcome<(PathBuf, bool)> {
    let mut full = absolute(path)?;
    while is_dead(&full) {
        tracing::info!("taking away a dead mount at {}", full.display());
        strake_fuse::unmount(&full, Unmount::Lazy)?;
    }
    let made = create && !full.exists();
    if made {
        std::fs::create_dir_all(&full).context(|| format!("mount point {}", full.display()))?;
    }
    full = strake_fuse::mount::check(&full, nonempty)?;
    Ok((full, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_mounts_are_listed() {
        let ours = parse("main /mnt/a\\040b fuse.strake rw,user_id=0 0 0").unwrap();
        assert_eq!(ours, Mount { path: "/mnt/a b".into(), source: "main".into() });
        assert_eq!(parse("tmpfs /tmp tmpfs rw 0 0"), None);
    }

    #[test]
    fn a_mount_point_with_something_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!prepare(dir.path(), false, false).unwrap().1);
        assert!(prepare(&dir.path().join("new"), true, false).unwrap().1);
        assert!(prepare(dir.path(), false, false).unwrap_err().cause.contains("not empty"));
        prepare(dir.path(), false, true).unwrap();
        assert!(prepare(&dir.path().join("none"), false, false).is_err());
    }
}
