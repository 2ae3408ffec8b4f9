//! Random sequences against the reference model.

use std::cell::RefCell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use strake_engine::kv::memory::MemoryKv;
use strake_model::{Op, Outcome};
use strake_tests::cluster::{Servers, Up};
use strake_tests::local::Names;
use strake_tests::owners::Cluster;
use strake_tests::property::client::Client;
use strake_tests::property::directory::Directory;
use strake_tests::property::{Scope, Subject, check};
use strake_types::Credentials;

/// Shares of a volume that has several.
const SHARES: u32 = 5;

/// The model itself, held against a file system that everyone trusts: the one under the temporary
/// directory. What the model gets wrong would be "mended" in Strake otherwise.
#[test]
fn the_model_agrees_with_the_local_file_system() {
    let base = tempfile::tempdir().unwrap();
    std::fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
    let mut nth = 0;
    check(Scope { users: true, restarts: false }, || {
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
    check_client(Scope { users: true, restarts: true }, Names::Memory, false);
}

/// The same with mutations that the server remembers, as over a network.
#[test]
fn the_client_with_remembered_mutations_agrees_with_the_model() {
    check_client(Scope { users: false, restarts: true }, Names::Memory, true);
}

/// The same where nearly every directory is in another share than its parent.
#[test]
fn the_client_of_several_shares_agrees_with_the_model() {
    let shares = |kv| Names::Shares(kv, SHARES);
    check_client(Scope { users: true, restarts: true }, shares, true);
}

fn check_client(scope: Scope, names: impl Fn(MemoryKv) -> Names, remembers: bool) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = Arc::new(runtime.enable_all().worker_threads(2).build().unwrap());
    check(scope, || Client::new(&runtime, names(MemoryKv::new()), remembers));
}

/// A new directory of a mount for each sequence, as a subject.
fn on_a_mount(mount: &Path) -> impl FnMut() -> Directory {
    let mut nth = 0;
    move || {
        nth += 1;
        let root = mount.join(nth.to_string());
        std::fs::create_dir(&root).unwrap();
        Directory::new(&root)
    }
}

/// The real mount, through the kernel, by the system calls that applications make.
#[test]
fn the_mount_agrees_with_the_model() {
    let up = Up::start(&[]);
    check(Scope { users: true, restarts: false }, on_a_mount(&up.mount()));
}

/// The kernel holds back data, lengths and times for itself.
#[test]
fn the_mount_with_writeback_agrees_with_the_model() {
    let up = Up::start(&["--writeback"]);
    check(Scope { users: true, restarts: false }, on_a_mount(&up.mount()));
}

/// A volume whose directories two metadata servers share.
#[test]
fn the_mount_of_several_shares_agrees_with_the_model() {
    let cluster = Cluster::of_shares(SHARES);
    let mount = cluster.mount("m");
    check(Scope { users: true, restarts: false }, on_a_mount(mount.path()));
}

/// A mount over TCP, whose server is killed and started again in between.
#[test]
fn a_mount_whose_server_is_killed_agrees_with_the_model() {
    let mut servers = Servers::start();
    let mount = servers.mount("m", "");
    check_restarting(mount.path(), || {
        servers.kill();
        servers.start_again();
    });
}

/// The two that share a volume are killed in turn.
#[test]
fn a_mount_of_several_shares_whose_servers_are_killed_agrees_with_the_model() {
    let mut cluster = Cluster::of_shares(SHARES);
    let mount = cluster.mount("m");
    let mut nth = 0;
    check_restarting(mount.path(), || {
        let mut next = cluster.metas[nth].next();
        cluster.metas[nth].process.kill();
        next.go();
        cluster.metas[nth].process = next;
        nth = 1 - nth;
    });
}

fn check_restarting(mount: &Path, restart: impl FnMut()) {
    let restart = RefCell::new(restart);
    let mut fresh = on_a_mount(mount);
    check(Scope { users: true, restarts: true }, || Restarting {
        directory: fresh(),
        restart: &restart,
    });
}

struct Restarting<'a, R> {
    directory: Directory,
    restart: &'a RefCell<R>,
}

impl<R: FnMut()> Subject for Restarting<'_, R> {
    fn apply(&mut self, cred: &Credentials, op: &Op) -> Outcome {
        self.directory.apply(cred, op)
    }

    fn restart(&mut self) {
        self.restart.borrow_mut()();
    }

    fn remount(&mut self) {
        self.directory.remount();
    }
}
