//! A volume of a cluster in this process, mounted until it is unmounted: for suites and experiments.
//!
//! `cargo run -p strake-tests --example local_mount -- MOUNTPOINT [-o OPTIONS]`

use std::path::PathBuf;
use strake_client::VolumeOptions;
use strake_engine::kv::memory::MemoryKv;
use strake_fuse::MountOptions;
use strake_tests::local::{LocalCluster, Names};

fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args().skip(1);
    let mountpoint =
        PathBuf::from(args.next().expect("usage: local_mount MOUNTPOINT [-o OPTIONS]"));
    let mut options = MountOptions::default();
    if args.next().as_deref() == Some("-o") {
        options.apply(&args.next().unwrap_or_default()).unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), 1 << 20).await;
        let volume = VolumeOptions {
            exclusive: options.writeback,
            remember: false,
            ..VolumeOptions::default()
        };
        let volume = cluster.volume(volume).await;
        let handle = tokio::runtime::Handle::current();
        let mount =
            strake_fuse::mount(volume.clone(), &mountpoint, &options, handle).await.unwrap();
        println!("mounted at {}", mount.mountpoint().display());
        mount.wait().await.unwrap();
        volume.close().await.unwrap();
    });
}
