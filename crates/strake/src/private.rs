//! Directories that hold everybody's files and the cluster's key: only their owner looks in.

use crate::failure::{Context, Failure, Outcome};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Makes a directory, and those above it, if it is missing. One that is there keeps its mode: it is
/// the administrator's.
pub fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// What `--data` names, by its whole path: that says the same to others and at the next start, and stands in `node.json`, which
/// is text.
pub fn data_directory(path: &Path) -> Outcome<PathBuf> {
    let shown = || format!("data directory {}", path.display());
    let whole = std::path::absolute(path).context(shown)?;
    match whole.to_str().is_some() {
        true => Ok(whole),
        false => Err(Failure::usage(format!("{}: its path is no UTF-8", shown()))
            .next("choose another --data")),
    }
}

/// As [`make_directory`], of what `--data` names: what is in the way is told as people say it.
pub fn make_data_directory(path: &Path) -> Outcome {
    let refused = |error: io::Error| {
        let elsewhere = "choose another --data";
        let (cause, next) = match error.kind() {
            ErrorKind::AlreadyExists => ("it is there and is no directory".into(), elsewhere),
            ErrorKind::NotADirectory => ("what it is to be in is no directory".into(), elsewhere),
            // As in /proc: those above it are there by now.
            ErrorKind::NotFound => ("no directory can be made there".into(), elsewhere),
            _ => (error.to_string(), "choose another --data, or make its parent writable"),
        };
        Failure::new(format!("data directory {}: {cause}", path.display())).next(next)
    };
    make_directory(path).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
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

    /// A server began a cluster, and ended when it wrote down where its targets are.
    #[test]
    fn a_data_directory_whose_path_is_no_text_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"/srv/lat\xe9n"));
        let failure = data_directory(path).unwrap_err();
        assert!(failure.cause.contains("no UTF-8") && failure.next.is_some(), "{failure}");
        assert!(data_directory(Path::new("d")).unwrap().is_absolute());
    }

    /// It was "File exists" and "make its parent writable", of a file, and "No such file or directory" in /proc.
    #[test]
    fn what_is_in_the_way_of_a_data_directory_is_told_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for (path, words) in [
            (file.clone(), "it is there and is no directory"),
            (file.join("below"), "what it is to be in is no directory"),
            ("/proc/x".into(), "no directory can be made there"),
        ] {
            let failure = make_data_directory(&path).unwrap_err();
            assert!(failure.cause.contains(words) && failure.next.is_some(), "{failure}");
            assert!(!failure.to_string().contains("writable"), "{failure}");
        }
        make_data_directory(&directory.path().join("a/b")).unwrap();
    }
}
