//! A file system that failed and was mounted anew while the machine ran on. What the kernel held for it and had not written is
//! gone, and no word of that could be stored there; the next process believed that nothing was lost.

use crate::chunk::{ChunkOptions, ChunkStore, Identity};
use crate::kv::{self, EngineKind, Kv, Outcome, Transaction};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use strake_base::disk::{Disk, RealDisk};
use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};

/// A file system of its own, on a disk that is a file, and what takes a word for an error of it.
struct Drive(tempfile::TempDir, PathBuf);

impl Drive {
    /// `None`: there can be none here.
    fn new() -> Option<Self> {
        let mut drive = Self(tempfile::tempdir().unwrap(), PathBuf::new());
        File::create(drive.image()).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(drive.path()).unwrap();
        let made = rustix::process::geteuid().is_root()
            && succeeds(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(drive.image()))
            && drive.mount();
        if let Some(breaker) = drive.breaker().filter(|_| made) {
            drive.1 = breaker;
        }
        let made = made && File::options().write(true).open(&drive.1).is_ok();
        if !made {
            eprintln!("skipped: only root makes file systems, and not everywhere");
        }
        made.then_some(drive)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("mounted")
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,errors=remount-ro"]);
        succeeds(mount.arg(self.image()).arg(self.path()))
    }

    /// What is written there is taken for an error of the file system.
    fn breaker(&self) -> Option<PathBuf> {
        let device = self.path().metadata().unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let device = link.file_name()?.to_str()?;
        // That of the host is left alone.
        let own = device.starts_with("loop");
        own.then(|| PathBuf::from("/sys/fs/ext4").join(device).join("trigger_fs_error"))
    }

    /// Writes nothing more from now on.
    fn fail(&self) {
        std::fs::write(&self.1, "1").unwrap();
    }

    fn mount_anew(&self) {
        let mut tries = 0;
        // A process that another test has just forked has our files open until it begins its own program.
        while let Err(error) = unmount(self.path(), UnmountFlags::empty()) {
            assert!(tries < 1000, "{error}");
            std::thread::sleep(Duration::from_millis(10));
            tries += 1;
        }
        assert!(self.mount());
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _gone = unmount(self.path(), UnmountFlags::DETACH);
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

const CHUNK: ChunkId = ChunkId { volume: VolumeId(1), ino: Ino(1), index: ChunkIndex(0) };

fn write(store: &ChunkStore, byte: u8) {
    let data = bytes::Bytes::from(vec![byte; 5000]);
    store.write(CHUNK, 0, &data, crc_fast::crc32_iscsi(&data)).unwrap();
}

#[test]
fn a_target_whose_file_system_failed_and_was_mounted_anew_speaks_from_another_boot() {
    let Some(drive) = Drive::new() else { return };
    let target = drive.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let disk = || -> Arc<dyn Disk> { Arc::new(RealDisk::new(&target).unwrap()) };
    let options = ChunkOptions {
        background: false,
        reserve_bytes: 1 << 20,
        log_bytes_max: 64 << 10,
        ..ChunkOptions::default()
    };
    let identity = Identity { cluster: "ab".repeat(16), uuid: "cd".repeat(16), target: 1 };
    ChunkStore::format(&disk(), &identity, &options).unwrap();
    let store = ChunkStore::open(disk(), options.clone()).unwrap();
    write(&store, 1);
    store.sync().unwrap();
    write(&store, 2);
    let before = store.boot();
    drive.fail();
    store.sync().unwrap_err();
    drop(store);
    drive.mount_anew();
    let store = ChunkStore::open(disk(), options).unwrap();
    assert_ne!(store.boot(), before);
    let (found, _) = store.read(CHUNK, 0, 5000).unwrap();
    assert!(found[..] == [1; 5000] || found[..] == [2; 5000]);
}

#[test]
fn a_metadata_store_whose_file_system_failed_and_was_mounted_anew_says_another_boot() {
    let Some(drive) = Drive::new() else { return };
    let path = drive.path().join("meta");
    let open = || kv::open(EngineKind::default(), &path).unwrap();
    let commit = |kv: &Arc<dyn Kv>| {
        run(async {
            let mut transaction = Transaction::begin(&**kv).await?;
            transaction.put(b"key".to_vec(), "value");
            transaction.commit(&**kv).await
        })
    };
    let kv = open();
    assert_eq!(commit(&kv).unwrap(), Outcome::Committed);
    run(kv.sync()).unwrap();
    let before = kv.boot();
    drive.fail();
    assert!(commit(&kv).is_err() || run(kv.sync()).is_err());
    drop(kv);
    drive.mount_anew();
    assert!(!path.join("failed").exists(), "no word of it could be stored");
    assert_ne!(open().boot(), before);
}
