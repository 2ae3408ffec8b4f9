//! What becomes of unwritten data when the session is lost.

use super::*;
use strake_types::{Consistency, Result};
use tokio::task::JoinHandle;

/// The server has given up on this client, which learns of it.
async fn lose(fake: &Fake, volume: &Arc<Volume>) {
    fake.forget_session();
    fake.take_log();
    volume.tick_session(volume.share_of(Ino::ROOT), 5).await;
    assert_eq!(starting(&fake.take_log(), "session").len(), 1);
}

/// A file of which everything written is on disk.
async fn synced(volume: &Arc<Volume>) -> Arc<OpenFile> {
    let file = create(volume, "a").await;
    write(volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    file
}

/// Waits until a write is on its way to a target.
async fn until_sent(fake: &Fake) {
    while starting(&fake.take_log(), "write").is_empty() {
        tokio::task::yield_now().await;
    }
}

/// Writes over a file what is on its way then to a target that does not answer, as the gate is held; later it refuses that.
async fn sent_in_vain(
    fake: &Fake,
    volume: &Arc<Volume>,
    file: &Arc<OpenFile>,
    bytes: Bytes,
) -> JoinHandle<Result<()>> {
    fake.fail("write 0:", ErrorKind::BadCapability);
    fake.take_log();
    write(volume, file, 0, bytes).await;
    let (flushing, to_flush) = (Arc::clone(volume), Arc::clone(file));
    let flushed = tokio::spawn(async move { flushing.flush(&to_flush).await });
    until_sent(fake).await;
    flushed
}

/// Each handle tells it once by `fsync`, and all is well from then on.
async fn tells_once(volume: &Arc<Volume>, file: &Arc<OpenFile>) {
    let error = volume.fsync(file, false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.detail.contains("lost"), "{error}");
    volume.fsync(file, false).await.unwrap();
    volume.flush(file).await.unwrap();
    write(volume, file, 0, pattern(7, 30_000)).await;
    volume.fsync(file, false).await.unwrap();
    assert_eq!(read(volume, file, 0, 30_000).await, pattern(7, 30_000));
}

#[tokio::test]
async fn a_small_file_s_unwritten_data_is_given_up() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.flush(&file).await.unwrap();
    write(&volume, &file, 0, pattern(2, 20)).await;
    lose(&fake, &volume).await;
    assert_eq!(read(&volume, &file, 0, 100).await, pattern(1, 10), "what the server has");
    tells_once(&volume, &file).await;
    assert!(starting(&fake.take_log(), "inline").is_empty(), "nothing of it was sent");
}

#[tokio::test]
async fn unwritten_data_for_targets_is_given_up() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    let other = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    write(&volume, &file, 10_000, pattern(2, 20_000)).await;
    lose(&fake, &volume).await;
    assert_eq!(volume.getattr(file.ino()).await.unwrap().length, 20_000);
    assert_eq!(read(&volume, &file, 0, 40_000).await, pattern(1, 20_000));
    assert!(starting(&fake.take_log(), "write").is_empty(), "nothing of it was sent");
    assert_eq!(volume.flush(&other).await.unwrap_err().kind, ErrorKind::Io, "each handle");
    tells_once(&volume, &file).await;
}

/// It was zeroed in the next session, when others may have had the lock.
#[tokio::test]
async fn a_range_is_not_zeroed_where_the_session_is_lost_while_contents_are_asked_for() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 100)).await;
    volume.release(&file).await.unwrap();
    fake.relax(file.ino());
    let file = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    file.state.distrust();
    fake.lose_answer_and_session("ReadInline");
    let zeroed = volume.fallocate(&file, FallocateMode::Zero, 0, 10).await;
    assert_eq!(zeroed.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(read(&volume, &file, 0, 200).await, pattern(1, 100));
}

/// The kernel writes what was dirty when it is told to forget it, over what others have written by then.
#[tokio::test]
async fn the_first_pages_that_come_after_a_session_was_lost_are_dropped() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    write(&volume, &file, 0, pattern(2, 20_000)).await;
    lose(&fake, &volume).await;
    let dropped = volume.write_pages(&file, 0, pattern(3, 10_000)).await.unwrap_err();
    assert_eq!(dropped.kind, ErrorKind::Io);
    volume.write_pages(&file, 10_000, pattern(4, 10_000)).await.unwrap();
    assert_eq!(read(&volume, &file, 0, 10_000).await, pattern(1, 20_000)[..10_000]);
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::Io);
}

/// A target refuses a write of a fenced session; with a new one it is not sent again.
#[tokio::test]
async fn a_write_that_is_refused_is_not_sent_under_another_session() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    write(&volume, &file, 0, pattern(2, 20_000)).await;
    fake.forget_session();
    fake.fail("write 0:", ErrorKind::BadCapability);
    fake.take_log();
    tells_once(&volume, &file).await;
    let log = fake.take_log();
    let writes = starting(&log, "write");
    assert_eq!(writes.len(), 2, "the one that was refused, and that of afterwards: {log:?}");
}

/// The metadata server gave one capability after the other for a session that targets knew to be over; after the third the
/// client was told that its capability was refused. Found by simulation (seed 2511000002067).
#[tokio::test]
async fn who_is_refused_waits_until_the_metadata_server_knows_that_the_session_is_over() {
    let (fake, volume) = timeless_cluster().await;
    let file = synced(&volume).await;
    fake.take_log();
    write(&volume, &file, 0, pattern(2, 20_000)).await;
    (0..8).for_each(|_| fake.fail("write 0:", ErrorKind::BadCapability));
    let learns = async {
        let mut refused = 0;
        while refused < 5 {
            tokio::task::yield_now().await;
            refused += starting(&fake.take_log(), "write 0:").len();
        }
        fake.forget_session();
    };
    tokio::join!(learns, tells_once(&volume, &file));
}

/// Somebody else may have cut the file meanwhile: a length told late would make it longer again.
#[tokio::test]
async fn a_length_of_before_is_not_told_afterwards() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let gate = fake.publish_gate.write().await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let (flushing, to_flush) = (Arc::clone(&volume), Arc::clone(&file));
    let flushed = tokio::spawn(async move { flushing.flush(&to_flush).await });
    until_sent(&fake).await;
    fake.forget_session();
    drop(gate);
    assert_eq!(flushed.await.unwrap().unwrap_err().kind, ErrorKind::Io);
    assert_eq!(fake.server_length(file.ino()), 0);
}

/// Readers were shown it, and kept it, although it never came.
#[tokio::test]
async fn what_is_on_its_way_when_the_session_is_lost_is_not_read_any_more() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    let gate = fake.gate.write().await;
    let flushed = sent_in_vain(&fake, &volume, &file, pattern(2, 30_000)).await;
    lose(&fake, &volume).await;
    assert_eq!(read(&volume, &file, 0, 40_000).await, pattern(1, 20_000));
    drop(gate);
    assert_eq!(flushed.await.unwrap().unwrap_err().kind, ErrorKind::Io);
    tells_once(&volume, &file).await;
}

/// It was appended where that would have ended, with a gap before it.
#[tokio::test]
async fn who_appends_while_lost_bytes_are_on_their_way_appends_at_the_end_that_there_is() {
    for consistency in [Consistency::Strict, Consistency::CloseToOpen] {
        let (fake, volume) = cluster().await;
        let file = synced(&volume).await;
        let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
        let appender = open(&volume, file.ino(), flags).await;
        let gate = fake.gate.write().await;
        let flushed = sent_in_vain(&fake, &volume, &file, pattern(2, 30_000)).await;
        {
            let mut core = file.state.core();
            let layout = Arc::make_mut(&mut core.attr).layout.as_mut();
            layout.unwrap().consistency = consistency;
        }
        lose(&fake, &volume).await;
        let (other, cred) = (fake.volume(options()).await, Credentials::root());
        other.setattr(&cred, file.ino(), length(10_000), None).await.unwrap();
        let told = volume.write(&appender, 0, pattern(3, 100)).await;
        assert_eq!(told.unwrap_err().kind, ErrorKind::Io);
        let appending = Arc::clone(&volume);
        let appended =
            tokio::spawn(async move { appending.write(&appender, 0, pattern(3, 100)).await });
        while file.state.core().dirty.is_empty() && !appended.is_finished() {
            tokio::task::yield_now().await;
        }
        drop(gate);
        assert_eq!(appended.await.unwrap().unwrap().offset, 10_000, "{consistency}");
        assert_eq!(flushed.await.unwrap().unwrap_err().kind, ErrorKind::Io);
    }
}

/// Who had sent something in the session before went on with where the file had been.
#[tokio::test]
async fn what_is_written_after_a_session_was_lost_goes_where_the_file_lies_then() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    let group = || {
        let placement = file.state.core().placement().unwrap();
        placement.group_of(placement.layout().chunk_at(CHUNK))
    };
    let before = group();
    let gate = fake.gate.write().await;
    let _flushed = sent_in_vain(&fake, &volume, &file, pattern(2, 30_000)).await;
    lose(&fake, &volume).await;
    fake.lay_elsewhere(file.ino());
    let told = volume.write(&file, CHUNK, pattern(3, 100)).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::Io);
    let (writing, to_write) = (Arc::clone(&volume), Arc::clone(&file));
    let written =
        tokio::spawn(async move { writing.write(&to_write, CHUNK, pattern(3, 100)).await });
    while file.state.core().dirty.is_empty() && !written.is_finished() {
        tokio::task::yield_now().await;
    }
    drop(gate);
    written.await.unwrap().unwrap();
    assert_ne!(group(), before);
    assert!(!file.state.core().unsynced.own_marks().contains_key(&before));
}

#[tokio::test]
async fn who_has_written_everything_goes_on_unharmed() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    lose(&fake, &volume).await;
    volume.fsync(&file, false).await.unwrap();
    assert_eq!(read(&volume, &file, 0, 20_000).await, pattern(1, 20_000));
    write(&volume, &file, 0, pattern(2, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
}

/// Carried out again it might find that somebody else has done something in between.
#[tokio::test]
async fn what_may_have_been_done_in_a_lost_session_is_not_done_again() {
    let (fake, volume) = cluster().await;
    let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
    let cred = Credentials::root();
    fake.lose_answer_and_session("create");
    let made = volume.create(&cred, Ino::ROOT, "x".into(), 0o644, 0, flags).await;
    let error = made.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.detail.contains("nobody knows whether"), "{error}");
    assert_eq!(starting(&fake.take_log(), "create").len(), 2, "the second was refused");
    // What was refused and never done is sent again.
    fake.forget_session();
    volume.create(&cred, Ino::ROOT, "y".into(), 0o644, 0, flags).await.unwrap();
}

/// Somebody else may have written since: a cut that waited would take that away.
#[tokio::test]
async fn a_length_that_was_to_be_set_in_a_lost_session_is_not_set_in_the_next() {
    let (fake, volume) = cluster().await;
    let file = synced(&volume).await;
    write(&volume, &file, 0, pattern(2, 20_000)).await;
    fake.take_log();
    let gate = fake.gate.write().await;
    let (cutting, to_cut) = (Arc::clone(&volume), Arc::clone(&file));
    let cut = tokio::spawn(async move {
        let cred = Credentials::root();
        cutting.setattr(&cred, to_cut.ino(), length(5), Some(&to_cut)).await
    });
    until_sent(&fake).await;
    lose(&fake, &volume).await;
    drop(gate);
    assert_eq!(cut.await.unwrap().unwrap_err().kind, ErrorKind::Io);
    assert_eq!(fake.server_length(file.ino()), 20_000);
    tells_once(&volume, &file).await;
}

/// An append that waited was taken after the session was lost, at the length of before: over what another client
/// had appended since. Found by simulation (seed 920000001944).
#[tokio::test]
async fn a_write_that_waits_while_the_session_is_lost_is_not_taken() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let order = file.state.order.lock().await;
    let (writing, to_write) = (Arc::clone(&volume), Arc::clone(&file));
    let written =
        tokio::spawn(async move { writing.write(&to_write, 0, pattern(1, 20_000)).await });
    tokio::task::yield_now().await;
    assert!(!written.is_finished());
    lose(&fake, &volume).await;
    drop(order);
    assert_eq!(written.await.unwrap().unwrap_err().kind, ErrorKind::Io);
    volume.fsync(&file, false).await.unwrap();
    assert!(starting(&fake.take_log(), "write").is_empty(), "nothing of it was sent");
}

#[tokio::test]
async fn who_appends_after_the_session_was_lost_appends_behind_what_others_have() {
    let (fake, volume) = cluster().await;
    let ino = synced(&volume).await.ino();
    let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
    let file = open(&volume, ino, flags).await;
    lose(&fake, &volume).await;
    let other = fake.volume(options()).await;
    let others = open(&other, ino, OpenFlags::READ_WRITE).await;
    write(&other, &others, 20_000, pattern(2, 10_000)).await;
    other.fsync(&others, false).await.unwrap();
    let written = volume.write(&file, 0, pattern(3, 100)).await.unwrap();
    assert_eq!(written.offset, 30_000);
}

/// He was granted it in his next session, in which he did not unlock it: nobody could append to the file any more.
#[tokio::test]
async fn who_loses_his_session_while_he_waits_for_the_end_of_a_file_gives_it_back_in_the_next() {
    let (fake, volume) = cluster().await;
    let ino = synced(&volume).await.ino();
    fake.share();
    let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
    let file = open(&volume, ino, flags).await;
    fake.fail("lock", ErrorKind::WouldBlock);
    let gate = fake.lock_gate.write().await;
    let (appending, to_append) = (Arc::clone(&volume), Arc::clone(&file));
    let appended = tokio::spawn(async move { appending.write(&to_append, 0, pattern(2, 5)).await });
    while starting(&fake.take_log(), "lock").is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    lose(&fake, &volume).await;
    drop(gate);
    assert_eq!(appended.await.unwrap().unwrap_err().kind, ErrorKind::Io);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let locks = starting(&fake.take_log(), "lock");
    let last = format!("lock owner={} kind=0", u64::MAX - ino.0);
    assert!(locks.len() > 1 && locks.last() == Some(&last), "{locks:?}");
}
