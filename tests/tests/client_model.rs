//! The client over servers in one process, with many tasks at once and servers that restart.
//!
//! Sequences of single operations are held against the reference model in `property.rs`; here each
//! task keeps its own model of the part of the file system that is its alone.

use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{NewFile, OpenFile, OpenFlags, RenameFlags, Volume, VolumeOptions};
use strake_engine::kv::memory::MemoryKv;
use strake_tests::local::{LocalCluster, Names, bytes};
use strake_types::limits::CHUNK_BYTES_MIN;
use strake_types::{Credentials, Ino, SetAttr};

/// Tasks at work at once.
const TASKS: u64 = 6;
/// Steps of each.
const STEPS: u64 = 150;
/// A shared file is divided into slots of this many bytes; slot n belongs to task n mod [`TASKS`].
const SLOT_BYTES: u64 = 5_000;

fn options(remember: bool) -> VolumeOptions {
    VolumeOptions { memory_bytes: 32 << 20, remember, ..VolumeOptions::default() }
}

async fn cluster() -> LocalCluster {
    LocalCluster::start(Names::Memory(MemoryKv::new()), CHUNK_BYTES_MIN).await
}

/// A volume of several shares.
async fn wide() -> LocalCluster {
    LocalCluster::start(Names::Shares(MemoryKv::new(), 5), CHUNK_BYTES_MIN).await
}

async fn create(volume: &Arc<Volume>, name: &str) -> Arc<OpenFile> {
    create_in(volume, Ino::ROOT, name).await
}

async fn create_in(volume: &Arc<Volume>, dir: Ino, name: &str) -> Arc<OpenFile> {
    let cred = Credentials::root();
    let flags = OpenFlags::READ_WRITE;
    volume.create(&cred, dir, bytes(name), 0o644, 0, flags).await.expect("a new name").1
}

async fn make_directory(volume: &Arc<Volume>, name: String) -> Ino {
    let (cred, new) = (Credentials::root(), NewFile::directory(0o755, 0));
    volume.make(&cred, Ino::ROOT, bytes(name), new).await.expect("a new name").ino
}

async fn open(volume: &Arc<Volume>, ino: Ino) -> Arc<OpenFile> {
    let cred = Credentials::root();
    volume.open(&cred, ino, OpenFlags::READ_WRITE).await.expect("it exists")
}

async fn read(volume: &Arc<Volume>, file: &Arc<OpenFile>, at: u64, len: u32) -> Vec<u8> {
    volume.read(file, at, len).await.expect("a read").into_bytes().to_vec()
}

/// A task with a file of its own: writes, reads, cuts, moves, closes and opens again.
async fn own_file(volume: Arc<Volume>, task: u64) {
    let mut random = SplitMix64::new(task + 1);
    let mut here = make_directory(&volume, format!("here {task}")).await;
    let mut there = make_directory(&volume, format!("there {task}")).await;
    let mut file = create_in(&volume, here, "own").await;
    let mut model: Vec<u8> = Vec::new();
    for step in 0..STEPS {
        let at = random.below(300_000);
        match random.below(11) {
            0 => {
                let change = SetAttr { length: Some(at), ..SetAttr::default() };
                let cred = Credentials::root();
                volume.setattr(&cred, file.ino(), change, Some(&file)).await.expect("a cut");
                model.resize(at as usize, 0);
            }
            1 => {
                let ino = file.ino();
                volume.release(&file).await.expect("a close");
                file = open(&volume, ino).await;
            }
            2 => volume.fsync(&file, false).await.expect("a sync"),
            10 => {
                let (cred, flags) = (Credentials::root(), RenameFlags::default());
                let moved = volume.rename(&cred, here, bytes("own"), there, bytes("own"), flags);
                assert_eq!(moved.await.expect("a move").0.ino, file.ino());
                (here, there) = (there, here);
            }
            3..6 => {
                let len = random.below(100_000) as u32 + 1;
                let seen = read(&volume, &file, at, len).await;
                let from = (at as usize).min(model.len());
                let to = (from + len as usize).min(model.len());
                assert!(seen == model[from..to], "task {task}, step {step}: bytes {at}+{len}");
            }
            _ => {
                let data = vec![random.below(255) as u8 + 1; random.below(80_000) as usize + 1];
                let end = at as usize + data.len();
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&data);
                volume.write(&file, at, bytes(data)).await.expect("a write");
            }
        }
        assert_eq!(
            volume.getattr(file.ino()).await.expect("attributes").length,
            model.len() as u64
        );
    }
    volume.release(&file).await.expect("a close");
    let file = open(&volume, file.ino()).await;
    assert!(read(&volume, &file, 0, 1 << 20).await == model, "task {task} at the end");
    volume.release(&file).await.expect("a close");
}

/// A task that writes to its slots of a file that all share, and reads them back.
async fn shared_file(volume: Arc<Volume>, ino: Ino, task: u64) -> Vec<(u64, u8)> {
    let mut random = SplitMix64::new(task + 100);
    let file = open(&volume, ino).await;
    let mut model = std::collections::BTreeMap::new();
    for step in 0..STEPS {
        let slot = random.below(100) * TASKS + task;
        let fill = random.below(255) as u8 + 1;
        let data = bytes(vec![fill; SLOT_BYTES as usize]);
        volume.write(&file, slot * SLOT_BYTES, data).await.expect("a write");
        model.insert(slot, fill);
        let nth = random.below(model.len() as u64) as usize;
        let (&slot, &fill) = model.iter().nth(nth).expect("one of those there are");
        let seen = read(&volume, &file, slot * SLOT_BYTES, SLOT_BYTES as u32).await;
        assert!(seen.len() as u64 == SLOT_BYTES && seen.iter().all(|&b| b == fill), "step {step}");
    }
    volume.release(&file).await.expect("a close");
    model.into_iter().collect()
}

async fn check_shared(volume: &Arc<Volume>, ino: Ino, expected: &[(u64, u8)]) {
    let file = open(volume, ino).await;
    for &(slot, fill) in expected {
        let seen = read(volume, &file, slot * SLOT_BYTES, SLOT_BYTES as u32).await;
        assert!(seen.len() as u64 == SLOT_BYTES && seen.iter().all(|&b| b == fill), "slot {slot}");
    }
    volume.release(&file).await.expect("a close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_tasks_on_one_mount() {
    check_many_tasks(cluster().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_tasks_on_a_volume_of_several_shares() {
    check_many_tasks(wide().await).await;
}

async fn check_many_tasks(cluster: LocalCluster) {
    let volume = cluster.volume(options(false)).await;
    let shared = create(&volume, "shared").await;
    let own = (0..TASKS).map(|task| tokio::spawn(own_file(volume.clone(), task)));
    let others =
        (0..TASKS).map(|task| tokio::spawn(shared_file(volume.clone(), shared.ino(), task)));
    let (own, others): (Vec<_>, Vec<_>) = (own.collect(), others.collect());
    for task in own {
        task.await.expect("a task that agrees with its model");
    }
    let mut expected = Vec::new();
    for task in others {
        expected.extend(task.await.expect("a task that agrees with its model"));
    }
    volume.release(&shared).await.expect("a close");
    let other = cluster.volume(options(false)).await;
    check_shared(&other, shared.ino(), &expected).await;
    volume.close().await.expect("an end in good order");
}

/// The servers go away and come back while files are being written: operations wait, then go on,
/// and everything that was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn servers_restart_under_a_mount() {
    check_restarts(cluster().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn servers_of_several_shares_restart_under_a_mount() {
    check_restarts(wide().await).await;
}

async fn check_restarts(mut cluster: LocalCluster) {
    let volume = cluster.volume(options(true)).await;
    let shared = create(&volume, "shared").await;
    let own = (0..TASKS).map(|task| tokio::spawn(own_file(volume.clone(), task)));
    let others =
        (0..TASKS).map(|task| tokio::spawn(shared_file(volume.clone(), shared.ino(), task)));
    let (own, others): (Vec<_>, Vec<_>) = (own.collect(), others.collect());
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cluster.restart().await;
    }
    for task in own {
        task.await.expect("a task that agrees with its model");
    }
    let mut expected = Vec::new();
    for task in others {
        expected.extend(task.await.expect("a task that agrees with its model"));
    }
    check_shared(&volume, shared.ino(), &expected).await;
    volume.release(&shared).await.expect("a close");
    volume.close().await.expect("an end in good order");
}

/// A file without a name lives as long as a handle, also when the servers restart: the client tells
/// them what it holds open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_without_a_name_outlives_a_restart() {
    let mut cluster = cluster().await;
    let volume = cluster.volume(options(true)).await;
    let file = create(&volume, "doomed").await;
    let data = vec![5; 200_000];
    volume.write(&file, 0, bytes(data.clone())).await.expect("a write");
    volume.flush(&file).await.expect("a flush");
    volume.unlink(&Credentials::root(), Ino::ROOT, bytes("doomed")).await.expect("an unlink");
    cluster.restart().await;
    assert!(read(&volume, &file, 0, 1 << 20).await == data);
    volume.write(&file, 100, bytes("still")).await.expect("a write");
    volume.fsync(&file, false).await.expect("a sync");
    assert_eq!(&read(&volume, &file, 100, 5).await, b"still");
    volume.release(&file).await.expect("a close");
    volume.close().await.expect("an end in good order");
}
