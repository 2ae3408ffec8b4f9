use super::*;
use crate::place::Directory;
use bytes::Bytes;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

fn job(options: CopyOptions) -> Arc<Job> {
    Job::new(options, Mounts::default(), false)
}

fn archive() -> CopyOptions {
    CopyOptions { recursive: true, preserve: true, archive: true, ..CopyOptions::default() }
}

/// What a listing has found, and is to become `to`.
async fn found(directory: &Path, from: &str, to: &str) -> Task {
    let directory = Directory::Local(directory.to_path_buf());
    let name = |name: &str| directory.name(Bytes::copy_from_slice(name.as_bytes()));
    let info = name(from).info().await.unwrap().unwrap();
    Task { from: name(from), info, to: name(to), named: false }
}

/// It was emptied before that was known, and one of several names was taken away.
#[tokio::test]
async fn a_source_that_cannot_be_opened_takes_nothing_away() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["plain", "one"] {
        fs::write(at(name), "old").unwrap();
    }
    symlink("plain", at("link")).unwrap();
    fs::hard_link(at("one"), at("other")).unwrap();
    for length in [10, 2 << 20, 17 << 20] {
        for to in ["plain", "link", "one"] {
            fs::File::create(at("source")).unwrap().set_len(length).unwrap();
            let task = found(directory.path(), "source", to).await;
            fs::remove_file(at("source")).unwrap();
            let error = job(archive()).copy_file(&task).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotFound, "{length} to {to}: {error}");
            for name in ["plain", "one", "other"] {
                assert_eq!(fs::read(at(name)).unwrap(), b"old", "{length} to {to}: {name}");
            }
            assert_eq!(fs::metadata(at("one")).unwrap().nlink(), 2, "{length} to {to}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "{length} to {to}");
        }
    }
}
