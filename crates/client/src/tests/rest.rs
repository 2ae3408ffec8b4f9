//! Files that are to lie elsewhere although they are open.

use super::shared::until_logged;
use super::*;
use crate::file::Opening;
use crate::ops::open_mode;
use std::time::Duration;
use strake_wire::message::meta::{self, Ask, MetaAnswer, MetaOp};

fn is_awake(file: &OpenFile) -> bool {
    file.state.core().is_awake()
}

fn ask_to_rest(volume: &Arc<Volume>, file: &OpenFile) {
    volume.rest(&[Ask { ino: file.ino().0, number: 7, keep: false }]);
}

/// A file that rests, of which everything is written.
async fn resting(fake: &Fake, volume: &Arc<Volume>) -> Arc<OpenFile> {
    let file = create(volume, "a").await;
    write(volume, &file, 0, pattern(1, 100_000)).await;
    volume.fsync(&file, false).await.unwrap();
    while is_awake(&file) {
        // Who has sent it may be about to look whether there is more.
        ask_to_rest(volume, &file);
        tokio::task::yield_now().await;
    }
    until_logged(fake, "Told").await;
    file
}

/// What it wrote last would go where the file was.
#[tokio::test]
async fn who_writes_to_a_file_that_rests_asks_first_where_it_lies() {
    let (fake, volume) = cluster().await;
    let file = resting(&fake, &volume).await;
    fake.take_log();
    fake.lay_elsewhere(file.ino());
    for _ in 0..2 {
        write(&volume, &file, 0, pattern(2, 100_000)).await;
    }
    assert_eq!(file.state.core().placement().unwrap().layout().width, 1);
    assert_eq!(starting(&fake.take_log(), "getattr to write").len(), 1);
    volume.fsync(&file, false).await.unwrap();
    assert_eq!(read(&volume, &file, 0, 100_000).await, pattern(2, 100_000));
}

#[tokio::test]
async fn who_frees_or_copies_to_a_file_that_rests_asks_first_as_well() {
    let (fake, volume) = cluster().await;
    let file = resting(&fake, &volume).await;
    volume.fallocate(&file, FallocateMode::Punch, 0, 65_536).await.unwrap();
    assert_eq!(starting(&fake.take_log(), "getattr to write").len(), 1);
    assert!(is_awake(&file));
    let from = create(&volume, "from").await;
    write(&volume, &from, 0, pattern(3, 100_000)).await;
    volume.fsync(&from, false).await.unwrap();
    while is_awake(&file) {
        ask_to_rest(&volume, &file);
        tokio::task::yield_now().await;
    }
    fake.take_log();
    assert_eq!(volume.copy_range(&from, 0, &file, 0, 100_000).await.unwrap(), 100_000);
    assert_eq!(starting(&fake.take_log(), "getattr to write").len(), 1);
    assert_eq!(read(&volume, &file, 0, 100_000).await, pattern(3, 100_000));
}

/// Its bytes might arrive after all else was copied.
#[tokio::test]
async fn a_file_does_not_rest_before_all_is_written_and_told() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 10)).await;
    ask_to_rest(&volume, &file);
    assert!(is_awake(&file), "it is inside the inode, unsent");
    let gate = fake.gate.write().await;
    write(&volume, &file, 0, pattern(1, 100_000)).await;
    until_logged(&fake, "write").await;
    ask_to_rest(&volume, &file);
    assert!(is_awake(&file), "it is on its way");
    drop(gate);
    let told = fake.publish_gate.write().await;
    volume.drain(&file.state).await;
    ask_to_rest(&volume, &file);
    assert!(is_awake(&file), "nobody knows of it");
    drop(told);
    assert!(starting(&fake.take_log(), "Told").is_empty());
}

/// However often it is asked.
async fn stays_awake(volume: &Arc<Volume>, file: &OpenFile) -> bool {
    for _ in 0..100 {
        ask_to_rest(volume, file);
        tokio::task::yield_now().await;
    }
    is_awake(file)
}

/// What has failed may be carried out yet: who sees it then must see it for ever.
#[tokio::test]
async fn a_file_of_which_a_write_has_failed_does_not_rest() {
    let (fake, volume) = cluster().await;
    let file = resting(&fake, &volume).await;
    fake.fail("write", ErrorKind::NoSpace);
    write(&volume, &file, 0, pattern(2, 100_000)).await;
    volume.fsync(&file, false).await.unwrap_err();
    volume.fsync(&file, false).await.unwrap();
    assert!(stays_awake(&volume, &file).await);
}

#[tokio::test]
async fn nor_does_one_of_which_freeing_a_part_has_failed() {
    let (fake, volume) = cluster().await;
    let file = resting(&fake, &volume).await;
    fake.fail("punch", ErrorKind::NoSpace);
    let punch = async || volume.fallocate(&file, FallocateMode::Punch, 0, 65_536).await;
    punch().await.unwrap_err();
    punch().await.unwrap();
    assert!(stays_awake(&volume, &file).await);
}

/// The answer to an open that was counted before tells where the file was, and that may be over.
#[tokio::test]
async fn what_was_asked_before_a_file_rested_does_not_wake_it() {
    let (fake, volume) = cluster().await;
    let before = volume.now();
    let file = resting(&fake, &volume).await;
    let mut core = file.state.core();
    let incarnation = core.incarnation;
    core.wake(before, incarnation);
    assert!(!core.is_awake());
    core.wake(volume.now(), incarnation + 1);
    assert!(!core.is_awake(), "the server has counted it in a session that is over here");
    core.wake(volume.now(), incarnation);
    assert!(core.is_awake());
}

/// The server counts him as one who reads: what the other handle wrote then would go where the file was.
#[tokio::test]
async fn who_cuts_a_file_by_opening_it_to_read_does_not_wake_it() {
    let (fake, volume) = cluster().await;
    let file = resting(&fake, &volume).await;
    let cut = open(&volume, file.ino(), OpenFlags { truncate: true, ..OpenFlags::READ }).await;
    assert!(!is_awake(&cut));
    fake.take_log();
    write(&volume, &file, 0, pattern(2, 100_000)).await;
    assert_eq!(starting(&fake.take_log(), "getattr to write").len(), 1);
}

/// The file had rested since, and all that knew of that was gone: the server counts it as resting.
#[tokio::test]
async fn what_was_asked_before_a_file_rested_wakes_no_new_state_of_it_either() {
    let (fake, volume) = cluster().await;
    let before = volume.now();
    let file = resting(&fake, &volume).await;
    let ino = file.ino();
    volume.release(&file).await.unwrap();
    volume.report_close(ino);
    drop(file);
    assert!(volume.inodes().file(ino).is_none());
    let (cred, flags) = (Credentials::root(), OpenFlags::READ_WRITE);
    let op = MetaOp::Open(meta::Open { ino: ino.0, mode: open_mode(flags, &volume) });
    let said = volume.mutate_as(&cred, op).await.unwrap();
    let MetaAnswer::Opened(opened) = said.answer else { panic!("{:?}", said.answer) };
    let (incarnation, told_cuts) = (said.incarnation, said.told_cuts);
    let asked = before;
    let told = Opening { flags, opened, created: false, asked, incarnation, told_cuts };
    let file = volume.opened(&cred, told).await.unwrap();
    assert!(!is_awake(&file));
    fake.take_log();
    write(&volume, &file, 0, pattern(2, 100_000)).await;
    assert_eq!(starting(&fake.take_log(), "getattr to write").len(), 1);
}

/// Of the one before the server learns nothing any more, and of the next only what was listed for it.
#[tokio::test]
async fn who_was_awake_in_the_incarnation_before_and_is_told_so_stays_awake() {
    let (_, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let mut core = file.state.core();
    let first = core.incarnation;
    core.register_next(first + 1, true);
    assert!(core.is_awake());
    core.register(first + 2);
    core.register_next(first + 3, true);
    assert!(!core.is_awake(), "it was opened anew to read meanwhile");
    core.wake(volume.now(), first + 3);
    core.register_next(first + 4, false);
    assert!(!core.is_awake(), "the server was not told");
}

#[tokio::test]
async fn a_session_that_goes_on_asks_nothing_and_a_new_one_asks_where_files_lie() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 100_000)).await;
    volume.fsync(&file, false).await.unwrap();
    for (lost, asked) in [(false, 0), (true, 1)] {
        match lost {
            true => fake.forget_session(),
            false => fake.restart(),
        }
        volume.tick_session(volume.share_of(Ino::ROOT), 5).await;
        fake.take_log();
        // What is not written yet is that of the new session.
        write(&volume, &file, 0, pattern(2, 100_000)).await;
        assert_eq!(starting(&fake.take_log(), "getattr to write").len(), asked, "{lost}");
        volume.fsync(&file, false).await.unwrap();
    }
}

/// What was cut where the file lies by then was not made durable there.
#[tokio::test]
async fn who_cuts_a_file_that_lies_elsewhere_syncs_it_there() {
    let (fake, volume) = cluster().await;
    let file = resting(&fake, &volume).await;
    fake.lay_elsewhere(file.ino());
    set_length(&volume, &file, 70_000).await;
    let core = file.state.core();
    let groups = core.unsynced.own_marks();
    let now = core.placement().unwrap();
    assert_eq!(groups.keys().collect::<Vec<_>>(), now.slots().iter().collect::<Vec<_>>());
}

/// What lies where a file was does not lie there for ever.
#[tokio::test(start_paused = true)]
async fn what_took_long_to_read_is_read_again_where_the_file_lies_now() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(crate::testing::Paused::default());
    let volume = fake.volume(VolumeOptions { clock, ..options() }).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 100_000)).await;
    volume.fsync(&file, false).await.unwrap();
    let (life, began) = (file.state.life(), volume.now());
    let from = file.state.core().placement().unwrap();
    fake.lay_elsewhere(file.ino());
    assert!(!volume.has_moved(life, Some(&from), began).await.unwrap(), "it lies there still");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(volume.has_moved(life, Some(&from), began).await.unwrap());
    let now = file.state.core().placement().unwrap();
    assert!(!volume.has_moved(life, Some(&now), began).await.unwrap());
}

/// A virtual machine that its host has held does not know that time went by.
#[tokio::test]
async fn what_was_read_over_the_end_of_a_session_is_read_again_where_the_file_lies_now() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 100_000)).await;
    volume.fsync(&file, false).await.unwrap();
    let (life, began) = (file.state.life(), volume.now());
    let from = file.state.core().placement().unwrap();
    fake.lay_elsewhere(file.ino());
    fake.forget_session();
    volume.tick_session(volume.share_of(Ino::ROOT), 5).await;
    assert!(volume.has_moved(life, Some(&from), began).await.unwrap());
}
