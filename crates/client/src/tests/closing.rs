//! What the metadata server counts as open.

use super::*;
use crate::file::Opening;
use crate::ops::open_mode;
use crate::testing::Paused;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

/// A second copy of a report once took back the open of whoever had opened the file meanwhile.
#[tokio::test]
async fn a_report_of_closed_files_whose_answer_is_lost_counts_once() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    volume.release(&file).await.unwrap();
    fake.take_log();
    fake.lose_answer("renew closed");
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    volume.tick_session(volume.share_of(Ino::ROOT), 2).await;
    let log = fake.take_log();
    assert!(log.iter().filter(|line| line.starts_with("renew closed=[")).count() > 1, "{log:?}");
    assert_eq!(fake.opens(file.ino()), 0);
}

/// A report that was under way when the server restarted once took back the open that the client had just
/// named: the file counted as closed while it was written, and could be given another layout.
#[tokio::test]
async fn a_report_of_before_a_restart_takes_back_no_open_of_after_it() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    volume.release(&file).await.unwrap();
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    fake.restart();
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    volume.tick_session(volume.share_of(Ino::ROOT), 2).await;
    assert_eq!(fake.opens(ino), 1);
    volume.release(&file).await.unwrap();
    volume.tick_session(volume.share_of(Ino::ROOT), 3).await;
    assert_eq!(fake.opens(ino), 0);
}

/// A file that others had open once counted as one of theirs for as long as somebody here opened it again and again: the server
/// heard of the close after the open.
#[tokio::test]
async fn who_opens_a_file_again_has_closed_it_before() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    volume.release(&file).await.unwrap();
    for _ in 0..3 {
        let again = open(&volume, ino, OpenFlags::READ_WRITE).await;
        assert_eq!(fake.opens(ino), 1);
        volume.release(&again).await.unwrap();
    }
}

/// A write of a killed process waited, and was taken when the file was closed and its locks were somebody else's.
#[tokio::test]
async fn a_write_that_waits_while_its_handle_is_released_is_not_taken() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let order = file.state.order.lock().await;
    let (writing, to_write) = (Arc::clone(&volume), Arc::clone(&file));
    let written =
        tokio::spawn(async move { writing.write(&to_write, 0, pattern(1, 20_000)).await });
    tokio::task::yield_now().await;
    assert!(!written.is_finished());
    volume.release(&file).await.unwrap();
    drop(order);
    assert_eq!(written.await.unwrap().unwrap_err().kind, ErrorKind::Invalid);
    assert!(file.state.is_idle());
    assert!(starting(&fake.take_log(), "write").is_empty(), "nothing of it was sent");
}

/// A `syncfs` waited for it for ever.
#[tokio::test]
async fn what_is_given_up_with_a_file_without_a_name_is_not_waited_for() {
    let (_fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    let state = Arc::clone(&file.state);
    let drained = volume.drain(&state);
    futures::pin_mut!(drained);
    assert!(futures::poll!(drained.as_mut()).is_pending());
    // Its last name goes.
    Arc::make_mut(&mut state.core().attr).nlink = 0;
    volume.release(&file).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), drained).await.unwrap();
}

/// As writes were.
#[tokio::test]
async fn a_punch_and_a_copy_that_wait_while_their_handle_is_released_are_not_made() {
    let (fake, volume) = cluster().await;
    let source = create(&volume, "source").await;
    write(&volume, &source, 0, pattern(1, 3 << 20)).await;
    for copies in [false, true] {
        let file = create(&volume, if copies { "a" } else { "b" }).await;
        write(&volume, &file, 0, pattern(2, 3 << 20)).await;
        volume.fsync(&file, false).await.unwrap();
        fake.take_log();
        let order = file.state.order.lock().await;
        let (changing, source, to) = (volume.clone(), source.clone(), file.clone());
        let changed = tokio::spawn(async move {
            match copies {
                true => changing.copy_range(&source, 0, &to, 0, 2 << 20).await.map(drop),
                false => changing.fallocate(&to, FallocateMode::Punch, 0, 2 << 20).await,
            }
        });
        tokio::task::yield_now().await;
        volume.release(&file).await.unwrap();
        drop(order);
        assert_eq!(changed.await.unwrap().unwrap_err().kind, ErrorKind::Invalid, "{copies}");
        let log = fake.take_log();
        let made = log.iter().any(|line| line.starts_with("punch") || line.starts_with("copy"));
        assert!(!made, "{log:?}");
    }
}

/// A change of a file of a hundred chunks, which stands still when as much of it has begun as ever is at once.
struct Standing<'a> {
    file: Arc<OpenFile>,
    /// The process that waits for it was killed.
    killed: Arc<AtomicBool>,
    changed: JoinHandle<Result<u64>>,
    gate: RwLockWriteGuard<'a, ()>,
}

/// Of a copy to a new file, or of room that is reserved there.
async fn standing<'a>(fake: &'a Fake, volume: &Arc<Volume>, copies: bool) -> Standing<'a> {
    let (source, len) = (create(volume, "source").await, 100 * CHUNK);
    write(volume, &source, 0, pattern(1, len as usize)).await;
    volume.fsync(&source, false).await.unwrap();
    let file = create(volume, "target").await;
    let gate = fake.change_gate.write().await;
    let killed = Arc::new(AtomicBool::new(false));
    let (changing, to, is_over) = (volume.clone(), file.clone(), killed.clone());
    let changed = tokio::spawn(async move {
        let is_wanted = || !is_over.load(Ordering::Relaxed);
        let (all, reserve) = ((0, len), FallocateMode::Allocate);
        match copies {
            true => changing.copy_range_while(&source, &to, (0, 0, len), &is_wanted).await,
            false => changing.fallocate_while(&to, reserve, all, &is_wanted).await.map(|()| len),
        }
    });
    let (mut begun, of_it) = (0, if copies { "copy" } else { "Allocate" });
    while begun < 32 {
        tokio::task::yield_now().await;
        begun += starting(&fake.take_log(), of_it).len();
    }
    Standing { file, killed, changed, gate }
}

/// True if it has ended when all had time to do what they can.
async fn has_ended<T>(task: &JoinHandle<T>) -> bool {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    task.is_finished()
}

/// It went on to its end, for minutes where that was far, and locks of the mount were given back only then.
#[tokio::test]
async fn of_a_change_whose_process_was_killed_nothing_more_is_begun() {
    for copies in [true, false] {
        let (fake, volume) = cluster().await;
        let Standing { file, killed, changed, gate } = standing(&fake, &volume, copies).await;
        killed.store(true, Ordering::Relaxed);
        drop(gate);
        let begun = 32 * CHUNK;
        match changed.await.unwrap() {
            Ok(copied) => assert!(copies && copied == begun, "{copied}"),
            Err(error) => assert!(!copies && error.kind == ErrorKind::Interrupted, "{error}"),
        }
        let log = fake.take_log();
        assert!(starting(&log, if copies { "copy" } else { "Allocate" }).is_empty(), "{log:?}");
        volume.release(&file).await.unwrap();
        assert_eq!(fake.server_length(file.ino()), begun, "what is made is told");
    }
}

/// Nothing of the killed process was to come any more when its files were closed, and then it did.
#[tokio::test]
async fn a_close_waits_for_what_has_begun_of_a_change_of_its_killed_process() {
    for copies in [true, false] {
        let (fake, volume) = cluster().await;
        let Standing { file, killed, changed, gate } = standing(&fake, &volume, copies).await;
        killed.store(true, Ordering::Relaxed);
        let reader = open(&volume, file.ino(), OpenFlags::READ).await;
        volume.flush(&reader).await.unwrap();
        let (closing, to_close) = (volume.clone(), file.clone());
        let closed = tokio::spawn(async move { closing.flush(&to_close).await });
        assert!(!has_ended(&closed).await, "{copies}");
        drop(gate);
        closed.await.unwrap().unwrap();
        assert!(file.state.is_idle() && !file.state.core().exclusive);
        let _ended = changed.await.unwrap();
    }
}

/// A file that was cut and written anew got the length of the copy, and bytes of it.
#[tokio::test]
async fn who_cuts_a_file_by_opening_it_has_nothing_of_a_copy_that_outlives_its_handle() {
    let (fake, volume) = cluster().await;
    let Standing { file, killed, changed, gate } = standing(&fake, &volume, true).await;
    killed.store(true, Ordering::Relaxed);
    let ino = file.ino();
    // As where its process is killed once more while it waits for its close.
    volume.forget_handle(&file, true);
    let opening = volume.clone();
    let opened = tokio::spawn(async move {
        let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
        open(&opening, ino, flags).await
    });
    assert!(!has_ended(&opened).await, "it is cut when the copy is over");
    drop(gate);
    let anew = opened.await.unwrap();
    let _ended = changed.await.unwrap();
    write(&volume, &anew, 0, pattern(2, 3)).await;
    volume.release(&anew).await.unwrap();
    volume.tick_files();
    volume.sync_all().await.unwrap();
    assert_eq!(fake.server_length(ino), 3);
}

/// Who wrote, synced or closed the file waited for all of it.
#[tokio::test]
async fn others_get_the_order_of_a_file_while_a_long_range_is_reserved() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let gate = fake.change_gate.write().await;
    let (changing, to, len) = (volume.clone(), file.clone(), 6_000 * CHUNK);
    let reserved =
        tokio::spawn(async move { changing.fallocate(&to, FallocateMode::Allocate, 0, len).await });
    let mut log = shared::until_logged(&fake, "Allocate").await;
    drop(gate);
    let turn = file.state.order.lock().await;
    log.extend(fake.take_log());
    let begun = starting(&log, "Allocate").len();
    assert!(begun < 6_000 && fake.server_length(file.ino()) == begun as u64 * CHUNK, "{begun}");
    drop(turn);
    reserved.await.unwrap().unwrap();
    let all = begun + starting(&fake.take_log(), "Allocate").len();
    assert_eq!((all, fake.server_length(file.ino())), (6_000, len));
}

/// As punches were.
#[tokio::test]
async fn a_cut_that_waits_while_its_handle_is_released_is_not_made() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    fake.take_log();
    let order = file.state.order.lock().await;
    let (cutting, to_cut) = (Arc::clone(&volume), Arc::clone(&file));
    let cut = tokio::spawn(async move {
        cutting.setattr(&Credentials::root(), to_cut.ino(), length(5), Some(&to_cut)).await
    });
    tokio::task::yield_now().await;
    assert!(!cut.is_finished());
    volume.release(&file).await.unwrap();
    drop(order);
    assert_eq!(cut.await.unwrap().unwrap_err().kind, ErrorKind::Invalid);
    assert!(starting(&fake.take_log(), "setattr").is_empty());
}

/// An operation once failed with ESTALE if the server restarted four times before it was answered.
#[tokio::test]
async fn a_server_that_restarts_again_and_again_is_waited_for() {
    let (fake, volume) = timeless_cluster().await;
    let file = create(&volume, "a").await;
    for _ in 0..6 {
        fake.fail("open", ErrorKind::NoSession);
    }
    open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
}

/// A write that closes its file, too, goes to another incarnation of the session than it was made for.
#[tokio::test]
async fn a_write_of_before_a_restart_closes_nothing_after_it() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    write(&volume, &file, 0, pattern(1, 10)).await;
    fake.restart();
    volume.release(&file).await.unwrap();
    let again = open(&volume, ino, OpenFlags::READ_WRITE).await;
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    assert!(fake.opens(ino) >= 1);
    volume.release(&again).await.unwrap();
    volume.tick_session(volume.share_of(Ino::ROOT), 2).await;
    assert_eq!(fake.opens(ino), 0);
}

/// A closed file, of which the server has not heard that yet.
async fn closed(volume: &Arc<Volume>) -> Ino {
    let file = create(volume, "a").await;
    volume.release(&file).await.unwrap();
    file.ino()
}

/// Each try counted, and it was closed once: the file counted as open until the mount ended.
#[tokio::test]
async fn an_open_whose_answer_is_lost_counts_once() {
    let (fake, volume) = cluster().await;
    let ino = closed(&volume).await;
    fake.take_log();
    fake.lose_answer("open");
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    assert_eq!(starting(&fake.take_log(), "open").len(), 2);
    assert_eq!(fake.opens(ino), 1);
    volume.release(&file).await.unwrap();
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    assert_eq!(fake.opens(ino), 0);
}

/// A number would have made it fail, as a change of which nobody knows whether it was made.
#[tokio::test]
async fn an_open_that_was_counted_in_a_lost_session_is_counted_in_the_next() {
    let (fake, volume) = cluster().await;
    let ino = closed(&volume).await;
    fake.lose_answer_and_session("open");
    let file = open(&volume, ino, OpenFlags::READ_WRITE).await;
    assert_eq!(fake.opens(ino), 1);
    volume.release(&file).await.unwrap();
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    assert_eq!(fake.opens(ino), 0);
}

/// Nobody closed it: the file counted as open until the mount ended.
#[tokio::test]
async fn an_open_that_is_given_up_when_it_is_counted_is_closed() {
    let (fake, volume) = cluster().await;
    let (ino, session) = (closed(&volume).await, volume.session(Ino::ROOT));
    fake.lose_answer("open");
    let root = Credentials::root();
    let given_up = volume.open(&root, ino, OpenFlags::READ_WRITE).now_or_never();
    assert!(given_up.is_none());
    assert_eq!(fake.opens(ino), 1);
    let next = session.begin_mutation();
    session.end_mutation(next);
    assert!(session.stamp().answered < next, "it may be asked again");
    volume.close_unheard(volume.share_of(ino)).await;
    assert_eq!(session.stamp().answered, next);
    // The first report is the one that the lost open had brought along.
    for tick in 1..=2 {
        volume.tick_session(volume.share_of(Ino::ROOT), tick).await;
    }
    assert_eq!(fake.opens(ino), 0);
}

/// It stayed open, and the server remembered each later answer.
#[tokio::test(start_paused = true)]
async fn the_number_of_an_open_that_was_given_up_ends_though_nobody_hears_of_it() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(Paused::default());
    let volume = fake.volume(VolumeOptions { clock, ..options() }).await;
    let (ino, session) = (closed(&volume).await, volume.session(Ino::ROOT));
    for _ in 0..1_000 {
        fake.fail("open", ErrorKind::Unavailable);
    }
    let root = Credentials::root();
    assert!(volume.open(&root, ino, OpenFlags::READ_WRITE).now_or_never().is_none());
    let next = session.begin_mutation();
    session.end_mutation(next);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(session.stamp().answered < next, "it is asked for again");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(session.stamp().answered, next);
}

/// The call was waited for without a limit: the server remembered each later answer.
#[tokio::test(start_paused = true)]
async fn the_number_of_an_open_that_was_given_up_ends_though_the_server_says_nothing() {
    let fake = Arc::new(Fake::default());
    let clock = Arc::new(Paused::default());
    let volume = fake.volume(VolumeOptions { clock, ..options() }).await;
    let (ino, session) = (closed(&volume).await, volume.session(Ino::ROOT));
    fake.lose_answer("open");
    let root = Credentials::root();
    assert!(volume.open(&root, ino, OpenFlags::READ_WRITE).now_or_never().is_none());
    let _silent = fake.open_gate.write().await;
    let next = session.begin_mutation();
    session.end_mutation(next);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(session.stamp().answered < next, "it may be answered yet");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(session.stamp().answered, next);
}

/// The server may not count it by its number: a close could be that of somebody else here.
#[tokio::test]
async fn an_open_that_cuts_is_not_closed_when_it_is_given_up() {
    let (fake, volume) = cluster().await;
    let (ino, session) = (closed(&volume).await, volume.session(Ino::ROOT));
    fake.lose_answer("open");
    let (root, flags) = (Credentials::root(), OpenFlags::READ_WRITE);
    let cut = OpenFlags { truncate: true, ..flags };
    assert!(volume.open(&root, ino, cut).now_or_never().is_none());
    let next = session.begin_mutation();
    session.end_mutation(next);
    assert_eq!(session.stamp().answered, next);
    fake.take_log();
    volume.close_unheard(volume.share_of(ino)).await;
    assert!(starting(&fake.take_log(), "open").is_empty());
}

/// It told what was so when it was sent first: the doubt about a cut that was given up after that ended with its answer.
#[tokio::test]
async fn an_open_that_is_sent_again_tells_what_was_given_up_meanwhile() {
    let (fake, volume) = cluster().await;
    let (ino, session) = (closed(&volume).await, volume.session(Ino::ROOT));
    let (older, later) = (session.begin_mutation(), session.begin_mutation());
    fake.fail("open", ErrorKind::Unavailable);
    let root = Credentials::root();
    let mut opening = Box::pin(volume.open(&root, ino, OpenFlags::READ_WRITE));
    assert!(futures::poll!(opening.as_mut()).is_pending(), "it was refused once");
    session.give_up_mutation(later, false);
    opening.await.unwrap();
    assert!(fake.knows_given_up(&[later]));
    session.end_mutation(older);
}

/// Who was answered just before the session was opened again is not in the list of what is open.
#[tokio::test]
async fn an_open_that_was_answered_before_a_restart_is_asked_again() {
    let (fake, volume) = cluster().await;
    let ino = {
        let file = create(&volume, "a").await;
        volume.release(&file).await.unwrap();
        file.ino()
    };
    let flags = OpenFlags::READ_WRITE;
    let mode = open_mode(flags, &volume);
    let open = MetaOp::Open(meta::Open { ino: ino.0, mode });
    let said = volume.ask_about(&Credentials::root(), open).await.unwrap();
    let MetaAnswer::Opened(opened) = said.answer else { panic!() };
    fake.restart();
    volume.renew_session(volume.share_of(Ino::ROOT), said.incarnation).await.unwrap();
    assert_eq!(fake.opens(ino), 0);
    let (asked, incarnation, told_cuts) = (volume.now(), said.incarnation, said.told_cuts);
    let told = Opening { flags, opened, created: false, asked, incarnation, told_cuts };
    let file = volume.opened(&Credentials::root(), told).await.unwrap();
    assert_eq!(fake.opens(ino), 1);
    volume.release(&file).await.unwrap();
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    assert_eq!(fake.opens(ino), 0);
}

/// Each of those who were refused once opened the session again, and what the one had opened since was not
/// in the list of the next.
#[tokio::test]
async fn a_session_is_opened_again_once_for_all_who_are_refused() {
    let (fake, volume) = cluster().await;
    let files = [create(&volume, "a").await, create(&volume, "b").await];
    fake.restart();
    fake.take_log();
    let (root, flags) = (Credentials::root(), OpenFlags::READ_WRITE);
    let opens = files.iter().map(|file| volume.open(&root, file.ino(), flags));
    for opened in futures::future::join_all(opens).await {
        opened.unwrap();
    }
    assert_eq!(starting(&fake.take_log(), "session").len(), 1);
}

/// What is unsent goes to where the file was when it was opened: until then it counts as open.
#[tokio::test]
async fn a_file_is_open_as_long_as_something_is_unsent() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    drop(file);
    volume.tick_session(volume.share_of(Ino::ROOT), 1).await;
    assert_eq!(fake.opens(ino), 1);
    volume.sync_all().await.unwrap();
    for tick in 2..500 {
        volume.tick_files();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        volume.tick_session(volume.share_of(Ino::ROOT), tick).await;
        if fake.opens(ino) == 0 {
            return;
        }
    }
    panic!("the file stays open");
}

#[tokio::test]
async fn who_opens_a_file_learns_where_it_lies_now() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    let width = || file.state.core().placement().unwrap().layout().width;
    assert!(width() > 1);
    fake.lay_elsewhere(file.ino());
    open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    assert_eq!(width(), 1);
}

/// All of them are named in one message when the session goes on: beyond what that holds it could not any more.
#[tokio::test]
async fn more_files_than_a_session_can_name_are_not_open_at_once() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { open_files_max: 2, ..options() }).await;
    let (first, second) = (create(&volume, "a").await, create(&volume, "b").await);
    let root = Credentials::root();
    let made = volume.create(&root, Ino::ROOT, "c".into(), 0o600, 0, OpenFlags::READ_WRITE).await;
    assert_eq!(made.map(drop).unwrap_err().kind, ErrorKind::TooManyFiles);
    let again = volume.open(&root, first.ino(), OpenFlags::READ).await.unwrap();
    for file in [again, first] {
        volume.release(&file).await.unwrap();
    }
    create(&volume, "c").await;
    let opened = volume.open(&root, second.ino(), OpenFlags::READ).await;
    assert!(opened.is_ok(), "it is open already");
}
