//! Servers that say nothing.

use super::*;
use crate::pace::Way;
use crate::testing::Paused;
use crate::testing::pairs::Mood;
use futures::future::join_all;
use std::time::Duration;
use strake_wire::message::meta::{self, MetaOp};
use tokio::time::{sleep, timeout};

/// How a volume is opened that waits for so long.
fn patient(seconds: u64) -> VolumeOptions {
    let clock = Arc::new(Paused::default());
    VolumeOptions { clock, operation_wait_ms: seconds * 1_000, ..options() }
}

/// The time began with the first answer, and an attempt had as long as a call has: here for ever.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_server_says_nothing_fails_when_the_wait_is_over() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let _silent = fake.publish_gate.write().await;
    let told = timeout(Duration::from_secs(35), volume.flush(&file)).await;
    assert_eq!(told.expect("it ends").unwrap_err().kind, ErrorKind::TimedOut);
}

/// A target may sync for longer than a mount is patient, and another one do it when that is lost meanwhile.
#[tokio::test(start_paused = true)]
async fn a_sync_is_waited_for_while_its_target_is_heard_of() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume_in_pair(patient(30)).await;
    let file = create(&volume, "a").await;
    let written = async |at| {
        write(&volume, &file, at, pattern(1, 20_000)).await;
        volume.flush(&file).await.unwrap();
    };
    written(0).await;
    fake.pairs.set(0, Mood::Slow(Duration::from_secs(100)));
    volume.fsync(&file, false).await.unwrap();
    fake.pairs.heal(0);
    written(20_000).await;
    fake.pairs.set(0, Mood::Silent);
    let move_away = async {
        sleep(Duration::from_secs(60)).await;
        fake.pairs.move_to(&[1], 0);
    };
    let (synced, ()) = tokio::join!(volume.fsync(&file, false), move_away);
    synced.unwrap();
    written(40_000).await;
    fake.pairs.set(1, Mood::Silent);
    let restart = async {
        sleep(Duration::from_secs(60)).await;
        fake.pairs.lose(1);
        sleep(Duration::from_secs(10)).await;
        fake.pairs.find(1);
    };
    let (synced, ()) = tokio::join!(volume.fsync(&file, false), restart);
    synced.unwrap();
    written(60_000).await;
    fake.pairs.set(1, Mood::Silent);
    fake.pairs.lose(1);
    let told = timeout(Duration::from_secs(35), volume.fsync(&file, false)).await;
    assert_eq!(told.expect("it ends").unwrap_err().kind, ErrorKind::TimedOut);
}

/// What a volume in a pair has to sync, of which the target says every 100 s that it is still at work.
async fn long_sync(fake: &Arc<Fake>) -> (Arc<Volume>, Arc<OpenFile>) {
    let volume = fake.volume_in_pair(patient(30)).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    fake.pairs.set(0, Mood::Works(Duration::from_secs(100)));
    (volume, file)
}

/// It was given up after 110 s, and nobody was told that it waited.
#[tokio::test(start_paused = true)]
async fn a_sync_is_waited_for_as_long_as_its_target_says_that_it_is_at_work() {
    let fake = Arc::new(Fake::default());
    let (volume, file) = long_sync(&fake).await;
    let look = async {
        sleep(Duration::from_secs(550)).await;
        let told = volume.waits.told(volume.clock().monotonic());
        let of_file = told.iter().filter(|wait| wait.ino != 0);
        let limits: Vec<_> = of_file.map(|wait| wait.limit_ms).collect();
        assert_eq!(limits, [20 * 60_000], "{told:?}");
        fake.pairs.heal(0);
    };
    let (synced, ()) = tokio::join!(volume.fsync(&file, false), look);
    synced.unwrap();
}

/// Who has said once that it is at work might say nothing more, and who says it again and again never be done.
#[tokio::test(start_paused = true)]
async fn a_sync_of_which_its_target_says_nothing_more_or_the_same_for_ever_is_given_up() {
    for (falls_silent, limit) in [(true, 330), (false, 20 * 60 + 60)] {
        let fake = Arc::new(Fake::default());
        let (volume, file) = long_sync(&fake).await;
        let fall_silent = async {
            sleep(Duration::from_secs(150)).await;
            if falls_silent {
                fake.pairs.set(0, Mood::Silent);
            }
        };
        let both = async { tokio::join!(volume.fsync(&file, false), fall_silent).0 };
        let told = timeout(Duration::from_secs(limit), both).await.expect("it ends");
        assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut, "{falls_silent}");
    }
}

/// What is told when others open the file, or it is closed, waited until its sync was done: others were told that it is
/// held back.
#[tokio::test(start_paused = true)]
async fn what_is_told_of_a_file_does_not_wait_for_a_long_sync_of_it() {
    for overwritten in [false, true] {
        let fake = Arc::new(Fake::default());
        let (volume, file) = long_sync(&fake).await;
        if overwritten {
            write(&volume, &file, 0, pattern(2, 20_000)).await;
        }
        let tell = async {
            // What is sent with the sync itself may be sent to be durable.
            sleep(Duration::from_secs(20)).await;
            write(&volume, &file, 0, pattern(3, 20_000)).await;
            let told = timeout(Duration::from_secs(5), volume.flush(&file)).await;
            told.expect("it does not wait").unwrap();
            let root = Credentials::root();
            let cut = volume.setattr(&root, file.ino(), length(10_000), Some(&file));
            let cut = timeout(Duration::from_secs(5), cut).await;
            cut.expect("it does not wait").unwrap();
            fake.pairs.heal(0);
        };
        let (synced, ()) = tokio::join!(volume.fsync(&file, false), tell);
        synced.unwrap();
    }
}

/// The same of what another mount had moved out of the inode meanwhile: that was synced while the order of the file was held.
#[tokio::test(start_paused = true)]
async fn what_is_told_of_a_file_does_not_wait_for_a_long_sync_of_what_has_moved_out() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume_in_pair(patient(30)).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 100)).await;
    fake.fail("inline", ErrorKind::FileTooBig);
    fake.pairs.set(0, Mood::Works(Duration::from_secs(100)));
    let tell = async {
        sleep(Duration::from_secs(20)).await;
        write(&volume, &file, 0, pattern(2, 100)).await;
        let told = timeout(Duration::from_secs(5), volume.flush(&file)).await;
        told.expect("it does not wait").unwrap();
        fake.take_log();
        fake.pairs.heal(0);
    };
    let (synced, ()) = tokio::join!(volume.fsync(&file, false), tell);
    synced.unwrap();
    assert_eq!(
        starting(&fake.take_log(), "sync target").len(),
        1,
        "targets are asked all the same"
    );
}

/// The order of the file keeps it from that no more, which is let go before targets are waited for.
#[tokio::test(start_paused = true)]
async fn a_sync_of_a_file_that_is_being_synced_ends_after_that() {
    let fake = Arc::new(Fake::default());
    let (volume, file) = long_sync(&fake).await;
    let second = async {
        sleep(Duration::from_secs(10)).await;
        let early = timeout(Duration::from_secs(50), volume.fsync(&file, false)).await;
        assert!(early.is_err(), "nothing is durable yet");
        fake.pairs.heal(0);
        volume.fsync(&file, false).await
    };
    let (first, second) = tokio::join!(volume.fsync(&file, false), second);
    first.and(second).unwrap();
}

/// It was said to be waited for by the longer limit, which only a target that says that it is at work is given.
#[tokio::test(start_paused = true)]
async fn a_sync_whose_target_was_lost_is_not_said_to_be_at_work() {
    let fake = Arc::new(Fake::default());
    let (volume, file) = long_sync(&fake).await;
    fake.pairs.set(0, Mood::Silent);
    let look = async {
        sleep(Duration::from_secs(60)).await;
        fake.pairs.lose(0);
        sleep(Duration::from_secs(10)).await;
        fake.pairs.find(0);
        fake.pairs.set(0, Mood::Silent);
        sleep(Duration::from_secs(5)).await;
        volume.waits.told(volume.clock().monotonic())
    };
    let told = tokio::select! {
        synced = volume.fsync(&file, false) => panic!("nobody has answered: {synced:?}"),
        told = look => told,
    };
    assert!(told.iter().all(|wait| wait.limit_ms < 20 * 60_000), "{told:?}");
}

/// It was given up when the mount's wait was over, and what was written was lost, although the target was only slow.
#[tokio::test(start_paused = true)]
async fn a_write_is_waited_for_while_its_target_is_heard_of() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume_in_pair(patient(30)).await;
    let file = create(&volume, "a").await;
    fake.pairs.set(0, Mood::Slow(Duration::from_secs(100)));
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let quicken = async {
        sleep(Duration::from_secs(70)).await;
        fake.pairs.heal(0);
    };
    let (told, ()) = tokio::join!(volume.flush(&file), quicken);
    told.unwrap();
}

/// The first call ended after 20 s, and then nothing was told for as long as the primary said at once that it is at work.
#[tokio::test(start_paused = true)]
async fn a_write_whose_target_says_again_and_again_that_it_is_at_work_is_told_of() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume_in_pair(patient(30)).await;
    let file = create(&volume, "a").await;
    fake.pairs.set(0, Mood::Says(ErrorKind::NotCurrent));
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let look = async {
        sleep(Duration::from_secs(60)).await;
        let told = volume.waits.told(volume.clock().monotonic());
        let limits: Vec<_> = told.iter().map(|wait| wait.limit_ms).collect();
        assert!(limits.contains(&140_000), "{told:?}");
        fake.pairs.heal(0);
    };
    let (told, ()) = tokio::join!(volume.flush(&file), look);
    told.unwrap();
}

/// The half of a sync that waits for the metadata server's disk was given up when the mount's wait was over.
#[tokio::test(start_paused = true)]
async fn a_durable_change_is_waited_for_while_its_metadata_server_is_heard_of() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let slow = fake.publish_gate.write().await;
    let quicken = async {
        sleep(Duration::from_secs(100)).await;
        drop(slow);
    };
    let (synced, ()) = tokio::join!(volume.fsync(&file, false), quicken);
    synced.unwrap();
}

/// It stood in line behind them for as long as that target was waited for: they had all the memory.
#[tokio::test(start_paused = true)]
async fn who_writes_elsewhere_does_not_wait_for_memory_behind_a_target_that_is_away() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let (dead, file) = (create(&volume, "dead").await, create(&volume, "a").await);
    let placement = dead.state.core().placement().unwrap();
    let group = |nth: u64| placement.group_of(placement.layout().chunk_at(nth * CHUNK));
    let lost = group(0);
    fake.lose_group(lost);
    let (there, elsewhere): (Vec<u64>, Vec<u64>) = (0..2_000).partition(|nth| group(*nth) == lost);
    let filling = Arc::clone(&volume);
    let full = tokio::spawn(async move {
        for nth in there {
            write(&filling, &dead, nth * CHUNK, pattern(1, CHUNK as usize)).await;
        }
    });
    // All but what is left to others.
    super::shared::until(|| volume.memory().dirty_bytes() >= 14 << 20).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(volume.memory().dirty_bytes(), 14 << 20, "it gets nothing of that");
    for nth in elsewhere.into_iter().take(100) {
        let written = write(&volume, &file, nth * CHUNK, pattern(2, CHUNK as usize));
        timeout(Duration::from_secs(5), written).await.expect("it does not wait for the other one");
    }
    assert!(!full.is_finished());
    full.abort();
}

/// All senders of the file had parts for it, and what came last was late.
#[tokio::test(start_paused = true)]
async fn no_more_is_under_way_to_a_slow_group_than_to_it_alone() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let file = create(&volume, "a").await;
    let placement = file.state.core().placement().unwrap();
    let slow = placement.group_of(placement.layout().chunk_at(0));
    let small = volume.paces().begin(slow, Way::Sent, CHUNK, Duration::ZERO);
    small.answered(Duration::from_millis(10));
    fake.lose_group(slow);
    for nth in 0..100 {
        write(&volume, &file, nth * CHUNK, pattern(1, CHUNK as usize)).await;
    }
    sleep(Duration::from_secs(1)).await;
    // The others have answered.
    assert_eq!(file.state.core().in_flight.len(), 3);
}

/// It was not sent before more was ready than there were senders, or the other group was given up.
#[tokio::test(start_paused = true)]
async fn what_is_ready_for_a_group_does_not_wait_for_senders_of_one_that_is_away() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let file = create(&volume, "a").await;
    let placement = file.state.core().placement().unwrap();
    let group_at = |nth| placement.group_of(placement.layout().chunk_at(nth * CHUNK));
    let elsewhere = (1..100).find(|&nth| group_at(nth) != group_at(0)).expect("it has several");
    fake.lose_group(group_at(0));
    for nth in [0, elsewhere] {
        write(&volume, &file, nth * CHUNK, pattern(1, CHUNK as usize)).await;
        sleep(Duration::from_millis(100)).await;
    }
    let core = file.state.core();
    let under_way: Vec<u64> = core.in_flight.keys().copied().collect();
    assert!(core.dirty.is_empty() && under_way == [0], "{under_way:?}");
}

/// It waited for ever, and nobody was told.
#[tokio::test(start_paused = true)]
async fn who_waits_for_memory_in_vain_is_told_of_and_fails_in_the_end() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let file = create(&volume, "a").await;
    let held = fill_memory(&volume);
    let look = async {
        sleep(Duration::from_secs(5)).await;
        let told = volume.waits.told(volume.clock().monotonic());
        assert!(told.iter().any(|wait| wait.what.contains("memory")), "{told:?}");
    };
    let written = volume.write(&file, CHUNK, pattern(1, 100));
    let (written, ()) = tokio::join!(timeout(Duration::from_secs(200), written), look);
    assert_eq!(written.expect("it ends").unwrap_err().kind, ErrorKind::TimedOut);
    drop(held);
    write(&volume, &file, CHUNK, pattern(1, 100)).await;
}

/// The answer came when the wait was over, and nobody did what it said.
#[tokio::test(start_paused = true)]
async fn a_group_that_moves_after_a_short_wait_is_followed() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume_in_pair(patient(1)).await;
    let file = create(&volume, "a").await;
    fake.pairs.set(0, Mood::Silent);
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let move_away = async {
        sleep(Duration::from_secs(3)).await;
        fake.pairs.move_to(&[1], 0);
    };
    let (told, ()) = tokio::join!(volume.flush(&file), move_away);
    told.unwrap();
}

/// Each of them opened the session once more when its turn came, and waited as long as the first one had.
#[tokio::test(start_paused = true)]
async fn who_waits_for_one_session_waits_no_longer_than_for_an_answer() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(10)).await;
    let file = create(&volume, "a").await;
    fake.restart();
    for _ in 0..10_000 {
        fake.fail("session", ErrorKind::Unavailable);
    }
    let (root, ino) = (Credentials::root(), file.ino().0);
    let ask = || volume.ask(&root, MetaOp::GetAttr(meta::Look { ino, ..Default::default() }));
    let asked = join_all((0..10).map(|_| ask()));
    let told = timeout(Duration::from_secs(35), asked).await.expect("they end");
    assert!(told.iter().all(|told| told.as_ref().unwrap_err().kind == ErrorKind::TimedOut));
}

/// The processes that closed one file waited one after the other, each as long as an operation may.
#[tokio::test(start_paused = true)]
async fn who_stands_in_line_behind_a_flush_in_vain_is_told_with_it() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(30)).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let silent = fake.publish_gate.write().await;
    let closes = join_all((0..20).map(|_| volume.flush(&file)));
    let told = timeout(Duration::from_secs(35), closes).await.expect("they end");
    assert!(told.iter().all(|told| told.as_ref().unwrap_err().kind == ErrorKind::TimedOut));
    drop(silent);
    volume.flush(&file).await.unwrap();
}

/// They were told that the metadata server says nothing, which had answered all the time.
#[tokio::test(start_paused = true)]
async fn who_stands_in_line_behind_a_cut_that_others_hold_up_is_not_told_with_it() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { held_back_wait_ms: 20_000, ..patient(30) }).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    for _ in 0..1_000 {
        fake.fail("setattr", ErrorKind::HeldBack);
    }
    let root = Credentials::root();
    let cut = volume.setattr(&root, file.ino(), length(10), Some(&file));
    let (cut, told) = tokio::join!(cut, volume.flush(&file));
    assert_eq!(cut.unwrap_err().kind, ErrorKind::TimedOut);
    told.unwrap();
}

/// The soak test found that: an open waited for what a killed mount had held back, and failed at once when the server was killed, too.
#[tokio::test(start_paused = true)]
async fn a_server_that_goes_while_others_are_waited_for_is_waited_for_as_long_as_any() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { held_back_wait_ms: 60_000, ..patient(10) }).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    // Some 25 s of these, and some 4 s of those.
    for kind in [[ErrorKind::HeldBack; 50].as_slice(), &[ErrorKind::Unavailable; 12]].concat() {
        fake.fail("setattr", kind);
    }
    let root = Credentials::root();
    volume.setattr(&root, file.ino(), length(10), Some(&file)).await.unwrap();
    // And both end in the end: who has held back for his time is not waited for any longer.
    for nth in 0..2_000 {
        let kind = if nth % 20 == 0 { ErrorKind::Unavailable } else { ErrorKind::HeldBack };
        fake.fail("setattr", kind);
    }
    let cut = volume.setattr(&root, file.ino(), length(9), Some(&file));
    let told = timeout(Duration::from_secs(72), cut).await.expect("it ends");
    assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut);
}

/// The end of that wait, which comes while the server is at the last request, counted as one more server that was lost.
#[tokio::test(start_paused = true)]
async fn what_others_hold_back_is_waited_for_no_longer_than_that_may_take() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { held_back_wait_ms: 60_000, ..patient(10) }).await;
    let file = create(&volume, "a").await;
    for _ in 0..2_000 {
        fake.fail("setattr", ErrorKind::HeldBack);
    }
    let root = Credentials::root();
    let cut =
        timeout(Duration::from_secs(62), volume.setattr(&root, file.ino(), length(9), Some(&file)));
    let stands_still = async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        let _asked = fake.set_attr_gate.write().await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    };
    let (told, ()) = tokio::join!(cut, stands_still);
    assert_eq!(told.expect("it ends").unwrap_err().kind, ErrorKind::TimedOut);
}

/// One after the other waited for the same target for a second: what had been heard was too old when it was.
#[tokio::test(start_paused = true)]
async fn all_who_ask_for_room_wait_for_a_silent_target_together() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume_in_pair(patient(30)).await;
    fake.pairs.set(0, Mood::Silent);
    let asked = join_all((0..20).map(|_| volume.statfs()));
    let told = timeout(Duration::from_secs(3), asked).await.expect("they wait together");
    assert!(told.iter().all(|told| told.is_ok()));
}

/// Each waited for the metadata server as long as the one before, after it.
#[tokio::test(start_paused = true)]
async fn who_stands_in_line_to_ask_for_room_in_vain_is_told_with_it() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(patient(10)).await;
    let file = create(&volume, "a").await;
    for _ in 0..1_000 {
        fake.fail("VolumeStat", ErrorKind::Unavailable);
    }
    let asked = join_all((0..20).map(|_| volume.statfs()));
    let reserved = volume.fallocate(&file, FallocateMode::Allocate, 0, 10);
    let both = async { tokio::join!(asked, reserved) };
    let (told, reserved) = timeout(Duration::from_secs(25), both).await.expect("they end");
    assert!(told.iter().all(|told| told.as_ref().unwrap_err().kind == ErrorKind::TimedOut));
    assert_eq!(reserved.unwrap_err().kind, ErrorKind::TimedOut);
}
