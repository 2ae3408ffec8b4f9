//! A cluster in this process with its volume mounted on a temporary directory.

use crate::local::{LocalCluster, Names};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strake_client::{Volume, VolumeOptions};
use strake_engine::kv::memory::MemoryKv;
use strake_fuse::{MountHandle, MountOptions, Unmount};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Small, so that small files already have several chunks.
const CHUNK_BYTES: u64 = 64 << 10;

/// A mounted volume. Unmounted and stopped when dropped.
pub struct Mounted {
    runtime: Runtime,
    directory: TempDir,
    cluster: LocalCluster,
    mounts: Vec<(Arc<Volume>, MountHandle)>,
}

impl Mounted {
    /// A new cluster with its volume mounted once. Needs root and `/dev/fuse`.
    pub fn new() -> Self {
        Self::on(Names::Memory(MemoryKv::new()))
    }

    /// The same, with the names in a store that the test knows.
    pub fn on(names: Names) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(2)
            .build()
            .expect("a runtime starts");
        let cluster = runtime.block_on(LocalCluster::start(names, CHUNK_BYTES));
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let mut mounted = Self { runtime, directory, cluster, mounts: Vec::new() };
        mounted.mount(&MountOptions::default());
        mounted
    }

    /// Mounts the volume once more, by a client of its own. Where it is.
    pub fn mount(&mut self, options: &MountOptions) -> PathBuf {
        let path = self.directory.path().join(self.mounts.len().to_string());
        std::fs::create_dir(&path).expect("the name is free");
        let volume_options = VolumeOptions {
            exclusive: options.writeback,
            remember: false,
            leases: true,
            behind: true,
            ..VolumeOptions::default()
        };
        let handle = self.runtime.handle().clone();
        let mounted = self.runtime.block_on(async {
            let volume = self.cluster.volume(volume_options).await;
            let mount = strake_fuse::mount(Arc::clone(&volume), &path, options, handle).await;
            (volume, mount.expect("the volume can be mounted"))
        });
        self.mounts.push(mounted);
        path
    }

    /// The volume by a client of its own, without a mount.
    pub async fn volume(&self, options: VolumeOptions) -> Arc<Volume> {
        self.cluster.volume(options).await
    }

    /// Does something on the threads of the cluster.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The root of the first mount.
    pub fn root(&self) -> &Path {
        self.mounts[0].1.mountpoint()
    }

    /// A path in the first mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }
}

impl Default for Mounted {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for (volume, mount) in self.mounts.drain(..) {
            self.runtime.block_on(async {
                let idle = mount.unmount(Unmount::WhenIdle).await;
                if idle.is_err() {
                    // The test failed with files open; nothing may stay behind.
                    let _best_effort = mount.unmount(Unmount::Lazy).await;
                }
                let _best_effort = volume.close().await;
            });
        }
    }
}
