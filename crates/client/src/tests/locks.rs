//! Locks that are waited for and given up. Time goes on only when nobody has anything to do: on a busy machine answers are not late.

use super::*;
use crate::ops::locks::SERVER_WAITS_MAX;

fn lock(wait: bool) -> LockRequest {
    let (kind, end) = (LockKind::Exclusive, u64::MAX);
    LockRequest { owner: 7, pid: 1, start: 0, end, kind, flock: true, wait }
}

/// What the server is asked once nobody has anything to do any more.
async fn asked(fake: &Fake) -> Vec<String> {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    starting(&fake.take_log(), "lock")
}

/// A process that waits for a lock gets a signal, and asks again. The lock that its first request is granted is
/// given back; that must not be the one that it gets by its second.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_up_is_given_back_before_its_owner_gets_it_again() {
    let (fake, volume) = cluster().await;
    fake.fail("lock", ErrorKind::WouldBlock);
    let gate = fake.lock_gate.write().await;
    let waiting = volume.set_lock(Ino(2), lock(true));
    let gave_up = tokio::time::timeout(std::time::Duration::from_millis(20), waiting).await;
    assert!(gave_up.is_err());
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2"]);
    let (own, ino) = (volume.clone(), Ino(2));
    let again = tokio::spawn(async move { own.set_lock(ino, lock(false)).await });
    assert_eq!(asked(&fake).await, [""; 0], "it waits for the end of the first");
    let stranger = LockRequest { owner: 8, ..lock(false) };
    volume.set_lock(ino, stranger).await.unwrap();
    assert_eq!(asked(&fake).await, ["lock owner=8 kind=2"]);
    drop(gate);
    again.await.unwrap().unwrap();
    let order = ["lock owner=7 kind=2", "lock owner=7 kind=0", "lock owner=7 kind=2"];
    assert_eq!(asked(&fake).await, order);
}

/// Also the first question, to which the server would answer at once, may be given up.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_to_nobody_is_given_back() {
    let (fake, volume) = cluster().await;
    assert!(volume.set_lock(Ino(2), lock(true)).now_or_never().is_none());
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", "lock owner=7 kind=0"]);
}

/// A process has a lock that others may share, waits for one of its own on more than that, and gets a signal: the lock
/// that it had went as well.
#[tokio::test(start_paused = true)]
async fn who_gives_up_a_wait_keeps_what_it_had() {
    let (fake, volume) = cluster().await;
    let lock = |kind, end, wait| LockRequest { kind, end, flock: false, ..lock(wait) };
    volume.set_lock(Ino(2), lock(LockKind::Shared, 9, false)).await.unwrap();
    fake.take_log();
    let upgrade = lock(LockKind::Exclusive, 19, true);
    assert!(volume.set_lock(Ino(2), upgrade).now_or_never().is_none());
    let kept = ["lock owner=7 kind=2", "lock owner=7 kind=1", "lock owner=7 kind=0"];
    assert_eq!(asked(&fake).await, kept);
}

/// An owner who shares a lock, and is to wait when he asks to have it alone.
async fn sharing() -> (Arc<Fake>, Arc<Volume>) {
    let (fake, volume) = cluster().await;
    let shared = LockRequest { kind: LockKind::Shared, ..lock(false) };
    volume.set_lock(Ino(2), shared).await.unwrap();
    fake.fail("lock owner=7 kind=2", ErrorKind::WouldBlock);
    (fake, volume)
}

/// But not a flock that it waited to change, which it has no more while it waits: it would get that back, though others may have
/// been granted theirs by then.
#[tokio::test(start_paused = true)]
async fn a_flock_that_was_to_be_changed_does_not_come_back_when_the_wait_is_given_up() {
    let (fake, volume) = sharing().await;
    let gate = fake.lock_gate.write().await;
    {
        let waiting = volume.set_lock(Ino(2), lock(true));
        futures::pin_mut!(waiting);
        for _ in 0..2 {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            asked(&fake).await;
        }
    }
    drop(gate);
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", "lock owner=7 kind=0"]);
}

/// Its file is closed while the request is under way: what was unlocked by that does not come back.
#[tokio::test(start_paused = true)]
async fn what_is_unlocked_after_a_wait_was_given_up_stays_so() {
    let (fake, volume) = sharing().await;
    let gate = fake.lock_gate.write().await;
    let waiting = volume.set_lock(Ino(2), lock(true));
    let gave_up = tokio::time::timeout(std::time::Duration::from_millis(20), waiting).await;
    assert!(gave_up.is_err());
    fake.take_log();
    let unlock = LockRequest { kind: LockKind::Unlock, ..lock(false) };
    volume.set_lock(Ino(2), unlock).await.unwrap();
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=0"], "it waits for nothing");
    drop(gate);
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", "lock owner=7 kind=0"]);
}

/// The answer had come, and its caller went away without a look at it: nobody was left to give the lock back.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_answer_nobody_has_looked_at_is_given_back() {
    let (fake, volume) = cluster().await;
    {
        let waiting = volume.set_lock(Ino(2), lock(true));
        futures::pin_mut!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(asked(&fake).await, ["lock owner=7 kind=2"]);
    }
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=0"]);
}

/// Two threads of a process wait for a lock, one of them gets a signal, and both requests are granted: what the first one
/// gives back may be what the second one was just granted.
#[tokio::test(start_paused = true)]
async fn a_lock_beside_which_another_wait_was_given_up_is_asked_for_again() {
    let (fake, volume) = cluster().await;
    for _ in 0..2 {
        fake.fail("lock", ErrorKind::WouldBlock);
    }
    let gate = fake.lock_gate.write().await;
    let mut first = Box::pin(volume.set_lock(Ino(2), lock(true)));
    for _ in 0..2 {
        assert!(futures::poll!(first.as_mut()).is_pending());
        asked(&fake).await;
    }
    let own = volume.clone();
    let second = tokio::spawn(async move { own.set_lock(Ino(2), lock(true)).await });
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2"], "it does not wait for the first");
    drop(first);
    drop(gate);
    second.await.unwrap().unwrap();
    let asked = asked(&fake).await;
    assert_eq!(starting(&asked, "lock owner=7 kind=2").len(), 3, "{asked:?}");
    assert!(asked.ends_with(&["lock owner=7 kind=0".into(), "lock owner=7 kind=2".into()]));
}

/// Nobody knew of it, and it was held until the file was closed.
#[tokio::test(start_paused = true)]
async fn a_lock_that_may_have_been_granted_when_its_owner_is_told_of_a_timeout_is_given_back() {
    let (fake, volume) = cluster().await;
    fake.fail("lock owner=7 kind=2", ErrorKind::TimedOut);
    let told = volume.set_lock(Ino(2), lock(false)).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut);
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", "lock owner=7 kind=0"]);
}

/// The server was away when a process ended: its locks stayed for as long as the mount.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_not_answered_in_time_is_sent_until_it_is() {
    let (fake, volume) = cluster().await;
    volume.set_lock(Ino(2), lock(false)).await.unwrap();
    for _ in 0..3 {
        fake.fail("lock owner=7 kind=0", ErrorKind::TimedOut);
    }
    fake.take_log();
    let unlock = LockRequest { kind: LockKind::Unlock, ..lock(false) };
    let told = volume.set_lock(Ino(2), unlock).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut);
    // Whoever is the same to the server keeps what he gets after that.
    volume.set_lock(Ino(2), lock(false)).await.unwrap();
    let mut order = vec!["lock owner=7 kind=0"; 4];
    order.push("lock owner=7 kind=2");
    assert_eq!(asked(&fake).await, order);
}

/// As long as the server is away nobody waits for what is to be given back longer than for an answer.
#[tokio::test(start_paused = true)]
async fn who_locks_again_while_an_unlock_is_not_answered_is_told_in_time() {
    let fake = Arc::new(Fake::default());
    let volume = fake.volume(VolumeOptions { operation_wait_ms: 50, ..options() }).await;
    for _ in 0..1_000 {
        fake.fail("lock owner=7 kind=0", ErrorKind::TimedOut);
    }
    let unlock = LockRequest { kind: LockKind::Unlock, ..lock(false) };
    for ask in [unlock, lock(false), unlock] {
        let told = volume.set_lock(Ino(2), ask).await;
        assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut);
    }
    assert!(!asked(&fake).await.contains(&"lock owner=7 kind=2".to_string()));
}

/// Each that waited had a place among the requests that a server answers at once: where there was none left, not even the
/// unlock that all of them waited for came to its turn. Later each asked as if its wait began anew, and no circle of such
/// waits was ever found.
#[tokio::test(start_paused = true)]
async fn who_has_no_place_at_the_server_asks_without_waiting_there() {
    let (fake, volume) = cluster().await;
    let places = u32::try_from(SERVER_WAITS_MAX).unwrap();
    let _taken = Arc::clone(&volume.lock_waits).acquire_many_owned(places).await.unwrap();
    let _gate = fake.lock_gate.write().await;
    for _ in 0..3 {
        fake.fail("lock", ErrorKind::WouldBlock);
    }
    volume.set_lock(Ino(2), lock(true)).await.unwrap();
    let in_line = "lock owner=7 kind=2 in line";
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", in_line, in_line, in_line]);
}

/// A mount, and a handle to append to its file.
type Logger = (Arc<Volume>, Arc<OpenFile>);

/// A file of so many bytes whose consistency is close-to-open, and two that append to it.
async fn loggers(len: usize) -> (Arc<Fake>, [Logger; 2]) {
    let (fake, one) = cluster().await;
    let two = fake.volume(options()).await;
    let file = create(&one, "log").await;
    write(&one, &file, 0, pattern(1, len)).await;
    one.release(&file).await.unwrap();
    fake.relax(file.ino());
    let append = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
    let mine = open(&one, file.ino(), append).await;
    let theirs = open(&two, file.ino(), append).await;
    (fake, [(one, mine), (two, theirs)])
}

/// Appends something under a lock, which is given back or shared `then`. Where it was put.
async fn append((volume, file): &Logger, record: Bytes, then: LockKind) -> u64 {
    volume.set_lock(file.ino(), lock(false)).await.unwrap();
    let written = volume.write(file, 0, record).await.unwrap();
    let then = LockRequest { kind: then, ..lock(false) };
    volume.set_lock(file.ino(), then).await.unwrap();
    written.offset
}

/// What a mount that opens the file now sees.
async fn seen(fake: &Arc<Fake>, ino: Ino) -> Vec<u8> {
    let reader = fake.volume(options()).await;
    let file = open(&reader, ino, OpenFlags::READ).await;
    read(&reader, &file, 0, 100_000).await
}

/// It was held back: who had the lock next appended there as well, and one of the two was gone.
#[tokio::test(start_paused = true)]
async fn what_was_written_under_a_lock_is_told_before_others_get_that() {
    for (len, then) in [
        (100, LockKind::Unlock),
        (20_000, LockKind::Unlock),
        (100, LockKind::Shared),
        (20_000, LockKind::Shared),
    ] {
        let (fake, [one, two]) = loggers(len).await;
        assert_eq!(append(&one, pattern(2, 100), then).await, len as u64);
        assert_eq!(append(&two, pattern(3, 50), then).await, len as u64 + 100);
        let all: Vec<u8> = [pattern(1, len), pattern(2, 100), pattern(3, 50)].concat();
        assert!(seen(&fake, one.1.ino()).await == all, "{len} {then:?}");
    }
}

/// Where something else of the file was untold it was appended at the end that was known before; and of a small file zeros came
/// over what another mount had appended.
#[tokio::test(start_paused = true)]
async fn who_appends_under_a_lock_asks_for_the_end_whatever_is_held_back() {
    for len in [100, 20_000] {
        let (fake, [one, two]) = loggers(len).await;
        let elsewhere = open(&two.0, two.1.ino(), OpenFlags::READ_WRITE).await;
        write(&two.0, &elsewhere, 0, pattern(4, 10)).await;
        one.0.set_lock(one.1.ino(), lock(false)).await.unwrap();
        write(&one.0, &one.1, 0, pattern(2, 100)).await;
        one.0.fsync(&one.1, false).await.unwrap();
        assert!(!elsewhere.state.core().is_told());
        assert_eq!(append(&two, pattern(3, 50), LockKind::Unlock).await, len as u64 + 100);
        let old = pattern(1, len).slice(10..);
        let all = [pattern(4, 10), old, pattern(2, 100), pattern(3, 50)].concat();
        assert!(seen(&fake, one.1.ino()).await == all, "{len}");
    }
}

/// Of a small file all between two writes is sent along, and was what it had been before another mount had the lock.
#[tokio::test(start_paused = true)]
async fn what_others_changed_under_a_lock_stays_whatever_who_has_it_next_held_back() {
    for zeroes in [false, true] {
        let (fake, [(one, log), (two, _)]) = loggers(100).await;
        let ino = log.ino();
        let mine = open(&one, ino, OpenFlags::READ_WRITE).await;
        let theirs = open(&two, ino, OpenFlags::READ_WRITE).await;
        let unlock = LockRequest { kind: LockKind::Unlock, ..lock(false) };
        write(&two, &theirs, 0, pattern(4, 10)).await;
        one.set_lock(ino, lock(false)).await.unwrap();
        write(&one, &mine, 50, pattern(2, 10)).await;
        one.set_lock(ino, unlock).await.unwrap();
        two.set_lock(ino, lock(false)).await.unwrap();
        let zeros = Bytes::from_static(&[0; 10]);
        match zeroes {
            true => two.fallocate(&theirs, FallocateMode::Zero, 90, 10).await.unwrap(),
            false => write(&two, &theirs, 90, zeros.clone()).await,
        }
        two.set_lock(ino, unlock).await.unwrap();
        let old = pattern(1, 100);
        let [before, after] = [old.slice(10..50), old.slice(60..90)];
        let all = [pattern(4, 10), before, pattern(2, 10), after, zeros].concat();
        assert!(seen(&fake, ino).await == all, "{zeroes}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_gets_a_lock_reads_what_was_told_whatever_he_holds_back() {
    let (_fake, [one, two]) = loggers(100).await;
    let theirs = open(&two.0, two.1.ino(), OpenFlags::READ_WRITE).await;
    write(&two.0, &theirs, 0, pattern(4, 10)).await;
    append(&one, pattern(2, 100), LockKind::Unlock).await;
    two.0.set_lock(theirs.ino(), lock(false)).await.unwrap();
    let all = [pattern(4, 10), pattern(1, 100).slice(10..), pattern(2, 100)].concat();
    assert!(read(&two.0, &theirs, 0, 1_000).await == all);
}

/// It was given back when what is held back was told, which may be long after.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_to_nobody_is_given_back_whatever_cannot_be_told() {
    let (fake, [(volume, file), _]) = loggers(20_000).await;
    write(&volume, &file, 0, pattern(2, 100)).await;
    let _untold = fake.publish_gate.write().await;
    assert!(volume.set_lock(file.ino(), lock(true)).now_or_never().is_none());
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", "lock owner=7 kind=0"]);
}

/// A wait for more than its owner had was granted to nobody while he unlocked what he had, and all of it went to others before
/// what he had written there was told.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_to_nobody_takes_none_along_that_is_being_told() {
    let (fake, [(volume, file), _]) = loggers(20_000).await;
    let ino = file.ino();
    let lock = |kind, end, wait| LockRequest { kind, end, flock: false, ..lock(wait) };
    volume.set_lock(ino, lock(LockKind::Exclusive, 99, false)).await.unwrap();
    write(&volume, &file, 0, pattern(2, 100)).await;
    fake.fail("lock", ErrorKind::WouldBlock);
    let unanswered = fake.lock_gate.write().await;
    {
        let waiting = volume.set_lock(ino, lock(LockKind::Exclusive, 199, true));
        futures::pin_mut!(waiting);
        for _ in 0..2 {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            asked(&fake).await;
        }
    }
    let untold = fake.publish_gate.write().await;
    let (own, unlock) = (volume.clone(), lock(LockKind::Unlock, 99, false));
    let unlocking = tokio::spawn(async move { own.set_lock(ino, unlock).await });
    assert_eq!(asked(&fake).await, [""; 0]);
    drop(unanswered);
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2"], "what was written is not told yet");
    drop(untold);
    unlocking.await.unwrap().unwrap();
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=0"; 2]);
}

/// The same of what its owner unlocks when all but that is to be given back already.
#[tokio::test(start_paused = true)]
async fn what_is_unlocked_while_more_is_given_back_is_told_first() {
    let (fake, [(volume, file), _]) = loggers(20_000).await;
    let ino = file.ino();
    let lock = |kind, end, wait| LockRequest { kind, end, flock: false, ..lock(wait) };
    volume.set_lock(ino, lock(LockKind::Shared, 99, false)).await.unwrap();
    write(&volume, &file, 0, pattern(2, 100)).await;
    fake.fail("lock owner=7 kind=1", ErrorKind::TimedOut);
    fake.take_log();
    let wider = lock(LockKind::Exclusive, 199, true);
    assert!(volume.set_lock(ino, wider).now_or_never().is_none());
    assert_eq!(asked(&fake).await, ["lock owner=7 kind=2", "lock owner=7 kind=1"]);
    volume.set_lock(ino, lock(LockKind::Unlock, 99, false)).await.unwrap();
    let mut log = fake.take_log();
    log.retain(|line| line.starts_with("publish") || line.starts_with("lock"));
    assert!(log[0].starts_with("publish"), "{log:?}");
    assert!(log[1..] == ["lock owner=7 kind=0"; 2], "{log:?}");
}

/// What another mount had moved out of the inode could not follow it, and the next write tried that again and again, for ever.
#[tokio::test(start_paused = true)]
async fn a_write_is_told_that_what_is_held_back_cannot_be_sent() {
    let (fake, [(volume, log), _]) = loggers(100).await;
    let file = open(&volume, log.ino(), OpenFlags::READ_WRITE).await;
    write(&volume, &file, 0, pattern(4, 10)).await;
    volume.set_lock(file.ino(), lock(false)).await.unwrap();
    fake.fail("inline", ErrorKind::FileTooBig);
    fake.fail("move out", ErrorKind::NoSpace);
    let refused = volume.write(&file, 50, pattern(2, 10)).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::NoSpace);
    write(&volume, &file, 50, pattern(2, 10)).await;
    volume.fsync(&file, false).await.unwrap();
    let old = pattern(1, 100);
    let all = [pattern(4, 10), old.slice(10..50), pattern(2, 10), old.slice(60..)].concat();
    assert!(seen(&fake, file.ino()).await == all);
}

/// Its owner is told of a timeout, and the lock goes to others when they can see what was written.
#[tokio::test(start_paused = true)]
async fn an_unlock_waits_for_what_cannot_be_told() {
    let (fake, [(volume, file), _]) = loggers(20_000).await;
    volume.set_lock(file.ino(), lock(false)).await.unwrap();
    write(&volume, &file, 0, pattern(2, 100)).await;
    fake.fail("publish", ErrorKind::TimedOut);
    fake.take_log();
    let unlock = LockRequest { kind: LockKind::Unlock, ..lock(false) };
    let told = volume.set_lock(file.ino(), unlock).await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::TimedOut);
    let mut log = shared::until_logged(&fake, "lock").await;
    log.retain(|line| line.starts_with("publish") || line.starts_with("lock"));
    assert_eq!(starting(&log, "publish").len(), 2, "{log:?}");
    assert!(log[2..] == ["lock owner=7 kind=0"], "{log:?}");
}
