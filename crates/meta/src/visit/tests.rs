use crate::tests::world::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_types::FileKind;
use strake_wire::message::meta::{
    Ask, MetaAnswer, MetaOp, MetaRequest, OpenSession, Recalled, Recalls,
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

/// Each that was made, and never used again, had one that was given back a second later.
#[tokio::test]
async fn a_new_directory_is_leased_exclusively_with_the_first_change_in_it() {
    let world = World::new().await;
    let user = begin(&world).await;
    let dir = user.mkdir(1, "d").await.unwrap();
    assert_ne!(exclusive(&user, dir).await, 0);
    let made = user.make(new(dir, "e", FileKind::Directory, 0o755)).await.unwrap();
    assert_eq!(made.attr.exclusive, 0);
    assert_ne!(exclusive(&user, made.attr.ino).await, 0);
}
