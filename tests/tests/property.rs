//! Random sequences against the reference model.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use strake_tests::property::directory::Directory;
use strake_tests::property::{Scope, check};

/// The model itself, held against a file system that everyone trusts: the one under the temporary
/// directory. What the model gets wrong would be "mended" in Strake otherwise.
#[test]
fn the_model_agrees_with_the_local_file_system() {
    let base = tempfile::tempdir().unwrap();
    std::fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
    let mut nth = 0;
    check(Scope { users: true, remounts: true, restarts: false }, || {
        nth += 1;
        let root = base.path().join(nth.to_string());
        std::fs::create_dir(&root).unwrap();
        Directory::new(&root)
    });
}
