//! Tests of the contents path over the fake cluster of [`crate::testing`].

use crate::file::Tell;
use crate::testing::{CHUNK, Fake, create, options, pattern, read, write};
use crate::*;
use bytes::Bytes;
pub(crate) use deferred::Still;
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Credentials, ErrorKind, Ino, Result, SetAttr, SetTime, Timestamp};
use tokio::sync::RwLockWriteGuard;
use tokio::task::JoinHandle;
use tokio::time::timeout;

mod closing;
mod deferred;
mod gone_back;
mod kept;
mod listings;
mod locks;
mod lost;
mod pages;
mod patience;
mod privileges;
mod rest;
mod shared;
mod synced;

async fn cluster() -> (Arc<Fake>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(options()).await;
    fake.take_log();
    (fake, volume)
}

/// As [`cluster`], where nothing is old and nobody has waited for long, however slow the machine is.
async fn timeless_cluster() -> (Arc<Fake>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { clock: Arc::new(Still), ..options() }).await;
    fake.take_log();
    (fake, volume)
}

fn starting(log: &[String], prefix: &str) -> Vec<String> {
    log.iter().filter(|line| line.starts_with(prefix)).cloned().collect()
}

fn length(length: u64) -> SetAttr {
    SetAttr { length: Some(length), ..SetAttr::default() }
}

async fn open(volume: &Arc<Volume>, ino: Ino, flags: OpenFlags) -> Arc<OpenFile> {
    volume.open(&Credentials::root(), ino, flags).await.unwrap()
}

async fn set_length(volume: &Arc<Volume>, file: &Arc<OpenFile>, to: u64) {
    let cred = Credentials::root();
    volume.setattr(&cred, file.ino(), length(to), Some(file)).await.unwrap();
}

/// Takes all the memory that writes could have; of the reserve nobody gets more.
fn fill_memory(volume: &Volume) -> Vec<crate::room::Room> {
    let memory = volume.memory();
    let take = |bytes| memory.try_dirty(bytes).or_else(|| memory.try_reserved(bytes, &[]));
    let sizes = (8..=20).rev().map(|bits| 1_usize << bits);
    sizes.flat_map(|bytes| std::iter::from_fn(move || take(bytes))).collect()
}

/// Every future of the API can be given to a runtime.
#[tokio::test]
async fn futures_can_be_spawned() {
    fn spawnable<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) {
        drop(future);
    }
    let (_, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let (v, f) = (volume.clone(), file.clone());
    spawnable(async move { v.read(&f, 0, 1).await });
    let (v, f) = (volume.clone(), file.clone());
    spawnable(async move { v.write(&f, 0, Bytes::new()).await });
    let (v, f) = (volume.clone(), file.clone());
    spawnable(async move { v.copy_range(&f, 0, &f, 0, 0).await });
    let (v, f) = (volume.clone(), file.clone());
    spawnable(async move { v.fallocate(&f, FallocateMode::Punch, 0, 1).await });
    let v = volume.clone();
    spawnable(async move {
        let cred = Credentials::root();
        v.open(&cred, Ino(2), OpenFlags::READ).await.map(drop)
    });
    let (v, f) = (volume.clone(), file.clone());
    spawnable(async move { v.setattr(&Credentials::root(), f.ino(), length(1), Some(&f)).await });
    spawnable(async move { volume.resolve(&Credentials::root(), b"/").await });
}

/// Create, write and close of a small file: one message to make it, one with its contents.
#[tokio::test]
async fn a_small_file_takes_two_messages() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "small").await;
    write(&volume, &file, 0, pattern(1, 4096)).await;
    volume.release(&file).await.unwrap();
    assert_eq!(fake.take_log(), ["create", "inline 0+4096 close=true sync=false"]);
    assert_eq!(fake.opens(file.ino()), 0);
}

/// Nothing but the network may make a call wait: a door answers it on the spot.
#[tokio::test]
async fn in_process_calls_are_ready_at_the_first_poll() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "a").now_or_never().unwrap();
    write(&volume, &file, 0, pattern(1, 100)).now_or_never().unwrap();
    assert_eq!(read(&volume, &file, 0, 200).now_or_never().unwrap(), pattern(1, 100));
    volume.flush(&file).now_or_never().unwrap().unwrap();
    volume.getattr(file.ino()).now_or_never().unwrap().unwrap();
    volume.release(&file).now_or_never().unwrap().unwrap();
}

#[tokio::test]
async fn a_growing_file_moves_out_and_keeps_its_bytes() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "grows").await;
    let whole = pattern(3, 300_000);
    for at in (0..whole.len()).step_by(5_000) {
        write(&volume, &file, at as u64, whole.slice(at..at + 5_000)).await;
    }
    assert_eq!(read(&volume, &file, 0, 400_000).await, whole, "unsent data is read");
    volume.flush(&file).await.unwrap();
    let log = fake.take_log();
    assert_eq!(starting(&log, "move out").len(), 1);
    let requests = starting(&log, "write").len();
    assert!(requests <= 5, "at most one request per chunk: {log:?}");
    assert_eq!(fake.server_length(file.ino()), 300_000);
    assert_eq!(read(&volume, &file, 0, 400_000).await, whole, "sent data is read");
}

/// A chunk that is full is sent without waiting for a flush; a large write goes as it is.
#[tokio::test]
async fn full_chunks_are_sent_at_once() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "large").await;
    write(&volume, &file, 0, pattern(1, 3 * CHUNK as usize)).await;
    while fake.take_log().iter().filter(|l| l.starts_with("write")).count() < 3 {
        tokio::task::yield_now().await;
    }
}

/// The later of two overlapping writes wins although the first is still under way.
#[tokio::test]
async fn overlapping_writes_are_sent_one_after_the_other() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "overlap").await;
    let (old, new) = (pattern(1, CHUNK as usize), pattern(2, CHUNK as usize));
    let gate = fake.gate.write().await;
    write(&volume, &file, 0, old).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    write(&volume, &file, 0, new.clone()).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let log = fake.take_log();
    assert_eq!(starting(&log, "write").len(), 1, "the second must wait: {log:?}");
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, new, "the newest is read");
    drop(gate);
    volume.flush(&file).await.unwrap();
    let log = fake.take_log();
    assert_eq!(starting(&log, "write").len(), 1);
    let other = open(&volume, file.ino(), OpenFlags::READ).await;
    assert_eq!(read(&volume, &other, 0, CHUNK as u32).await, new);
}

/// The background task tells the length while a longer write is under way; its targets acknowledge
/// that one before the metadata server answers. The time is told then, the new length is not.
#[tokio::test]
async fn a_length_that_grows_while_another_is_told_is_kept() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "grows").await;
    write(&volume, &file, 0, pattern(1, CHUNK as usize)).await;
    volume.flush(&file).await.unwrap();
    let (gate, publish_gate) = (fake.gate.write().await, fake.publish_gate.write().await);
    write(&volume, &file, CHUNK, pattern(2, CHUNK as usize)).await;
    {
        let told = volume.publish(&file.state, Tell::Lazily);
        futures::pin_mut!(told);
        assert!(futures::poll!(told.as_mut()).is_pending());
        drop(gate);
        while file.state.core().is_unsent() {
            tokio::task::yield_now().await;
        }
        drop(publish_gate);
        assert!(told.await.unwrap());
    }
    let attr = volume.getattr(file.ino()).await.unwrap();
    assert_eq!(attr.length, 2 * CHUNK);
    volume.flush(&file).await.unwrap();
    assert_eq!(fake.server_length(file.ino()), 2 * CHUNK);
}

/// A later write that ended before was taken for told with the earlier one. When another mount had cut the file in between,
/// nobody told where it ended, and what it had written was behind the file's end.
#[tokio::test]
async fn the_end_of_a_write_is_told_that_is_acknowledged_while_a_longer_one_is_told() {
    let (fake, one, file, two) = two_mounts(CHUNK as usize).await;
    let (cred, ino) = (Credentials::root(), file.ino());
    write(&one, &file, CHUNK, pattern(2, CHUNK as usize)).await;
    one.drain(&file.state).await;
    let gate = fake.published_gate.write().await;
    {
        let told = one.publish(&file.state, Tell::Lazily);
        futures::pin_mut!(told);
        while fake.server_length(ino) < 2 * CHUNK {
            assert!(futures::poll!(told.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        two.setattr(&cred, ino, length(0), None).await.unwrap();
        write(&one, &file, 0, pattern(3, 20_000)).await;
        one.drain(&file.state).await;
        drop(gate);
        assert!(told.await.unwrap());
    }
    one.flush(&file).await.unwrap();
    assert_eq!(fake.server_length(ino), 20_000);
}

/// Writers wait when too much is unsent, and go on as targets answer.
#[tokio::test]
async fn unsent_data_is_bounded() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "bounded").await;
    let gate = fake.gate.write().await;
    let writer = tokio::spawn({
        let (volume, file) = (volume.clone(), file.clone());
        async move {
            for i in 0..40u64 {
                write(&volume, &file, i << 20, pattern(i as u8, 1 << 20)).await;
            }
        }
    });
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    assert!(!writer.is_finished(), "40 MiB do not fit into half of 32 MiB");
    assert!(volume.memory().dirty_bytes() <= 16 << 20);
    drop(gate);
    writer.await.unwrap();
    volume.flush(&file).await.unwrap();
    assert_eq!(volume.memory().dirty_bytes(), 0, "all room is given back");
    for i in [0u64, 17, 39] {
        assert_eq!(read(&volume, &file, i << 20, 1 << 20).await, pattern(i as u8, 1 << 20));
    }
}

/// Sixteen bytes here and there counted as sixteen bytes, and took a quarter of a KiB each.
#[tokio::test]
async fn small_unsent_writes_count_with_what_notes_where_they_are() {
    let (_, volume) = timeless_cluster().await;
    let file = create(&volume, "random").await;
    set_length(&volume, &file, 200 * CHUNK).await;
    for i in 0..1_000 {
        write(&volume, &file, i * 100, pattern(i as u8, 16)).await;
    }
    let scattered = volume.memory().dirty_bytes();
    assert!(scattered >= 256_000, "{scattered}");
    for i in 0..1_000 {
        write(&volume, &file, 100 * CHUNK + i * 16, pattern(i as u8, 16)).await;
    }
    let gathered = volume.memory().dirty_bytes() - scattered;
    assert!((16_000..100_000).contains(&gathered), "{gathered}");
    volume.flush(&file).await.unwrap();
    assert_eq!(volume.memory().dirty_bytes(), 0);
}

/// It took no room at all: as many small files could be unsent as were open.
#[tokio::test]
async fn what_is_unsent_inside_inodes_counts_once() {
    let (_, volume) = timeless_cluster().await;
    let file = create(&volume, "small").await;
    for _ in 0..100 {
        write(&volume, &file, 0, pattern(1, 4_096)).await;
    }
    write(&volume, &file, 4_000, pattern(2, 1_000)).await;
    assert_eq!(volume.memory().dirty_bytes(), 5_000);
    volume.flush(&file).await.unwrap();
    assert_eq!(volume.memory().dirty_bytes(), 0);
    // It moves out unsent.
    write(&volume, &file, 0, pattern(3, 1_000)).await;
    write(&volume, &file, 2 * CHUNK, pattern(4, 1_000)).await;
    assert_eq!(volume.memory().dirty_bytes(), 2_000);
    volume.flush(&file).await.unwrap();
    assert_eq!(volume.memory().dirty_bytes(), 0);
}

/// Small files were told of each second only.
#[tokio::test(start_paused = true)]
async fn what_is_unsent_inside_inodes_is_told_as_soon_as_memory_is_short() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(crate::testing::Paused::default());
    let volume = fake.volume(VolumeOptions { clock, ..options() }).await;
    let (small, other) = (create(&volume, "small").await, create(&volume, "other").await);
    write(&volume, &small, 0, pattern(1, 4_000)).await;
    let _held = fill_memory(&volume);
    let written = volume.write(&other, 0, pattern(2, 1_000));
    timeout(Duration::from_millis(500), written).await.expect("it is told").unwrap();
}

/// Buffers of a megabyte stayed, each for the 64 KiB of it that a slow target had not acknowledged: with 16 targets 16 times
/// the bound.
#[tokio::test]
async fn what_is_unsent_of_a_write_to_many_targets_does_not_hold_all_of_it() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "striped").await;
    let gate = fake.gate.write().await;
    let (data, held) = crate::testing::buffer(1 << 20);
    write(&volume, &file, 0, data).await;
    assert_eq!(Arc::strong_count(&held), 1);
    drop(gate);
    volume.flush(&file).await.unwrap();
    assert_eq!(read(&volume, &file, 0, 1 << 20).await, pattern(7, 1 << 20));
}

#[tokio::test]
async fn small_unsent_data_gives_way_when_memory_is_short() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "scattered").await;
    // Never a full chunk: only the lack of room makes the client send.
    for i in 0..1_000u64 {
        write(&volume, &file, i * CHUNK, pattern(i as u8, 32 << 10)).await;
    }
    volume.flush(&file).await.unwrap();
    assert_eq!(read(&volume, &file, 500 * CHUNK, 16).await, pattern(500u64 as u8, 16));
}

/// Small writes all over a file travel together, and the targets take turns. Time stands still: on a busy machine what is old
/// is sent, and where answers are slow, parts are small.
#[tokio::test]
async fn small_writes_travel_together() {
    let (fake, volume) = timeless_cluster().await;
    let file = create(&volume, "random").await;
    set_length(&volume, &file, 200 * CHUNK).await;
    let place = |i: u64| (i * 7_919 % 2_000) * 6_000;
    for i in 0..2_000u64 {
        write(&volume, &file, place(i), pattern(i as u8, 4_096)).await;
    }
    fake.take_log();
    volume.flush(&file).await.unwrap();
    let requests = starting(&fake.take_log(), "write").len();
    assert!(requests < 40, "{requests} requests");
    for i in (0..2_000u64).step_by(97) {
        assert_eq!(read(&volume, &file, place(i), 4_096).await, pattern(i as u8, 4_096));
    }
}

#[tokio::test]
async fn truncation_takes_unsent_data_with_it() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    write(&volume, &file, 0, pattern(1, 200_000)).await;
    set_length(&volume, &file, 100_000).await;
    assert_eq!(volume.getattr(file.ino()).await.unwrap().length, 100_000);
    set_length(&volume, &file, 200_000).await;
    let contents = read(&volume, &file, 0, 300_000).await;
    assert_eq!(contents.len(), 200_000);
    assert_eq!(contents[..100_000], pattern(1, 200_000)[..100_000]);
    assert!(contents[100_000..].iter().all(|&b| b == 0), "what was cut must not come back");
    volume.flush(&file).await.unwrap();
    assert_eq!(
        fake.server_length(file.ino()),
        200_000,
        "a late publish must not change the length"
    );
}

/// A file that nobody has open, and an open of it that is to cut it and waits at the server for the gate.
async fn cut_by_an_open<'a>(
    fake: &'a Fake,
    volume: &Arc<Volume>,
) -> (Ino, RwLockWriteGuard<'a, ()>, JoinHandle<Result<Arc<OpenFile>>>) {
    let file = create(volume, "a").await;
    let ino = file.ino();
    write(volume, &file, 0, pattern(1, 20_000)).await;
    volume.release(&file).await.unwrap();
    drop(file);
    assert!(volume.inodes().file(ino).is_none());
    let gate = fake.open_gate.write().await;
    let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
    let opening = Arc::clone(volume);
    let cut = tokio::spawn(async move { opening.open(&Credentials::root(), ino, flags).await });
    tokio::task::yield_now().await;
    (ino, gate, cut)
}

/// What the other one had written meanwhile was cut, and its length told afterwards: the file was all zeros.
#[tokio::test]
async fn an_open_that_cuts_while_another_open_is_under_way_leaves_no_zeros() {
    let (fake, volume) = cluster().await;
    let (ino, gate, cut) = cut_by_an_open(&fake, &volume).await;
    let writer = create(&volume, "a").await;
    write(&volume, &writer, 0, pattern(2, 1 << 20)).await;
    volume.drain(&writer.state).await;
    assert!(!cut.is_finished());
    drop(gate);
    let cut = cut.await.unwrap().unwrap();
    volume.flush(&writer).await.unwrap();
    assert_eq!(fake.server_length(ino), 0);
    assert!(read(&volume, &cut, 0, 2 << 20).await.is_empty());
}

/// The same of a file that is cut by its name: the write was synced, and was zeros.
#[tokio::test]
async fn a_cut_that_crosses_an_open_and_a_write_leaves_no_zeros() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.release(&file).await.unwrap();
    assert!(volume.inodes().file(ino).is_none());
    let gate = fake.set_attr_gate.write().await;
    let cutting = Arc::clone(&volume);
    let cut = tokio::spawn(async move {
        cutting.setattr(&Credentials::root(), ino, length(10), None).await.unwrap()
    });
    shared::until_logged(&fake, "setattr").await;
    let writer = open(&volume, ino, OpenFlags::READ_WRITE).await;
    write(&volume, &writer, 0, pattern(2, 20_000)).await;
    volume.drain(&writer.state).await;
    drop(gate);
    assert_eq!(cut.await.unwrap().length, 10);
    volume.fsync(&writer, false).await.unwrap();
    assert_eq!(fake.server_length(ino), 10);
    assert_eq!(read(&volume, &writer, 0, 20_000).await, pattern(2, 20_000)[..10]);
}

/// The second one took back what others had set since, and failed where they had removed the file. Then it left what they had given.
#[tokio::test]
async fn a_file_is_cut_again_only_for_who_may_have_written_to_it() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.release(&file).await.unwrap();
    for (flags, times) in [(OpenFlags::READ, 1), (OpenFlags::READ_WRITE, 2)] {
        let gate = fake.set_attr_gate.write().await;
        let cutting = Arc::clone(&volume);
        let change = SetAttr { mode: Some(0o600), drop_setid: true, ..length(10) };
        let cut = tokio::spawn(async move {
            cutting.setattr(&Credentials::root(), ino, change, None).await.unwrap()
        });
        let mut log = shared::until_logged(&fake, "setattr").await;
        let opened = open(&volume, ino, flags).await;
        drop(gate);
        assert_eq!(cut.await.unwrap().length, 10);
        log.extend(fake.take_log());
        let cuts = starting(&log, "setattr");
        assert_eq!(cuts.len(), times, "{log:?}");
        let with_mode = cuts.iter().filter(|line| line.contains("mode")).count();
        assert_eq!(with_mode, 1, "{log:?}");
        assert!(cuts.iter().all(|line| line.ends_with("by a user")), "{log:?}");
        volume.release(&opened).await.unwrap();
    }
    let attr = volume.getattr(ino).await.unwrap();
    fake.fail("setattr", ErrorKind::Stale);
    let cut = volume.cut_again(&Credentials::root(), attr.clone(), &length(10), None).await;
    assert_eq!(cut.unwrap(), attr, "it was cut, and removed then");
}

/// It had told its length and was closed before the cut was answered, so that nobody was left who could be cut in order.
#[tokio::test]
async fn an_open_that_cuts_what_another_one_has_written_and_closed_leaves_no_zeros() {
    let (fake, volume) = cluster().await;
    let (ino, before, cut) = cut_by_an_open(&fake, &volume).await;
    let writer = create(&volume, "a").await;
    // Each second its length would be told, too.
    writer.state.core().ticking = true;
    write(&volume, &writer, 0, pattern(2, 1 << 20)).await;
    volume.drain(&writer.state).await;
    let after = fake.opened_gate.write().await;
    drop(before);
    let made = async {
        while fake.server_length(ino) > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), made).await.unwrap();
    volume.release(&writer).await.unwrap();
    drop(writer);
    assert!(!cut.is_finished() && fake.server_length(ino) > 0);
    drop(after);
    let cut = cut.await.unwrap().unwrap();
    volume.flush(&cut).await.unwrap();
    assert_eq!(fake.server_length(ino), 0);
}

/// What a write and its sync ask for first: the right to write, or for that itself.
async fn first_asked_for(fake: &Fake, volume: &Arc<Volume>, file: &Arc<OpenFile>) -> String {
    fake.take_log();
    write(volume, file, 0, pattern(2, 20_000)).await;
    volume.fsync(file, false).await.unwrap();
    let mut log = fake.take_log().into_iter();
    log.find(|line| line.starts_with("open") || line.starts_with("write")).unwrap_or_default()
}

/// A cut that a target could not make was made later, and took away what was written after the error.
#[tokio::test]
async fn after_a_cut_that_may_be_unfinished_the_right_to_write_is_asked_for_anew() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    for (kind, first) in [(ErrorKind::NotPermitted, "write"), (ErrorKind::TimedOut, "open")] {
        fake.fail("setattr", kind);
        let cut = volume.setattr(&Credentials::root(), file.ino(), length(5), Some(&file)).await;
        assert_eq!(cut.unwrap_err().kind, kind);
        let asked = first_asked_for(&fake, &volume, &file).await;
        assert_eq!(asked.get(..first.len()), Some(first), "{asked}");
    }
}

/// Only the mount asked whose cut it was. What another one wrote was taken away when the cut was made.
#[tokio::test(start_paused = true)]
async fn after_a_cut_of_others_that_may_be_unfinished_the_right_to_write_is_asked_for_anew() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(crate::testing::Paused::default());
    let volume = fake.volume(VolumeOptions { leases: true, clock, ..options() }).await;
    let file = create(&volume, "cut").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    let in_doubt = || file.state.core().cut_in_doubt.is_some();
    fake.doubt_cut(file.ino());
    shared::until(in_doubt).await;
    for first in ["open", "write"] {
        let asked = first_asked_for(&fake, &volume, &file).await;
        assert_eq!(asked.get(..first.len()), Some(first), "{asked}");
        assert!(!in_doubt());
    }
}

/// Each write that was refused asked by itself: they kept the mount's connection from all else, and the file from others.
#[tokio::test]
async fn of_those_that_were_refused_one_at_a_time_asks_for_the_right_to_write() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    for (in_doubt_again, asked) in [(false, 1), (true, 2)] {
        volume.doubt_cuts([file.ino()]);
        fake.take_log();
        let answers = fake.opened_gate.write().await;
        let renew = || volume.renew_capability(&file.state, true);
        let renewed = futures::future::try_join3(renew(), renew(), renew());
        futures::pin_mut!(renewed);
        assert!(futures::poll!(renewed.as_mut()).is_pending());
        if in_doubt_again {
            // The first has asked before.
            volume.doubt_cuts([file.ino()]);
        }
        drop(answers);
        renewed.await.unwrap();
        assert_eq!(starting(&fake.take_log(), "open").len(), asked);
        assert!(file.state.core().cut_in_doubt.is_none());
    }
}

/// A cut of an open file that gets no answer in time.
async fn cut_in_vain(fake: &Fake, volume: &Arc<Volume>, file: &Arc<OpenFile>) {
    fake.fail("setattr", ErrorKind::TimedOut);
    let cut = volume.setattr(&Credentials::root(), file.ino(), length(5), Some(file)).await;
    assert_eq!(cut.unwrap_err().kind, ErrorKind::TimedOut);
}

/// It was answered before the cut was given up, and the answer came after that.
#[tokio::test]
async fn an_open_of_before_a_cut_was_given_up_says_nothing_of_the_cut() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    let before = volume.now();
    cut_in_vain(&fake, &volume, &file).await;
    let (after, right) = (volume.now(), Bytes::from_static(b"right"));
    let mut core = file.state.core();
    for (asked, in_doubt) in [(before, true), (after, false)] {
        core.set_capability([true, true], &right, Some(asked));
        assert_eq!(core.cut_in_doubt.is_some(), in_doubt);
    }
}

/// The server was not told that the cut was given up, and made it when something new had been written.
#[tokio::test]
async fn a_cut_that_was_given_up_is_told_with_the_next_open_whatever_else_is_under_way() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    let session = volume.session(file.ino());
    let older = session.begin_mutation();
    cut_in_vain(&fake, &volume, &file).await;
    let given_up = session.stamp().given_up;
    assert!(given_up.len() == 1 && !fake.knows_given_up(&given_up));
    fake.take_log();
    let again = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    assert_eq!(starting(&fake.take_log(), "open").len(), 1, "what it knew is in doubt");
    assert!(fake.knows_given_up(&given_up));
    assert!(again.state.core().cut_in_doubt.is_none(), "nothing else is waited for");
    session.end_mutation(older);
    assert!(session.stamp().given_up.is_empty());
}

/// The list of what was given up had room for the newest only: the server was not told of the cut, and the next right to
/// write ended the doubt about it all the same.
#[tokio::test]
async fn a_cut_is_in_doubt_until_the_server_is_told_that_it_was_given_up_whatever_else_was() {
    for others_cut in [false, true] {
        let (fake, volume) = cluster().await;
        let file = create(&volume, "cut").await;
        let session = volume.session(file.ino());
        let older = session.begin_mutation();
        cut_in_vain(&fake, &volume, &file).await;
        let given_up = session.stamp().given_up;
        for _ in 0..1_000 {
            let other = session.begin_mutation();
            session.give_up_mutation(other, others_cut);
        }
        volume.renew_capability(&file.state, true).await.unwrap();
        assert_eq!(fake.knows_given_up(&given_up), !others_cut, "cuts are told first");
        assert_eq!(file.state.core().cut_in_doubt.is_some(), others_cut);
        open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
        assert_eq!(file.state.core().cut_in_doubt.is_some(), others_cut);
        session.end_mutation(older);
        volume.renew_capability(&file.state, true).await.unwrap();
        assert!(file.state.core().cut_in_doubt.is_none(), "all is over, and the server knows");
    }
}

/// It took the room of what nobody had heard of.
#[tokio::test]
async fn what_the_server_has_answered_is_not_given_up() {
    use ErrorKind::{Io, NoSpace, TimedOut};
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    let session = volume.session(file.ino());
    let _older = session.begin_mutation();
    for (kind, given_up) in [(NoSpace, 0), (Io, 0), (TimedOut, 1)] {
        fake.fail("setattr", kind);
        let cut = volume.setattr(&Credentials::root(), file.ino(), length(5), Some(&file)).await;
        assert_eq!(cut.unwrap_err().kind, kind);
        assert_eq!(session.stamp().given_up.len(), given_up);
        assert!(file.state.core().cut_in_doubt.is_some(), "it may be half made");
    }
}

/// Only who had waited to the end took note of it.
#[tokio::test]
async fn a_cut_for_which_nobody_waits_any_more_is_in_doubt() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cut").await;
    for _ in 0..1_000 {
        fake.fail("setattr", ErrorKind::Unavailable);
    }
    let (root, while_it_is_tried) = (Credentials::root(), std::time::Duration::from_millis(100));
    let cut = volume.setattr(&root, file.ino(), length(5), Some(&file));
    assert!(tokio::time::timeout(while_it_is_tried, cut).await.is_err());
    assert!(file.state.core().cut_in_doubt.is_some());
}

#[tokio::test]
async fn truncation_of_a_small_file() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "small cut").await;
    write(&volume, &file, 0, pattern(1, 5_000)).await;
    set_length(&volume, &file, 10).await;
    write(&volume, &file, 20, Bytes::from_static(b"x")).await;
    let mut expected = pattern(1, 5_000)[..10].to_vec();
    expected.resize(20, 0);
    expected.push(b'x');
    assert_eq!(read(&volume, &file, 0, 100).await, expected);
    set_length(&volume, &file, 20_000).await;
    expected.resize(20_000, 0);
    assert_eq!(read(&volume, &file, 0, 30_000).await, expected);
    volume.release(&file).await.unwrap();
    assert_eq!(fake.server_length(file.ino()), 20_000);
}

/// An explicit mtime set after a write is not overwritten by the write's own, however late that is sent.
#[tokio::test]
async fn a_set_mtime_outlives_earlier_writes() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "utimes").await;
    write(&volume, &file, 0, pattern(1, 100)).await;
    let mtime = Timestamp { seconds: 1, nanos: 2 };
    let change = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
    let cred = Credentials::root();
    let attr = volume.setattr(&cred, file.ino(), change, Some(&file)).await.unwrap();
    assert_eq!((attr.mtime, attr.length), (mtime, 100));
    volume.release(&file).await.unwrap();
    assert_eq!(volume.getattr(file.ino()).await.unwrap().mtime, mtime);
}

#[tokio::test]
async fn own_changes_are_seen_in_attributes_at_once() {
    let (fake, volume) = timeless_cluster().await;
    let file = create(&volume, "attrs").await;
    let before = volume.getattr(file.ino()).await.unwrap();
    write(&volume, &file, 0, pattern(1, 100_000)).await;
    let after = volume.getattr(file.ino()).await.unwrap();
    assert_eq!(after.length, 100_000);
    assert!(after.mtime > before.mtime);
    assert!(starting(&fake.take_log(), "getattr").is_empty(), "no message for what we know");
}

#[tokio::test]
async fn a_directory_is_not_asked_for_after_a_change_of_its_names() {
    let (fake, volume) = timeless_cluster().await;
    create(&volume, "first").await;
    let before = volume.getattr(Ino::ROOT).await.unwrap();
    create(&volume, "second").await;
    let after = volume.getattr(Ino::ROOT).await.unwrap();
    assert!(after.version > before.version);
    assert!(starting(&fake.take_log(), "getattr").is_empty(), "the answers said it");
}

#[tokio::test]
async fn no_attributes_are_asked_for_where_there_are_none() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "plain").await;
    let kernel = Credentials { checked: true, ..Credentials::root() };
    for name in ["system.posix_acl_access", "security.capability"] {
        let absent = volume.getxattr(&kernel, file.ino(), name.into()).await.unwrap_err();
        assert_eq!(absent.kind, ErrorKind::NoAttribute);
    }
    assert!(starting(&fake.take_log(), "GetXattr").is_empty(), "we know");
}

/// A write that was accepted and failed later is reported to each handle: once by each of its calls.
#[tokio::test]
async fn a_failed_write_is_reported_once_per_handle() {
    let (fake, volume) = cluster().await;
    let one = create(&volume, "fails").await;
    let two = open(&volume, one.ino(), OpenFlags::READ_WRITE).await;
    fake.fail("write 0:", ErrorKind::NoSpace);
    write(&volume, &one, 0, pattern(1, CHUNK as usize)).await;
    assert_eq!(volume.fsync(&one, false).await.unwrap_err().kind, ErrorKind::NoSpace);
    volume.fsync(&one, false).await.unwrap();
    let error = volume.write(&two, 0, pattern(2, 10)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(error.detail.starts_with("target 3 is full"), "{error}");
    volume.write(&two, 0, pattern(2, 10)).await.unwrap();
    assert_eq!(volume.flush(&two).await.unwrap_err().kind, ErrorKind::NoSpace);
    let later = open(&volume, one.ino(), OpenFlags::READ_WRITE).await;
    volume.fsync(&later, false).await.unwrap();
    for file in [one, two, later] {
        volume.release(&file).await.unwrap();
    }
    assert_eq!(volume.memory().dirty_bytes(), 0);
}

/// The kernel was told of a failure that was not theirs, took them for written, and nobody wrote them again.
#[tokio::test]
async fn pages_are_taken_also_where_an_earlier_write_has_failed() {
    let (fake, volume) = cluster().await;
    let one = create(&volume, "fails").await;
    let two = open(&volume, one.ino(), OpenFlags::READ_WRITE).await;
    fake.fail("write 0:", ErrorKind::NoSpace);
    write(&volume, &one, 0, pattern(1, 20_000)).await;
    volume.drain(&one.state).await;
    for (file, at) in [(&one, 0), (&two, 10_000)] {
        volume.write_pages(file, at, pattern(2, 10_000)).await.unwrap();
    }
    for file in [&one, &two] {
        assert_eq!(volume.fsync(file, false).await.unwrap_err().kind, ErrorKind::NoSpace);
        volume.fsync(file, false).await.unwrap();
    }
    assert_eq!(read(&volume, &one, 0, 30_000).await, pattern(2, 10_000).repeat(2));
}

/// In the middle of a long write(2) an error makes it a short one: nobody sees the error. The next fsync
/// answered that all was well. As to a close, it may be that of a child process.
#[tokio::test]
async fn what_a_write_or_a_close_has_told_fsync_tells_again() {
    let (fake, volume) = cluster().await;
    let (file, cred) = (create(&volume, "fails").await, Credentials::root());
    let other = volume.open(&cred, file.ino(), OpenFlags::READ_WRITE).await.unwrap();
    let is_full = |result: strake_types::Result<()>| result.unwrap_err().kind == ErrorKind::NoSpace;
    fake.fail("write 0:", ErrorKind::NoSpace);
    write(&volume, &file, 0, pattern(1, CHUNK as usize)).await;
    volume.drain(&file.state).await;
    assert!(is_full(volume.write(&file, CHUNK, pattern(1, 10)).await.map(drop)));
    write(&volume, &file, CHUNK, pattern(1, 10)).await;
    assert!(is_full(volume.sync_written(&other).await));
    volume.sync_written(&other).await.unwrap();
    for file in [file, other] {
        assert!(is_full(volume.flush(&file).await));
        volume.flush(&file).await.unwrap();
        assert!(is_full(volume.fsync(&file, false).await));
        volume.fsync(&file, false).await.unwrap();
        volume.release(&file).await.unwrap();
    }
}

/// The file stayed as long as the append that failed had made it, and the next one left zeros before it for good.
#[tokio::test]
async fn an_append_after_one_that_failed_follows_what_is_there() {
    for told in [false, true] {
        let (fake, volume, _other) = deferred::mounts().await;
        let file = create(&volume, "log").await;
        write(&volume, &file, 0, pattern(1, 20_000)).await;
        volume.fsync(&file, false).await.unwrap();
        let log = open(&volume, file.ino(), OpenFlags { append: true, ..OpenFlags::WRITE }).await;
        fake.fail("write 0:", ErrorKind::NoSpace);
        assert_eq!(volume.write(&log, 0, pattern(2, 5_000)).await.unwrap().offset, 20_000);
        volume.drain(&log.state).await;
        let failed = match told {
            true => volume.flush(&log).await,
            false => volume.write(&log, 0, "x".into()).await.map(drop),
        };
        assert_eq!(failed.unwrap_err().kind, ErrorKind::NoSpace);
        assert_eq!(volume.write(&log, 0, pattern(3, 10)).await.unwrap().offset, 20_000);
        volume.flush(&file).await.unwrap_err();
        assert_eq!(fake.server_length(file.ino()), 20_010);
    }
}

/// What was learned while something was unsent made the file longer only, and that stayed when all was told.
#[tokio::test]
async fn a_file_of_which_all_is_told_is_as_long_as_the_server_says() {
    let (_fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    file.state.core().length = 30_000;
    write(&volume, &file, 0, pattern(2, 10)).await;
    volume.flush(&file).await.unwrap();
    assert_eq!(file.state.core().length, 20_000);
}

#[tokio::test]
async fn a_failure_surfaces_at_close() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "fails").await;
    fake.fail("write 0:", ErrorKind::Poisoned);
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    assert_eq!(volume.release(&file).await.unwrap_err().kind, ErrorKind::Poisoned);
}

#[tokio::test]
async fn an_unavailable_target_is_tried_again() {
    let (fake, volume) = timeless_cluster().await;
    let file = create(&volume, "retry").await;
    for _ in 0..3 {
        fake.fail("write 0:", ErrorKind::Unavailable);
    }
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    fake.fail("read 0:", ErrorKind::StaleMap);
    assert_eq!(read(&volume, &file, 0, 20_000).await, pattern(1, 20_000));
}

#[tokio::test]
async fn a_wait_ends_with_a_clear_error() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { operation_wait_ms: 50, ..options() }).await;
    let file = create(&volume, "gone").await;
    for _ in 0..100 {
        fake.fail("write 0:", ErrorKind::Unavailable);
    }
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let error = volume.flush(&file).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(error.detail.contains("target 3 (group 3)"), "{error}");
}

/// A kernel asks once more for what it could not read ahead.
#[tokio::test]
async fn what_was_read_in_vain_is_not_waited_for_twice() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { operation_wait_ms: 50, ..options() }).await;
    let file = create(&volume, "away").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    file.state.core().kept.clear();
    for _ in 0..100 {
        fake.fail("read 0:", ErrorKind::Unavailable);
    }
    let error = async |from, len| volume.read(&file, from, len).await.map(drop).unwrap_err().kind;
    assert_eq!(error(0, 20_000).await, ErrorKind::TimedOut);
    fake.take_log();
    assert_eq!(error(4_096, 4_096).await, ErrorKind::TimedOut);
    assert_eq!(fake.take_log(), Vec::<String>::new());
}

#[tokio::test]
async fn the_layout_of_a_long_file_has_its_last_chunk() {
    let (_fake, volume) = cluster().await;
    let file = create(&volume, "long").await;
    set_length(&volume, &file, (1 << 44) + 1).await;
    let view = volume.layout(file.ino()).await.unwrap();
    assert_eq!((view.distributed().as_str(), view.parameters), ("simple_stripe", None));
    let chunks = view.chunks;
    let count = (1 << 44) / CHUNK + 1;
    assert_eq!(chunks.len(), count);
    assert_eq!(chunks.get(count - 1).unwrap().index, count - 1);
    assert_eq!(chunks.get(count), None);
    let first: Vec<u64> = chunks.iter().take(3).map(|chunk| chunk.index).collect();
    assert_eq!(first, [0, 1, 2]);
}

/// An operation whose answer was lost is sent again under its number, so the server knows it.
#[tokio::test]
async fn a_repeated_mutation_keeps_its_number() {
    let (fake, volume) = cluster().await;
    fake.lose_answer("create");
    let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
    let made = volume.create(&Credentials::root(), Ino::ROOT, "x".into(), 0o644, 0, flags).await;
    assert!(made.is_ok(), "EEXIST would be our own doing");
    let log = fake.take_log();
    assert_eq!(log.len(), 3, "{log:?}");
    assert!(log[2].starts_with("repeated"), "{log:?}");
}

#[tokio::test]
async fn numbers_are_given_back_when_answered() {
    let (_, volume) = cluster().await;
    let before = volume.session(Ino::ROOT).stamp().answered;
    create(&volume, "a").await;
    create(&volume, "b").await;
    let after = volume.session(Ino::ROOT).stamp().answered;
    assert_eq!(after, before + 2);
}

/// A server that has forgotten our session gets a new one, and learns what we hold open.
#[tokio::test]
async fn a_lost_session_is_replaced() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "held").await;
    let old = volume.session(Ino::ROOT).id();
    fake.take_log();
    fake.forget_session();
    open(&volume, file.ino(), OpenFlags::READ).await;
    let log = fake.take_log();
    let reopened = format!("session resume={old} open=[{}]", file.ino());
    assert_eq!(starting(&log, "session"), [reopened]);
    assert_ne!(volume.session(Ino::ROOT).id(), old);
    assert_eq!(fake.opens(file.ino()), 2);
}

/// Whoever came next opened another one, and the server counted all files in both.
#[tokio::test]
async fn a_session_that_is_being_opened_is_opened_though_its_caller_goes_away() {
    let (fake, volume) = cluster().await;
    let stamp = || volume.session(Ino::ROOT).stamp();
    let before = stamp();
    fake.forget_session();
    fake.fail("session", ErrorKind::Unavailable);
    let asking = Arc::clone(&volume);
    let asked = tokio::spawn(async move { asking.fetch_attr(Ino::ROOT, false).await });
    shared::until_logged(&fake, "session").await;
    asked.abort();
    shared::until(|| stamp().session != before.session).await;
    assert_eq!(stamp().incarnation, before.incarnation + 1);
}

/// A metadata server whose store was put back as it was may give one session to two clients.
#[tokio::test]
async fn no_two_clients_count_their_incarnations_alike() {
    let fake = Arc::new(Fake::default());
    let (one, two) = (fake.volume(options()).await, fake.volume(options()).await);
    let incarnation = |volume: &Arc<Volume>| volume.session(Ino::ROOT).stamp().incarnation;
    assert_ne!(incarnation(&one), incarnation(&two));
}

#[tokio::test]
async fn a_refused_capability_is_renewed() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "cap").await;
    fake.fail("write 0:", ErrorKind::BadCapability);
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    volume.release(&file).await.unwrap();
    volume.tick_session(volume.share_of(Ino::ROOT), 5).await;
    assert_eq!(fake.opens(file.ino()), 0, "the extra open is given back");
}

#[tokio::test]
async fn what_is_damaged_is_read_some_more_times() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "garbled").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    volume.let_go(file.ino());
    let times = |count| (0..count).for_each(|_| fake.garble_next_read());
    times(3);
    assert_eq!(read(&volume, &file, 0, 10).await, pattern(1, 20_000)[..10]);
    volume.let_go(file.ino());
    times(4);
    assert_eq!(volume.read(&file, 0, 10).await.unwrap_err().kind, ErrorKind::Corrupt);
}

/// A sequential reader's next chunks are fetched before it asks; a random reader's are not.
#[tokio::test]
async fn only_sequential_readers_are_read_ahead() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "read").await;
    let whole = pattern(1, 100 * CHUNK as usize);
    write(&volume, &file, 0, whole.clone()).await;
    volume.flush(&file).await.unwrap();
    volume.let_go(file.ino());
    fake.take_log();
    for at in [50u64, 3, 80, 20, 61] {
        read(&volume, &file, at * CHUNK, 4096).await;
    }
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(starting(&fake.take_log(), "read").len(), 5, "nothing but what was asked for");
    for at in 0..4u64 {
        read(&volume, &file, at * CHUNK / 4, CHUNK as u32 / 4).await;
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let ahead = starting(&fake.take_log(), "read").len();
    assert!(ahead > 20, "only {ahead} requests");
    let mut contents = Vec::new();
    while contents.len() < whole.len() {
        contents.extend(read(&volume, &file, contents.len() as u64, 100_000).await);
    }
    assert_eq!(contents, whole);
    let reads = starting(&fake.take_log(), "read").len();
    assert!(reads + ahead <= 110, "each chunk is fetched about once, not {}", reads + ahead);
}

/// What was read ahead is forgotten when it is overwritten.
#[tokio::test]
async fn read_ahead_never_hides_a_write() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "mixed").await;
    write(&volume, &file, 0, pattern(1, 50 * CHUNK as usize)).await;
    volume.flush(&file).await.unwrap();
    volume.let_go(file.ino());
    for at in 0..3u64 {
        read(&volume, &file, at * CHUNK, CHUNK as u32).await;
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    write(&volume, &file, 5 * CHUNK + 10, Bytes::from_static(b"new")).await;
    volume.flush(&file).await.unwrap();
    assert_eq!(read(&volume, &file, 5 * CHUNK + 10, 3).await, b"new");
    drop(fake);
}

#[tokio::test]
async fn appends_follow_each_other() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "log").await;
    let cred = Credentials::root();
    let flags = OpenFlags { append: true, ..OpenFlags::WRITE };
    let a = volume.open(&cred, file.ino(), flags).await.unwrap();
    let b = volume.open(&cred, file.ino(), flags).await.unwrap();
    assert_eq!(volume.write(&a, 0, "one".into()).await.unwrap().offset, 0);
    assert_eq!(volume.write(&b, 0, "two".into()).await.unwrap().offset, 3);
    assert_eq!(volume.write(&a, 0, "three".into()).await.unwrap().offset, 6);
    assert_eq!(read(&volume, &file, 0, 100).await, b"onetwothree");
}

/// What was unsent inside the inode was moved out by another write while a sync waited: it was not sent, and the sync
/// succeeded. So did a close, and who opened the file then did not see it. Found by histories of files that grow.
#[tokio::test]
async fn what_another_write_moves_out_meanwhile_is_sent_by_sync_and_flush() {
    for sync in [true, false] {
        let (fake, volume) = cluster().await;
        let file = create(&volume, "a").await;
        write(&volume, &file, 0, pattern(1, 100)).await;
        let order = file.state.order.lock().await;
        let (waiting, to_wait) = (Arc::clone(&volume), Arc::clone(&file));
        let done = tokio::spawn(async move {
            match sync {
                true => waiting.fsync(&to_wait, false).await,
                false => waiting.flush(&to_wait).await,
            }
        });
        tokio::task::yield_now().await;
        volume.move_out(&file.state).await.unwrap();
        drop(order);
        done.await.unwrap().unwrap();
        assert_eq!(starting(&fake.take_log(), "write 0:").len(), 1, "sync: {sync}");
        assert_eq!(volume.getattr(file.ino()).await.unwrap().length, 100);
        assert!(file.state.is_idle());
    }
}

#[tokio::test]
async fn fsync_makes_targets_and_length_durable() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "durable").await;
    write(&volume, &file, 0, pattern(1, 2 * CHUNK as usize)).await;
    fake.take_log();
    volume.fsync(&file, false).await.unwrap();
    let log = fake.take_log();
    assert_eq!(starting(&log, "sync target").len(), 2, "only targets written to: {log:?}");
    assert_eq!(log.last().unwrap(), "publish length=131072 sync=true");
    volume.fsync(&file, false).await.unwrap();
    assert_eq!(fake.take_log(), [format!("sync {}", file.ino())]);
}

/// Two mounts, and a file that the first has written, synced and holds open.
async fn two_mounts(length: usize) -> (Arc<Fake>, Arc<Volume>, Arc<OpenFile>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    let one = fake.volume(options()).await;
    let file = create(&one, "both").await;
    write(&one, &file, 0, pattern(1, length)).await;
    one.fsync(&file, false).await.unwrap();
    let two = fake.volume(options()).await;
    (fake, one, file, two)
}

#[tokio::test]
async fn pages_may_be_kept_while_nobody_else_writes() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "kept").await;
    let ino = file.ino();
    write(&volume, &file, 0, pattern(1, 100)).await;
    volume.release(&file).await.unwrap();
    let cred = Credentials::root();
    let again = volume.open(&cred, ino, OpenFlags::READ).await.unwrap();
    assert!(again.keep_cache());
    volume.release(&again).await.unwrap();
}

/// The background task tells the time of a write that is still on its way.
#[tokio::test]
async fn who_opens_before_the_bytes_are_there_keeps_no_old_pages() {
    let (fake, one, file, two) = two_mounts(CHUNK as usize).await;
    let cred = Credentials::root();
    let gate = fake.gate.write().await;
    write(&one, &file, 0, pattern(2, 4096)).await;
    assert!(one.publish(&file.state, Tell::Lazily).await.unwrap());
    let theirs = two.open(&cred, file.ino(), OpenFlags::READ).await.unwrap();
    assert_eq!(read(&two, &theirs, 0, 4096).await, pattern(1, CHUNK as usize)[..4096]);
    two.release(&theirs).await.unwrap();
    drop(gate);
    one.release(&file).await.unwrap();
    let again = two.open(&cred, file.ino(), OpenFlags::READ).await.unwrap();
    assert!(!again.keep_cache());
    assert_eq!(read(&two, &again, 0, 4096).await, pattern(2, 4096));
}

#[tokio::test]
async fn another_mount_s_write_is_seen_at_open() {
    let fake = Arc::new(Fake::default());
    let one = fake.volume(options()).await;
    let file = create(&one, "shared").await;
    write(&one, &file, 0, pattern(1, 100)).await;
    one.release(&file).await.unwrap();
    let two = fake.volume(options()).await;
    let cred = Credentials::root();
    let theirs = two.open(&cred, file.ino(), OpenFlags::READ_WRITE).await.unwrap();
    write(&two, &theirs, 0, pattern(2, 100)).await;
    two.release(&theirs).await.unwrap();
    let again = one.open(&cred, file.ino(), OpenFlags::READ).await.unwrap();
    assert!(!again.keep_cache());
    assert_eq!(read(&one, &again, 0, 100).await, pattern(2, 100));
}

/// Something of our own is on its way meanwhile: the file is as long as that reaches, not as long as it was.
#[tokio::test]
async fn another_mount_s_cut_is_seen_at_open_while_something_is_unpublished_here() {
    let (fake, one, file, two) = two_mounts(4 * CHUNK as usize).await;
    write(&one, &file, CHUNK, pattern(2, 100)).await;
    let (cred, ino) = (Credentials::root(), file.ino());
    let theirs = two.open(&cred, ino, OpenFlags::READ_WRITE).await.unwrap();
    set_length(&two, &theirs, 10).await;
    let again = one.open(&cred, ino, OpenFlags::READ).await.unwrap();
    assert_eq!(again.attr().length, CHUNK + 100);
    one.release(&file).await.unwrap();
    assert_eq!(fake.server_length(ino), CHUNK + 100);
    assert_eq!(again.attr().length, CHUNK + 100);
}

/// Of two opens at the same time the first one is told to drop the kernel's pages; the second must not believe
/// them before that has happened.
#[tokio::test]
async fn who_opens_while_another_open_drops_old_pages_keeps_none() {
    let (_, one, file, two) = two_mounts(100).await;
    let (cred, ino) = (Credentials::root(), file.ino());
    let early = two.open(&cred, ino, OpenFlags::READ).await.unwrap();
    assert_eq!(read(&two, &early, 0, 100).await, pattern(1, 100));
    write(&one, &file, 0, pattern(2, 100)).await;
    one.release(&file).await.unwrap();
    let first = two.open(&cred, ino, OpenFlags::READ).await.unwrap();
    let second = two.open(&cred, ino, OpenFlags::READ).await.unwrap();
    assert!(!first.keep_cache() && !second.keep_cache());
    read(&two, &first, 0, 100).await;
    assert!(!two.open(&cred, ino, OpenFlags::READ).await.unwrap().keep_cache());
    read(&two, &second, 0, 100).await;
    assert!(two.open(&cred, ino, OpenFlags::READ).await.unwrap().keep_cache());
}

/// A `stat` tells of another mount's write; what this mount changes after that must not hide it from the next open.
#[tokio::test]
async fn our_own_change_hides_no_write_of_another_mount_that_a_look_has_told_of() {
    let (_, one, file, two) = two_mounts(CHUNK as usize).await;
    let (cred, ino) = (Credentials::root(), file.ino());
    let ours = two.open(&cred, ino, OpenFlags::READ_WRITE).await.unwrap();
    write(&one, &file, 0, pattern(2, 4096)).await;
    one.release(&file).await.unwrap();
    two.fetch_attr(ino, false).await.unwrap();
    set_length(&two, &ours, CHUNK).await;
    assert!(!two.open(&cred, ino, OpenFlags::READ).await.unwrap().keep_cache());
}

/// An open took the contents of a small file from the answer, and with them, for every file, the
/// mark by which it tells that somebody else has written: blocks read ahead stayed.
#[tokio::test]
async fn what_was_read_ahead_before_another_mount_s_write_is_not_given_to_a_later_open() {
    let fake = Arc::new(Fake::default());
    let (one, two) = (fake.volume(options()).await, fake.volume(options()).await);
    let theirs = create(&two, "ahead").await;
    write(&two, &theirs, 0, pattern(1, 50 * CHUNK as usize)).await;
    two.flush(&theirs).await.unwrap();
    let cred = Credentials::root();
    let early = one.open(&cred, theirs.ino(), OpenFlags::READ).await.unwrap();
    for at in 0..3u64 {
        read(&one, &early, at * CHUNK, CHUNK as u32).await;
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(early.state.core().ahead.covered_to(5 * CHUNK).is_some());
    write(&two, &theirs, 5 * CHUNK, pattern(2, CHUNK as usize)).await;
    two.flush(&theirs).await.unwrap();
    let late = one.open(&cred, theirs.ino(), OpenFlags::READ).await.unwrap();
    assert!(read(&one, &late, 5 * CHUNK, CHUNK as u32).await == pattern(2, CHUNK as usize));
}

/// As after the session in which the source was opened: the right to the target is renewed three times in vain.
#[tokio::test]
async fn a_copy_whose_right_to_the_source_is_refused_gets_a_new_one_at_once() {
    let (fake, volume) = cluster().await;
    let (from, to) = (create(&volume, "from").await, create(&volume, "to").await);
    write(&volume, &from, 0, pattern(1, CHUNK as usize)).await;
    volume.flush(&from).await.unwrap();
    (0..4).for_each(|_| fake.fail("copy", ErrorKind::BadCapability));
    assert_eq!(volume.copy_range(&from, 0, &to, 0, CHUNK).await.unwrap(), CHUNK);
    assert_eq!(starting(&fake.take_log(), "copy").len(), 5);
}

#[tokio::test]
async fn ranges_are_copied_on_the_servers() {
    let (fake, volume) = cluster().await;
    let (from, to) = (create(&volume, "from").await, create(&volume, "to").await);
    let whole = pattern(1, 5 * CHUNK as usize);
    write(&volume, &from, 0, whole.clone()).await;
    volume.flush(&from).await.unwrap();
    fake.take_log();
    let len = whole.len() as u64;
    assert_eq!(volume.copy_range(&from, 0, &to, 0, len + 10).await.unwrap(), len);
    let log = fake.take_log();
    assert_eq!(starting(&log, "copy").len(), 5);
    assert!(starting(&log, "write").is_empty() && starting(&log, "read").is_empty());
    assert_eq!(read(&volume, &to, 0, u32::MAX).await, whole);
    volume.release(&to).await.unwrap();
    assert_eq!(fake.server_length(to.ino()), len);
}

/// Nobody was told that some of the contents had changed: neither the metadata server, nor who has the file open as well.
#[tokio::test]
async fn a_copy_that_fails_half_way_is_told() {
    for shared in [false, true] {
        let (fake, volume) = cluster().await;
        let (from, to) = (create(&volume, "from").await, create(&volume, "to").await);
        for file in [&from, &to] {
            write(&volume, file, 0, pattern(1, 4 * CHUNK as usize)).await;
            volume.fsync(file, false).await.unwrap();
        }
        to.state.core().shared = shared;
        fake.fail("copy 3:", ErrorKind::NoSpace);
        fake.take_log();
        let copied = volume.copy_range(&from, 0, &to, CHUNK, 3 * CHUNK).await;
        assert_eq!(copied.unwrap_err().kind, ErrorKind::NoSpace);
        if !shared {
            volume.sync_all().await.unwrap();
        }
        let log = fake.take_log();
        assert_eq!(starting(&log, "publish").len(), 1, "{log:?}");
        assert_eq!(fake.server_length(to.ino()), 4 * CHUNK);
    }
}

/// As above.
#[tokio::test]
async fn a_fallocate_that_fails_half_way_is_told() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "punched").await;
    write(&volume, &file, 0, pattern(1, 4 * CHUNK as usize)).await;
    volume.fsync(&file, false).await.unwrap();
    fake.fail("punch 3:", ErrorKind::NoSpace);
    fake.take_log();
    let punched = volume.fallocate(&file, FallocateMode::Punch, 0, 4 * CHUNK).await;
    assert_eq!(punched.unwrap_err().kind, ErrorKind::NoSpace);
    let log = fake.take_log();
    assert_eq!(starting(&log, "publish").len(), 1, "{log:?}");
}

#[tokio::test]
async fn ranges_are_freed_and_zeroed() {
    let (_, volume) = cluster().await;
    for size in [4_000usize, 200_000] {
        let file = create(&volume, &format!("punched {size}")).await;
        write(&volume, &file, 0, pattern(1, size)).await;
        volume.fallocate(&file, FallocateMode::Punch, 1_000, 2_000).await.unwrap();
        let mut expected = pattern(1, size).to_vec();
        expected[1_000..3_000].fill(0);
        assert_eq!(read(&volume, &file, 0, u32::MAX).await, expected);
        let end = size as u64 + 100;
        volume.fallocate(&file, FallocateMode::Zero, end - 200, 200).await.unwrap();
        expected.truncate(size - 100);
        expected.resize(size + 100, 0);
        assert_eq!(read(&volume, &file, 0, u32::MAX).await, expected);
        volume.release(&file).await.unwrap();
        assert_eq!(volume.getattr(file.ino()).await.unwrap().length, end);
    }
}

/// What had been written was counted as room that is wanted once more.
#[tokio::test]
async fn room_that_a_file_has_already_can_be_allocated_where_no_more_is_free() {
    let (fake, volume) = cluster().await;
    fake.leave_free(CHUNK / 4);
    let file = create(&volume, "full").await;
    write(&volume, &file, 0, pattern(1, 4 * CHUNK as usize)).await;
    volume.fsync(&file, false).await.unwrap();
    let allocate = async |mode, from, len| volume.fallocate(&file, mode, from, len).await;
    allocate(FallocateMode::Allocate, 0, 4 * CHUNK).await.unwrap();
    allocate(FallocateMode::KeepSize, CHUNK, 4 * CHUNK).await.unwrap();
    for (from, len) in [(4 * CHUNK, 4 * CHUNK), (0, 6 * CHUNK)] {
        let error = allocate(FallocateMode::Allocate, from, len).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace, "{from}+{len}");
    }
    assert_eq!(file.attr().length, 4 * CHUNK);
}

/// A target was asked for each chunk of the range before it was refused.
#[tokio::test]
async fn who_asks_for_more_room_than_there_is_is_refused_as_soon_as_that_is_known() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "full").await;
    write(&volume, &file, 0, pattern(1, 4 * CHUNK as usize)).await;
    volume.fsync(&file, false).await.unwrap();
    fake.leave_free(CHUNK);
    fake.take_log();
    let wanted = volume.fallocate(&file, FallocateMode::Allocate, 0, 1_000 * CHUNK).await;
    assert_eq!(wanted.unwrap_err().kind, ErrorKind::NoSpace);
    let log = fake.take_log();
    let asked = starting(&log, "Extents").len();
    assert!((1..100).contains(&asked), "{asked} questions");
}

#[tokio::test]
async fn holes_are_found() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "sparse").await;
    write(&volume, &file, 10 * CHUNK, pattern(1, CHUNK as usize)).await;
    set_length(&volume, &file, 20 * CHUNK).await;
    assert_eq!(volume.seek(&file, 5, SeekTo::Data).await.unwrap(), 10 * CHUNK);
    assert_eq!(volume.seek(&file, 5, SeekTo::Hole).await.unwrap(), 5);
    assert_eq!(volume.seek(&file, 10 * CHUNK + 1, SeekTo::Hole).await.unwrap(), 11 * CHUNK);
    let error = volume.seek(&file, 11 * CHUNK, SeekTo::Data).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSuchAddress);
    let error = volume.seek(&file, 20 * CHUNK, SeekTo::Hole).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSuchAddress);
}

/// What the hot paths cost in the client itself: run with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn cost_of_hot_paths() {
    let (fake, volume) = cluster().await;
    let time = |what: &str, started: std::time::Instant, n: u32| {
        println!("{what}: {:?} each", started.elapsed() / n);
    };
    let n = 20_000;
    let started = std::time::Instant::now();
    for i in 0..n {
        let file = create(&volume, &format!("f{i}")).await;
        write(&volume, &file, 0, Bytes::from_static(&[7; 4096])).await;
        volume.flush(&file).await.unwrap();
        volume.release(&file).await.unwrap();
    }
    time("create, write 4 KiB, flush, release", started, n);
    fake.take_log();
    let started = std::time::Instant::now();
    for _ in 0..n {
        volume.getattr(Ino(2)).await.unwrap();
    }
    time("getattr", started, n);
    let cred = Credentials::root();
    let started = std::time::Instant::now();
    for _ in 0..n {
        let file = volume.open(&cred, Ino(2), OpenFlags::READ).await.unwrap();
        read(&volume, &file, 0, 4096).await;
        volume.release(&file).await.unwrap();
    }
    time("open, read 4 KiB, release", started, n);
    let file = create(&volume, "large").await;
    let data = pattern(1, 1 << 20);
    let started = std::time::Instant::now();
    for i in 0..200 {
        write(&volume, &file, i << 20, data.clone()).await;
    }
    volume.flush(&file).await.unwrap();
    time("write 1 MiB", started, 200);
    let started = std::time::Instant::now();
    for i in 0..200 {
        volume.read(&file, i << 20, 1 << 20).await.unwrap();
    }
    time("read 1 MiB", started, 200);
}
