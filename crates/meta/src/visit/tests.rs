use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_types::{ErrorKind, FileKind, Timestamp, VolumeId};
use strake_wire::message::meta::{
    Ask, Behind, ChangeBehind, MetaAnswer, MetaOp, MetaRequest, NameChange, OpenSession, Recalled,
    Recalls, Unlink,
};
use strake_wire::service::MetaService;

/// A user of a session that gives exclusive leases back when it is asked to.
async fn begin(world: &World) -> User<'_> {
    let open = OpenSession { client: "visits".into(), behind: true, ..OpenSession::default() };
    let op = Some(MetaOp::OpenSession(open));
    let request = MetaRequest { volume: 1, leases: 1, op, ..MetaRequest::default() };
    let session = match world.server.call(request).await.unwrap().answer {
        Some(MetaAnswer::Session(session)) => session.session,
        other => panic!("{other:?}"),
    };
    let user = world.root().checked().at(session).leasing().numbered();
    user.call(MetaOp::Recalls(Recalls::default())).await.unwrap();
    user
}

/// The number of the exclusive lease that a user has on a directory, if he is given one; 0: he is not.
async fn exclusive(user: &User<'_>, dir: u64) -> u64 {
    for _ in 0..20 {
        let name = format!("made{}", user.world.numbers.load(Ordering::SeqCst));
        let made = new(dir, &name, FileKind::File, 0o644);
        match user.make(made).await.unwrap().parent.unwrap().exclusive {
            0 => tokio::time::sleep(Duration::from_millis(5)).await,
            number => return number,
        }
    }
    0
}

/// What is written behind is made one after the other: with milliseconds for each that is slower than many who ask at once.
#[tokio::test]
async fn where_commits_take_long_no_directory_is_leased_exclusively() {
    for at_once in [true, false] {
        let kv = MemoryKv::new();
        let world = World::on(Arc::new(if at_once { kv.at_once() } else { kv })).await;
        let user = begin(&world).await;
        let dir = user.mkdir(1, "d").await.unwrap();
        assert_eq!(exclusive(&user, dir).await != 0, at_once);
    }
}

async fn recalled(user: &User<'_>) -> Recalled {
    match user.call_seq(0, 0, MetaOp::Recalls(Recalls::default())).await.unwrap() {
        MetaAnswer::Recalled(recalled) => recalled,
        other => panic!("{other:?}"),
    }
}

/// It lasted for as long as the directory was used, and what was answered by it was not on disk.
#[tokio::test]
async fn an_exclusive_lease_is_asked_back_when_answers_have_to_be_on_disk() {
    let world = World::new().await;
    let user = begin(&world).await;
    let dir = user.mkdir(1, "d").await.unwrap();
    let number = exclusive(&user, dir).await;
    assert_ne!(number, 0);
    {
        let mut map = world.manager.map.lock();
        map.volumes[0].spec.sync_always = Some(true);
        map.epoch += 1;
    }
    world.map.refresh().await.unwrap();
    assert_eq!(exclusive(&user, dir).await, 0);
    assert_eq!(recalled(&user).await.exclusive, [Ask { ino: dir, number, keep: false }]);
}

/// One in which nothing was changed could not be removed behind.
#[tokio::test]
async fn a_new_directory_is_leased_exclusively_to_who_has_made_it_and_given_back_to_who_comes() {
    let world = World::new().await;
    let user = begin(&world).await;
    let dir = user.mkdir(1, "d").await.unwrap();
    assert_ne!(exclusive(&user, dir).await, 0);
    let other = begin(&world).await;
    let made = user.make(new(dir, "e", FileKind::Directory, 0o755)).await.unwrap();
    let (ino, number) = (made.attr.ino, made.attr.exclusive);
    assert_ne!(number, 0);
    assert_eq!(exclusive(&user, ino).await, number);
    assert_eq!(other.getattr(ino).await.unwrap_err().kind, ErrorKind::HeldBack);
    assert_eq!(recalled(&user).await.exclusive, [Ask { ino, number, keep: false }]);
    let file = user.make(new(dir, "f", FileKind::File, 0o644)).await.unwrap();
    assert_eq!(file.attr.exclusive, 0);
}

/// What the first answer had leased, which was lost, stayed leased as long as the session lasted.
#[tokio::test]
async fn what_was_leased_exclusively_with_an_answer_that_is_given_again_is_asked_back() {
    let world = World::new().await;
    let user = begin(&world).await;
    let dir = user.mkdir(1, "d").await.unwrap();
    assert_ne!(exclusive(&user, dir).await, 0);
    let seq = user.world.numbers.fetch_add(1, Ordering::SeqCst) + 1;
    let op = MetaOp::Create(new(dir, "e", FileKind::Directory, 0o755));
    let mut numbers = Vec::new();
    for _ in 0..2 {
        match user.call_seq(seq, 0, op.clone()).await.unwrap() {
            MetaAnswer::Created(made) => numbers.push((made.attr.ino, made.attr.exclusive)),
            other => panic!("{other:?}"),
        }
    }
    let [(ino, number), again] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!(again, (ino, 0));
    let asked = recalled(&user).await.exclusive;
    assert!(asked.contains(&Ask { ino, number, keep: false }), "{asked:?}");
}

/// Another server, which does not know what a session has under way; its directory, and a file there.
async fn after_a_restart() -> (World, u64, (u64, u64)) {
    let world = World::new().await;
    let (session, dir, file) = {
        let user = begin(&world).await;
        let dir = user.mkdir(1, "d").await.unwrap();
        let file = user.file(dir, "f").await.unwrap();
        assert_ne!(exclusive(&user, dir).await, 0);
        (user.session, dir, file)
    };
    (world.killed().await, session, (dir, file))
}

/// He waited for that, and then for the lock of the file, which who cuts it may have for long.
#[tokio::test]
async fn who_asks_for_a_file_waits_for_nobody_who_may_have_changed_names() {
    let (world, _, (dir, file)) = after_a_restart().await;
    let other = begin(&world).await;
    assert_eq!(other.getattr(file).await.unwrap().ino, file);
    let waits = other.getattr(dir).await.unwrap_err();
    assert_eq!(waits.kind, ErrorKind::HeldBack, "and is asked again");
    world.clock.advance_ms(4_000);
    assert_eq!(other.getattr(dir).await.unwrap().ino, dir, "his leases are over");
}

/// It was read as it was before, and then the change was committed that had been found to be one of before.
#[tokio::test]
async fn a_session_whose_leases_are_over_is_waited_for_while_a_change_of_before_is_being_made() {
    let (world, session, (dir, _)) = after_a_restart().await;
    let volume = world.server.core().volume(VolumeId(1)).await.unwrap();
    let session = volume.sessions.get(session).unwrap();
    let other = begin(&world).await;
    let making = session.begins_to_make();
    assert!(session.makes_of_before());
    world.clock.advance_ms(4_000);
    assert_eq!(other.getattr(dir).await.unwrap_err().kind, ErrorKind::HeldBack);
    assert!(!session.makes_of_before(), "nothing more");
    drop(making);
    assert_eq!(other.getattr(dir).await.unwrap().ino, dir);
}

/// It was stamped, and names that were changed later had an earlier time.
#[tokio::test]
async fn a_time_that_was_answered_and_is_still_to_come_is_not_stamped() {
    let world = World::new().await;
    let user = begin(&world).await;
    let dir = user.mkdir(1, "d").await.unwrap();
    let file = user.file(dir, "f").await.unwrap();
    assert_ne!(exclusive(&user, dir).await, 0);
    let now = world.server.core().now();
    let ahead = Timestamp { seconds: now.seconds + 20, ..now };
    let unlink = NameChange::Unlink(Unlink { at: at(dir, "f"), directory: false });
    let seq = world.numbers.fetch_add(1, Ordering::SeqCst) + 1;
    let change = Some(unlink);
    let change = ChangeBehind { seq, ino: file, at: ahead.into(), change, ..Default::default() };
    let op = MetaOp::Behind(Behind { changes: vec![change] });
    let MetaAnswer::Made(made) = user.call_seq(0, 0, op).await.unwrap() else { panic!() };
    let stamped: Timestamp = made.changes[0].parent.as_ref().unwrap().mtime.into();
    assert!(stamped < ahead, "{stamped:?}");
}
