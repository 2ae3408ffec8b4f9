//! What becomes of what a mount knows when its metadata server has lost it with its power.

use super::deferred::mounts;
use super::*;

/// A leasing mount with an open file of which so much is on disk.
async fn synced(bytes: Bytes) -> (Arc<Fake>, Arc<Volume>, Arc<OpenFile>) {
    let (fake, volume, _other) = mounts().await;
    let file = create(&volume, "f").await;
    write(&volume, &file, 0, bytes).await;
    fake.keep_synced_apart();
    volume.fsync(&file, false).await.unwrap();
    (fake, volume, file)
}

/// What somebody else finds in a file.
async fn found(fake: &Arc<Fake>, ino: Ino) -> Vec<u8> {
    let other = fake.volume(options()).await;
    let file = open(&other, ino, OpenFlags::READ).await;
    read(&other, &file, 0, 100_000).await
}

/// It succeeded: the server was asked for nothing but a sync of its journal.
#[tokio::test]
async fn an_fsync_of_a_file_that_is_nowhere_fails_each_time() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    fake.restart_without(ino);
    for _ in 0..2 {
        assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::Stale);
    }
    volume.fsync_dir(ino).await.expect("another mount may have removed a directory");
    volume.sync_all().await.unwrap();
}

/// The bytes were with the targets, and the file ended before them: the `fsync` had only synced the journal.
#[tokio::test]
async fn a_length_that_went_with_the_power_is_told_again_before_an_fsync_is_over() {
    let (fake, volume, file) = synced(pattern(1, 20_000)).await;
    write(&volume, &file, 20_000, pattern(2, 20_000)).await;
    volume.flush(&file).await.unwrap();
    assert_eq!(fake.server_length(file.ino()), 40_000);
    fake.lose_power();
    assert_eq!(fake.server_length(file.ino()), 20_000);
    volume.fsync(&file, false).await.unwrap();
    assert_eq!(fake.server_length(file.ino()), 40_000);
    fake.lose_power();
    let all = [&pattern(1, 20_000)[..], &pattern(2, 20_000)[..]].concat();
    assert_eq!(found(&fake, file.ino()).await, all, "it was synced");
    assert_eq!(read(&volume, &file, 0, 100_000).await, all);
}

/// A mount went on to show what was lost, and nobody else could see it.
#[tokio::test]
async fn small_contents_that_went_with_the_power_are_written_again() {
    for sync_all in [false, true] {
        let (fake, volume, file) = synced(pattern(1, 100)).await;
        write(&volume, &file, 50, pattern(2, 100)).await;
        volume.flush(&file).await.unwrap();
        fake.lose_power();
        match sync_all {
            true => volume.sync_all().await.unwrap(),
            false => volume.fsync(&file, false).await.unwrap(),
        }
        fake.lose_power();
        let all = [&pattern(1, 50)[..], &pattern(2, 100)[..]].concat();
        assert_eq!(found(&fake, file.ino()).await, all);
        assert_eq!(read(&volume, &file, 0, 1_000).await, all);
    }
}

/// A later length was told again, and a cut was back.
#[tokio::test]
async fn a_change_that_cannot_be_made_again_fails_the_next_fsync_once() {
    for bytes in [100, 20_000] {
        let (fake, volume, file) = synced(pattern(1, bytes)).await;
        set_length(&volume, &file, 10).await;
        fake.lose_power();
        let error = volume.fsync(&file, false).await.unwrap_err();
        assert!(error.kind == ErrorKind::Io && error.detail.contains("lost power"), "{error}");
        volume.fsync(&file, false).await.unwrap();
        assert_eq!(volume.getattr(file.ino()).await.unwrap().length, bytes as u64);
        // And none of what was on disk before.
        set_length(&volume, &file, 10).await;
        volume.fsync(&file, false).await.unwrap();
        fake.lose_power();
        volume.fsync(&file, false).await.unwrap();
        assert_eq!(fake.server_length(file.ino()), 10);
    }
}

/// Who keeps no leases does not know whether somebody else has changed the file since.
#[tokio::test]
async fn without_leases_nothing_is_told_again_and_the_fsync_fails() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "f").await;
    fake.keep_synced_apart();
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    fake.lose_power();
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(fake.server_length(file.ino()), 0);
}

#[tokio::test]
async fn what_others_may_have_changed_since_is_not_told_again() {
    let (fake, volume, file) = synced(pattern(1, 20_000)).await;
    write(&volume, &file, 20_000, pattern(2, 20_000)).await;
    volume.flush(&file).await.unwrap();
    file.state.core().await_changes();
    fake.lose_power();
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(fake.server_length(file.ino()), 20_000);
}

#[tokio::test]
async fn attributes_of_before_a_loss_of_power_are_not_believed_after_it() {
    let (fake, volume, file) = synced(pattern(1, 100)).await;
    let (cred, ino) = (Credentials::root(), file.ino());
    for mode in [0o600, 0o640] {
        let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
        volume.setattr(&cred, ino, change, None).await.unwrap();
    }
    fake.lose_power();
    volume.tick_session(volume.share_of(ino), 5).await;
    let attr = volume.getattr(ino).await.unwrap();
    assert_eq!(attr.mode & 0o777, 0o644, "what the server has, although its version was lower");
}

/// It asked for the contents again and again, and believed no answer.
#[tokio::test]
async fn a_small_write_ends_although_the_server_knows_only_of_earlier_versions() {
    let (fake, volume, file) = synced(pattern(1, 100)).await;
    write(&volume, &file, 0, pattern(2, 100)).await;
    volume.flush(&file).await.unwrap();
    fake.lose_power();
    volume.tick_session(volume.share_of(file.ino()), 5).await;
    write(&volume, &file, 0, pattern(3, 100)).await;
    volume.fsync(&file, false).await.unwrap();
    assert_eq!(found(&fake, file.ino()).await, pattern(3, 100));
    // One of an earlier release does not say so.
    fake.go_back(file.ino());
    file.state.core().inline_stale = true;
    let error = volume.write(&file, 0, pattern(4, 100)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
}
