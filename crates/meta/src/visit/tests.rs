use crate::tests::world::*;
use std::sync::Arc;
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_types::FileKind;
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaRequest, OpenSession, Recalls};
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
    for nth in 0..20 {
        let made = new(dir, &format!("made{nth}"), FileKind::File, 0o644);
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
