//! Directories that hold everybody's files and the cluster's key: only their owner looks in.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a directory, and those above it, if it is missing. One that is there keeps its mode: it is
/// the administrator's.
pub fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_made_is_the_owners_alone_and_what_is_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("there");
        std::fs::create_dir(&there).unwrap();
        std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o750)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        make_directory(&there).unwrap();
        make_directory(&there.join("new")).unwrap();
        assert_eq!((mode(&there), mode(&there.join("new"))), (0o750, 0o700));
    }
}
