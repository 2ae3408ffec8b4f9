use crate::tests::world::*;
use futures::FutureExt;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;
use strake_types::{ErrorKind, FileKind, Timestamp};
use strake_wire::message::meta::{
    Ask, Behind, ChangeBehind, Made, MetaAnswer, MetaOp, MetaRequest, NameChange, Nothing,
    OpenSession, Recalled, Recalls, Rename, Told, Unlink,
};
use strake_wire::service::MetaService;

/// A user of a session that keeps leases, and tells what it has changed when it is asked to. `resume`: that of before.
async fn begin(world: &World, resume: u64) -> User<'_> {
    let client = "behind".into();
    let open = OpenSession { client, resume, behind: true, ..OpenSession::default() };
    let op = Some(MetaOp::OpenSession(open));
    let request = MetaRequest { volume: 1, leases: 1, op, ..MetaRequest::default() };
    let session = match world.server.call(request).await.unwrap().answer {
        Some(MetaAnswer::Session(session)) => session,
        other => panic!("{other:?}"),
    };
    assert!(session.behind, "the server knows the rules");
    let user = world.root().checked().at(session.session).leasing().numbered();
    user.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    user
}

/// The number of the exclusive lease that a user has on a directory after a change in it; 0: none.
async fn exclusive_after_change(user: &User<'_>, dir: u64, name: &str) -> u64 {
    let created = user.make(new(dir, name, FileKind::File, 0o644)).await.unwrap();
    created.parent.unwrap().exclusive
}

/// The same when the store has been told that it may have one.
async fn exclusive(user: &User<'_>, dir: u64) -> u64 {
    for nth in 0..100 {
        match exclusive_after_change(user, dir, &format!("made{nth}")).await {
            0 => tokio::time::sleep(Duration::from_millis(5)).await,
            number => return number,
        }
    }
    panic!("none is given")
}

fn removal(user: &User<'_>, dir: u64, name: &str, ino: u64) -> ChangeBehind {
    let unlink = Unlink { at: at(dir, name), directory: false };
    change(user, ino, NameChange::Unlink(unlink))
}

fn change(user: &User<'_>, ino: u64, change: NameChange) -> ChangeBehind {
    let seq = user.world.numbers.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
    let at = user.world.server.core().now().into();
    ChangeBehind { seq, ino, at, change: Some(change), ..ChangeBehind::default() }
}

async fn made(user: &User<'_>, changes: &[ChangeBehind]) -> Made {
    let op = MetaOp::Behind(Behind { changes: changes.to_vec() });
    // A list has no number of its own.
    match user.call_seq(0, 0, op).await.unwrap() {
        MetaAnswer::Made(made) => made,
        other => panic!("{other:?}"),
    }
}

fn recalls_of(user: &User<'_>, recalls: Recalls) -> Option<Recalled> {
    match user.call_seq(0, 0, MetaOp::Recalls(recalls)).now_or_never()? {
        Ok(MetaAnswer::Recalled(recalled)) => Some(recalled),
        other => panic!("{other:?}"),
    }
}

async fn tell(user: &User<'_>, ask: Ask) {
    let told = Told { ino: ask.ino, exclusive: ask.number, ..Told::default() };
    let told = user.call_seq(0, 0, MetaOp::Told(told)).await.unwrap();
    assert_eq!(told, MetaAnswer::Done(Nothing {}));
}

/// What a visitor does, until his question comes to the holder.
async fn asked<'a, T>(
    holder: &User<'_>,
    visit: &mut (impl Future<Output = T> + Unpin + 'a),
) -> Vec<Ask> {
    for _ in 0..200 {
        assert!(futures::poll!(&mut *visit).is_pending(), "nobody has told");
        if let Some(recalled) = recalls_of(holder, Recalls::default())
            && !recalled.exclusive.is_empty()
        {
            return recalled.exclusive;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nobody is asked")
}

/// After a start all that was leased before is recalled: it is forgotten, and followed.
async fn forget_everything(user: &User<'_>, behind: bool) {
    let recalled = recalls_of(user, Recalls { behind, ..Recalls::default() }).unwrap();
    assert!(recalled.everything);
    let (followed, forgotten) = (recalled.number, recalled.number);
    recalls_of(user, Recalls { followed, forgotten, behind, ..Recalls::default() });
}

/// What becomes of a change for which something is recalled from another, who follows.
async fn while_followed<T>(other: &User<'_>, change: impl Future<Output = T>) -> T {
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending(), "what the other believes is recalled");
    let recalled = recalls_of(other, Recalls::default()).unwrap();
    let followed = Recalls { followed: recalled.number, ..Recalls::default() };
    assert!(recalls_of(other, followed).is_none());
    change.await
}

#[tokio::test]
async fn who_comes_to_a_directory_that_another_has_for_himself_waits_until_he_has_told() {
    let world = World::new().await;
    let (a, b) = (begin(&world, 0).await, begin(&world, 0).await);
    let dir = a.mkdir(1, "d").await.unwrap();
    let file = a.file(dir, "f").await.unwrap();
    let number = exclusive(&a, dir).await;
    assert_eq!(exclusive_after_change(&a, dir, "more").await, number, "it is the same");
    let mut looks = Box::pin(b.call(MetaOp::Lookup(at(dir, "f"))));
    assert_eq!(asked(&a, &mut looks).await, [Ask { ino: dir, number, keep: false }]);
    // Answered before the question came.
    let removed = made(&a, &[removal(&a, dir, "f", file)]).await;
    assert_eq!((removed.changes.len(), removed.refused), (1, 0));
    assert_eq!(removed.changes[0].parent.as_ref().unwrap().exclusive, 0, "it is asked for");
    tell(&a, Ask { ino: dir, number, keep: false }).await;
    assert_eq!(looks.await.unwrap(), MetaAnswer::Missing(Nothing {}));
    let number = while_followed(&b, exclusive_after_change(&a, dir, "last")).await;
    assert_eq!(number, 0, "others are there");
}

#[tokio::test]
async fn a_directory_that_others_use_is_leased_exclusively_to_nobody_until_they_have_gone() {
    let world = World::new().await;
    let (a, b) = (begin(&world, 0).await, begin(&world, 0).await);
    let (dir, own) = (a.mkdir(1, "d").await.unwrap(), a.mkdir(1, "own").await.unwrap());
    exclusive(&a, own).await;
    b.call(MetaOp::Lookup(at(dir, "no"))).await.unwrap();
    let number = while_followed(&b, exclusive_after_change(&a, dir, "f")).await;
    assert_eq!(number, 0, "he was there a moment ago");
    world.clock.advance_ms(1_000);
    recalls_of(&a, Recalls::default());
    world.clock.advance_ms(1_500);
    recalls_of(&a, Recalls::default());
    assert_ne!(exclusive_after_change(&a, dir, "g").await, 0);
}

#[tokio::test]
async fn what_was_answered_is_made_in_order_up_to_the_first_that_is_refused_and_once() {
    let world = World::new().await;
    let a = begin(&world, 0).await;
    let dir = a.mkdir(1, "d").await.unwrap();
    let (f, g) = (a.file(dir, "f").await.unwrap(), a.file(dir, "g").await.unwrap());
    exclusive(&a, dir).await;
    let rename = |from, to, ino, other| {
        let rename = Rename { from: at(dir, from), to: at(dir, to), ..Rename::default() };
        ChangeBehind { other, ..change(&a, ino, NameChange::Rename(rename)) }
    };
    let changes = [
        rename("f", "x", f, 0),
        rename("x", "g", f, g),
        removal(&a, dir, "h", f),
        removal(&a, dir, "g", f),
    ];
    let all = made(&a, &changes).await;
    assert_eq!((all.changes.len(), all.refused), (2, ErrorKind::NotFound as u32), "{}", all.why);
    assert_eq!(all.changes[1].other.as_ref().unwrap().nlink, 0);
    assert_eq!(a.lookup(dir, "g").await.unwrap().ino, f);
    // Its answer was lost.
    let again = made(&a, &changes[..2]).await;
    assert_eq!((again.changes.len(), again.refused), (2, 0));
    let of_another = removal(&a, dir, "g", g);
    assert_eq!(made(&a, &[of_another]).await.refused, ErrorKind::Stale as u32);
    assert_eq!(a.lookup(dir, "g").await.unwrap().ino, f);
}

#[tokio::test]
async fn a_change_that_was_answered_has_the_time_that_was_answered_unless_that_is_far_off() {
    let world = World::new().await;
    let a = begin(&world, 0).await;
    let dir = a.mkdir(1, "d").await.unwrap();
    let files = [a.file(dir, "f").await.unwrap(), a.file(dir, "g").await.unwrap()];
    exclusive(&a, dir).await;
    let now = world.server.core().now();
    let early = Timestamp { seconds: now.seconds - 20, nanos: 7 };
    let far = Timestamp { seconds: now.seconds - 2_000, nanos: 7 };
    let f = ChangeBehind { at: early.into(), ..removal(&a, dir, "f", files[0]) };
    let g = ChangeBehind { at: far.into(), ..removal(&a, dir, "g", files[1]) };
    let made = made(&a, &[f, g]).await;
    let times = made.changes.iter().map(|made| made.parent.as_ref().unwrap().mtime);
    let times: Vec<Timestamp> = times.map(Into::into).collect();
    assert_eq!(times[0], early);
    assert!(times[1] >= now);
}

/// It was made after others had seen what was before it.
#[tokio::test]
async fn what_was_answered_is_not_made_where_others_were_when_all_leases_were_over() {
    let world = World::new().await;
    let (a, b) = (begin(&world, 0).await, begin(&world, 0).await);
    let (dir, other) = (a.mkdir(1, "d").await.unwrap(), a.mkdir(1, "e").await.unwrap());
    let (f, g) = (a.file(dir, "f").await.unwrap(), a.file(other, "g").await.unwrap());
    exclusive(&a, dir).await;
    exclusive(&a, other).await;
    let changes = [removal(&a, dir, "f", f), removal(&a, other, "g", g)];
    world.clock.advance_ms(4_000);
    assert_eq!(b.lookup(dir, "f").await.unwrap().ino, f, "he is waited for no longer");
    let none = made(&a, &changes).await;
    assert_eq!(
        (none.changes.len(), none.refused),
        (0, ErrorKind::Stale as u32),
        "nor what came after it"
    );
    recalls_of(&a, Recalls::default());
    let anew = removal(&a, other, "g", g);
    assert_eq!(made(&a, &[anew]).await.refused, 0, "nobody was there");
}

#[tokio::test]
async fn after_a_restart_visitors_wait_for_who_may_have_something_under_way() {
    let mut world = World::new().await;
    let (dir, f, a, b) = {
        let (a, b) = (begin(&world, 0).await, begin(&world, 0).await);
        let dir = a.mkdir(1, "d").await.unwrap();
        let f = a.file(dir, "f").await.unwrap();
        exclusive(&a, dir).await;
        (dir, f, a.session, b.session)
    };
    world = world.killed().await;
    let b = begin(&world, b).await;
    forget_everything(&b, false).await;
    let mut looks = Box::pin(b.call(MetaOp::Lookup(at(dir, "f"))));
    assert!(futures::poll!(&mut looks).is_pending());
    let a = world.root().checked().at(a).leasing().numbered();
    let open = OpenSession { resume: a.session, behind: true, ..OpenSession::default() };
    let op = Some(MetaOp::OpenSession(open));
    let request = MetaRequest { volume: 1, leases: 1, op, ..MetaRequest::default() };
    world.server.call(request).await.unwrap();
    forget_everything(&a, true).await;
    assert!(futures::poll!(&mut looks).is_pending(), "it is not sent yet");
    assert_eq!(made(&a, &[removal(&a, dir, "f", f)]).await.refused, 0);
    recalls_of(&a, Recalls::default());
    let looked = tokio::time::timeout(Duration::from_secs(5), looks).await.unwrap();
    let missing = [Ok(MetaAnswer::Missing(Nothing {})), Err(ErrorKind::NotFound)];
    assert!(missing.contains(&looked.map_err(|error| error.kind)));
    let late = removal(&a, dir, "made0", 0);
    assert_eq!(
        made(&a, &[late]).await.refused,
        ErrorKind::Stale as u32,
        "it has no lease any more"
    );
}

#[tokio::test]
async fn a_session_that_has_had_no_exclusive_lease_for_a_while_is_waited_for_by_nobody() {
    let mut world = World::new().await;
    let b = {
        let (a, b) = (begin(&world, 0).await, begin(&world, 0).await);
        let dir = a.mkdir(1, "d").await.unwrap();
        let number = exclusive(&a, dir).await;
        let back = Recalls { given_back: vec![number], ..Recalls::default() };
        recalls_of(&a, back);
        for _ in 0..6 {
            world.clock.advance_ms(2_500);
            recalls_of(&a, Recalls::default());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        b.session
    };
    world = world.killed().await;
    let b = begin(&world, b).await;
    let looks = b.lookup(1, "d");
    futures::pin_mut!(looks);
    match futures::poll!(looks.as_mut()) {
        Poll::Ready(found) => drop(found.unwrap()),
        Poll::Pending => panic!("it waits"),
    }
}
