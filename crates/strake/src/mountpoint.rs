//! Mount points: cleaning up after a process that died, and which mounts there are.

use crate::failure::{Context, Outcome};
use crate::made::Made;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use strake_base::mount_table::unescape;
use strake_fuse::Unmount;
use strake_types::FILE_SYSTEM_TYPE;

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: PathBuf,
    /// What is mounted.
    pub source: String,
    /// The device on which everything in it lies, and nothing else does.
    pub device: u64,
}

/// Mounts of ours that this process can see, in the order of mounting.
pub fn ours() -> Vec<Mount> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let (device, _root, path) = (fields.next()?, fields.next()?, fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (fields.next()?, fields.next()?);
    let device = device_of(device).filter(|_| kind == FILE_SYSTEM_TYPE.as_bytes())?;
    Some(Mount {
        path: unescape(path).into(),
        source: unescape(source).to_string_lossy().into_owned(),
        device,
    })
}

/// A device as files tell of it, of how the table writes it: `0:52`.
fn device_of(field: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
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

/// Takes away what a dead process left mounted here, makes the directory if it is missing and `made` is there to
/// know of it, and makes sure that it can be mounted on. The path without links and dots.
pub fn prepare(path: &Path, made: Option<&mut Made>, nonempty: bool) -> Outcome<PathBuf> {
    let full = absolute(path)?;
    while is_dead(&full) {
        tracing::info!("taking away a dead mount at {}", full.display());
        strake_fuse::unmount(&full, Unmount::Lazy)?;
    }
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
    fn only_our_mounts_are_listed() {
        let mount = |path: &str, source: &str, device| {
            Some(Mount { path: path.into(), source: source.into(), device })
        };
        let ours = parse(b"31 1 0:52 / /mnt/a\\040b rw shared:7 - fuse.strake main rw,user_id=0");
        assert_eq!(ours, mount("/mnt/a b", "main", 52));
        assert_eq!(parse(b"32 1 0:53 / /tmp rw - tmpfs tmpfs rw"), None);
        // Behind a `#` no socket was found.
        let ours = parse(b"33 1 0:300 / /mnt rw - fuse.strake unix:/srv/a\\0431/s:/main rw");
        assert_eq!(ours, mount("/mnt", "unix:/srv/a#1/s:/main", rustix::fs::makedev(0, 300)));
    }

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
