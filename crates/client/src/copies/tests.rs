//! Groups of two members that die, lag and lose answers.

use super::awaited;
use crate::testing::pairs::{Asked, Mood, PAIR};
use crate::testing::{CHUNK, Fake, Paused, create, options, pattern, read, write};
use crate::tests::Still;
use crate::{FallocateMode, OpenFile, SeekTo, Volume, VolumeOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{ErrorKind, GroupId};
use strake_wire::message::manager::{ClusterMap, Group, Server, Target};
use strake_wire::message::storage::Attempt;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

async fn pair() -> (Arc<Fake>, Arc<Volume>, Arc<OpenFile>) {
    let fake = Arc::new(Fake::default());
    // Only the time of tokio goes on: whoever waits does so until a test is over.
    let patient = VolumeOptions { clock: Arc::new(Still), ..options() };
    let volume = fake.volume_in_pair(patient).await;
    let file = create(&volume, "file").await;
    // The poller has fetched its first map, and would fetch another at once.
    sleep(Duration::from_millis(500)).await;
    (fake, volume, file)
}

/// With contents that are sent and a log that is empty.
async fn written(chunks: u64) -> (Arc<Fake>, Arc<Volume>, Arc<OpenFile>) {
    let (fake, volume, file) = pair().await;
    write(&volume, &file, 0, contents(chunks)).await;
    volume.flush(&file).await.unwrap();
    // What is read is to come from a member.
    volume.memory().kept().forget(file.state.ino());
    fake.pairs.take_asked();
    (fake, volume, file)
}

fn contents(chunks: u64) -> bytes::Bytes {
    pattern(1, (chunks * CHUNK) as usize)
}

fn targets(asked: &[Asked]) -> Vec<u32> {
    asked.iter().map(|asked| asked.target).collect()
}

fn numbers(asked: &[Asked]) -> BTreeSet<u64> {
    asked.iter().map(|asked| asked.attempt.unwrap().seq).collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Who is asked first for the first chunk, and the other.
async fn order(fake: &Fake, volume: &Arc<Volume>, file: &Arc<OpenFile>) -> (u32, u32) {
    read(volume, file, 0, 10).await;
    let asked = targets(&fake.pairs.take_asked());
    assert_eq!(asked.len(), 1);
    (asked[0], 1 - asked[0])
}

#[tokio::test(start_paused = true)]
async fn writes_to_a_dead_primary_go_on_with_the_next_under_their_numbers() {
    let (fake, volume, file) = pair().await;
    let files = [file, create(&volume, "second").await, create(&volume, "third").await];
    fake.pairs.set(0, Mood::Silent);
    for file in &files {
        write(&volume, file, 0, contents(1)).await;
    }
    fake.pairs.take_fetches();
    sleep(seconds(3)).await;
    let before = fake.pairs.take_asked();
    assert_eq!(targets(&before), [0; 3]);
    // Sooner than the poll of each second, and however many writes wait a few times a second.
    let fetches = fake.pairs.take_fetches();
    assert!((5..=30).contains(&fetches), "{fetches}");
    fake.pairs.move_to(&[1], 0);
    for file in &files {
        volume.flush(file).await.unwrap();
    }
    let after = fake.pairs.take_asked();
    assert_eq!(targets(&after), [1; 3]);
    assert!(after.iter().all(|asked| asked.epoch == 2), "{after:?}");
    assert_eq!(numbers(&after), numbers(&before));
    for file in &files {
        assert_eq!(read(&volume, file, 0, CHUNK as u32).await, contents(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_refused_for_an_old_map_is_sent_again_with_the_new_one() {
    let (fake, volume, file) = pair().await;
    fake.pairs.move_to(&[1, 0], 0);
    write(&volume, &file, 0, contents(1)).await;
    volume.flush(&file).await.unwrap();
    let asked = fake.pairs.take_asked();
    assert_eq!(targets(&asked), [0, 1]);
    assert_eq!([asked[0].epoch, asked[1].epoch], [1, 2]);
    assert_eq!(numbers(&asked).len(), 1);
}

/// What is written is flushed; three seconds later another member leads, and it is done.
async fn written_when_another_leads(fake: &Fake, volume: &Arc<Volume>, file: &Arc<OpenFile>) {
    write(volume, file, 0, contents(1)).await;
    let (v, f) = (volume.clone(), file.clone());
    let flush = tokio::spawn(async move { v.flush(&f).await });
    sleep(seconds(3)).await;
    fake.pairs.move_to(&[1], 0);
    flush.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_tried_until_another_leads() {
    let (fake, volume, file) = pair().await;
    fake.pairs.set(0, Mood::Says(ErrorKind::Unavailable));
    written_when_another_leads(&fake, &volume, &file).await;
    let asked = fake.pairs.take_asked();
    assert_eq!(asked.last().unwrap().target, 1);
    assert!(asked.len() > 2 && numbers(&asked).len() == 1, "{asked:?}");
}

/// It was sent all the same, in an epoch that was over, and what was sent anew had its turn after that.
#[tokio::test]
async fn what_was_for_a_primary_that_does_not_lead_any_more_is_not_sent() {
    let fake = Arc::new(Fake::default());
    let patient = VolumeOptions { operation_wait_ms: 60_000, ..options() };
    let volume = fake.volume_in_pair(patient).await;
    // Who connects to it waits with all that he has to send.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fake.pairs.place(0, mute.local_addr().unwrap().to_string());
    let placed = async {
        while volume.map().current().servers.len() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(seconds(10), placed).await.unwrap();
    let file = create(&volume, "file").await;
    write(&volume, &file, 0, contents(1)).await;
    let (v, f) = (volume.clone(), file.clone());
    let flush = tokio::spawn(async move { v.flush(&f).await });
    let (mut waits, _) = timeout(seconds(10), mute.accept()).await.unwrap().unwrap();
    fake.pairs.move_to(&[1], 0);
    timeout(seconds(10), flush).await.unwrap().unwrap().unwrap();
    let ended = timeout(seconds(10), waits.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "there is still something to be sent");
}

/// It failed at once, as a call does to a server of another cluster, although another copy was there.
#[tokio::test(start_paused = true)]
async fn a_member_whose_certificate_is_refused_is_as_one_that_cannot_be_reached() {
    let (fake, volume, file) = written(1).await;
    let (first, second) = order(&fake, &volume, &file).await;
    fake.pairs.set(first, Mood::Says(ErrorKind::WrongPeer));
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
    assert_eq!(targets(&fake.pairs.take_asked()), [first, second]);

    let (fake, volume, file) = pair().await;
    fake.pairs.set(0, Mood::Says(ErrorKind::WrongPeer));
    written_when_another_leads(&fake, &volume, &file).await;
    assert_eq!(fake.pairs.take_asked().last().unwrap().target, 1);
}

/// Each sender waited in full for what it had in hand, and then took the next: a close took a multiple of the wait, and so
/// did a sync, which asked the same target once more.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_dead_target_behind_what_was_sent_to_it_fails_with_that() {
    for sync in [false, true] {
        let fake = Arc::new(Fake::default());
        let clock = Arc::new(Paused::default());
        let volume = fake.volume_in_pair(VolumeOptions { clock, ..options() }).await;
        let file = create(&volume, "file").await;
        fake.pairs.set(0, Mood::Says(ErrorKind::Unavailable));
        let began = Instant::now();
        // Three rounds of what is sent at once.
        write(&volume, &file, 0, contents(192)).await;
        let failed = match sync {
            true => volume.fsync(&file, false).await,
            false => volume.flush(&file).await,
        };
        assert_eq!(failed.unwrap_err().kind, ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_millis(3_000), "{:?}", began.elapsed());
        assert_eq!(volume.memory().dirty_bytes(), 0);
    }
}

/// The new primary knows the number, because members remember too: the write is not done twice, over
/// what another client may have written since.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_s_write_keeps_its_number() {
    let (fake, volume, file) = pair().await;
    fake.pairs.set(0, Mood::LosesAnswer);
    write(&volume, &file, 0, contents(1)).await;
    volume.flush(&file).await.unwrap();
    let asked = fake.pairs.take_asked();
    assert_eq!(targets(&asked), [0, 0]);
    assert_eq!(asked[0].attempt, asked[1].attempt);
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_waits_for_the_oldest_change() {
    let (fake, volume, file) = pair().await;
    fake.pairs.set(0, Mood::Slow(seconds(10)));
    let send = async |file: &Arc<OpenFile>| {
        write(&volume, file, 0, contents(1)).await;
        sleep(Duration::from_millis(10)).await;
    };
    send(&file).await;
    fake.pairs.heal(0);
    for name in ["second", "third"] {
        send(&create(&volume, name).await).await;
    }
    volume.flush(&file).await.unwrap();
    send(&file).await;
    volume.fsync(&file, false).await.unwrap();
    let asked = fake.pairs.take_asked();
    let client = asked[0].attempt.unwrap().client;
    let stamps: Vec<Attempt> = asked.iter().map(|asked| asked.attempt.unwrap()).collect();
    let expected = [(1, 1), (2, 1), (3, 1), (4, 4), (5, 5)];
    assert_eq!(stamps, expected.map(|(seq, settled)| Attempt { client, seq, settled }));
}

#[tokio::test(start_paused = true)]
async fn all_changes_are_numbered_and_nothing_else_is() {
    let (fake, volume, file) = written(4).await;
    volume.fallocate(&file, FallocateMode::Punch, 0, CHUNK).await.unwrap();
    volume.fallocate(&file, FallocateMode::Allocate, CHUNK, CHUNK).await.unwrap();
    let other = create(&volume, "other").await;
    volume.copy_range(&file, 0, &other, 0, 4 * CHUNK).await.unwrap();
    volume.fsync(&file, false).await.unwrap();
    read(&volume, &file, 0, CHUNK as u32).await;
    volume.sync_all().await.unwrap();
    let asked = fake.pairs.take_asked();
    let kinds = |numbered: bool| -> BTreeSet<&str> {
        let of = asked.iter().filter(|asked| asked.attempt.is_some() == numbered);
        of.map(|asked| asked.line.split([' ', '(']).next().unwrap()).collect()
    };
    assert_eq!(kinds(true), BTreeSet::from(["Allocate", "copy", "punch", "sync"]));
    assert_eq!(kinds(false), BTreeSet::from(["Extents", "Stat", "read"]));
}

#[tokio::test(start_paused = true)]
async fn a_copy_s_source_is_looked_up_again_after_a_fail_over() {
    let (fake, volume, file) = written(1).await;
    let other = create(&volume, "other").await;
    fake.pairs.set(0, Mood::Silent);
    let v = volume.clone();
    let copy = tokio::spawn(async move { v.copy_range(&file, 0, &other, 0, CHUNK).await });
    sleep(seconds(1)).await;
    fake.pairs.move_to(&[1], 0);
    assert_eq!(copy.await.unwrap().unwrap(), CHUNK);
    let asked = fake.pairs.take_asked();
    let sources: Vec<_> = asked.iter().map(|a| (a.target, a.from_target.unwrap())).collect();
    assert_eq!(sources, [(0, 0), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_sync_goes_on_with_the_next_primary() {
    let (fake, volume, file) = written(1).await;
    fake.pairs.set(0, Mood::Silent);
    let v = volume.clone();
    let sync = tokio::spawn(async move { v.fsync(&file, false).await });
    sleep(seconds(1)).await;
    fake.pairs.move_to(&[1], 0);
    sync.await.unwrap().unwrap();
    let asked = fake.pairs.take_asked();
    assert_eq!(targets(&asked), [0, 1]);
    assert_eq!(numbers(&asked).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_answer_is_replaced_at_once() {
    // A capability is over by the clock of one only.
    let refused = ErrorKind::BadCapability;
    for kind in [ErrorKind::NotCurrent, ErrorKind::Unavailable, ErrorKind::Io, refused] {
        let (fake, volume, file) = written(1).await;
        let (first, second) = order(&fake, &volume, &file).await;
        fake.pairs.set(first, Mood::Says(kind));
        assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
        assert_eq!(targets(&fake.pairs.take_asked()), [first, second]);
        read(&volume, &file, 0, 10).await;
        let again = targets(&fake.pairs.take_asked());
        // One that only waits for a write to settle, or is shown what is over, is as good as before.
        let is_as_good = kind == ErrorKind::NotCurrent || kind == refused;
        let expected = if is_as_good { vec![first, second] } else { vec![second] };
        assert_eq!(again, expected, "{kind:?}");
    }
}

/// Who refuses it has looked at it, and who is away has not.
#[tokio::test(start_paused = true)]
async fn a_capability_that_one_member_refuses_is_renewed_where_the_other_is_away() {
    for refuses in [0, 1] {
        let (fake, volume, file) = written(1).await;
        fake.pairs.set(refuses, Mood::Says(ErrorKind::BadCapability));
        fake.pairs.set(1 - refuses, Mood::Says(ErrorKind::Unavailable));
        fake.take_log();
        let reading = tokio::spawn(async move { volume.read(&file, 0, 10).await });
        sleep(seconds(1)).await;
        assert!(fake.take_log().iter().any(|line| line.starts_with("open")));
        reading.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_gets_company_and_is_shunned_for_a_while() {
    let (fake, volume, file) = written(1).await;
    let (first, second) = order(&fake, &volume, &file).await;
    fake.pairs.set(first, Mood::Slow(seconds(60)));
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
    assert_eq!(targets(&fake.pairs.take_asked()), [first, second]);
    fake.pairs.heal(first);
    read(&volume, &file, 0, 10).await;
    assert_eq!(targets(&fake.pairs.take_asked()), [second]);
    sleep(seconds(4)).await;
    read(&volume, &file, 0, 10).await;
    assert_eq!(targets(&fake.pairs.take_asked()), [first]);
}

/// It has the silent one given up: a read once waited for the whole lease of that one instead.
#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_answer_yet_is_asked_again_where_the_other_is_silent() {
    let (fake, volume, file) = written(1).await;
    for silent in [0, 1] {
        let other = 1 - silent;
        fake.pairs.set(silent, Mood::Silent);
        fake.pairs.set(other, Mood::Says(ErrorKind::NotCurrent));
        let (v, f) = (volume.clone(), file.clone());
        let reading = tokio::spawn(async move { read(&v, &f, 0, CHUNK as u32).await });
        sleep(seconds(1)).await;
        let asked = targets(&fake.pairs.take_asked());
        let times = asked.iter().filter(|&&target| target == other).count();
        assert!((5..=15).contains(&times), "{asked:?}");
        assert_eq!(asked.len() - times, 1, "{asked:?}");
        fake.pairs.heal(other);
        sleep(Duration::from_millis(150)).await;
        assert!(reading.is_finished(), "it does not wait for the one that is silent");
        assert_eq!(reading.await.unwrap(), contents(1));
        fake.pairs.heal(silent);
        fake.pairs.take_asked();
    }
}

/// Where a server was silent, reads waited for it for 300 ms although the other one knew that it had been taken out.
#[tokio::test(start_paused = true)]
async fn a_member_that_knows_a_newer_map_is_believed_although_the_other_is_silent() {
    let (fake, volume, file) = written(1).await;
    let (first, second) = order(&fake, &volume, &file).await;
    fake.pairs.set(first, Mood::Silent);
    fake.pairs.move_to(&[second], 0);
    let began = tokio::time::Instant::now();
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
    assert!(began.elapsed() < Duration::from_millis(150), "{:?}", began.elapsed());
    assert_eq!(targets(&fake.pairs.take_asked()), [first, second, second]);
}

/// The one that had been taken out was asked next, and the map was not looked at before that one had said nothing for 300 ms.
#[tokio::test(start_paused = true)]
async fn a_newer_map_is_fetched_at_once_although_a_silent_member_is_asked_after_who_knows_it() {
    let (fake, volume, file) = written(1).await;
    let (first, second) = order(&fake, &volume, &file).await;
    fake.pairs.set(first, Mood::Silent);
    // From now on it is asked last.
    read(&volume, &file, 0, 10).await;
    assert_eq!(targets(&fake.pairs.take_asked()), [first, second]);
    fake.pairs.move_to(&[second], 0);
    let began = Instant::now();
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
    assert!(began.elapsed() < Duration::from_millis(150), "{:?}", began.elapsed());
    assert_eq!(targets(&fake.pairs.take_asked()), [second, first, second]);
}

/// The pauses grew to half a second: a read that waited for the lease of a dead server could wait as long once more after it.
#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_answer_yet_is_asked_again_soon_where_the_other_is_dead() {
    let (fake, volume, file) = written(1).await;
    for dead in [0, 1] {
        let other = 1 - dead;
        fake.pairs.set(dead, Mood::Says(ErrorKind::Unavailable));
        fake.pairs.set(other, Mood::Says(ErrorKind::NotCurrent));
        let (v, f) = (volume.clone(), file.clone());
        let reading = tokio::spawn(async move { read(&v, &f, 0, CHUNK as u32).await });
        sleep(Duration::from_millis(700)).await;
        fake.pairs.heal(other);
        sleep(Duration::from_millis(150)).await;
        assert!(reading.is_finished(), "it pauses for long");
        assert_eq!(reading.await.unwrap(), contents(1));
        fake.pairs.heal(dead);
        fake.pairs.take_asked();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_checksum_is_answered_by_the_other_member() {
    let (fake, volume, file) = written(1).await;
    let (first, second) = order(&fake, &volume, &file).await;
    fake.pairs.set(first, Mood::Garbles);
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
    assert_eq!(targets(&fake.pairs.take_asked()), [first, second]);
    fake.pairs.set(second, Mood::Garbles);
    let error = volume.read(&file, 0, 10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_away_is_waited_for_where_the_other_is_corrupt() {
    let (fake, volume, file) = written(1).await;
    fake.pairs.set(0, Mood::Garbles);
    fake.pairs.set(1, Mood::Says(ErrorKind::Unavailable));
    let v = volume.clone();
    let reading = tokio::spawn(async move { read(&v, &file, 0, CHUNK as u32).await });
    sleep(seconds(1)).await;
    fake.pairs.heal(1);
    assert_eq!(reading.await.unwrap(), contents(1));
}

#[tokio::test(start_paused = true)]
async fn a_large_read_uses_all_members() {
    let (fake, volume, file) = written(32).await;
    assert_eq!(read(&volume, &file, 0, 32 * CHUNK as u32).await, contents(32));
    let asked = targets(&fake.pairs.take_asked());
    let first = asked.iter().filter(|&&target| target == 0).count();
    assert!((8..=asked.len() - 8).contains(&first), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn who_has_much_under_way_is_not_asked() {
    let (fake, volume, file) = written(1).await;
    let (first, second) = order(&fake, &volume, &file).await;
    let busy = volume.members().begin(first, 1 << 20);
    read(&volume, &file, 0, 10).await;
    assert_eq!(targets(&fake.pairs.take_asked()), [second]);
    drop(busy);
    assert_eq!(order(&fake, &volume, &file).await, (first, second));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_nobody_answers_goes_on_in_the_next_epoch() {
    let (fake, volume, file) = written(1).await;
    fake.pairs.set(0, Mood::Silent);
    fake.pairs.set(1, Mood::Silent);
    let v = volume.clone();
    let reading = tokio::spawn(async move { read(&v, &file, 0, CHUNK as u32).await });
    sleep(seconds(2)).await;
    assert_eq!(BTreeSet::from_iter(targets(&fake.pairs.take_asked())), BTreeSet::from([0, 1]));
    fake.pairs.heal(1);
    fake.pairs.move_to(&[1], 0);
    assert_eq!(reading.await.unwrap(), contents(1));
    assert_eq!(targets(&fake.pairs.take_asked()), [1]);
}

/// The other member has older bytes.
#[tokio::test(start_paused = true)]
async fn only_members_in_sync_are_read() {
    let (fake, volume, file) = written(1).await;
    fake.pairs.move_to(&[1], 0);
    volume.map().refresh().await.unwrap();
    fake.pairs.set(1, Mood::Slow(seconds(2)));
    assert_eq!(read(&volume, &file, 0, CHUNK as u32).await, contents(1));
    assert_eq!(targets(&fake.pairs.take_asked()), [1]);
}

#[tokio::test(start_paused = true)]
async fn data_and_holes_are_asked_of_any_member() {
    let (fake, volume, file) = written(2).await;
    fake.pairs.set(0, Mood::Says(ErrorKind::Unavailable));
    assert_eq!(volume.seek(&file, 5, SeekTo::Data).await.unwrap(), 5);
    assert_eq!(volume.seek(&file, 5, SeekTo::Hole).await.unwrap(), 2 * CHUNK);
}

#[tokio::test(start_paused = true)]
async fn a_loss_of_unsynced_writes_fails_fsync_once() {
    let (fake, volume, file) = written(1).await;
    fake.pairs.move_to(&[1], 0);
    volume.fsync(&file, false).await.unwrap();
    fake.pairs.move_to(&[1], 1);
    volume.fsync(&file, false).await.unwrap();
    write(&volume, &file, 0, contents(1)).await;
    volume.flush(&file).await.unwrap();
    fake.pairs.move_to(&[0], 2);
    let error = volume.fsync(&file, false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    volume.fsync(&file, false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_loss_fails_syncfs_and_the_file() {
    let (fake, volume, file) = written(1).await;
    fake.pairs.move_to(&[0], 1);
    assert_eq!(volume.sync_all().await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(volume.fsync(&file, false).await.unwrap_err().kind, ErrorKind::Io);
    volume.sync_all().await.unwrap();
    volume.fsync(&file, false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_layout_shows_all_members_and_those_in_sync() {
    let (fake, volume, file) = written(2).await;
    fake.pairs.move_to(&[1], 0);
    volume.map().refresh().await.unwrap();
    let view = volume.layout(file.ino()).await.unwrap();
    assert_eq!(view.chunks.len(), 2);
    for chunk in view.chunks.iter() {
        assert_eq!(chunk.group, PAIR);
        assert_eq!(chunk.targets, [":path-0", ":path-1"]);
        assert_eq!(chunk.in_sync, [":path-1"]);
    }
}

/// Another member may not have heard yet of what the primary has acknowledged alone.
#[tokio::test(start_paused = true)]
async fn what_the_primary_acknowledges_alone_is_read_from_the_primary() {
    let (fake, volume, _) = pair().await;
    let file = create(&volume, "early").await;
    write(&volume, &file, 0, contents(8)).await;
    volume.fsync(&file, false).await.unwrap();
    let changes = fake.pairs.take_asked();
    assert!(changes.iter().all(|asked| asked.ack_primary && asked.min_copies == 2), "{changes:?}");
    volume.memory().kept().forget(file.state.ino());
    read(&volume, &file, 0, 8 * CHUNK as u32).await;
    let reads = fake.pairs.take_asked();
    assert!(!reads.is_empty() && reads.iter().all(|asked| asked.target == 0), "{reads:?}");
    assert!(reads.iter().all(|asked| asked.min_copies == 0), "what is there may be read");
}

/// The primary was named, which waits for the others, too; and where all are up that one alone, which answered everybody and waited for a
/// member that it did not reach.
#[test]
fn of_members_that_are_waited_for_those_that_are_away_are_named_and_else_all() {
    let target = |id, up| Target { id, server: id, up, ..Target::default() };
    let server = |id: u32| Server { id, name: format!("host{id}"), ..Server::default() };
    let mut map = ClusterMap {
        servers: [1, 3].map(server).to_vec(),
        targets: vec![target(1, true), target(3, true)],
        groups: vec![Group { id: PAIR, members: vec![1, 3], ..Group::default() }],
        ..ClusterMap::default()
    };
    let told = |map: &ClusterMap| awaited(map, GroupId(PAIR));
    let both = format!("target 1 on host1, or target 3 on host3 behind it (group {PAIR})");
    assert_eq!(told(&map), both);
    map.groups[0].in_sync = vec![1];
    assert_eq!(told(&map), format!("target 1 on host1 (group {PAIR})"));
    map.groups[0].in_sync.clear();
    map.targets[1].up = false;
    assert_eq!(told(&map), format!("target 3 on host3 (group {PAIR})"));
    map.targets[0].up = false;
    assert_eq!(told(&map), format!("target 1 on host1 and target 3 on host3 (group {PAIR})"));
    map.targets[1].up = true;
    map.targets.remove(0);
    assert_eq!(told(&map), format!("target 1 (group {PAIR})"));
    map.groups.clear();
    assert_eq!(told(&map), format!("the target of group {PAIR}"));
}
