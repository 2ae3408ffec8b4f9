//! Random sequences against the reference model.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use strake_engine::kv::memory::MemoryKv;
use strake_tests::local::Names;
use strake_tests::property::client::Client;
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

/// Client, metadata server and storage server joined by function calls, against the model, with
/// restarts of the servers and of the client in between.
#[test]
fn the_client_over_servers_in_one_process_agrees_with_the_model() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = Arc::new(runtime.enable_all().worker_threads(2).build().unwrap());
    let scope = Scope { users: true, remounts: true, restarts: true };
    check(scope, || Client::new(&runtime, Names::Memory(MemoryKv::new()), false));
}
