//! Files that others have open as well.

use super::*;
use crate::testing::Paused;
use std::time::Duration;
use strake_base::clock::Clock;
use strake_wire::message::meta::Ask;

/// What is asked before the handle is there, and then what each write waits for.
#[tokio::test]
async fn each_write_to_a_file_of_others_is_told_before_it_returns() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.release(&file).await.unwrap();
    fake.share();
    fake.take_log();
    let file = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    assert_eq!(starting(&fake.take_log(), "Settle").len(), 1);
    for at in [0, 20_000] {
        write(&volume, &file, at, pattern(2, 20_000)).await;
        let log = fake.take_log();
        let (sent, told) = (starting(&log, "write").len(), starting(&log, "publish").len());
        assert!(sent >= 1 && told == 1, "{log:?}");
    }
    assert_eq!(fake.server_length(file.ino()), 40_000);
}

/// A client that was lost takes longer to be given up than a server that restarts is waited for.
#[tokio::test]
async fn others_who_hold_back_are_waited_for_as_long_as_the_mount_says() {
    let fake = Arc::new(Fake::default());
    let patient = VolumeOptions { operation_wait_ms: 50, ..options() };
    let volume = fake.volume(VolumeOptions { held_back_wait_ms: 50, ..options() }).await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.release(&file).await.unwrap();
    fake.share();
    let ino = file.ino();
    let open = async |volume: &Arc<Volume>| {
        volume.open(&Credentials::root(), ino, OpenFlags::READ).await.map(drop)
    };
    for _ in 0..6 {
        fake.fail("Settle", ErrorKind::HeldBack);
    }
    let other = fake.volume(patient).await;
    open(&other).await.unwrap();
    for _ in 0..100 {
        fake.fail("Settle", ErrorKind::HeldBack);
    }
    assert_eq!(open(&volume).await.unwrap_err().kind, ErrorKind::TimedOut);
}

/// Seed 795548938958: others had opened the file while the server did not hear of us, and nobody said so. What was
/// written from then on was held back as that of a file that nobody else has open.
#[tokio::test]
async fn what_others_opened_while_we_were_away_is_written_to_as_a_file_of_others() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.fsync(&file, false).await.unwrap();
    assert!(!file.is_shared());
    fake.share();
    fake.restart();
    volume.fsync(&file, false).await.unwrap();
    assert!(file.is_shared());
    fake.take_log();
    write(&volume, &file, 0, pattern(2, 20_000)).await;
    assert_eq!(starting(&fake.take_log(), "publish").len(), 1);
}

/// The bytes between two small writes may be somebody else's by then: nothing is sent but what was written.
#[tokio::test]
async fn a_small_file_of_others_leaves_its_inode() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.flush(&file).await.unwrap();
    volume.release(&file).await.unwrap();
    fake.share();
    let file = open(&volume, file.ino(), OpenFlags::READ_WRITE).await;
    fake.take_log();
    write(&volume, &file, 2, pattern(2, 3)).await;
    let log = fake.take_log();
    assert!(
        starting(&log, "inline").is_empty() && !starting(&log, "write 0:2+3").is_empty(),
        "{log:?}"
    );
    let mut expected = pattern(1, 10).to_vec();
    expected[2..5].copy_from_slice(&pattern(2, 3));
    assert_eq!(read(&volume, &file, 0, 100).await, expected);
}

const APPEND: OpenFlags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };

/// A file of 10 bytes that others have open, and a handle to append to it.
async fn appendable(fake: &Fake, volume: &Arc<Volume>) -> Arc<OpenFile> {
    let file = create(volume, "a").await;
    write(volume, &file, 0, pattern(1, 10)).await;
    volume.release(&file).await.unwrap();
    fake.share();
    open(volume, file.ino(), APPEND).await
}

/// The last message of an append.
fn unlock_of(file: &OpenFile) -> String {
    format!("lock owner={} kind=0", u64::MAX - file.ino().0)
}

#[tokio::test]
async fn who_appends_to_a_file_of_others_locks_its_end_and_gives_it_back() {
    let (fake, volume) = cluster().await;
    let file = appendable(&fake, &volume).await;
    fake.take_log();
    let written = volume.write(&file, 0, pattern(2, 5)).await.unwrap();
    assert_eq!((written.offset, written.len), (10, 5));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let log = fake.take_log();
    assert_eq!(starting(&log, "lock").len(), 2, "{log:?}");
    assert!(log.last().unwrap().starts_with("lock"), "{log:?}");
}

/// If the metadata server went away just then, the write returned when it was back.
#[tokio::test]
async fn an_append_does_not_wait_until_the_end_is_given_back() {
    let (fake, volume) = cluster().await;
    let file = appendable(&fake, &volume).await;
    let unlock = unlock_of(&file);
    fake.fail(&unlock, ErrorKind::TimedOut);
    fake.take_log();
    volume.write(&file, 0, pattern(2, 5)).await.unwrap();
    let mut log = fake.take_log();
    assert!(starting(&log, &unlock).len() < 2, "{log:?}");
    volume.release(&file).await.unwrap();
    let again = open(&volume, file.ino(), APPEND).await;
    assert!(Arc::ptr_eq(&again.state, &file.state), "who appends now gets in line");
    while starting(&log, &unlock).len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        log.extend(fake.take_log());
    }
}

/// Appends as somebody who is killed when something was asked for that begins so.
async fn append_and_go_away(fake: &Fake, volume: &Arc<Volume>, file: &Arc<OpenFile>, asked: &str) {
    let (appending, to_append) = (Arc::clone(volume), Arc::clone(file));
    let appended = tokio::spawn(async move { appending.write(&to_append, 0, pattern(2, 5)).await });
    until_logged(fake, asked).await;
    appended.abort();
    assert!(appended.await.unwrap_err().is_cancelled());
}

/// It was made when the locks of its process were somebody else's.
#[tokio::test]
async fn an_append_that_waits_for_the_end_when_its_caller_goes_away_is_not_made() {
    let (fake, volume) = cluster().await;
    let file = appendable(&fake, &volume).await;
    fake.fail("lock", ErrorKind::WouldBlock);
    let gate = fake.lock_gate.write().await;
    fake.take_log();
    append_and_go_away(&fake, &volume, &file, "lock").await;
    drop(gate);
    let log = until_logged(&fake, &unlock_of(&file)).await;
    assert!(starting(&log, "write").is_empty(), "{log:?}");
    assert_eq!((file.attr().length, fake.server_length(file.ino())), (10, 10));
}

/// Who appended next did so over what was told too late.
#[tokio::test]
async fn an_append_whose_caller_goes_away_is_told_before_the_end_is_given_back() {
    let (fake, volume) = cluster().await;
    let file = appendable(&fake, &volume).await;
    let gate = fake.publish_gate.write().await;
    fake.take_log();
    append_and_go_away(&fake, &volume, &file, "write").await;
    drop(gate);
    let log = until_logged(&fake, &unlock_of(&file)).await;
    assert_eq!(starting(&log, "publish").len(), 1, "{log:?}");
    assert_eq!(fake.server_length(file.ino()), 15);
}

/// All other mounts that append waited with it until targets had answered what was written here to other files.
#[tokio::test]
async fn who_has_the_end_locked_does_not_wait_for_memory() {
    for len in [5, 9 << 20] {
        let fake = Arc::new(Fake::default());
        // What waits at the gate is not given up.
        let patient = VolumeOptions { operation_wait_ms: 600_000, ..options() };
        let volume = fake.volume(patient).await;
        let large = create(&volume, "large").await;
        let file = appendable(&fake, &volume).await;
        let gate = fake.gate.write().await;
        fake.fail("lock", ErrorKind::WouldBlock);
        let lock_gate = fake.lock_gate.write().await;
        fake.take_log();
        let write = |file: &Arc<OpenFile>, at, len| {
            let (volume, file) = (volume.clone(), file.clone());
            tokio::spawn(async move { volume.write(&file, at, pattern(2, len)).await })
        };
        let appended = write(&file, 0, len);
        until_logged(&fake, "lock").await;
        // All that there is for whoever comes, and somebody in line.
        let others = (0..3).map(|nth| write(&large, nth * (8 << 20), 8 << 20));
        let others: Vec<_> = others.collect();
        until(|| volume.memory().dirty_bytes() >= 14 << 20).await;
        drop(lock_gate);
        until(|| file.attr().length >= 10 + len as u64).await;
        drop(gate);
        assert_eq!(appended.await.unwrap().unwrap().offset, 10);
        for other in others {
            other.await.unwrap().unwrap();
        }
        volume.flush(&large).await.unwrap();
        assert_eq!(volume.memory().dirty_bytes(), 0, "all room is given back");
        assert_eq!(read(&volume, &file, 10, 5).await, pattern(2, len)[..5]);
    }
}

/// Who had opened the file meanwhile, and appended, waited with it until there was memory.
#[tokio::test]
async fn who_has_the_end_locked_waits_for_memory_no_longer_when_others_open_the_file() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 10)).await;
    volume.fsync(&file, false).await.unwrap();
    let _held = fill_memory(&volume);
    fake.take_log();
    let (appending, end) = (Arc::clone(&volume), open(&volume, file.ino(), APPEND).await);
    let appended = tokio::spawn(async move { appending.write(&end, 0, pattern(2, 9 << 20)).await });
    until_logged(&fake, "lock").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!appended.is_finished(), "it waits for memory");
    volume.share(&[Ask { ino: file.ino().0, number: 7, keep: false }]);
    let appended = timeout(Duration::from_secs(20), appended).await.expect("it waits no longer");
    assert_eq!(appended.unwrap().unwrap().offset, 10);
    assert_eq!(fake.server_length(file.ino()), 10 + (9 << 20));
}

/// The parts of a long one once were sent where the first had put them, over what was appended meanwhile.
#[tokio::test]
async fn a_long_append_is_not_torn_by_a_short_one() {
    const LONG: usize = 20 << 20;
    let (_fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let (one, two) =
        (open(&volume, file.ino(), APPEND).await, open(&volume, file.ino(), APPEND).await);
    let long = volume.write(&one, 0, pattern(1, LONG));
    let short = volume.write(&two, 0, pattern(2, 10));
    let (long, short) = tokio::join!(long, short);
    let (long, short) = (long.unwrap().offset as usize, short.unwrap().offset as usize);
    assert!((long, short) == (0, LONG) || (long, short) == (10, 0), "{long} {short}");
    assert_eq!(read(&volume, &file, short as u64, 10).await, pattern(2, 10));
}

/// A mount that may claim ranges.
async fn granted() -> (Arc<Fake>, Arc<Volume>) {
    granted_by(Arc::new(Still)).await
}

/// The same, with a clock of its own.
async fn granted_by(clock: Arc<dyn Clock>) -> (Arc<Fake>, Arc<Volume>) {
    let fake = Arc::new(Fake::default());
    fake.grant_claims(true);
    let volume = fake.volume(VolumeOptions { leases: true, clock, ..options() }).await;
    until_logged(&fake, "Recalls(Recalls { followed: 1").await;
    (fake, volume)
}

/// The same, and a file of 20,000 bytes that others have open, too.
pub(super) async fn claiming() -> (Arc<Fake>, Arc<Volume>, Arc<OpenFile>) {
    let (fake, volume) = granted().await;
    let file = claimable(&fake, &volume).await;
    (fake, volume, file)
}

/// A file of 20,000 bytes that others have open, too.
async fn claimable(fake: &Fake, volume: &Arc<Volume>) -> Arc<OpenFile> {
    let file = create(volume, "a").await;
    write(volume, &file, 0, pattern(1, 20_000)).await;
    volume.release(&file).await.unwrap();
    volume.report_all_closes();
    fake.share();
    let file = open(volume, file.ino(), OpenFlags::READ_WRITE).await;
    assert!(file.is_shared());
    fake.take_log();
    file
}

/// Waits until something is so, which it will be soon.
pub(super) async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("that never came to be");
}

/// What was asked for until something is.
pub(super) async fn until_logged(fake: &Fake, prefix: &str) -> Vec<String> {
    let mut log = Vec::new();
    until(|| {
        log.extend(fake.take_log());
        !starting(&log, prefix).is_empty()
    })
    .await;
    log
}

/// A write that has asked for a claim, and waits for the answer behind the gate.
async fn write_that_asks<'a>(
    fake: &'a Fake,
    volume: &Arc<Volume>,
    file: &Arc<OpenFile>,
    len: usize,
) -> (RwLockWriteGuard<'a, ()>, JoinHandle<Result<Written>>) {
    let gate = fake.claim_gate.write().await;
    let (writing, to_write) = (Arc::clone(volume), Arc::clone(file));
    let written = tokio::spawn(async move { writing.write(&to_write, 0, pattern(2, len)).await });
    until_logged(fake, "claim").await;
    (gate, written)
}

#[tokio::test]
async fn what_is_written_to_a_claimed_range_is_held_back_until_the_claim_is_called_back() {
    let (fake, volume, file) = claiming().await;
    for at in [0, 20_000, 5] {
        write(&volume, &file, at, pattern(2, 20_000)).await;
    }
    let log = fake.take_log();
    assert_eq!(starting(&log, "claim"), ["claim 0-1048576, 1048576"]);
    assert!(starting(&log, "publish").is_empty(), "{log:?}");
    volume.share(&[Ask { ino: file.ino().0, number: 7, keep: false }]);
    let log = until_logged(&fake, "Told").await;
    let told = log.iter().position(|line| line.starts_with("publish length=40000"));
    assert!(told.is_some_and(|at| at < log.len() - 1), "{log:?}");
    fake.grant_claims(false);
    for at in [0, 5] {
        write(&volume, &file, at, pattern(3, 10)).await;
    }
    let log = fake.take_log();
    assert_eq!(starting(&log, "claim"), ["claim 0-1048576, 1048576"], "others are in the way");
    assert_eq!(starting(&log, "publish").len(), 2, "{log:?}");
}

/// Writes to a file of which a mount that hung had claims held the memory of all others until that was lost.
#[tokio::test]
async fn who_waits_for_a_claim_holds_no_memory() {
    let (fake, volume, file) = claiming().await;
    let (gate, written) = write_that_asks(&fake, &volume, &file, 30_000).await;
    assert_eq!(volume.memory().dirty_bytes(), 0);
    drop(gate);
    written.await.unwrap().unwrap();
    assert_eq!(volume.memory().dirty_bytes(), 30_000, "it is held back");
}

/// Until it had memory, somebody else could have claimed what was asked about.
#[tokio::test]
async fn what_may_go_through_once_does_not_wait_for_memory() {
    let (fake, volume, file) = claiming().await;
    fake.let_through_once();
    let (gate, written) = write_that_asks(&fake, &volume, &file, 30_000).await;
    let _held = fill_memory(&volume);
    drop(gate);
    timeout(Duration::from_secs(10), written).await.expect("it is taken").unwrap().unwrap();
}

/// When there was memory for it that was over, or the claim called back, each time: it gave the memory back, and asked for ever.
#[tokio::test]
async fn what_is_claimed_or_may_go_through_for_a_while_does_not_wait_for_memory() {
    for granted in [true, false] {
        let (fake, volume, file) = claiming().await;
        fake.grant_claims(granted);
        let (gate, written) = write_that_asks(&fake, &volume, &file, 30_000).await;
        let _held = fill_memory(&volume);
        drop(gate);
        timeout(Duration::from_secs(10), written).await.expect("it is taken").unwrap().unwrap();
        let log = fake.take_log();
        assert!(!starting(&log, "publish").is_empty(), "it is told: {log:?}");
    }
}

/// It went to where it had been let through before a cut was waited for: somebody else could have claimed that since.
#[tokio::test(start_paused = true)]
async fn what_may_go_through_once_asks_again_after_another_wait() {
    let (fake, volume, file) = claiming().await;
    fake.let_through_once();
    let (gate, written) = write_that_asks(&fake, &volume, &file, 10).await;
    file.state.core().exclusive = true;
    drop(gate);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!written.is_finished(), "it waits for the cut");
    file.state.core().exclusive = false;
    file.state.progress.notify_waiters();
    written.await.unwrap().unwrap();
    assert_eq!(starting(&fake.take_log(), "claim").len(), 1, "it is asked about once more");
}

/// It stood in line once more, and what it had been allowed was over again when there was memory.
#[tokio::test(start_paused = true)]
async fn what_has_asked_for_a_claim_does_not_wait_for_memory_after_another_wait() {
    let (fake, volume, file) = claiming().await;
    let (gate, written) = write_that_asks(&fake, &volume, &file, 30_000).await;
    let _held = fill_memory(&volume);
    file.state.core().exclusive = true;
    drop(gate);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!written.is_finished(), "it waits for the cut");
    file.state.core().exclusive = false;
    file.state.progress.notify_waiters();
    timeout(Duration::from_secs(10), written).await.expect("it is taken").unwrap().unwrap();
    let log = fake.take_log();
    assert!(!starting(&log, "publish").is_empty(), "it is claimed, and told: {log:?}");
}

/// A claim that another write was granted meanwhile covers it: it was held back, beyond what memory there is.
#[tokio::test]
async fn what_goes_through_without_memory_is_told_also_where_it_is_claimed_by_then() {
    let (fake, volume, file) = claiming().await;
    fake.let_through_once();
    let (gate, written) = write_that_asks(&fake, &volume, &file, 30_000).await;
    let _held = fill_memory(&volume);
    file.state.core().claims.granted(0..1 << 20);
    drop(gate);
    timeout(Duration::from_secs(10), written).await.expect("it is taken").unwrap().unwrap();
    let log = fake.take_log();
    assert!(!starting(&log, "publish").is_empty(), "{log:?}");
}

/// Each time there was room of the reserve at once, and it asked for ever.
#[tokio::test]
async fn who_asks_for_claims_in_vain_fails_in_the_end_also_where_memory_is_short() {
    let (fake, volume, file) = claiming().await;
    fake.let_nothing_through();
    let memory = volume.memory();
    let sizes = (8..=20).rev().map(|bits| 1_usize << bits);
    let take = |bytes| std::iter::from_fn(move || memory.try_dirty(bytes));
    let _held: Vec<_> = sizes.flat_map(take).collect();
    let written = volume.write(&file, 0, pattern(2, 10));
    let written = timeout(Duration::from_secs(20), written).await.expect("it ends");
    assert_eq!(written.unwrap_err().kind, ErrorKind::TimedOut);
}

/// Each time it had stood in line for memory, which it gave back to ask, it began to count anew, and asked for ever.
#[tokio::test(start_paused = true)]
async fn who_asks_for_claims_in_vain_fails_in_the_end_also_where_memory_comes_late() {
    const ALL: usize = 1 << 20;
    let (fake, volume) = granted_by(Arc::new(Paused::default())).await;
    let file = claimable(&fake, &volume).await;
    fake.let_nothing_through();
    let mut held = fill_memory(&volume);
    let take_turns = || {
        let volume = Arc::clone(&volume);
        tokio::spawn(async move {
            loop {
                let _all = volume.memory().dirty(ALL).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let others = [take_turns(), take_turns()];
    let first = held.swap_remove(0);
    assert_eq!(first.bytes(), ALL, "so much there is for all");
    drop(first);
    tokio::time::sleep(Duration::from_millis(30)).await;
    let written = volume.write(&file, 0, pattern(2, 10));
    let written = timeout(Duration::from_secs(20), written).await.expect("it ends");
    assert_eq!(written.unwrap_err().kind, ErrorKind::TimedOut);
    others.iter().for_each(JoinHandle::abort);
}

/// Others hold something back elsewhere, and cannot tell it.
#[tokio::test]
async fn a_write_that_is_let_through_once_is_told_and_the_next_one_asks_again() {
    let (fake, volume, file) = claiming().await;
    fake.let_through_once();
    for at in [0, 5] {
        write(&volume, &file, at, pattern(3, 10)).await;
        let log = fake.take_log();
        assert_eq!(starting(&log, "claim"), ["claim 0-1048576, 1048576"]);
        assert_eq!(starting(&log, "publish").len(), 1, "{log:?}");
    }
}

/// One handle that had read something kept all who wrote to the file from claims, for as long as it was open.
#[tokio::test(start_paused = true)]
async fn who_has_read_by_pages_claims_again_when_the_kernel_has_dropped_them() {
    for dropped in [false, true] {
        let (fake, volume) = granted().await;
        let file = create(&volume, "a").await;
        write(&volume, &file, 0, pattern(1, 20_000)).await;
        volume.fsync(&file, false).await.unwrap();
        read(&volume, &file, 0, 10).await;
        let ino = file.ino().0;
        volume.share(&[Ask { ino, number: 7, keep: false }]);
        until_logged(&fake, "Told").await;
        if dropped {
            fake.recall(2, ino);
            while starting(&fake.take_log(), "Recalls(Recalls { followed: 2").is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        write(&volume, &file, 0, pattern(2, 10)).await;
        let log = fake.take_log();
        let expected = match dropped {
            true => "claim 0-1048576, 1048576",
            false => "claim through 0-1048576",
        };
        assert_eq!(starting(&log, "claim"), [expected]);
        assert_eq!(starting(&log, "publish").is_empty(), dropped, "{log:?}");
    }
}

#[tokio::test]
async fn who_is_asked_for_a_look_tells_once_and_goes_on_to_hold_back() {
    let (fake, volume, file) = claiming().await;
    let ino = file.ino().0;
    write(&volume, &file, 0, pattern(2, 30_000)).await;
    fake.take_log();
    let gate = fake.publish_gate.write().await;
    volume.share(&[Ask { ino, number: 7, keep: true }]);
    until_logged(&fake, "write").await;
    write(&volume, &file, 30_000, pattern(3, 10_000)).await;
    volume.share(&[Ask { ino, number: 8, keep: true }]);
    drop(gate);
    let log = until_logged(&fake, &format!("Told(Told {{ ino: {ino}, number: 8")).await;
    let told = log.iter().position(|line| line.contains("number: 8"));
    let grown = log.iter().position(|line| line.starts_with("publish length=40000"));
    assert!(grown.is_some() && grown < told, "{log:?}");
    let answers = starting(&log, "Told");
    let kept = answers.iter().all(|line| line.contains("kept: true"));
    assert!(answers.len() == 2 && kept, "{log:?}");
    write(&volume, &file, 5, pattern(4, 10)).await;
    let log = fake.take_log();
    assert!(starting(&log, "claim").is_empty() && starting(&log, "publish").is_empty(), "{log:?}");
}

/// What it would have held back by it nobody would have asked for.
#[tokio::test]
async fn a_claim_that_is_called_back_before_its_answer_comes_is_not_believed() {
    let (fake, volume, file) = claiming().await;
    let gate = fake.claim_gate.write().await;
    let (other, handle) = (volume.clone(), file.clone());
    let written = tokio::spawn(async move { write(&other, &handle, 0, pattern(2, 10)).await });
    until_logged(&fake, "claim").await;
    volume.share(&[Ask { ino: file.ino().0, number: 7, keep: false }]);
    until_logged(&fake, "Told").await;
    drop(gate);
    written.await.unwrap();
    assert_eq!(starting(&fake.take_log(), "claim").len(), 1, "it is asked for once more");
}

#[tokio::test]
async fn claims_end_with_the_session_in_which_they_were_granted() {
    let (fake, volume, file) = claiming().await;
    write(&volume, &file, 0, pattern(2, 10)).await;
    fake.restart();
    volume.fsync(&file, false).await.unwrap();
    fake.take_log();
    fake.grant_claims(false);
    write(&volume, &file, 0, pattern(3, 10)).await;
    let log = fake.take_log();
    assert_eq!(starting(&log, "publish").len(), 1, "{log:?}");
}

/// The write failed. Such a server says of a claim that it is no operation, before it looks at the session.
#[tokio::test]
async fn a_server_of_an_earlier_release_that_takes_over_is_told_each_write() {
    let (fake, volume, file) = claiming().await;
    fake.restart();
    fake.know_no_claims();
    write(&volume, &file, 0, pattern(2, 10)).await;
    let log = fake.take_log();
    assert_eq!(starting(&log, "claim").len(), 1, "{log:?}");
    assert_eq!(starting(&log, "publish").len(), 1, "{log:?}");
    write(&volume, &file, 5, pattern(3, 10)).await;
    assert!(starting(&fake.take_log(), "claim").is_empty());
}

/// Who reads by what he is told then sees what others had claimed and written.
#[tokio::test]
async fn who_has_a_file_open_and_looks_has_what_others_hold_back_told_first() {
    let (fake, volume, file) = claiming().await;
    let ino = file.ino();
    let forget = || volume.leases(ino).forget(&[ino], volume.now());
    forget();
    read(&volume, &file, 0, 10).await;
    assert_eq!(starting(&fake.take_log(), "getattr"), ["getattr to read 0-10"]);
    forget();
    volume.getattr(ino).await.unwrap();
    assert_eq!(starting(&fake.take_log(), "getattr"), ["getattr told"], "claims may stay");
    volume.release(&file).await.unwrap();
    forget();
    fake.take_log();
    volume.getattr(ino).await.unwrap();
    assert_eq!(starting(&fake.take_log(), "getattr"), ["getattr"], "nobody has it open");
}

#[tokio::test]
async fn what_is_no_write_waits_until_nobody_has_a_claim() {
    let (fake, volume, file) = claiming().await;
    volume.fallocate(&file, FallocateMode::Punch, 0, 4_096).await.unwrap();
    let log = fake.take_log();
    assert_eq!(starting(&log, "claim"), ["claim nothing"]);
    volume.fallocate(&file, FallocateMode::Punch, 8_192, 4_096).await.unwrap();
    assert!(starting(&fake.take_log(), "claim").is_empty(), "not again for a while");
}
