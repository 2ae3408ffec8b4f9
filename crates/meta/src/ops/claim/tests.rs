use crate::tests::world::*;
use futures::FutureExt;
use std::ops::Range;
use std::task::Poll;
use std::time::Duration;
use strake_types::{ErrorKind, Ino, SetTime};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::{
    Ask, Claim, Claimed, Inode, Look, MetaAnswer, MetaOp, Nothing, OpenMode, Publish, Recalls,
    RenewSession, Told,
};

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };
/// Longer than nothing is granted after claims were called back once, or where somebody writes through.
const PAUSE_MS: u64 = 4_500;

/// A user of a session that keeps leases, and asks before it reads what others may have claimed.
async fn client(world: &World) -> User<'_> {
    let session = world.open_session_of(0, &[], true).await.session;
    let user = world.root().at(session).leasing();
    user.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    user
}

async fn tell(user: &User<'_>, Ask { ino, number, keep }: Ask) {
    let told = Told { ino, number, kept: keep, ..Told::default() };
    let told = user.call(MetaOp::Told(told)).await.unwrap();
    assert_eq!(told, MetaAnswer::Done(Nothing {}));
}

/// Follows what is recalled, and tells what is asked for: what that was.
async fn heed(user: &User<'_>) -> Vec<Ask> {
    let recalls = |followed| user.call(MetaOp::Recalls(Recalls { followed, ..Recalls::default() }));
    let Some(Ok(MetaAnswer::Recalled(recalled))) = recalls(0).now_or_never() else {
        return Vec::new();
    };
    let _pending = recalls(recalled.number).now_or_never();
    for ask in &recalled.shared {
        tell(user, *ask).await;
    }
    recalled.shared
}

/// What becomes of something, while these clients do what they are asked.
async fn while_heeding<T>(users: &[&User<'_>], work: impl Future<Output = T>) -> T {
    futures::pin_mut!(work);
    for _ in 0..1_000 {
        if let Poll::Ready(done) = futures::poll!(work.as_mut()) {
            return done;
        }
        for user in users {
            heed(user).await;
        }
        // Of paused time: however slow the machine is, the server's patience is not over before they are asked.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it has no end")
}

/// Two who have a file open that is not small, and know of each other.
async fn two_writers(world: &World) -> (User<'_>, User<'_>, u64) {
    let (a, b) = (client(world).await, client(world).await);
    let ino = a.file(1, "f").await.unwrap();
    a.open(ino, BOTH).await.unwrap();
    a.move_out(ino).await.unwrap();
    b.open(ino, BOTH).await.unwrap();
    for user in [&a, &b] {
        while_heeding(&[&a, &b], user.call(MetaOp::Settle(Inode { ino }))).await.unwrap();
    }
    (a, b, ino)
}

fn wish(ino: u64, range: Range<u64>, wanted_end: u64) -> MetaOp {
    let (start, end) = (range.start, range.end);
    MetaOp::Claim(Claim { ino, start, end, wanted_end, ..Claim::default() })
}

/// As clients ask that write to the range at once.
fn wish_to_write(ino: u64, range: Range<u64>) -> MetaOp {
    let (start, end) = (range.start, range.end);
    MetaOp::Claim(Claim { ino, start, end, wanted_end: end, once: true, ..Claim::default() })
}

fn look(ino: u64) -> MetaOp {
    look_at(ino, 0..0)
}

/// Before this range is read.
fn look_at(ino: u64, range: Range<u64>) -> MetaOp {
    let (start, end) = (range.start, range.end);
    MetaOp::GetAttr(Look { ino, to_read: true, start, end, ..Look::default() })
}

/// As a kernel asks of a file that somebody has open.
fn stat(ino: u64) -> MetaOp {
    MetaOp::GetAttr(Look { ino, told: true, ..Look::default() })
}

fn is_claimed(world: &World, ino: u64) -> bool {
    world.server.core().volumes()[0].sessions.claims.any(Ino(ino))
}

async fn claim(user: &User<'_>, op: MetaOp) -> Claimed {
    match user.call(op).await.unwrap() {
        MetaAnswer::Claimed(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

fn granted(end: u64) -> Claimed {
    Claimed { end, ..Claimed::default() }
}

#[tokio::test(start_paused = true)]
async fn who_reads_has_all_claims_called_back() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let all = [&a, &b];
    let first = while_heeding(&all, claim(&a, wish(ino, 0..10, 20))).await;
    assert_eq!(first, granted(10));
    assert_eq!(claim(&b, wish(ino, 20..30, 30)).await, granted(30));
    for user in all {
        assert!(!user.getattr(ino).await.unwrap().leased, "who reads has to ask");
    }
    let read = b.call(look(ino));
    futures::pin_mut!(read);
    assert!(futures::poll!(read.as_mut()).is_pending());
    a.publish(Publish { ino, length_min: 70_000, ..Publish::default() }).await.unwrap();
    assert_eq!(heed(&a).await.len(), 1);
    assert!(futures::poll!(read.as_mut()).is_pending(), "its own claims are over, too");
    assert_eq!(heed(&b).await.len(), 1);
    let MetaAnswer::Entry(attr) = read.await.unwrap() else { panic!() };
    assert!(attr.leased && attr.length == 70_000);
    let refused = claim(&a, wish(ino, 0..10, 20)).await;
    assert!(refused.end == 0 && refused.through_ms > 0, "{refused:?}");
}

/// Each `fstat` of an open file called all claims back, and a pause followed.
#[tokio::test(start_paused = true)]
async fn who_only_looks_has_what_others_hold_back_told_once_and_the_claims_stay() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 20))).await, granted(10));
    a.call(stat(ino)).await.unwrap();
    assert!(heed(&a).await.is_empty(), "it knows what it holds back itself");
    let shown = b.call(stat(ino));
    futures::pin_mut!(shown);
    assert!(futures::poll!(shown.as_mut()).is_pending());
    a.publish(Publish { ino, length_min: 70_000, ..Publish::default() }).await.unwrap();
    let asks = heed(&a).await;
    assert!(asks.len() == 1 && asks[0].keep, "{asks:?}");
    let MetaAnswer::Entry(attr) = shown.await.unwrap() else { panic!() };
    assert!(!attr.leased && attr.length == 70_000, "who reads has to ask");
    assert!(is_claimed(&world, ino));
    assert_eq!(claim(&b, wish(ino, 20..30, 30)).await, granted(30), "no pause follows");
    let again = a.call(stat(ino));
    futures::pin_mut!(again);
    assert!(futures::poll!(again.as_mut()).is_pending());
    assert!(heed(&a).await.is_empty());
    assert_eq!(heed(&b).await.len(), 1);
    again.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_told_of_an_earlier_look_is_no_answer_to_a_later_one() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 20))).await, granted(10));
    let first = b.call(stat(ino));
    futures::pin_mut!(first);
    assert!(futures::poll!(first.as_mut()).is_pending());
    let asks = heed(&a).await;
    first.await.unwrap();
    let second = b.call(stat(ino));
    futures::pin_mut!(second);
    assert!(futures::poll!(second.as_mut()).is_pending());
    tell(&a, asks[0]).await;
    tell(&a, Ask { number: u64::MAX, ..asks[0] }).await;
    assert!(futures::poll!(second.as_mut()).is_pending(), "more may have been written since");
    tell(&a, Ask { keep: false, ..asks[0] }).await;
    assert!(is_claimed(&world, ino), "that was not the question");
    assert_eq!(heed(&a).await.len(), 1);
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_others_read_by_is_recalled_before_a_range_is_granted() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let attr = while_heeding(&[&a, &b], b.call(look(ino))).await;
    assert!(matches!(attr, Ok(MetaAnswer::Entry(attr)) if attr.leased));
    let claimed = a.call(wish(ino, 0..10, 10));
    futures::pin_mut!(claimed);
    assert!(futures::poll!(claimed.as_mut()).is_pending());
    heed(&b).await;
    let claimed = while_heeding(&[&a], claimed).await.unwrap();
    assert_eq!(claimed, MetaAnswer::Claimed(granted(10)));
}

#[tokio::test(start_paused = true)]
async fn who_writes_where_another_has_claimed_waits_until_that_is_told() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let all = [&a, &b];
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    let other = b.call(wish(ino, 5..6, 6));
    futures::pin_mut!(other);
    assert!(futures::poll!(other.as_mut()).is_pending());
    heed(&a).await;
    let MetaAnswer::Claimed(refused) = other.await.unwrap() else { panic!() };
    assert!(refused.end == 0 && refused.through_ms > 0, "{refused:?}");
    world.clock.advance_ms(PAUSE_MS);
    for user in all {
        heed(user).await;
    }
    assert_eq!(while_heeding(&all, claim(&b, wish(ino, 5..6, 6))).await, granted(6));
    let through = MetaOp::Claim(Claim { ino, through: true, ..Claim::default() });
    let through = while_heeding(&all, claim(&a, through)).await;
    assert!(through.end == 0 && through.through_ms >= 4_000, "an answer may be late: {through:?}");
}

/// Its storage server was lost: who wrote elsewhere waited with it, up to 120 s, and then failed.
#[tokio::test(start_paused = true)]
async fn who_is_slow_to_tell_what_he_has_claimed_keeps_nobody_from_other_ranges() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let all = [&a, &b];
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    a.publish(Publish { ino, length_min: 70_000, ..Publish::default() }).await.unwrap();
    let held_back = async |op| assert_eq!(kind(b.call(op).await), ErrorKind::HeldBack);
    held_back(wish_to_write(ino, 5..6)).await;
    let once = Claimed { once: true, ..Claimed::default() };
    assert_eq!(claim(&b, wish_to_write(ino, 10..30)).await, once);
    held_back(wish(ino, 10..30, 30)).await;
    held_back(wish_to_write(ino, 9..30)).await;
    let MetaAnswer::Entry(attr) = b.call(look_at(ino, 10..70_000)).await.unwrap() else { panic!() };
    assert!(!attr.leased && attr.length == 70_000, "what is read next has to be asked for, too");
    held_back(look_at(ino, 9..20)).await;
    held_back(look_at(ino, 69_999..70_001)).await;
    held_back(look(ino)).await;
    let cut = b.truncate(ino, 20_000).await;
    assert_eq!(kind(cut), ErrorKind::HeldBack, "what is cut off must not be written after that");
    assert_eq!(heed(&a).await.len(), 1);
    let refused = claim(&b, wish_to_write(ino, 5..6)).await;
    assert!(refused.through_ms > 0 && !refused.once, "nobody holds anything back: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cut_waits_for_what_others_have_claimed() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    let cut = b.truncate(ino, 5);
    futures::pin_mut!(cut);
    assert!(futures::poll!(cut.as_mut()).is_pending());
    assert_eq!(heed(&a).await.len(), 1);
    cut.await.unwrap();
}

/// Who opens a file for reading reads it; who may write asks before he reads.
#[tokio::test(start_paused = true)]
async fn who_opens_a_file_to_write_has_no_claims_called_back() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let c = client(&world).await;
    assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    assert!(c.open(ino, BOTH).await.unwrap().unsettled);
    c.call(MetaOp::Settle(Inode { ino })).await.unwrap();
    assert!(is_claimed(&world, ino));
    c.close(ino).await.unwrap();
    assert!(c.open(ino, READ).await.unwrap().unsettled);
    while_heeding(&[&a, &b], c.call(MetaOp::Settle(Inode { ino }))).await.unwrap();
    assert!(!is_claimed(&world, ino));
}

/// As clients of releases before claims: nobody waits for what others hold back.
#[tokio::test(start_paused = true)]
async fn nothing_is_granted_of_a_file_that_somebody_has_open_who_does_not_ask_before_he_reads() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let old = world.root();
    old.open(ino, READ).await.unwrap();
    let refused = while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await;
    assert!(refused.end == 0 && refused.through_ms >= 4_000, "{refused:?}");
    old.close(ino).await.unwrap();
    world.clock.advance_ms(PAUSE_MS);
    assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    assert!(old.open(ino, READ).await.unwrap().unsettled, "it waits for the claims");
}

/// Each of its reads would wait for all that is held back.
#[tokio::test]
async fn nothing_is_granted_of_a_file_that_somebody_has_open_only_to_read() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let reader = client(&world).await;
    reader.open(ino, READ).await.unwrap();
    let refused = while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await;
    assert!(refused.end == 0 && refused.through_ms >= 1_000, "{refused:?}");
    reader.close(ino).await.unwrap();
    world.clock.advance_ms(PAUSE_MS);
    let all = [&a, &b, &reader];
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    // Who may write as well is no such reader, however he has it open besides.
    for mode in [BOTH, READ] {
        reader.open(ino, mode).await.unwrap();
    }
    assert_eq!(while_heeding(&all, claim(&b, wish(ino, 10..20, 20))).await, granted(20));
}

/// It gave up what had been granted since.
#[tokio::test(start_paused = true)]
async fn a_late_copy_of_an_answer_gives_up_no_later_claims() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let all = [&a, &b];
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    let read = b.call(look(ino));
    futures::pin_mut!(read);
    assert!(futures::poll!(read.as_mut()).is_pending());
    let asks = heed(&a).await;
    read.await.unwrap();
    world.clock.advance_ms(PAUSE_MS);
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    tell(&a, asks[0]).await;
    assert!(is_claimed(&world, ino));
    assert!(b.call(look(ino)).now_or_never().is_none(), "who reads waits for it");
}

#[tokio::test(start_paused = true)]
async fn claims_end_with_the_last_handle_and_with_the_session() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let all = [&a, &b];
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    assert_eq!(claim(&b, wish(ino, 10..20, 20)).await, granted(20));
    let closed = RenewSession { closed: vec![ino], ..RenewSession::default() };
    a.call(MetaOp::RenewSession(closed)).await.unwrap();
    let holders = || world.server.core().volumes()[0].sessions.claims.holders(Ino(ino));
    assert_eq!(holders(), [(b.session, true)]);
    b.call(MetaOp::CloseSession(Nothing {})).await.unwrap();
    assert!(holders().is_empty());
    let refused = claim(&a, wish(ino, 0..10, 10)).await;
    assert_eq!(refused.end, 0, "it has the file not open");
}

/// He told each write until he had closed the file, too.
#[tokio::test(start_paused = true)]
async fn who_is_left_alone_goes_on_to_claim_until_somebody_reads() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let all = [&a, &b];
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    assert_eq!(claim(&b, wish(ino, 20..30, 30)).await, granted(30));
    b.close(ino).await.unwrap();
    assert_eq!(while_heeding(&all, claim(&a, wish(ino, 10..30, 30))).await, granted(30));
    assert!(b.open(ino, READ).await.unwrap().unsettled, "he waits for what is held back");
    while_heeding(&all, b.call(MetaOp::Settle(Inode { ino }))).await.unwrap();
    assert!(!is_claimed(&world, ino));
    world.clock.advance_ms(PAUSE_MS);
    let refused = while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await;
    assert!(refused.end == 0 && refused.through_ms >= 1_000, "somebody reads: {refused:?}");
    b.close(ino).await.unwrap();
    world.clock.advance_ms(PAUSE_MS);
    let refused = while_heeding(&all, claim(&a, wish(ino, 0..10, 10))).await;
    assert!(refused.end == 0 && refused.through_ms >= 1_000, "he may read again: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_who_reads_waits_for_those_who_had_claims_and_for_no_others() {
    for claims in [false, true] {
        let world = World::new().await;
        let (a, b, ino) = {
            let (a, b, ino) = two_writers(&world).await;
            if claims {
                let claimed = while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await;
                assert_eq!(claimed, granted(10));
            }
            (a.session, b.session, ino)
        };
        let world = world.killed().await;
        world.open_session_of(b, &[ino], true).await;
        let (a, b) = (world.root().at(a).leasing(), world.root().at(b).leasing());
        let begin = b.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
        let MetaAnswer::Recalled(begin) = begin else { panic!() };
        let (followed, forgotten) = (begin.number, begin.number);
        let forgotten = Recalls { followed, forgotten, ..Recalls::default() };
        let _pending = b.call(MetaOp::Recalls(forgotten)).now_or_never();
        // Who was leased it would read by that.
        let leased = async || b.lookup(1, "f").await.unwrap().leased;
        assert_eq!(leased().await, !claims);
        let read = b.call(look(ino));
        futures::pin_mut!(read);
        if !claims {
            read.await.unwrap();
        } else {
            assert!(futures::poll!(read.as_mut()).is_pending(), "it may come back");
            world.open_session_of(a.session, &[ino], true).await;
            assert!(futures::poll!(read.as_mut()).is_pending(), "it may hold something back");
            assert!(!leased().await);
            while_heeding(&[&a], read).await.unwrap();
            assert!(leased().await);
        }
    }
}

/// Each time that `tar` and `cp -p` set was waited for, of whatever file, until everybody had come back.
#[tokio::test(start_paused = true)]
async fn after_a_restart_who_sets_a_time_waits_for_those_who_had_claims_and_for_no_others() {
    for claims in [false, true] {
        let world = World::new().await;
        let (b, ino) = {
            let (a, b, ino) = two_writers(&world).await;
            if claims {
                let claimed = while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await;
                assert_eq!(claimed, granted(10));
            }
            (b.session, ino)
        };
        let world = world.killed().await;
        world.open_session_of(b, &[ino], true).await;
        let b = world.root().at(b).leasing();
        let change = AttrChange { mtime: Some(SetTime::Now.into()), ..AttrChange::default() };
        // What was leased before is waited for as well, for longer than an answer says who holds something back.
        let set = tokio::time::timeout(Duration::from_secs(10), b.setattr(ino, change)).await;
        let held_back = matches!(&set, Ok(Err(error)) if error.kind == ErrorKind::HeldBack);
        assert_eq!(held_back, claims, "{set:?}");
    }
}

/// The claims were called back, and all wrote through for a while.
#[tokio::test(start_paused = true)]
async fn who_sets_a_time_has_what_others_have_claimed_told_once_and_the_claims_stay() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await, granted(10));
    let change = AttrChange { mtime: Some(SetTime::Now.into()), ..AttrChange::default() };
    let set = b.setattr(ino, change);
    futures::pin_mut!(set);
    assert!(futures::poll!(set.as_mut()).is_pending());
    let asks = heed(&a).await;
    assert!(asks.len() == 1 && asks[0].keep, "{asks:?}");
    while_heeding(&[&a, &b], set).await.unwrap();
    assert!(is_claimed(&world, ino));
}

/// Nobody asked for what he might have held back by what an earlier server had granted, and before he had told it he was granted
/// nothing, nor let through: each write failed after two minutes.
#[tokio::test(start_paused = true)]
async fn who_has_a_file_alone_after_a_restart_is_asked_what_he_holds_back_and_then_answered() {
    let world = World::new().await;
    let (a, b, ino) = {
        let (a, b, ino) = two_writers(&world).await;
        assert_eq!(while_heeding(&[&a, &b], claim(&a, wish(ino, 0..10, 10))).await, granted(10));
        b.close(ino).await.unwrap();
        (a.session, b.session, ino)
    };
    let world = world.killed().await;
    world.open_session(world.session, &[]).await;
    world.open_session_of(b, &[], true).await;
    world.open_session_of(a, &[ino], true).await;
    let a = world.root().at(a).leasing();
    a.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    assert_eq!(kind(a.call(wish(ino, 0..10, 10)).await), ErrorKind::HeldBack);
    assert_eq!(heed(&a).await.len(), 1);
    assert!(!is_claimed(&world, ino));
    let through = claim(&a, wish(ino, 0..10, 10)).await;
    assert!(through.end == 0 && through.through_ms > 0, "nobody else writes: {through:?}");
}

#[tokio::test(start_paused = true)]
async fn who_has_the_file_not_open_is_granted_nothing() {
    let world = World::new().await;
    let (a, b, ino) = two_writers(&world).await;
    let c = client(&world).await;
    let refused = while_heeding(&[&a, &b], claim(&c, wish(ino, 0..10, 10))).await;
    assert_eq!(refused.end, 0);
    c.open(ino, READ).await.unwrap();
    assert_eq!(claim(&c, wish(ino, 0..10, 10)).await.end, 0);
    let gone = c.call(wish(999, 0..10, 10)).await;
    assert_eq!(kind(gone), ErrorKind::Stale);
}
