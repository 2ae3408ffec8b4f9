//! Storage servers whose hosts lose power, and what clients are told of it. Everything is in this
//! process; the disks of the targets are simulated, and nothing is synced unless somebody asks.

use std::fs;
use std::sync::Arc;
use std::time::Duration;
use strake_client::{OpenFile, OpenFlags, Volume, VolumeOptions};
use strake_engine::kv::memory::MemoryKv;
use strake_fuse::{MountOptions, Unmount};
use strake_native::{Clients, CopyOptions, Location, copy};
use strake_tests::local::{LocalCluster, Names, bytes};
use strake_types::limits::CHUNK_BYTES_MIN;
use strake_types::{Credentials, ErrorKind, Ino, Result, SetAttr};
use tokio::runtime::Handle;

/// Chaos of disks.
const SEEDS: u64 = 6;
/// Several chunks, on all targets.
const LEN: u64 = 5 * CHUNK_BYTES_MIN + 777;

async fn cluster(seed: u64) -> (LocalCluster, Arc<Volume>) {
    let names = Names::Memory(MemoryKv::new());
    let cluster = LocalCluster::start_simulated(names, CHUNK_BYTES_MIN, seed).await;
    let volume = cluster.volume(VolumeOptions::default()).await;
    (cluster, volume)
}

fn pattern(seed: u8, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at / 509) as u8 ^ at as u8 ^ seed).collect()
}

async fn create(volume: &Arc<Volume>, name: &str) -> Arc<OpenFile> {
    let (cred, flags) = (Credentials::root(), OpenFlags::READ_WRITE);
    volume.create(&cred, Ino::ROOT, bytes(name), 0o644, 0, flags).await.unwrap().1
}

async fn open(volume: &Arc<Volume>, ino: Ino) -> Arc<OpenFile> {
    volume.open(&Credentials::root(), ino, OpenFlags::READ_WRITE).await.unwrap()
}

/// Writes all over a file; the targets have acknowledged it when this returns.
async fn write(volume: &Arc<Volume>, file: &Arc<OpenFile>, data: Vec<u8>) {
    volume.write(file, 0, bytes(data)).await.unwrap();
    volume.flush(file).await.unwrap();
}

/// What another client reads of a file.
async fn contents(cluster: &LocalCluster, ino: Ino) -> Vec<u8> {
    let volume = cluster.volume(VolumeOptions::default()).await;
    let file = volume.open(&Credentials::root(), ino, OpenFlags::READ).await.unwrap();
    let length = file.attr().length as u32;
    let data = volume.read(&file, 0, length).await.unwrap().into_bytes().to_vec();
    volume.release(&file).await.unwrap();
    data
}

fn assert_lost(result: Result<()>) {
    let error = result.expect_err("a loss was not told");
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("lost power"), "{error}");
}

/// The restarted server answered the sync, although what it was for was gone: `fsync` succeeded.
#[tokio::test]
async fn an_fsync_after_a_power_loss_of_the_target_fails_once() {
    let mut gone = 0;
    for seed in 0..SEEDS {
        let (mut cluster, volume) = cluster(seed).await;
        let file = create(&volume, "file").await;
        let other = open(&volume, file.ino()).await;
        write(&volume, &file, pattern(1, LEN)).await;
        cluster.lose_power().await;
        gone += usize::from(contents(&cluster, file.ino()).await != pattern(1, LEN));
        assert_lost(volume.fsync(&file, false).await);
        volume.fsync(&file, false).await.unwrap();
        assert_lost(volume.fsync(&other, false).await);
        // Written again, it is there.
        write(&volume, &file, pattern(2, LEN)).await;
        volume.fsync(&file, false).await.unwrap();
        cluster.lose_power().await;
        assert_eq!(contents(&cluster, file.ino()).await, pattern(2, LEN), "seed {seed}");
        volume.fsync(&file, false).await.unwrap();
    }
    assert!(gone > 0, "the disks lost nothing");
}

#[tokio::test]
async fn an_fsync_after_a_kill_or_an_orderly_restart_of_the_host_succeeds() {
    for seed in 0..SEEDS {
        let (mut cluster, volume) = cluster(seed).await;
        let file = create(&volume, "file").await;
        write(&volume, &file, pattern(1, LEN)).await;
        cluster.kill_storage().await;
        volume.fsync(&file, false).await.unwrap();
        write(&volume, &file, pattern(2, LEN)).await;
        cluster.restart_host().await;
        volume.fsync(&file, false).await.unwrap();
        cluster.lose_power().await;
        assert_eq!(contents(&cluster, file.ino()).await, pattern(2, LEN), "seed {seed}");
    }
}

/// The second write is durable, and the sync comes from the boot that has it.
#[tokio::test]
async fn a_write_before_the_power_loss_is_missed_although_one_after_it_is_synced() {
    for seed in 0..SEEDS {
        let (mut cluster, volume) = cluster(seed).await;
        let file = create(&volume, "file").await;
        write(&volume, &file, pattern(1, LEN)).await;
        cluster.lose_power().await;
        // Within the first chunk, so that one target is written to again and no other.
        volume.write(&file, 0, bytes(pattern(2, 5_000))).await.unwrap();
        assert_lost(volume.fsync(&file, false).await);
        volume.fsync(&file, false).await.unwrap();
    }
}

#[tokio::test]
async fn a_syncfs_and_an_fsync_of_a_closed_file_miss_what_the_power_took() {
    for seed in 0..SEEDS {
        let (mut cluster, volume) = cluster(seed).await;
        let file = create(&volume, "file").await;
        write(&volume, &file, pattern(1, LEN)).await;
        volume.release(&file).await.unwrap();
        cluster.lose_power().await;
        assert_lost(volume.sync_all().await);
        volume.sync_all().await.unwrap();
        let again = open(&volume, file.ino()).await;
        assert_lost(volume.fsync(&again, false).await);
        volume.fsync(&again, false).await.unwrap();
    }
}

/// Contents had been synced inside the inode; they moved to a target when the file grew, and went with its
/// power.
#[tokio::test]
async fn what_was_synced_inside_the_inode_survives_its_move_to_chunks() {
    for seed in 0..SEEDS {
        let (mut cluster, volume) = cluster(seed).await;
        let file = create(&volume, "file").await;
        write(&volume, &file, pattern(1, 5_000)).await;
        volume.fsync(&file, false).await.unwrap();
        volume.write(&file, 3 * CHUNK_BYTES_MIN, bytes(pattern(2, 100))).await.unwrap();
        volume.flush(&file).await.unwrap();
        cluster.lose_power().await;
        let found = contents(&cluster, file.ino()).await;
        assert_eq!(&found[..5_000], &pattern(1, 5_000)[..], "seed {seed}");
    }
}

/// Nobody had the targets make the cut durable: what was cut off came back with their power, and showed
/// when the file grew again.
#[tokio::test]
async fn a_cut_that_was_synced_survives_a_power_loss() {
    for seed in 0..SEEDS {
        let (mut cluster, volume) = cluster(seed).await;
        let file = create(&volume, "file").await;
        write(&volume, &file, pattern(1, LEN)).await;
        volume.fsync(&file, false).await.unwrap();
        set_length(&volume, &file, 100).await;
        volume.fsync(&file, false).await.unwrap();
        cluster.lose_power().await;
        set_length(&volume, &file, LEN).await;
        let mut expected = pattern(1, 100);
        expected.resize(LEN as usize, 0);
        assert_eq!(contents(&cluster, file.ino()).await, expected, "seed {seed}");
    }
}

async fn set_length(volume: &Arc<Volume>, file: &Arc<OpenFile>, length: u64) {
    let change = SetAttr { length: Some(length), ..SetAttr::default() };
    volume.setattr(&Credentials::root(), file.ino(), change, Some(file)).await.unwrap();
}

async fn clients_of(volume: Arc<Volume>) -> Clients {
    let clients = Clients::new(VolumeOptions::default());
    clients.adopt(vec!["here:1".into()], volume).await;
    clients
}

/// The next copy found it there, by its length and the time of its source, and it was full of zeros.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_power_took_of_a_copy_is_named_and_copied_again() {
    let (mut cluster, volume) = cluster(1).await;
    let directory = tempfile::tempdir().unwrap();
    let (source, pipe) = (directory.path().join("source"), directory.path().join("pipe"));
    fs::write(&source, pattern(1, LEN)).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    // The last one is copied first, and the copy goes on until somebody writes to the pipe.
    let sources = [&pipe, &source].map(|path| Location::Local(path.clone()));
    let root = Location::parse("here:1:/main/").unwrap();
    let options = CopyOptions { streams: 1, ..CopyOptions::default() };
    let clients = clients_of(Arc::clone(&volume)).await;
    let power_goes = async {
        let modified = fs::metadata(&source).unwrap().modified().unwrap();
        let seconds = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let is_there = async || {
            let copy = volume.resolve(&Credentials::root(), b"/source").await;
            copy.is_ok_and(|copy| copy.length == LEN && copy.mtime.seconds == seconds.cast_signed())
        };
        while !is_there().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Its time may have been that of the write.
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.lose_power().await;
        tokio::task::spawn_blocking(move || fs::write(pipe, "x").unwrap()).await.unwrap();
    };
    let (copied, ()) = tokio::join!(copy(&clients, &sources, &root, &options, |_| {}), power_goes);
    let incomplete = copied.expect_err("a loss was not told");
    let mut told = [&incomplete.error].into_iter().chain(&incomplete.failures.first);
    assert!(told.any(|error| error.detail.contains("/source")), "{incomplete:?}");
    let clients = clients_of(cluster.volume(VolumeOptions::default()).await).await;
    let again = copy(&clients, &sources[1..], &root, &options, |_| {}).await.unwrap();
    assert_eq!((again.bytes, again.bytes_kept), (LEN, 0));
    let there = volume.resolve(&Credentials::root(), b"/source").await.unwrap();
    assert_eq!(contents(&cluster, there.ino).await, pattern(1, LEN));
}

/// Each file, and each directory in which its name might be found, was waited for one after the other: for hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_that_is_cut_off_from_its_cluster_does_not_ask_for_each_of_its_files() {
    const FILES: usize = 40;
    let (cluster, _) = cluster(1).await;
    let hasty = VolumeOptions { operation_wait_ms: 2_000, ..VolumeOptions::default() };
    let clients = clients_of(cluster.volume(hasty).await).await;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();
    let mut sources = vec![Location::Local(at("pipe"))];
    for n in 0..FILES {
        let source = at(&n.to_string());
        fs::write(&source, pattern(1, LEN)).unwrap();
        sources.push(Location::Local(source));
    }
    let root = Location::parse("here:1:/main/").unwrap();
    let options = CopyOptions { streams: 1, ..CopyOptions::default() };
    let pipe = at("pipe");
    let cut_off = async {
        // It is read last, when all the others are closed: it opens when its turn has come.
        let opening = move || fs::File::options().write(true).open(pipe).unwrap();
        let _ends = tokio::task::spawn_blocking(opening).await.unwrap();
        cluster.stop();
    };
    let (copied, ()) = tokio::join!(copy(&clients, &sources, &root, &options, |_| {}), cut_off);
    let incomplete = copied.expect_err("it was cut off");
    let all = [&incomplete.error].into_iter().chain(&incomplete.failures.first);
    let counted = all.filter(|error| error.detail.contains("--no-resume")).count();
    assert_eq!(counted, 1, "{incomplete:?}");
    assert!(incomplete.failures.count() < 3, "{incomplete:?}");
}

/// Nobody looked: the file got its name and its time, and had nothing in it. (In this program nobody starts processes: one that is about
/// to be another program closes the descriptors that it has with us, and is told instead.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_file_system_refuses_when_a_copy_is_closed_is_a_failure() {
    let cluster = LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await;
    let hasty = VolumeOptions { operation_wait_ms: 200, ..VolumeOptions::default() };
    let volume = cluster.volume(hasty.clone()).await;
    let directory = tempfile::tempdir().unwrap();
    let (source, path) = (directory.path().join("source"), directory.path().join("mount"));
    fs::write(&source, vec![1; 100_000]).unwrap();
    fs::create_dir(&path).unwrap();
    let (how, runtime) = (MountOptions::default(), Handle::current());
    let mount = strake_fuse::mount(volume, &path, &how, runtime).await.unwrap();
    cluster.stop_storage();
    // Neither syncs it nor sets its time.
    let plain = CopyOptions { resume: false, ..CopyOptions::default() };
    let (clients, from, to) =
        (Clients::new(hasty), [Location::Local(source)], Location::Local(path.join("f")));
    let closed = copy(&clients, &from, &to, &plain, |_| {}).await;
    let _nothing_can_be_sent = mount.unmount(Unmount::Lazy).await;
    assert!(closed.unwrap_err().error.to_string().contains("mount/f"));
}
